//! `dataset_rt._core`: the list of what Python sees of the core.

mod batches;
mod dataset;
mod delivery_digest;
mod errors;
mod exclusive;
mod feed;
mod fetch;
mod inspect;
mod iterator;
mod order;
mod outside;
mod runtime;
mod sample;
mod shared;
mod slots;
mod standing;
mod state;
mod stream;
mod ticket;
mod user_code;
mod value;
mod window;
mod window_reader;

use pyo3::prelude::*;

/// The core of dataset-rt. Private: use `dataset_rt`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::batches::BatchIterator;
    #[pymodule_export]
    use super::dataset::Dataset;
    #[pymodule_export]
    use super::delivery_digest::{PyOrderHasher, PyPayloadHasher};
    #[pymodule_export]
    use super::inspect::{find_caches, manifest, record_lengths_of, verify};
    #[pymodule_export]
    use super::iterator::SampleIterator;
    #[pymodule_export]
    use super::order::{integer_weights, philox, point, rows, rows_of_equal};
    #[pymodule_export]
    use super::runtime::PyRuntime;
    #[pymodule_export]
    use super::sample::CachedSample;
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::ticket::Ticket;
    #[pymodule_export]
    use super::window::Window;
    #[pymodule_export]
    const FORMAT_VERSION: u32 = dataset_rt_core::format::FORMAT_VERSION;
    #[pymodule_export]
    const ORDER_VERSION: u32 = dataset_rt_core::order::ORDER_VERSION;
}
