//! Hashers of what a training loop received.

use dataset_rt_core::runtime::{OrderHasher, PayloadHasher};
use dataset_rt_core::{CacheId, Error, SampleId};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::exception;

/// Hashes the identities of samples in the order of their coming.
#[pyclass(module = "dataset_rt._core", name = "OrderHasher")]
#[derive(Default)]
pub struct PyOrderHasher(OrderHasher);

#[pymethods]
impl PyOrderHasher {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds samples whose two numbers come as little-endian 64-bit integers.
    fn add(&mut self, cache_ids: PyBackedBytes, sample_ids: PyBackedBytes) -> PyResult<()> {
        let (caches, rest_of_caches) = cache_ids.as_chunks::<8>();
        let (samples, rest_of_samples) = sample_ids.as_chunks::<8>();
        if caches.len() != samples.len() || !rest_of_caches.is_empty() || !rest_of_samples.is_empty() {
            let (caches, samples) = (cache_ids.len(), sample_ids.len());
            let message = format!("each sample needs 8 bytes of both numbers, got {caches} and {samples} bytes");
            return Err(exception(Error::config(message)));
        }
        for (cache, sample) in caches.iter().zip(samples) {
            self.0.add(CacheId(u64::from_le_bytes(*cache)), SampleId(u64::from_le_bytes(*sample)));
        }
        Ok(())
    }

    /// The digest so far, as 64 hexadecimal digits.
    fn hexdigest(&self) -> String {
        self.0.digest().to_string()
    }
}

/// Hashes payloads in the order of their coming.
#[pyclass(module = "dataset_rt._core", name = "PayloadHasher")]
#[derive(Default)]
pub struct PyPayloadHasher(PayloadHasher);

#[pymethods]
impl PyPayloadHasher {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds the next payload.
    fn add(&mut self, payload: PyBackedBytes) {
        self.0.add(&payload);
    }

    /// The digest so far, as 64 hexadecimal digits.
    fn hexdigest(&self) -> String {
        self.0.digest().to_string()
    }
}
