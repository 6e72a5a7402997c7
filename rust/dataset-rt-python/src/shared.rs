//! What all datasets over the same opened caches share.

use std::process;
use std::sync::Arc;

use dataset_rt_core::order::Mode;
use dataset_rt_core::runtime::{Pool, Runtime, SpareBuffers};
use dataset_rt_core::store::IoMode;

use crate::sample::Opened;

/// The part of a `ReaderConfig` that reading needs.
#[derive(Clone, Copy)]
pub struct ReadOptions {
    pub mode: Mode,
    pub seed: u64,
    pub prefetch_size: u64,
    pub prefetch_bytes: u64,
    pub verify_reads: bool,
    pub io: IoMode,
}

/// What all datasets over the same opened caches share.
pub struct Shared {
    pub opened: Arc<Opened>,
    pub options: ReadOptions,
    /// Memory of batches, which outlives their iterators: an epoch begins with that of the one before.
    pub spare: Arc<SpareBuffers>,
    runtime: Option<Arc<Runtime>>,
    /// The process that opened the caches; a child that inherited them reads in the calling thread.
    process: u32,
}

impl Shared {
    /// Caches that were opened by this process.
    pub fn opened_here(opened: Arc<Opened>, options: ReadOptions, runtime: Arc<Runtime>) -> Self {
        Self { opened, options, spare: Arc::default(), runtime: Some(runtime), process: process::id() }
    }

    /// Caches that are read in the calling thread alone, as after unpickling.
    pub fn without_threads(opened: Arc<Opened>, options: ReadOptions) -> Self {
        Self { opened, options, spare: Arc::default(), runtime: None, process: process::id() }
    }

    /// The threads for reading, where this process has any for these caches.
    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.runtime.as_ref().filter(|_| self.is_home()).and_then(|runtime| runtime.pool())
    }

    pub fn is_home(&self) -> bool {
        self.process == process::id()
    }
}
