//! The order agrees with the published vectors, which an independent implementation made.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;

use dataset_rt_core::Position;
use dataset_rt_core::order::{
    Mode, PassCache, Permutation, Remainder, Sampler, Weights, Window, World, philox4x64_10, replacement_point,
    replacement_row,
};
use serde_json::Value;

/// The cases of one section, at least one.
fn cases(section: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/order/order_v1_vectors.json");
    let vectors: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let cases = vectors[section].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn hexadecimal(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap(), 16).unwrap()
}

fn decimal(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

fn list<T>(value: &Value, element: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(element).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The rows from `start` on, one by one and, with the same result, all at once.
fn rows(sampler: &Sampler, start: u64, count: usize) -> Vec<u64> {
    let mut cache = PassCache::new();
    let one_by_one: Vec<u64> = (0..count as u64).map(|k| sampler.row(Position(start + k), &mut cache)).collect();
    let mut at_once = vec![0; count];
    sampler.fill(Position(start), 1, &mut PassCache::new(), &mut at_once);
    assert_eq!(at_once, one_by_one);
    one_by_one
}

#[test]
fn philox_gives_the_published_words() {
    for case in cases("philox4x64_10") {
        let counter = list(&case["counter"], hexadecimal).try_into().unwrap();
        let key = list(&case["key"], hexadecimal).try_into().unwrap();
        assert_eq!(philox4x64_10(counter, key).to_vec(), list(&case["out"], hexadecimal), "{case}");
    }
}

#[test]
fn draws_with_replacement_name_the_published_rows() {
    for case in cases("replacement") {
        let name = &case["name"];
        let values = list(&case["weights"], |weight| weight.as_f64().unwrap());
        let weights = Weights::build(values.len(), |row| values[row]).unwrap();
        let integers: Vec<u64> = (0..weights.rows()).map(|row| weights.integer_weight(row)).collect();
        assert_eq!(integers, list(&case["integer_weights"], decimal), "{name}");
        assert_eq!(weights.total(), decimal(&case["total"]), "{name}");

        let (seed, start) = (hexadecimal(&case["seed"]), hexadecimal(&case["start"]));
        for (k, point) in (start..).zip(list(&case["r"], decimal)) {
            assert_eq!(replacement_point(seed, Position(k), weights.total()), point, "{name}, draw {k}");
        }
        let expected = list(&case["rows"], number);
        for (k, row) in (start..=u64::MAX).zip(&expected) {
            assert_eq!(replacement_row(seed, Position(k), &weights), *row, "{name}, draw {k}");
        }
        let sampler = Sampler::new(Mode::Replacement, seed, weights).unwrap();
        assert_eq!(rows(&sampler, start, expected.len()), expected, "{name}");
    }
}

#[test]
fn draws_without_replacement_name_the_published_rows() {
    // All cases share one cache, as they may.
    let mut cache = PassCache::new();
    for case in cases("permutation") {
        let (count, seed, start) = (number(&case["n"]), hexadecimal(&case["seed"]), decimal(&case["start"]));
        let expected = list(&case["rows"], number);
        let permutation = Permutation::new(count, seed).unwrap();
        let found: Vec<u64> =
            (start..).take(expected.len()).map(|k| permutation.row(Position(k), &mut cache)).collect();
        assert_eq!(found, expected, "{}", case["name"]);
        let sampler = Sampler::new(Mode::Permutation, seed, Weights::equal(count).unwrap()).unwrap();
        assert_eq!(rows(&sampler, start, expected.len()), expected, "{}", case["name"]);
    }
}

#[test]
fn ordered_draws_name_the_published_rows() {
    for case in cases("ordered") {
        let expected = list(&case["rows"], number);
        let weights = Weights::equal(number(&case["n"])).unwrap();
        let sampler = Sampler::new(Mode::Ordered, 0, weights).unwrap();
        assert_eq!(rows(&sampler, decimal(&case["start"]), expected.len()), expected);
    }
}

#[test]
fn windows_are_dealt_as_published() {
    for case in cases("sharding") {
        let start = Position(number(&case["window_start"]));
        let (length, size) = (number(&case["epoch_len"]), number(&case["world_size"]));
        let remainder = Remainder::from_name(case["remainder"].as_str().unwrap()).unwrap();
        let dealt = list(&case["positions"], |positions| list(positions, number));
        assert_eq!(dealt.len() as u64, size);
        for (rank, expected) in (0..).zip(dealt) {
            let world = World::new(rank, size, remainder).unwrap();
            world.check_epoch_len(length).unwrap();
            let window = Window::deal(start, length, world).unwrap();
            let found: Vec<u64> = (0..window.count()).map(|index| window.position(index).0).collect();
            assert_eq!(found, expected, "{case}, rank {rank}");
            assert_eq!(window.dealt_end().0, number(&case["next_window_start"]), "{case}, rank {rank}");
            assert_eq!(window.dealt_end().0, start.0 + world.stride(length), "{case}, rank {rank}");
        }
    }
}
