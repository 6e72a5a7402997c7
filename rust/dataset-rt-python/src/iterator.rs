//! `SampleIterator`: delivers one window, sample by sample.

use std::sync::Arc;

use dataset_rt_core::StreamState;
use dataset_rt_core::order::{CursorState, Progress, Ticket};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::{ReadAhead, ReadLimits};
use dataset_rt_core::store::PlannedRecord;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::dataset::{Shared, Standing};
use crate::errors::raised_or;
use crate::exclusive::Exclusive;
use crate::outside::WithoutGil;
use crate::sample::CachedSample;
use crate::slots::{BytesSlots, keep_leftovers};
use crate::state::to_dict;

/// An iterator over one window of a dataset.
#[pyclass(frozen, module = "dataset_rt._core", name = "SampleIterator")]
pub struct SampleIterator {
    delivery: Exclusive<Delivery>,
}

/// How far an iterator is.
struct Delivery {
    shared: Arc<Shared>,
    standing: Arc<Standing>,
    population: Arc<Population>,
    ticket: Ticket,
    reading: Option<(Arc<Progress>, ReadAhead<BytesSlots>)>,
    /// The rest of the run that is being delivered.
    records: std::vec::IntoIter<PlannedRecord>,
    objects: std::vec::IntoIter<Py<PyBytes>>,
}

impl SampleIterator {
    /// An iterator that reserves its window at its first `next`.
    pub fn new(shared: Arc<Shared>, standing: Arc<Standing>, population: Arc<Population>, ticket: Ticket) -> Self {
        let (records, objects) = (Vec::new().into_iter(), Vec::new().into_iter());
        let delivery = Delivery { shared, standing, population, ticket, reading: None, records, objects };
        Self { delivery: Exclusive::new(delivery) }
    }
}

impl Delivery {
    fn deliver(&mut self) -> Option<CachedSample> {
        let (record, data) = (self.records.next()?, self.objects.next()?);
        let (progress, _) = self.reading.as_ref()?;
        progress.advance(1);
        let cache = self.population.caches().by_id().get(record.cache)?;
        Some(CachedSample::read(data, &self.shared.opened, cache, record.sample))
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<CachedSample>> {
        if let Some(sample) = self.deliver() {
            return Ok(Some(sample));
        }
        if self.reading.is_none() {
            let progress = self.standing.reserve(&self.ticket)?;
            let options = self.shared.options;
            let limits = ReadLimits::samples(options.prefetch_size, options.prefetch_bytes, options.verify_reads);
            let (window, count) = (*progress.window(), progress.window().count());
            let ahead = ReadAhead::new(Arc::clone(&self.population), window, count, limits, self.shared.pool());
            self.reading = Some((progress, ahead));
        }
        let Some((progress, ahead)) = &mut self.reading else { return Ok(None) };
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
                progress.finish();
                Ok(None)
            }
        }
    }

    /// How many samples are left.
    fn left(&self) -> u64 {
        match &self.reading {
            Some((progress, _)) => progress.window().count() - progress.taken(),
            None => self.standing.count_of(&self.ticket),
        }
    }

    fn state(&self) -> (Arc<Population>, CursorState) {
        let cursor = match &self.reading {
            Some((progress, _)) => progress.state(),
            None => self.standing.state_of(&self.ticket),
        };
        (Arc::clone(&self.population), cursor)
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
        Ok(usize::try_from(self.delivery.take()?.left()).unwrap_or(usize::MAX))
    }

    /// The state of what this iterator has delivered.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (population, cursor) = self.delivery.take()?.state();
        py.detach(|| population.digest());
        to_dict(py, &StreamState::new(&population, cursor))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("an iterator cannot be pickled; save its state_dict(), or pickle dataset.stream()"))
    }
}

impl Drop for SampleIterator {
    fn drop(&mut self) {
        if let Some((_, mut ahead)) = self.delivery.get_mut().reading.take() {
            Python::attach(|py| keep_leftovers(py, ahead.cancel()));
        }
    }
}
