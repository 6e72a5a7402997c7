//! Writes one cache: samples are appended in order, then everything is made durable.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::building::{BuildingFolder, sync_folder};
use super::file_digester::FileDigester;
use super::hashed_file::{HashedFile, write_all, write_error};
use super::piece::{RunPiece, piece};
use crate::error::{Error, Result};
use crate::format::{
    BATCH_ROWS, Codec, Column, Compression, ContentHasher, FileRecord, INDEX_FILE, IndexEntry, MANIFEST_FILE,
    METADATA_FILE, Manifest, MetadataEncoder, MetadataRegions, SHARD_FOLDER, Value, WRITER, encode_index_header,
    encode_shard_header, record_check_of, shard_file_name,
};
use crate::identifier::SampleId;

/// File in the building folder in which the rows wait until the kinds of all columns are known.
const ROWS_FILE: &str = "rows.tmp";
/// Bytes of the index and of waiting rows that are gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// What is read again between two looks at signals: a third of a second's work of a slow disk.
const PIECE_MEBIBYTES: usize = 32;

/// What decides a cache's bytes, beside its samples.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The source's name, which becomes the folder's.
    pub source_name: String,
    /// Free text of the source, kept in the manifest.
    pub attributes: BTreeMap<String, String>,
    /// How records are compressed.
    pub compression: Compression,
    /// A new shard starts when the next record would make the file longer than this.
    pub max_shard_bytes: u64,
    /// Whether every file is read again and compared with what was written, before the cache is published.
    pub validate: bool,
}

/// A sample ready to be appended.
#[derive(Clone, Copy, Debug)]
pub struct EncodedSample<'bytes> {
    /// The metadata fields in the content digest's encoding.
    pub fields: &'bytes [u8],
    /// Length of the payload in bytes.
    pub payload_bytes: u64,
    /// XXH3-128 of the payload.
    pub payload_hash: u128,
    /// How the record is stored.
    pub codec: Codec,
    /// The record as it is stored.
    pub stored: &'bytes [u8],
    /// XXH3-64 of the stored bytes.
    pub stored_hash: u64,
}

/// A cache that is being written in its building folder.
#[derive(Debug)]
pub struct CacheWriter {
    options: CacheOptions,
    building: BuildingFolder,
    shard: Option<HashedFile>,
    shard_number: u32,
    /// Samples in the open shard.
    shard_samples: u64,
    shards: BTreeMap<String, FileRecord>,
    index: BufferedFile,
    rows: BufferedFile,
    content: ContentHasher,
    samples: u64,
    payload_bytes: u64,
    stored_bytes: u64,
    max_payload_bytes: u64,
}

impl CacheWriter {
    /// Starts a cache in a building folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(building: BuildingFolder, options: CacheOptions) -> Result<Self> {
        let shards = building.path().join(SHARD_FOLDER);
        fs::create_dir(&shards).map_err(|error| Error::io("cannot create the folder", &shards, error))?;
        let mut index = BufferedFile::create(building.path().join(INDEX_FILE))?;
        // The sample count is not known yet; the header is written again at the end.
        index.append(&encode_index_header(0))?;
        Ok(Self {
            index,
            rows: BufferedFile::create(building.path().join(ROWS_FILE))?,
            options,
            building,
            shard: None,
            shard_number: 0,
            shard_samples: 0,
            shards: BTreeMap::new(),
            content: ContentHasher::new(),
            samples: 0,
            payload_bytes: 0,
            stored_bytes: 0,
            max_payload_bytes: 0,
        })
    }

    /// How many samples were appended.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Appends the next sample.
    ///
    /// # Errors
    /// [`Error::Io`] with the file and the number of bytes.
    pub fn append(&mut self, sample: &EncodedSample<'_>) -> Result<()> {
        let stored_bytes = sample.stored.len() as u64;
        let full = self.shard.as_ref().is_some_and(|shard| {
            self.shard_samples > 0 && shard.bytes().saturating_add(stored_bytes) > self.options.max_shard_bytes
        });
        if full {
            self.close_shard()?;
        }
        if self.shard.is_none() {
            let path = self.building.path().join(SHARD_FOLDER).join(shard_file_name(self.shard_number));
            let mut shard = HashedFile::create(path)?;
            shard.append(&encode_shard_header(self.shard_number))?;
            self.shard = Some(shard);
        }
        let Some(shard) = &mut self.shard else { return Ok(()) };
        let entry = IndexEntry {
            offset: shard.bytes(),
            stored_bytes,
            payload_bytes: sample.payload_bytes,
            shard: self.shard_number,
            codec: sample.codec,
            check: record_check_of(SampleId(self.samples), sample.stored_hash),
        };
        shard.append(sample.stored)?;
        self.index.append(&entry.encode())?;
        let fields_bytes = u32::try_from(sample.fields.len()).map_err(|_| Error::Source {
            source_name: self.options.source_name.clone(),
            sample: Some(self.samples),
            field: None,
            expected: "metadata of less than 4 GiB a sample".to_owned(),
            found: format!("{} bytes", sample.fields.len()),
        })?;
        self.rows.append(&fields_bytes.to_le_bytes())?;
        self.rows.append(sample.fields)?;
        self.content.sample(sample.fields, sample.payload_bytes, sample.payload_hash);
        self.samples += 1;
        self.shard_samples += 1;
        self.payload_bytes = self.payload_bytes.saturating_add(sample.payload_bytes);
        self.stored_bytes = self.stored_bytes.saturating_add(stored_bytes);
        self.max_payload_bytes = self.max_payload_bytes.max(sample.payload_bytes);
        Ok(())
    }

    /// Completes the files, makes them durable and publishes the cache. Every piece of work goes through `run`, which
    /// may release what the caller holds meanwhile and says after each piece whether to go on.
    ///
    /// Returns the cache's folder, and whether it is this writer's: `false` where another writer published first.
    ///
    /// # Errors
    /// [`Error::Source`] where there is no sample, [`Error::Io`], or what `run` returns.
    pub fn finish(mut self, columns: Vec<Column>, run: &mut RunPiece<'_>) -> Result<(PathBuf, bool)> {
        if self.samples == 0 {
            return Err(Error::empty_source(&self.options.source_name, 0));
        }
        piece(run, || self.close_shard())?;
        let folder = self.building.path().to_path_buf();
        let mut files = std::mem::take(&mut self.shards);
        let index_path = piece(run, || self.finish_index())?;
        // Its first bytes are only known now, so it is hashed from the start: some 400 MB for 10 million samples.
        files.insert(INDEX_FILE.to_owned(), digest(&index_path, run)?);
        let rows = piece(run, || self.rows.finish())?;
        let rows_path = folder.join(ROWS_FILE);
        let (metadata_file, metadata) = write_metadata(&folder, rows, &columns, self.samples, run)?;
        fs::remove_file(&rows_path).map_err(|error| Error::io("cannot remove", &rows_path, error))?;
        files.insert(METADATA_FILE.to_owned(), metadata_file);
        let content_digest = self.content.finish(&columns, &self.options.source_name);
        let manifest = Manifest {
            attributes: self.options.attributes.clone(),
            codec: self.options.compression,
            columns,
            content_digest,
            files,
            max_payload_bytes: self.max_payload_bytes,
            metadata,
            payload_bytes: self.payload_bytes,
            samples: self.samples,
            source_name: self.options.source_name.clone(),
            stored_bytes: self.stored_bytes,
            writer: WRITER.to_owned(),
        };
        if self.options.validate {
            for (name, written) in &manifest.files {
                check_written(&folder.join(name), written, run)?;
            }
        }
        piece(run, || write_manifest(&folder, &manifest))?;
        let building = self.building;
        piece(run, || building.publish())
    }

    /// Completes the index and makes it durable.
    fn finish_index(&mut self) -> Result<PathBuf> {
        let path = self.building.path().join(INDEX_FILE);
        let index = self.index.finish()?;
        let header = encode_index_header(self.samples);
        index.write_all_at(&header, 0).map_err(|error| write_error(&path, header.len(), error))?;
        index.sync_all().map_err(|error| Error::io("cannot sync", &path, error))?;
        Ok(path)
    }

    fn close_shard(&mut self) -> Result<()> {
        if let Some(shard) = self.shard.take() {
            self.shard_samples = 0;
            let name = format!("{SHARD_FOLDER}/{}", shard_file_name(self.shard_number));
            self.shards.insert(name, shard.finish()?);
            self.shard_number = self
                .shard_number
                .checked_add(1)
                .ok_or_else(|| Error::config("max_shard_bytes is too small: 2^32 shards are full"))?;
        }
        Ok(())
    }
}

/// Length and BLAKE3 of a file that was written.
fn digest(path: &Path, run: &mut RunPiece<'_>) -> Result<FileRecord> {
    let mut digester = FileDigester::open(path)?;
    loop {
        if let Some(record) = piece(run, || digester.step(PIECE_MEBIBYTES))? {
            return Ok(record);
        }
    }
}

/// Reads a file again.
fn check_written(path: &Path, written: &FileRecord, run: &mut RunPiece<'_>) -> Result<()> {
    let found = digest(path, run)?;
    if found == *written {
        return Ok(());
    }
    let (expected, found) = (written.blake3.to_string(), found.blake3.to_string());
    Err(Error::FileDigest { file: path.to_path_buf(), expected, found })
}

/// Writes the manifest and makes it and the folders durable.
fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<()> {
    let path = folder.join(MANIFEST_FILE);
    let bytes = manifest.to_bytes();
    // What could not be opened again must not be published.
    Manifest::parse(&bytes, &path)?;
    let mut file = File::create_new(&path).map_err(|error| Error::io("cannot create", &path, error))?;
    write_all(&mut file, &path, &bytes)?;
    file.sync_all().map_err(|error| Error::io("cannot sync", &path, error))?;
    sync_folder(&folder.join(SHARD_FOLDER))?;
    sync_folder(folder)
}

/// Writes `metadata.arrow` from the rows that waited.
fn write_metadata(
    folder: &Path,
    rows: File,
    columns: &[Column],
    samples: u64,
    run: &mut RunPiece<'_>,
) -> Result<(FileRecord, MetadataRegions)> {
    let path = folder.join(METADATA_FILE);
    let rows_path = folder.join(ROWS_FILE);
    let unreadable = |error| Error::io("cannot read back", &rows_path, error);
    let mut rows = BufReader::with_capacity(BUFFER_BYTES, rows);
    let mut encoder = MetadataEncoder::new(HashedFile::create(path.clone())?, columns, &path)?;
    let mut fields = Vec::new();
    let mut row = Vec::with_capacity(columns.len());
    let mut left = samples;
    while left > 0 {
        let now = left.min(u64::from(BATCH_ROWS));
        piece(run, || {
            for _ in 0..now {
                let mut length = [0_u8; 4];
                rows.read_exact(&mut length).map_err(unreadable)?;
                fields.resize(usize::try_from(u32::from_le_bytes(length)).unwrap_or_default(), 0);
                rows.read_exact(&mut fields).map_err(unreadable)?;
                let mut rest: &[u8] = &fields;
                row.clear();
                while let Some(value) = Value::decode(&mut rest) {
                    row.push(value);
                }
                encoder.append(&row)?;
            }
            Ok(())
        })?;
        left -= now;
    }
    piece(run, || {
        let (file, regions) = encoder.finish()?;
        Ok((file.finish()?, regions))
    })
}

/// A new file that is written through a buffer and can be read back.
#[derive(Debug)]
struct BufferedFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl BufferedFile {
    fn create(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| Error::io("cannot create", &path, error))?;
        Ok(Self { path, file, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    /// Writes what is left and goes back to the file's start.
    fn finish(&mut self) -> Result<File> {
        self.write_out()?;
        let rewound = || {
            let mut file = self.file.try_clone()?;
            file.rewind()?;
            Ok(file)
        };
        rewound().map_err(|error| Error::io("cannot read back", &self.path, error))
    }

    fn write_out(&mut self) -> Result<()> {
        write_all(&mut self.file, &self.path, &self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
