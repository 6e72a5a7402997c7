//! `index.bin`: where each sample's record lies.
//!
//! A header of 32 bytes, then 40 bytes a sample in the order of sample ids, so one sample is found by one read and
//! opening costs the same for any number of samples. Integers are little-endian.
//!
//! ```text
//! header   0 magic "DRTINDEX"   8 version u32   12 entry size u32   16 samples u64   24 reserved u64 = 0
//! entry    0 offset u64         8 stored u64    16 payload u64      24 shard u32     28 codec u8
//!         29 three bytes 0     32 check u64
//! ```

use std::path::Path;

use super::FORMAT_VERSION;
use super::codec::Codec;
use super::shard::{Header, SHARD_HEADER_BYTES};
use crate::{Error, Result, SampleId};

/// Length of the header in bytes.
pub const INDEX_HEADER_BYTES: usize = 32;

/// Length of one sample's entry in bytes.
pub const INDEX_ENTRY_BYTES: usize = ENTRY_SIZE as usize;

const MAGIC: &[u8; 8] = b"DRTINDEX";

/// [`INDEX_ENTRY_BYTES`] as the header states it.
const ENTRY_SIZE: u32 = 40;

/// Length of the index of `samples` samples, unless that is more than 64 bits hold.
#[must_use]
pub const fn index_file_bytes(samples: u64) -> Option<u64> {
    match samples.checked_mul(INDEX_ENTRY_BYTES as u64) {
        Some(entries) => entries.checked_add(INDEX_HEADER_BYTES as u64),
        None => None,
    }
}

/// The header of an index of `samples` samples.
#[must_use]
pub fn encode_index_header(samples: u64) -> [u8; INDEX_HEADER_BYTES] {
    let mut header = [0; INDEX_HEADER_BYTES];
    let fields = MAGIC
        .iter()
        .copied()
        .chain(FORMAT_VERSION.to_le_bytes())
        .chain(ENTRY_SIZE.to_le_bytes())
        .chain(samples.to_le_bytes());
    header.iter_mut().zip(fields).for_each(|(byte, value)| *byte = value);
    header
}

/// Checks that `bytes` is the header of an index of `samples_expected` samples.
///
/// # Errors
///
/// [`Error::Version`] for another version of the format, [`Error::Header`] for anything else that is wrong.
pub fn check_index_header(bytes: &[u8], samples_expected: u64, file: &Path) -> Result<()> {
    let header = Header::new(bytes, INDEX_HEADER_BYTES, file)?;
    header.check_magic(MAGIC)?;
    header.check_version()?;
    header.check_u32("entry size", 12, ENTRY_SIZE)?;
    header.check_u64("sample count", 16, samples_expected)?;
    header.check_u64("reserved field", 24, 0)
}

/// Where one sample's record lies, how long it is, and how to check it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IndexEntry {
    /// Byte offset of the record in its shard.
    pub offset: u64,
    /// Length of the record in bytes.
    pub stored_bytes: u64,
    /// Length of the payload in bytes.
    pub payload_bytes: u64,
    /// Number of the shard.
    pub shard: u32,
    /// How the record is packed.
    pub codec: Codec,
    /// [`record_check`](super::record_check) of the record.
    pub check: u64,
}

/// What the entries of one cache may name, from its manifest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntryLimits {
    /// How many shards there are.
    pub shards: u32,
    /// Length of the longest payload.
    pub max_payload_bytes: u64,
    /// Length of all records together, so of no single one more.
    pub stored_bytes: u64,
}

impl IndexEntry {
    /// The entry's 40 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; INDEX_ENTRY_BYTES] {
        let mut entry = [0; INDEX_ENTRY_BYTES];
        let fields = self
            .offset
            .to_le_bytes()
            .into_iter()
            .chain(self.stored_bytes.to_le_bytes())
            .chain(self.payload_bytes.to_le_bytes())
            .chain(self.shard.to_le_bytes())
            .chain([self.codec as u8, 0, 0, 0])
            .chain(self.check.to_le_bytes());
        entry.iter_mut().zip(fields).for_each(|(byte, value)| *byte = value);
        entry
    }

    /// Reads the entry of `sample`.
    ///
    /// What it returns lies after a shard's header, ends within 64 bits and needs no more memory than `limits` allow and
    /// its record can fill; whether the shard is long enough is the reader's to check, who has it open.
    ///
    /// # Errors
    ///
    /// [`Error::IndexEntry`], which names the field.
    pub fn parse(bytes: &[u8], sample: SampleId, limits: &EntryLimits, file: &Path) -> Result<Self> {
        let refused = |field: &'static str, expected: String, found: String| Error::IndexEntry {
            file: file.to_path_buf(),
            sample: sample.0,
            field,
            expected,
            found,
        };
        let Ok(bytes) = <&[u8; INDEX_ENTRY_BYTES]>::try_from(bytes) else {
            return Err(refused("entry", format!("of {INDEX_ENTRY_BYTES} bytes"), format!("{} bytes", bytes.len())));
        };
        let (offset, rest) = split_u64(bytes);
        let (stored_bytes, rest) = split_u64(rest);
        let (payload_bytes, rest) = split_u64(rest);
        let (tail, check) = rest.split_at(8);
        let (check, _) = split_u64(check);
        let (shard, packing) = tail.split_at(4);
        let shard = u32::from_le_bytes(shard.try_into().unwrap_or_default());
        let (codec, padding) = packing.split_at(1);
        let codec = codec.first().copied().unwrap_or_default();

        if padding.iter().any(|&byte| byte != 0) {
            return Err(refused("padding", "of zeros".to_owned(), format!("{padding:?}")));
        }
        let Some(codec) = Codec::from_byte(codec) else {
            return Err(refused("codec", "0, 1 or 2".to_owned(), codec.to_string()));
        };
        if shard >= limits.shards {
            return Err(refused("shard", format!("below {}", limits.shards), shard.to_string()));
        }
        if offset < SHARD_HEADER_BYTES as u64 {
            return Err(refused("offset", format!("of at least {SHARD_HEADER_BYTES}"), offset.to_string()));
        }
        if offset.checked_add(stored_bytes).is_none() {
            let expected = format!("of at most {} with offset {offset}", u64::MAX - offset);
            return Err(refused("stored length", expected, stored_bytes.to_string()));
        }
        if payload_bytes > limits.max_payload_bytes {
            let expected = format!("of at most {}", limits.max_payload_bytes);
            return Err(refused("payload length", expected, payload_bytes.to_string()));
        }
        if stored_bytes > limits.stored_bytes {
            let expected = format!("of at most {}", limits.stored_bytes);
            return Err(refused("stored length", expected, stored_bytes.to_string()));
        }
        if stored_bytes > payload_bytes {
            let expected = format!("of at most the payload's {payload_bytes}");
            return Err(refused("stored length", expected, stored_bytes.to_string()));
        }
        // A record that is as long as its payload is the payload, so there is one way to say so.
        if (codec == Codec::None) != (stored_bytes == payload_bytes) {
            let expected = if codec == Codec::None { "equal to" } else { "below" };
            let expected = format!("{expected} the payload's {payload_bytes} for codec {}", codec.name());
            return Err(refused("stored length", expected, stored_bytes.to_string()));
        }
        // Memory for the payload is taken before the record is unpacked: so no record may claim more than it can hold.
        let most = codec.most_payload_bytes(stored_bytes);
        if payload_bytes > most {
            let expected = format!("of at most the {most} that {stored_bytes} bytes of {} can hold", codec.name());
            return Err(refused("payload length", expected, payload_bytes.to_string()));
        }
        Ok(Self { offset, stored_bytes, payload_bytes, shard, codec, check })
    }
}

/// The first eight of `bytes` as an integer, and the rest; zero where there are fewer.
fn split_u64(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes.split_first_chunk() {
        Some((first, rest)) => (u64::from_le_bytes(*first), rest),
        None => (0, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_index_does_not_overflow() {
        assert_eq!(index_file_bytes(1), Some(72));
        let most = (u64::MAX - 32) / 40;
        assert_eq!(index_file_bytes(most), Some(most * 40 + 32));
        assert_eq!(index_file_bytes(most + 1), None);
    }
}
