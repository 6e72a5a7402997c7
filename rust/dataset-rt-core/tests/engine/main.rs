//! Caches as a whole: written by the pipeline, read back, damaged, sampled from, and written by several at once.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod population;
mod read_ahead;
mod store_faults;
mod store_round_trip;
mod support;
mod verify;
mod write_failures;
