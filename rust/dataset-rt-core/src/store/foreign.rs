//! What lies in a cache's folder that is none of its files.

use std::fs;
use std::path::{Path, PathBuf};

use super::manifest_file::kind_of;
use crate::error::{Error, Result};
use crate::format::{MANIFEST_FILE, Manifest, SHARD_FOLDER};

/// An [`Error::FileForeign`] for each file and folder that the manifest does not name, in the order of their names.
///
/// # Errors
/// [`Error::Io`] where a folder cannot be listed.
pub fn foreign_files(folder: &Path, manifest: &Manifest) -> Result<Vec<Error>> {
    let mut foreign = Vec::new();
    for path in listed(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let own =
            name.is_some_and(|name| name == MANIFEST_FILE || name == SHARD_FOLDER || manifest.files.contains_key(name));
        if !own {
            foreign.push(path);
        }
    }
    let shards = folder.join(SHARD_FOLDER);
    // What is there instead of the folder of shards is a fault of every shard, not a foreign file.
    if shards.is_dir() {
        for path in listed(&shards)? {
            let name = path.file_name().and_then(|name| name.to_str());
            if !name.is_some_and(|name| manifest.files.contains_key(&format!("{SHARD_FOLDER}/{name}"))) {
                foreign.push(path);
            }
        }
    }
    foreign
        .into_iter()
        .map(|file| {
            let metadata = fs::symlink_metadata(&file).map_err(|error| Error::io("cannot look at", &file, error))?;
            Ok(Error::FileForeign { found: kind_of(&metadata), file })
        })
        .collect()
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error| Error::io("cannot list the folder", folder, error);
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>().map_err(unreadable)?;
    paths.sort();
    Ok(paths)
}
