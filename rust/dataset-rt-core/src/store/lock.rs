//! One lock per source name, which keeps two writers of one cache apart.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process;

use super::fork_guard;
use super::layout::LOCK_FOLDER;
use crate::error::{Error, Result};

/// The lock of a source name, held until it is dropped or its process ends. The file itself is never removed.
#[derive(Debug)]
pub struct NameLock {
    file: Option<File>,
    path: PathBuf,
    process: u32,
}

thread_local! {
    /// Lock files that this thread holds: a source that asks for its own cache would wait for itself.
    static HELD: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// What came of trying to take a lock.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is ours.
    Held(NameLock),
    /// Another writer has it.
    Busy {
        /// The other writer, as it described itself, for people to read.
        holder: String,
    },
    /// This file system does not lock: writers go on, and the rename decides.
    Unsupported,
}

impl NameLock {
    /// Tries once, without waiting, to take the lock of `source_name` below `root`.
    ///
    /// # Errors
    /// [`Error::Io`] where the lock file cannot be made or opened.
    pub fn attempt(root: &Path, source_name: &str) -> Result<Attempt> {
        let folder = root.join(LOCK_FOLDER);
        fs::create_dir_all(&folder).map_err(|error| Error::io("cannot create the folder", &folder, error))?;
        Self::attempt_file(&folder.join(source_name))
    }

    fn attempt_file(path: &Path) -> Result<Attempt> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| Error::io("cannot open the lock file", path, error))?;
        // Registered first: a child that is forked between the two must not keep the lock.
        fork_guard::register(file.as_raw_fd());
        let attempt = file.try_lock();
        if attempt.is_err() {
            fork_guard::unregister(file.as_raw_fd());
        }
        match attempt {
            Ok(()) => {
                // Only people read it, so a failure to write it (a full disk, say) is no failure of the lock.
                let _ = describe_holder(&mut file);
                HELD.with_borrow_mut(|held| held.push(path.to_path_buf()));
                Ok(Attempt::Held(Self { file: Some(file), path: path.to_path_buf(), process: process::id() }))
            }
            Err(TryLockError::WouldBlock) if HELD.with_borrow(|held| held.iter().any(|held| held == path)) => {
                Err(Error::config(format!(
                    "a source must not ask for the cache that is being written from it, got {:?}",
                    path.file_name().unwrap_or_default()
                )))
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&mut file).take(200).read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "another process" } else { holder };
                Ok(Attempt::Busy { holder: holder.to_owned() })
            }
            Err(TryLockError::Error(error)) if is_unsupported(&error) => Ok(Attempt::Unsupported),
            Err(TryLockError::Error(error)) => Err(Error::io("cannot lock", path, error)),
        }
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.retain(|path| *path != self.path));
        if let Some(file) = self.file.take() {
            if process::id() == self.process {
                // Closing would leave the lock to a child that is being forked right now; unlocking frees it for all.
                let _ = file.unlock();
                fork_guard::unregister(file.as_raw_fd());
            } else {
                // The fork handler closed this descriptor already; its number may belong to another file by now.
                std::mem::forget(file);
            }
        }
    }
}

fn describe_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let place = if host.is_empty() { String::new() } else { format!(" on {host}") };
    // In one write: whoever waits may read at any moment.
    file.write_all(format!("process {}{place}\n", process::id()).as_bytes())
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        || matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use super::{Attempt, NameLock};

    #[test]
    fn a_second_writer_is_told_who_holds_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let Attempt::Held(lock) = NameLock::attempt(root.path(), "train").unwrap() else { panic!("not held") };
        let other = std::thread::scope(|scope| {
            scope.spawn(|| NameLock::attempt(root.path(), "train").unwrap()).join().unwrap()
        });
        let Attempt::Busy { holder } = other else { panic!("not busy") };
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        let error = NameLock::attempt(root.path(), "train").unwrap_err().to_string();
        assert!(error.contains("must not ask for the cache that is being written from it"), "{error}");
        assert!(matches!(NameLock::attempt(root.path(), "other").unwrap(), Attempt::Held(_)));
        drop(lock);
        assert!(matches!(NameLock::attempt(root.path(), "train").unwrap(), Attempt::Held(_)));
    }
}
