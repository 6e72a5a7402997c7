//! Everything that is wrong with a cache, down to the samples that are lost.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pool::Pool;
use super::verify::{Described, VerifyObserver, verify_described};
use crate::error::{Error, Result};
use crate::format::{
    BATCH_ROWS, ContentHasher, INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARD_FOLDER, encode_fields, shard_file_name,
    xxh3_128,
};
use crate::identifier::SampleId;
use crate::store::{Inspector, check_folder_name, has_remains, read_manifest, real_folder};

/// Samples between two looks at whether to go on, at most.
const PIECE_SAMPLES: usize = 256;

/// Payloads between two looks, in bytes: so many, and the sample that exceeds it.
const PIECE_BYTES: u64 = 16 << 20;

/// What a verification found.
#[derive(Debug)]
pub struct Verification {
    /// Every fault, in the order of the files' names and then of the samples.
    pub faults: Vec<Error>,
    /// How many samples the manifest names, if it can be read.
    pub samples: Option<u64>,
    /// Length of all files that the manifest names, in bytes.
    pub bytes: u64,
}

/// Checks every file of the cache in `folder` against its manifest, and looks for files that are none of its own.
///
/// Where a file is not the manifest's, its parts are checked one by one, so that the faults also name each sample and
/// each metadata batch that is lost. With `content`, a cache whose files are right is read whole: what its samples are
/// must be what its content digest says.
///
/// Reads each file once, in parallel; a cache with damaged files once more, and for `content` once more. Memory: one
/// record with its payload, and some hundred bytes a fault.
///
/// # Errors
/// [`Error::CacheNotFound`] where nothing of a cache is in `folder`, and what `observer` returns. Whatever is wrong with
/// what is there is a fault and no error of this function.
pub fn verify_folder(
    folder: &Path,
    content: bool,
    pool: Option<&Pool>,
    observer: &mut dyn VerifyObserver,
) -> Result<Verification> {
    let folder = real_folder(folder)?;
    let manifest = match read_manifest(&folder) {
        Ok(manifest) => manifest,
        Err(Error::CacheNotFound { .. }) if has_remains(&folder) => {
            let fault = Error::FileMissing { file: folder.join(MANIFEST_FILE), found: "nothing".to_owned() };
            return Ok(Verification { faults: vec![fault], samples: None, bytes: 0 });
        }
        Err(error @ Error::CacheNotFound { .. }) => return Err(error),
        Err(error) => return Ok(Verification { faults: vec![error], samples: None, bytes: 0 }),
    };
    let bytes = manifest.files.values().map(|file| file.bytes).fold(0, u64::saturating_add);
    let samples = Some(manifest.samples);
    let mut faults: Vec<Error> = check_folder_name(&folder, &manifest).err().into_iter().collect();
    let described = Arc::new((folder, manifest));
    faults.extend(verify_described(&[Arc::clone(&described)], pool, observer)?);
    let damaged = damaged_files(&described, &faults);
    if !damaged.is_empty() {
        inspect(&described, &damaged, observer, &mut faults)?;
    } else if content {
        check_content(&described, observer, &mut faults)?;
    }
    // Stable, so that what is wrong with a file as a whole stays before what is wrong in it.
    observer.run(&mut || faults.sort_by_cached_key(place))?;
    Ok(Verification { faults, samples, bytes })
}

/// The file that a fault is about, and the sample.
fn place(fault: &Error) -> (PathBuf, Option<u64>) {
    match (fault, fault.fault()) {
        (_, Some(fault)) => (fault.file, fault.sample),
        (Error::Version { file, .. }, None) => (file.clone(), None),
        (fault, None) => (fault.damaged_file().map(Path::to_path_buf).unwrap_or_default(), None),
    }
}

/// The names of the manifest's files that are not as they should be.
fn damaged_files(cache: &Described, faults: &[Error]) -> BTreeSet<String> {
    let (folder, manifest) = cache;
    let wrong: Vec<_> = faults.iter().filter_map(Error::damaged_file).collect();
    manifest.files.keys().filter(|name| wrong.iter().any(|file| **file == folder.join(name))).cloned().collect()
}

/// Adds a fault for each record and each part of the metadata that is not as it should be.
fn inspect(
    cache: &Described,
    damaged: &BTreeSet<String>,
    observer: &mut dyn VerifyObserver,
    faults: &mut Vec<Error>,
) -> Result<()> {
    let (folder, manifest) = cache;
    let mut inspector = Inspector::new(folder, manifest);
    let mut found = Vec::new();
    let index_is_damaged = damaged.contains(INDEX_FILE);
    if index_is_damaged {
        found.extend(inspector.check_index().err());
    }
    let mut shard_is_damaged = Vec::new();
    for number in 0..manifest.shards() {
        let is_damaged = damaged.contains(&format!("{SHARD_FOLDER}/{}", shard_file_name(number)));
        shard_is_damaged.push(is_damaged);
        if is_damaged {
            found.extend(inspector.check_shard(number).err());
        }
    }
    if damaged.contains(METADATA_FILE) {
        for number in 0..manifest.metadata.batches.len() {
            let mut checked = Ok(());
            observer.run(&mut || checked = inspector.check_batch(number))?;
            found.extend(checked.err());
        }
        found.extend(inspector.footer().err());
    }
    if index_is_damaged || shard_is_damaged.contains(&true) {
        let mut samples = 0..manifest.samples;
        while !samples.is_empty() {
            read_piece(&mut samples, observer, |sample| {
                let checked = inspector.entry(sample).and_then(|entry| match entry {
                    Some(entry) if index_is_damaged || is_set(&shard_is_damaged, entry.shard) => inspector
                        .payload(sample, &entry)
                        .map(|payload| payload.map_or(0, |payload| payload.len() as u64)),
                    _ => Ok(0),
                });
                checked.unwrap_or_else(|error| {
                    found.push(error);
                    0
                })
            })?;
        }
    }
    // That a file is missing, too short or cannot be opened is known already.
    found.retain(|fault| !matches!(fault, Error::FileMissing { .. } | Error::Io { .. }));
    faults.extend(found);
    Ok(())
}

fn is_set(flags: &[bool], number: u32) -> bool {
    usize::try_from(number).ok().and_then(|number| flags.get(number)).copied().unwrap_or_default()
}

/// Reads all samples, and adds a fault for each that cannot be read, or where they are others than the manifest says.
fn check_content(cache: &Described, observer: &mut dyn VerifyObserver, faults: &mut Vec<Error>) -> Result<()> {
    let (folder, manifest) = cache;
    let mut inspector = Inspector::new(folder, manifest);
    let mut hasher = ContentHasher::new();
    let (mut found, mut payload_bytes, mut longest) = (Vec::new(), 0_u64, 0_u64);
    let footer = match inspector.footer() {
        Ok(footer) => footer,
        Err(error) => {
            faults.push(error);
            return Ok(());
        }
    };
    let rows = u64::from(BATCH_ROWS);
    for (number, start) in (0..manifest.metadata.batches.len()).zip((0_u64..).step_by(BATCH_ROWS as usize)) {
        let mut batch = None;
        observer.run(&mut || batch = Some(inspector.batch(&footer, number)))?;
        let batch = match batch {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => {
                found.push(error);
                continue;
            }
            None => return Err(Error::Internal { message: "a piece of a verification was not run".to_owned() }),
        };
        let mut fields = Vec::new();
        let mut samples = start..manifest.samples.min(start.saturating_add(rows));
        while !samples.is_empty() {
            let bytes = read_piece(&mut samples, observer, |sample| {
                fields.clear();
                let row = usize::try_from(sample.0 - start).unwrap_or(usize::MAX);
                let read = encode_fields(&batch, &manifest.columns, row, &mut fields)
                    .and_then(|()| inspector.entry(sample))
                    .and_then(|entry| match entry {
                        Some(entry) => inspector.payload(sample, &entry),
                        None => Ok(None),
                    });
                match read {
                    Ok(Some(payload)) => {
                        let length = payload.len() as u64;
                        longest = longest.max(length);
                        hasher.sample(&fields, length, xxh3_128(payload));
                        return length;
                    }
                    // The file went away just now; the digest will tell.
                    Ok(None) => {}
                    Err(error) => found.push(error),
                }
                0
            })?;
            payload_bytes = payload_bytes.saturating_add(bytes);
            observer.progress(bytes)?;
        }
    }
    if found.is_empty() {
        let expected = manifest.content_digest;
        let digest = hasher.finish(&manifest.columns, &manifest.source_name);
        if digest != expected {
            let (expected, digest) = (expected.to_string(), digest.to_string());
            found.push(Error::ContentDigest { file: folder.clone(), expected, found: digest });
        }
        let counts = |payload, longest| format!("payload_bytes {payload} and max_payload_bytes {longest}");
        if (manifest.payload_bytes, manifest.max_payload_bytes) != (payload_bytes, longest) {
            found.push(Error::Manifest {
                file: folder.join(MANIFEST_FILE),
                expected: format!("{}, as the samples have", counts(payload_bytes, longest)),
                found: counts(manifest.payload_bytes, manifest.max_payload_bytes),
            });
        }
    }
    faults.extend(found);
    Ok(())
}

/// Takes samples off the front of `samples`, as many as are read between two looks at whether to go on. `read` gives the
/// length of a sample's payload; the result is that of all of them.
fn read_piece(
    samples: &mut Range<u64>,
    observer: &mut dyn VerifyObserver,
    mut read: impl FnMut(SampleId) -> u64 + Send,
) -> Result<u64> {
    let mut bytes = 0_u64;
    observer.run(&mut || {
        for sample in samples.by_ref().take(PIECE_SAMPLES) {
            bytes = bytes.saturating_add(read(SampleId(sample)));
            if bytes >= PIECE_BYTES {
                break;
            }
        }
    })?;
    Ok(bytes)
}
