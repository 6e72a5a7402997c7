//! The codecs: what goes in comes out, the bytes depend on nothing else, and hostile records are refused.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::path::Path;

use dataset_rt_core::format::{Codec, Compression, Decoder, Encoder, check_claimed_length};
use dataset_rt_core::{Error, SampleId};
use proptest::prelude::*;

const FILE: &str = "cache/shards/000000.bin";

fn settings() -> Vec<Compression> {
    let zstd = [None, Some(-5), Some(1), Some(3), Some(5), Some(6), Some(9), Some(12), Some(15), Some(19), Some(22)];
    zstd.into_iter()
        .map(|level| Compression::new(Codec::Zstd, level).unwrap())
        .chain([Compression::new(Codec::None, None).unwrap(), Compression::new(Codec::Lz4, None).unwrap()])
        .collect()
}

fn decode(codec: Codec, stored: &[u8], payload_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut payload = vec![0xA5; payload_bytes];
    Decoder::new().decode(codec, stored, &mut payload, Path::new(FILE), SampleId(3))?;
    Ok(payload)
}

fn refusal(codec: Codec, stored: &[u8], payload_bytes: usize) -> String {
    let error = decode(codec, stored, payload_bytes).unwrap_err();
    assert!(matches!(error, Error::RecordCodec { sample: 3, .. }));
    let message = error.to_string();
    let start = format!("{FILE}: sample 3: {} data of {payload_bytes} bytes expected, found ", codec.name());
    message.strip_prefix(&start).unwrap_or_else(|| unreachable!("{message}")).to_owned()
}

/// Bytes that pack well in places: words drawn from a small set, by a linear congruential generator.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut bytes = Vec::with_capacity(length + 16);
    while bytes.len() < length {
        match next() % 8 {
            0 => bytes.extend(next().to_le_bytes()),
            word => bytes.extend(format!("word{} ", (word * 31 + next() % 9) % 97).bytes()),
        }
    }
    bytes.truncate(length);
    bytes
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        (any::<u8>(), 0..70_000_usize).prop_map(|(byte, length)| vec![byte; length]),
        (any::<u64>(), 0..20_000_usize).prop_map(|(seed, length)| text(seed, length)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_goes_in_comes_out(payload in payloads()) {
        for compression in settings() {
            let mut encoder = Encoder::new(compression).unwrap();
            let (codec, stored) = encoder.encode(&payload).unwrap();
            prop_assert_eq!(codec == Codec::None, stored.len() == payload.len());
            prop_assert!(stored.len() <= payload.len());
            prop_assert!(codec == Codec::None || codec == compression.algo());
            prop_assert_eq!(&decode(codec, stored, payload.len()).unwrap(), &payload);
        }
    }

    #[test]
    fn random_records_are_errors_or_payloads_and_never_panics(
        stored in proptest::collection::vec(any::<u8>(), 0..200),
        payload_bytes in 0..400_usize,
    ) {
        let mut decoder = Decoder::new();
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let mut payload = vec![0; payload_bytes];
            let decoded = decoder.decode(codec, &stored, &mut payload, Path::new(FILE), SampleId(0));
            let named = matches!(decoded, Ok(()) | Err(Error::RecordCodec { .. }));
            prop_assert!(named);
        }
    }
}

#[test]
fn a_record_does_not_depend_on_those_before_it() {
    let lengths = [1, 40, 1_000, 65_534, 65_535, 65_536, 300_000, 7, 131_072, 20_000];
    let inputs: Vec<_> =
        (0..).zip(lengths.into_iter().cycle()).take(30).map(|(seed, length)| text(seed, length)).collect();
    for compression in settings() {
        let fresh: Vec<_> = inputs
            .iter()
            .map(|payload| {
                let mut encoder = Encoder::new(compression).unwrap();
                let (codec, stored) = encoder.encode(payload).unwrap();
                (codec, stored.to_vec())
            })
            .collect();
        for (first, stride) in [(0, 1), (7, 11), (29, 17)] {
            let mut encoder = Encoder::new(compression).unwrap();
            for step in 0..inputs.len() {
                let number = (first + step * stride) % inputs.len();
                let (codec, stored) = encoder.encode(&inputs[number]).unwrap();
                assert_eq!((codec, stored), (fresh[number].0, fresh[number].1.as_slice()), "{compression:?} {number}");
            }
        }
    }
}

#[test]
fn records_are_plain_blocks_and_frames_of_their_formats() {
    let payload = vec![b'a'; 100];
    let mut lz4 = Encoder::new(Compression::new(Codec::Lz4, None).unwrap()).unwrap();
    let (codec, stored) = lz4.encode(&payload).unwrap();
    assert_eq!(codec, Codec::Lz4);
    // One literal, a match at distance 1, then the last five literals: no length before them.
    assert_eq!(stored[0], 0x1F);
    assert_eq!(&stored[1..4], b"a\x01\x00");
    let mut zstd = Encoder::new(Compression::new(Codec::Zstd, Some(1)).unwrap()).unwrap();
    let (codec, stored) = zstd.encode(&payload).unwrap();
    assert_eq!(codec, Codec::Zstd);
    assert_eq!(&stored[..4], [0x28, 0xB5, 0x2F, 0xFD]);
}

#[test]
fn what_does_not_shrink_and_what_is_empty_stay_plain() {
    for compression in settings() {
        let mut encoder = Encoder::new(compression).unwrap();
        for payload in [&b""[..], b"a", b"abcdefgh", &(0..=255).collect::<Vec<u8>>()] {
            assert_eq!(encoder.encode(payload).unwrap(), (Codec::None, payload));
        }
    }
}

#[test]
fn levels_belong_to_zstd_and_to_its_range() {
    let refusal = |algo, level| Compression::new(algo, Some(level)).unwrap_err().to_string();
    assert_eq!(refusal(Codec::Lz4, 3), "compression level must be None for lz4, got 3; only zstd has levels");
    assert_eq!(refusal(Codec::None, 0), "compression level must be None for none, got 0; only zstd has levels");
    assert_eq!(refusal(Codec::Zstd, 23), "zstd compression level must be in [-131072, 22], got 23");
    assert_eq!(refusal(Codec::Zstd, -131_073), "zstd compression level must be in [-131072, 22], got -131073");
    let compression = Compression::new(Codec::Zstd, Some(-131_072)).unwrap();
    assert_eq!((compression.algo(), compression.level()), (Codec::Zstd, Some(-131_072)));
}

#[test]
fn a_record_must_fill_its_payload_exactly() {
    let payload = text(1, 5_000);
    assert_eq!(refusal(Codec::None, &payload, 4_999), "5000 bytes");
    assert_eq!(refusal(Codec::None, &payload, 5_001), "5000 bytes");
    for compression in settings().into_iter().filter(|compression| compression.algo() != Codec::None) {
        let mut encoder = Encoder::new(compression).unwrap();
        let (codec, stored) = encoder.encode(&payload).unwrap();
        assert_eq!(codec, compression.algo());
        assert_eq!(refusal(codec, stored, 5_001), "5000 bytes");
        assert!(!refusal(codec, stored, 4_999).is_empty());
        assert!(!refusal(codec, stored, 0).is_empty());
        for length in 0..stored.len() {
            refusal(codec, &stored[..length], payload.len());
        }
        let mut longer = stored.to_vec();
        longer.push(0);
        refusal(codec, &longer, payload.len());
    }
}

#[test]
fn a_second_frame_and_a_skippable_one_are_refused() {
    let payload = text(2, 1_000);
    let mut encoder = Encoder::new(Compression::new(Codec::Zstd, None).unwrap()).unwrap();
    let frame = encoder.encode(&payload).unwrap().1.to_vec();
    let twice = [frame.clone(), frame.clone()].concat();
    assert_eq!(refusal(Codec::Zstd, &twice, 2_000), format!("{0} bytes after a frame of {0}", frame.len()));
    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &frame].concat();
    assert_eq!(refusal(Codec::Zstd, &skippable, 1_000), format!("{} bytes after a frame of 11", frame.len()));
    assert_eq!(refusal(Codec::Zstd, &skippable[..11], 20), "0 bytes");
    assert_eq!(refusal(Codec::Zstd, b"not a frame at all", 20), "Unknown frame descriptor");
}

#[test]
fn a_bomb_ends_at_the_payload() {
    // 64 MiB of zeros in a few kilobytes, offered as a payload of 100 bytes.
    let bomb = vec![0; 64 << 20];
    for compression in [Compression::new(Codec::Zstd, Some(1)).unwrap(), Compression::new(Codec::Lz4, None).unwrap()] {
        let mut encoder = Encoder::new(compression).unwrap();
        let (codec, stored) = encoder.encode(&bomb).unwrap();
        assert!(stored.len() < 300_000);
        assert!(!refusal(codec, stored, 100).is_empty());
    }
    // A frame of a few bytes that says it holds 2⁶² of them.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xE0];
    frame.extend((1_u64 << 62).to_le_bytes());
    frame.extend([0x03, 0x00, 0x00, 0x41]);
    assert!(!refusal(Codec::Zstd, &frame, 100).is_empty());
}

#[test]
fn no_record_holds_more_than_its_length_allows() {
    assert_eq!(Codec::None.most_payload_bytes(7), 7);
    assert_eq!(Codec::Lz4.most_payload_bytes(2), 510);
    assert_eq!(Codec::Zstd.most_payload_bytes(u64::MAX), u64::MAX);
    let zeros = vec![0; 32 << 20];
    let levels = [-5, 1, 3, 19, 22].map(|level| Compression::new(Codec::Zstd, Some(level)).unwrap());
    for compression in levels.into_iter().chain([Compression::new(Codec::Lz4, None).unwrap()]) {
        let mut encoder = Encoder::new(compression).unwrap();
        for length in [100, 1 << 10, 128 << 10, (128 << 10) + 1, 32 << 20] {
            let (codec, stored) = encoder.encode(&zeros[..length]).unwrap();
            assert!(length as u64 <= codec.most_payload_bytes(stored.len() as u64), "{compression:?}, {length}");
        }
    }
    // As dense as a frame can be: blocks that repeat one byte.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 7 << 3];
    for block in 1..=64_u32 {
        let header = ((128 << 10) << 3) | (1 << 1) | u32::from(block == 64);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    let payload = decode(Codec::Zstd, &frame, 8 << 20).unwrap();
    assert!(payload.len() as u64 <= Codec::Zstd.most_payload_bytes(frame.len() as u64));
}

#[test]
fn a_changed_record_is_an_error_or_other_bytes_and_never_a_panic() {
    let payload = text(3, 3_000);
    for compression in [Compression::new(Codec::Zstd, Some(3)).unwrap(), Compression::new(Codec::Lz4, None).unwrap()] {
        let mut encoder = Encoder::new(compression).unwrap();
        let (codec, stored) = encoder.encode(&payload).unwrap();
        let mut decoder = Decoder::new();
        let mut room = vec![0; payload.len()];
        let mut refused = 0;
        for place in 0..stored.len() {
            for bit in 0..8 {
                let mut changed = stored.to_vec();
                changed[place] ^= 1 << bit;
                let decoded = decoder.decode(codec, &changed, &mut room, Path::new(FILE), SampleId(0));
                refused += u32::from(decoded.is_err());
            }
        }
        assert!(refused > 0);
        // The decoder is none the worse for it.
        decoder.decode(codec, stored, &mut room, Path::new(FILE), SampleId(0)).unwrap();
        assert_eq!(room, payload);
    }
}

#[test]
fn a_record_that_claims_another_length_than_the_index_is_refused_before_it_is_unpacked() {
    let payload = text(5, 5000);
    for settings in settings() {
        let mut encoder = Encoder::new(settings).unwrap();
        let (codec, stored) = encoder.encode(&payload).unwrap();
        let check = |expected: u64| check_claimed_length(codec, stored, expected, Path::new(FILE), SampleId(3));
        check(5000).unwrap();
        for absurd in [0, 4999, 5001, 941 << 20, u64::MAX] {
            if codec == Codec::Zstd {
                let message = check(absurd).unwrap_err().to_string();
                assert!(
                    message.ends_with(&format!("zstd data of {absurd} bytes expected, found 5000 bytes")),
                    "{message}"
                );
            } else {
                check(absurd).unwrap();
            }
        }
    }
}
