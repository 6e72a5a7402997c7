//! Any bytes are an index whose entries stay inside what the manifest allows, or an error.

use std::path::Path;

use dataset_rt_core::SampleId;
use dataset_rt_core::format::{
    EntryLimits, INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, IndexEntry, SHARD_HEADER_BYTES, check_index_header,
    check_shard_header, encode_index_header, encode_shard_header,
};

const FILE: &str = "cache/index.bin";

/// The first bytes are the limits that a manifest would set, the next 32 the header, and the rest entries.
pub fn check(bytes: &[u8]) -> bool {
    let Some((settings, bytes)) = bytes.split_first_chunk::<13>() else { return false };
    let mut taken = false;
    let [samples, shards, payload_bits, stored_bits, shard, ..] = *settings;
    let limits = EntryLimits {
        shards: u32::from(shards) + 1,
        max_payload_bytes: u64::MAX >> (payload_bits % 64),
        stored_bytes: u64::MAX >> (stored_bits % 64),
    };
    let samples = u64::from(samples) + 1;
    let (header, entries) = bytes.split_at(bytes.len().min(INDEX_HEADER_BYTES));
    if check_index_header(header, samples, Path::new(FILE)).is_ok() {
        assert_eq!(header, encode_index_header(samples));
        taken = true;
    }
    if check_shard_header(header, u32::from(shard), Path::new(FILE)).is_ok() {
        assert_eq!(header, encode_shard_header(u32::from(shard)));
        taken = true;
    }
    for (sample, entry) in (0..).zip(entries.chunks(INDEX_ENTRY_BYTES)) {
        let Ok(parsed) = IndexEntry::parse(entry, SampleId(sample), &limits, Path::new(FILE)) else { continue };
        assert_eq!(parsed.encode().as_slice(), entry, "an entry has one form");
        assert!(parsed.shard < limits.shards);
        assert!(parsed.offset >= SHARD_HEADER_BYTES as u64);
        assert!(parsed.offset.checked_add(parsed.stored_bytes).is_some());
        assert!(parsed.payload_bytes <= limits.max_payload_bytes);
        assert!(parsed.stored_bytes <= parsed.payload_bytes && parsed.stored_bytes <= limits.stored_bytes);
        taken = true;
    }
    taken
}
