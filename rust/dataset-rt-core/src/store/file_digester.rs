//! Length and BLAKE3 of a file, read in pieces between which the caller can do something else.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::files;
use crate::error::{Error, Result};
use crate::format::{Digest, FileRecord};

/// How much is read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A file that is being read once, from its start to its end.
#[derive(Debug)]
pub struct FileDigester {
    path: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    chunk: Vec<u8>,
    bytes: u64,
}

impl FileDigester {
    /// Opens the file.
    ///
    /// # Errors
    /// [`Error::FileMissing`] or [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let (path, file) = (path.to_path_buf(), files::open(path)?);
        Ok(Self { path, file, hasher: blake3::Hasher::new(), chunk: vec![0; CHUNK_BYTES], bytes: 0 })
    }

    /// Reads at most so many MiB more; gives the file's record once its end is reached.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn step(&mut self, mebibytes: usize) -> Result<Option<FileRecord>> {
        for _ in 0..mebibytes {
            match self.file.read(&mut self.chunk) {
                Ok(0) => {
                    return Ok(Some(FileRecord { blake3: Digest::from(self.hasher.finalize()), bytes: self.bytes }));
                }
                Ok(count) => {
                    self.hasher.update(self.chunk.get(..count).unwrap_or_default());
                    self.bytes += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read", &self.path, error)),
            }
        }
        Ok(None)
    }
}
