//! Takes samples out of a Python source, a batch under one hold of the GIL.

use std::process;
use std::time::{Duration, Instant};

use dataset_rt_core::format::{Column, ColumnKind, Value};
use dataset_rt_core::runtime::{PendingSample, SampleBatch, SampleFeed};
use dataset_rt_core::store::RowTyper;
use dataset_rt_core::{Error, Result};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyIterator, PyMemoryView, PyString, PyTuple, PyType};

use crate::errors::exception;
use crate::user_code;
use crate::value::{Refusal, from_python, shortened, type_name};

/// A batch ends after this time, so that a slow source's samples are written, and shown, while it works on the next.
/// Where a batch ends leaves no trace in the files.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// How many reasons of left out samples are kept.
const KEPT_REASONS: usize = 5;
/// Characters that are kept of such a reason.
const REASON_CHARACTERS: usize = 500;

/// The samples of one Python source.
pub struct PythonFeed<'py> {
    py: Python<'py>,
    source_name: String,
    source: Bound<'py, PyAny>,
    /// Made when the first sample is wanted: a process that waits and reuses another's cache begins nothing.
    iterator: Option<Bound<'py, PyIterator>>,
    typer: RowTyper,
    /// The column names as Python strings, once they are known.
    keys: Option<Vec<Bound<'py, PyString>>>,
    input_class: Bound<'py, PyType>,
    skipped_class: Bound<'py, PyType>,
    skip: bool,
    process: u32,
    /// Samples that the source gave, written or not.
    seen: u64,
    written: u64,
    skipped: u64,
    first_errors: Vec<String>,
    ended: bool,
    /// What the source raised; the core then sees [`Error::Interrupted`].
    pub raised: Option<PyErr>,
}

/// A payload that stays as it is until it is written: immutable bytes by reference, everything else by copy.
pub type Payload = PyBackedBytes;

impl<'py> PythonFeed<'py> {
    /// Begins to iterate a source.
    pub fn new(
        source: &Bound<'py, PyAny>,
        source_name: &str,
        schema: Option<Vec<(String, ColumnKind)>>,
        skip: bool,
    ) -> PyResult<Self> {
        let py = source.py();
        let sources = py.import("dataset_rt.sources")?;
        Ok(Self {
            py,
            source_name: source_name.to_owned(),
            source: source.clone(),
            iterator: None,
            typer: RowTyper::new(source_name, schema).map_err(exception)?,
            keys: None,
            input_class: sources.getattr("CacheInput")?.cast_into::<PyType>()?,
            skipped_class: sources.getattr("SkippedInput")?.cast_into::<PyType>()?,
            skip,
            process: process::id(),
            seen: 0,
            written: 0,
            skipped: 0,
            first_errors: Vec::new(),
            ended: false,
            raised: None,
        })
    }

    /// How many samples were written and left out, and the first reasons for leaving out.
    pub fn report(&mut self) -> (u64, u64, Vec<String>) {
        (self.written, self.skipped, std::mem::take(&mut self.first_errors))
    }

    /// Adds the next sample to the batch; false at the end of the source.
    fn take_next(&mut self, batch: &mut SampleBatch<Payload>) -> Result<bool> {
        let iterator = self.iterator()?;
        let item = match user_code::call(|| iterator.next()) {
            None => return Ok(false),
            Some(Ok(item)) => item,
            Some(Err(raised)) => return Err(self.source_raised(raised)),
        };
        if process::id() != self.process {
            // The source forked, and this is the child: going on would write the parent's cache a second time.
            return Err(self.refused(Refusal::new(
                "samples from the process that began to iterate it",
                "one from a forked child; a source's helpers must not return into its iterator",
            )));
        }
        let sample = self.seen;
        self.seen += 1;
        match self.sample_parts(&item)? {
            Parts::Skipped(reason) if self.skip => self.leave_out(format!("sample {sample}: {reason}")),
            Parts::Skipped(reason) => {
                return Err(Error::Source {
                    source_name: self.source_name.clone(),
                    sample: Some(sample),
                    field: None,
                    expected: "a CacheInput (with on_error=\"skip\", also a SkippedInput)".to_owned(),
                    found: format!("SkippedInput({reason:?})"),
                });
            }
            Parts::Input(data, metadata) => match self.add(sample, &data, &metadata, batch) {
                Err(error @ Error::Source { .. }) if self.skip => self.leave_out(error.to_string()),
                other => other?,
            },
        }
        Ok(true)
    }

    fn iterator(&mut self) -> Result<&mut Bound<'py, PyIterator>> {
        if self.iterator.is_none() {
            let made = user_code::call(|| self.source.try_iter()).map_err(|raised| {
                let error = source_error(self.py, &self.source_name, None, "an iterator", raised);
                self.python_raised(error)
            })?;
            self.iterator = Some(made);
        }
        self.iterator.as_mut().ok_or(Error::Interrupted)
    }

    fn add(
        &mut self,
        sample: u64,
        data: &Bound<'py, PyAny>,
        metadata: &Bound<'py, PyAny>,
        batch: &mut SampleBatch<Payload>,
    ) -> Result<()> {
        let payload = match self.payload(data)? {
            Ok(payload) => payload,
            Err(refusal) => return Err(self.sample_refused(sample, Some("data".to_owned()), refusal)),
        };
        let start = batch.fields.len();
        self.encode_metadata(sample, metadata, &mut batch.fields)?;
        batch.payload_bytes += payload.len() as u64;
        batch.samples.push(PendingSample { payload, fields: start..batch.fields.len() });
        self.written += 1;
        Ok(())
    }

    fn sample_parts(&mut self, item: &Bound<'py, PyAny>) -> Result<Parts<'py>> {
        let parts = || -> PyResult<Option<Parts<'py>>> {
            if item.is_instance(&self.input_class)? {
                let tuple = item.cast::<PyTuple>()?;
                return Ok(Some(Parts::Input(tuple.get_item(0)?, tuple.get_item(1)?)));
            }
            if item.is_instance(&self.skipped_class)? {
                return Ok(Some(Parts::Skipped(item.getattr("reason")?.str()?.to_string_lossy().into_owned())));
            }
            Ok(None)
        };
        match parts() {
            Ok(Some(parts)) => Ok(parts),
            Ok(None) => {
                let found = format!("{} of type {}", shortened(item), type_name(item));
                Err(self.refused(Refusal::new("a CacheInput or a SkippedInput", found)))
            }
            Err(raised) => {
                let sample = Some(self.seen.saturating_sub(1));
                let error = source_error(self.py, &self.source_name, sample, "a sample that can be looked at", raised);
                Err(self.python_raised(error))
            }
        }
    }

    fn payload(&mut self, data: &Bound<'py, PyAny>) -> Result<std::result::Result<Payload, Refusal>> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Ok(PyBackedBytes::from(bytes.clone())));
        }
        if let Ok(bytes) = data.cast::<PyByteArray>() {
            return Ok(Ok(PyBackedBytes::from(bytes.clone())));
        }
        let view = match PyMemoryView::from(data) {
            Ok(view) => view,
            Err(_) => {
                let found = format!("{} of type {}", shortened(data), type_name(data));
                return Ok(Err(Refusal::new("bytes, bytearray, memoryview or an object with a buffer", found)));
            }
        };
        let copied = || -> PyResult<std::result::Result<Payload, Refusal>> {
            let format: String = view.getattr("format")?.extract()?;
            if format.contains('O') {
                return Ok(Err(Refusal::new("a buffer of plain values", "one of references to Python objects")));
            }
            let bytes = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
            Ok(Ok(PyBackedBytes::from(bytes)))
        };
        copied().map_err(|raised| self.looked_at(self.seen.saturating_sub(1), "data", raised))
    }

    fn encode_metadata(&mut self, sample: u64, metadata: &Bound<'py, PyAny>, fields: &mut Vec<u8>) -> Result<()> {
        let dict = match self.metadata_dict(sample, metadata)? {
            Some(dict) => dict,
            None => metadata.cast::<PyDict>().map_err(|error| self.python_raised(error.into()))?.clone(),
        };
        let values = self.metadata_values(sample, &dict)?;
        let known = match (&values, self.typer.names()) {
            (Some(values), Some(names)) => Some((names.to_vec(), values)),
            _ => None,
        };
        if let Some((names, values)) = known {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return self.typer.encode(sample, &names, values, fields);
        }
        // The first row, or one with other keys, which the typer refuses naming what differs.
        let (mut names, mut values) = (Vec::with_capacity(dict.len()), Vec::with_capacity(dict.len()));
        for (key, value) in dict.iter() {
            let name = key.cast::<PyString>().ok().and_then(|key| key.to_str().ok().map(str::to_owned));
            let Some(name) = name else {
                let refusal = Refusal::new("metadata keys that are str and that UTF-8 can hold", shortened(&key));
                return Err(self.sample_refused(sample, None, refusal));
            };
            values.push(self.value(sample, &name, &value)?);
            names.push(name);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.typer.encode(sample, &names, &values, fields)
    }

    /// The values in the order of the known columns; `None` where the columns are not known or the keys are others.
    fn metadata_values(&mut self, sample: u64, dict: &Bound<'py, PyDict>) -> Result<Option<Vec<Value>>> {
        if self.keys.is_none() {
            let names = self.typer.names();
            self.keys = names.map(|names| names.iter().map(|name| PyString::intern(self.py, name)).collect());
        }
        let Some(keys) = self.keys.clone() else { return Ok(None) };
        if dict.len() != keys.len() {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(keys.len());
        for key in &keys {
            match dict.get_item(key) {
                Ok(Some(value)) => values.push(self.value(sample, &key.to_string_lossy(), &value)?),
                Ok(None) => return Ok(None),
                Err(raised) => return Err(self.python_raised(raised)),
            }
        }
        Ok(Some(values))
    }

    /// A copy of a mapping that is no dict; `None` for a dict.
    fn metadata_dict(&mut self, sample: u64, metadata: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyDict>>> {
        if metadata.is_instance_of::<PyDict>() {
            return Ok(None);
        }
        let is_mapping = || metadata.is_instance(&self.py.import("collections.abc")?.getattr("Mapping")?);
        match is_mapping() {
            Ok(true) => {}
            Ok(false) => {
                let found = format!("{} of type {}", shortened(metadata), type_name(metadata));
                let refusal = Refusal::new("a mapping from str to values as metadata", found);
                return Err(self.sample_refused(sample, Some("metadata".to_owned()), refusal));
            }
            Err(raised) => return Err(self.python_raised(raised)),
        }
        let copy = || self.py.get_type::<PyDict>().call1((metadata,))?.cast_into::<PyDict>().map_err(PyErr::from);
        copy().map(Some).map_err(|raised| self.looked_at(sample, "metadata", raised))
    }

    fn value(&mut self, sample: u64, name: &str, value: &Bound<'py, PyAny>) -> Result<Value> {
        match from_python(value) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(refusal)) => Err(self.sample_refused(sample, Some(name.to_owned()), refusal)),
            Err(raised) => Err(self.looked_at(sample, name, raised)),
        }
    }

    fn leave_out(&mut self, reason: String) {
        self.skipped += 1;
        if self.first_errors.len() < KEPT_REASONS {
            self.first_errors.push(reason.chars().take(REASON_CHARACTERS).collect());
        }
    }

    /// A refusal that concerns the source as a whole, and which skipping must not hide.
    fn refused(&mut self, refusal: Refusal) -> Error {
        let error = self.sample_refused(self.seen.saturating_sub(1), None, refusal);
        self.python_raised(exception(error))
    }

    fn sample_refused(&self, sample: u64, field: Option<String>, refusal: Refusal) -> Error {
        let Refusal { expected, found } = refusal;
        Error::Source { source_name: self.source_name.clone(), sample: Some(sample), field, expected, found }
    }

    /// What looking at a sample raised: a refusal of the sample, unless it asks the program to end.
    fn looked_at(&mut self, sample: u64, field: &str, raised: PyErr) -> Error {
        if !raised.is_instance_of::<PyException>(self.py) {
            return self.python_raised(raised);
        }
        let refusal = Refusal::new("a value that can be looked at", raised.to_string());
        self.sample_refused(sample, Some(field.to_owned()), refusal)
    }

    /// What the source's own iterator raised: a `SourceError` with it as its cause, unless it asks the program to end.
    fn source_raised(&mut self, raised: PyErr) -> Error {
        let error =
            source_error(self.py, &self.source_name, Some(self.seen), "a sample or the end of the source", raised);
        self.python_raised(error)
    }

    fn python_raised(&mut self, raised: PyErr) -> Error {
        self.raised = Some(raised);
        Error::Interrupted
    }
}

/// A `SourceError` with what a source raised as its cause; what asks the program to end stays as it is.
fn source_error(py: Python<'_>, source_name: &str, sample: Option<u64>, expected: &str, raised: PyErr) -> PyErr {
    if !raised.is_instance_of::<PyException>(py) {
        return raised;
    }
    let error = exception(Error::Source {
        source_name: source_name.to_owned(),
        sample,
        field: None,
        expected: expected.to_owned(),
        found: raised.to_string(),
    });
    error.set_cause(py, Some(raised));
    error
}

enum Parts<'py> {
    Input(Bound<'py, PyAny>, Bound<'py, PyAny>),
    Skipped(String),
}

impl SampleFeed for PythonFeed<'_> {
    type Payload = Payload;

    fn pull(&mut self, most_samples: u64, most_bytes: u64) -> Result<Option<SampleBatch<Payload>>> {
        if self.ended {
            return Ok(None);
        }
        let begun = Instant::now();
        let mut batch = SampleBatch { samples: Vec::new(), fields: Vec::new(), payload_bytes: 0 };
        while (batch.samples.len() as u64) < most_samples
            && batch.payload_bytes < most_bytes
            && begun.elapsed() < BATCH_TIME
        {
            if !self.take_next(&mut batch)? {
                self.ended = true;
                break;
            }
        }
        Ok(Some(batch))
    }

    fn left_out(&self) -> u64 {
        self.skipped
    }

    fn columns(&self) -> Vec<Column> {
        self.typer.clone().finish()
    }
}
