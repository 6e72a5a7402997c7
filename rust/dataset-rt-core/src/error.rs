//! Everything that can go wrong, one variant for each way.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Result of the core's fallible operations.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong: which file, which sample, what was expected and what was found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No complete cache at this path.
    #[error("no cache at {}: {reason}", path.display())]
    CacheNotFound {
        /// The cache's folder.
        path: PathBuf,
        /// What is missing there.
        reason: &'static str,
    },
    /// A file was written by a version of the format that this release does not read.
    #[error("{}: format version {expected} expected, found {found}; install a release of dataset-rt that reads it", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// The version that this release reads.
        expected: u32,
        /// The version that the file names.
        found: u64,
    },
    /// A file's length differs from the manifest's.
    #[error("{}: {expected} bytes expected, found {found}", file.display())]
    FileLength {
        /// The file.
        file: PathBuf,
        /// The manifest's length in bytes.
        expected: u64,
        /// The length found, in bytes.
        found: u64,
    },
    /// A file that the manifest names is not there, or is no regular file.
    #[error("{}: a regular file expected, found {found}", file.display())]
    FileMissing {
        /// The file.
        file: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// Something lies in a cache's folder that is none of its files.
    #[error("{}: no other file than the cache's own expected, found {found}", file.display())]
    FileForeign {
        /// Where it lies.
        file: PathBuf,
        /// What it is.
        found: String,
    },
    /// The samples that are stored are not those that the manifest's content digest is of.
    #[error("{}: samples with content digest {expected} expected, found {found}", file.display())]
    ContentDigest {
        /// The cache's folder.
        file: PathBuf,
        /// The manifest's digest, hexadecimal.
        expected: String,
        /// The digest of the samples found, hexadecimal.
        found: String,
    },
    /// A file's BLAKE3 digest differs from the manifest's.
    #[error("{}: BLAKE3 {expected} expected, found {found}", file.display())]
    FileDigest {
        /// The file.
        file: PathBuf,
        /// The manifest's digest, hexadecimal.
        expected: String,
        /// The digest of the bytes found, hexadecimal.
        found: String,
    },
    /// The manifest is not a canonical manifest of this format.
    #[error("{}: {expected} expected, found {found}", file.display())]
    Manifest {
        /// The manifest.
        file: PathBuf,
        /// What must stand there.
        expected: String,
        /// What does.
        found: String,
    },
    /// A fixed header (of the index or of a shard) holds another value than it must.
    #[error("{}: {field} {expected} expected at offset {offset}, found {found}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// Byte offset of the field.
        offset: u64,
        /// Name of the field.
        field: &'static str,
        /// The value that must stand there.
        expected: String,
        /// The value that does.
        found: String,
    },
    /// An index entry names something that cannot be.
    #[error("{}: sample {sample}: {field} {expected} expected, found {found}", file.display())]
    IndexEntry {
        /// The index file.
        file: PathBuf,
        /// The sample whose entry it is.
        sample: u64,
        /// Name of the entry's field.
        field: &'static str,
        /// The rule for the field.
        expected: String,
        /// The field's value.
        found: String,
    },
    /// A stored record's check differs from the index's.
    #[error("{}: sample {sample} at offset {offset}: check {expected:016x} expected, found {found:016x}", file.display())]
    RecordCheck {
        /// The shard.
        file: PathBuf,
        /// The sample.
        sample: u64,
        /// Byte offset of the record in the shard.
        offset: u64,
        /// The index's check.
        expected: u64,
        /// The check of the bytes found.
        found: u64,
    },
    /// A record reaches past the end of its shard, or the shard became shorter while it was read.
    #[error("{}: sample {sample}: {expected} bytes at offset {offset} expected, the file ends after {found} of them", file.display())]
    RecordRange {
        /// The shard.
        file: PathBuf,
        /// The sample.
        sample: u64,
        /// Byte offset of the record in the shard.
        offset: u64,
        /// Length of the record in bytes.
        expected: u64,
        /// How many bytes of it are there.
        found: u64,
    },
    /// A stored record does not decompress to the length that the index names.
    #[error("{}: sample {sample}: {codec} data of {expected} bytes expected, found {found}", file.display())]
    RecordCodec {
        /// The shard.
        file: PathBuf,
        /// The sample.
        sample: u64,
        /// Name of the codec.
        codec: &'static str,
        /// Length of the payload in bytes.
        expected: u64,
        /// What the decoder made of it.
        found: String,
    },
    /// A region of `metadata.arrow` does not have the manifest's checksum.
    #[error("{}: {part} at offset {offset}: XXH3 {expected:016x} expected, found {found:016x}", file.display())]
    MetadataCheck {
        /// The metadata file.
        file: PathBuf,
        /// Which part: a batch by its number, or the footer.
        part: String,
        /// Byte offset of the part.
        offset: u64,
        /// The manifest's checksum.
        expected: u64,
        /// The checksum of the bytes found.
        found: u64,
    },
    /// A part of `metadata.arrow` is not the Arrow data that the manifest describes.
    #[error("{}: {part}: {expected} expected, found {found}", file.display())]
    MetadataArrow {
        /// The metadata file.
        file: PathBuf,
        /// Which part: the footer, or a batch by its number.
        part: String,
        /// What must stand there.
        expected: String,
        /// What does.
        found: String,
    },
    /// A metadata table breaks a rule, or caches that do not go together were opened as one.
    #[error("{message}")]
    Metadata {
        /// Which row or column, what was expected, what was found and what to do.
        message: String,
    },
    /// A source gave something that cannot be cached.
    #[error("{}", source_message(source_name, *sample, field.as_deref(), expected, found))]
    Source {
        /// Name of the source.
        source_name: String,
        /// Number of the sample as the source counts them, where one is concerned.
        sample: Option<u64>,
        /// The metadata field, or `data`, where one is concerned.
        field: Option<String>,
        /// The rule.
        expected: String,
        /// What came.
        found: String,
    },
    /// A saved state belongs to other data, another seed, mode or version.
    #[error("state does not fit: {field} {expected} expected, found {found}; {advice}")]
    StateMismatch {
        /// The field of the state.
        field: &'static str,
        /// The value of this dataset.
        expected: String,
        /// The value in the state.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// An argument is outside its range.
    #[error("{message}")]
    Config {
        /// The argument, its rule, its value and what to do.
        message: String,
    },
    /// The operating system refused an operation.
    #[error("{operation} {}{}: {source}", path.display(), bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb phrase: "cannot write".
        operation: &'static str,
        /// How many bytes were to be read or written, where that is known.
        bytes: Option<u64>,
        /// The system's error.
        source: io::Error,
    },
    /// A fault of this package itself.
    #[error("internal error of dataset-rt, please report it: {message}")]
    Internal {
        /// What happened.
        message: String,
    },
    /// The caller asked to stop, by a signal or by dropping what was being waited for.
    #[error("interrupted")]
    Interrupted,
}

/// The parts of a corruption, for callers that report them separately.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// The file, or the cache's folder.
    pub file: PathBuf,
    /// The sample concerned, where one is.
    pub sample: Option<u64>,
    /// What must be.
    pub expected: String,
    /// What is.
    pub found: String,
}

impl Error {
    /// An I/O error with its path and operation.
    #[must_use]
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), operation, bytes: None, source }
    }

    /// A configuration error.
    #[must_use]
    pub fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    /// A metadata error.
    #[must_use]
    pub fn metadata(message: impl Into<String>) -> Self {
        Self::Metadata { message: message.into() }
    }

    /// The error of a source without samples, or of one of which so many samples, all of them, were left out.
    #[must_use]
    pub fn empty_source(source_name: &str, left_out: u64) -> Self {
        let found = match left_out {
            0 => "none: an iterator that was used up, perhaps; a source must start anew at each iter()".to_owned(),
            1 => "1 that was left out".to_owned(),
            _ => format!("{left_out} that were all left out"),
        };
        Self::Source {
            source_name: source_name.to_owned(),
            sample: None,
            field: None,
            expected: "at least one sample".to_owned(),
            found,
        }
    }

    /// What a panic that was caught on a worker thread becomes.
    #[must_use]
    pub fn from_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned());
        Self::Internal { message }
    }

    /// The file of a cache that this says is not as it should be.
    pub(crate) fn damaged_file(&self) -> Option<&Path> {
        match self {
            Self::FileDigest { file, .. } | Self::FileLength { file, .. } | Self::FileMissing { file, .. } => {
                Some(file)
            }
            Self::Io { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The parts of the error if it says that bytes on disk are wrong.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let hexadecimal = |value: &u64| format!("{value:016x}");
        let (file, sample, expected, found) = match self {
            Self::FileLength { file, expected, found } => {
                (file, None, format!("{expected} bytes"), format!("{found} bytes"))
            }
            Self::FileMissing { file, found } => (file, None, "a regular file".to_owned(), found.clone()),
            Self::FileForeign { file, found } => (file, None, "no such file".to_owned(), found.clone()),
            Self::ContentDigest { file, expected, found } => {
                (file, None, format!("samples with content digest {expected}"), found.clone())
            }
            Self::FileDigest { file, expected, found } => (file, None, format!("BLAKE3 {expected}"), found.clone()),
            Self::Manifest { file, expected, found } => (file, None, expected.clone(), found.clone()),
            Self::Header { file, field, expected, found, .. } => {
                (file, None, format!("{field} {expected}"), found.clone())
            }
            Self::IndexEntry { file, sample, field, expected, found } => {
                (file, Some(*sample), format!("{field} {expected}"), found.clone())
            }
            Self::RecordCheck { file, sample, expected, found, .. } => {
                (file, Some(*sample), hexadecimal(expected), hexadecimal(found))
            }
            Self::RecordRange { file, sample, expected, found, .. } => {
                (file, Some(*sample), format!("{expected} bytes"), format!("{found} bytes"))
            }
            Self::RecordCodec { file, sample, codec, expected, found } => {
                (file, Some(*sample), format!("{codec} data of {expected} bytes"), found.clone())
            }
            Self::MetadataCheck { file, part, expected, found, .. } => {
                (file, None, format!("{part} with XXH3 {}", hexadecimal(expected)), hexadecimal(found))
            }
            Self::MetadataArrow { file, part, expected, found } => {
                (file, None, format!("{part}: {expected}"), found.clone())
            }
            _ => return None,
        };
        Some(Fault { file: file.clone(), sample, expected, found })
    }
}

/// Characters of a field's name that a message shows.
const FIELD_CHARACTERS: usize = 80;

fn source_message(source_name: &str, sample: Option<u64>, field: Option<&str>, expected: &str, found: &str) -> String {
    let mut message = format!("source {source_name:?}");
    if let Some(sample) = sample {
        message.push_str(&format!(", sample {sample}"));
    }
    if let Some(field) = field {
        let shown: String = field.chars().take(FIELD_CHARACTERS).collect();
        message.push_str(&format!(", field {shown:?}"));
    }
    message.push_str(&format!(": expected {expected}, got {found}"));
    message
}
