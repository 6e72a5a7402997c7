//! `Dataset`: a population over opened caches and where its stream stands.

use std::sync::Arc;

use dataset_rt_core::order::{Cursor, Remainder, Ticket as CoreTicket, World};
use dataset_rt_core::population::{FirstTable, Population};
use dataset_rt_core::runtime::Runtime;
use dataset_rt_core::store::{CacheSet, PayloadSlots};
use dataset_rt_core::{CacheId, SampleId};
use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyTable;

use crate::batches::BatchIterator;
use crate::errors::exception;
use crate::fetch::Fetcher;
use crate::iterator::SampleIterator;
use crate::sample::{CachedSample, Opened};
use crate::shared::{ReadOptions, Shared};
use crate::standing::{Place, Standing};
use crate::state::{from_dict, state_dict};
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::window::Batches;
use crate::window_reader::WindowReader;

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
        let shared = Shared::opened_here(opened, options, runtime);
        let cursor = Cursor::new(population.rows(), World::single()).map_err(exception)?;
        Ok(Self::new(Arc::new(shared), Place { population: Arc::new(population), cursor, table: None }))
    }

    /// A population of opened caches, at position 0; its table, if it is an edited one, is not known.
    pub fn over(shared: Arc<Shared>, population: Arc<Population>, epoch_len: u64) -> PyResult<Self> {
        let cursor = Cursor::new(epoch_len, World::single()).map_err(exception)?;
        Ok(Self::new(shared, Place { population, cursor, table: None }))
    }

    fn new(shared: Arc<Shared>, place: Place) -> Self {
        Self { shared, standing: Arc::new(Standing::new(place)) }
    }

    fn population(&self) -> Arc<Population> {
        Arc::clone(&self.standing.lock().population)
    }

    fn checked(&self, py: Python<'_>, table: PyTable) -> PyResult<Arc<Population>> {
        let (batches, schema) = table.into_inner();
        let (options, caches) = (self.shared.options, Arc::clone(&self.shared.opened.caches));
        let check = || Population::from_table(caches, options.mode, options.seed, &schema, &batches);
        py.detach(check).map(Arc::new).map_err(exception)
    }

    /// A reader of the next window, for an iterator.
    fn reader<S: PayloadSlots + 'static>(&self, adjust: impl FnOnce(CoreTicket) -> CoreTicket) -> WindowReader<S> {
        let standing = self.standing.lock();
        let (population, ticket) = (Arc::clone(&standing.population), adjust(standing.cursor.ticket()));
        WindowReader::new(Arc::clone(&self.shared), Arc::clone(&self.standing), population, ticket)
    }

    fn fetcher(&self) -> Fetcher<'_> {
        Fetcher::new(&self.shared)
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
        self.standing.lock().cursor.position().0
    }

    #[getter]
    fn epoch_len(&self) -> u64 {
        self.standing.lock().cursor.epoch_len()
    }

    /// (rank, world size, remainder) of a rank's view.
    #[getter]
    fn world(&self) -> Option<(u64, u64, &'static str)> {
        let standing = self.standing.lock();
        let world = standing.cursor.world();
        standing.cursor.is_view().then(|| (world.rank(), world.size(), world.remainder().name()))
    }

    /// How many samples the next whole window gives: this rank's share of it.
    fn __len__(&self) -> PyResult<usize> {
        let length = self.standing.lock().cursor.len_of_rank();
        isize::try_from(length).map_err(|_| {
            let message =
                format!("len() cannot say {length}, which is 2^63 or more; epoch_len says how long an epoch is");
            PyOverflowError::new_err(message)
        })?;
        Ok(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn set_epoch_len(&self, epoch_len: u64) -> PyResult<()> {
        self.standing.with(|place| place.cursor.set_epoch_len(epoch_len))
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

    /// The user's table as it was last set; `None` while nobody has edited it.
    fn table(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.standing.lock().table.as_ref().map(|table| table.clone_ref(py))
    }

    /// Replaces the table by `table`, whose columns to be checked are `checkable`, once everything about it was checked.
    #[pyo3(signature = (checkable, table, *, reset_stream))]
    fn update(&self, py: Python<'_>, checkable: PyTable, table: Py<PyAny>, reset_stream: bool) -> PyResult<()> {
        let mut new_population = self.checked(py, checkable)?;
        let mut new_table = Some(table);
        // What was there before is dropped after the lock is given back.
        self.standing.with(|place| {
            place.cursor.replace_population(new_population.rows(), reset_stream)?;
            std::mem::swap(&mut place.population, &mut new_population);
            std::mem::swap(&mut place.table, &mut new_table);
            Ok(())
        })
    }

    /// An independent dataset over the same caches, with another table and a stream at position 0.
    fn with_table(&self, py: Python<'_>, checkable: PyTable, table: Py<PyAny>) -> PyResult<Self> {
        let population = self.checked(py, checkable)?;
        let view = {
            let place = self.standing.lock();
            place.cursor.is_view().then(|| place.cursor.world())
        };
        let mut cursor = Cursor::new(population.rows(), World::single()).map_err(exception)?;
        if let Some(world) = view {
            cursor = cursor.shard(world).map_err(exception)?;
        }
        Ok(Self::new(Arc::clone(&self.shared), Place { population, cursor, table: Some(table) }))
    }

    /// One rank's view of this dataset.
    fn shard(&self, py: Python<'_>, rank: u64, world_size: u64, remainder: &str) -> PyResult<Self> {
        let world = world_of((rank, world_size, remainder.to_owned()))?;
        let place = self.standing.with(|place| {
            let (population, cursor) = (Arc::clone(&place.population), place.cursor.shard(world)?);
            Ok(Place { population, cursor, table: place.table.as_ref().map(|table| table.clone_ref(py)) })
        })?;
        Ok(Self::new(Arc::clone(&self.shared), place))
    }

    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let standing = self.standing.lock();
        let (population, cursor) = (Arc::clone(&standing.population), standing.cursor.state());
        drop(standing);
        state_dict(py, &population, cursor)
    }

    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = from_dict(state)?;
        let population = self.population();
        // The digest of an unedited table is computed here at first: O(n).
        py.detach(|| population.digest());
        self.standing.with(|place| {
            state.check(&place.population)?;
            place.cursor.load(state.cursor)
        })
    }

    fn iterate(&self) -> SampleIterator {
        SampleIterator::new(self.reader(|ticket| ticket))
    }

    fn iterate_batches(&self, batch_size: u64, drop_last: bool) -> PyResult<BatchIterator> {
        Batches::new(batch_size, drop_last)?;
        let reader = self.reader(|ticket| if drop_last { ticket.in_full_batches(batch_size) } else { ticket });
        Ok(BatchIterator::new(reader, batch_size, drop_last))
    }

    /// What an adapter's iterator has to remember; without a world, for the dataset's own.
    #[pyo3(signature = (batch_size, drop_last, world))]
    fn ticket(&self, batch_size: u64, drop_last: bool, world: Option<(u64, u64, String)>) -> PyResult<Ticket> {
        let (batches, world) = (Batches::new(batch_size, drop_last)?, world.map(world_of).transpose()?);
        let (population, ticket) = self.standing.with(|place| {
            let ticket = world.map_or_else(|| Ok(place.cursor.ticket()), |world| place.cursor.ticket_for(world))?;
            Ok((Arc::clone(&place.population), ticket))
        })?;
        let ticket = if drop_last { ticket.in_full_batches(batch_size) } else { ticket };
        let (shared, standing) = (Arc::clone(&self.shared), Arc::clone(&self.standing));
        Ok(Ticket { shared, standing, population, ticket, batches })
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
        Stream::new(Arc::clone(&self.shared), Arc::clone(&standing.population), standing.cursor.epoch_len())
    }
}

/// The world of a rank, a number of ranks and the name of a rule.
pub fn world_of((rank, size, remainder): (u64, u64, String)) -> PyResult<World> {
    let remainder = Remainder::from_name(&remainder).map_err(exception)?;
    World::new(rank, size, remainder).map_err(exception)
}
