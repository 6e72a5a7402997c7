//! Damaged caches give the original data or an error that names the file, never anything else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use dataset_rt_core::format::Codec;
use dataset_rt_core::runtime::verify_caches;
use dataset_rt_core::store::{Guard, IoMode, Reads};
use dataset_rt_core::{Error, Result, SampleId};

use crate::support::{
    Caller, Feed, IO_MODES, NAMES, Row, Settings, open, open_to_read, payload, pool, read_all, tree, values, vouch,
};

/// Everything that a cache holds. Both ways to read it must tell the same, and name the same fault.
fn everything(path: &Path) -> Result<(Vec<Row>, Vec<RecordBatch>)> {
    let [mapped, positioned] = IO_MODES.map(|io| everything_by(path, io));
    let agree = match (&mapped, &positioned) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one.to_string() == other.to_string(),
        _ => false,
    };
    let shown = |found: &Result<(Vec<Row>, Vec<RecordBatch>)>| match found {
        Ok((rows, _)) => format!("{} rows", rows.len()),
        Err(error) => error.to_string(),
    };
    assert!(agree, "mapped: {}; positioned: {}", shown(&mapped), shown(&positioned));
    mapped
}

fn everything_by(path: &Path, io: IoMode) -> Result<(Vec<Row>, Vec<RecordBatch>)> {
    let caches = open_to_read(&[path], io)?;
    let rows = read_all(&caches, None)?;
    let cache = &caches.by_id()[0];
    let batches: Result<Vec<_>> = (0..cache.batches()).map(|number| cache.read_batch(number)).collect();
    Ok((rows, batches?))
}

/// A small cache with several shards.
fn small(root: &Path, codec: Codec) -> PathBuf {
    let settings = Settings { codec, max_shard_bytes: 400, ..Settings::default() };
    let mut feed = Feed::new(&NAMES, |sample| Ok((sample < 7).then(|| (payload(sample + 1), values(sample + 20)))));
    settings.write(root, "train", &mut feed, &mut Caller::default()).unwrap().path
}

/// Whether the error says that bytes are wrong. A number that stands for another version is such a byte, too.
fn names_a_fault(error: &Error) -> bool {
    error.fault().is_some() || matches!(error, Error::Version { .. })
}

fn faults(path: &Path) -> Result<Vec<Error>> {
    let caches = open(&[path])?;
    verify_caches(caches.by_id(), pool(2).as_deref(), &mut Caller::default())
}

#[test]
fn a_flipped_byte_gives_the_original_data_or_a_named_error() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let root = tempfile::tempdir().unwrap();
        let path = small(root.path(), codec);
        let original = everything(&path).unwrap();
        assert!(faults(&path).unwrap().is_empty());
        for (name, bytes) in tree(&path) {
            let file = path.join(&name);
            for place in 0..bytes.len() {
                for flip in [0x01, 0x80, 0xFF] {
                    let mut wrong = bytes.clone();
                    wrong[place] ^= flip;
                    fs::write(&file, &wrong).unwrap();
                    let context = || format!("{name}, byte {place}, flip {flip:#x}");
                    match everything(&path) {
                        Ok(found) => assert!(found == original, "{}", context()),
                        Err(error) => assert!(names_a_fault(&error), "{}: {error}", context()),
                    }
                    // Once is enough for what reads every file whole.
                    if flip == 0xFF {
                        match faults(&path) {
                            Ok(found) => {
                                let found: Vec<_> = found.iter().map(|error| error.fault().unwrap().file).collect();
                                assert_eq!(found, [fs::canonicalize(&file).unwrap()], "{}", context());
                            }
                            Err(error) => assert!(names_a_fault(&error), "{}: {error}", context()),
                        }
                    }
                }
            }
            fs::write(&file, &bytes).unwrap();
        }
        assert!(everything(&path).unwrap() == original);
    }
}

#[test]
fn a_file_of_another_length_is_named() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::Zstd);
    for (name, bytes) in tree(&path) {
        let file = path.join(&name);
        for length in 0..bytes.len() {
            fs::write(&file, &bytes[..length]).unwrap();
            let fault = everything(&path).unwrap_err().fault().unwrap();
            assert!(fault.file.ends_with(&name), "{name} of {length} bytes: {fault:?}");
        }
        let mut longer = bytes.clone();
        longer.push(b'\n');
        fs::write(&file, &longer).unwrap();
        let fault = everything(&path).unwrap_err().fault().unwrap();
        assert!(fault.file.ends_with(&name), "{name}: {fault:?}");
        fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn a_missing_file_is_named_and_a_foreign_one_plays_no_part() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let original = everything(&path).unwrap();
    for (name, bytes) in tree(&path) {
        let file = path.join(&name);
        fs::remove_file(&file).unwrap();
        let missing = everything(&path).unwrap_err();
        if name == "manifest.json" {
            assert!(matches!(missing, Error::CacheNotFound { .. }), "{missing}");
        } else {
            assert!(matches!(missing, Error::FileMissing { .. }), "{missing}");
            assert!(missing.fault().unwrap().file.ends_with(&name));
            fs::create_dir(&file).unwrap();
            let folder = everything(&path).unwrap_err();
            assert!(matches!(folder, Error::FileMissing { .. }), "{folder}");
            fs::remove_dir(&file).unwrap();
        }
        fs::write(&file, &bytes).unwrap();
    }
    fs::rename(path.join("shards"), path.join("moved")).unwrap();
    fs::write(path.join("shards"), b"a file").unwrap();
    let error = everything(&path).unwrap_err();
    assert!(matches!(error, Error::FileMissing { .. }), "{error}");
    fs::remove_file(path.join("shards")).unwrap();
    fs::rename(path.join("moved"), path.join("shards")).unwrap();

    fs::write(path.join("shards/999999.bin"), b"foreign").unwrap();
    fs::write(path.join("notes.txt"), b"foreign").unwrap();
    assert!(everything(&path).unwrap() == original);
    let foreign = faults(&path).unwrap();
    assert!(foreign.iter().all(|error| matches!(error, Error::FileForeign { .. })), "{foreign:?}");
    let files: Vec<_> = foreign.iter().map(|error| error.fault().unwrap().file).collect();
    let path = fs::canonicalize(&path).unwrap();
    assert_eq!(files, [path.join("notes.txt"), path.join("shards/999999.bin")]);
}

#[test]
fn no_folder_no_manifest_and_a_file_are_no_cache() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    fs::write(root.path().join("file"), b"").unwrap();
    for name in ["nothing", "empty", "file"] {
        let error = open(&[&root.path().join(name)]).unwrap_err();
        assert!(matches!(error, Error::CacheNotFound { .. }), "{name}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_manifest_of_another_cache_is_refused_or_its_records_are() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let manifest = fs::read(path.join("manifest.json")).unwrap();

    // Of another name, and of another length.
    let other = Settings::default().build(root.path(), "other", 3);
    fs::copy(other.join("manifest.json"), path.join("manifest.json")).unwrap();
    let error = everything(&path).unwrap_err();
    assert!(matches!(&error, Error::Manifest { found, .. } if found.contains("other")), "{error}");

    // Of the same name and of the same lengths, as a copy that was broken off leaves it: the index is another's. With the
    // index that belongs to the manifest, the first record tells.
    fs::write(path.join("manifest.json"), &manifest).unwrap();
    everything(&path).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = Settings { max_shard_bytes: 400, ..Settings::default() };
    let mut feed = Feed::new(&NAMES, |sample| {
        let payload: Vec<u8> = payload(sample + 1).into_iter().map(|byte| byte ^ 1).collect();
        Ok((sample < 7).then(|| (payload, values(sample + 20))))
    });
    let other = settings.write(elsewhere.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    fs::copy(other.join("manifest.json"), path.join("manifest.json")).unwrap();
    let fault = everything(&path).unwrap_err().fault().unwrap();
    assert!(fault.file.ends_with("index.bin") && fault.expected != fault.found, "{fault:?}");
    let files: Vec<_> = faults(&path).unwrap().iter().map(|error| error.fault().unwrap().file).collect();
    assert!(files.iter().any(|file| file.ends_with("index.bin")), "{files:?}");
    assert!(files.iter().any(|file| file.ends_with("shards/000000.bin")), "{files:?}");
    fs::copy(other.join("index.bin"), path.join("index.bin")).unwrap();
    let error = everything(&path).unwrap_err();
    assert!(matches!(error, Error::RecordCheck { sample: 0, .. }), "{error}");

    fs::write(path.join("manifest.json"), manifest).unwrap();
    let error = everything(&path).unwrap_err();
    assert!(error.fault().is_some(), "{error}");
}

#[test]
fn a_renamed_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let renamed = root.path().join("renamed");
    fs::rename(path, &renamed).unwrap();
    let fault = open(&[&renamed]).unwrap_err().fault().unwrap();
    assert!(fault.file.ends_with("renamed/manifest.json"));
    assert!(fault.found.contains("train"), "{fault:?}");
}

/// The index with the entry of `sample` as `change` leaves it.
fn with_entry(index: &[u8], sample: usize, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut index = index.to_vec();
    let start = 32 + 40 * sample;
    change(&mut index[start..start + 40]);
    index
}

#[test]
fn an_index_that_lies_is_caught_at_the_sample() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let root = tempfile::tempdir().unwrap();
        let path = small(root.path(), codec);
        let file = path.join("index.bin");
        let index = fs::read(&file).unwrap();
        // With a manifest that vouches for the lie: otherwise the index as a whole is refused before its entries are.
        let manifest = fs::read(path.join("manifest.json")).unwrap();
        let error_of = |index: Vec<u8>| {
            fs::write(&file, index).unwrap();
            let error = everything(&path).unwrap_err();
            assert!(matches!(error, Error::FileDigest { .. }), "{error}");
            vouch(&path, |_| ());
            let error = everything(&path).unwrap_err();
            fs::write(path.join("manifest.json"), &manifest).unwrap();
            error
        };

        // Whole entries in each other's places: payload, lengths and check agree, the sample's number does not.
        let mut swapped = index.clone();
        let (one, two) = swapped[32..].split_at_mut(40);
        one.swap_with_slice(&mut two[..40]);
        assert!(matches!(error_of(swapped), Error::RecordCheck { sample: 0, .. }));

        // A record past the end of its shard: a little, far, and further than systems can count.
        for offset in [1 << 20, u64::MAX >> 1, 1 << 63, u64::MAX - 100_000] {
            let lying = with_entry(&index, 2, |entry| entry[..8].copy_from_slice(&offset.to_le_bytes()));
            let error = error_of(lying);
            assert!(matches!(error, Error::RecordRange { sample: 2, found: 0, .. }), "{offset}: {error}");
        }
        let error = error_of(with_entry(&index, 2, |entry| entry[..8].copy_from_slice(&u64::MAX.to_le_bytes())));
        assert!(matches!(error, Error::IndexEntry { sample: 2, .. }), "{error}");

        // One byte further: the record of nobody.
        let error = error_of(with_entry(&index, 1, |entry| entry[0] += 1));
        assert!(error.fault().unwrap().sample == Some(1), "{error}");

        // Another shard, one that there is not, and an unknown codec.
        let error = error_of(with_entry(&index, 4, |entry| entry[24] ^= 1));
        assert!(error.fault().unwrap().sample == Some(4), "{error}");
        assert!(matches!(error_of(with_entry(&index, 3, |entry| entry[27] = 1)), Error::IndexEntry { sample: 3, .. }));
        assert!(matches!(error_of(with_entry(&index, 3, |entry| entry[28] = 3)), Error::IndexEntry { sample: 3, .. }));
    }
}

#[test]
fn shards_in_each_others_places_are_told_apart_by_their_numbers() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { max_shard_bytes: 20, ..Settings::default() };
    let mut feed = Feed::new(&[], |sample| Ok((sample < 3).then(|| (vec![sample.to_le_bytes()[0]; 10], Vec::new()))));
    let path = settings.write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    fs::rename(path.join("shards/000000.bin"), path.join("shards/kept")).unwrap();
    fs::rename(path.join("shards/000001.bin"), path.join("shards/000000.bin")).unwrap();
    fs::rename(path.join("shards/kept"), path.join("shards/000001.bin")).unwrap();
    let error = everything(&path).unwrap_err();
    assert!(matches!(&error, Error::Header { file, .. } if file.ends_with("shards/000000.bin")), "{error}");
    let files: Vec<_> = faults(&path).unwrap().iter().map(|error| error.fault().unwrap().file).collect();
    assert_eq!(files.len(), 2);
    assert!(files[0].ends_with("shards/000000.bin") && files[1].ends_with("shards/000001.bin"), "{files:?}");
}

#[test]
fn a_shard_that_shrinks_while_it_is_open_is_an_error_that_says_how_much_is_left() {
    for io in IO_MODES {
        let root = tempfile::tempdir().unwrap();
        let path = Settings { max_shard_bytes: 1 << 20, ..Settings::default() }.build(root.path(), "train", 50);
        let caches = open_to_read(&[&path], io).unwrap();
        let original = read_all(&caches, None).unwrap();
        let shard = path.join("shards/000000.bin");
        let bytes = fs::read(&shard).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&shard).unwrap();
        for pool in [None, pool(2)] {
            file.set_len(20).unwrap();
            let error = read_all(&caches, pool).unwrap_err();
            // Sample 0 is empty; sample 1 has 37 bytes, of which 4 are left.
            let (expected, found) = (37, 4);
            assert!(
                matches!(error, Error::RecordRange { sample: 1, offset: 16, expected: e, found: f, .. } if e == expected && f == found)
                    // Opened anew after the first time.
                    || matches!(error, Error::FileLength { expected, found: 20, .. } if expected == bytes.len() as u64),
                "{io:?}: {error}"
            );
        }
        // What was mended is read again, and so is a cache whose files were removed while they are open.
        fs::write(&shard, &bytes).unwrap();
        assert_eq!(read_all(&caches, None).unwrap(), original);
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(read_all(&Arc::clone(&caches), pool(2)).unwrap(), original);
    }
}

#[test]
fn every_fault_is_listed() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let caches = open(&[&path]).unwrap();
    let mut damaged = Vec::new();
    for (name, mut bytes) in tree(&path) {
        if name != "manifest.json" {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path.join(&name), bytes).unwrap();
            damaged.push(fs::canonicalize(path.join(&name)).unwrap());
        }
    }
    for pool in [None, pool(3)] {
        let found = verify_caches(caches.by_id(), pool.as_deref(), &mut Caller::default()).unwrap();
        let files: Vec<_> = found.iter().map(|error| error.fault().unwrap().file).collect();
        assert_eq!(files, damaged);
        let stopped = verify_caches(caches.by_id(), pool.as_deref(), &mut Caller::stopping_at(1));
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_shard_that_was_cut_off_and_made_whole_again_is_read_as_it_is_now() {
    for codec in [Codec::None, Codec::Zstd] {
        let root = tempfile::tempdir().unwrap();
        let path = small(root.path(), codec);
        let caches = open_to_read(&[&path], IoMode::Mapped).unwrap();
        let cache = &caches.by_id()[0];
        let original = read_all(&caches, None).unwrap();
        let shard = cache.shard_path(0);
        let bytes = fs::read(&shard).unwrap();
        // Whoever reads meanwhile loses the mapping's only page, and the file is whole again before anybody looks.
        let lose = |restored: &[u8]| {
            let file = cache.shard(0, Reads::InOrder).unwrap();
            assert!(file.is_mapped());
            fs::File::options().write(true).open(&shard).unwrap().set_len(0).unwrap();
            assert!(file.read_exact(&Guard::arm().unwrap(), &mut [0; 8], 0).is_err());
            fs::write(&shard, restored).unwrap();
            assert!(
                file.read_exact(&Guard::arm().unwrap(), &mut [0; 8], 0).is_err(),
                "the mapping stays without its page"
            );
        };
        lose(&bytes);
        assert_eq!(read_all(&caches, None).unwrap(), original);
        assert_eq!(read_all(&caches, None).unwrap(), original, "the next run maps it again");
        let mut damaged = bytes.clone();
        for byte in &mut damaged[16..] {
            *byte ^= 1;
        }
        lose(&damaged);
        let error = read_all(&caches, None).unwrap_err();
        assert!(matches!(error, Error::RecordCheck { .. }), "{error}");
        fs::write(&shard, &bytes).unwrap();
        lose(&bytes[..bytes.len() - 1]);
        let error = read_all(&caches, None).unwrap_err();
        assert!(matches!(error, Error::FileLength { .. } | Error::RecordRange { .. }), "{error}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_index_that_was_cut_off_and_made_whole_again_is_read_as_it_is_now() {
    // So many that the index is not held in memory.
    const SAMPLES: u64 = 270_000;
    let root = tempfile::tempdir().unwrap();
    let mut feed = Feed::new(&NAMES, |sample| Ok((sample < SAMPLES).then(|| (vec![1], values(1)))));
    let path = Settings::default().write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    let caches = open_to_read(&[&path], IoMode::Mapped).unwrap();
    let cache = &caches.by_id()[0];
    let index = path.join("index.bin");
    let bytes = fs::read(&index).unwrap();
    let (guard, last) = (Guard::arm().unwrap(), SampleId(SAMPLES - 1));
    let mut file = None;
    let original = cache.entry(&guard, last, &mut file).unwrap();
    for whole in [true, false] {
        let mapped = file.clone().unwrap();
        assert!(mapped.is_mapped());
        fs::File::options().write(true).open(&index).unwrap().set_len(0).unwrap();
        assert!(mapped.read_exact(&guard, &mut [0; 8], 0).is_err());
        fs::write(&index, &bytes[..bytes.len() - usize::from(!whole)]).unwrap();
        let entry = cache.entry(&guard, last, &mut file);
        if whole {
            assert_eq!(entry.unwrap(), original);
            assert_eq!(cache.entry(&guard, last, &mut file).unwrap(), original, "it is mapped again");
        } else {
            let error = entry.unwrap_err();
            assert!(matches!(error, Error::FileLength { .. }), "{error}");
        }
    }
}
