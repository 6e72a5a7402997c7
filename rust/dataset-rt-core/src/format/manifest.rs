//! `manifest.json`: what a cache is. It is written last, so a cache exists when its manifest does.
//!
//! The file is exactly its canonical bytes: keys in the order of their UTF-8, no whitespace, integers only, and the
//! string escapes of RFC 8785. So one manifest has one form, and a key that stands twice, another spelling of a number or
//! a changed byte is found by writing what was read and comparing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::FORMAT_VERSION;
use super::checksum::{Digest, hexadecimal};
use super::codec::Compression;
use super::column::{Column, check_columns};
use super::content;
use super::index::{EntryLimits, index_file_bytes};
use super::metadata::batch_count;
use super::name;
use super::region::MetadataRegions;
use super::shard::{SHARD_HEADER_BYTES, shard_file_name};
use crate::{CacheId, Error, Result};

/// The manifest's name in a cache's folder.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Longest manifest. Nothing says beforehand how long it must be and it is read whole, so this bounds what a damaged or
/// hostile one costs. It leaves room for two million shards.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// The index's name in a cache's folder.
pub const INDEX_FILE: &str = "index.bin";

/// The metadata's name in a cache's folder.
pub const METADATA_FILE: &str = "metadata.arrow";

/// The name of the folder of shards in a cache's folder.
pub const SHARD_FOLDER: &str = "shards";

/// What this release writes as a manifest's writer.
pub const WRITER: &str = concat!("dataset-rt ", env!("CARGO_PKG_VERSION"));

const FORMAT: &str = "dataset-rt";

/// Length and digest of one of a cache's files.
// Its fields stand in the order of their names' bytes, as those of `Document` do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// BLAKE3 of the file.
    pub blake3: Digest,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// What a cache is: everything in its manifest but what follows from the rest (format, version, cache id and digest).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    /// What the source says about itself; no part of the cache's identity.
    pub attributes: BTreeMap<String, String>,
    /// How records are packed where that makes them shorter.
    pub codec: Compression,
    /// The metadata columns, in the source's order.
    pub columns: Vec<Column>,
    /// What the samples are; see [`ContentHasher`](super::ContentHasher).
    pub content_digest: Digest,
    /// Every file but the manifest, by its path in the cache's folder with `/` between the segments.
    pub files: BTreeMap<String, FileRecord>,
    /// Length of the longest payload in bytes.
    pub max_payload_bytes: u64,
    /// Where the parts of the metadata file lie.
    pub metadata: MetadataRegions,
    /// Length of all payloads in bytes.
    pub payload_bytes: u64,
    /// How many samples there are; at least one.
    pub samples: u64,
    /// Name of the source, and so of the cache and its folder.
    pub source_name: String,
    /// Length of all records in bytes, as they are stored.
    pub stored_bytes: u64,
    /// The release that wrote the cache: [`WRITER`] for this one.
    pub writer: String,
}

/// A manifest as JSON. Its fields stand in the order of their names' bytes, and so do those of everything inside: that
/// makes serde's output canonical.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    attributes: Cow<'a, BTreeMap<String, String>>,
    #[serde(with = "hexadecimal")]
    cache_id: u64,
    codec: Compression,
    columns: Cow<'a, [Column]>,
    content_digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    files: Cow<'a, BTreeMap<String, FileRecord>>,
    format: Cow<'a, str>,
    format_version: u64,
    max_payload_bytes: u64,
    metadata: Cow<'a, MetadataRegions>,
    payload_bytes: u64,
    samples: u64,
    source_name: Cow<'a, str>,
    stored_bytes: u64,
    writer: Cow<'a, str>,
}

/// What every version of the format has in its manifest.
#[derive(Deserialize)]
struct Version<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    format_version: u64,
}

impl Document<'_> {
    fn to_bytes(&self) -> Vec<u8> {
        #[expect(clippy::expect_used, reason = "serde_json only fails for map keys that are no strings; these are")]
        serde_json::to_vec(self).expect("a manifest is representable as JSON")
    }
}

impl Manifest {
    /// The number of the cache, from its content digest.
    #[must_use]
    pub fn cache_id(&self) -> CacheId {
        content::cache_id(&self.content_digest)
    }

    /// How many shards the cache has.
    #[must_use]
    pub fn shards(&self) -> u32 {
        u32::try_from(self.files.len().saturating_sub(2)).unwrap_or(u32::MAX)
    }

    /// What an index entry of the cache may name.
    #[must_use]
    pub fn entry_limits(&self) -> EntryLimits {
        EntryLimits {
            shards: self.shards(),
            max_payload_bytes: self.max_payload_bytes,
            stored_bytes: self.stored_bytes,
        }
    }

    /// The manifest's bytes, with their digest inside.
    ///
    /// Nothing is checked: [`Manifest::parse`] of the result says whether it can be a cache's.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut document = Document {
            attributes: Cow::Borrowed(&self.attributes),
            cache_id: self.cache_id().0,
            codec: self.codec,
            columns: Cow::Borrowed(&self.columns),
            content_digest: self.content_digest,
            digest: None,
            files: Cow::Borrowed(&self.files),
            format: Cow::Borrowed(FORMAT),
            format_version: FORMAT_VERSION.into(),
            max_payload_bytes: self.max_payload_bytes,
            metadata: Cow::Borrowed(&self.metadata),
            payload_bytes: self.payload_bytes,
            samples: self.samples,
            source_name: Cow::Borrowed(&self.source_name),
            stored_bytes: self.stored_bytes,
            writer: Cow::Borrowed(&self.writer),
        };
        document.digest = Some(Digest::of(&document.to_bytes()));
        document.to_bytes()
    }

    /// Reads a manifest and checks every rule that needs no other file.
    ///
    /// What it returns names no file outside the cache's folder, and its counts and lengths agree with one another.
    /// That the folder bears the cache's name, and the files their lengths and digests, is for the caller to check.
    /// Cost: three passes over `bytes` and memory in proportion to them.
    ///
    /// # Errors
    ///
    /// [`Error::Version`] for another version of the format, whatever else stands there; [`Error::Manifest`] for
    /// anything else that is wrong.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Self> {
        let refused = |expected: String, found: String| Error::Manifest { file: file.to_path_buf(), expected, found };
        if bytes.is_empty() {
            return Err(refused("a manifest".to_owned(), "an empty file".to_owned()));
        }
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(refused(
                format!("at most {MAX_MANIFEST_BYTES} bytes; larger shards and shorter attributes make it shorter"),
                format!("{} bytes", bytes.len()),
            ));
        }
        let not_read = |error: serde_json::Error| refused("a manifest in JSON".to_owned(), error.to_string());
        let version: Version<'_> = serde_json::from_slice(bytes).map_err(not_read)?;
        if version.format != FORMAT {
            return Err(refused(format!("format {FORMAT:?}"), name::shortened(&version.format)));
        }
        if version.format_version != u64::from(FORMAT_VERSION) {
            let found = version.format_version;
            return Err(Error::Version { file: file.to_path_buf(), expected: FORMAT_VERSION, found });
        }

        let mut document: Document<'_> = serde_json::from_slice(bytes).map_err(not_read)?;
        let canonical = document.to_bytes();
        if canonical != bytes {
            let same = canonical.iter().zip(bytes).take_while(|(expected, found)| expected == found).count();
            return Err(refused(
                "the canonical form (sorted keys, each once, no whitespace)".to_owned(),
                format!("another one from byte {same}"),
            ));
        }
        let found = document.digest.take().ok_or_else(|| refused("a digest".to_owned(), "none".to_owned()))?;
        let expected = Digest::of(&document.to_bytes());
        if expected != found {
            return Err(refused(format!("digest {expected}"), found.to_string()));
        }
        let cache_id = content::cache_id(&document.content_digest);
        if cache_id.0 != document.cache_id {
            return Err(refused(
                format!("cache_id {cache_id}, the content digest's"),
                CacheId(document.cache_id).to_string(),
            ));
        }
        let manifest = Self {
            attributes: document.attributes.into_owned(),
            codec: document.codec,
            columns: document.columns.into_owned(),
            content_digest: document.content_digest,
            files: document.files.into_owned(),
            max_payload_bytes: document.max_payload_bytes,
            metadata: document.metadata.into_owned(),
            payload_bytes: document.payload_bytes,
            samples: document.samples,
            source_name: document.source_name.into_owned(),
            stored_bytes: document.stored_bytes,
            writer: document.writer.into_owned(),
        };
        manifest.check().map_err(|Rule { expected, found }| refused(expected, found))?;
        Ok(manifest)
    }

    /// The rules that tie a manifest's values together.
    fn check(&self) -> std::result::Result<(), Rule> {
        if let Some(rule) = name::broken_rule(&self.source_name) {
            return Err(Rule::new(format!("a source name that must {rule}"), name::shortened(&self.source_name)));
        }
        check_columns(&self.columns).map_err(|error| Rule::new("valid columns", error))?;
        if self.samples == 0 {
            return Err(Rule::new("at least 1 sample", 0));
        }
        let (shards, shard_bytes) = self.check_files()?;
        // Records lie end to end, so the shards hold them and their headers and nothing else.
        let headers = u64::from(shards) * SHARD_HEADER_BYTES as u64;
        let expected = self.stored_bytes.checked_add(headers);
        if expected != Some(shard_bytes) {
            let expected =
                format!("stored_bytes {}, the shards' without their headers", shard_bytes.wrapping_sub(headers));
            return Err(Rule::new(expected, self.stored_bytes));
        }
        self.check_lengths()?;
        self.check_metadata()
    }

    /// Exactly the files of a cache, in lengths that can be: the number of shards, and the length of all of them.
    fn check_files(&self) -> std::result::Result<(u32, u64), Rule> {
        let expected = index_file_bytes(self.samples)
            .ok_or_else(|| Rule::new("a sample count whose index has a length of 64 bits", self.samples))?;
        let index = self.file(INDEX_FILE)?;
        if index.bytes != expected {
            let expected = format!("{INDEX_FILE} of {expected} bytes for {} samples", self.samples);
            return Err(Rule::new(expected, index.bytes));
        }
        self.file(METADATA_FILE)?;
        let shards = u32::try_from(self.files.len() - 2)
            .map_err(|_| Rule::new(format!("at most {} shards", u32::MAX), self.files.len() - 2))?;
        if shards == 0 || u64::from(shards) > self.samples {
            return Err(Rule::new(format!("1 to {} shards, each with a record", self.samples), shards));
        }
        let mut shard_bytes = 0_u64;
        for number in 0..shards {
            let shard = shard_path(number);
            let bytes = self.file(&shard)?.bytes;
            if bytes < SHARD_HEADER_BYTES as u64 {
                return Err(Rule::new(format!("{shard} of at least {SHARD_HEADER_BYTES} bytes"), bytes));
            }
            shard_bytes = shard_bytes
                .checked_add(bytes)
                .ok_or_else(|| Rule::new("shards whose length together is of 64 bits", "more"))?;
        }
        Ok((shards, shard_bytes))
    }

    /// The record of `name`, which must be there. As many files as were asked for are then all of them.
    fn file(&self, name: &str) -> std::result::Result<&FileRecord, Rule> {
        self.files.get(name).ok_or_else(|| {
            let fixed = |other: &str| other == INDEX_FILE || other == METADATA_FILE;
            let others = || self.files.keys().filter(|other| !fixed(other));
            let shards = others().count();
            let foreign = others().find(|other| shard_number(other).is_none_or(|number| number as usize >= shards));
            Rule::new(
                format!("files {INDEX_FILE}, {METADATA_FILE} and {SHARD_FOLDER}/000000.bin onwards, so also {name}"),
                foreign.map_or("none of that name".to_owned(), |other| name::shortened(other)),
            )
        })
    }

    /// Payload and stored lengths that can belong together.
    fn check_lengths(&self) -> std::result::Result<(), Rule> {
        if self.stored_bytes > self.payload_bytes {
            return Err(Rule::new(
                format!("stored_bytes of at most payload_bytes {}", self.payload_bytes),
                self.stored_bytes,
            ));
        }
        let most = u128::from(self.max_payload_bytes) * u128::from(self.samples);
        if self.max_payload_bytes > self.payload_bytes || u128::from(self.payload_bytes) > most {
            return Err(Rule::new(
                format!("a max_payload_bytes for {} bytes in {} samples", self.payload_bytes, self.samples),
                self.max_payload_bytes,
            ));
        }
        Ok(())
    }

    /// Batches one after the other, then the footer, all inside the file and the footer at its end.
    fn check_metadata(&self) -> std::result::Result<(), Rule> {
        let MetadataRegions { batches, footer } = &self.metadata;
        let expected = batch_count(self.samples);
        if batches.len() as u64 != expected {
            return Err(Rule::new(format!("{expected} metadata batches for {} samples", self.samples), batches.len()));
        }
        let mut filled = 0;
        for (part, region) in batches
            .iter()
            .enumerate()
            .map(|(number, region)| (format!("metadata batch {number}"), region))
            .chain([("metadata footer".to_owned(), footer)])
        {
            let end = region.end().filter(|_| region.bytes > 0 && region.offset >= filled);
            filled = end.ok_or_else(|| {
                Rule::new(
                    format!("{part} of at least 1 byte at offset {filled} or after"),
                    format!("{} bytes at offset {}", region.bytes, region.offset),
                )
            })?;
        }
        let bytes = self.file(METADATA_FILE)?.bytes;
        if filled != bytes {
            return Err(Rule::new(format!("metadata footer that ends with {METADATA_FILE}, at {bytes}"), filled));
        }
        Ok(())
    }
}

/// Path of shard `number` in a cache's folder, as the manifest has it.
fn shard_path(number: u32) -> String {
    format!("{SHARD_FOLDER}/{}", shard_file_name(number))
}

/// The number of the shard whose path is `path`, if it is one's.
fn shard_number(path: &str) -> Option<u32> {
    let number = path.strip_prefix(SHARD_FOLDER)?.strip_prefix('/')?.strip_suffix(".bin")?.parse().ok()?;
    (shard_path(number) == path).then_some(number)
}

/// A rule that a manifest breaks: what must stand there, and what does.
struct Rule {
    expected: String,
    found: String,
}

impl Rule {
    fn new(expected: impl ToString, found: impl ToString) -> Self {
        Self { expected: expected.to_string(), found: found.to_string() }
    }
}
