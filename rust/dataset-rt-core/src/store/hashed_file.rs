//! A file that is hashed while it is written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{Digest, FileRecord};

/// Bytes that are gathered before they are hashed and written: BLAKE3 is several times as fast on long inputs.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes after which they are made durable without waiting for the file's end, which would otherwise take as long as
/// the disk needs for a whole shard, without an answer to Ctrl-C. A slow disk writes so many in two thirds of a second.
const SYNC_BYTES: u64 = 64 << 20;

/// Appends to a new file through a buffer and computes its BLAKE3.
#[derive(Debug)]
pub struct HashedFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
    bytes: u64,
    /// Bytes that were written since the last sync.
    unsynced: u64,
}

impl HashedFile {
    /// Creates the file, which must not exist yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(path: PathBuf) -> Result<Self> {
        let file = File::create_new(&path).map_err(|error| Error::io("cannot create", &path, error))?;
        Ok(Self {
            path,
            file,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            hasher: blake3::Hasher::new(),
            bytes: 0,
            unsynced: 0,
        })
    }

    /// How many bytes were appended.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Io`] with the number of bytes that could not be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let pending = self.buffer.len() + bytes.len();
        self.gather(bytes).map_err(|error| write_error(&self.path, pending, error))
    }

    /// Writes what is left and makes the file durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<FileRecord> {
        let pending = self.buffer.len();
        self.write_out().map_err(|error| write_error(&self.path, pending, error))?;
        self.file.sync_all().map_err(|error| Error::io("cannot sync", &self.path, error))?;
        Ok(FileRecord { blake3: Digest::from(self.hasher.finalize()), bytes: self.bytes })
    }

    fn gather(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.write_out()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            self.hasher.update(bytes);
            self.file.write_all(bytes)?;
            self.written(bytes.len())?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.hasher.update(&self.buffer);
        self.file.write_all(&self.buffer)?;
        self.written(self.buffer.len())?;
        self.buffer.clear();
        Ok(())
    }

    fn written(&mut self, bytes: usize) -> io::Result<()> {
        self.unsynced += bytes as u64;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(())
    }
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gather(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }
}

/// Writes all bytes, with an error that says how many they were.
///
/// # Errors
/// [`Error::Io`].
pub fn write_all(file: &mut File, path: &Path, bytes: &[u8]) -> Result<()> {
    file.write_all(bytes).map_err(|error| write_error(path, bytes.len(), error))
}

/// The error of a write of so many bytes.
pub fn write_error(path: &Path, bytes: usize, source: io::Error) -> Error {
    Error::Io { path: path.to_path_buf(), operation: "cannot write", bytes: Some(bytes as u64), source }
}
