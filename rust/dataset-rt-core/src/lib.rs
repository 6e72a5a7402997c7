//! dataset-rt's core: what a cache is, which sample comes when, and how samples are read.

mod error;
pub mod format;
mod identifier;
mod mix;
pub mod order;

pub use error::{Error, Fault, Result};
pub use identifier::{CacheId, Position, SampleId};
