//! Checks whole files against the manifest's digests.

use std::io::Read;
use std::path::Path;

use super::cache::{Cache, check_length};
use super::files;
use crate::error::{Error, Result};
use crate::format::{Digest, FileRecord};

/// How much is read between two looks at whether to go on.
const CHUNK_BYTES: usize = 1 << 20;

/// Length and BLAKE3 of a file. `check` is asked every MiB whether to go on.
///
/// # Errors
/// [`Error::FileMissing`] or [`Error::Io`], or what `check` returns.
pub fn file_digest(path: &Path, check: &mut dyn FnMut() -> Result<()>) -> Result<FileRecord> {
    let mut file = files::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0_u64;
    loop {
        check()?;
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(chunk.get(..count).unwrap_or_default());
                bytes += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("cannot read", path, error)),
        }
    }
    Ok(FileRecord { blake3: Digest::from(hasher.finalize()), bytes })
}

/// Checks the length and the BLAKE3 of one file of a cache, named as in the manifest.
///
/// # Errors
/// [`Error::FileMissing`], [`Error::FileLength`] or [`Error::FileDigest`], or what `check` returns.
pub fn verify_file(cache: &Cache, name: &str, check: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let Some(expected) = cache.manifest().files.get(name) else { return Ok(()) };
    let path = cache.path().join(name);
    check_length(&path, expected.bytes)?;
    let found = file_digest(&path, check)?;
    if found.blake3 == expected.blake3 {
        Ok(())
    } else {
        let (expected, found) = (expected.blake3.to_string(), found.blake3.to_string());
        Err(Error::FileDigest { file: path, expected, found })
    }
}
