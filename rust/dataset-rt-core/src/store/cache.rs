//! A published cache, opened for reading.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, statat};

use super::announce::Reads;
use super::bus_guard::Guard;
use super::files::{self, FileKey, INDEX_NUMBER};
use super::io_mode::{IoMode, Way};
use super::manifest_file::{check_folder_name, kind_of, read_manifest, real_folder};
use super::open_file::{Failure, OpenFile};
use super::per_process::PerProcess;
use super::prefetch::prefetch;
use crate::error::{Error, Result};
use crate::format::{
    BATCH_ROWS, Digest, EntryLimits, Footer, INDEX_ENTRY_BYTES, INDEX_FILE, INDEX_HEADER_BYTES, IndexEntry,
    METADATA_FILE, Manifest, Region, SHARD_FOLDER, SHARD_HEADER_BYTES, check_index_header, check_region,
    check_shard_header, decode_batch, decode_footer, shard_file_name,
};
use crate::identifier::{CacheId, SampleId};

/// An index up to this size is checked whole at its first use and held in memory; entries of a larger one are read one by
/// one.
const HELD_INDEX_BYTES: u64 = 8 << 20;

/// An opened cache. Holds no file open by itself and takes no lock; safe to use from any thread and after a fork.
#[derive(Debug)]
pub struct Cache {
    /// The path as the caller gave it, for messages.
    given_path: PathBuf,
    path: PathBuf,
    index_path: PathBuf,
    manifest: Manifest,
    cache_id: CacheId,
    limits: EntryLimits,
    footer: Footer,
    owner: u64,
    io: Way,
    index: PerProcess<Vec<u8>>,
    batches: Vec<PerProcess<RecordBatch>>,
}

impl Cache {
    /// Opens the cache in the folder `path`.
    ///
    /// Checks the manifest's digest, every file's length, the index header and the Arrow footer. Costs nothing that
    /// grows with the number of samples but the manifest's list of metadata batches and shards.
    ///
    /// # Errors
    /// [`Error::CacheNotFound`] where there is no manifest, [`Error::Version`] for another format version, an error of
    /// corruption (see [`Error::fault`]) for whatever is wrong with the files.
    pub fn open(path: &Path, io: IoMode) -> Result<Self> {
        let given_path = path.to_path_buf();
        let path = real_folder(path)?;
        let io = io.way(&path);
        let manifest = read_manifest(&path)?;
        check_folder_name(&path, &manifest)?;
        check_lengths(&path, &manifest)?;
        let index_path = path.join(INDEX_FILE);
        let mut header = [0_u8; INDEX_HEADER_BYTES];
        read_exact(&files::open(&index_path)?, &index_path, &mut header, 0)?;
        check_index_header(&header, manifest.samples, &index_path)?;
        let footer = open_footer(&path, &manifest)?;
        let batches = manifest.metadata.batches.iter().map(|_| PerProcess::new()).collect();
        Ok(Self {
            cache_id: manifest.cache_id(),
            limits: manifest.entry_limits(),
            footer,
            owner: files::new_owner(),
            io,
            index: PerProcess::new(),
            batches,
            given_path,
            path,
            index_path,
            manifest,
        })
    }

    /// The cache's folder, absolute and without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path that it was opened by.
    #[must_use]
    pub fn given_path(&self) -> &Path {
        &self.given_path
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The cache's identity.
    #[must_use]
    pub fn cache_id(&self) -> CacheId {
        self.cache_id
    }

    /// The number of samples, at least 1.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.manifest.samples
    }

    /// Where the payload of `sample` lies. O(1). `file` keeps the open index between the calls for one cache; `guard`
    /// must be armed where the cache is mapped.
    ///
    /// # Errors
    /// [`Error::IndexEntry`] where the entry names something that cannot be, [`Error::FileLength`] where the index became
    /// shorter, [`Error::FileDigest`] where an index that is small enough to be held is not the manifest's,
    /// [`Error::Io`] where it cannot be read.
    pub fn entry(&self, guard: &Guard, sample: SampleId, file: &mut Option<Arc<OpenFile>>) -> Result<IndexEntry> {
        let offset = sample
            .0
            .checked_mul(INDEX_ENTRY_BYTES as u64)
            .and_then(|offset| offset.checked_add(INDEX_HEADER_BYTES as u64))
            .ok_or_else(|| Error::config(format!("sample_id must be in [0, {}), got {sample}", self.samples())))?;
        if let Some(index) = self.held_index()? {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let bytes = index.get(start..start.saturating_add(INDEX_ENTRY_BYTES)).unwrap_or_default();
            return IndexEntry::parse(bytes, sample, &self.limits, &self.index_path);
        }
        let open = match file {
            Some(open) => open,
            None => file.insert(self.open_index()?),
        };
        let mut bytes = [0_u8; INDEX_ENTRY_BYTES];
        let failure = match open.read_exact(guard, &mut bytes, offset) {
            Ok(()) => match IndexEntry::parse(&bytes, sample, &self.limits, &self.index_path) {
                // A cut inside the entry leaves zeros at its end.
                parsed if (parsed.is_err() || bytes.ends_with(&[0])) && self.index_shrank(open) => Failure::Lost,
                parsed => return parsed,
            },
            Err(failure) => failure,
        };
        // A mapping that lost a page is of no more use.
        files::evict(self.index_key());
        *file = None;
        let length = self.file_bytes(INDEX_FILE);
        if !matches!(failure, Failure::Lost) {
            return Err(failure.of_file(&self.index_path, length));
        }
        // The file may be whole again by now.
        let again = files::open(&self.index_path)?;
        check_open_length(&again, &self.index_path, length)?;
        read_exact(&again, &self.index_path, &mut bytes, offset)?;
        IndexEntry::parse(&bytes, sample, &self.limits, &self.index_path)
    }

    /// Asks the processor for the entry of `sample`, before [`Cache::entry`] reads it.
    #[inline]
    pub fn prefetch_entry(&self, sample: SampleId, file: Option<&OpenFile>) {
        let offset = sample.0.saturating_mul(INDEX_ENTRY_BYTES as u64).saturating_add(INDEX_HEADER_BYTES as u64);
        if let Some(file) = file {
            file.prefetch(offset, INDEX_ENTRY_BYTES as u64);
        } else if let (Some(index), Ok(start)) = (self.index.inherited(), usize::try_from(offset))
            && let Some(bytes) = index.get(start..start.saturating_add(INDEX_ENTRY_BYTES))
        {
            prefetch(bytes);
        }
    }

    fn open_index(&self) -> Result<Arc<OpenFile>> {
        let length = self.file_bytes(INDEX_FILE);
        let check = |file: &File| check_open_length(file, &self.index_path, length);
        files::shared(self.index_key(), &self.index_path, length, check)
    }

    fn index_shrank(&self, file: &OpenFile) -> bool {
        file.shrunk_to(&self.index_path, self.file_bytes(INDEX_FILE)).is_some()
    }

    fn held_index(&self) -> Result<Option<&[u8]>> {
        if let Some(index) = self.index.inherited() {
            return Ok(Some(index));
        }
        let path = &self.index_path;
        let bytes = self.file_bytes(INDEX_FILE);
        if bytes > HELD_INDEX_BYTES {
            return Ok(None);
        }
        let mut index = vec![0; usize::try_from(bytes).unwrap_or_default()];
        read_exact(&files::open(path)?, path, &mut index, 0)?;
        // Its bytes are at hand, so this costs some milliseconds at most. It tells another cache's manifest of the same
        // name and file lengths, as a copy that was broken off leaves it, from this cache's own.
        let found = Digest::of(&index);
        match self.manifest.files.get(INDEX_FILE).map(|file| file.blake3) {
            Some(expected) if expected != found => {
                Err(Error::FileDigest { file: path.clone(), expected: expected.to_string(), found: found.to_string() })
            }
            _ => Ok(Some(self.index.get_or_init(|| index))),
        }
    }

    /// The path of a shard.
    #[must_use]
    pub fn shard_path(&self, shard: u32) -> PathBuf {
        self.path.join(SHARD_FOLDER).join(shard_file_name(shard))
    }

    /// An open shard whose header was checked, open in the way that is best for such reads.
    ///
    /// # Errors
    /// [`Error::FileMissing`], [`Error::Header`] or [`Error::Io`].
    pub fn shard(&self, shard: u32, reads: Reads<'_>) -> Result<Arc<OpenFile>> {
        let mapped = match (self.io, reads) {
            (Way::Mapped, _) | (Way::MappedWhileWarm, Reads::InOrder) => true,
            (Way::MappedWhileWarm, Reads::Shuffled(temperature)) => !temperature.is_cold(),
            (Way::Positioned, _) => false,
        };
        let key = self.shard_key(shard, mapped);
        let file = match files::known(key) {
            Some(file) => file,
            None => {
                let path = self.shard_path(shard);
                let length = self.shard_bytes(shard);
                files::shared(key, &path, length, |file| self.check_open_shard(file, shard, &path))?
            }
        };
        file.expect(reads);
        Ok(file)
    }

    /// A shard that is opened anew, for one read by position.
    ///
    /// # Errors
    /// As [`Cache::shard`].
    pub(super) fn shard_by_position(&self, shard: u32) -> Result<OpenFile> {
        let path = self.shard_path(shard);
        let file = files::open(&path)?;
        self.check_open_shard(&file, shard, &path)?;
        Ok(OpenFile::Positioned(file))
    }

    fn check_open_shard(&self, file: &File, shard: u32, path: &Path) -> Result<()> {
        check_open_length(file, path, self.shard_bytes(shard))?;
        let mut header = [0_u8; SHARD_HEADER_BYTES];
        read_exact(file, path, &mut header, 0)?;
        check_shard_header(&header, shard, path)
    }

    /// Closes a shard whose pages were lost, so that the next read opens and checks it anew.
    pub fn close_shard(&self, shard: u32) {
        files::evict(self.shard_key(shard, true));
        files::evict(self.shard_key(shard, false));
    }

    /// The length that an open shard has now, if that is less than the manifest gives it; see [`OpenFile::shrunk_to`].
    #[must_use]
    pub fn shard_shrunk_to(&self, shard: u32, file: &OpenFile) -> Option<u64> {
        file.shrunk_to(&self.shard_path(shard), self.shard_bytes(shard))
    }

    /// Whether reads may go through mappings, which a [`Guard`] must guard.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.io != Way::Positioned
    }

    fn index_key(&self) -> FileKey {
        FileKey { owner: self.owner, number: INDEX_NUMBER, mapped: self.io != Way::Positioned }
    }

    fn shard_bytes(&self, shard: u32) -> u64 {
        self.file_bytes(&format!("{SHARD_FOLDER}/{}", shard_file_name(shard)))
    }

    fn shard_key(&self, shard: u32, mapped: bool) -> FileKey {
        FileKey { owner: self.owner, number: u64::from(shard), mapped }
    }

    /// Length of a file as the manifest names it.
    fn file_bytes(&self, name: &str) -> u64 {
        self.manifest.files.get(name).map_or(u64::MAX, |file| file.bytes)
    }

    /// The metadata batch that holds `sample`, and the sample's row in it. Checked at its first use, then held.
    ///
    /// # Errors
    /// [`Error::MetadataCheck`] or [`Error::MetadataArrow`] where its bytes are not the manifest's.
    pub fn metadata_of(&self, sample: SampleId) -> Result<(&RecordBatch, usize)> {
        let rows = BATCH_ROWS as u64;
        let number = usize::try_from(sample.0 / rows).unwrap_or(usize::MAX);
        let row = usize::try_from(sample.0 % rows).unwrap_or_default();
        self.held_batch(number).map(|batch| (batch, row))
    }

    /// The number of metadata batches.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// The metadata batch `number`, held in memory once it was read.
    ///
    /// # Errors
    /// As [`Cache::metadata_of`].
    pub fn held_batch(&self, number: usize) -> Result<&RecordBatch> {
        let Some(held) = self.batches.get(number) else { return Err(self.no_such_batch(number)) };
        if let Some(batch) = held.inherited() {
            return Ok(batch);
        }
        let batch = self.read_batch(number)?;
        Ok(held.get_or_init(|| batch))
    }

    /// The metadata batch `number`, read anew unless it is held already; for whoever goes through all of them once.
    ///
    /// # Errors
    /// As [`Cache::metadata_of`].
    pub fn read_batch(&self, number: usize) -> Result<RecordBatch> {
        if let Some(batch) = self.batches.get(number).and_then(PerProcess::inherited) {
            return Ok(batch.clone());
        }
        let Some(region) = self.manifest.metadata.batches.get(number) else { return Err(self.no_such_batch(number)) };
        let path = self.path.join(METADATA_FILE);
        let bytes = read_region(&path, region)?;
        check_region(&format!("batch {number}"), &bytes, region, &path)?;
        let start = number as u64 * BATCH_ROWS as u64;
        let rows = self.samples().saturating_sub(start).min(BATCH_ROWS as u64);
        decode_batch(&self.footer, number, bytes, rows, &path)
    }

    fn no_such_batch(&self, number: usize) -> Error {
        Error::MetadataArrow {
            file: self.path.join(METADATA_FILE),
            part: format!("batch {number}"),
            expected: format!("one of {} batches", self.batches.len()),
            found: "none of this number".to_owned(),
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        files::forget(self.owner);
    }
}

/// Checks the length of every file. Shards are looked up from their folder on: there may be many, and a whole path takes
/// several times as long.
fn check_lengths(path: &Path, manifest: &Manifest) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path.join(SHARD_FOLDER), flags, Mode::empty()).ok();
    for (name, entry) in &manifest.files {
        let shard = name.strip_prefix(SHARD_FOLDER).and_then(|name| name.strip_prefix('/'));
        let found = folder.as_ref().zip(shard).and_then(|(folder, name)| statat(folder, name, AtFlags::empty()).ok());
        let right = found.is_some_and(|found| {
            FileType::from_raw_mode(found.st_mode).is_file() && u64::try_from(found.st_size) == Ok(entry.bytes)
        });
        if !right {
            check_length(&path.join(name), entry.bytes)?;
        }
    }
    Ok(())
}

fn open_footer(path: &Path, manifest: &Manifest) -> Result<Footer> {
    let path = path.join(METADATA_FILE);
    let region = &manifest.metadata.footer;
    let bytes = read_region(&path, region)?;
    check_region("footer", &bytes, region, &path)?;
    decode_footer(&bytes, &manifest.metadata, &manifest.columns, &path)
}

/// Checks that a regular file has the length that the manifest gives it.
///
/// # Errors
/// [`Error::FileMissing`] or [`Error::FileLength`].
pub(super) fn check_length(path: &Path, expected: u64) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            Error::FileMissing { file: path.to_path_buf(), found: "nothing".to_owned() }
        }
        _ => Error::io("cannot look at", path, error),
    })?;
    if !metadata.is_file() {
        return Err(Error::FileMissing { file: path.to_path_buf(), found: kind_of(&metadata) });
    }
    if metadata.len() == expected {
        Ok(())
    } else {
        Err(Error::FileLength { file: path.to_path_buf(), expected, found: metadata.len() })
    }
}

/// Checks that an opened file still has the length that it had when the cache was opened.
fn check_open_length(file: &File, path: &Path, expected: u64) -> Result<()> {
    let found = file.metadata().map_err(|error| Error::io("cannot look at", path, error))?.len();
    if found == expected { Ok(()) } else { Err(Error::FileLength { file: path.to_path_buf(), expected, found }) }
}

fn read_region(path: &Path, region: &Region) -> Result<Vec<u8>> {
    let file = files::open(path)?;
    // The manifest was checked to place every region inside the file's length, and the file to have that length: so
    // nothing is allocated that is not on disk, unless the file shrank since.
    let found = file.metadata().map_err(|error| Error::io("cannot look at", path, error))?.len();
    let end = region.offset.checked_add(region.bytes).filter(|end| *end <= found);
    let Some(end) = end else {
        let expected = region.offset.saturating_add(region.bytes);
        return Err(Error::FileLength { file: path.to_path_buf(), expected, found });
    };
    let mut bytes = vec![0; usize::try_from(end - region.offset).unwrap_or_default()];
    read_exact(&file, path, &mut bytes, region.offset)?;
    Ok(bytes)
}

fn read_exact(file: &File, path: &Path, bytes: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::FileLength {
            file: path.to_path_buf(),
            expected: offset.saturating_add(bytes.len() as u64),
            found: file.metadata().map(|metadata| metadata.len()).unwrap_or_default(),
        },
        _ => Error::Io {
            path: path.to_path_buf(),
            operation: "cannot read",
            bytes: Some(bytes.len() as u64),
            source: error,
        },
    })
}
