//! `Dataset`: a population over opened caches and where its stream stands.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataset_rt_core::order::{Cursor, CursorState, Mode, Progress, Remainder, Ticket, World};
use dataset_rt_core::population::{FirstTable, Population};
use dataset_rt_core::runtime::{Pool, Runtime};
use dataset_rt_core::store::CacheSet;
use dataset_rt_core::{CacheId, Error, SampleId, StreamState};
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyTable;

use crate::batches::BatchIterator;
use crate::errors::exception;
use crate::fetch::Fetcher;
use crate::iterator::SampleIterator;
use crate::sample::{CachedSample, Opened};
use crate::state::{from_dict, to_dict};
use crate::stream::Stream;

/// The part of a `ReaderConfig` that reading needs.
#[derive(Clone, Copy)]
pub struct ReadOptions {
    pub mode: Mode,
    pub seed: u64,
    pub prefetch_size: u64,
    pub prefetch_bytes: u64,
    pub verify_reads: bool,
}

/// What all datasets over the same opened caches share.
pub struct Shared {
    pub opened: Arc<Opened>,
    pub options: ReadOptions,
    runtime: Option<Arc<Runtime>>,
    /// The process that opened the caches; a child that inherited them reads in the calling thread.
    process: u32,
}

impl Shared {
    /// Caches that are read in the calling thread alone, as after unpickling.
    pub fn without_threads(opened: Arc<Opened>, options: ReadOptions) -> Self {
        Self { opened, options, runtime: None, process: process::id() }
    }

    /// The threads for reading, where this process has any for these caches.
    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.runtime.as_ref().filter(|_| self.is_home()).and_then(|runtime| runtime.pool())
    }

    pub fn is_home(&self) -> bool {
        self.process == process::id()
    }
}

/// The mutable part of a dataset. Its lock is taken only by threads that hold the GIL, and no Python runs while it is
/// held, so that nobody who holds the GIL ever waits for it, and it is free whenever Python forks.
pub struct Standing {
    state: Mutex<(Arc<Population>, Cursor)>,
}

impl Standing {
    /// Works with population and cursor. The exception of a failure is made after the lock is given back: making it runs
    /// Python.
    fn with<R>(
        &self,
        work: impl FnOnce(&mut Arc<Population>, &mut Cursor) -> dataset_rt_core::Result<R>,
    ) -> PyResult<R> {
        let result = {
            let mut standing = self.lock();
            let (population, cursor) = &mut *standing;
            work(population, cursor)
        };
        result.map_err(exception)
    }

    /// The population of now, and where the stream of an iterator that has not begun stands.
    pub fn state_of(&self, ticket: &Ticket) -> CursorState {
        self.lock().1.state_of(ticket)
    }

    /// How many samples an iterator that has not begun would deliver.
    pub fn count_of(&self, ticket: &Ticket) -> u64 {
        self.lock().1.count_of(ticket)
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Population>, Cursor)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the window of an iterator.
    pub fn reserve(&self, ticket: &Ticket) -> PyResult<Arc<Progress>> {
        self.with(|_, cursor| cursor.reserve(ticket))
    }
}

/// A population over opened caches, and the position of its stream.
#[pyclass(frozen, module = "dataset_rt._core", name = "Dataset")]
pub struct Dataset {
    shared: Arc<Shared>,
    standing: Arc<Standing>,
}

impl Dataset {
    /// The whole population of opened caches, at position 0.
    pub fn open(py: Python<'_>, runtime: Arc<Runtime>, caches: Arc<CacheSet>, options: ReadOptions) -> PyResult<Self> {
        let population = Population::whole(Arc::clone(&caches), options.mode, options.seed).map_err(exception)?;
        let opened = Arc::new(Opened::new(py, caches));
        let shared = Shared { opened, options, runtime: Some(runtime), process: process::id() };
        let cursor = Cursor::new(population.rows(), World::single()).map_err(exception)?;
        Ok(Self::new(Arc::new(shared), Arc::new(population), cursor))
    }

    fn new(shared: Arc<Shared>, population: Arc<Population>, cursor: Cursor) -> Self {
        Self { shared, standing: Arc::new(Standing { state: Mutex::new((population, cursor)) }) }
    }

    fn population(&self) -> Arc<Population> {
        Arc::clone(&self.standing.lock().0)
    }

    fn checked(&self, py: Python<'_>, table: PyTable) -> PyResult<Arc<Population>> {
        let (batches, schema) = table.into_inner();
        let (options, caches) = (self.shared.options, Arc::clone(&self.shared.opened.caches));
        let check = || Population::from_table(caches, options.mode, options.seed, &schema, &batches);
        py.detach(check).map(Arc::new).map_err(exception)
    }

    fn fetcher(&self) -> Fetcher<'_> {
        Fetcher::new(&self.shared.opened, self.shared.options.verify_reads)
    }

    /// Records of table rows, which may count from the end.
    fn table_records(&self, rows: &[i128]) -> PyResult<Vec<u64>> {
        let population = self.population();
        let count = population.rows();
        let record = |row: &i128| {
            let place = if *row < 0 { row + i128::from(count) } else { *row };
            match u64::try_from(place).ok().filter(|place| *place < count) {
                Some(place) => population.table_record(place).map_err(exception),
                None => Err(PyIndexError::new_err(format!("row must be in [-{count}, {count}), got {row}"))),
            }
        };
        rows.iter().map(record).collect()
    }
}

#[pymethods]
impl Dataset {
    /// Whether this process opened the caches, rather than inherited them by a fork.
    fn is_home(&self) -> bool {
        self.shared.is_home()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.population().rows()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.shared.options.seed
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.shared.options.mode.name()
    }

    #[getter]
    fn position(&self) -> u64 {
        self.standing.lock().1.position().0
    }

    #[getter]
    fn epoch_len(&self) -> u64 {
        self.standing.lock().1.epoch_len()
    }

    /// (rank, world size, remainder) of a rank's view.
    #[getter]
    fn world(&self) -> Option<(u64, u64, &'static str)> {
        let standing = self.standing.lock();
        let world = standing.1.world();
        standing.1.is_view().then(|| (world.rank(), world.size(), world.remainder().name()))
    }

    /// How many samples the next whole window gives: this rank's share of it.
    fn __len__(&self) -> PyResult<usize> {
        let length = self.standing.lock().1.len_of_rank();
        isize::try_from(length).map_err(|_| {
            let message =
                format!("len() cannot say {length}, which is 2^63 or more; epoch_len says how long an epoch is");
            PyOverflowError::new_err(message)
        })?;
        Ok(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn set_epoch_len(&self, epoch_len: u64) -> PyResult<()> {
        self.standing.with(|_, cursor| cursor.set_epoch_len(epoch_len))
    }

    /// (name, kind) of the stored columns, in order.
    fn columns(&self) -> Vec<(String, &'static str)> {
        let columns = self.shared.opened.caches.columns();
        columns.into_iter().map(|column| (column.name, column.kind.name())).collect()
    }

    /// (`cache_id`, name, path, samples, payload bytes, attributes) of each cache, in the order given.
    fn caches<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let described = self.shared.opened.caches.given().map(|(cache, _)| {
            let manifest = cache.manifest();
            let path = cache.path().to_string_lossy().into_owned();
            let attributes = manifest.attributes.clone();
            let parts =
                (cache.cache_id().0, &manifest.source_name, path, manifest.samples, manifest.payload_bytes, attributes);
            parts.into_pyobject(py).map(Bound::into_any)
        });
        described.collect()
    }

    /// The table of the caches as nobody has edited it.
    fn first_table(&self, py: Python<'_>) -> PyResult<PyTable> {
        let table = FirstTable::new(Arc::clone(&self.shared.opened.caches));
        let schema = table.schema();
        let batches = py.detach(|| table.collect::<dataset_rt_core::Result<Vec<_>>>()).map_err(exception)?;
        PyTable::try_new(batches, schema)
    }

    /// Replaces the table, once everything about it was checked.
    #[pyo3(signature = (table, *, reset_stream))]
    fn update(&self, py: Python<'_>, table: PyTable, reset_stream: bool) -> PyResult<()> {
        let mut new = self.checked(py, table)?;
        self.standing.with(|population, cursor| {
            cursor.replace_population(new.rows(), reset_stream)?;
            std::mem::swap(population, &mut new);
            Ok(())
        })
    }

    /// An independent dataset over the same caches, with another table and a stream at position 0.
    fn with_table(&self, py: Python<'_>, table: PyTable) -> PyResult<Self> {
        let population = self.checked(py, table)?;
        let standing = self.standing.lock();
        let view = standing.1.is_view().then(|| standing.1.world());
        drop(standing);
        let mut cursor = Cursor::new(population.rows(), World::single()).map_err(exception)?;
        if let Some(world) = view {
            cursor = cursor.shard(world).map_err(exception)?;
        }
        Ok(Self::new(Arc::clone(&self.shared), population, cursor))
    }

    /// One rank's view of this dataset.
    fn shard(&self, rank: u64, world_size: u64, remainder: &str) -> PyResult<Self> {
        let remainder = Remainder::from_name(remainder).map_err(exception)?;
        let world = World::new(rank, world_size, remainder).map_err(exception)?;
        let (population, cursor) =
            self.standing.with(|population, cursor| Ok((Arc::clone(population), cursor.shard(world)?)))?;
        Ok(Self::new(Arc::clone(&self.shared), population, cursor))
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let standing = self.standing.lock();
        let (population, cursor) = (Arc::clone(&standing.0), standing.1.state());
        drop(standing);
        // The digest of an unedited table is computed here at first: O(n).
        py.detach(|| population.digest());
        to_dict(py, &StreamState::new(&population, cursor))
    }

    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = from_dict(state)?;
        let population = self.population();
        // The digest of an unedited table is computed here at first: O(n).
        py.detach(|| population.digest());
        self.standing.with(|population, cursor| {
            state.check(population)?;
            cursor.load(state.cursor)
        })
    }

    fn iterate(&self) -> SampleIterator {
        let standing = self.standing.lock();
        let ticket = standing.1.ticket();
        SampleIterator::new(Arc::clone(&self.shared), Arc::clone(&self.standing), Arc::clone(&standing.0), ticket)
    }

    fn iterate_batches(&self, batch_size: u64, drop_last: bool) -> PyResult<BatchIterator> {
        if batch_size == 0 {
            return Err(exception(Error::config("batch_size must be at least 1, got 0")));
        }
        let standing = self.standing.lock();
        let mut ticket = standing.1.ticket();
        if drop_last {
            ticket = ticket.in_full_batches(batch_size);
        }
        let (shared, population) = (Arc::clone(&self.shared), Arc::clone(&standing.0));
        Ok(BatchIterator::new(shared, Arc::clone(&self.standing), population, ticket, batch_size, drop_last))
    }

    fn get_item(&self, py: Python<'_>, cache_id: u64, sample_id: u64) -> PyResult<CachedSample> {
        let record = self.shared.opened.caches.record(CacheId(cache_id), SampleId(sample_id)).map_err(exception)?;
        self.fetcher().sample(py, record)
    }

    /// One sample by its row in the table; negative rows count from the end.
    fn row(&self, py: Python<'_>, row: i128) -> PyResult<CachedSample> {
        match self.table_records(&[row])?.first() {
            Some(record) => self.fetcher().sample(py, *record),
            None => Err(PyIndexError::new_err("no row")),
        }
    }

    fn read(&self, py: Python<'_>, rows: Vec<i128>) -> PyResult<Vec<CachedSample>> {
        self.fetcher().samples(py, &self.table_records(&rows)?)
    }

    fn read_batch<'py>(&self, py: Python<'py>, rows: Vec<i128>) -> PyResult<Bound<'py, PyAny>> {
        self.fetcher().batch(py, &self.table_records(&rows)?)
    }

    fn stream(&self) -> Stream {
        let standing = self.standing.lock();
        Stream::new(Arc::clone(&self.shared), Arc::clone(&standing.0), standing.1.epoch_len())
    }
}
