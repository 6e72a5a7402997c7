//! What the command line asks of caches beside reading them.

use std::path::PathBuf;

use dataset_rt_core::runtime::{Outside, Runtime, VerifyObserver, verify_folder};
use dataset_rt_core::store::{Cache, IoMode, record_lengths};
use dataset_rt_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{build, exception, raised_or};
use crate::outside::WithoutGil;

/// The caches at a path: itself, or the folders in it.
#[pyfunction]
pub fn find_caches(py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
    py.detach(|| dataset_rt_core::store::find_caches(&path)).map_err(exception)
}

/// The manifest of a cache that can be opened, as it stands in its file: JSON.
#[pyfunction]
pub fn manifest(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let cache = py.detach(|| Cache::open(&path, IoMode::Auto)).map_err(exception)?;
    Ok(String::from_utf8(cache.manifest().to_bytes())?)
}

/// The length of each payload and of each stored record, as little-endian integers of 64 bits.
#[pyfunction]
pub fn record_lengths_of<'py>(py: Python<'py>, path: PathBuf) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let read = || {
        let lengths = record_lengths(&Cache::open(&path, IoMode::Auto)?)?;
        let payloads: Vec<u8> = lengths.iter().flat_map(|(payload, _)| payload.to_le_bytes()).collect();
        let stored: Vec<u8> = lengths.iter().flat_map(|(_, stored)| stored.to_le_bytes()).collect();
        Ok((payloads, stored))
    };
    let (payloads, stored) = py.detach(read).map_err(exception)?;
    Ok((PyBytes::new(py, &payloads), PyBytes::new(py, &stored)))
}

/// Checks everything of a cache: the exceptions that its faults would raise, how many samples its manifest names, if it
/// can be read, and the bytes of all its files. `progress` is called with each number of bytes that were checked.
#[pyfunction]
#[pyo3(signature = (path, *, content, num_workers, progress))]
pub fn verify(
    py: Python<'_>,
    path: PathBuf,
    content: bool,
    num_workers: Option<usize>,
    progress: Bound<'_, PyAny>,
) -> PyResult<(Vec<PyErr>, Option<u64>, u64)> {
    let runtime = Runtime::new(num_workers).map_err(exception)?;
    let mut observer = Observer { outside: WithoutGil::new(py), progress };
    let found = verify_folder(&path, content, runtime.pool().as_deref(), &mut observer);
    let found = found.map_err(|error| raised_or(observer.outside.raised, error))?;
    // There may be as many as samples. A signal's handler runs while one is made, and what it raises is no fault.
    let faults = found.faults.into_iter().map(|fault| build(py, fault)).collect::<PyResult<_>>()?;
    Ok((faults, found.samples, found.bytes))
}

/// Passes on how far a verification is.
struct Observer<'py> {
    outside: WithoutGil<'py>,
    progress: Bound<'py, PyAny>,
}

impl Outside for Observer<'_> {
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        self.outside.run(work)
    }
}

impl VerifyObserver for Observer<'_> {
    fn progress(&mut self, bytes: u64) -> Result<()> {
        self.progress.call1((bytes,)).map(drop).map_err(|raised| {
            self.outside.raised = Some(raised);
            Error::Interrupted
        })
    }
}
