//! The index and the shards' headers: their bytes, every rule, and every flipped byte.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::path::Path;

use dataset_rt_core::format::{
    Codec, EntryLimits, INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, IndexEntry, SHARD_HEADER_BYTES, check_index_header,
    check_shard_header, encode_index_header, encode_shard_header, shard_file_name,
};
use dataset_rt_core::{Error, SampleId};
use proptest::prelude::*;

const INDEX: &str = "cache/index.bin";
const SHARD: &str = "cache/shards/000007.bin";
const LIMITS: EntryLimits = EntryLimits { shards: 3, max_payload_bytes: 1_000, stored_bytes: 900 };
const ENTRY: IndexEntry = IndexEntry {
    offset: 0x0102_0304,
    stored_bytes: 258,
    payload_bytes: 772,
    shard: 2,
    codec: Codec::Zstd,
    check: 0x1122_3344_5566_7788,
};

fn parse(bytes: &[u8]) -> Result<IndexEntry, Error> {
    IndexEntry::parse(bytes, SampleId(5), &LIMITS, Path::new(INDEX))
}

fn refusal(entry: IndexEntry) -> String {
    let error = parse(&entry.encode()).unwrap_err();
    assert!(matches!(error, Error::IndexEntry { sample: 5, .. }));
    error.to_string().strip_prefix("cache/index.bin: sample 5: ").unwrap().to_owned()
}

#[test]
fn the_headers_are_pinned() {
    let header = encode_index_header(0x0807_0605_0403_0201);
    assert_eq!(INDEX_HEADER_BYTES, 32);
    assert_eq!(&header, b"DRTINDEX\x01\0\0\0\x28\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\0");
    assert_eq!(SHARD_HEADER_BYTES, 16);
    assert_eq!(&encode_shard_header(0x0403_0201), b"DRTSHARD\x01\0\0\0\x01\x02\x03\x04");
    assert_eq!(
        [0, 7, 999_999, 1_000_000, u32::MAX].map(shard_file_name),
        ["000000.bin", "000007.bin", "999999.bin", "1000000.bin", "4294967295.bin"]
    );
}

#[test]
fn an_entry_is_pinned() {
    assert_eq!(INDEX_ENTRY_BYTES, 40);
    let mut bytes = vec![4, 3, 2, 1, 0, 0, 0, 0];
    bytes.extend([2, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend([4, 3, 0, 0, 0, 0, 0, 0]);
    bytes.extend([2, 0, 0, 0]);
    bytes.extend([2, 0, 0, 0]);
    bytes.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    assert_eq!(ENTRY.encode().as_slice(), bytes);
    assert_eq!(parse(&bytes).unwrap(), ENTRY);
}

#[test]
fn every_flipped_byte_of_a_header_is_found_with_its_field() {
    let field = |place| match place {
        0..8 => "magic",
        8..12 => "format version",
        12..16 => "entry size",
        16..24 => "sample count",
        _ => "reserved field",
    };
    check_index_header(&encode_index_header(70_000), 70_000, Path::new(INDEX)).unwrap();
    for place in 0..INDEX_HEADER_BYTES {
        for bit in 0..8 {
            let mut header = encode_index_header(70_000);
            header[place] ^= 1 << bit;
            let error = check_index_header(&header, 70_000, Path::new(INDEX)).unwrap_err();
            assert_eq!(matches!(error, Error::Version { .. }), (8..12).contains(&place));
            assert!(error.to_string().starts_with(&format!("{INDEX}: {}", field(place))), "{error}");
        }
    }
    check_shard_header(&encode_shard_header(7), 7, Path::new(SHARD)).unwrap();
    for place in 0..SHARD_HEADER_BYTES {
        for bit in 0..8 {
            let mut header = encode_shard_header(7);
            header[place] ^= 1 << bit;
            let error = check_shard_header(&header, 7, Path::new(SHARD)).unwrap_err();
            let field = if place < 12 { field(place) } else { "shard number" };
            assert!(error.to_string().starts_with(&format!("{SHARD}: {field}")), "{error}");
        }
    }
}

#[test]
fn the_messages_about_headers_say_what_was_found() {
    let index = |bytes: &[u8]| check_index_header(bytes, 9, Path::new(INDEX)).unwrap_err().to_string();
    let good = encode_index_header(9);
    assert_eq!(index(&[]), "cache/index.bin: header of 32 bytes expected at offset 0, found 0 bytes");
    assert_eq!(index(&good[..31]), "cache/index.bin: header of 32 bytes expected at offset 0, found 31 bytes");
    assert_eq!(index(&encode_index_header(8)), "cache/index.bin: sample count 9 expected at offset 16, found 8");
    let mut other = good;
    other[..8].copy_from_slice(b"DRTSHARD");
    assert_eq!(index(&other), "cache/index.bin: magic \"DRTINDEX\" expected at offset 0, found \"DRTSHARD\"");
    other = good;
    other[8] = 2;
    assert_eq!(
        index(&other),
        "cache/index.bin: format version 1 expected, found 2; install a release of dataset-rt that reads it"
    );
    other = good;
    other[12] = 48;
    assert_eq!(index(&other), "cache/index.bin: entry size 40 expected at offset 12, found 48");
    other = good;
    other[31] = 1;
    assert_eq!(index(&other), "cache/index.bin: reserved field 0 expected at offset 24, found 72057594037927936");
    let shard = check_shard_header(&encode_shard_header(8), 7, Path::new(SHARD)).unwrap_err().to_string();
    assert_eq!(shard, "cache/shards/000007.bin: shard number 7 expected at offset 12, found 8");
}

#[test]
fn each_rule_for_an_entry_is_named_with_the_value() {
    let plain = IndexEntry { codec: Codec::None, stored_bytes: 772, ..ENTRY };
    assert_eq!(parse(&plain.encode()).unwrap(), plain);
    let empty = IndexEntry { stored_bytes: 0, payload_bytes: 0, codec: Codec::None, ..ENTRY };
    assert_eq!(parse(&empty.encode()).unwrap(), empty);
    let first = IndexEntry { offset: 16, ..ENTRY };
    assert_eq!(parse(&first.encode()).unwrap(), first);

    assert_eq!(refusal(IndexEntry { offset: 15, ..ENTRY }), "offset of at least 16 expected, found 15");
    assert_eq!(
        refusal(IndexEntry { offset: u64::MAX - 100, ..ENTRY }),
        format!("stored length of at most 100 with offset {} expected, found 258", u64::MAX - 100)
    );
    assert_eq!(refusal(IndexEntry { shard: 3, ..ENTRY }), "shard below 3 expected, found 3");
    assert_eq!(
        refusal(IndexEntry { payload_bytes: 1_001, ..ENTRY }),
        "payload length of at most 1000 expected, found 1001"
    );
    assert_eq!(
        refusal(IndexEntry { stored_bytes: 773, ..ENTRY }),
        "stored length of at most the payload's 772 expected, found 773"
    );
    assert_eq!(
        refusal(IndexEntry { stored_bytes: 772, ..ENTRY }),
        "stored length below the payload's 772 for codec zstd expected, found 772"
    );
    assert_eq!(
        refusal(IndexEntry { codec: Codec::None, ..ENTRY }),
        "stored length equal to the payload's 772 for codec none expected, found 258"
    );
    let long = IndexEntry { stored_bytes: 901, payload_bytes: 950, ..ENTRY };
    assert_eq!(refusal(long), "stored length of at most 900 expected, found 901");
    let full = IndexEntry { codec: Codec::Lz4, stored_bytes: 3, payload_bytes: 765, ..ENTRY };
    assert_eq!(parse(&full.encode()).unwrap(), full);
    assert_eq!(
        refusal(IndexEntry { payload_bytes: 766, ..full }),
        "payload length of at most the 765 that 3 bytes of lz4 can hold expected, found 766"
    );
    assert_eq!(
        refusal(IndexEntry { stored_bytes: 0, ..ENTRY }),
        "payload length of at most the 0 that 0 bytes of zstd can hold expected, found 772"
    );
    let mut bytes = ENTRY.encode();
    bytes[28] = 3;
    assert_eq!(parse(&bytes).unwrap_err().to_string(), "cache/index.bin: sample 5: codec 0, 1 or 2 expected, found 3");
    bytes = ENTRY.encode();
    bytes[30] = 9;
    assert_eq!(
        parse(&bytes).unwrap_err().to_string(),
        "cache/index.bin: sample 5: padding of zeros expected, found [0, 9, 0]"
    );
    for length in [0, 39] {
        assert_eq!(
            parse(&ENTRY.encode()[..length]).unwrap_err().to_string(),
            format!("cache/index.bin: sample 5: entry of 40 bytes expected, found {length} bytes")
        );
    }
}

proptest! {
    #[test]
    fn random_entries_are_errors_or_keep_the_rules(bytes in proptest::array::uniform32(any::<u8>()), small in any::<bool>()) {
        let mut entry = [0; INDEX_ENTRY_BYTES];
        entry[..32].copy_from_slice(&bytes);
        if small {
            // Numbers small enough to be taken now and then.
            [2..8, 10..16, 18..24, 25..28, 29..32].into_iter().for_each(|zeros| entry[zeros].fill(0));
        }
        if let Ok(parsed) = parse(&entry) {
            prop_assert_eq!(parsed.encode(), entry);
            prop_assert!(parsed.offset >= 16 && parsed.offset.checked_add(parsed.stored_bytes).is_some());
            prop_assert!(parsed.stored_bytes <= parsed.payload_bytes && parsed.payload_bytes <= 1_000);
            prop_assert!(parsed.shard < 3);
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_went(
        offset in 16..u64::MAX / 2, payload_bytes in 0..=900_u64, shorter in 0..1_000_u64, shard in 0..3_u32,
        packed in any::<bool>(), check in any::<u64>(),
    ) {
        let least = payload_bytes.div_ceil(255);
        let shortest = payload_bytes.saturating_sub(1 + shorter).max(least);
        let stored_bytes = if packed { shortest } else { payload_bytes };
        let codec = if stored_bytes < payload_bytes { Codec::Lz4 } else { Codec::None };
        let entry = IndexEntry { offset, stored_bytes, payload_bytes, shard, codec, check };
        prop_assert_eq!(parse(&entry.encode()).unwrap(), entry);
    }
}
