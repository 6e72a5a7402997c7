//! `Runtime`: threads, writing and opening.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dataset_rt_core::format::{Codec, ColumnKind, Compression};
use dataset_rt_core::order::Mode;
use dataset_rt_core::runtime::{
    Outside, Runtime, WriteLimits, WriteObserver, find_published, verify_caches, write_cache,
};
use dataset_rt_core::store::{Cache, CacheOptions, CacheSet, IoMode};
use dataset_rt_core::{Error, Result};
use pyo3::prelude::*;

use crate::dataset::Dataset;
use crate::errors::{exception, raised_or};
use crate::feed::PythonFeed;
use crate::outside::WithoutGil;
use crate::shared::ReadOptions;
use crate::user_code;

/// Native threads and what is done with them.
#[pyclass(frozen, module = "dataset_rt._core", name = "Runtime")]
pub struct PyRuntime {
    runtime: Arc<Runtime>,
}

/// Path, whether it was reused, samples, skipped samples, first reasons for skipping, and why it failed.
type WriteReport = (Option<PathBuf>, bool, u64, u64, Vec<String>, Option<PyErr>);

#[pymethods]
impl PyRuntime {
    #[new]
    #[pyo3(signature = (num_workers))]
    fn new(num_workers: Option<usize>) -> PyResult<Self> {
        Ok(Self { runtime: Arc::new(Runtime::new(num_workers).map_err(exception)?) })
    }

    #[getter]
    fn num_workers(&self) -> usize {
        self.runtime.workers()
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.runtime.close());
    }

    /// The folder of the complete cache of this name, if there is one.
    fn find_published(&self, py: Python<'_>, root: PathBuf, source_name: &str) -> PyResult<Option<PathBuf>> {
        py.detach(|| find_published(&root, source_name)).map_err(exception)
    }

    /// Writes a source's cache: (path, reused, samples, skipped, first errors, exception); path or exception is None.
    #[pyo3(signature = (source, root, source_name, *, attributes, schema, algo, level, max_shard_bytes, prefetch_size, prefetch_bytes, validate, skip, progress, waiting))]
    #[expect(clippy::too_many_arguments, reason = "they are the fields of WriterConfig")]
    fn write_cache(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        root: PathBuf,
        source_name: &str,
        attributes: BTreeMap<String, String>,
        schema: Option<Vec<(String, String)>>,
        algo: &str,
        level: Option<i32>,
        max_shard_bytes: u64,
        prefetch_size: u64,
        prefetch_bytes: u64,
        validate: bool,
        skip: bool,
        progress: Bound<'_, PyAny>,
        waiting: Bound<'_, PyAny>,
    ) -> PyResult<WriteReport> {
        let compression = compression(algo, level).map_err(exception)?;
        let options = CacheOptions {
            source_name: source_name.to_owned(),
            attributes,
            compression,
            max_shard_bytes: at_least_one("max_shard_bytes", max_shard_bytes)?,
            validate,
        };
        let limits = WriteLimits {
            prefetch_size: at_least_one("prefetch_size", prefetch_size)?,
            prefetch_bytes: at_least_one("prefetch_bytes", prefetch_bytes)?,
        };
        let schema = schema.map(kinds).transpose().map_err(exception)?;
        let mut feed = PythonFeed::new(source, source_name, schema, skip)?;
        let mut observer = Observer { outside: WithoutGil::new(py), progress, waiting };
        let written = write_cache(&self.runtime, &root, options, limits, &mut feed, &mut observer);
        let (samples, skipped, first_errors) = feed.report();
        let (path, reused, failure) = match written {
            Ok(written) => (Some(written.path), written.reused, None),
            Err(error) => match (feed.raised.take(), observer.outside.raised) {
                // A signal's handler, or the progress display, raised: that is not the source's failure.
                (None, Some(raised)) => return Err(raised),
                (raised, _) => (None, false, Some(raised_or(raised, error))),
            },
        };
        Ok((path, reused, samples, skipped, first_errors, failure))
    }

    /// The content digest that a source's cache would have, 64 hexadecimal digits.
    #[pyo3(signature = (source, source_name, *, schema, skip))]
    fn content_digest(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        source_name: &str,
        schema: Option<Vec<(String, String)>>,
        skip: bool,
    ) -> PyResult<String> {
        let schema = schema.map(kinds).transpose().map_err(exception)?;
        let mut feed = PythonFeed::new(source, source_name, schema, skip)?;
        let mut outside = WithoutGil::new(py);
        dataset_rt_core::runtime::content_digest(source_name, &mut feed, &mut outside)
            .map(|digest| digest.to_string())
            .map_err(|error| raised_or(feed.raised.take().or(outside.raised), error))
    }

    /// Opens caches as one dataset.
    #[pyo3(signature = (paths, *, seed, shuffle, replacement, prefetch_size, prefetch_bytes, validate_cache, verify_reads, io))]
    #[expect(clippy::too_many_arguments, reason = "they are the fields of ReaderConfig")]
    fn open(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        seed: u64,
        shuffle: bool,
        replacement: bool,
        prefetch_size: u64,
        prefetch_bytes: u64,
        validate_cache: bool,
        verify_reads: bool,
        io: &str,
    ) -> PyResult<Dataset> {
        let io = IoMode::from_name(io).map_err(exception)?;
        let prefetch_size = at_least_one("prefetch_size", prefetch_size)?;
        let prefetch_bytes = at_least_one("prefetch_bytes", prefetch_bytes)?;
        let mode = match (shuffle, replacement) {
            (false, _) => Mode::Ordered,
            (true, true) => Mode::Replacement,
            (true, false) => Mode::Permutation,
        };
        let options = ReadOptions { mode, seed, prefetch_size, prefetch_bytes, verify_reads, io };
        let open = || paths.iter().map(|path| Cache::open(path, io).map(Arc::new)).collect::<Result<Vec<_>>>();
        let caches = py.detach(open).map_err(exception)?;
        let set = CacheSet::new(caches.clone()).map_err(exception)?;
        if validate_cache {
            let mut outside = WithoutGil::new(py);
            let faults = verify_caches(&caches, self.runtime.pool().as_deref(), &mut outside);
            let faults = faults.map_err(|error| raised_or(outside.raised, error))?;
            if let Some(first) = faults.into_iter().next() {
                return Err(exception(first));
            }
        }
        Dataset::open(py, Arc::clone(&self.runtime), Arc::new(set), options)
    }
}

/// The limits of reading and writing have no use for 0.
fn at_least_one(name: &str, value: u64) -> PyResult<u64> {
    if value > 0 { Ok(value) } else { Err(exception(Error::config(format!("{name} must be at least 1, got 0")))) }
}

fn compression(algo: &str, level: Option<i32>) -> Result<Compression> {
    let codec = Codec::from_name(algo)
        .ok_or_else(|| Error::config(format!("algo must be \"none\", \"lz4\" or \"zstd\", got {algo:?}")))?;
    Compression::new(codec, level)
}

fn kinds(schema: Vec<(String, String)>) -> Result<Vec<(String, ColumnKind)>> {
    schema
        .into_iter()
        .map(|(name, kind)| {
            let known = ColumnKind::from_name(&kind);
            known.map(|known| (name.clone(), known)).ok_or_else(|| {
                let all: Vec<&str> = ColumnKind::ALL.iter().map(|kind| kind.name()).collect();
                Error::config(format!("metadata_schema: {name:?} must be one of {}, got {kind}", all.join(", ")))
            })
        })
        .collect()
}

/// Passes on what happens to Python's progress display.
struct Observer<'py> {
    outside: WithoutGil<'py>,
    progress: Bound<'py, PyAny>,
    waiting: Bound<'py, PyAny>,
}

impl Observer<'_> {
    fn called(&mut self, result: PyResult<()>) -> Result<()> {
        result.map_err(|raised| {
            self.outside.raised = Some(raised);
            Error::Interrupted
        })
    }
}

impl Outside for Observer<'_> {
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        self.outside.run(work)
    }
}

impl WriteObserver for Observer<'_> {
    fn progress(&mut self, samples: u64, payload_bytes: u64) -> Result<()> {
        let result = user_code::call(|| self.progress.call1((samples, payload_bytes)).map(drop));
        self.called(result)
    }

    fn waiting(&mut self, holder: &str) -> Result<()> {
        let result = user_code::call(|| self.waiting.call1((holder,)).map(drop));
        self.called(result)
    }
}
