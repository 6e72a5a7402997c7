//! Reads the records and batches of a cache one by one, whatever state its files are in.
//!
//! A file that has another digest than its manifest says is damaged somewhere. This says where: which samples are lost,
//! and which are whole. It takes nothing for granted but the manifest, and stops at nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use super::files;
use crate::error::{Error, Result};
use crate::format::{
    BATCH_ROWS, Codec, Decoder, EntryLimits, Footer, INDEX_ENTRY_BYTES, INDEX_FILE, INDEX_HEADER_BYTES, IndexEntry,
    METADATA_FILE, Manifest, Region, SHARD_FOLDER, SHARD_HEADER_BYTES, check_claimed_length, check_index_header,
    check_region, check_shard_header, decode_batch, decode_footer, record_check, shard_file_name,
};
use crate::identifier::SampleId;

/// A cache whose files may be in any state.
pub struct Inspector<'cache> {
    folder: &'cache Path,
    manifest: &'cache Manifest,
    limits: EntryLimits,
    index: Option<File>,
    /// The shard of the last record; neighbours mostly lie in one.
    shard: Option<(u32, Shard)>,
    decoder: Decoder,
    stored: Vec<u8>,
    payload: Vec<u8>,
}

/// A shard, or why it cannot be read.
type Shard = Option<(File, u64)>;

impl<'cache> Inspector<'cache> {
    /// Opens what can be opened.
    #[must_use]
    pub fn new(folder: &'cache Path, manifest: &'cache Manifest) -> Self {
        Self {
            folder,
            manifest,
            limits: manifest.entry_limits(),
            index: files::open(&folder.join(INDEX_FILE)).ok(),
            shard: None,
            decoder: Decoder::new(),
            stored: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Checks the header of the index.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::Version`] or [`Error::FileMissing`].
    pub fn check_index(&self) -> Result<()> {
        let path = self.folder.join(INDEX_FILE);
        let mut header = [0; INDEX_HEADER_BYTES];
        let read = files::open(&path)?.read_exact_at(&mut header, 0);
        read.map_err(|error| Error::io("cannot read", &path, error))?;
        check_index_header(&header, self.manifest.samples, &path)
    }

    /// Checks the header of a shard.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::Version`] or [`Error::FileMissing`].
    pub fn check_shard(&self, number: u32) -> Result<()> {
        let path = self.shard_path(number);
        let mut header = [0; SHARD_HEADER_BYTES];
        let read = files::open(&path)?.read_exact_at(&mut header, 0);
        read.map_err(|error| Error::io("cannot read", &path, error))?;
        check_shard_header(&header, number, &path)
    }

    /// The entry of a sample; `None` past the end of a file that is too short, and where there is none.
    ///
    /// # Errors
    /// [`Error::IndexEntry`].
    pub fn entry(&self, sample: SampleId) -> Result<Option<IndexEntry>> {
        let offset = sample.0.saturating_mul(INDEX_ENTRY_BYTES as u64).saturating_add(INDEX_HEADER_BYTES as u64);
        let mut bytes = [0; INDEX_ENTRY_BYTES];
        match self.index.as_ref().map(|index| index.read_exact_at(&mut bytes, offset)) {
            Some(Ok(())) => IndexEntry::parse(&bytes, sample, &self.limits, &self.folder.join(INDEX_FILE)).map(Some),
            _ => Ok(None),
        }
    }

    /// The payload of a sample: read, checked and unpacked; `None` where its shard cannot be opened.
    ///
    /// Memory: the record and its payload, each no longer than its shard has bytes, or its codec can make of them.
    ///
    /// # Errors
    /// [`Error::RecordRange`], [`Error::RecordCheck`], [`Error::RecordCodec`] or [`Error::Io`].
    pub fn payload(&mut self, sample: SampleId, entry: &IndexEntry) -> Result<Option<&[u8]>> {
        let path = self.shard_path(entry.shard);
        if self.shard.as_ref().is_none_or(|(number, _)| *number != entry.shard) {
            let opened = files::open(&path).ok().and_then(|file| {
                let length = file.metadata().ok()?.len();
                Some((file, length))
            });
            self.shard = Some((entry.shard, opened));
        }
        let Some((_, Some((file, length)))) = &self.shard else { return Ok(None) };
        let left = length.saturating_sub(entry.offset);
        if left < entry.stored_bytes {
            return Err(Error::RecordRange {
                file: path,
                sample: sample.0,
                offset: entry.offset,
                expected: entry.stored_bytes,
                found: left,
            });
        }
        let failed = |error| Error::Io {
            path: path.clone(),
            operation: "cannot read",
            bytes: Some(entry.stored_bytes),
            source: error,
        };
        resize(&mut self.stored, entry.stored_bytes).map_err(failed)?;
        file.read_exact_at(&mut self.stored, entry.offset).map_err(failed)?;
        let found = record_check(sample, &self.stored);
        if found != entry.check {
            return Err(Error::RecordCheck {
                file: path,
                sample: sample.0,
                offset: entry.offset,
                expected: entry.check,
                found,
            });
        }
        if entry.codec == Codec::None {
            return Ok(Some(&self.stored));
        }
        check_claimed_length(entry.codec, &self.stored, entry.payload_bytes, &path, sample)?;
        resize(&mut self.payload, entry.payload_bytes).map_err(failed)?;
        self.decoder.decode(entry.codec, &self.stored, &mut self.payload, &path, sample)?;
        Ok(Some(&self.payload))
    }

    /// The footer of the metadata.
    ///
    /// # Errors
    /// [`Error::MetadataCheck`], [`Error::MetadataArrow`] or [`Error::FileMissing`].
    pub fn footer(&self) -> Result<Footer> {
        let region = &self.manifest.metadata.footer;
        let bytes = self.region("footer", region)?;
        decode_footer(&bytes, &self.manifest.metadata, &self.manifest.columns, &self.folder.join(METADATA_FILE))
    }

    /// Checks the bytes of a batch of the metadata against its checksum.
    ///
    /// # Errors
    /// As [`Inspector::footer`].
    pub fn check_batch(&self, number: usize) -> Result<()> {
        self.batch_bytes(number).map(drop)
    }

    /// A batch of the metadata.
    ///
    /// # Errors
    /// As [`Inspector::footer`].
    pub fn batch(&self, footer: &Footer, number: usize) -> Result<RecordBatch> {
        let bytes = self.batch_bytes(number)?;
        let rows = u64::from(BATCH_ROWS);
        let rows = self.manifest.samples.saturating_sub(rows.saturating_mul(number as u64)).min(rows);
        decode_batch(footer, number, bytes, rows, &self.folder.join(METADATA_FILE))
    }

    fn batch_bytes(&self, number: usize) -> Result<Vec<u8>> {
        match self.manifest.metadata.batches.get(number) {
            Some(region) => self.region(&format!("batch {number}"), region),
            None => Ok(Vec::new()),
        }
    }

    fn region(&self, part: &str, region: &Region) -> Result<Vec<u8>> {
        let path = self.folder.join(METADATA_FILE);
        let file = files::open(&path)?;
        let length = file.metadata().map_err(|error| Error::io("cannot look at", &path, error))?.len();
        let left = length.saturating_sub(region.offset).min(region.bytes);
        let mut bytes = Vec::new();
        resize(&mut bytes, left)
            .and_then(|()| file.read_exact_at(&mut bytes, region.offset))
            .map_err(|error| Error::io("cannot read", &path, error))?;
        check_region(part, &bytes, region, &path)?;
        Ok(bytes)
    }

    fn shard_path(&self, number: u32) -> PathBuf {
        self.folder.join(SHARD_FOLDER).join(shard_file_name(number))
    }
}

/// Makes a buffer so long, or says that there is no memory for it.
fn resize(buffer: &mut Vec<u8>, length: u64) -> std::io::Result<()> {
    let none = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
    let length = usize::try_from(length).map_err(|_| none())?;
    buffer.try_reserve_exact(length.saturating_sub(buffer.len())).map_err(|_| none())?;
    buffer.resize(length, 0);
    Ok(())
}
