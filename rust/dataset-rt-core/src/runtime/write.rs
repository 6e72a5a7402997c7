//! Writes the cache of one source: looks whether it is there, locks its name, builds and publishes it.

use std::path::{Path, PathBuf};

use super::encode::{Encoders, SampleBatch};
use super::outside::{Outside, WAIT};
use super::pool::Runtime;
use super::write_pipeline::WritePipeline;
use crate::error::{Error, Result};
use crate::format::{Column, check_source_name};
use crate::store::{
    Attempt, BuildingFolder, CacheOptions, CacheWriter, NameLock, cache_folder, is_published, sweep, sweep_own,
};

/// The most samples that are taken from a source at a time, while Python's lock is held.
const BATCH_SAMPLES: u64 = 64;
/// Payload bytes after which no more samples are taken at that time.
const BATCH_BYTES: u64 = 1 << 20;

/// How much a writer holds between its source and its files.
#[derive(Clone, Copy, Debug)]
pub struct WriteLimits {
    /// Samples at most, at least 1.
    pub prefetch_size: u64,
    /// Payload bytes at most, though one sample always goes.
    pub prefetch_bytes: u64,
}

/// Where samples come from.
pub trait SampleFeed {
    /// A payload's bytes, owned until they are written.
    type Payload: AsRef<[u8]> + Send + 'static;

    /// Takes at most `most_samples` samples, and no more once their payloads pass `most_bytes`; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Source`] for a sample that is refused; whatever the source raises.
    fn pull(&mut self, most_samples: u64, most_bytes: u64) -> Result<Option<SampleBatch<Self::Payload>>>;

    /// How many samples were refused and left out until now.
    fn left_out(&self) -> u64 {
        0
    }

    /// The columns, after the last sample.
    fn columns(&self) -> Vec<Column>;
}

/// Whoever watches a write.
pub trait WriteObserver: Outside {
    /// So many samples and payload bytes more were taken from the source.
    ///
    /// # Errors
    /// Whatever should end the write.
    fn progress(&mut self, samples: u64, payload_bytes: u64) -> Result<()>;

    /// Another process writes this cache; called again and again while it does.
    ///
    /// # Errors
    /// Whatever should end the wait.
    fn waiting(&mut self, holder: &str) -> Result<()>;
}

/// A cache that is complete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// Its folder.
    pub path: PathBuf,
    /// Whether it was there already, so that the source was not, or not to the end, iterated for it.
    pub reused: bool,
}

/// Whether a complete cache of this name is below `root`.
///
/// # Errors
/// [`Error::Config`] for a bad name; [`Error::CacheNotFound`] where something else is in its place.
pub fn find_published(root: &Path, source_name: &str) -> Result<Option<PathBuf>> {
    check_source_name(source_name)?;
    let folder = cache_folder(root, source_name);
    if is_published(&folder) {
        return Ok(Some(folder));
    }
    if folder.symlink_metadata().is_ok() {
        let reason = "something that is no complete cache is in the new cache's place; remove it";
        return Err(Error::CacheNotFound { path: folder, reason });
    }
    Ok(None)
}

/// Writes the cache of `feed` below `root`. While another process writes it, waits for that and reuses its cache.
///
/// # Errors
/// [`Error::Config`] for a bad name, [`Error::Source`] for samples that are refused, [`Error::Io`] with path and bytes,
/// and whatever feed and observer return. Then nothing is left but the lock file and an empty building folder.
pub fn write_cache<F: SampleFeed>(
    runtime: &Runtime,
    root: &Path,
    options: CacheOptions,
    limits: WriteLimits,
    feed: &mut F,
    observer: &mut dyn WriteObserver,
) -> Result<Written> {
    let source_name = options.source_name.clone();
    if let Some(path) = find_published(root, &source_name)? {
        return Ok(Written { path, reused: true });
    }
    std::fs::create_dir_all(root).map_err(|error| Error::io("cannot create the folder", root, error))?;
    observer.run(&mut || sweep(root))?;
    let lock = loop {
        match NameLock::attempt(root, &source_name)? {
            Attempt::Held(lock) => break Some(lock),
            Attempt::Unsupported => break None,
            Attempt::Busy { holder } => {
                observer.waiting(&holder)?;
                observer.run(&mut || std::thread::sleep(WAIT))?;
            }
        }
    };
    if let Some(path) = find_published(root, &source_name)? {
        return Ok(Written { path, reused: true });
    }
    if lock.is_some() {
        sweep_own(root, &source_name);
    }
    let encoders = Encoders::new(options.compression);
    let writer = CacheWriter::create(BuildingFolder::create(root, &source_name)?, options)?;
    let mut pipeline =
        WritePipeline::new(writer, encoders, runtime.pool(), limits.prefetch_size, limits.prefetch_bytes);
    // Half of what may be held is taken at a time, so that encoding overlaps with the source's own work.
    let most_samples = (limits.prefetch_size / 2).clamp(1, BATCH_SAMPLES);
    let most_bytes = (limits.prefetch_bytes / 2).clamp(1, BATCH_BYTES);
    while let Some(batch) = feed.pull(most_samples, most_bytes)? {
        let (samples, bytes) = (batch.samples.len() as u64, batch.payload_bytes);
        if samples > 0 {
            pipeline.submit(batch, observer)?;
            observer.progress(samples, bytes)?;
        }
    }
    let writer = pipeline.finish(observer)?;
    if writer.samples() == 0 {
        return Err(Error::empty_source(&source_name, feed.left_out()));
    }
    let (path, ours) = writer.finish(feed.columns(), &mut |work| observer.run(work))?;
    Ok(Written { path, reused: !ours })
}
