//! `Window`: a stretch of the stream that an adapter delivers by its framework's own means.

use std::sync::{Arc, Mutex, TryLockError};

use dataset_rt_core::Error;
use dataset_rt_core::order::{PassCache, Progress};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::resize;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

use crate::batches::BatchIterator;
use crate::errors::exception;
use crate::iterator::SampleIterator;
use crate::shared::Shared;
use crate::state::state_dict;
use crate::stream::{Stream, packed};
use crate::window_reader::WindowReader;

/// How a window is cut into batches.
#[derive(Clone, Copy)]
pub struct Batches {
    pub size: u64,
    pub drop_last: bool,
}

impl Batches {
    /// Batches of `size` draws each.
    pub fn new(size: u64, drop_last: bool) -> PyResult<Self> {
        if size == 0 {
            return Err(exception(Error::config("batch_size must be at least 1, got 0")));
        }
        Ok(Self { size, drop_last })
    }
}

/// One rank's share of a window, cut into batches, and how much of it was consumed.
#[pyclass(frozen, module = "dataset_rt._core", name = "Window")]
pub struct Window {
    shared: Arc<Shared>,
    population: Arc<Population>,
    progress: Arc<Progress>,
    batches: Batches,
    /// A pass that was shuffled; whoever finds it taken shuffles its own.
    passes: Mutex<PassCache>,
}

impl Window {
    pub fn new(shared: Arc<Shared>, population: Arc<Population>, progress: Arc<Progress>, batches: Batches) -> Self {
        Self { shared, population, progress, batches, passes: Mutex::new(PassCache::default()) }
    }

    /// How many draws from `first` on are asked for; like a slice, it ends where the window does.
    fn within(&self, first: u64, count: u64) -> u64 {
        count.min(self.progress.window().count().saturating_sub(first))
    }

    fn drawn(&self, first: u64, count: u64) -> PyResult<Vec<u64>> {
        let (window, count) = (self.progress.window(), self.within(first, count));
        let mut rows = Vec::new();
        resize(&mut rows, count).map_err(exception)?;
        if count > 0 {
            let (start, step) = (window.position(first), window.world().size());
            let sampler = self.population.sampler();
            match self.passes.try_lock() {
                Ok(mut passes) => sampler.fill(start, step, &mut passes, &mut rows),
                Err(TryLockError::Poisoned(passes)) => sampler.fill(start, step, &mut passes.into_inner(), &mut rows),
                Err(TryLockError::WouldBlock) => sampler.fill(start, step, &mut PassCache::default(), &mut rows),
            }
        }
        Ok(rows)
    }
}

#[pymethods]
impl Window {
    /// Its first position, of all ranks.
    #[getter]
    fn start(&self) -> u64 {
        self.progress.window().start().0
    }

    /// The position behind the draws of all ranks, where the next window starts.
    #[getter]
    fn end(&self) -> u64 {
        self.progress.window().dealt_end().0
    }

    /// (rank, world size, remainder).
    #[getter]
    fn world(&self) -> (u64, u64, &'static str) {
        let world = self.progress.window().world();
        (world.rank(), world.size(), world.remainder().name())
    }

    #[getter]
    fn batch_size(&self) -> u64 {
        self.batches.size
    }

    #[getter]
    fn drop_last(&self) -> bool {
        self.batches.drop_last
    }

    #[getter]
    fn num_draws(&self) -> u64 {
        self.progress.window().count()
    }

    #[getter]
    fn num_batches(&self) -> u64 {
        self.progress.window().batches(self.batches.size, self.batches.drop_last)
    }

    /// Positions of this rank's draws `first`, `first + 1`, …: 64-bit little-endian integers.
    fn positions<'py>(&self, py: Python<'py>, first: u64, count: u64) -> PyResult<Bound<'py, PyByteArray>> {
        let window = self.progress.window();
        let mut positions = Vec::new();
        resize(&mut positions, self.within(first, count)).map_err(exception)?;
        for (place, index) in positions.iter_mut().zip(first..) {
            *place = window.position(index).0;
        }
        packed(py, &positions)
    }

    /// Records of the same draws.
    fn records<'py>(&self, py: Python<'py>, first: u64, count: u64) -> PyResult<Bound<'py, PyByteArray>> {
        let records = py.detach(|| {
            let mut rows = self.drawn(first, count)?;
            for row in &mut rows {
                *row = self.population.record(*row).map_err(exception)?;
            }
            Ok::<_, PyErr>(rows)
        })?;
        packed(py, &records)
    }

    fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.shared), Arc::clone(&self.population), self.progress.epoch_len())
    }

    /// An iterator over the window's samples that reads ahead and says nothing of what was consumed.
    fn samples(&self) -> SampleIterator {
        SampleIterator::new(self.reader())
    }

    /// The same over its batches.
    fn record_batches(&self) -> BatchIterator {
        BatchIterator::new(self.reader(), self.batches.size, self.batches.drop_last)
    }

    /// Notes that one more batch was consumed.
    fn advance(&self) -> PyResult<()> {
        self.progress.advance_counted(self.batches.size, self.batches.drop_last).map_err(exception)
    }

    /// Notes that the window was consumed to its end.
    fn finish(&self) {
        self.progress.finish();
    }

    /// The state after `batches` batches of this window, or of what was noted.
    #[pyo3(signature = (batches))]
    fn state_dict<'py>(&self, py: Python<'py>, batches: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
        let Batches { size, drop_last } = self.batches;
        let cursor = match batches {
            None => self.progress.state(),
            Some(batches) => self.progress.state_after(batches, size, drop_last).map_err(exception)?,
        };
        state_dict(py, &self.population, cursor)
    }
}

impl Window {
    fn reader<S: dataset_rt_core::store::PayloadSlots + 'static>(&self) -> WindowReader<S> {
        let (shared, population) = (Arc::clone(&self.shared), Arc::clone(&self.population));
        WindowReader::reserved(shared, population, Arc::clone(&self.progress))
    }
}
