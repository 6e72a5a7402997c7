//! `CachedSample`: what iteration delivers.

use std::sync::Arc;

use dataset_rt_core::SampleId;
use dataset_rt_core::store::{CacheSet, PlannedRecord};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::errors::exception;
use crate::value::to_python;

/// Opened caches with the column names as Python strings, shared by all that reads from them.
pub struct Opened {
    pub caches: Arc<CacheSet>,
    names: Vec<Py<PyString>>,
}

impl Opened {
    pub fn new(py: Python<'_>, caches: Arc<CacheSet>) -> Self {
        let names = caches.columns().iter().map(|column| PyString::intern(py, &column.name).unbind()).collect();
        Self { caches, names }
    }

    fn metadata<'py>(&self, py: Python<'py>, place: usize, sample: SampleId) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        if let Some(cache) = self.caches.by_id().get(place).filter(|_| !self.names.is_empty()) {
            let (batch, row) = cache.metadata_of(sample).map_err(exception)?;
            for ((name, column), array) in self.names.iter().zip(&cache.manifest().columns).zip(batch.columns()) {
                dict.set_item(name, to_python(py, column.kind, array, row)?)?;
            }
        }
        Ok(dict)
    }
}

/// One sample: payload, stored columns and identity. Read-only; unpacks and compares like a tuple.
#[pyclass(frozen, module = "dataset_rt", name = "CachedSample")]
pub struct CachedSample {
    data: Py<PyBytes>,
    cache_id: u64,
    sample_id: u64,
    /// Where the metadata comes from, and the cache's place there; `None` for a sample that was made from its parts.
    origin: Option<(Arc<Opened>, usize)>,
    metadata: PyOnceLock<Py<PyDict>>,
}

impl CachedSample {
    /// A sample that was read. Its metadata is looked up when it is asked for.
    pub fn read(data: Py<PyBytes>, opened: &Arc<Opened>, record: &PlannedRecord) -> Option<Self> {
        let cache_id = opened.caches.by_id().get(record.cache)?.cache_id().0;
        let origin = Some((Arc::clone(opened), record.cache));
        Some(Self { data, cache_id, sample_id: record.sample.0, origin, metadata: PyOnceLock::new() })
    }

    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (self.data.clone_ref(py), self.metadata(py)?, self.cache_id, self.sample_id).into_pyobject(py)
    }
}

#[pymethods]
impl CachedSample {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str, &'static str) {
        ("data", "metadata", "cache_id", "sample_id")
    }

    #[new]
    fn new(data: Py<PyBytes>, metadata: Bound<'_, PyDict>, cache_id: u64, sample_id: u64) -> PyResult<Self> {
        let py = metadata.py();
        let held = PyOnceLock::new();
        // A new lock is empty, so this sets it.
        let _ = held.set(py, metadata.copy()?.unbind());
        Ok(Self { data, cache_id, sample_id, origin: None, metadata: held })
    }

    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let made = self.metadata.get_or_try_init(py, || match &self.origin {
            Some((opened, place)) => Ok(opened.metadata(py, *place, SampleId(self.sample_id))?.unbind()),
            None => Ok::<_, PyErr>(PyDict::new(py).unbind()),
        })?;
        Ok(made.bind(py).clone())
    }

    #[getter]
    fn cache_id(&self) -> u64 {
        self.cache_id
    }

    #[getter]
    fn sample_id(&self) -> u64 {
        self.sample_id
    }

    fn __len__(&self) -> usize {
        4
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.parts(py)?.try_iter()?.into_any())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let place = if index < 0 { index + 4 } else { index };
        match usize::try_from(place) {
            Ok(place @ 0..4) => self.parts(py)?.get_item(place),
            _ => Err(PyIndexError::new_err(format!("index of a CachedSample must be in [-4, 4), got {index}"))),
        }
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let other = match other.cast::<Self>() {
            Ok(other) => other.get().parts(py)?.into_any(),
            Err(_) => other.clone(),
        };
        if other.is_instance_of::<PyTuple>() && matches!(op, CompareOp::Eq | CompareOp::Ne) {
            self.parts(py)?.rich_compare(other, op)
        } else {
            Ok(py.NotImplemented().into_bound(py))
        }
    }

    fn __hash__(&self) -> PyResult<isize> {
        Err(PyTypeError::new_err("a CachedSample cannot be hashed, as it holds a dict; use (cache_id, sample_id)"))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((slf.get_type().into_any(), slf.get().parts(slf.py())?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let metadata = crate::value::shortened(self.metadata(py)?.as_any());
        let bytes = self.data.bind(py).as_bytes().len();
        let (cache_id, sample_id) = (self.cache_id, self.sample_id);
        Ok(format!(
            "CachedSample(data=<{bytes} bytes>, metadata={metadata}, cache_id={cache_id}, sample_id={sample_id})"
        ))
    }
}
