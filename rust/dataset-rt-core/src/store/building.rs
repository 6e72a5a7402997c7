//! The folder in which a cache grows until one rename publishes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::layout::{BUILDING_FOLDER, cache_folder, is_published};
use super::lock::{Attempt, NameLock};
use crate::error::{Error, Result};

/// A building folder, which is removed with all that is in it when it is dropped before [`BuildingFolder::publish`].
#[derive(Debug)]
pub struct BuildingFolder {
    root: PathBuf,
    source_name: String,
    path: PathBuf,
    process: u32,
    published: bool,
}

impl BuildingFolder {
    /// Makes a new, empty building folder for `source_name`.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be made.
    pub fn create(root: &Path, source_name: &str) -> Result<Self> {
        let parent = root.join(BUILDING_FOLDER);
        fs::create_dir_all(&parent).map_err(|error| Error::io("cannot create the folder", &parent, error))?;
        let mut number = 0_u64;
        loop {
            let path = parent.join(format!("{source_name}.{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let (root, source_name) = (root.to_path_buf(), source_name.to_owned());
                    return Ok(Self { root, source_name, path, process: process::id(), published: false });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(Error::io("cannot create the folder", &path, error)),
            }
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the finished folder to its place below the root, replacing nothing.
    ///
    /// Every file and folder inside must have been synced already. Returns the place, and whether this folder is what
    /// is there now: `false` where another writer was first, whose cache then stands and this one is discarded.
    ///
    /// # Errors
    /// [`Error::Io`] where the rename or the sync of the root fails, [`Error::CacheNotFound`] where something that is
    /// no cache lies in the way.
    pub fn publish(mut self) -> Result<(PathBuf, bool)> {
        let target = cache_folder(&self.root, &self.source_name);
        match rename_without_replacing(&self.path, &target) {
            Ok(()) => {
                self.published = true;
                sync_folder(&self.root)?;
                Ok((target, true))
            }
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => {
                if is_published(&target) {
                    Ok((target, false))
                } else {
                    Err(Error::CacheNotFound {
                        path: target,
                        reason: "something that is no complete cache is in its place; remove it",
                    })
                }
            }
            Err(error) => Err(Error::io("cannot publish the cache as", &target, error)),
        }
    }
}

impl Drop for BuildingFolder {
    fn drop(&mut self) {
        // A forked child that unwinds through its copy of the writer must not remove what its parent still builds.
        if !self.published && process::id() == self.process {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes what killed writers left behind: every building folder whose lock is free.
///
/// To be called without holding a lock, so that a process never holds two.
pub fn sweep(root: &Path) {
    for (source_name, path) in building_folders(root) {
        if let Ok(Attempt::Held(_lock)) = NameLock::attempt(root, &source_name) {
            // Whoever built here is dead or done: a living writer would hold the lock that we have now.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Removes what killed writers of `source_name` left behind.
///
/// To be called with its lock held: a writer that was waited for may have been killed since [`sweep`] looked.
pub fn sweep_own(root: &Path, source_name: &str) {
    for (_, path) in building_folders(root).into_iter().filter(|(name, _)| name == source_name) {
        let _ = fs::remove_dir_all(path);
    }
}

/// The building folders below `root`, each with the name of the source that is or was built in it.
fn building_folders(root: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(root.join(BUILDING_FOLDER)) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let file_name = entry.file_name();
        let (source_name, _) = file_name.to_str()?.rsplit_once('.')?;
        Some((source_name.to_owned(), entry.path()))
    });
    named.collect()
}

/// Makes a folder's entries durable.
///
/// # Errors
/// [`Error::Io`] where the folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> Result<()> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| Error::io("cannot sync the folder", path, error))
}

fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            // A file system without that flag. A plain rename of a folder replaces nothing but an empty folder.
            if to.symlink_metadata().is_ok() {
                return Err(io::Error::from(ErrorKind::AlreadyExists));
            }
            fs::rename(from, to)
        }
        other => other.map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;

    use super::{BuildingFolder, sweep};

    #[test]
    fn a_folder_that_is_dropped_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let building = BuildingFolder::create(root.path(), "train").unwrap();
        fs::write(building.path().join("file"), b"x").unwrap();
        let path = building.path().to_path_buf();
        drop(building);
        assert!(!path.exists());
    }

    #[test]
    fn publishing_never_replaces() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("train")).unwrap();
        let error = BuildingFolder::create(root.path(), "train").unwrap().publish().unwrap_err();
        assert!(error.to_string().contains("in its place"), "{error}");
        fs::write(root.path().join("train/manifest.json"), b"{}").unwrap();
        let (_, ours) = BuildingFolder::create(root.path(), "train").unwrap().publish().unwrap();
        assert!(!ours);
    }

    #[test]
    fn a_sweep_removes_only_what_nobody_builds() {
        let root = tempfile::tempdir().unwrap();
        let kept = BuildingFolder::create(root.path(), "busy").unwrap();
        let lock = super::NameLock::attempt(root.path(), "busy").unwrap();
        fs::create_dir_all(root.path().join(".building/dead.v1.0/shards")).unwrap();
        sweep(root.path());
        assert!(kept.path().exists());
        assert!(!root.path().join(".building/dead.v1.0").exists());
        drop(lock);
    }
}
