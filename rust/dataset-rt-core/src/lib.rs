//! The core of dataset-rt: what a cache is on disk, which sample comes when, and how samples are written and read.
//!
//! ```text
//!             samples of a source                                      positions of a stream
//!                     │                                                         │
//!   runtime: batches, encoded on threads                     order: position ──► row of the population
//!                     │                                                         │
//!   store: shards, index, metadata, one rename          population: row ──► record (cache, sample)
//!                     │                                                         │
//!                     └──────────────►  <root>/<source name>/  ◄────────────────┤
//!                                       manifest.json                           │
//!                                       metadata.arrow         runtime: runs of records, read ahead
//!                                       index.bin                               │
//!                                       shards/000000.bin             payloads in draw order
//! ```
//!
//! - [`format`] says what the bytes mean: slices in, values out, no I/O.
//! - [`store`] says where the bytes live: building, publishing, locking, opening, reading, verifying.
//! - [`order`] says which sample comes when, in integers alone.
//! - [`population`] checks an edited table and numbers its rows.
//! - [`runtime`] holds threads and queues, all bounded.

mod error;
pub mod format;
mod identifier;
mod mix;
pub mod order;
pub mod population;
pub mod runtime;
mod state;
pub mod store;

pub use error::{Error, Fault, Result};
pub use identifier::{CacheId, Position, SampleId};
pub use state::StreamState;
