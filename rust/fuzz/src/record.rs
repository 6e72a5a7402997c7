//! Any bytes unpack to exactly the length asked for, or are an error; and what is packed comes back.

use std::path::Path;

use dataset_rt_core::SampleId;
use dataset_rt_core::format::{Codec, Compression, Decoder, Encoder};

const FILE: &str = "cache/shards/000000.bin";

/// The first byte chooses the codec, the next two are the payload's length, and the rest is the record.
pub fn check(bytes: &[u8]) -> bool {
    let Some((settings, stored)) = bytes.split_first_chunk::<3>() else { return false };
    let [choice, low, high] = *settings;
    let Some(codec) = Codec::from_byte(choice % 3) else { return false };
    let mut decoder = Decoder::new();

    let mut payload = vec![0xA5; usize::from(u16::from_le_bytes([low, high]))];
    let first = decoder.decode(codec, stored, &mut payload, Path::new(FILE), SampleId(1)).map(|()| payload.clone());
    // A decoder keeps its tables: what it made before must not change what it makes.
    payload.fill(0x5A);
    let second = decoder.decode(codec, stored, &mut payload, Path::new(FILE), SampleId(1)).map(|()| payload);
    let taken = first.is_ok();
    match (first, second) {
        (Ok(first), Ok(second)) => assert_eq!(first, second, "every byte of the payload is written"),
        (Err(first), Err(second)) => {
            assert_eq!(first.to_string(), second.to_string());
            assert_eq!(first.fault().map(|fault| fault.sample), Some(Some(1)));
        }
        (first, second) => panic!("{first:?}, then {second:?}"),
    }

    let compression = Compression::new(codec, None).expect("no level is a level of every codec");
    let mut encoder = Encoder::new(compression).expect("memory for tables");
    let (packed_as, packed) = encoder.encode(stored).expect("memory for tables");
    let mut back = vec![0; stored.len()];
    decoder.decode(packed_as, packed, &mut back, Path::new(FILE), SampleId(2)).expect("what was packed unpacks");
    assert_eq!(back, stored);
    taken
}
