//! Parts of `metadata.arrow` that are read on their own, with a checksum each.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::checksum::{hexadecimal, xxh3_64};
use crate::{Error, Result};

/// A run of bytes in `metadata.arrow`.
// Its fields stand in the order of their names' bytes: the manifest is canonical by declaration.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Length in bytes.
    pub bytes: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// XXH3 of the bytes, with 64 bits and seed 0.
    #[serde(with = "hexadecimal")]
    pub xxh3: u64,
}

impl Region {
    /// Offset after the last byte, unless that is more than 64 bits hold.
    #[must_use]
    pub const fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// Where the batches and the footer of `metadata.arrow` lie.
// As above: in the order of their names' bytes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataRegions {
    /// The record batches in order, each with its message header and body.
    pub batches: Vec<Region>,
    /// Arrow's footer with the length and the magic that follow it: the file's last bytes.
    pub footer: Region,
}

/// Checks that `bytes` are those of `region`. `part` is what errors call it: "footer", "batch 3".
///
/// # Errors
///
/// [`Error::MetadataArrow`] for another length, [`Error::MetadataCheck`] for other bytes.
pub fn check_region(part: &str, bytes: &[u8], region: &Region, file: &Path) -> Result<()> {
    if bytes.len() as u64 != region.bytes {
        return Err(Error::MetadataArrow {
            file: file.to_path_buf(),
            part: part.to_owned(),
            expected: format!("{} bytes at offset {}", region.bytes, region.offset),
            found: format!("{} bytes", bytes.len()),
        });
    }
    let found = xxh3_64(bytes);
    if found != region.xxh3 {
        return Err(Error::MetadataCheck {
            file: file.to_path_buf(),
            part: part.to_owned(),
            offset: region.offset,
            expected: region.xxh3,
            found,
        });
    }
    Ok(())
}
