//! The manifest as a file: the first thing that is read of a cache, and so the one that nothing vouches for.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::files;
use crate::error::{Error, Result};
use crate::format::{MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest};

/// The folder `path`, absolute and without symbolic links.
///
/// # Errors
/// [`Error::CacheNotFound`] where there is no folder, [`Error::Io`] where it cannot be opened.
pub fn real_folder(path: &Path) -> Result<PathBuf> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::CacheNotFound { path: path.to_path_buf(), reason: "there is no such folder" },
        _ => Error::io("cannot open the folder", path, error),
    })?;
    if real.is_dir() {
        Ok(real)
    } else {
        Err(Error::CacheNotFound { path: path.to_path_buf(), reason: "this is a file, not a cache's folder" })
    }
}

/// Reads the manifest in `folder`; whether the folder bears its name is [`check_folder_name`]'s to say.
///
/// # Errors
/// [`Error::CacheNotFound`] where there is none, [`Error::FileMissing`] where something else than a regular file has its
/// name, which reading could wait on for ever, [`Error::Manifest`], [`Error::Version`] or [`Error::Io`].
pub fn read_manifest(folder: &Path) -> Result<Manifest> {
    let path = folder.join(MANIFEST_FILE);
    let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Error::CacheNotFound { path: folder.to_path_buf(), reason: "the folder has no manifest.json" }
        }
        _ => Error::io("cannot look at", &path, error),
    })?;
    if !metadata.is_file() {
        return Err(Error::FileMissing { file: path, found: kind_of(&metadata) });
    }
    let unreadable = |error| Error::io("cannot read", &path, error);
    let file = files::open(&path)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    // What calls itself empty is not read at all: files that the kernel makes up do, and may wait for something to say.
    if length > 0 {
        // One byte more than may be, for the parser to refuse.
        file.take(length.min(MAX_MANIFEST_BYTES) + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    Manifest::parse(&bytes, &path)
}

/// Checks that a cache lies in the folder of its name.
///
/// # Errors
/// [`Error::Manifest`].
pub fn check_folder_name(folder: &Path, manifest: &Manifest) -> Result<()> {
    if folder.file_name().and_then(|name| name.to_str()) == Some(manifest.source_name.as_str()) {
        return Ok(());
    }
    Err(Error::Manifest {
        file: folder.join(MANIFEST_FILE),
        expected: "a source_name equal to the folder's name".to_owned(),
        found: format!("{:?}", manifest.source_name),
    })
}

/// What something is that should be a regular file.
pub fn kind_of(metadata: &fs::Metadata) -> String {
    if metadata.is_dir() {
        "a folder".to_owned()
    } else if metadata.is_file() {
        format!("a file of {} bytes", metadata.len())
    } else if metadata.is_symlink() {
        "a symbolic link".to_owned()
    } else {
        "no regular file".to_owned()
    }
}
