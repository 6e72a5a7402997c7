//! `BatchIterator`: delivers one window in record batches.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use dataset_rt_core::StreamState;
use dataset_rt_core::order::{Progress, Ticket};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::{BatchSlots, ReadAhead, ReadLimits, assemble, batch_schema};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyRecordBatch;

use crate::dataset::{Shared, Standing};
use crate::errors::{exception, raised_or};
use crate::outside::WithoutGil;
use crate::state::to_dict;

/// An iterator over one window of a dataset, a `pyarrow.RecordBatch` at a time.
#[pyclass(module = "dataset_rt._core", name = "BatchIterator")]
pub struct BatchIterator {
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
        Self { shared, standing, population, ticket, batch_size, drop_last, schema, reading: None }
    }

    /// How many of `count` draws are delivered.
    fn delivered(&self, count: u64) -> u64 {
        if self.drop_last { count - count % self.batch_size } else { count }
    }
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
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
            Some(finished) => {
                let (caches, schema) = (self.population.caches(), &self.schema);
                let batch = py.detach(|| assemble(caches, schema, &finished.run, finished.slots)).map_err(exception)?;
                let batch = PyRecordBatch::new(batch).into_pyarrow(py)?;
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
    fn __length_hint__(&self) -> usize {
        let left = match &self.reading {
            Some((progress, _)) => self.delivered(progress.window().count()).saturating_sub(progress.taken()),
            None => self.delivered(self.ticket.world().count(self.ticket.epoch_len())),
        };
        usize::try_from(left.div_ceil(self.batch_size)).unwrap_or(usize::MAX)
    }

    /// The state of what this iterator has delivered.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cursor = match &self.reading {
            Some((progress, _)) => progress.state(),
            None => self.standing.lock().1.state_of(&self.ticket),
        };
        to_dict(py, &StreamState::new(&self.population, cursor))
    }
}
