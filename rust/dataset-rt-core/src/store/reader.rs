//! Reads records and checks each against its index entry.

use std::fmt;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::announce::{Place, Reads};
use super::bus_guard::Guard;
use super::cache::Cache;
use super::caches::CacheSet;
use super::device_reads::device_reads;
use super::open_file::{Failure, Filled, Hashing, OpenFile};
use super::slots::PayloadSlots;
use crate::error::{Error, Result};
use crate::format::{Codec, Decoder, IndexEntry, check_claimed_length, record_check_of, xxh3_64};
use crate::identifier::SampleId;

/// Neighbouring records up to this size are read with one call: above it, a call costs little beside the copy.
const NEIGHBOUR_BYTES: u64 = 16 << 10;
/// The most bytes that one such call reads.
const GROUP_BYTES: u64 = 256 << 10;
/// How many bytes of mapped records ahead of the one that is copied the processor is asked for: what its first cache and
/// the requests in flight can take. At least the next record, but of a longer one only the beginning: the processor finds
/// the rest by itself.
const PREFETCH_BYTES: u64 = 8 << 10;
const PREFETCH_RECORD_BYTES: u64 = 2 << 10;
/// Scratch memory above this size is given back after use.
const KEPT_SCRATCH_BYTES: usize = 4 << 20;

/// A record to read: its cache's place in the [`CacheSet`], its number there, and where its payload lies.
#[derive(Clone, Debug)]
pub struct PlannedRecord {
    /// Place in [`CacheSet::by_id`].
    pub cache: usize,
    /// The sample.
    pub sample: SampleId,
    /// The sample's index entry.
    pub entry: IndexEntry,
}

/// What a thread needs for reading, kept between runs: decompression contexts and scratch memory.
#[derive(Default)]
pub struct RecordReader {
    decoder: Decoder,
    order: Vec<usize>,
    stored: Vec<u8>,
}

impl fmt::Debug for RecordReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RecordReader").finish_non_exhaustive()
    }
}

impl RecordReader {
    /// Reads `records` into `slots`: in the order of their offsets, neighbours together, each checked unless `verify`
    /// is off. Stops early, with [`Error::Interrupted`], once `cancelled` is set.
    ///
    /// # Errors
    /// [`Error::RecordRange`], [`Error::RecordCheck`], [`Error::RecordCodec`] or [`Error::Io`], each naming the sample.
    pub fn read(
        &mut self,
        caches: &CacheSet,
        records: &[PlannedRecord],
        slots: &mut dyn PayloadSlots,
        verify: bool,
        cancelled: &AtomicBool,
    ) -> Result<()> {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(0..records.len());
        order.sort_unstable_by_key(|index| records.get(*index).map(PlannedRecord::place));
        let before = device_reads();
        let result = caches.guard().and_then(|guard| {
            let sorted = order.iter().filter_map(|index| records.get(*index));
            let places = sorted.map(|record| (record.place(), record.entry.stored_bytes));
            let reads = Reads::of(places, caches.temperature());
            let reading = Reading { caches, records, reads, guard, verify };
            self.read_in_order(&order, &reading, slots, cancelled)
        });
        self.order = order;
        self.stored.truncate(KEPT_SCRATCH_BYTES);
        self.stored.shrink_to(KEPT_SCRATCH_BYTES);
        if device_reads() != before {
            caches.temperature().note_cold();
        }
        result
    }

    fn read_in_order(
        &mut self,
        order: &[usize],
        reading: &Reading<'_>,
        slots: &mut dyn PayloadSlots,
        cancelled: &AtomicBool,
    ) -> Result<()> {
        let records = reading.records;
        let mut rest = order;
        // Records that the processor was asked for, their bytes, and the bytes of those that are done with.
        let (mut asked, mut asked_bytes, mut done_bytes) = (0_usize, 0_u64, 0_u64);
        // Records lie sorted by shard: each is looked up once a run.
        let mut open: Option<((usize, u32), Arc<OpenFile>)> = None;
        while let Some((&first, _)) = rest.split_first() {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let planned =
                records.get(first).and_then(|record| Some((record, reading.caches.by_id().get(record.cache)?)));
            let Some((record, cache)) = planned else {
                return Err(Error::Internal { message: format!("no record {first} in the run") });
            };
            let shard = (record.cache, record.entry.shard);
            if open.as_ref().is_none_or(|(known, _)| *known != shard) {
                open = Some((shard, cache.shard(record.entry.shard, reading.reads)?));
            }
            let Some((_, file)) = &open else { continue };
            // Copies out of a mapping cost no call that neighbours could share.
            let group = if file.is_mapped() { 1 } else { group_length(rest, records) };
            let (members, after) = rest.split_at(group);
            rest = after;
            if file.is_mapped() {
                let done = order.len() - rest.len();
                done_bytes += record.entry.stored_bytes.min(PREFETCH_RECORD_BYTES);
                while asked <= done || asked_bytes < done_bytes + PREFETCH_BYTES {
                    let Some(ahead) = order.get(asked).and_then(|index| records.get(*index)) else { break };
                    if (ahead.cache, ahead.entry.shard) != shard {
                        // It is asked for once its shard is open.
                        if asked >= done {
                            break;
                        }
                    } else if asked > 0 {
                        file.prefetch(ahead.entry.offset, ahead.entry.stored_bytes.min(PREFETCH_RECORD_BYTES));
                    }
                    asked_bytes += ahead.entry.stored_bytes.min(PREFETCH_RECORD_BYTES);
                    asked += 1;
                }
            }
            if group == 1 {
                self.read_one(reading, file, cache, record, slots.slot(first))?;
            } else {
                self.read_group(reading, file, cache, members, slots)?;
            }
        }
        Ok(())
    }

    fn read_one(
        &mut self,
        reading: &Reading<'_>,
        file: &OpenFile,
        cache: &Cache,
        record: &PlannedRecord,
        slot: &mut [MaybeUninit<u8>],
    ) -> Result<()> {
        match self.try_one(reading, file, cache, record, slot) {
            Ok(result) => result,
            // The record may be there all the same: another one was lost, or the file is whole again.
            Err(Failure::Lost) => {
                let again = reopened(cache, record)?;
                let result = self.try_one(reading, &again, cache, record, slot);
                result.unwrap_or_else(|failure| Err(unread(failure, cache, record)))
            }
            Err(failure) => Err(unread(failure, cache, record)),
        }
    }

    /// A [`Failure`] to read; what became of what was read is inside.
    fn try_one(
        &mut self,
        reading: &Reading<'_>,
        file: &OpenFile,
        cache: &Cache,
        record: &PlannedRecord,
        slot: &mut [MaybeUninit<u8>],
    ) -> std::result::Result<Result<()>, Failure> {
        let entry = &record.entry;
        if entry.codec == Codec::None {
            if let Err(error) = check_slot(slot, entry.payload_bytes) {
                return Ok(Err(error));
            }
            let hashing = if reading.verify { Hashing::Copied } else { Hashing::Left };
            let verified = |payload: Filled<'_>| reading.checked(file, cache, record, payload);
            return file.fill(&reading.guard, slot, entry.offset, hashing, verified);
        }
        let mut stored = std::mem::take(&mut self.stored);
        let result = match grow(&mut stored, entry.stored_bytes) {
            Ok(bytes) => file.read_exact(&reading.guard, bytes, entry.offset).map(|()| {
                let found = Filled { bytes, hash: None };
                reading.checked(file, cache, record, found).and_then(|()| self.deliver(cache, record, bytes, slot))
            }),
            Err(error) => Ok(Err(error)),
        };
        self.stored = stored;
        result
    }

    fn read_group(
        &mut self,
        reading: &Reading<'_>,
        file: &OpenFile,
        cache: &Cache,
        members: &[usize],
        slots: &mut dyn PayloadSlots,
    ) -> Result<()> {
        let planned = || members.iter().filter_map(|index| Some((*index, reading.records.get(*index)?)));
        let Some((_, first)) = planned().next() else { return Ok(()) };
        let start = first.entry.offset;
        let total = planned().map(|(_, record)| record.entry.stored_bytes).sum();
        let mut stored = std::mem::take(&mut self.stored);
        let bytes = grow(&mut stored, total)?;
        let mut result = Ok(());
        if file.read_exact(&reading.guard, bytes, start).is_ok() {
            let mut rest: &[u8] = bytes;
            for (index, record) in planned() {
                let length = usize::try_from(record.entry.stored_bytes).unwrap_or(usize::MAX);
                let Some((mine, after)) = rest.split_at_checked(length) else {
                    result = Err(Error::Internal { message: "a group is shorter than its records".to_owned() });
                    break;
                };
                rest = after;
                result = reading
                    .checked(file, cache, record, Filled { bytes: mine, hash: None })
                    .and_then(|()| self.deliver(cache, record, mine, slots.slot(index)));
                if result.is_err() {
                    break;
                }
            }
        } else {
            // One by one, so that the error names the sample that cannot be read.
            for (index, record) in planned() {
                result = self.read_one(reading, file, cache, record, slots.slot(index));
                if result.is_err() {
                    break;
                }
            }
        }
        self.stored = stored;
        result
    }

    /// Writes the payload of stored bytes to its slot.
    fn deliver(
        &mut self,
        cache: &Cache,
        record: &PlannedRecord,
        stored: &[u8],
        slot: &mut [MaybeUninit<u8>],
    ) -> Result<()> {
        let entry = &record.entry;
        check_slot(slot, entry.payload_bytes)?;
        if entry.codec == Codec::None {
            check_slot(slot, stored.len() as u64)?;
            slot.write_copy_of_slice(stored);
            return Ok(());
        }
        let path = cache.shard_path(entry.shard);
        check_claimed_length(entry.codec, stored, entry.payload_bytes, &path, record.sample)?;
        self.decoder.decode(entry.codec, stored, cleared(slot), &path, record.sample)
    }
}

/// A slot as initialised memory: unpackers take no other. Clearing it costs less than another copy.
#[expect(unsafe_code, reason = "the slot was initialised byte by byte")]
fn cleared(slot: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    for byte in slot.iter_mut() {
        byte.write(0);
    }
    // SAFETY: every byte was just written.
    unsafe { slot.assume_init_mut() }
}

/// A run that is being read.
struct Reading<'run> {
    caches: &'run CacheSet,
    records: &'run [PlannedRecord],
    reads: Reads<'run>,
    guard: Guard,
    verify: bool,
}

impl Reading<'_> {
    /// Checks stored bytes as far as that is wanted, but always that they were not cut off.
    fn checked(&self, file: &OpenFile, cache: &Cache, record: &PlannedRecord, stored: Filled<'_>) -> Result<()> {
        let result = if self.verify { check(cache, record, &stored) } else { Ok(()) };
        // A cut inside the last page that a mapped file still has leaves zeros at a record's end, and no signal comes.
        let doubtful = result.is_err() || (!self.verify && stored.bytes.ends_with(&[0]));
        let length = if doubtful { cache.shard_shrunk_to(record.entry.shard, file) } else { None };
        match length.map(|length| length.saturating_sub(record.entry.offset)) {
            Some(found) if found < record.entry.stored_bytes => Err(unread(Failure::Short(found), cache, record)),
            _ => result,
        }
    }
}

impl PlannedRecord {
    /// Where the record lies: cache, shard and offset.
    pub(super) fn place(&self) -> Place {
        (self.cache, self.entry.shard, self.entry.offset)
    }
}

/// How many records from the front of `order` lie end to end and are small enough to be read with one call.
fn group_length(order: &[usize], records: &[PlannedRecord]) -> usize {
    let mut planned = order.iter().filter_map(|index| records.get(*index));
    let Some(mut previous) = planned.next().filter(|record| record.entry.stored_bytes <= NEIGHBOUR_BYTES) else {
        return 1;
    };
    let (mut length, mut bytes) = (1, previous.entry.stored_bytes);
    for record in planned {
        let (_, _, offset) = previous.place();
        let follows = record.place() == (previous.cache, previous.entry.shard, offset + previous.entry.stored_bytes);
        bytes = record.entry.stored_bytes.saturating_add(bytes);
        if !follows || record.entry.stored_bytes > NEIGHBOUR_BYTES || bytes > GROUP_BYTES {
            break;
        }
        previous = record;
        length += 1;
    }
    length
}

fn check(cache: &Cache, record: &PlannedRecord, stored: &Filled<'_>) -> Result<()> {
    let found = record_check_of(record.sample, stored.hash.unwrap_or_else(|| xxh3_64(stored.bytes)));
    if found == record.entry.check {
        return Ok(());
    }
    Err(Error::RecordCheck {
        file: cache.shard_path(record.entry.shard),
        sample: record.sample.0,
        offset: record.entry.offset,
        expected: record.entry.check,
        found,
    })
}

fn check_slot(slot: &[MaybeUninit<u8>], payload_bytes: u64) -> Result<()> {
    if slot.len() as u64 == payload_bytes {
        return Ok(());
    }
    Err(Error::Internal { message: format!("a slot of {} bytes for a payload of {payload_bytes} bytes", slot.len()) })
}

/// The first `length` bytes of a scratch buffer, which grows where it is too short.
fn grow(scratch: &mut Vec<u8>, length: u64) -> Result<&mut [u8]> {
    let too_large = || Error::config(format!("{length} bytes to be read at a time do not fit this process's memory"));
    let length = usize::try_from(length).map_err(|_| too_large())?;
    if scratch.len() < length {
        scratch.try_reserve_exact(length - scratch.len()).map_err(|_| too_large())?;
        scratch.resize(length, 0);
    }
    Ok(scratch.get_mut(..length).unwrap_or_default())
}

/// The shard of a record out of whose mapping a page was lost, to be read by position.
///
/// # Errors
/// [`Error::RecordRange`] where the record is cut off, and as [`Cache::shard`].
fn reopened(cache: &Cache, record: &PlannedRecord) -> Result<OpenFile> {
    // Such a mapping is of no more use.
    cache.close_shard(record.entry.shard);
    let (offset, expected) = (record.entry.offset, record.entry.stored_bytes);
    if let Ok(metadata) = fs::metadata(cache.shard_path(record.entry.shard))
        && metadata.is_file()
    {
        let found = metadata.len().saturating_sub(offset);
        if found < expected {
            return Err(unread(Failure::Short(found), cache, record));
        }
    }
    cache.shard_by_position(record.entry.shard)
}

/// The error about a record that could not be read.
fn unread(failure: Failure, cache: &Cache, record: &PlannedRecord) -> Error {
    cache.close_shard(record.entry.shard);
    let file = cache.shard_path(record.entry.shard);
    let (sample, offset, expected) = (record.sample.0, record.entry.offset, record.entry.stored_bytes);
    match failure {
        Failure::Short(found) => Error::RecordRange { file, sample, offset, expected, found },
        Failure::System(source) => Error::Io { path: file, operation: "cannot read", bytes: Some(expected), source },
        Failure::Lost => Error::Internal { message: format!("a page was lost of {}, not mapped", file.display()) },
    }
}
