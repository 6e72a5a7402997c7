//! Where the bytes live: writing, publishing, locking, opening, reading and verifying.
//!
//! A writer holds the lock of its source's name, builds in a folder of its own and publishes with one rename. A reader
//! takes no lock and writes nothing.

mod announce;
mod building;
mod bus_guard;
mod cache;
mod caches;
mod device_reads;
mod file_digester;
mod files;
mod folders;
mod foreign;
mod fork_guard;
mod guarded_mapping;
mod hashed_copy;
mod hashed_file;
mod inspect;
mod io_mode;
mod layout;
mod lengths;
mod lock;
mod manifest_file;
mod open_file;
mod per_process;
mod piece;
mod prefetch;
mod reader;
mod rows;
mod slots;
mod verify;
mod writer;

pub use announce::{Reads, Temperature, announce};
pub use building::{BuildingFolder, sweep, sweep_own};
pub use bus_guard::Guard;
pub use cache::Cache;
pub use caches::CacheSet;
pub use folders::{find_caches, has_remains};
pub use foreign::foreign_files;
pub use inspect::Inspector;
pub use io_mode::IoMode;
pub use layout::{cache_folder, is_published};
pub use lengths::record_lengths;
pub use lock::{Attempt, NameLock};
pub use manifest_file::{check_folder_name, read_manifest, real_folder};
pub use open_file::OpenFile;
pub use per_process::PerProcess;
pub use piece::RunPiece;
pub use reader::{PlannedRecord, RecordReader};
pub use rows::RowTyper;
pub use slots::PayloadSlots;
pub use verify::FileCheck;
pub use writer::{CacheOptions, CacheWriter, EncodedSample};
