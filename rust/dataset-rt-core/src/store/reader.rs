//! Reads records and checks each against its index entry.

use std::fmt;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, pread};

use super::cache::Cache;
use super::caches::CacheSet;
use super::slots::PayloadSlots;
use crate::error::{Error, Result};
use crate::format::{Codec, Decoder, IndexEntry, record_check};
use crate::identifier::SampleId;

/// Neighbouring records up to this size are read with one call: above it, a call costs little beside the copy.
const NEIGHBOUR_BYTES: u64 = 16 << 10;
/// The most bytes that one such call reads.
const GROUP_BYTES: u64 = 256 << 10;
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
    payload: Vec<u8>,
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
        let result = self.read_in_order(&order, caches, records, slots, verify, cancelled);
        self.order = order;
        self.stored.truncate(KEPT_SCRATCH_BYTES);
        self.stored.shrink_to(KEPT_SCRATCH_BYTES);
        self.payload.truncate(KEPT_SCRATCH_BYTES);
        self.payload.shrink_to(KEPT_SCRATCH_BYTES);
        result
    }

    fn read_in_order(
        &mut self,
        order: &[usize],
        caches: &CacheSet,
        records: &[PlannedRecord],
        slots: &mut dyn PayloadSlots,
        verify: bool,
        cancelled: &AtomicBool,
    ) -> Result<()> {
        let mut rest = order;
        // Records lie sorted by shard: each is looked up once a run.
        let mut open: Option<((usize, u32), Arc<File>)> = None;
        while let Some((&first, _)) = rest.split_first() {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let planned = records.get(first).and_then(|record| Some((record, caches.by_id().get(record.cache)?)));
            let Some((record, cache)) = planned else {
                return Err(Error::Internal { message: format!("no record {first} in the run") });
            };
            let group = group_length(rest, records);
            let (members, after) = rest.split_at(group);
            rest = after;
            let shard = (record.cache, record.entry.shard);
            let file = match &open {
                Some((known, file)) if *known == shard => Arc::clone(file),
                _ => {
                    let file = cache.shard(record.entry.shard)?;
                    open = Some((shard, Arc::clone(&file)));
                    file
                }
            };
            if group == 1 {
                self.read_one(&file, cache, record, slots.slot(first), verify)?;
            } else {
                self.read_group(&file, cache, members, records, slots, verify)?;
            }
        }
        Ok(())
    }

    fn read_one(
        &mut self,
        file: &File,
        cache: &Cache,
        record: &PlannedRecord,
        slot: &mut [MaybeUninit<u8>],
        verify: bool,
    ) -> Result<()> {
        let entry = &record.entry;
        if entry.codec == Codec::None {
            check_slot(slot, entry.payload_bytes)?;
            let verified = |payload: &[u8]| if verify { check(cache, record, payload) } else { Ok(()) };
            return fill(file, slot, entry.offset, verified).map_err(|failure| failure.of(cache, record))?;
        }
        let mut stored = std::mem::take(&mut self.stored);
        let bytes = grow(&mut stored, entry.stored_bytes)?;
        let result = read_exact(file, bytes, entry.offset)
            .map_err(|failure| failure.of(cache, record))
            .and_then(|()| self.deliver(cache, record, bytes, slot, verify));
        self.stored = stored;
        result
    }

    fn read_group(
        &mut self,
        file: &File,
        cache: &Cache,
        members: &[usize],
        records: &[PlannedRecord],
        slots: &mut dyn PayloadSlots,
        verify: bool,
    ) -> Result<()> {
        let planned = || members.iter().filter_map(|index| Some((*index, records.get(*index)?)));
        let Some((_, first)) = planned().next() else { return Ok(()) };
        let start = first.entry.offset;
        let total = planned().map(|(_, record)| record.entry.stored_bytes).sum();
        let mut stored = std::mem::take(&mut self.stored);
        let bytes = grow(&mut stored, total)?;
        let mut result = Ok(());
        if read_exact(file, bytes, start).is_ok() {
            let mut rest: &[u8] = bytes;
            for (index, record) in planned() {
                let length = usize::try_from(record.entry.stored_bytes).unwrap_or(usize::MAX);
                let Some((mine, after)) = rest.split_at_checked(length) else {
                    result = Err(Error::Internal { message: "a group is shorter than its records".to_owned() });
                    break;
                };
                rest = after;
                result = self.deliver(cache, record, mine, slots.slot(index), verify);
                if result.is_err() {
                    break;
                }
            }
        } else {
            // One by one, so that the error names the sample that cannot be read.
            for (index, record) in planned() {
                result = self.read_one(file, cache, record, slots.slot(index), verify);
                if result.is_err() {
                    break;
                }
            }
        }
        self.stored = stored;
        result
    }

    /// Checks stored bytes and writes their payload to its slot.
    fn deliver(
        &mut self,
        cache: &Cache,
        record: &PlannedRecord,
        stored: &[u8],
        slot: &mut [MaybeUninit<u8>],
        verify: bool,
    ) -> Result<()> {
        if verify {
            check(cache, record, stored)?;
        }
        let entry = &record.entry;
        let payload = if entry.codec == Codec::None {
            stored
        } else {
            let payload = grow(&mut self.payload, entry.payload_bytes)?;
            let path = cache.shard_path(entry.shard);
            self.decoder.decode(entry.codec, stored, payload, &path, record.sample)?;
            payload
        };
        check_slot(slot, payload.len() as u64)?;
        slot.write_copy_of_slice(payload);
        Ok(())
    }
}

impl PlannedRecord {
    fn place(&self) -> (usize, u32, u64) {
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

fn check(cache: &Cache, record: &PlannedRecord, stored: &[u8]) -> Result<()> {
    let found = record_check(record.sample, stored);
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

/// Why a read did not give all bytes.
enum Failure {
    /// The file ended after so many bytes.
    Short(u64),
    System(std::io::Error),
}

impl Failure {
    fn of(self, cache: &Cache, record: &PlannedRecord) -> Error {
        let file = cache.shard_path(record.entry.shard);
        let bytes = record.entry.stored_bytes;
        match self {
            Self::Short(found) => Error::RecordRange {
                file,
                sample: record.sample.0,
                offset: record.entry.offset,
                expected: bytes,
                found,
            },
            Self::System(source) => Error::Io { path: file, operation: "cannot read", bytes: Some(bytes), source },
        }
    }
}

/// Refuses what lies past the end of any file: systems count bytes in signed 64-bit integers, and would answer that the
/// argument is wrong, not that the file is too short.
fn check_reachable(offset: u64, length: usize) -> std::result::Result<(), Failure> {
    match i64::try_from(offset.saturating_add(length as u64)) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::Short(0)),
    }
}

/// Fills a slot with the bytes at `offset`, without clearing it first, and gives them to `with`.
fn fill(
    file: &File,
    slot: &mut [MaybeUninit<u8>],
    offset: u64,
    with: impl FnOnce(&[u8]) -> Result<()>,
) -> std::result::Result<Result<()>, Failure> {
    check_reachable(offset, slot.len())?;
    match pread(file, &mut *slot, offset) {
        Ok((filled, [])) => return Ok(with(filled)),
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(Failure::System(error.into())),
    }
    // A short read is rare: a signal, a network file system or the end of the file. Start over, step by step.
    let mut copy = vec![0; slot.len()];
    read_exact(file, &mut copy, offset)?;
    Ok(with(slot.write_copy_of_slice(&copy)))
}

fn read_exact(file: &File, bytes: &mut [u8], offset: u64) -> std::result::Result<(), Failure> {
    check_reachable(offset, bytes.len())?;
    let mut done = 0_usize;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => return Err(Failure::Short(done as u64)),
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::System(error)),
        }
    }
    Ok(())
}
