//! `BatchIterator`: delivers one window in record batches.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use dataset_rt_core::StreamState;
use dataset_rt_core::order::{CursorState, Progress, Ticket};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::{BatchSlots, ReadAhead, ReadLimits, assemble, batch_schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyRecordBatch;

use crate::dataset::{Shared, Standing};
use crate::errors::{exception, raised_or};
use crate::exclusive::Exclusive;
use crate::outside::WithoutGil;
use crate::state::to_dict;

/// An iterator over one window of a dataset, a `pyarrow.RecordBatch` at a time.
#[pyclass(frozen, module = "dataset_rt._core", name = "BatchIterator")]
pub struct BatchIterator {
    delivery: Exclusive<Delivery>,
}

/// How far an iterator is.
struct Delivery {
    shared: Arc<Shared>,
    standing: Arc<Standing>,
    population: Arc<Population>,
    ticket: Ticket,
    batch_size: u64,
    drop_last: bool,
    schema: SchemaRef,
    reading: Option<(Arc<Progress>, ReadAhead<BatchSlots>)>,
}

impl BatchIterator {
    /// An iterator that reserves its window at its first `next`.
    pub fn new(
        shared: Arc<Shared>,
        standing: Arc<Standing>,
        population: Arc<Population>,
        ticket: Ticket,
        batch_size: u64,
        drop_last: bool,
    ) -> Self {
        let schema = batch_schema(&shared.opened.caches.columns());
        let reading = None;
        let delivery = Delivery { shared, standing, population, ticket, batch_size, drop_last, schema, reading };
        Self { delivery: Exclusive::new(delivery) }
    }
}

impl Delivery {
    /// How many of `count` draws are delivered.
    fn delivered(&self, count: u64) -> u64 {
        if self.drop_last { count - count % self.batch_size } else { count }
    }

    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.reading.is_none() {
            let progress = self.standing.reserve(&self.ticket)?;
            let options = self.shared.options;
            let (size, bytes) = (options.prefetch_size, options.prefetch_bytes);
            let limits = ReadLimits::batches(self.batch_size, size, bytes, options.verify_reads);
            let (window, count) = (*progress.window(), self.delivered(progress.window().count()));
            let ahead = ReadAhead::new(Arc::clone(&self.population), window, count, limits, self.shared.pool());
            self.reading = Some((progress, ahead));
        }
        let Some((progress, ahead)) = &mut self.reading else { return Ok(None) };
        let mut outside = WithoutGil::new(py);
        let finished = ahead.next(&mut BatchSlots::for_run, &mut outside);
        match finished.map_err(|error| raised_or(outside.raised, error))? {
            Some((first, filled)) => {
                let (caches, schema) = (self.population.caches(), &self.schema);
                let batch = py.detach(|| assemble(caches, schema, filled)).map_err(|error| {
                    ahead.give_back(first);
                    exception(error)
                })?;
                let batch = PyRecordBatch::new(batch).into_pyarrow(py).inspect_err(|_| ahead.give_back(first))?;
                progress.advance_batch(self.batch_size, self.drop_last);
                Ok(Some(batch))
            }
            None => {
                progress.finish();
                Ok(None)
            }
        }
    }

    /// How many batches are left.
    fn left(&self) -> u64 {
        let samples = match &self.reading {
            Some((progress, _)) => self.delivered(progress.window().count()).saturating_sub(progress.taken()),
            None => self.delivered(self.standing.count_of(&self.ticket)),
        };
        samples.div_ceil(self.batch_size)
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
impl BatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.delivery.take()?.next(py)
    }

    /// How many batches are left.
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
