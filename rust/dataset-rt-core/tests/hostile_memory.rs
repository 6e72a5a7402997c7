//! Forged caches cost no more memory than their files have bytes, whatever they claim.
//!
//! A manifest is forged to vouch for every lie, so that nothing is refused by a checksum alone. One test, so that no
//! other allocates meanwhile.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

#[path = "engine/support.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use dataset_rt_core::format::{Manifest, record_check, xxh3_64};
use dataset_rt_core::runtime::verify_folder;
use dataset_rt_core::{Error, Result, SampleId};

use support::{Caller, Feed, NAMES, Settings, manifest, open, payload, read_all, values, vouch};

/// Far more than reading these caches needs, and far less than what they claim.
const MOST_BYTES: usize = 8 << 20;

/// Lengths that no file here has.
const ABSURD: [i64; 8] = [-1, i64::MIN, i64::MAX, i64::MAX - 7, 1 << 62, 1 << 40, (1 << 31) + 8, 1 << 27];

/// Makes a manifest claim something.
type Claim = fn(&mut Manifest);

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with the bytes in use counted.
struct Counting;

#[expect(unsafe_code, reason = "an allocator has no safe interface")]
// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `pointer`, which came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A number of kilobytes out of this process's status: what C libraries allocate counts, too.
fn status(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Opens and reads all of a cache, and verifies it.
fn everything(path: &Path) -> Result<()> {
    verify_folder(path, true, None, &mut Caller::default())?;
    let caches = open(&[path])?;
    let cache = &caches.by_id()[0];
    (0..cache.batches()).try_for_each(|number| cache.read_batch(number).map(drop))?;
    read_all(&caches, None).map(drop)
}

/// Reads all of a forged cache, which must fail with a named fault, or not at all, for little memory.
fn check(path: &Path, what: &str) -> Result<()> {
    let before = USED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let virtual_before = status("VmPeak:");
    let result = everything(path);
    let grown = PEAK.load(Ordering::Relaxed) - before;
    assert!(grown < MOST_BYTES, "{what}: {grown} bytes");
    let reserved = (status("VmPeak:") - virtual_before) << 10;
    assert!(reserved < 2 * MOST_BYTES, "{what}: {reserved} bytes of address space");
    if let Err(error) = &result {
        assert!(error.fault().is_some() || matches!(error, Error::Version { .. }), "{what}: {error}");
        assert!(!error.to_string().contains("a panic in it"), "{what}: {error}");
    }
    result
}

fn small(root: &Path) -> PathBuf {
    let mut feed = Feed::new(&NAMES, |sample| Ok((sample < 5).then(|| (payload(sample + 1), values(sample + 20)))));
    Settings::default().write(root, "train", &mut feed, &mut Caller::default()).unwrap().path
}

/// A cache of one record, stored as `bytes` and said to be of `codec` and to unpack to `payload_bytes`.
fn forged_record(root: &Path, codec: u8, bytes: &[u8], payload_bytes: u64) -> PathBuf {
    let mut feed = Feed::new(&[], |sample| Ok((sample < 1).then(|| (bytes.to_vec(), Vec::new()))));
    let settings = Settings { max_shard_bytes: 1 << 30, ..Settings::default() };
    let path = settings.write(root, "train", &mut feed, &mut Caller::default()).unwrap().path;
    let mut index = fs::read(path.join("index.bin")).unwrap();
    let entry = &mut index[32..];
    entry[16..24].copy_from_slice(&payload_bytes.to_le_bytes());
    entry[28] = codec;
    entry[32..40].copy_from_slice(&record_check(SampleId(0), bytes).to_le_bytes());
    fs::write(path.join("index.bin"), index).unwrap();
    vouch(&path, |forged| {
        (forged.payload_bytes, forged.max_payload_bytes) = (payload_bytes, payload_bytes);
    });
    path
}

/// A Zstandard frame that unpacks to `blocks` times 128 KiB of zeros, from 4 bytes each.
fn zstd_bomb(blocks: u32) -> Vec<u8> {
    // No content size, and a window of 128 KiB.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 7 << 3];
    for block in 1..=blocks {
        // One byte, repeated; the last block says that it is.
        let header: u32 = ((128 << 10) << 3) | (1 << 1) | u32::from(block == blocks);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// An LZ4 block that unpacks to 255 bytes for each of its own.
fn lz4_bomb(length: usize) -> Vec<u8> {
    let mut block = vec![0x1F, 0, 1, 0];
    block.extend(std::iter::repeat_n(0xFF, length));
    block.extend([0, 0x50, 0, 0, 0, 0, 0]);
    block
}

#[test]
fn no_claim_of_a_forged_cache_is_believed_before_the_bytes_are_there() {
    let root = tempfile::tempdir().unwrap();
    let path = small(root.path());
    check(&path, "as it was written").unwrap();

    // What the manifest claims.
    let original = manifest(&path);
    let claims: [(&str, Claim); 7] = [
        ("samples", |forged| {
            forged.samples = 1 << 40;
            forged.files.get_mut("index.bin").unwrap().bytes = 32 + (40 << 40);
        }),
        ("a long index", |forged| forged.files.get_mut("index.bin").unwrap().bytes = 1 << 50),
        ("a long shard", |forged| {
            forged.files.get_mut("shards/000000.bin").unwrap().bytes += 1 << 50;
            (forged.stored_bytes, forged.payload_bytes) =
                (forged.stored_bytes + (1 << 50), forged.payload_bytes + (1 << 50));
        }),
        ("long payloads", |forged| {
            (forged.payload_bytes, forged.max_payload_bytes) = (1 << 52, 1 << 51);
        }),
        ("a long batch", |forged| forged.metadata.batches[0].bytes = 1 << 50),
        ("a batch far away", |forged| forged.metadata.batches[0].offset = u64::MAX - 7),
        ("a long footer", |forged| forged.metadata.footer.bytes = 1 << 50),
    ];
    for (what, change) in claims {
        let mut forged = original.clone();
        change(&mut forged);
        fs::write(path.join("manifest.json"), forged.to_bytes()).unwrap();
        let result = check(&path, what);
        assert!(what == "long payloads" || result.is_err(), "{what}");
    }
    // Endless and deep JSON.
    fs::write(path.join("manifest.json"), vec![b'['; 1 << 20]).unwrap();
    check(&path, "deep JSON").unwrap_err();
    let file = fs::File::create(path.join("manifest.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    drop(file);
    // It is read up to the longest that a manifest may be, and is never all zeros.
    let before = USED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    assert!(everything(&path).is_err());
    assert!(PEAK.load(Ordering::Relaxed) - before < 1 << 30);
    fs::write(path.join("manifest.json"), original.to_bytes()).unwrap();

    // What the index claims, with a manifest that allows it.
    let index = fs::read(path.join("index.bin")).unwrap();
    for field in [0, 8, 16] {
        for codec in [0, 1, 2] {
            for absurd in ABSURD {
                let mut wrong = index.clone();
                wrong[32 + field..40 + field].copy_from_slice(&absurd.to_le_bytes());
                wrong[32 + 28] = codec;
                fs::write(path.join("index.bin"), wrong).unwrap();
                vouch(&path, |forged| (forged.payload_bytes, forged.max_payload_bytes) = (u64::MAX, u64::MAX));
                let result = check(&path, &format!("index, field at {field}, codec {codec}, {absurd}"));
                assert!(result.is_err());
                fs::write(path.join("manifest.json"), original.to_bytes()).unwrap();
            }
        }
    }
    fs::write(path.join("index.bin"), &index).unwrap();

    // What Arrow's messages claim: lengths, counts and offsets stand somewhere in the footer and before each batch, so
    // every place is tried, in both widths that they have.
    let metadata = fs::read(path.join("metadata.arrow")).unwrap();
    let mut refused = 0;
    let regions = original.metadata.batches.iter().chain([&original.metadata.footer]);
    for region in regions.map(|region| region.offset..region.offset + region.bytes) {
        let (start, end) = (usize::try_from(region.start).unwrap(), usize::try_from(region.end).unwrap());
        for place in (start..end - 8).step_by(4) {
            for absurd in ABSURD {
                for width in [4, 8] {
                    let mut wrong = metadata.clone();
                    wrong[place..place + width].copy_from_slice(&absurd.to_le_bytes()[..width]);
                    fs::write(path.join("metadata.arrow"), &wrong).unwrap();
                    vouch(&path, |forged| {
                        for region in forged.metadata.batches.iter_mut().chain([&mut forged.metadata.footer]) {
                            let (start, bytes) = (region.offset, region.bytes);
                            let (start, bytes) = (usize::try_from(start).unwrap(), usize::try_from(bytes).unwrap());
                            region.xxh3 = xxh3_64(&wrong[start..start + bytes]);
                        }
                    });
                    let what = format!("metadata, {width} bytes at {place}, {absurd}");
                    refused += usize::from(check(&path, &what).is_err());
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused}");

    // Records that unpack to 256 MiB and claim less, and one that claims more than it can hold.
    let bombs = [(2, zstd_bomb(2_048)), (1, lz4_bomb(1 << 20))];
    for (codec, bomb) in &bombs {
        let claimed = bomb.len() as u64 + 10;
        let root = tempfile::tempdir().unwrap();
        let path = forged_record(root.path(), *codec, bomb, claimed);
        let error = check(&path, &format!("bomb, codec {codec}")).unwrap_err();
        assert!(matches!(error, Error::RecordCodec { sample: 0, .. }), "{error}");
        let root = tempfile::tempdir().unwrap();
        let path = forged_record(root.path(), *codec, &bomb[..1_000], 1 << 40);
        let error = check(&path, &format!("claim, codec {codec}")).unwrap_err();
        assert!(matches!(error, Error::IndexEntry { field: "payload length", .. }), "{error}");
    }
}
