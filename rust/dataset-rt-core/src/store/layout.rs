//! Where caches and the writers' own folders lie below a root.

use std::path::{Path, PathBuf};

use crate::format::MANIFEST_FILE;

/// Folder below the root in which caches are built before they are published.
pub const BUILDING_FOLDER: &str = ".building";
/// Folder below the root with a lock file per source name.
pub const LOCK_FOLDER: &str = ".locks";

/// The folder of a published cache.
#[must_use]
pub fn cache_folder(root: &Path, source_name: &str) -> PathBuf {
    root.join(source_name)
}

/// Whether a complete cache is in `folder`, judged by the presence of its manifest.
#[must_use]
pub fn is_published(folder: &Path) -> bool {
    folder.join(MANIFEST_FILE).is_file()
}
