//! The two ways to read a cache's files, and which of them a file system is good for.

use std::path::Path;

use crate::error::{Error, Result};

/// Whether the guard of mapped files serves this system: how lost pages are signalled differs from one to the next.
const CAN_MAP: bool = cfg!(target_os = "linux");

/// How a cache's shards and index are read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IoMode {
    /// Mapped on Linux's local file systems, positioned elsewhere.
    #[default]
    Auto,
    /// Mapped on Linux, where a mapping can be made.
    Mapped,
    /// By positioned reads.
    Positioned,
}

impl IoMode {
    /// The mode of that name: "auto", "mapped" or "positioned".
    ///
    /// # Errors
    /// [`Error::Config`] for any other.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "mapped" => Ok(Self::Mapped),
            "positioned" => Ok(Self::Positioned),
            _ => Err(Error::config(format!("io must be \"auto\", \"mapped\" or \"positioned\", got {name:?}"))),
        }
    }

    /// The mode's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mapped => "mapped",
            Self::Positioned => "positioned",
        }
    }

    /// How files below `folder` are to be read.
    #[must_use]
    pub(super) fn way(self, folder: &Path) -> Way {
        match self {
            Self::Auto if CAN_MAP && is_local(folder) => Way::MappedWhileWarm,
            Self::Mapped if CAN_MAP => Way::Mapped,
            Self::Auto | Self::Mapped | Self::Positioned => Way::Positioned,
        }
    }
}

/// How the files of one cache are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// By copies out of maps.
    Mapped,
    /// The same, but where shuffled records come from a disk, positioned reads of announced ones, which are up to four
    /// times as fast there, because a fault waits for one page at a time.
    MappedWhileWarm,
    /// By system calls.
    Positioned,
}

/// Whether a folder lies on a file system of this machine, whose pages the kernel keeps as long as the file has them.
/// What is not known to be local counts as remote: positioned reads are right everywhere.
#[cfg(target_os = "linux")]
fn is_local(folder: &Path) -> bool {
    /// `f_type` of the local file systems, from Linux's `magic.h`: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, ramfs,
    /// overlayfs, SquashFS, EROFS, ZFS, bcachefs.
    const LOCAL: [u64; 11] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0xF2F5_2010,
        0x0102_1994,
        0x8584_58F6,
        0x794C_7630,
        0x7371_7368,
        0xE0F5_E1E2,
        0x2FC1_2FC1,
        0xCA45_1A4E,
    ];
    rustix::fs::statfs(folder)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| LOCAL.contains(&(kind & 0xFFFF_FFFF))))
}

#[cfg(not(target_os = "linux"))]
fn is_local(_folder: &Path) -> bool {
    false
}
