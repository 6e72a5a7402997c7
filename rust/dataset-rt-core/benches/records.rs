//! What a record costs beside its copy: its entry in the index, its check, and unpacking it.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dataset_rt_core::SampleId;
use dataset_rt_core::format::{
    Codec, Compression, Decoder, Encoder, EntryLimits, INDEX_ENTRY_BYTES, IndexEntry, record_check,
};

/// Entries of the index: 40 MB, more than the caches of most processors hold.
const ENTRIES: u64 = 1_000_000;
/// Entries looked up at once, as for a run of reads.
const RUN: usize = 256;
const SIZES: [usize; 3] = [64, 1024, 102_400];

/// Bytes that codecs find something in: numbers in decimal, far from random and far from constant.
fn text(size: usize) -> Vec<u8> {
    (0_u64..).flat_map(|number| (number * 7919).to_string().into_bytes()).take(size).collect()
}

/// Entries of records of 1 KiB, end to end.
fn index() -> Vec<u8> {
    (0..ENTRIES)
        .flat_map(|sample| {
            IndexEntry {
                offset: 16 + sample * 1024,
                stored_bytes: 1024,
                payload_bytes: 1024,
                shard: 0,
                codec: Codec::None,
                check: sample,
            }
            .encode()
        })
        .collect()
}

fn lookups(criterion: &mut Criterion) {
    let index = index();
    let limits = EntryLimits { shards: 1, max_payload_bytes: 1024, stored_bytes: 1 << 40 };
    let file = Path::new("index.bin");
    let mut group = criterion.benchmark_group("index lookups");
    group.throughput(Throughput::Elements(RUN as u64));
    // 7919 and the number of entries have no common factor: the steps reach every entry, and none is near the last.
    for (name, step) in [("in order", 1), ("far apart", 7919 * 61)] {
        let mut sample = 0;
        group.bench_function(BenchmarkId::new(name, ENTRIES), |bencher| {
            bencher.iter(|| {
                for _ in 0..RUN {
                    sample = (sample + step) % ENTRIES;
                    let start = usize::try_from(sample).unwrap() * INDEX_ENTRY_BYTES;
                    let bytes = index.get(start..start + INDEX_ENTRY_BYTES).unwrap();
                    black_box(IndexEntry::parse(bytes, SampleId(sample), &limits, file).unwrap());
                }
            });
        });
    }
    group.finish();
}

fn checks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("record checks");
    for size in SIZES {
        let record = text(size);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| record_check(SampleId(7), black_box(&record)));
        });
    }
    group.finish();
}

fn codecs(criterion: &mut Criterion) {
    let file = Path::new("000000.bin");
    for (name, algorithm) in [("none", Codec::None), ("lz4", Codec::Lz4), ("zstd", Codec::Zstd)] {
        let mut encoder = Encoder::new(Compression::new(algorithm, None).unwrap()).unwrap();
        let mut decoder = Decoder::new();
        for size in SIZES {
            let payload = text(size);
            let mut packing = criterion.benchmark_group("packing");
            packing.throughput(Throughput::Bytes(size as u64));
            packing.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| black_box(encoder.encode(black_box(&payload)).unwrap().1.len()));
            });
            packing.finish();

            // A record that does not shrink is stored as it is, and unpacked as such.
            let (codec, stored) = encoder.encode(&payload).unwrap();
            let stored = stored.to_vec();
            let mut unpacked = vec![0; size];
            let mut unpacking = criterion.benchmark_group("unpacking");
            unpacking.throughput(Throughput::Bytes(size as u64));
            unpacking.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| decoder.decode(codec, black_box(&stored), &mut unpacked, file, SampleId(7)).unwrap());
            });
            unpacking.finish();
        }
    }
}

criterion_group!(benches, lookups, checks, codecs);
criterion_main!(benches);
