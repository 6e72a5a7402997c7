//! The content digest, against the definition of its bytes written out by hand.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use dataset_rt_core::format::{Column, ColumnKind, ContentHasher, Digest, Value, cache_id, xxh3_128};

fn column(name: &str, kind: ColumnKind, has_nulls: bool) -> Column {
    Column { has_nulls, kind, name: name.to_owned() }
}

fn digest(rows: &[(Vec<Value>, &[u8])], columns: &[Column], name: &str) -> Digest {
    let mut hasher = ContentHasher::new();
    for (row, payload) in rows {
        let mut fields = Vec::new();
        row.iter().for_each(|value| value.encode(&mut fields).unwrap());
        hasher.sample(&fields, payload.len() as u64, xxh3_128(payload));
    }
    hasher.finish(columns, name)
}

#[test]
fn the_digest_is_blake3_of_the_samples_and_their_frame() {
    let columns = [
        column("flag", ColumnKind::Boolean, true),
        column("number", ColumnKind::Int64, false),
        column("ratio", ColumnKind::Float64, false),
        column("größe", ColumnKind::String, false),
        column("day", ColumnKind::Date, false),
        column("time", ColumnKind::Datetime, false),
    ];
    let first = vec![
        Value::Null,
        Value::Int64(-1),
        Value::Float64(f64::NAN),
        Value::String("ü".to_owned()),
        Value::Date(20_000),
        Value::Datetime(1_000_000),
    ];
    let second = vec![
        Value::Boolean(true),
        Value::Int64(5),
        Value::Float64(0.5),
        Value::String(String::new()),
        Value::Date(-1),
        Value::Datetime(-1),
    ];
    let found = digest(&[(first, b"payload"), (second, b"")], &columns, "train");

    let mut bytes = Vec::new();
    bytes.extend([0]);
    bytes.extend([2, 255, 255, 255, 255, 255, 255, 255, 255]);
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F]);
    bytes.extend([4, 2, 0, 0, 0, 0xC3, 0xBC]);
    bytes.extend([5, 0x20, 0x4E, 0, 0]);
    bytes.extend([6, 0x40, 0x42, 0x0F, 0, 0, 0, 0, 0]);
    bytes.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(xxh3_128(b"payload").to_le_bytes());
    bytes.extend([1, 1]);
    bytes.extend([2, 5, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0xE0, 0x3F]);
    bytes.extend([4, 0, 0, 0, 0]);
    bytes.extend([5, 255, 255, 255, 255]);
    bytes.extend([6, 255, 255, 255, 255, 255, 255, 255, 255]);
    bytes.extend([0; 8]);
    bytes.extend(xxh3_128(b"").to_le_bytes());
    bytes.extend([2, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([6, 0, 0, 0]);
    bytes.extend(b"\x04\0\0\0flag\x01");
    bytes.extend(b"\x06\0\0\0number\x02");
    bytes.extend(b"\x05\0\0\0ratio\x03");
    bytes.extend("\u{7}\0\0\0größe\u{4}".bytes());
    bytes.extend(b"\x03\0\0\0day\x05");
    bytes.extend(b"\x04\0\0\0time\x06");
    bytes.extend(b"\x05\0\0\0train");
    assert_eq!(found, Digest(*blake3::hash(&bytes).as_bytes()));
    assert_eq!(cache_id(&found).0 >> 63, 0);
    // No cache may ever change its identity.
    assert_eq!(found.to_string(), "455da566d5c0ba18e2c847099489ab43a32c51923a211e5678cec30bc30b4184");
}

#[test]
fn whatever_a_sample_is_changes_the_digest_and_how_it_is_stored_does_not() {
    let columns = [column("a", ColumnKind::String, true)];
    let row = |text: &str| vec![Value::String(text.to_owned())];
    let base = digest(&[(row("x"), b"one"), (row("y"), b"two")], &columns, "name");
    let others = [
        digest(&[(row("y"), b"two"), (row("x"), b"one")], &columns, "name"),
        digest(&[(row("x"), b"one")], &columns, "name"),
        digest(&[(row("x"), b"one"), (row("y"), b"twO")], &columns, "name"),
        digest(&[(row("x"), b"one"), (row(""), b"two")], &columns, "name"),
        digest(&[(row("x"), b"one"), (vec![Value::Null], b"two")], &columns, "name"),
        digest(&[(row("x"), b"one"), (row("y"), b"two")], &[column("b", ColumnKind::String, true)], "name"),
        digest(&[(row("x"), b"one"), (row("y"), b"two")], &[column("a", ColumnKind::Int64, true)], "name"),
        digest(&[(row("x"), b"one"), (row("y"), b"two")], &columns, "name2"),
    ];
    for (number, other) in others.iter().enumerate() {
        assert_ne!(*other, base, "{number}");
    }
    let without_nulls = [column("a", ColumnKind::String, false)];
    assert_eq!(digest(&[(row("x"), b"one"), (row("y"), b"two")], &without_nulls, "name"), base);
}
