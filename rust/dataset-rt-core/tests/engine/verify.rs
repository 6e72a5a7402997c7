//! Verification finds every fault of a cache, and says which samples are lost.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dataset_rt_core::format::Codec;
use dataset_rt_core::runtime::{Outside, Verification, VerifyObserver, verify_folder};
use dataset_rt_core::store::{Cache, IoMode, find_caches};
use dataset_rt_core::{Error, Result};

use crate::support::{Caller, Feed, NAMES, Settings, manifest, payload, pool, tree, values, vouch};

const SAMPLES: u64 = 12;

/// A cache with several shards and records of every codec that its settings lead to.
fn small(root: &Path, codec: Codec) -> PathBuf {
    let settings = Settings { codec, max_shard_bytes: 300, ..Settings::default() };
    let mut feed =
        Feed::new(&NAMES, |sample| Ok((sample < SAMPLES).then(|| (payload(sample + 1), values(sample + 20)))));
    fs::canonicalize(settings.write(root, "train", &mut feed, &mut Caller::default()).unwrap().path).unwrap()
}

fn verify(path: &Path, content: bool) -> Verification {
    let alone = verify_folder(path, content, None, &mut Caller::default()).unwrap();
    let shared = verify_folder(path, content, pool(3).as_deref(), &mut Caller::default()).unwrap();
    let texts = |found: &Verification| found.faults.iter().map(Error::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&alone), texts(&shared), "the number of threads changes nothing");
    alone
}

/// Where each fault is: the file by its path in the cache, and the sample.
fn places(path: &Path, found: &Verification) -> Vec<(String, Option<u64>)> {
    let place = |error: &Error| {
        let fault = error.fault().unwrap_or_else(|| panic!("no fault: {error}"));
        assert_ne!(fault.expected, fault.found, "{error}");
        (fault.file.strip_prefix(path).unwrap().to_str().unwrap().to_owned(), fault.sample)
    };
    found.faults.iter().map(place).collect()
}

/// Shard, offset and length of each record, from the index.
fn records(path: &Path) -> Vec<(String, usize, usize)> {
    let index = fs::read(path.join("index.bin")).unwrap();
    let number =
        |entry: &[u8], at: usize| usize::try_from(u64::from_le_bytes(entry[at..at + 8].try_into().unwrap())).unwrap();
    let record = |entry: &[u8]| (format!("shards/{:06}.bin", entry[24]), number(entry, 0), number(entry, 8));
    index[32..].chunks(40).map(record).collect()
}

#[test]
fn a_whole_cache_has_no_fault_and_all_of_it_was_read() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let root = tempfile::tempdir().unwrap();
        let path = small(root.path(), codec);
        let before = tree(&path);
        let bytes: u64 = manifest(&path).files.values().map(|file| file.bytes).sum();
        for content in [false, true] {
            let found = verify(&path, content);
            assert!(found.faults.is_empty(), "{:?}", found.faults);
            assert_eq!((found.samples, found.bytes), (Some(SAMPLES), bytes));
            let mut caller = Caller::default();
            verify_folder(&path, content, pool(2).as_deref(), &mut caller).unwrap();
            assert_eq!(caller.bytes, bytes + if content { manifest(&path).payload_bytes } else { 0 });
        }
        assert_eq!(tree(&path), before, "nothing is written");
    }
}

#[test]
fn every_flipped_byte_is_a_fault_of_its_file_and_names_the_sample_that_is_lost() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let root = tempfile::tempdir().unwrap();
        let path = small(root.path(), codec);
        let records = records(&path);
        // Every byte of one cache, and every seventh of those that differ from it by their records alone.
        let step = if codec == Codec::Zstd { 1 } else { 7 };
        for (name, bytes) in tree(&path) {
            for place in (0..bytes.len()).step_by(step) {
                let mut wrong = bytes.clone();
                wrong[place] ^= 0x10;
                fs::write(path.join(&name), &wrong).unwrap();
                let found = verify_folder(&path, place % 2 == 0, None, &mut Caller::default()).unwrap();
                let context = format!("{name}, byte {place}: {:?}", found.faults);
                if name == "manifest.json" {
                    // Nothing else can be said without it. A changed number of the version is a newer format.
                    assert!(!found.faults.is_empty(), "{context}");
                    continue;
                }
                assert!(matches!(&found.faults[0], Error::FileDigest { .. }), "{context}");
                let places: Vec<_> = found.faults.iter().filter_map(|error| error.fault()).collect();
                let lost: Vec<u64> = places.iter().filter_map(|fault| fault.sample).collect();
                if let Some(at) = name.starts_with("shards").then_some(place).filter(|at| *at >= 16) {
                    let sample = (0..)
                        .zip(&records)
                        .find(|(_, record)| record.0 == name && (record.1..record.1 + record.2).contains(&at));
                    assert_eq!(lost, [sample.unwrap().0], "{context}");
                } else if name == "index.bin" && place >= 32 {
                    let sample = (place as u64 - 32) / 40;
                    // Where a record of no bytes lies does not matter.
                    let is_empty = records[usize::try_from(sample).unwrap()].2 == 0;
                    assert!(lost == [sample] || (lost.is_empty() && is_empty), "{context}");
                } else {
                    assert!(lost.is_empty(), "{context}");
                }
            }
            fs::write(path.join(&name), &bytes).unwrap();
        }
        assert!(verify(&path, true).faults.is_empty());
    }
}

#[test]
fn a_cut_file_is_a_fault_with_the_samples_that_went_with_it() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::Zstd);
    let records = records(&path);
    for (name, bytes) in tree(&path) {
        for length in 0..bytes.len() {
            fs::write(path.join(&name), &bytes[..length]).unwrap();
            let found = verify_folder(&path, false, None, &mut Caller::default()).unwrap();
            assert!(!found.faults.is_empty());
            if name.starts_with("shards") {
                let gone = (0..).zip(&records).filter(|(_, record)| record.0 == name && record.2 > 0);
                let gone: Vec<u64> =
                    gone.filter(|(_, record)| record.1 + record.2 > length).map(|(sample, _)| sample).collect();
                let lost: Vec<u64> = found.faults.iter().filter_map(|error| error.fault()?.sample).collect();
                assert_eq!(lost, gone, "{name} of {length} bytes");
                assert!(matches!(found.faults[0], Error::FileLength { .. }));
            }
        }
        let longer = [bytes.as_slice(), b"\0"].concat();
        fs::write(path.join(&name), longer).unwrap();
        let found = verify(&path, false);
        assert_eq!(places(&path, &found), [(name.clone(), None)]);
        fs::write(path.join(&name), &bytes).unwrap();
    }
}

#[test]
fn all_faults_of_all_files_are_listed_at_once_and_in_order() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::Lz4);
    let records = records(&path);
    assert!(manifest(&path).shards() >= 3);
    // Two records of one shard, an index entry, a metadata batch; another shard gone; two foreign files.
    let (first, second) = (&records[0], &records[1]);
    assert_eq!(first.0, "shards/000000.bin");
    assert_eq!(second.0, "shards/000000.bin");
    let flip = |name: &str, at: usize| {
        let mut bytes = fs::read(path.join(name)).unwrap();
        bytes[at] ^= 1;
        fs::write(path.join(name), bytes).unwrap();
    };
    flip(&first.0, first.1);
    flip(&second.0, second.1);
    let last = usize::try_from(SAMPLES - 1).unwrap();
    flip("index.bin", 32 + 40 * last + 39);
    let batch = usize::try_from(manifest(&path).metadata.batches[0].offset).unwrap();
    flip("metadata.arrow", batch + 900);
    fs::remove_file(path.join("shards/000001.bin")).unwrap();
    fs::write(path.join("shards/.nfs0001"), b"?").unwrap();
    fs::create_dir(path.join("copy")).unwrap();

    let found = verify(&path, true);
    let expected = [
        ("copy", None),
        ("index.bin", None),
        ("metadata.arrow", None),
        ("metadata.arrow", None),
        ("shards/.nfs0001", None),
        ("shards/000000.bin", None),
        ("shards/000000.bin", Some(0)),
        ("shards/000000.bin", Some(1)),
        ("shards/000001.bin", None),
        (records[last].0.as_str(), Some(SAMPLES - 1)),
    ];
    assert_eq!(places(&path, &found), expected.map(|(file, sample)| (file.to_owned(), sample)));
    let kinds = |wanted: fn(&Error) -> bool| found.faults.iter().filter(|error| wanted(error)).count();
    assert_eq!(kinds(|error| matches!(error, Error::FileForeign { .. })), 2);
    assert_eq!(kinds(|error| matches!(error, Error::FileDigest { .. })), 3);
    assert_eq!(kinds(|error| matches!(error, Error::RecordCheck { .. })), 3);
    assert_eq!(kinds(|error| matches!(error, Error::MetadataCheck { .. })), 1);
    assert_eq!(kinds(|error| matches!(error, Error::FileMissing { .. })), 1);
}

#[test]
fn what_stands_in_a_caches_place_is_a_fault_or_no_cache() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let manifest = fs::read(path.join("manifest.json")).unwrap();
    let only = |found: Verification| {
        assert_eq!(places(&path, &found), [("manifest.json".to_owned(), None)]);
        assert_eq!(found.samples, None);
        found.faults[0].to_string()
    };
    fs::write(path.join("manifest.json"), b"").unwrap();
    assert!(only(verify(&path, true)).contains("found an empty file"));
    fs::remove_file(path.join("manifest.json")).unwrap();
    assert!(only(verify(&path, true)).contains("found nothing"));
    fs::create_dir(path.join("manifest.json")).unwrap();
    assert!(only(verify(&path, true)).contains("found a folder"));
    fs::remove_dir(path.join("manifest.json")).unwrap();
    fs::write(path.join("manifest.json"), &manifest).unwrap();

    // Under another name, the rest is checked all the same.
    let renamed = path.with_file_name("renamed");
    fs::rename(&path, &renamed).unwrap();
    fs::remove_file(renamed.join("index.bin")).unwrap();
    let found = verify(&renamed, false);
    assert_eq!(places(&renamed, &found), [("index.bin".to_owned(), None), ("manifest.json".to_owned(), None)]);

    for name in ["nothing", "empty"] {
        let folder = root.path().join(name);
        if name == "empty" {
            fs::create_dir(&folder).unwrap();
        }
        let error = verify_folder(&folder, false, None, &mut Caller::default()).unwrap_err();
        assert!(matches!(error, Error::CacheNotFound { .. }), "{error}");
    }
}

#[test]
fn a_manifest_that_is_no_regular_file_is_never_waited_on() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    fs::remove_file(path.join("manifest.json")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(path.join("manifest.json")).status().unwrap();
    assert!(made.success());
    let error = Cache::open(&path, IoMode::Auto).unwrap_err();
    assert!(matches!(&error, Error::FileMissing { found, .. } if found == "no regular file"), "{error}");
    fs::remove_file(path.join("manifest.json")).unwrap();
    symlink("/dev/zero", path.join("manifest.json")).unwrap();
    let error = Cache::open(&path, IoMode::Auto).unwrap_err();
    assert!(matches!(&error, Error::FileMissing { .. }), "{error}");
    assert_eq!(verify(&path, false).faults.len(), 1);

    // Nor is any other file.
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    for name in tree(&path).into_keys().filter(|name| name != "manifest.json") {
        let file = path.join(&name);
        let kept = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let found = verify(&path, true);
        assert_eq!(places(&path, &found), [(name, None)]);
        let error = Cache::open(&path, IoMode::Auto).unwrap_err();
        assert!(matches!(&error, Error::FileMissing { .. }), "{error}");
        fs::remove_file(&file).unwrap();
        fs::write(&file, kept).unwrap();
    }
}

#[test]
fn the_content_is_held_to_its_digest_where_the_files_are_those_of_the_manifest() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let original = manifest(&path);

    // Other metadata that a forged manifest vouches for: two values of a column in each other's places.
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = Settings { max_shard_bytes: 300, ..Settings::default() };
    let mut feed = Feed::new(&NAMES, |sample| {
        let row = if sample == 1 || sample == 2 { 23 - sample } else { sample + 20 };
        Ok((sample < SAMPLES).then(|| (payload(sample + 1), values(row))))
    });
    let other = settings.write(elsewhere.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    let metadata = manifest(&other).metadata;
    fs::copy(other.join("metadata.arrow"), path.join("metadata.arrow")).unwrap();
    vouch(&path, |forged| forged.metadata = metadata);
    assert!(verify(&path, false).faults.is_empty());
    let found = verify(&path, true);
    assert_eq!(places(&path, &found), [(String::new(), None)]);
    let digest = manifest(&other).content_digest.to_string();
    assert!(
        matches!(&found.faults[0], Error::ContentDigest { expected, found, .. }
            if *expected == original.content_digest.to_string() && *found == digest),
        "{:?}",
        found.faults
    );

    // A longest payload that no sample has.
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    vouch(&path, |forged| forged.max_payload_bytes += 1);
    assert!(verify(&path, false).faults.is_empty());
    let found = verify(&path, true);
    assert_eq!(places(&path, &found), [("manifest.json".to_owned(), None)]);

    // A record that the index vouches for, and that does not unpack.
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::Zstd);
    let records = records(&path);
    let (sample, record) = (0..).zip(&records).find(|(_, record)| record.2 > 20).unwrap();
    let mut shard = fs::read(path.join(&record.0)).unwrap();
    let stored = &mut shard[record.1..record.1 + record.2];
    stored[0] ^= 1;
    let check = dataset_rt_core::format::record_check(dataset_rt_core::SampleId(sample), stored);
    fs::write(path.join(&record.0), shard).unwrap();
    let mut index = fs::read(path.join("index.bin")).unwrap();
    let entry = 32 + 40 * usize::try_from(sample).unwrap();
    index[entry + 32..entry + 40].copy_from_slice(&check.to_le_bytes());
    fs::write(path.join("index.bin"), index).unwrap();
    vouch(&path, |_| ());
    let found = verify(&path, true);
    let is_codec = matches!(&found.faults[0], Error::RecordCodec { sample: lost, .. } if *lost == sample);
    assert!(is_codec || matches!(&found.faults[0], Error::ContentDigest { .. }), "{:?}", found.faults);
}

#[test]
fn a_verification_stops_when_it_is_told_to() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    for pool in [None, pool(2)] {
        let stopped = verify_folder(&path, true, pool.as_deref(), &mut Caller::stopping_at(1));
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
    // Also while it reads the samples, which comes after all files.
    let files = manifest(&path).files.len() as u64 + 1;
    let stopped = verify_folder(&path, true, None, &mut Caller::stopping_at(files + 1));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn between_two_looks_at_whether_to_go_on_no_more_is_read_than_some_mebibytes() {
    const PAYLOADS: u64 = 6;
    let root = tempfile::tempdir().unwrap();
    let settings = Settings { max_shard_bytes: 1 << 30, ..Settings::default() };
    let mut feed = Feed::new(&NAMES, |sample| Ok((sample < PAYLOADS).then(|| (vec![7; 9 << 20], values(sample)))));
    let path = settings.write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    assert_eq!(manifest(&path).shards(), 1);
    let asked = |content| {
        let mut caller = Caller::default();
        let found = verify_folder(&path, content, None, &mut caller).unwrap();
        (caller.asked, found.faults.len())
    };
    // A piece of a file is 4 MiB, and one of samples ends with that by which 16 MiB are exceeded.
    let (files, faults) = asked(false);
    assert!(files > 54 / 4 && faults == 0, "asked {files} times");
    let (with_content, faults) = asked(true);
    assert!(with_content > files + PAYLOADS / 2 && faults == 0, "asked {with_content} times after {files}");
    let shard = path.join("shards/000000.bin");
    let mut damaged = fs::read(&shard).unwrap();
    damaged[1_000] ^= 1;
    fs::write(&shard, damaged).unwrap();
    let (inspected, faults) = asked(false);
    assert!(inspected >= files + PAYLOADS / 2 && faults == 2, "asked {inspected} times after {files}");
}

/// Stops at the first progress.
struct Impatient;

impl Outside for Impatient {
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        work();
        Ok(())
    }
}

impl VerifyObserver for Impatient {
    fn progress(&mut self, _: u64) -> Result<()> {
        Err(Error::Interrupted)
    }
}

#[test]
fn an_observer_that_fails_stops_the_verification() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    for pool in [None, pool(2)] {
        assert!(matches!(verify_folder(&path, false, pool.as_deref(), &mut Impatient), Err(Error::Interrupted)));
    }
}

#[test]
fn caches_are_found_by_themselves_and_below_a_root_also_damaged_ones() {
    let root = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(root.path()).unwrap();
    let first = fs::canonicalize(Settings::default().build(&root, "b", 3)).unwrap();
    let second = fs::canonicalize(Settings::default().build(&root, "a", 3)).unwrap();
    fs::create_dir(root.join("other")).unwrap();
    fs::write(root.join("other/index.bin"), b"somebody else's").unwrap();
    assert_eq!(find_caches(&first).unwrap(), std::slice::from_ref(&first));
    assert_eq!(find_caches(&root).unwrap(), [second.clone(), first.clone()]);
    fs::remove_file(second.join("manifest.json")).unwrap();
    assert_eq!(find_caches(&root).unwrap(), [second.clone(), first.clone()]);
    assert_eq!(find_caches(&second).unwrap(), [second]);
    for path in ["nothing", "other", "b/index.bin"] {
        let error = find_caches(&root.join(path)).unwrap_err();
        assert!(matches!(error, Error::CacheNotFound { .. }), "{error}");
    }
}

#[test]
fn a_cache_below_a_link_and_files_that_are_links_are_what_they_lead_to() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path(), Codec::None);
    let elsewhere = tempfile::tempdir().unwrap();
    let kept = elsewhere.path().join("000000.bin");
    fs::rename(path.join("shards/000000.bin"), &kept).unwrap();
    symlink(&kept, path.join("shards/000000.bin")).unwrap();
    assert!(verify(&path, true).faults.is_empty());
    // What a link leads to must be a shard of this cache all the same.
    fs::write(&kept, b"another file, and a secret one perhaps").unwrap();
    let found = verify(&path, true);
    assert!(found.faults.iter().all(|fault| !fault.to_string().contains("secret")), "{:?}", found.faults);
    let by_file: BTreeMap<_, _> = places(&path, &found).into_iter().collect();
    assert_eq!(by_file.keys().collect::<Vec<_>>(), ["shards/000000.bin"]);
}
