//! Which folders are caches, whole or damaged.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::is_published;
use super::manifest_file::real_folder;
use crate::error::{Error, Result};
use crate::format::{INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARD_FOLDER};

/// The caches at `path`: itself, if it is one, otherwise the folders in it that are, in the order of their names.
///
/// A folder that lost its manifest counts as long as something else of a cache is there, so that whoever looks for
/// damage is told. Hidden folders do not count: writers keep locks and unfinished caches in some.
///
/// # Errors
/// [`Error::CacheNotFound`] where there is none, [`Error::Io`] where a folder cannot be listed.
pub fn find_caches(path: &Path) -> Result<Vec<PathBuf>> {
    let folder = real_folder(path)?;
    if is_or_was_cache(&folder) {
        return Ok(vec![folder]);
    }
    let unreadable = |error| Error::io("cannot list the folder", &folder, error);
    let mut caches = Vec::new();
    for entry in fs::read_dir(&folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") && is_or_was_cache(&entry.path()) {
            caches.push(entry.path());
        }
    }
    if caches.is_empty() {
        let reason = "neither the folder nor one in it has a manifest.json";
        return Err(Error::CacheNotFound { path: path.to_path_buf(), reason });
    }
    caches.sort();
    Ok(caches)
}

/// Whether a folder is a cache or what is left of one.
pub(super) fn is_or_was_cache(folder: &Path) -> bool {
    is_published(folder) || has_remains(folder)
}

/// Whether a folder holds anything of a cache.
pub fn has_remains(folder: &Path) -> bool {
    let something = |name: &str| folder.join(name).symlink_metadata().is_ok();
    // A manifest that is no regular file, or two of the other names: one alone may be anybody's.
    let others = [INDEX_FILE, METADATA_FILE, SHARD_FOLDER].into_iter().filter(|name| something(name)).count();
    folder.is_dir() && (something(MANIFEST_FILE) || others > 1)
}
