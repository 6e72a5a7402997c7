//! How one payload becomes a stored record and back.
//!
//! Each record is packed for itself, so any sample is read without its neighbours. What a payload becomes depends on
//! the payload, the settings and the release of this package alone: never on what the same encoder packed before, so
//! it does not matter which of several threads packs which record.

use std::path::Path;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use serde::{Deserialize, Serialize};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{compress_bound, find_frame_compressed_size, get_frame_content_size};

use crate::{Error, Result, SampleId};

/// Longest input of the reference implementation of LZ4 (`LZ4_MAX_INPUT_SIZE`); longer payloads stay as they are.
const LZ4_MAX_INPUT_BYTES: usize = 0x7E00_0000;

/// Inputs from this length on need wider positions than the small lz4 table holds.
const LZ4_SMALL_INPUT_BYTES: usize = u16::MAX as usize;

/// An encoder gives back its scratch memory after a payload that needed more than this.
const KEPT_SCRATCH_BYTES: usize = 64 << 20;

/// A byte of an LZ4 block stands for at most this many of the payload: a match grows by 255 with each further byte.
const LZ4_MOST_RATIO: u64 = 255;

/// The same for Zstandard: the shortest block has 4 bytes, and none unpacks to more than 128 KiB.
const ZSTD_MOST_RATIO: u64 = (128 << 10) / 4;

/// How a record is stored; the number is the index entry's byte.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// The payload itself.
    None = 0,
    /// One raw LZ4 block; the payload's length stands in the index, not before the block.
    Lz4 = 1,
    /// One Zstandard frame.
    Zstd = 2,
}

impl Codec {
    /// The codec's name in the manifest and in a writer's settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec called `name`, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Lz4, Self::Zstd].into_iter().find(|codec| codec.name() == name)
    }

    /// The longest payload that a record of `stored_bytes` can hold, or a little more.
    #[must_use]
    pub const fn most_payload_bytes(self, stored_bytes: u64) -> u64 {
        stored_bytes.saturating_mul(match self {
            Self::None => 1,
            Self::Lz4 => LZ4_MOST_RATIO,
            Self::Zstd => ZSTD_MOST_RATIO,
        })
    }

    /// The codec with this number, if there is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A codec with its level, as a writer is told and as the manifest keeps it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "CompressionRecord")]
pub struct Compression {
    algo: Codec,
    level: Option<i32>,
}

impl Compression {
    /// Compression with `algo` at `level`; no level means Zstandard's default.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a level outside Zstandard's range, or for any level with a codec that has none.
    pub fn new(algo: Codec, level: Option<i32>) -> Result<Self> {
        if let Some(level) = level {
            if algo != Codec::Zstd {
                return Err(Error::config(format!(
                    "compression level must be None for {}, got {level}; only zstd has levels",
                    algo.name()
                )));
            }
            let levels = zstd::compression_level_range();
            if !levels.contains(&level) {
                return Err(Error::config(format!(
                    "zstd compression level must be in [{}, {}], got {level}",
                    levels.start(),
                    levels.end()
                )));
            }
        }
        Ok(Self { algo, level })
    }

    /// The codec for the records that it makes shorter.
    #[must_use]
    pub const fn algo(self) -> Codec {
        self.algo
    }

    /// The level, where one was asked for.
    #[must_use]
    pub const fn level(self) -> Option<i32> {
        self.level
    }
}

/// A [`Compression`] as it stands in a manifest. The level's range is not looked at there: reading does not depend on
/// it, and a later encoder may have more levels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompressionRecord {
    algo: Codec,
    level: Option<i32>,
}

impl TryFrom<CompressionRecord> for Compression {
    type Error = String;

    fn try_from(record: CompressionRecord) -> std::result::Result<Self, String> {
        let CompressionRecord { algo, level } = record;
        match level {
            Some(level) if algo != Codec::Zstd => {
                Err(format!("codec level null expected for {}, found {level}", algo.name()))
            }
            _ => Ok(Self { algo, level }),
        }
    }
}

/// Packs payloads, reusing its tables and its output buffer.
pub struct Encoder {
    method: Method,
    scratch: Vec<u8>,
}

/// A codec with what it keeps from one payload to the next.
enum Method {
    None,
    /// Two tables, chosen by the payload's length: one table alone would grow with the first long payload, stay so,
    /// and pack later short ones differently.
    Lz4 {
        small: CompressTable,
        large: CompressTable,
    },
    Zstd {
        compressor: Compressor<'static>,
        level: i32,
    },
}

impl Encoder {
    /// An encoder for these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if Zstandard does not take the level.
    pub fn new(compression: Compression) -> Result<Self> {
        let method = match compression.algo {
            Codec::None => Method::None,
            Codec::Lz4 => Method::Lz4 { small: CompressTable::small(), large: CompressTable::large() },
            Codec::Zstd => {
                let level = compression.level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                let compressor = Compressor::new(level)
                    .map_err(|error| Error::config(format!("zstd refuses compression level {level}: {error}")))?;
                Method::Zstd { compressor, level }
            }
        };
        Ok(Self { method, scratch: Vec::new() })
    }

    /// The record for `payload`, with its codec: [`Codec::None`] and the payload itself where packing makes it no
    /// shorter.
    ///
    /// Costs one pass of the codec, and scratch memory for its worst case: a little more than the payload.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the codec fails, which means that it got no memory for its tables.
    pub fn encode<'a>(&'a mut self, payload: &'a [u8]) -> Result<(Codec, &'a [u8])> {
        let Self { method, scratch } = self;
        let (codec, bound) = match method {
            Method::None => return Ok((Codec::None, payload)),
            Method::Lz4 { .. } if payload.len() > LZ4_MAX_INPUT_BYTES => return Ok((Codec::None, payload)),
            Method::Lz4 { .. } => (Codec::Lz4, get_maximum_output_size(payload.len())),
            Method::Zstd { .. } => (Codec::Zstd, compress_bound(payload.len())),
        };
        if payload.is_empty() {
            return Ok((Codec::None, payload));
        }
        if scratch.len() > KEPT_SCRATCH_BYTES && bound <= KEPT_SCRATCH_BYTES {
            *scratch = Vec::new();
        }
        if scratch.len() < bound {
            scratch.resize(bound, 0);
        }
        // Exactly the bound, whatever the scratch has room for: what a codec writes may depend on its room.
        let room = scratch.get_mut(..bound).unwrap_or_default();
        let packed = match method {
            Method::None => return Ok((Codec::None, payload)),
            Method::Lz4 { small, large } => {
                let table = if payload.len() < LZ4_SMALL_INPUT_BYTES { small } else { large };
                compress_into_with_table(payload, room, table)
                    .map_err(|error| Error::config(format!("lz4 cannot pack {} bytes: {error}", payload.len())))?
            }
            Method::Zstd { compressor, level } => compressor.compress_to_buffer(payload, room).map_err(|error| {
                Error::config(format!(
                    "zstd cannot pack {} bytes at level {level}: {error}; a lower level needs less memory",
                    payload.len()
                ))
            })?,
        };
        match scratch.get(..packed) {
            Some(stored) if packed < payload.len() => Ok((codec, stored)),
            _ => Ok((Codec::None, payload)),
        }
    }
}

/// Unpacks records, reusing its tables.
pub struct Decoder {
    /// Made for the first Zstandard frame: most readers never meet one.
    zstd: Option<Decompressor<'static>>,
}

impl Decoder {
    /// A decoder for every codec. It holds about 160 KiB once it has met Zstandard.
    #[must_use]
    pub fn new() -> Self {
        Self { zstd: None }
    }

    /// Unpacks `stored` into `payload`, which it must fill exactly.
    ///
    /// Writes nowhere else and allocates nothing in proportion to what `stored` claims to hold, so a short record that
    /// unpacks to gigabytes is an error after at most `payload.len()` bytes. After an error `payload` holds anything.
    ///
    /// # Errors
    ///
    /// [`Error::RecordCodec`], with `file` and `sample` as its names, if `stored` is no data of this codec, or not of
    /// this length, or goes on after its end.
    pub fn decode(
        &mut self,
        codec: Codec,
        stored: &[u8],
        payload: &mut [u8],
        file: &Path,
        sample: SampleId,
    ) -> Result<()> {
        let expected = payload.len();
        let refused = |found: String| Error::RecordCodec {
            file: file.to_path_buf(),
            sample: sample.0,
            codec: codec.name(),
            expected: expected as u64,
            found,
        };
        let unpacked = match codec {
            Codec::None => {
                if stored.len() == expected {
                    payload.copy_from_slice(stored);
                }
                stored.len()
            }
            Codec::Lz4 => decompress_into(stored, payload).map_err(|error| refused(error.to_string()))?,
            Codec::Zstd => {
                let frame = find_frame_compressed_size(stored)
                    .map_err(|code| refused(zstd::zstd_safe::get_error_name(code).to_owned()))?;
                if frame != stored.len() {
                    return Err(refused(format!("{} bytes after a frame of {frame}", stored.len() - frame)));
                }
                let zstd = self.zstd.get_or_insert_with(Decompressor::default);
                zstd.decompress_to_buffer(stored, payload).map_err(|error| refused(error.to_string()))?
            }
        };
        if unpacked == expected { Ok(()) } else { Err(refused(format!("{unpacked} bytes"))) }
    }
}

/// Checks that a record does not say of itself that it unpacks to another length than the index names, before memory for
/// that is cleared. A record that says nothing passes, and so does one that lies: [`Decoder::decode`] finds it.
///
/// # Errors
///
/// [`Error::RecordCodec`], as from [`Decoder::decode`].
pub fn check_claimed_length(codec: Codec, stored: &[u8], expected: u64, file: &Path, sample: SampleId) -> Result<()> {
    let claimed = match codec {
        Codec::Zstd => get_frame_content_size(stored).ok().flatten(),
        Codec::None | Codec::Lz4 => None,
    };
    match claimed {
        Some(claimed) if claimed != expected => Err(Error::RecordCodec {
            file: file.to_path_buf(),
            sample: sample.0,
            codec: codec.name(),
            expected,
            found: format!("{claimed} bytes"),
        }),
        _ => Ok(()),
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[test]
    fn scratch_memory_of_a_huge_payload_is_given_back() {
        let mut encoder = Encoder::new(Compression::new(Codec::Lz4, None).unwrap()).unwrap();
        encoder.encode(&vec![0; KEPT_SCRATCH_BYTES]).unwrap();
        assert!(encoder.scratch.len() > KEPT_SCRATCH_BYTES);
        encoder.encode(&[0; 1000]).unwrap();
        assert!(encoder.scratch.len() < 2000);
    }

    #[test]
    fn names_and_numbers_belong_together() {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            assert_eq!(Codec::from_name(codec.name()), Some(codec));
            assert_eq!(Codec::from_byte(codec as u8), Some(codec));
        }
        assert_eq!(Codec::from_name("LZ4"), None);
        assert!((3..=255).all(|byte| Codec::from_byte(byte).is_none()));
    }
}
