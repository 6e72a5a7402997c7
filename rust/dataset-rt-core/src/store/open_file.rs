//! An open file of a cache, read by positioned reads or out of a guarded mapping.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::io::{Errno, pread};

use super::announce::Reads;
use super::bus_guard::Guard;
use super::guarded_mapping::GuardedMapping;
use crate::error::{Error, Result};

/// A file, and how it is read. Reads of a mapped one need an armed guard.
#[derive(Debug)]
pub enum OpenFile {
    /// By system calls.
    Positioned(File),
    /// By copies out of memory.
    Mapped(GuardedMapping),
}

/// Why a read did not give all bytes.
#[derive(Debug)]
pub enum Failure {
    /// The file ended after so many of them.
    Short(u64),
    /// A page of the mapped file was lost, now or earlier: it became shorter, or its disk failed. A read by position says
    /// how the file is now.
    Lost,
    /// The system's own error.
    System(io::Error),
}

/// Whether a copy is to be hashed while it is made, where that spares time.
#[derive(Clone, Copy, Debug)]
pub enum Hashing {
    /// Copies out of a mapping are hashed.
    Copied,
    /// Nothing is.
    Left,
}

/// What a slot was filled with.
#[derive(Debug)]
pub struct Filled<'slot> {
    /// The bytes.
    pub bytes: &'slot [u8],
    /// Their XXH3-64, if it was taken on the way.
    pub hash: Option<u64>,
}

impl OpenFile {
    /// Whether it is mapped.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }

    /// Tells the system how the file is read from now on.
    pub fn expect(&self, reads: Reads<'_>) {
        if let Self::Mapped(mapping) = self {
            mapping.expect(reads);
        }
    }

    /// Asks for bytes that will be read soon, where that costs nothing.
    #[inline]
    pub fn prefetch(&self, offset: u64, length: u64) {
        if let Self::Mapped(mapping) = self {
            mapping.prefetch(offset, length);
        }
    }

    /// Asks the system to read bytes from the disk that will be read soon, and does not wait for it.
    pub fn announce(&self, offset: u64, length: u64) {
        match self {
            Self::Mapped(mapping) => mapping.announce(offset, length),
            Self::Positioned(file) => announce_of(file, offset, length),
        }
    }

    /// Fills a slot with the bytes at `offset`, without clearing it first, and gives them to `with`, as `hashing` says.
    ///
    /// # Errors
    /// A [`Failure`]; what `with` returns is inside.
    pub fn fill(
        &self,
        guard: &Guard,
        slot: &mut [MaybeUninit<u8>],
        offset: u64,
        hashing: Hashing,
        with: impl FnOnce(Filled<'_>) -> Result<()>,
    ) -> std::result::Result<Result<()>, Failure> {
        check_reachable(offset, slot.len())?;
        let file = match self {
            Self::Mapped(mapping) => {
                let filled = match hashing {
                    Hashing::Copied => {
                        mapping.copy_hashed(guard, offset, slot).map(|(bytes, hash)| Filled { bytes, hash: Some(hash) })
                    }
                    Hashing::Left => mapping.copy(guard, offset, slot).map(|bytes| Filled { bytes, hash: None }),
                };
                let Some(filled) = filled else {
                    return Err(Failure::Short(mapping.bytes_from(offset)));
                };
                let result = with(filled);
                return if mapping.is_broken() { Err(Failure::Lost) } else { Ok(result) };
            }
            Self::Positioned(file) => file,
        };
        match pread(file, &mut *slot, offset) {
            Ok((bytes, [])) => return Ok(with(Filled { bytes, hash: None })),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::System(error.into())),
        }
        // A short read is rare: a signal, a network file system or the end of the file. Start over, step by step.
        let mut copy = vec![0; slot.len()];
        read_all(file, &mut copy, offset)?;
        Ok(with(Filled { bytes: slot.write_copy_of_slice(&copy), hash: None }))
    }

    /// Fills `bytes` with those at `offset`.
    ///
    /// # Errors
    /// A [`Failure`]; the bytes are of no use then.
    pub fn read_exact(&self, guard: &Guard, bytes: &mut [u8], offset: u64) -> std::result::Result<(), Failure> {
        check_reachable(offset, bytes.len())?;
        match self {
            Self::Mapped(mapping) if !mapping.copy_over(guard, offset, bytes) => {
                Err(Failure::Short(mapping.bytes_from(offset)))
            }
            Self::Mapped(mapping) if mapping.is_broken() => Err(Failure::Lost),
            Self::Mapped(_) => Ok(()),
            Self::Positioned(file) => read_all(file, bytes, offset),
        }
    }

    /// The length that a mapped file has now, if that is less than it was: within its last page, what was cut off reads
    /// as zeros, and no signal comes. `None` for a file that stands no longer at `path`, whose bytes cannot be cut off.
    #[must_use]
    pub fn shrunk_to(&self, path: &Path, expected: u64) -> Option<u64> {
        let Self::Mapped(mapping) = self else { return None };
        let metadata = fs::metadata(path).ok()?;
        let same = (metadata.dev(), metadata.ino()) == mapping.file();
        Some(metadata.len()).filter(|length| same && *length < expected)
    }
}

#[cfg(target_os = "linux")]
fn announce_of(file: &File, offset: u64, length: u64) {
    // Advice, which may be ignored.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(length), rustix::fs::Advice::WillNeed);
}

#[cfg(not(target_os = "linux"))]
fn announce_of(_file: &File, _offset: u64, _length: u64) {}

fn read_all(file: &File, bytes: &mut [u8], offset: u64) -> std::result::Result<(), Failure> {
    let mut done = 0_usize;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => return Err(Failure::Short(done as u64)),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::System(error)),
        }
    }
    Ok(())
}

impl Failure {
    /// The error about a file that must have `expected` bytes. What was lost of a mapped one, its caller reads again first.
    #[must_use]
    pub fn of_file(self, path: &Path, expected: u64) -> Error {
        match self {
            Self::System(source) => Error::io("cannot read", path, source),
            Self::Lost | Self::Short(_) => {
                let found = fs::metadata(path).map(|metadata| metadata.len()).unwrap_or_default();
                Error::FileLength { file: path.to_path_buf(), expected, found }
            }
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
