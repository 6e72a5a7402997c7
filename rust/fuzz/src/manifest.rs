//! Any bytes are a manifest that keeps all its rules and comes back as it went, or an error.

use std::path::Path;

use dataset_rt_core::format::{INDEX_FILE, METADATA_FILE, Manifest, cache_id};

const FILE: &str = "cache/manifest.json";
const DIGEST_KEY: &[u8] = b"\"digest\":\"";
const DIGEST_DIGITS: usize = 64;

/// Tries the bytes as they are, and with the digest that they would need: no made-up bytes have that by chance, and
/// everything behind it would never be reached.
pub fn check(bytes: &[u8]) -> bool {
    let sealed_is_taken = sealed(bytes).is_some_and(|sealed| check_one(&sealed));
    check_one(bytes) || sealed_is_taken
}

fn check_one(bytes: &[u8]) -> bool {
    let Ok(manifest) = Manifest::parse(bytes, Path::new(FILE)) else { return false };
    assert_eq!(manifest.to_bytes(), bytes, "a manifest has one form");
    assert!(manifest.samples > 0);
    assert_eq!(manifest.cache_id(), cache_id(&manifest.content_digest));
    assert_eq!(manifest.files.len(), manifest.shards() as usize + 2);
    for name in manifest.files.keys() {
        let number = name.strip_prefix("shards/").and_then(|name| name.strip_suffix(".bin"));
        let shard = number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()));
        assert!(name == INDEX_FILE || name == METADATA_FILE || shard, "{name:?} may lie outside the cache's folder");
    }
    assert!(manifest.max_payload_bytes <= manifest.payload_bytes);
    let metadata_bytes = manifest.files[METADATA_FILE].bytes;
    for region in manifest.metadata.batches.iter().chain([&manifest.metadata.footer]) {
        assert!(region.end().is_some_and(|end| end <= metadata_bytes), "a region past the file's end");
    }
    true
}

/// The bytes with the digest of a manifest that stands so.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let start = bytes.windows(DIGEST_KEY.len()).position(|window| window == DIGEST_KEY)?;
    let digits = start + DIGEST_KEY.len();
    // The closing quotation mark and the comma.
    let end = digits + DIGEST_DIGITS + 2;
    let without = [bytes.get(..start)?, bytes.get(end..)?].concat();
    let digest = blake3::hash(&without).to_hex();
    let mut sealed = bytes.to_vec();
    sealed.get_mut(digits..digits + DIGEST_DIGITS)?.copy_from_slice(digest.as_bytes());
    Some(sealed)
}
