//! How long the payloads and the records of a cache are.

use super::bus_guard::Guard;
use super::cache::Cache;
use crate::error::Result;
use crate::identifier::SampleId;

/// The length of each payload and of each record, in bytes, in the order of the samples. Reads the index alone.
///
/// # Errors
/// As [`Cache::entry`].
pub fn record_lengths(cache: &Cache) -> Result<Vec<(u64, u64)>> {
    let guard = if cache.is_mapped() { Guard::arm()? } else { Guard::unarmed() };
    let mut file = None;
    (0..cache.samples())
        .map(|sample| {
            cache.entry(&guard, SampleId(sample), &mut file).map(|entry| (entry.payload_bytes, entry.stored_bytes))
        })
        .collect()
}
