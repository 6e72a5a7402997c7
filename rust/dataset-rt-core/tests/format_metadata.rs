//! The metadata file: rows come back, equal rows give equal bytes, and no damage to it panics.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, LargeStringArray, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use dataset_rt_core::Error;
use dataset_rt_core::format::{
    BATCH_ROWS, Column, ColumnKind, Footer, MAX_COLUMNS, MetadataEncoder, MetadataRegions, Region, Value, arrow_schema,
    batch_count, check_region, decode_batch, decode_footer, xxh3_64,
};
use proptest::prelude::*;

const FILE: &str = "cache/metadata.arrow";

fn column(name: &str, kind: ColumnKind, has_nulls: bool) -> Column {
    Column { has_nulls, kind, name: name.to_owned() }
}

/// One column of each kind, with nulls and without.
fn columns() -> Vec<Column> {
    ColumnKind::ALL
        .into_iter()
        .flat_map(|kind| [false, true].map(|nulls| column(&format!("{} {nulls}", kind.name()), kind, nulls)))
        .collect()
}

/// A row of `columns()` that depends on `number`.
fn row(number: i64) -> Vec<Value> {
    let day = i32::try_from(number % 1_000).unwrap();
    [
        Value::Boolean(number % 3 == 0),
        Value::Int64(number),
        Value::Float64(if number % 7 == 0 { f64::from_bits(u64::MAX) } else { number as f64 / 8.0 }),
        Value::String(format!("text {number} ü")),
        Value::Date(day),
        Value::Datetime(-number),
    ]
    .into_iter()
    .flat_map(|value| {
        let nullable = if number % 2 == 0 { Value::Null } else { value.clone() };
        [value, nullable]
    })
    .collect()
}

fn encode(rows: &[Vec<Value>], columns: &[Column]) -> (Vec<u8>, MetadataRegions) {
    let mut encoder = MetadataEncoder::new(Vec::new(), columns, Path::new(FILE)).unwrap();
    rows.iter().for_each(|row| encoder.append(row).unwrap());
    encoder.finish().unwrap()
}

fn part(file: &[u8], region: &Region) -> Vec<u8> {
    file[usize::try_from(region.offset).unwrap()..][..usize::try_from(region.bytes).unwrap()].to_vec()
}

fn footer(file: &[u8], regions: &MetadataRegions, columns: &[Column]) -> Result<Footer, Error> {
    decode_footer(&part(file, &regions.footer), regions, columns, Path::new(FILE))
}

fn batch(footer: &Footer, number: usize, bytes: Vec<u8>, rows: u64) -> Result<RecordBatch, Error> {
    decode_batch(footer, number, bytes, rows, Path::new(FILE))
}

/// The row at `number` of a batch, as values.
fn values(batch: &RecordBatch, number: usize) -> Vec<Value> {
    let value = |array: &ArrayRef| match array.data_type() {
        _ if array.is_null(number) => Value::Null,
        DataType::Boolean => Value::Boolean(array.as_boolean().value(number)),
        DataType::Int64 => Value::Int64(array.as_primitive::<Int64Type>().value(number)),
        DataType::Float64 => Value::Float64(array.as_primitive::<Float64Type>().value(number)),
        DataType::LargeUtf8 => Value::String(array.as_string::<i64>().value(number).to_owned()),
        DataType::Date32 => Value::Date(array.as_primitive::<Date32Type>().value(number)),
        _ => Value::Datetime(array.as_primitive::<TimestampMicrosecondType>().value(number)),
    };
    batch.columns().iter().map(value).collect()
}

/// Rows as their bytes, in which NaN equals NaN.
fn bytes_of(rows: &[Vec<Value>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    rows.iter().flatten().for_each(|value| value.encode(&mut bytes).unwrap());
    bytes
}

fn arrow_refusal(error: &Error, part: &str) -> String {
    assert!(matches!(error, Error::MetadataArrow { .. }), "{error}");
    let message = error.to_string();
    assert!(!message.contains("panic"), "{message}");
    message.strip_prefix(&format!("{FILE}: {part}: ")).unwrap().to_owned()
}

#[test]
fn rows_come_back_as_they_went() {
    let columns = columns();
    let rows: Vec<_> = (0..1_001).map(row).collect();
    let (file, regions) = encode(&rows, &columns);
    for (name, region) in [("batch 0", &regions.batches[0]), ("footer", &regions.footer)] {
        check_region(name, &part(&file, region), region, Path::new(FILE)).unwrap();
    }
    assert_eq!(regions.footer.end(), Some(file.len() as u64));
    let footer = footer(&file, &regions, &columns).unwrap();
    let batch = batch(&footer, 0, part(&file, &regions.batches[0]), 1_001).unwrap();
    assert_eq!(batch.schema(), arrow_schema(&columns));
    assert_eq!(footer.schema(), &arrow_schema(&columns));
    let found: Vec<_> = (0..batch.num_rows()).map(|number| values(&batch, number)).collect();
    assert_eq!(bytes_of(&found), bytes_of(&rows));
}

#[test]
fn batches_are_full_but_the_last() {
    let columns = [column("n", ColumnKind::Int64, false)];
    let rows = u64::from(BATCH_ROWS);
    assert_eq!([0, 1, rows, rows + 1, u64::MAX].map(batch_count), [0, 1, 1, 2, 1 << 48]);
    for count in [rows, rows + 1, 2 * rows + 5] {
        let all: Vec<_> = (0..count).map(|number| vec![Value::Int64(i64::try_from(number).unwrap())]).collect();
        let (file, regions) = encode(&all, &columns);
        assert_eq!(regions.batches.len() as u64, batch_count(count));
        let footer = footer(&file, &regions, &columns).unwrap();
        for (number, region) in regions.batches.iter().enumerate() {
            let start = number as u64 * rows;
            let expected = rows.min(count - start);
            let batch = batch(&footer, number, part(&file, region), expected).unwrap();
            let found = batch.column(0).as_primitive::<Int64Type>();
            assert_eq!(found.value(0), i64::try_from(start).unwrap());
            assert_eq!(found.value(found.len() - 1), i64::try_from(start + expected - 1).unwrap());
        }
    }
}

#[test]
fn a_cache_without_columns_has_rows_all_the_same() {
    let (file, regions) = encode(&[vec![], vec![], vec![]], &[]);
    let footer = footer(&file, &regions, &[]).unwrap();
    let batch = batch(&footer, 0, part(&file, &regions.batches[0]), 3).unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (3, 0));
}

#[test]
fn as_many_columns_as_may_be_can_be_read() {
    let columns: Vec<_> = (0..MAX_COLUMNS).map(|number| column(&number.to_string(), ColumnKind::Date, false)).collect();
    let row: Vec<_> = (0..).take(MAX_COLUMNS).map(Value::Date).collect();
    let (file, regions) = encode(std::slice::from_ref(&row), &columns);
    let footer = footer(&file, &regions, &columns).unwrap();
    let batch = batch(&footer, 0, part(&file, &regions.batches[0]), 1).unwrap();
    assert_eq!(values(&batch, 0), row);
}

#[test]
fn null_empty_zero_false_and_nan_stay_distinct() {
    let columns: Vec<_> = ColumnKind::ALL.into_iter().map(|kind| column(kind.name(), kind, true)).collect();
    let empty = vec![
        Value::Boolean(false),
        Value::Int64(0),
        Value::Float64(0.0),
        Value::String(String::new()),
        Value::Date(0),
        Value::Datetime(0),
    ];
    let mut nan = empty.clone();
    nan[2] = Value::Float64(f64::NAN);
    let mut negative = empty.clone();
    negative[2] = Value::Float64(-0.0);
    let rows = [vec![Value::Null; 6], empty, nan, negative];
    let (file, regions) = encode(&rows, &columns);
    let footer = footer(&file, &regions, &columns).unwrap();
    let batch = batch(&footer, 0, part(&file, &regions.batches[0]), 4).unwrap();
    let found: Vec<_> = (0..4).map(|number| values(&batch, number)).collect();
    assert_eq!(bytes_of(&found), bytes_of(&rows));
}

#[test]
fn equal_rows_give_equal_bytes_in_every_encoder() {
    // Null slots, unused bits and padding included: another batch came before, with other values in the same memory.
    let columns = columns();
    let rows: Vec<_> = (0..77).map(row).collect();
    let (file, regions) = encode(&rows, &columns);
    let (again, _) = encode(&rows, &columns);
    assert_eq!(file, again);
    let filler: Vec<_> = (0..i64::from(BATCH_ROWS)).map(|number| row(number * 2 + 1)).collect();
    let (longer, places) = encode(&[filler, rows].concat(), &columns);
    assert_eq!(part(&longer, &places.batches[1]), part(&file, &regions.batches[0]));
    assert_eq!(places.batches[1].xxh3, regions.batches[0].xxh3);
}

#[test]
fn null_slots_and_unused_bits_are_zero() {
    let columns = [column("n", ColumnKind::Int64, true), column("b", ColumnKind::Boolean, true)];
    let rows = [
        vec![Value::Int64(-1), Value::Boolean(true)],
        vec![Value::Null, Value::Null],
        vec![Value::Int64(-1), Value::Boolean(true)],
    ];
    let (file, regions) = encode(&rows, &columns);
    let bytes = part(&file, &regions.batches[0]);
    let body = &bytes[bytes.len() - 4 * 64..];
    assert_eq!(body[0], 0b101);
    assert_eq!(&body[64..72], [255; 8]);
    assert_eq!(&body[72..80], [0; 8]);
    assert_eq!(&body[80..88], [255; 8]);
    assert_eq!((body[128], body[192]), (0b101, 0b101));
    let zeros = [1..64, 88..128, 129..192, 193..256];
    assert!(zeros.into_iter().flat_map(|range| &body[range]).all(|&byte| byte == 0));
}

#[test]
fn the_file_is_plain_arrow() {
    let columns = columns();
    let rows: Vec<_> = (0..10).map(row).collect();
    let (file, _) = encode(&rows, &columns);
    let mut reader = arrow_ipc::reader::FileReader::try_new(io::Cursor::new(&file), None).unwrap();
    let expected: Vec<_> = columns
        .iter()
        .map(|column| {
            let data_type = match column.kind {
                ColumnKind::Boolean => DataType::Boolean,
                ColumnKind::Int64 => DataType::Int64,
                ColumnKind::Float64 => DataType::Float64,
                ColumnKind::String => DataType::LargeUtf8,
                ColumnKind::Date => DataType::Date32,
                ColumnKind::Datetime => DataType::Timestamp(TimeUnit::Microsecond, None),
            };
            Field::new(&column.name, data_type, true)
        })
        .collect();
    assert_eq!(reader.schema().as_ref(), &Schema::new(expected));
    assert!(reader.custom_metadata().is_empty());
    let batch = reader.next().unwrap().unwrap();
    let found: Vec<_> = (0..10).map(|number| values(&batch, number)).collect();
    assert_eq!(bytes_of(&found), bytes_of(&rows));
    assert!(reader.next().is_none());
}

#[test]
fn rows_that_do_not_fit_their_columns_are_refused() {
    let columns = [column("n", ColumnKind::Int64, false), column("s", ColumnKind::String, true)];
    let refusal = |row: &[Value]| {
        let mut encoder = MetadataEncoder::new(Vec::new(), &columns, Path::new(FILE)).unwrap();
        encoder.append(row).unwrap_err().to_string()
    };
    let text = || Value::String("a".to_owned());
    assert_eq!(refusal(&[Value::Int64(1)]), "a metadata row must have 2 values, got 1");
    assert_eq!(refusal(&[Value::Int64(1), text(), Value::Null]), "a metadata row must have 2 values, got 3");
    assert_eq!(refusal(&[Value::Null, text()]), "metadata column \"n\" must hold Int64, got null");
    assert_eq!(refusal(&[Value::Float64(1.0), text()]), "metadata column \"n\" must hold Int64, got Float64");
    assert_eq!(
        refusal(&[Value::Int64(1), Value::Boolean(true)]),
        "metadata column \"s\" must hold String or null, got Boolean"
    );
    let twice = [columns[0].clone(), columns[0].clone()];
    let error = MetadataEncoder::new(Vec::new(), &twice, Path::new(FILE)).err().unwrap();
    assert_eq!(error.to_string(), "column names must differ, got \"n\" twice");
}

#[test]
fn a_full_disk_is_an_error_with_path_and_bytes() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.min(bytes.len());
            self.0 -= room;
            if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let columns = columns();
    let (file, _) = encode(&[row(1)], &columns);
    for room in 0..file.len() {
        let written = MetadataEncoder::new(Full(room), &columns, Path::new(FILE)).and_then(|mut encoder| {
            encoder.append(&row(1))?;
            encoder.finish()
        });
        let error = written.err().unwrap();
        assert!(matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull), "{error}");
        assert!(error.to_string().starts_with(&format!("cannot write {FILE}")), "{error}");
    }
    let mut encoder = MetadataEncoder::new(Full(file.len()), &columns, Path::new(FILE)).unwrap();
    encoder.append(&row(1)).unwrap();
    encoder.finish().unwrap();
}

#[test]
fn a_region_is_checked_for_length_and_bytes() {
    let region = Region { bytes: 4, offset: 9, xxh3: xxh3_64(b"abcd") };
    check_region("batch 2", b"abcd", &region, Path::new(FILE)).unwrap();
    let error = check_region("batch 2", b"abc", &region, Path::new(FILE)).unwrap_err();
    assert_eq!(arrow_refusal(&error, "batch 2"), "4 bytes at offset 9 expected, found 3 bytes");
    let error = check_region("batch 2", b"abce", &region, Path::new(FILE)).unwrap_err();
    assert!(matches!(error, Error::MetadataCheck { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "{FILE}: batch 2 at offset 9: XXH3 {:016x} expected, found {:016x}",
            xxh3_64(b"abcd"),
            xxh3_64(b"abce")
        )
    );
}

#[test]
fn every_flipped_bit_of_a_part_is_found_by_its_checksum() {
    let columns = columns();
    let (file, regions) = encode(&[row(1), row(2)], &columns);
    for region in [&regions.batches[0], &regions.footer] {
        let bytes = part(&file, region);
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << (place % 8);
            let error = check_region("part", &flipped, region, Path::new(FILE)).unwrap_err();
            assert!(matches!(error, Error::MetadataCheck { .. }));
        }
    }
}

#[test]
fn every_flipped_bit_of_the_footer_that_passes_the_checksum_is_an_error_or_changes_nothing() {
    let columns = columns();
    let (file, regions) = encode(&[row(1), row(2)], &columns);
    let bytes = part(&file, &regions.footer);
    let whole = part(&file, &regions.batches[0]);
    let mut refused = 0;
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            match decode_footer(&flipped, &regions, &columns, Path::new(FILE)) {
                Ok(footer) => {
                    let batch = batch(&footer, 0, whole.clone(), 2);
                    match batch {
                        Ok(batch) => assert_eq!(values(&batch, 0)[2], Value::Int64(1)),
                        Err(error) => drop(arrow_refusal(&error, "batch 0")),
                    }
                }
                Err(error) => {
                    arrow_refusal(&error, "footer");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > bytes.len() * 4, "{refused} of {}", bytes.len() * 8);
    for length in 0..bytes.len() {
        let error = decode_footer(&bytes[..length], &regions, &columns, Path::new(FILE)).unwrap_err();
        arrow_refusal(&error, "footer");
    }
}

#[test]
fn every_flipped_bit_of_a_batch_that_passes_the_checksum_is_an_error_or_a_batch() {
    let columns = columns();
    let (file, regions) = encode(&[row(1), row(2), row(3)], &columns);
    let footer = footer(&file, &regions, &columns).unwrap();
    let bytes = part(&file, &regions.batches[0]);
    let mut refused = 0;
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            match batch(&footer, 0, flipped, 3) {
                Ok(batch) => {
                    assert_eq!((batch.num_rows(), batch.schema()), (3, arrow_schema(&columns)));
                    (0..3).for_each(|number| assert_eq!(values(&batch, number).len(), columns.len()));
                }
                Err(error) => {
                    arrow_refusal(&error, "batch 0");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
    for length in (0..bytes.len()).step_by(3) {
        let error = batch(&footer, 0, bytes[..length].to_vec(), 3).unwrap_err();
        arrow_refusal(&error, "batch 0");
    }
    let longer = [bytes, vec![0; 64]].concat();
    arrow_refusal(&batch(&footer, 0, longer, 3).unwrap_err(), "batch 0");
}

#[test]
fn a_footer_must_describe_the_columns() {
    let columns = [column("a", ColumnKind::Int64, true), column("b", ColumnKind::String, false)];
    let (file, regions) = encode(&[vec![Value::Int64(1), Value::String("x".to_owned())]], &columns);
    let refusal = |columns: &[Column]| arrow_refusal(&footer(&file, &regions, columns).unwrap_err(), "footer");
    assert_eq!(refusal(&columns[..1]), "fields 1 expected, found 2");
    assert_eq!(refusal(&[columns[1].clone(), columns[0].clone()]), "field \"b\" expected, found \"a\"");
    let other = [column("a", ColumnKind::Datetime, true), columns[1].clone()];
    assert_eq!(
        refusal(&other),
        format!(
            "field \"a\" as nullable {} and nothing else expected, found Int, nullable true",
            DataType::Timestamp(TimeUnit::Microsecond, None)
        )
    );
}

#[test]
fn a_footer_must_agree_with_the_manifest_about_every_batch() {
    let columns = [column("a", ColumnKind::Int64, false)];
    let (file, regions) = encode(&[vec![Value::Int64(1)]], &columns);
    let refusal = |change: fn(&mut MetadataRegions)| {
        let mut other = regions.clone();
        change(&mut other);
        let bytes = part(&file, &regions.footer);
        arrow_refusal(&decode_footer(&bytes, &other, &columns, Path::new(FILE)).unwrap_err(), "footer")
    };
    assert_eq!(refusal(|regions| regions.batches.clear()), "batches 0 expected, found 1");
    let Region { bytes, offset, .. } = regions.batches[0];
    assert!(
        refusal(|regions| regions.batches[0].offset += 1)
            .starts_with(&format!("batch 0 of {bytes} bytes at offset {} expected, found ", offset + 1))
    );
    assert!(
        refusal(|regions| regions.batches[0].bytes -= 8)
            .starts_with(&format!("batch 0 of {} bytes at offset {offset} expected, found ", bytes - 8))
    );
}

/// What Arrow's own writer makes of `batch`, with the places that a manifest would give.
fn foreign(batch: &RecordBatch, metadata: Option<(&str, &str)>) -> (Vec<u8>, MetadataRegions) {
    let mut writer = FileWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    if let Some((key, value)) = metadata {
        writer.write_metadata(key, value);
    }
    let offset = writer.get_ref().len();
    writer.write(batch).unwrap();
    let end = writer.get_ref().len();
    writer.finish().unwrap();
    let file = writer.into_inner().unwrap();
    let length = file[file.len() - 10..].first_chunk().copied().map(i32::from_le_bytes).unwrap();
    let footer = file.len() - 10 - usize::try_from(length).unwrap();
    let region = |start: usize, end: usize| Region {
        bytes: (end - start) as u64,
        offset: start as u64,
        xxh3: xxh3_64(&file[start..end]),
    };
    let regions = MetadataRegions { batches: vec![region(offset, end)], footer: region(footer, file.len()) };
    (file, regions)
}

#[test]
fn what_other_writers_add_is_refused() {
    let columns = [column("a", ColumnKind::Int64, true)];
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let batch = |field: Field, metadata: &[(&str, &str)]| {
        let metadata = metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let schema = Schema::new(vec![field]).with_metadata(metadata);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(&numbers)]).unwrap()
    };
    let field = || Field::new("a", DataType::Int64, true);
    let refusal = |batch: &RecordBatch, metadata| {
        let (file, regions) = foreign(batch, metadata);
        arrow_refusal(&footer(&file, &regions, &columns).unwrap_err(), "footer")
    };
    let plain = batch(field(), &[]);
    let (file, regions) = foreign(&plain, None);
    footer(&file, &regions, &columns).unwrap();
    assert_eq!(refusal(&plain, Some(("pandas", "{}"))), "custom metadata 0 expected, found 1");
    assert_eq!(refusal(&batch(field(), &[("k", "v")]), None), "schema metadata 0 expected, found 1");
    let described = "field \"a\" as nullable Int64 and nothing else expected, found Int, nullable true";
    let noted = field().with_metadata([("k".to_owned(), "v".to_owned())].into());
    assert_eq!(refusal(&batch(noted, &[]), None), described);

    let required = Schema::new(vec![Field::new("a", DataType::Int64, false)]);
    let required = RecordBatch::try_new(Arc::new(required), vec![Arc::new(Int64Array::from(vec![1, 2]))]).unwrap();
    assert_eq!(
        refusal(&required, None),
        "field \"a\" as nullable Int64 and nothing else expected, found Int, nullable false"
    );
}

#[test]
fn a_batch_must_have_the_rows_and_the_nulls_that_the_manifest_gives() {
    let nullable = [column("a", ColumnKind::Int64, true)];
    let (file, regions) = encode(&[vec![Value::Int64(1)], vec![Value::Null]], &nullable);
    let bytes = part(&file, &regions.batches[0]);
    let checked = footer(&file, &regions, &nullable).unwrap();
    let refusal = |footer: &Footer, number, rows| {
        let error = batch(footer, number, bytes.clone(), rows).unwrap_err();
        arrow_refusal(&error, &format!("batch {number}"))
    };
    assert_eq!(refusal(&checked, 0, 3), "rows 3 expected, found 2");
    assert_eq!(refusal(&checked, 0, u64::MAX), format!("rows {} expected, found 2", i64::MAX));
    assert_eq!(refusal(&checked, 1, 2), "one of 1 batches expected, found batch 1");
    let without = [column("a", ColumnKind::Int64, false)];
    let checked = footer(&file, &regions, &without).unwrap();
    assert_eq!(refusal(&checked, 0, 2), "0 to 0 nulls in column \"a\" expected, found 1");
}

#[test]
fn text_that_is_not_utf_8_and_offsets_that_do_not_ascend_are_refused() {
    let columns = [column("s", ColumnKind::String, false)];
    let texts = ["first", "second", "third"].map(|text| vec![Value::String(text.to_owned())]);
    let (file, regions) = encode(&texts, &columns);
    let checked = footer(&file, &regions, &columns).unwrap();
    let bytes = part(&file, &regions.batches[0]);
    let text = bytes.windows(5).position(|window| window == b"first").unwrap();
    let offsets = text - 64;
    let refusal = |place: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[place] = value;
        arrow_refusal(&batch(&checked, 0, changed, 3).unwrap_err(), "batch 0")
    };
    assert_eq!(bytes[offsets + 8], 5);
    for message in [refusal(text, 0xFF), refusal(offsets + 8, 12), refusal(offsets + 24, 200)] {
        assert!(message.starts_with("valid values expected, found "), "{message}");
    }
    // Arrow's own arrays agree with what is read.
    let batch = batch(&checked, 0, bytes, 3).unwrap();
    assert_eq!(batch.column(0).as_string::<i64>(), &LargeStringArray::from(vec!["first", "second", "third"]));
}

proptest! {
    #[test]
    fn random_bytes_are_no_footer_and_no_batch(noise in proptest::collection::vec(any::<u8>(), 0..400)) {
        let columns = [column("a", ColumnKind::Int64, false)];
        let (file, regions) = encode(&[vec![Value::Int64(1)]], &columns);
        let footer = footer(&file, &regions, &columns).unwrap();
        let error = decode_footer(&noise, &regions, &columns, Path::new(FILE)).unwrap_err();
        arrow_refusal(&error, "footer");
        let trailer = [&noise[..], &u32::try_from(noise.len()).unwrap().to_le_bytes(), b"ARROW1"].concat();
        let error = decode_footer(&trailer, &regions, &columns, Path::new(FILE)).unwrap_err();
        arrow_refusal(&error, "footer");
        let mut bytes = part(&file, &regions.batches[0]);
        let length = noise.len().min(bytes.len() - 8);
        bytes[8..][..length].copy_from_slice(&noise[..length]);
        match batch(&footer, 0, bytes, 1) {
            Ok(batch) => prop_assert_eq!(batch.num_rows(), 1),
            Err(error) => drop(arrow_refusal(&error, "batch 0")),
        }
    }
}
