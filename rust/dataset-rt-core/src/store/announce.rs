//! Tells the system which records will be read, so that it reads them from the disk all at once and ahead.
//!
//! A disk answers many requests in the time of one. Nobody but the sampler knows the order ahead: so a run is announced
//! when it is planned, several runs before it is read. Where the data is in memory already, that would cost more than
//! reading it (0.4 µs a record); so it is done for the first runs, again after every read that went to a device, and until
//! several announcements in a row found nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::caches::CacheSet;
use super::device_reads::device_reads;
use super::open_file::OpenFile;
use super::reader::PlannedRecord;

/// How many announced runs must find all their records in memory before runs are no longer announced.
const WARM_RUNS: u32 = 8;
/// The most that is announced with one call: systems shorten larger requests to their read-ahead.
const CALL_BYTES: u64 = 128 << 10;
/// Records that lie no further apart are announced together.
const GAP_BYTES: u64 = 4 << 10;
/// A run whose records lie end to end goes on, most likely: so much after it is announced with it.
const ONWARD_BYTES: u64 = 2 << 20;

/// Whether what is read lies in memory, as far as the last reads tell.
#[derive(Debug)]
pub struct Temperature(AtomicU32);

impl Default for Temperature {
    /// Cold, until runs show that it is not: some announcements too many cost less than the first reads of a disk that
    /// were not announced.
    fn default() -> Self {
        Self(AtomicU32::new(WARM_RUNS))
    }
}

impl Temperature {
    /// Whether runs are to be announced.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Notes that a read went to a device.
    pub fn note_cold(&self) {
        self.0.store(WARM_RUNS, Ordering::Relaxed);
    }

    fn note_warm(&self) {
        // Threads that come at once may count one of them: then there is one announcement more.
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }
}

/// Announces records, if the last reads went to a device. What cannot be opened is left for the read to report.
pub fn announce(caches: &CacheSet, records: &[PlannedRecord]) {
    let temperature = caches.temperature();
    if !temperature.is_cold() {
        return;
    }
    let before = device_reads();
    let mut places: Vec<_> = records.iter().map(|record| (record.place(), record.entry.stored_bytes)).collect();
    places.sort_unstable();
    let mut open: Option<((usize, u32), Arc<OpenFile>)> = None;
    let mut next = places.iter().copied().peekable();
    while let Some(((cache, shard, start), bytes)) = next.next() {
        let (mut end, mut together) = (start.saturating_add(bytes), 1);
        let follows = |end: u64, place: &(usize, u32, u64)| {
            (place.0, place.1) == (cache, shard) && place.2 <= end.saturating_add(GAP_BYTES)
        };
        while let Some(((_, _, offset), bytes)) = next.next_if(|(place, _)| follows(end, place)) {
            end = end.max(offset.saturating_add(bytes));
            together += 1;
        }
        if together > 1 && together == places.len() {
            end = end.saturating_add(ONWARD_BYTES);
        }
        if open.as_ref().is_none_or(|(known, _)| *known != (cache, shard)) {
            let file = caches.by_id().get(cache).and_then(|cache| cache.shard(shard, temperature).ok());
            open = file.map(|file| ((cache, shard), file));
        }
        let Some((_, file)) = &open else { continue };
        let mut from = start;
        while from < end {
            file.announce(from, CALL_BYTES.min(end - from));
            from = from.saturating_add(CALL_BYTES);
        }
    }
    if device_reads() == before {
        temperature.note_warm();
    } else {
        temperature.note_cold();
    }
}
