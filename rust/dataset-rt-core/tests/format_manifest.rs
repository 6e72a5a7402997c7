//! The manifest: its bytes, every rule, and every flipped byte.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::Path;

use dataset_rt_core::Error;
use dataset_rt_core::format::{
    Codec, Column, ColumnKind, Compression, Digest, FileRecord, Manifest, MetadataRegions, Region, WRITER, cache_id,
};

const FILE: &str = "cache/manifest.json";

/// A manifest of three samples in one shard.
fn manifest() -> Manifest {
    let file = |number, bytes| FileRecord { blake3: Digest([number; 32]), bytes };
    Manifest {
        attributes: BTreeMap::from([
            ("licence".to_owned(), "CC0 \"1.0\"\n\u{1f}\u{7f}/ü".to_owned()),
            ("".to_owned(), "".to_owned()),
        ]),
        codec: Compression::new(Codec::Zstd, Some(7)).unwrap(),
        columns: vec![
            Column { has_nulls: true, kind: ColumnKind::String, name: "label".to_owned() },
            Column { has_nulls: false, kind: ColumnKind::Datetime, name: "at".to_owned() },
        ],
        content_digest: Digest([0xAB; 32]),
        files: BTreeMap::from([
            ("index.bin".to_owned(), file(1, 32 + 3 * 40)),
            ("metadata.arrow".to_owned(), file(2, 1_000)),
            ("shards/000000.bin".to_owned(), file(3, 16 + 250)),
        ]),
        max_payload_bytes: 200,
        metadata: MetadataRegions {
            batches: vec![Region { bytes: 500, offset: 300, xxh3: 0x0123_4567_89AB_CDEF }],
            footer: Region { bytes: 190, offset: 810, xxh3: 7 },
        },
        payload_bytes: 400,
        samples: 3,
        source_name: "train".to_owned(),
        stored_bytes: 250,
        writer: "dataset-rt 1.0.0".to_owned(),
    }
}

fn parse(bytes: &[u8]) -> Result<Manifest, Error> {
    Manifest::parse(bytes, Path::new(FILE))
}

/// The message about `bytes`, without the file's name.
fn refusal(bytes: &[u8]) -> String {
    let error = parse(bytes).unwrap_err();
    assert!(matches!(error, Error::Manifest { .. }), "{error}");
    error.to_string().strip_prefix("cache/manifest.json: ").unwrap().to_owned()
}

/// The message about the manifest after `change`, with a digest that fits.
fn changed(change: impl FnOnce(&mut Manifest)) -> String {
    let mut manifest = manifest();
    change(&mut manifest);
    refusal(&manifest.to_bytes())
}

/// `manifest()` with `from` replaced by `to` in its text, and the digest of the result.
fn edited(from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(manifest().to_bytes()).unwrap();
    let start = text.find(",\"digest\":").unwrap();
    let end = start + ",\"digest\":\"\"".len() + 64;
    let without = format!("{}{}", &text[..start], &text[end..]);
    assert_eq!(without.matches(from).count(), 1, "{from}");
    let without = without.replacen(from, to, 1);
    let digest = Digest::of(without.as_bytes());
    let start = without.find(",\"files\":").unwrap();
    format!("{},\"digest\":\"{digest}\"{}", &without[..start], &without[start..]).into_bytes()
}

#[test]
fn the_bytes_are_pinned() {
    let without_digest = concat!(
        r#"{"attributes":{"":"","licence":"CC0 \"1.0\"\n\u001f"#,
        "\u{7f}",
        r#"/ü"},"cache_id":"2babababababab"#,
        r#"ab","codec":{"algo":"zstd","level":7},"columns":[{"has_nulls":true,"kind":"String","name":"label"},"#,
        r#"{"has_nulls":false,"kind":"Datetime","name":"at"}],"content_digest":"#,
        r#""abababababababababababababababababababababababababababababababab","files":{"index.bin":{"blake3":"#,
        r#""0101010101010101010101010101010101010101010101010101010101010101","bytes":152},"metadata.arrow":"#,
        r#"{"blake3":"0202020202020202020202020202020202020202020202020202020202020202","bytes":1000},"#,
        r#""shards/000000.bin":{"blake3":"0303030303030303030303030303030303030303030303030303030303030303","#,
        r#""bytes":266}},"format":"dataset-rt","format_version":1,"max_payload_bytes":200,"metadata":{"batches":"#,
        r#"[{"bytes":500,"offset":300,"xxh3":"0123456789abcdef"}],"footer":{"bytes":190,"offset":810,"xxh3":"#,
        r#""0000000000000007"}},"payload_bytes":400,"samples":3,"source_name":"train","stored_bytes":250,"#,
        r#""writer":"dataset-rt 1.0.0"}"#,
    );
    let digest = blake3::hash(without_digest.as_bytes()).to_hex();
    let expected = without_digest.replacen(",\"files\":", &format!(",\"digest\":\"{digest}\",\"files\":"), 1);
    assert_eq!(String::from_utf8(manifest().to_bytes()).unwrap(), expected);
    assert_eq!(digest.as_str(), "be70db2d7e7747468c5f867a1d85fd24b36e5333b010804a7c3360cd8fa959fd");
    assert!(WRITER.starts_with("dataset-rt "));
}

#[test]
fn a_manifest_comes_back_as_it_went() {
    let manifest = manifest();
    let parsed = parse(&manifest.to_bytes()).unwrap();
    assert_eq!(parsed, manifest);
    assert_eq!(parsed.shards(), 1);
    assert_eq!(parsed.cache_id(), cache_id(&manifest.content_digest));

    let mut bare = manifest;
    bare.attributes.clear();
    bare.columns.clear();
    bare.codec = Compression::new(Codec::None, None).unwrap();
    bare.payload_bytes = 0;
    bare.max_payload_bytes = 0;
    bare.stored_bytes = 0;
    bare.files.get_mut("shards/000000.bin").unwrap().bytes = 16;
    assert_eq!(parse(&bare.to_bytes()).unwrap(), bare);
}

#[test]
fn shards_past_six_digits_are_in_order() {
    // Their paths sort as text, not as numbers; with a million samples of one byte a shard each.
    let mut manifest = manifest();
    let shards = 1_000_002;
    manifest.samples = shards;
    manifest.payload_bytes = shards;
    manifest.stored_bytes = shards;
    manifest.max_payload_bytes = 1;
    manifest.files.get_mut("index.bin").unwrap().bytes = 32 + 40 * shards;
    manifest.metadata.batches = (0..16).map(|number| Region { bytes: 10, offset: 10 * number, xxh3: 0 }).collect();
    for number in 0..shards {
        let record = FileRecord { blake3: Digest([0; 32]), bytes: 17 };
        manifest.files.insert(format!("shards/{number:06}.bin"), record);
    }
    assert_eq!(parse(&manifest.to_bytes()).unwrap().shards(), 1_000_002);
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = manifest().to_bytes();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            let error = parse(&flipped).unwrap_err();
            assert!(error.to_string().starts_with(FILE), "{error}");
        }
    }
}

#[test]
fn every_cut_and_every_addition_is_found() {
    let bytes = manifest().to_bytes();
    assert_eq!(refusal(b""), "a manifest expected, found an empty file");
    for length in 1..bytes.len() {
        assert!(refusal(&bytes[..length]).starts_with("a manifest in JSON expected, found "));
    }
    let canonical = "the canonical form (sorted keys, each once, no whitespace) expected, found another one from byte ";
    for (before, after) in [("", "\n"), (" ", ""), ("", " \t\r\n")] {
        let padded = [before.as_bytes(), &bytes, after.as_bytes()].concat();
        assert!(refusal(&padded).starts_with(canonical));
    }
    for (before, after) in [("", "\0"), ("\u{feff}", ""), ("", "{}")] {
        let padded = [before.as_bytes(), &bytes, after.as_bytes()].concat();
        assert!(refusal(&padded).starts_with("a manifest in JSON expected, found "));
    }
}

#[test]
fn another_form_of_the_same_values_is_refused() {
    let canonical = "the canonical form (sorted keys, each once, no whitespace) expected, found another one from byte ";
    for (from, to) in [
        ("\"samples\":3", "\"samples\": 3"),
        ("\"train\"", "\"\\u0074rain\""),
        ("\\u001f", "\\u001F"),
        ("\u{7f}/", "\u{7f}\\/"),
        ("/ü", "/\\u00fc"),
        ("\"\":\"\"", "\"\":\"\",\"\":\"\""),
        ("\"samples\":3,\"source_name\":\"train\"", "\"source_name\":\"train\",\"samples\":3"),
    ] {
        assert!(refusal(&edited(from, to)).starts_with(canonical), "{to}");
    }
    let json = "a manifest in JSON expected, found ";
    for (from, to, found) in [
        ("\"samples\":3", "\"samples\":3.0", "invalid type: floating point `3.0`, expected u64"),
        ("\"samples\":3", "\"samples\":3e0", "invalid type: floating point `3.0`, expected u64"),
        ("\"samples\":3", "\"samples\":-3", "invalid value: integer `-3`, expected u64"),
        ("\"samples\":3", "\"samples\":-0", "invalid type: floating point `-0.0`, expected u64"),
        ("\"samples\":3", "\"samples\":03", "invalid number"),
        ("\"samples\":3", "\"samples\":18446744073709551616", "invalid type: floating point"),
        ("\"samples\":3", "\"samples\":\"3\"", "invalid type: string \"3\", expected u64"),
        ("\"samples\":3", "\"samples\":3,\"samples\":3", "duplicate field `samples`"),
        ("\"samples\":3", "\"samples\":3,\"sampler\":1", "unknown field `sampler`"),
        ("\"samples\":3,", "", "missing field `samples`"),
        ("\"train\"", "\"tr\\ud800ain\"", "unexpected end of hex escape"),
        ("\"train\"", "\"tr\\udc00ain\"", "lone leading surrogate in hex escape"),
        ("\"algo\":\"zstd\"", "\"algo\":\"gzip\"", "unknown variant `gzip`"),
        ("\"kind\":\"String\"", "\"kind\":\"Categorical\"", "unknown variant `Categorical`"),
        ("\"level\":7", "\"level\":7,\"window\":1", "unknown field `window`"),
        ("\"algo\":\"zstd\"", "\"algo\":\"lz4\"", "codec level null expected for lz4, found 7"),
        ("\"0123456789abcdef\"", "\"0123456789ABCDEF\"", "16 lower-case hexadecimal digits expected, found"),
        ("\"0123456789abcdef\"", "\"123456789abcdef\"", "16 lower-case hexadecimal digits expected, found"),
        ("\"0123456789abcdef\"", "\"+123456789abcdef\"", "16 lower-case hexadecimal digits expected, found"),
        ("\"2babababababab", "\"g", "16 lower-case hexadecimal digits expected, found"),
        (
            "\"content_digest\":\"ab",
            "\"content_digest\":\"AB",
            "a digest must be 64 lower-case hexadecimal digits, got",
        ),
    ] {
        let message = refusal(&edited(from, to));
        assert!(message.starts_with(json) && message.contains(found), "{to}: {message}");
    }
    for bytes in [&b"[]"[..], b"null", b"7", b"\"dataset-rt\"", b"{}", b"\xFF\xFE"] {
        assert!(refusal(bytes).starts_with(json));
    }
    let nested = "[".repeat(1_000_000);
    assert!(refusal(nested.as_bytes()).contains("expected"));
}

#[test]
fn a_level_that_this_release_does_not_know_can_be_read() {
    assert_eq!(parse(&edited("\"level\":7", "\"level\":40")).unwrap().codec.level(), Some(40));
    assert_eq!(parse(&edited("\"level\":7", "\"level\":null")).unwrap().codec.level(), None);
}

#[test]
fn another_version_is_named_before_anything_else() {
    let error = parse(br#"{"format_version":2,"format":"dataset-rt","new":[1.5,{"a":null}]}"#).unwrap_err();
    assert!(matches!(error, Error::Version { expected: 1, found: 2, .. }));
    assert_eq!(
        error.to_string(),
        "cache/manifest.json: format version 1 expected, found 2; install a release of dataset-rt that reads it"
    );
    assert!(matches!(
        parse(&edited("\"format_version\":1", "\"format_version\":0")).unwrap_err(),
        Error::Version { found: 0, .. }
    ));
    assert_eq!(
        refusal(&edited("\"format\":\"dataset-rt\"", "\"format\":\"other\"")),
        "format \"dataset-rt\" expected, found \"other\""
    );
}

#[test]
fn the_digest_and_the_cache_id_must_fit() {
    let text = String::from_utf8(manifest().to_bytes()).unwrap();
    let forged = text.replacen("\"samples\":3", "\"samples\":4", 1);
    let message = refusal(forged.as_bytes());
    assert!(message.starts_with("digest ") && message.contains(" expected, found "), "{message}");

    let start = text.find(",\"digest\":").unwrap();
    let without = format!("{}{}", &text[..start], &text[start + ",\"digest\":\"\"".len() + 64..]);
    assert_eq!(refusal(without.as_bytes()), "a digest expected, found none");

    // The top bit is no part of it, so the digest's own first bytes are not it.
    assert_eq!(
        refusal(&edited("\"cache_id\":\"2b", "\"cache_id\":\"ab")),
        "cache_id 2babababababab".to_owned() + "ab, the content digest's expected, found abababababababab"
    );
}

#[test]
fn each_rule_for_the_values_is_named() {
    assert_eq!(
        changed(|manifest| manifest.source_name = "../escape".to_owned()),
        "a source name that must be one path segment without '/' expected, found \"../escape\""
    );
    assert_eq!(
        changed(|manifest| manifest.columns[1].name = "label".to_owned()),
        "valid columns expected, found column names must differ, got \"label\" twice"
    );
    assert!(
        changed(|manifest| manifest.columns[1].name = "weight".to_owned())
            .starts_with("valid columns expected, found column name must be none of the reserved cache_id")
    );
    assert_eq!(changed(|manifest| manifest.samples = 0), "at least 1 sample expected, found 0");
    assert_eq!(
        changed(|manifest| manifest.samples = u64::MAX),
        format!("a sample count whose index has a length of 64 bits expected, found {}", u64::MAX)
    );
    assert_eq!(changed(|manifest| manifest.samples = 4), "index.bin of 192 bytes for 4 samples expected, found 152");
    assert_eq!(
        changed(|manifest| manifest.stored_bytes = 249),
        "stored_bytes 250, the shards' without their headers expected, found 249"
    );
    assert!(
        changed(|manifest| manifest.stored_bytes = u64::MAX)
            .starts_with("stored_bytes 250, the shards' without their headers expected, found ")
    );
    assert_eq!(
        changed(|manifest| manifest.payload_bytes = 249),
        "stored_bytes of at most payload_bytes 249 expected, found 250"
    );
    let lengths = "a max_payload_bytes for 400 bytes in 3 samples expected, found ";
    assert_eq!(changed(|manifest| manifest.max_payload_bytes = 401), format!("{lengths}401"));
    assert_eq!(changed(|manifest| manifest.max_payload_bytes = 133), format!("{lengths}133"));
    assert_eq!(changed(|manifest| manifest.max_payload_bytes = 0), format!("{lengths}0"));
}

#[test]
fn the_files_are_those_of_a_cache_and_no_others() {
    let rename = |from: &'static str, to: &'static str| {
        changed(move |manifest| {
            let record = manifest.files.remove(from).unwrap();
            manifest.files.insert(to.to_owned(), record);
        })
    };
    let list = "files index.bin, metadata.arrow and shards/000000.bin onwards, so also ";
    for other in [
        "shards/../../../etc/passwd",
        "/etc/passwd",
        "shards/0.bin",
        "shards/000001.bin",
        "shards/+00000.bin",
        "shards/000000.BIN",
        "shards\\000000.bin",
        "000000.bin",
        "",
    ] {
        assert_eq!(rename("shards/000000.bin", other), format!("{list}shards/000000.bin expected, found {other:?}"));
    }
    assert_eq!(rename("index.bin", "Index.bin"), format!("{list}index.bin expected, found \"Index.bin\""));
    assert_eq!(
        rename("metadata.arrow", "metadata.parquet"),
        format!("{list}metadata.arrow expected, found \"metadata.parquet\"")
    );
    let remove = |name: &'static str| {
        changed(move |manifest| {
            manifest.files.remove(name);
        })
    };
    assert_eq!(remove("index.bin"), format!("{list}index.bin expected, found none of that name"));
    assert_eq!(remove("metadata.arrow"), format!("{list}metadata.arrow expected, found none of that name"));
    assert_eq!(remove("shards/000000.bin"), "1 to 3 shards, each with a record expected, found 0");
    let add = |name: &'static str, bytes| {
        changed(move |manifest| {
            manifest.files.insert(name.to_owned(), FileRecord { blake3: Digest([4; 32]), bytes });
        })
    };
    assert_eq!(add("shards/000002.bin", 16), format!("{list}shards/000001.bin expected, found \"shards/000002.bin\""));
    assert_eq!(add("notes.txt", 16), format!("{list}shards/000001.bin expected, found \"notes.txt\""));
    assert_eq!(add("shards/000001.bin", 15), "shards/000001.bin of at least 16 bytes expected, found 15");
    assert_eq!(add("shards/000001.bin", u64::MAX), "shards whose length together is of 64 bits expected, found more");
    assert_eq!(
        changed(|manifest| {
            for number in 1..4 {
                let record = FileRecord { blake3: Digest([4; 32]), bytes: 16 };
                manifest.files.insert(format!("shards/00000{number}.bin"), record);
            }
        }),
        "1 to 3 shards, each with a record expected, found 4"
    );
}

#[test]
fn the_parts_of_the_metadata_lie_one_after_the_other_and_end_with_the_file() {
    assert_eq!(
        changed(|manifest| manifest.metadata.batches.clear()),
        "1 metadata batches for 3 samples expected, found 0"
    );
    assert_eq!(
        changed(|manifest| manifest.metadata.batches.push(manifest.metadata.batches[0])),
        "1 metadata batches for 3 samples expected, found 2"
    );
    assert_eq!(
        changed(|manifest| manifest.metadata.batches[0].bytes = 0),
        "metadata batch 0 of at least 1 byte at offset 0 or after expected, found 0 bytes at offset 300"
    );
    assert_eq!(
        changed(|manifest| manifest.metadata.batches[0].bytes = 511),
        "metadata footer of at least 1 byte at offset 811 or after expected, found 190 bytes at offset 810"
    );
    assert_eq!(
        changed(|manifest| manifest.metadata.batches[0].offset = u64::MAX - 499),
        format!(
            "metadata batch 0 of at least 1 byte at offset 0 or after expected, found 500 bytes at offset {}",
            u64::MAX - 499
        )
    );
    assert_eq!(
        changed(|manifest| manifest.metadata.footer.bytes = 189),
        "metadata footer that ends with metadata.arrow, at 1000 expected, found 999"
    );
    assert_eq!(
        changed(|manifest| manifest.files.get_mut("metadata.arrow").unwrap().bytes = 999),
        "metadata footer that ends with metadata.arrow, at 999 expected, found 1000"
    );
}
