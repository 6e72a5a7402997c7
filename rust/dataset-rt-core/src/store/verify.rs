//! Checks whole files against the manifest's digests.

use std::path::{Path, PathBuf};

use super::cache::check_length;
use super::file_digester::FileDigester;
use crate::error::{Error, Result};
use crate::format::{Digest, Manifest};

/// A file that is compared with its manifest, in pieces between which the caller can do something else.
#[derive(Debug)]
pub struct FileCheck {
    path: PathBuf,
    expected: Digest,
    digester: FileDigester,
}

impl FileCheck {
    /// Checks the length of a file of the cache in `folder`, named as in its manifest, and opens it. `None` for a file
    /// that the manifest does not name.
    ///
    /// # Errors
    /// [`Error::FileMissing`], [`Error::FileLength`] or [`Error::Io`].
    pub fn begin(folder: &Path, manifest: &Manifest, name: &str) -> Result<Option<Self>> {
        let Some(expected) = manifest.files.get(name) else { return Ok(None) };
        let path = folder.join(name);
        check_length(&path, expected.bytes)?;
        let digester = FileDigester::open(&path)?;
        Ok(Some(Self { path, expected: expected.blake3, digester }))
    }

    /// Reads at most so many MiB more; true once the end is reached and the BLAKE3 is the manifest's.
    ///
    /// # Errors
    /// [`Error::FileDigest`] or [`Error::Io`].
    pub fn step(&mut self, mebibytes: usize) -> Result<bool> {
        let Some(found) = self.digester.step(mebibytes)? else { return Ok(false) };
        if found.blake3 == self.expected {
            return Ok(true);
        }
        let (expected, found) = (self.expected.to_string(), found.blake3.to_string());
        Err(Error::FileDigest { file: self.path.clone(), expected, found })
    }
}
