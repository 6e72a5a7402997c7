//! What was written comes back, whatever the settings, and the settings change no identity.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use dataset_rt_core::format::{Codec, ColumnKind, Value};
use dataset_rt_core::runtime::{BatchSlots, Run, Work, assemble, batch_schema, content_digest, plan, read_in_pieces};
use dataset_rt_core::store::{CacheSet, RecordReader};
use dataset_rt_core::{Error, SampleId};

use crate::support::{Caller, Feed, Settings, open, payload, pool, read_all, source, tree, values};

/// The stored values of a row.
fn stored(batch: &RecordBatch, row: usize) -> Vec<Value> {
    let columns = batch.columns();
    let mut found = vec![
        Value::Int64(columns[0].as_primitive::<Int64Type>().value(row)),
        Value::String(columns[1].as_string::<i64>().value(row).to_owned()),
        Value::Float64(columns[2].as_primitive::<Float64Type>().value(row)),
        Value::Boolean(columns[3].as_boolean().value(row)),
        Value::Date(columns[4].as_primitive::<Date32Type>().value(row)),
        Value::Datetime(columns[5].as_primitive::<TimestampMicrosecondType>().value(row)),
    ];
    for (value, column) in found.iter_mut().zip(columns) {
        if column.is_null(row) {
            *value = Value::Null;
        }
    }
    found
}

/// What a sample's metadata comes back as: a column of floats gives floats.
fn expected_values(sample: u64) -> Vec<Value> {
    let mut expected = values(sample);
    if let Value::Int64(integer) = expected[2] {
        expected[2] = Value::Float64(f64::from(i32::try_from(integer).unwrap()));
    }
    expected
}

fn assert_payloads(caches: &Arc<CacheSet>, count: u64, workers: usize) {
    let rows = read_all(caches, pool(workers)).unwrap();
    assert_eq!(rows.len() as u64, count);
    let cache_id = caches.by_id()[0].cache_id().0;
    for (sample, row) in (0..).zip(rows) {
        assert_eq!(row, (cache_id, sample, payload(sample)));
    }
}

#[test]
fn every_codec_and_shard_size_gives_the_samples_back_under_one_identity() {
    let mut identities = Vec::new();
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        for max_shard_bytes in [1, 700, 1 << 20] {
            let root = tempfile::tempdir().unwrap();
            let settings = Settings { codec, max_shard_bytes, ..Settings::default() };
            let mut caller = Caller::default();
            let path = settings.write(root.path(), "train", &mut source(200), &mut caller).unwrap().path;
            assert_eq!(caller.samples, 200);
            assert_eq!(caller.bytes, (0..200).map(|sample| payload(sample).len() as u64).sum::<u64>());
            let caches = open(&[&path]).unwrap();
            assert_payloads(&caches, 200, 1);
            assert_payloads(&caches, 200, 3);
            let manifest = caches.by_id()[0].manifest();
            assert_eq!(manifest.payload_bytes, caller.bytes);
            assert_eq!(manifest.stored_bytes == manifest.payload_bytes, codec == Codec::None);
            for (name, file) in manifest.files.iter().filter(|(name, _)| name.starts_with("shards/")) {
                // A shard is longer than allowed only where one record alone is; some records are empty.
                let longest = 16 + manifest.max_payload_bytes;
                assert!(file.bytes <= max_shard_bytes.max(longest), "{name}: {}", file.bytes);
            }
            assert_eq!(manifest.shards() > 1, max_shard_bytes < 1 << 20);
            identities.push((manifest.content_digest, manifest.cache_id()));
        }
    }
    let digest = content_digest("train", &mut source(200), &mut Caller::default()).unwrap();
    assert!(identities.iter().all(|identity| *identity == identities[0]));
    assert_eq!(identities[0].0, digest);
    assert_ne!(digest, content_digest("test", &mut source(200), &mut Caller::default()).unwrap());
    assert_ne!(digest, content_digest("train", &mut source(199), &mut Caller::default()).unwrap());
}

#[test]
fn metadata_comes_back_with_kinds_nulls_and_exact_values() {
    let root = tempfile::tempdir().unwrap();
    let mut feed = source(100);
    let path = Settings::default().write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    let caches = open(&[&path]).unwrap();
    let columns = caches.columns();
    let kinds: Vec<ColumnKind> = columns.iter().map(|column| column.kind).collect();
    let expected = [
        ColumnKind::Int64,
        ColumnKind::String,
        ColumnKind::Float64,
        ColumnKind::Boolean,
        ColumnKind::Date,
        ColumnKind::Datetime,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        columns.iter().map(|column| column.has_nulls).collect::<Vec<_>>(),
        [false, true, false, false, false, false]
    );
    for sample in 0..100 {
        let (batch, row) = caches.by_id()[0].metadata_of(SampleId(sample)).unwrap();
        // NaN is not equal to itself, but prints alike.
        assert_eq!(format!("{:?}", stored(batch, row)), format!("{:?}", expected_values(sample)));
    }
}

#[test]
fn the_number_of_workers_changes_no_byte() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let trees: Vec<_> = [(1, 64), (4, 64), (4, 3), (1, 1)]
            .into_iter()
            .map(|(workers, prefetch_size)| {
                let root = tempfile::tempdir().unwrap();
                let settings = Settings { codec, workers, prefetch_size, ..Settings::default() };
                let path = settings.write(root.path(), "train", &mut source(500), &mut Caller::default());
                tree(&path.unwrap().path)
            })
            .collect();
        assert!(trees[0].len() > 4);
        assert!(trees.iter().all(|tree| *tree == trees[0]), "{codec:?}");
        assert!(!trees[0].contains_key("rows.tmp"));
    }
}

#[test]
fn seventy_thousand_samples_have_two_metadata_batches() {
    let root = tempfile::tempdir().unwrap();
    let count = 70_000;
    let mut feed = Feed::new(&["number"], move |sample| {
        let number = Value::Int64(i64::try_from(sample).unwrap());
        Ok((sample < count).then(|| (sample.to_le_bytes().to_vec(), vec![number])))
    });
    let settings = Settings { max_shard_bytes: 100_000, ..Settings::default() };
    let path = settings.write(root.path(), "train", &mut feed, &mut Caller::default()).unwrap().path;
    let caches = open(&[&path]).unwrap();
    let cache = &caches.by_id()[0];
    assert_eq!((cache.samples(), cache.batches()), (count, 2));
    for (sample, row) in (0_u64..).zip(read_all(&caches, pool(2)).unwrap()) {
        assert_eq!((row.1, row.2.as_slice()), (sample, sample.to_le_bytes().as_slice()));
    }
    for sample in [0, 65_535, 65_536, 69_999] {
        let (batch, row) = cache.metadata_of(SampleId(sample)).unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(row), i64::try_from(sample).unwrap());
    }
    // A run that needs both batches, in draw order and with repeats.
    let records = [69_999, 3, 65_536, 3, 65_535];
    let run = plan(&caches, records.into_iter().map(Ok), u64::MAX).unwrap();
    let batch = read_run(&caches, &run).unwrap();
    let numbers = batch["number"].as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(numbers, records.map(|record| i64::try_from(record).unwrap()));
    let payloads: Vec<Vec<u8>> =
        batch["data"].as_binary::<i64>().iter().map(|payload| payload.unwrap().to_vec()).collect();
    assert_eq!(payloads, records.map(|record| record.to_le_bytes().to_vec()));
}

fn read_run(caches: &Arc<CacheSet>, run: &Run) -> dataset_rt_core::Result<RecordBatch> {
    let work = Work::new(run.clone(), BatchSlots::for_run)?;
    let outcome = read_in_pieces(caches, work, true, &mut RecordReader::default(), &mut Caller::default());
    let outcome = outcome.map_err(|stopped| stopped.error)?;
    assemble(caches, &batch_schema(&caches.columns()), outcome.map_err(|failed| failed.0)?)
}

#[test]
fn a_reader_that_is_told_to_stop_stops() {
    let root = tempfile::tempdir().unwrap();
    let caches = open(&[&Settings::default().build(root.path(), "train", 5)]).unwrap();
    let run = plan(&caches, (0..5).map(Ok), u64::MAX).unwrap();
    let mut slots = BatchSlots::for_run(&run).unwrap();
    let stopped = RecordReader::default().read(&caches, &run.records, &mut slots, true, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn samples_without_metadata_and_without_payload_are_samples() {
    let root = tempfile::tempdir().unwrap();
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let settings = Settings { codec, ..Settings::default() };
        let mut feed = Feed::new(&[], |sample| Ok((sample < 9).then(|| (Vec::new(), Vec::new()))));
        let path = settings.write(root.path(), codec.name(), &mut feed, &mut Caller::default()).unwrap().path;
        let caches = open(&[&path]).unwrap();
        assert!(caches.columns().is_empty());
        assert_eq!(caches.by_id()[0].manifest().max_payload_bytes, 0);
        let rows = read_all(&caches, None).unwrap();
        let expected: Vec<_> = (0..9).map(|sample| (caches.by_id()[0].cache_id().0, sample, Vec::new())).collect();
        assert_eq!(rows, expected);
        let (batch, row) = caches.by_id()[0].metadata_of(SampleId(8)).unwrap();
        assert_eq!((batch.num_columns(), batch.num_rows(), row), (0, 9, 8));
    }
}

#[test]
fn payloads_larger_than_every_buffer_come_back() {
    let root = tempfile::tempdir().unwrap();
    let lengths = [3 << 20, 0, (1 << 20) - 1, 1 << 20, 17 << 10, 5];
    let large = move |sample: u64| -> Vec<u8> {
        let length = lengths[usize::try_from(sample).unwrap()];
        (0..length).map(|place: u64| (place * (sample + 1) / 7).to_le_bytes()[0]).collect()
    };
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let settings = Settings { codec, ..Settings::default() };
        let mut feed = Feed::new(&[], |sample| Ok((sample < 6).then(|| (large(sample), Vec::new()))));
        let path = settings.write(root.path(), codec.name(), &mut feed, &mut Caller::default()).unwrap().path;
        for (sample, row) in (0..).zip(read_all(&open(&[&path]).unwrap(), pool(2)).unwrap()) {
            assert!(row.2 == large(sample), "{codec:?}, sample {sample}");
        }
    }
}

#[test]
fn a_cache_that_is_there_is_reused_untouched() {
    let root = tempfile::tempdir().unwrap();
    let path = Settings::default().build(root.path(), "train", 20);
    let before = tree(root.path());
    let mut unused = Feed::new(&[], |_| panic!("a source whose cache is there must not be iterated"));
    let written = Settings::default().write(root.path(), "train", &mut unused, &mut Caller::default()).unwrap();
    assert!(written.reused);
    assert_eq!(written.path, path);
    assert_eq!(tree(root.path()), before);
}

#[test]
fn reading_writes_nothing_and_works_through_a_symbolic_link() {
    let root = tempfile::tempdir().unwrap();
    let path = Settings::default().build(root.path(), "train", 20);
    let before = tree(root.path());
    let link = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&path, link.path().join("other name")).unwrap();
    let caches = open(&[&link.path().join("other name")]).unwrap();
    assert_eq!(caches.by_id()[0].path(), fs::canonicalize(&path).unwrap());
    assert_payloads(&caches, 20, 2);
    assert_eq!(tree(root.path()), before);
    assert!(content_digest("train", &mut source(20), &mut Caller::default()).is_ok());
}
