//! What a draw costs in each mode, and what a weighted table costs to build.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dataset_rt_core::Position;
use dataset_rt_core::order::{Mode, PassCache, Sampler, Weights};

/// Draws planned at once, as a run of reads is.
const RUN: usize = 256;

/// Weights of ten sizes without a pattern that a cache line would see.
fn weight(row: usize) -> f64 {
    f64::from(u8::try_from((row * 7919) % 10).unwrap()) + 0.5
}

fn draws(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("draws");
    group.throughput(Throughput::Elements(RUN as u64));
    for (name, mode, is_weighted, rows) in [
        ("ordered", Mode::Ordered, false, 10_000_000),
        ("uniform", Mode::Replacement, false, 10_000_000),
        ("weighted", Mode::Replacement, true, 10_000),
        ("weighted", Mode::Replacement, true, 10_000_000),
        ("shuffled passes", Mode::Permutation, false, 60_000),
        ("computed passes", Mode::Permutation, false, 10_000_000),
    ] {
        let weights = Weights::build(rows, |row| if is_weighted { weight(row) } else { 1.0 }).unwrap();
        let sampler = Sampler::new(mode, 42, weights).unwrap();
        let mut cache = PassCache::new();
        let mut run = vec![0; RUN];
        let mut position = 0;
        group.bench_function(BenchmarkId::new(format!("{name}, runs"), rows), |bencher| {
            bencher.iter(|| {
                sampler.fill(Position(position), 1, &mut cache, &mut run);
                position += RUN as u64;
                black_box(&run);
            });
        });
        group.bench_function(BenchmarkId::new(format!("{name}, one by one"), rows), |bencher| {
            bencher.iter(|| {
                for row in &mut run {
                    *row = sampler.row(Position(position), &mut cache);
                    position += 1;
                }
                black_box(&run);
            });
        });
    }
    group.finish();
}

fn building(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("building");
    group.sample_size(10);
    let rows = 10_000_000;
    let values: Vec<f64> = (0..rows).map(weight).collect();
    group.throughput(Throughput::Elements(rows as u64));
    group.bench_function("weights", |bencher| {
        bencher.iter(|| Weights::build(rows, |row| values.get(row).copied().unwrap_or(0.0)).unwrap().bytes());
    });
    group.finish();
}

criterion_group!(benches, draws, building);
criterion_main!(benches);
