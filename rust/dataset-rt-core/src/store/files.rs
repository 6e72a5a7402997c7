//! The open files of a process: few at any number of shards.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::guarded_mapping::GuardedMapping;
use super::manifest_file::kind_of;
use super::open_file::OpenFile;
use super::per_process::PerProcess;
use crate::error::{Error, Result};

/// How many files stay open. Far below the usual limit of 1,024 descriptors, which the user's program needs too.
const OPEN_FILES: usize = 64;
/// How many files stay mapped, and are closed then. Far below the 65,530 maps that Linux lets a process have.
const MAPPED_FILES: usize = 2_048;

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();
static NEXT_OWNER: AtomicU64 = AtomicU64::new(0);

/// Names a file of an open cache: the cache's number in this program and the file's number in the cache.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FileKey {
    /// A number from [`new_owner`].
    pub owner: u64,
    /// The shard's number, or [`INDEX_NUMBER`].
    pub number: u64,
    /// Whether it is to be mapped: one file can be open in both ways.
    pub mapped: bool,
}

/// Number of the index file in a [`FileKey`]; shard numbers are 32 bits wide and never reach it.
pub const INDEX_NUMBER: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Table {
    files: HashMap<FileKey, (Arc<OpenFile>, u64)>,
    clock: u64,
}

/// A number for a newly opened cache.
#[must_use]
pub fn new_owner() -> u64 {
    NEXT_OWNER.fetch_add(1, Ordering::Relaxed)
}

/// The open file `key`, if it is open.
#[must_use]
pub fn known(key: FileKey) -> Option<Arc<OpenFile>> {
    lock().touch(key)
}

/// The open file `key`, opened by `path` and checked by `check` if it is not open yet, and mapped where its length is
/// known and the key says so, if that can be done.
///
/// Beyond [`OPEN_FILES`] files or [`MAPPED_FILES`] mappings, the one that was not used for the longest time is closed as
/// soon as no read uses it.
///
/// # Errors
/// [`Error::Io`] or [`Error::FileMissing`] where it cannot be opened, and whatever `check` finds.
pub fn shared(
    key: FileKey,
    path: &Path,
    length: u64,
    check: impl FnOnce(&File) -> Result<()>,
) -> Result<Arc<OpenFile>> {
    if let Some(file) = lock().touch(key) {
        return Ok(file);
    }
    let file = open(path)?;
    check(&file)?;
    let mapping = if key.mapped { GuardedMapping::map(&file, length) } else { None };
    let file = Arc::new(mapping.map_or(OpenFile::Positioned(file), OpenFile::Mapped));
    lock().insert(key, Arc::clone(&file));
    Ok(file)
}

/// Closes a file whose pages were lost, so that the next read opens it anew.
pub fn evict(key: FileKey) {
    lock().files.remove(&key);
}

/// Closes all files of a cache.
pub fn forget(owner: u64) {
    lock().files.retain(|key, _| key.owner != owner);
}

/// Opens a file of a cache for reading, if it is a regular one. Never waits: opening a pipe would, for whoever writes to
/// it, and what stands at the path is known for sure only once it is open.
///
/// # Errors
/// [`Error::FileMissing`] where there is none or something else, [`Error::Io`] where it cannot be opened.
pub fn open(path: &Path) -> Result<File> {
    let other = |found: String| Error::FileMissing { file: path.to_path_buf(), found };
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => other("nothing".to_owned()),
        // Sockets and some devices refuse to be opened.
        _ => match path.metadata() {
            Ok(metadata) if !metadata.is_file() => other(kind_of(&metadata)),
            _ => Error::io("cannot open", path, error),
        },
    })?;
    let metadata = file.metadata().map_err(|error| Error::io("cannot look at", path, error))?;
    if metadata.is_file() { Ok(file) } else { Err(other(kind_of(&metadata))) }
}

fn lock() -> MutexGuard<'static, Table> {
    // Nothing panics while the table is locked, and its entries are valid at any time.
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn touch(&mut self, key: FileKey) -> Option<Arc<OpenFile>> {
        self.clock += 1;
        let clock = self.clock;
        self.files.get_mut(&key).map(|(file, used)| {
            *used = clock;
            Arc::clone(file)
        })
    }

    fn insert(&mut self, key: FileKey, file: Arc<OpenFile>) {
        let most = if file.is_mapped() { MAPPED_FILES } else { OPEN_FILES };
        let alike = || self.files.iter().filter(|(_, (known, _))| known.is_mapped() == file.is_mapped());
        // Below the smaller bound there is nothing to count.
        if self.files.len() >= OPEN_FILES && alike().count() >= most {
            let oldest = alike().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                self.files.remove(&oldest);
            }
        }
        self.clock += 1;
        self.files.insert(key, (file, self.clock));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;

    use super::{FileKey, OPEN_FILES, forget, lock, new_owner, shared};

    #[test]
    fn few_files_stay_open_and_a_dropped_cache_closes_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let owner = new_owner();
        for number in 0..200_u64 {
            let path = folder.path().join(number.to_string());
            fs::write(&path, number.to_string()).unwrap();
            shared(FileKey { owner, number, mapped: false }, &path, u64::MAX, |_| Ok(())).unwrap();
        }
        assert!(lock().files.len() <= OPEN_FILES);
        forget(owner);
        assert!(!lock().files.keys().any(|key| key.owner == owner));
    }
}
