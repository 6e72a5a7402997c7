//! `BatchIterator`: delivers one window in record batches.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use dataset_rt_core::order::Progress;
use dataset_rt_core::runtime::{BatchSlots, ReadLimits, assemble, batch_schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyRecordBatch;

use crate::errors::{exception, raised_or};
use crate::exclusive::Exclusive;
use crate::outside::WithoutGil;
use crate::shared::Shared;
use crate::state::state_dict;
use crate::window_reader::WindowReader;

/// An iterator over one window of a dataset, a `pyarrow.RecordBatch` at a time.
#[pyclass(frozen, module = "dataset_rt._core", name = "BatchIterator")]
pub struct BatchIterator {
    delivery: Exclusive<Delivery>,
}

/// How far an iterator is.
struct Delivery {
    reader: WindowReader<BatchSlots>,
    batch_size: u64,
    drop_last: bool,
    schema: SchemaRef,
}

impl BatchIterator {
    /// An iterator that reserves its window at its first `next`.
    pub fn new(reader: WindowReader<BatchSlots>, batch_size: u64, drop_last: bool) -> Self {
        let schema = batch_schema(&reader.shared.opened.caches.columns());
        Self { delivery: Exclusive::new(Delivery { reader, batch_size, drop_last, schema }) }
    }
}

impl Delivery {
    /// How many of `count` draws are delivered.
    fn delivered(&self) -> impl FnOnce(u64) -> u64 + use<> {
        let (batch_size, drop_last) = (self.batch_size, self.drop_last);
        move |count| if drop_last { count - count % batch_size } else { count }
    }

    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (batch_size, delivered) = (self.batch_size, self.delivered());
        let limits = |shared: &Shared| {
            let options = shared.options;
            ReadLimits::batches(batch_size, options.prefetch_size, options.prefetch_bytes, options.verify_reads)
        };
        let caches = Arc::clone(self.reader.population.caches());
        let spare = Arc::clone(&self.reader.shared.spare);
        let ahead = self.reader.begun(limits, delivered)?;
        let mut outside = WithoutGil::new(py);
        let finished = ahead.next(&mut |run| BatchSlots::from_spare(&spare, run), &mut outside);
        match finished.map_err(|error| raised_or(outside.raised, error))? {
            Some((first, filled)) => {
                let assembled = py.detach(|| assemble(&caches, &self.schema, filled)).map_err(exception);
                let batch = assembled.and_then(|batch| PyRecordBatch::new(batch).into_pyarrow(py));
                let batch = batch.inspect_err(|_| ahead.give_back(first))?;
                let drop_last = self.drop_last;
                self.reader.consumed(|progress| progress.advance_batch(batch_size, drop_last));
                Ok(Some(batch))
            }
            None => {
                self.reader.consumed(Progress::finish);
                Ok(None)
            }
        }
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
        let delivery = self.delivery.take()?;
        let batches = delivery.reader.left(delivery.delivered()).div_ceil(delivery.batch_size);
        Ok(usize::try_from(batches).unwrap_or(usize::MAX))
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
