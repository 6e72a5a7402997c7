//! Checks whole files against the manifest's digests.

use std::path::Path;

use super::cache::check_length;
use super::file_digester::FileDigester;
use crate::error::{Error, Result};
use crate::format::{FileRecord, Manifest};

/// Length and BLAKE3 of a file. `check` is asked every MiB whether to go on.
///
/// # Errors
/// [`Error::FileMissing`] or [`Error::Io`], or what `check` returns.
pub fn file_digest(path: &Path, check: &mut dyn FnMut() -> Result<()>) -> Result<FileRecord> {
    let mut digester = FileDigester::open(path)?;
    loop {
        check()?;
        if let Some(record) = digester.step(1)? {
            return Ok(record);
        }
    }
}

/// Checks the length and the BLAKE3 of one file of the cache in `folder`, named as in its manifest.
///
/// # Errors
/// [`Error::FileMissing`], [`Error::FileLength`] or [`Error::FileDigest`], or what `check` returns.
pub fn verify_file(
    folder: &Path,
    manifest: &Manifest,
    name: &str,
    check: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let Some(expected) = manifest.files.get(name) else { return Ok(()) };
    let path = folder.join(name);
    check_length(&path, expected.bytes)?;
    let found = file_digest(&path, check)?;
    if found.blake3 == expected.blake3 {
        Ok(())
    } else {
        let (expected, found) = (expected.blake3.to_string(), found.blake3.to_string());
        Err(Error::FileDigest { file: path, expected, found })
    }
}
