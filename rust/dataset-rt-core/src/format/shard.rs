//! A shard: a header of 16 bytes, then records end to end.
//!
//! ```text
//! 0 magic "DRTSHARD"   8 version u32   12 shard number u32
//! ```

use std::path::Path;

use super::FORMAT_VERSION;
use crate::{Error, Result};

/// Length of a shard's header in bytes; no record starts before it.
pub const SHARD_HEADER_BYTES: usize = 16;

const MAGIC: &[u8; 8] = b"DRTSHARD";

/// The name of shard `number` in the folder of shards: six digits, and as many more as the number needs.
#[must_use]
pub fn shard_file_name(number: u32) -> String {
    format!("{number:06}.bin")
}

/// The header of shard `number`.
#[must_use]
pub fn encode_shard_header(number: u32) -> [u8; SHARD_HEADER_BYTES] {
    let mut header = [0; SHARD_HEADER_BYTES];
    let fields = MAGIC.iter().copied().chain(FORMAT_VERSION.to_le_bytes()).chain(number.to_le_bytes());
    header.iter_mut().zip(fields).for_each(|(byte, value)| *byte = value);
    header
}

/// Checks that `bytes` is the header of shard `number`.
///
/// # Errors
///
/// [`Error::Version`] for another version of the format, [`Error::Header`] for anything else that is wrong.
pub fn check_shard_header(bytes: &[u8], number: u32, file: &Path) -> Result<()> {
    let header = Header::new(bytes, SHARD_HEADER_BYTES, file)?;
    header.check_magic(MAGIC)?;
    header.check_version()?;
    header.check_u32("shard number", 12, number)
}

/// A fixed header under inspection: eight bytes of magic, the version, then fields at fixed offsets.
pub(super) struct Header<'a> {
    bytes: &'a [u8],
    file: &'a Path,
}

impl<'a> Header<'a> {
    /// A header of `length` bytes.
    pub(super) fn new(bytes: &'a [u8], length: usize, file: &'a Path) -> Result<Self> {
        let header = Self { bytes, file };
        if bytes.len() == length {
            Ok(header)
        } else {
            Err(header.refused("header of", 0, format!("{length} bytes"), format!("{} bytes", bytes.len())))
        }
    }

    pub(super) fn check_magic(&self, magic: &[u8; 8]) -> Result<()> {
        let found = self.bytes.get(..magic.len()).unwrap_or_default();
        if found == magic {
            return Ok(());
        }
        Err(self.refused("magic", 0, format!("\"{}\"", magic.escape_ascii()), format!("\"{}\"", found.escape_ascii())))
    }

    pub(super) fn check_version(&self) -> Result<()> {
        match self.u32(8) {
            FORMAT_VERSION => Ok(()),
            found => {
                Err(Error::Version { file: self.file.to_path_buf(), expected: FORMAT_VERSION, found: found.into() })
            }
        }
    }

    pub(super) fn check_u32(&self, field: &'static str, offset: usize, expected: u32) -> Result<()> {
        self.check(field, offset, expected.into(), self.u32(offset).into())
    }

    pub(super) fn check_u64(&self, field: &'static str, offset: usize, expected: u64) -> Result<()> {
        let found = self.bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        self.check(field, offset, expected, u64::from_le_bytes(found))
    }

    fn check(&self, field: &'static str, offset: usize, expected: u64, found: u64) -> Result<()> {
        if expected == found {
            Ok(())
        } else {
            Err(self.refused(field, offset, expected.to_string(), found.to_string()))
        }
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default())
    }

    fn refused(&self, field: &'static str, offset: usize, expected: String, found: String) -> Error {
        Error::Header { file: self.file.to_path_buf(), offset: offset as u64, field, expected, found }
    }
}
