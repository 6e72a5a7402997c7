//! `Stream`: the immutable view of a population that adapters build on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, TryLockError};

use dataset_rt_core::format::Digest;
use dataset_rt_core::order::{Mode, PassCache, Progress};
use dataset_rt_core::population::{Population, population_table, table_schema};
use dataset_rt_core::runtime::{order_digest, resize};
use dataset_rt_core::store::{Cache, CacheSet, IoMode};
use dataset_rt_core::{CacheId, Error, Position, Result};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use pyo3_arrow::PyTable;

use crate::dataset::{Dataset, world_of};
use crate::errors::{exception, raised_or};
use crate::fetch::Fetcher;
use crate::outside::WithoutGil;
use crate::sample::{CachedSample, Opened};
use crate::shared::{ReadOptions, Shared};
use crate::window::{Batches, Window};

/// A population and its endless stream of draws; safe to use from any thread.
#[pyclass(frozen, module = "dataset_rt._core", name = "Stream")]
pub struct Stream {
    shared: Arc<Shared>,
    population: Arc<Population>,
    epoch_len: u64,
    /// Passes that were shuffled; taken only where nobody else has them, so that no thread and no forked child waits.
    passes: Mutex<PassCache>,
}

impl Stream {
    pub fn new(shared: Arc<Shared>, population: Arc<Population>, epoch_len: u64) -> Self {
        Self { shared, population, epoch_len, passes: Mutex::new(PassCache::default()) }
    }

    /// Lends the passes that were shuffled before, or new ones where another thread has them.
    fn with_passes<R>(&self, draw: impl FnOnce(&mut PassCache) -> R) -> R {
        match self.passes.try_lock() {
            Ok(mut passes) => draw(&mut passes),
            Err(TryLockError::Poisoned(passes)) => draw(&mut passes.into_inner()),
            Err(TryLockError::WouldBlock) => draw(&mut PassCache::default()),
        }
    }

    fn drawn(&self, start: u64, count: u64) -> PyResult<Vec<u64>> {
        let last = count.checked_sub(1).map_or(Some(start), |steps| start.checked_add(steps));
        if last.is_none() {
            let message = format!("start + count must be at most 2^64, got {start} + {count}");
            return Err(exception(Error::config(message)));
        }
        let mut rows = Vec::new();
        resize(&mut rows, count).map_err(exception)?;
        self.with_passes(|passes| self.population.sampler().fill(Position(start), 1, passes, &mut rows));
        Ok(rows)
    }

    fn records_at(&self, positions: &[u64]) -> PyResult<Vec<u64>> {
        let sampler = self.population.sampler();
        self.with_passes(|passes| {
            let rows = positions.iter().map(|position| sampler.row(Position(*position), passes));
            rows.map(|row| self.population.record(row).map_err(exception)).collect()
        })
    }

    fn fetcher(&self) -> Fetcher<'_> {
        Fetcher::new(&self.shared)
    }
}

#[pymethods]
impl Stream {
    #[getter]
    fn num_rows(&self) -> u64 {
        self.population.rows()
    }

    #[getter]
    fn epoch_len(&self) -> u64 {
        self.epoch_len
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.shared.options.seed
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.shared.options.mode.name()
    }

    /// Memory of the weights' tables, in bytes.
    #[getter]
    fn weight_bytes(&self) -> usize {
        self.population.sampler().weights().bytes()
    }

    #[getter]
    fn population_digest(&self, py: Python<'_>) -> String {
        py.detach(|| self.population.digest().to_string())
    }

    fn is_home(&self) -> bool {
        self.shared.is_home()
    }

    /// Whether the population is every sample of the caches once, with weight 1.
    #[getter]
    fn is_whole(&self) -> bool {
        self.population.is_whole()
    }

    /// The stream over every sample of the same caches.
    fn whole(&self) -> PyResult<Self> {
        let ReadOptions { mode, seed, .. } = self.shared.options;
        let caches = Arc::clone(&self.shared.opened.caches);
        let population = Population::whole(caches, mode, seed).map_err(exception)?;
        let rows = population.rows();
        Ok(Self::new(Arc::clone(&self.shared), Arc::new(population), rows))
    }

    /// A dataset at position 0, for what has a cursor and no table.
    fn cursor(&self) -> PyResult<Dataset> {
        Dataset::over(Arc::clone(&self.shared), Arc::clone(&self.population), self.epoch_len)
    }

    /// The whole window of `epoch_len` draws at `start`, as `world` divides it. Moves nothing.
    fn window(
        &self,
        start: u64,
        epoch_len: u64,
        batch_size: u64,
        drop_last: bool,
        world: (u64, u64, String),
    ) -> PyResult<Window> {
        let (batches, world) = (Batches::new(batch_size, drop_last)?, world_of(world)?);
        world.check_epoch_len(epoch_len).map_err(exception)?;
        let progress = Progress::at(Position(start), epoch_len, world).map_err(exception)?;
        Ok(Window::new(Arc::clone(&self.shared), Arc::clone(&self.population), Arc::new(progress), batches))
    }

    /// Records of the rows `start`, `start + 1`, … in the order of the table: 64-bit little-endian integers.
    fn table_records<'py>(&self, py: Python<'py>, start: u64, count: u64) -> PyResult<Bound<'py, PyByteArray>> {
        let rows = self.population.rows();
        if start > rows || count > rows - start {
            let message = format!("start + count must be at most the {rows} rows of the table, got {start} + {count}");
            return Err(exception(Error::config(message)));
        }
        let records = py.detach(|| {
            let mut records = Vec::new();
            resize(&mut records, count).map_err(exception)?;
            for (place, row) in records.iter_mut().zip(start..) {
                *place = self.population.table_record(row).map_err(exception)?;
            }
            Ok::<_, PyErr>(records)
        })?;
        packed(py, &records)
    }

    /// Population rows of the draws `start`, `start + 1`, …: 64-bit little-endian integers.
    fn rows<'py>(&self, py: Python<'py>, start: u64, count: u64) -> PyResult<Bound<'py, PyByteArray>> {
        packed(py, &py.detach(|| self.drawn(start, count))?)
    }

    /// Records of the draws `start`, `start + 1`, …: 64-bit little-endian integers.
    fn records<'py>(&self, py: Python<'py>, start: u64, count: u64) -> PyResult<Bound<'py, PyByteArray>> {
        let records = py.detach(|| {
            let mut rows = self.drawn(start, count)?;
            for row in &mut rows {
                *row = self.population.record(*row).map_err(exception)?;
            }
            Ok::<_, PyErr>(rows)
        })?;
        packed(py, &records)
    }

    fn fetch(&self, py: Python<'_>, positions: Vec<u64>) -> PyResult<Vec<CachedSample>> {
        self.fetcher().samples(py, &self.records_at(&positions)?)
    }

    fn fetch_records(&self, py: Python<'_>, records: Vec<u64>) -> PyResult<Vec<CachedSample>> {
        self.fetcher().samples(py, &records)
    }

    fn fetch_batch<'py>(&self, py: Python<'py>, positions: Vec<u64>) -> PyResult<Bound<'py, PyAny>> {
        self.fetcher().batch(py, &self.records_at(&positions)?)
    }

    fn fetch_records_batch<'py>(&self, py: Python<'py>, records: Vec<u64>) -> PyResult<Bound<'py, PyAny>> {
        self.fetcher().batch(py, &records)
    }

    /// Samples of population rows.
    fn fetch_rows(&self, py: Python<'_>, rows: Vec<u64>) -> PyResult<Vec<CachedSample>> {
        let records: PyResult<Vec<u64>> =
            rows.into_iter().map(|row| self.population.record(row).map_err(exception)).collect();
        self.fetcher().samples(py, &records?)
    }

    /// `cache_id` and `sample_id` of the draws `start`, `start + 1`, …: 64-bit little-endian integers each.
    fn identities<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        count: u64,
    ) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
        let (cache_ids, sample_ids) = py.detach(|| {
            let mut cache_ids = self.drawn(start, count)?;
            let mut sample_ids = Vec::new();
            resize(&mut sample_ids, count).map_err(exception)?;
            for (row, sample_id) in cache_ids.iter_mut().zip(&mut sample_ids) {
                let record = self.population.record(*row).map_err(exception)?;
                let (cache, _, sample) = self.population.caches().locate(record).map_err(exception)?;
                (*row, *sample_id) = (cache.cache_id().0, sample.0);
            }
            Ok::<_, PyErr>((cache_ids, sample_ids))
        })?;
        Ok((packed(py, &cache_ids)?, packed(py, &sample_ids)?))
    }

    /// The population in its own numbering.
    fn table(&self, py: Python<'_>) -> PyResult<PyTable> {
        let batches = py.detach(|| population_table(&self.population)).map_err(exception)?;
        PyTable::try_new(batches, table_schema(&self.shared.opened.caches.columns()))
    }

    /// BLAKE3 over (`cache_id`, `sample_id`), 64-bit little-endian each, of the draws `start`, `start + step`, ….
    fn order_digest(&self, py: Python<'_>, start: u64, count: u64, step: u64) -> PyResult<String> {
        let mut outside = WithoutGil::new(py);
        let digest = order_digest(&self.population, start, step, count, &mut outside);
        digest.map(|digest| digest.to_string()).map_err(|error| raised_or(outside.raised, error))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let this = slf.get();
        let caches = &this.shared.opened.caches;
        let paths: Vec<PathBuf> = caches.paths().map(std::path::Path::to_path_buf).collect();
        let ids: Vec<u64> = caches.given().map(|(cache, _)| cache.cache_id().0).collect();
        let options = this.shared.options;
        let (size, bytes) = (options.prefetch_size, options.prefetch_bytes);
        let options = (options.mode.name(), options.seed, size, bytes, options.verify_reads, options.io.name());
        let edited = this.population.parts().map(|(records, weights)| {
            let weights: Vec<u64> = weights.into_iter().map(f64::to_bits).collect();
            let digest = this.population.digest();
            (packed_bytes(py, records), packed_bytes(py, &weights), PyBytes::new(py, &digest.0).unbind())
        });
        let arguments = (paths, ids, options, this.epoch_len, edited).into_pyobject(py)?;
        Ok((slf.get_type().getattr("_restore")?, arguments))
    }

    /// Opens the stream that `__reduce__` took apart.
    #[staticmethod]
    fn _restore(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        ids: Vec<u64>,
        options: (String, u64, u64, u64, bool, String),
        epoch_len: u64,
        edited: Option<(Vec<u8>, Vec<u8>, [u8; 32])>,
    ) -> PyResult<Self> {
        let (mode, seed, prefetch_size, prefetch_bytes, verify_reads, io) = options;
        let io = IoMode::from_name(&io).map_err(exception)?;
        let mode = Mode::from_name(&mode).map_err(exception)?;
        // Opening reads files, on a network perhaps, and an edited table is sorted out in O(n): without the GIL.
        let restore = || {
            let set = Arc::new(CacheSet::new(opened(&paths, ids, io)?)?);
            let population = match edited {
                None => Population::whole(Arc::clone(&set), mode, seed),
                Some((records, weights, digest)) => {
                    let weights = unpacked(&weights).map(f64::from_bits).collect();
                    let records = unpacked(&records).collect();
                    Population::from_parts(Arc::clone(&set), mode, seed, records, weights, Digest(digest))
                }
            };
            Ok((set, Arc::new(population?)))
        };
        let (set, population) = py.detach(restore).map_err(exception)?;
        let options = ReadOptions { mode, seed, prefetch_size, prefetch_bytes, verify_reads, io };
        let shared = Shared::without_threads(Arc::new(Opened::new(py, set)), options);
        Ok(Self::new(Arc::new(shared), population, epoch_len))
    }
}

/// The caches at the paths, of which each must be the one that is expected there.
fn opened(paths: &[PathBuf], ids: Vec<u64>, io: IoMode) -> Result<Vec<Arc<Cache>>> {
    let open = |(path, id): (&PathBuf, u64)| {
        let cache = Cache::open(path, io)?;
        if cache.cache_id() == CacheId(id) {
            return Ok(Arc::new(cache));
        }
        let (path, found) = (path.display(), cache.cache_id().0);
        Err(Error::config(format!(
            "{path}: cache_id {id} expected by the pickled stream, found {found}; another cache is there now"
        )))
    };
    paths.iter().zip(ids).map(open).collect()
}

pub fn packed<'py>(py: Python<'py>, numbers: &[u64]) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, size_of_val(numbers), |bytes| {
        for (place, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        Ok(())
    })
}

fn packed_bytes(py: Python<'_>, numbers: &[u64]) -> Py<PyBytes> {
    PyBytes::new(py, &little_endian(numbers)).unbind()
}

fn little_endian(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn unpacked(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number))
}
