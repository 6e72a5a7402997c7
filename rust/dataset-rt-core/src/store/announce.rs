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
/// A run whose records lie end to end goes on, most likely. Whenever one passes a multiple of so many bytes, the second
/// next stretch of that length is announced.
const STRETCH_BYTES: u64 = 4 << 20;

/// For how many runs such a stretch counts that is found in memory.
const STRETCH_RUNS: u32 = 4;

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

    /// Notes that an announcement made a device read, or that what counts for so many runs was in memory.
    fn note(&self, device_was_read: bool, runs: u32) {
        if device_was_read {
            return self.note_cold();
        }
        // Threads that come at once may count one of them: then there is one announcement more.
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(runs), Ordering::Relaxed);
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
    let reads = Reads::of(places.iter().copied(), temperature);
    if let (Reads::InOrder, Some((first, _)), Some((last, bytes))) = (reads, places.first(), places.last()) {
        // The system reads ahead by itself where reads follow on, but on most not as far as disks need.
        let passed = last.2.saturating_add(*bytes) / STRETCH_BYTES;
        if first.2 / STRETCH_BYTES < passed
            && let Some(file) = caches.by_id().get(first.0).and_then(|cache| cache.shard(first.1, reads).ok())
        {
            announce_range(&file, (passed + 1) * STRETCH_BYTES, (passed + 2) * STRETCH_BYTES);
            temperature.note(device_reads() != before, STRETCH_RUNS);
        }
        return;
    }
    let mut open: Option<((usize, u32), Arc<OpenFile>)> = None;
    let mut next = places.iter().copied().peekable();
    while let Some(((cache, shard, start), bytes)) = next.next() {
        let mut end = start.saturating_add(bytes);
        let follows = |end: u64, place: &(usize, u32, u64)| {
            (place.0, place.1) == (cache, shard) && place.2 <= end.saturating_add(GAP_BYTES)
        };
        while let Some(((_, _, offset), bytes)) = next.next_if(|(place, _)| follows(end, place)) {
            end = end.max(offset.saturating_add(bytes));
        }
        if open.as_ref().is_none_or(|(known, _)| *known != (cache, shard)) {
            let file = caches.by_id().get(cache).and_then(|cache| cache.shard(shard, reads).ok());
            open = file.map(|file| ((cache, shard), file));
        }
        let Some((_, file)) = &open else { continue };
        announce_range(file, start, end);
    }
    temperature.note(device_reads() != before, 1);
}

fn announce_range(file: &OpenFile, start: u64, end: u64) {
    let mut from = start;
    while from < end {
        file.announce(from, CALL_BYTES.min(end - from));
        from = from.saturating_add(CALL_BYTES);
    }
}

/// Cache, shard and offset of a record.
pub type Place = (usize, u32, u64);

/// How a run's records lie, which says how their shards are best read.
#[derive(Clone, Copy, Debug)]
pub enum Reads<'set> {
    /// End to end: the system reads ahead of them.
    InOrder,
    /// Anywhere: where they are not in memory, positioned reads of announced records are fastest.
    Shuffled(&'set Temperature),
}

impl<'set> Reads<'set> {
    /// The same of the places of sorted records.
    #[must_use]
    pub fn of(places: impl Iterator<Item = (Place, u64)>, temperature: &'set Temperature) -> Self {
        let (mut last, mut count) = (None, 0);
        for (place, bytes) in places {
            let (cache, shard, offset): Place = place;
            if last.is_some_and(|last| last != (cache, shard, offset)) {
                return Self::Shuffled(temperature);
            }
            last = Some((cache, shard, offset.saturating_add(bytes)));
            count += 1;
        }
        if count > 1 { Self::InOrder } else { Self::Shuffled(temperature) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_that_lie_end_to_end_in_one_shard_are_read_in_order() {
        let temperature = Temperature::default();
        let in_order =
            |places: &[(Place, u64)]| matches!(Reads::of(places.iter().copied(), &temperature), Reads::InOrder);
        assert!(in_order(&[((0, 1, 16), 4), ((0, 1, 20), 0), ((0, 1, 20), 7)]));
        assert!(!in_order(&[]));
        assert!(!in_order(&[((0, 1, 16), 4)]));
        assert!(!in_order(&[((0, 1, 16), 4), ((0, 1, 21), 4)]));
        assert!(!in_order(&[((0, 1, 16), 4), ((0, 1, 16), 4)]));
        assert!(!in_order(&[((0, 1, 16), 4), ((0, 2, 20), 4)]));
        assert!(!in_order(&[((0, 1, 16), 4), ((1, 1, 20), 4)]));
    }

    #[test]
    fn a_set_is_cold_until_enough_was_found_in_memory_and_again_after_a_device_read() {
        let temperature = Temperature::default();
        for _ in 0..WARM_RUNS {
            assert!(temperature.is_cold());
            temperature.note(false, 1);
        }
        assert!(!temperature.is_cold());
        temperature.note(true, 1);
        for _ in 0..WARM_RUNS / STRETCH_RUNS {
            assert!(temperature.is_cold());
            temperature.note(false, STRETCH_RUNS);
        }
        assert!(!temperature.is_cold());
    }
}
