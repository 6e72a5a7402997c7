//! `SampleIterator`: delivers one window, sample by sample.

use dataset_rt_core::order::Progress;
use dataset_rt_core::runtime::ReadLimits;
use dataset_rt_core::store::PlannedRecord;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::raised_or;
use crate::exclusive::Exclusive;
use crate::outside::WithoutGil;
use crate::sample::CachedSample;
use crate::shared::Shared;
use crate::slots::{BytesSlots, keep_leftovers};
use crate::state::state_dict;
use crate::window_reader::WindowReader;

/// An iterator over one window of a dataset.
#[pyclass(frozen, module = "dataset_rt._core", name = "SampleIterator")]
pub struct SampleIterator {
    delivery: Exclusive<Delivery>,
}

/// How far an iterator is.
struct Delivery {
    reader: WindowReader<BytesSlots>,
    /// The rest of the run that is being delivered.
    records: std::vec::IntoIter<PlannedRecord>,
    objects: std::vec::IntoIter<Py<PyBytes>>,
}

impl SampleIterator {
    /// An iterator that reserves its window at its first `next`.
    pub fn new(reader: WindowReader<BytesSlots>) -> Self {
        let (records, objects) = (Vec::new().into_iter(), Vec::new().into_iter());
        Self { delivery: Exclusive::new(Delivery { reader, records, objects }) }
    }
}

impl Delivery {
    fn deliver(&mut self) -> Option<CachedSample> {
        let (record, data) = (self.records.next()?, self.objects.next()?);
        self.reader.consumed(|progress| progress.advance(1));
        CachedSample::read(data, &self.reader.shared.opened, &record)
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<CachedSample>> {
        if let Some(sample) = self.deliver() {
            return Ok(Some(sample));
        }
        let limits = |shared: &Shared| {
            let options = shared.options;
            ReadLimits::samples(options.prefetch_size, options.prefetch_bytes, options.verify_reads)
        };
        let ahead = self.reader.begun(limits, |count| count)?;
        let mut outside = WithoutGil::new(py);
        let finished = ahead.next(&mut |run| BytesSlots::for_run(py, run), &mut outside);
        match finished.map_err(|error| raised_or(outside.raised, error))? {
            Some((_, filled)) => {
                let (run, slots) = filled.into_parts();
                self.records = run.records.into_iter();
                self.objects = slots.into_objects().into_iter();
                Ok(self.deliver())
            }
            None => {
                self.reader.consumed(Progress::finish);
                Ok(None)
            }
        }
    }
}

#[pymethods]
impl SampleIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<CachedSample>> {
        self.delivery.take()?.next(py)
    }

    /// How many samples are left.
    fn __length_hint__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.delivery.take()?.reader.left(|count| count)).unwrap_or(usize::MAX))
    }

    /// The state of what this iterator has delivered.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (population, cursor) = self.delivery.take()?.reader.state();
        state_dict(py, &population, cursor)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("an iterator cannot be pickled; save its state_dict(), or pickle dataset.stream()"))
    }
}

impl Drop for SampleIterator {
    fn drop(&mut self) {
        let leftovers = self.delivery.get_mut().reader.cancel();
        Python::attach(|py| keep_leftovers(py, leftovers));
    }
}
