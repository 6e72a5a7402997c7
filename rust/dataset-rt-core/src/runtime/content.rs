//! The content digest of a source, without writing it.

use super::outside::Outside;
use super::write::SampleFeed;
use crate::error::{Error, Result};
use crate::format::{ContentHasher, Digest, check_source_name, xxh3_128};

/// Samples taken at a time.
const BATCH_SAMPLES: u64 = 64;
/// Payload bytes taken at a time.
const BATCH_BYTES: u64 = 1 << 20;

/// The content digest that the cache of `feed` would have under this name.
///
/// # Errors
/// As for writing: [`Error::Config`] for a bad name, [`Error::Source`] for samples that are refused or for none at all,
/// and whatever feed and `outside` return.
pub fn content_digest<F: SampleFeed>(source_name: &str, feed: &mut F, outside: &mut dyn Outside) -> Result<Digest> {
    check_source_name(source_name)?;
    let mut hasher = ContentHasher::new();
    let mut samples = 0_u64;
    while let Some(batch) = feed.pull(BATCH_SAMPLES, BATCH_BYTES)? {
        let samples_of_batch: Vec<(&[u8], &[u8])> = batch
            .samples
            .iter()
            .map(|sample| (batch.fields.get(sample.fields.clone()).unwrap_or_default(), sample.payload.as_ref()))
            .collect();
        outside.run(&mut || {
            for (fields, payload) in &samples_of_batch {
                hasher.sample(fields, payload.len() as u64, xxh3_128(payload));
            }
        })?;
        samples += batch.samples.len() as u64;
    }
    if samples == 0 {
        return Err(Error::empty_source(source_name, feed.left_out()));
    }
    Ok(hasher.finish(&feed.columns(), source_name))
}
