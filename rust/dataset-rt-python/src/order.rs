//! Private functions that hold the core's order against its vectors from Python.

use dataset_rt_core::Position;
use dataset_rt_core::order::{Mode, PassCache, Sampler, Weights, philox4x64_10, replacement_point};
use pyo3::prelude::*;

use crate::errors::exception;

/// One block of Philox4x64-10.
#[pyfunction]
pub fn philox(counter: [u64; 4], key: [u64; 2]) -> [u64; 4] {
    philox4x64_10(counter, key)
}

/// The integer weights of rows in population order, and their total.
#[pyfunction]
pub fn integer_weights(weights: Vec<f64>) -> PyResult<(Vec<u64>, u64)> {
    let built = build(&weights)?;
    Ok(((0..built.rows()).map(|row| built.integer_weight(row)).collect(), built.total()))
}

/// The point in the integer weights that a draw falls on.
#[pyfunction]
pub fn point(seed: u64, position: u64, total: u64) -> u64 {
    replacement_point(seed, Position(position), total)
}

/// The population rows of `count` draws from `start`, over rows with these weights.
#[pyfunction]
pub fn rows(mode: &str, seed: u64, weights: Vec<f64>, start: u64, count: u64) -> PyResult<Vec<u64>> {
    draw(mode, seed, build(&weights)?, start, count)
}

/// The population rows of `count` draws from `start`, over `population_rows` rows of equal weight.
#[pyfunction]
pub fn rows_of_equal(mode: &str, seed: u64, population_rows: u64, start: u64, count: u64) -> PyResult<Vec<u64>> {
    draw(mode, seed, Weights::equal(population_rows).map_err(exception)?, start, count)
}

fn build(weights: &[f64]) -> PyResult<Weights> {
    Weights::build(weights.len(), |row| weights.get(row).copied().unwrap_or(f64::NAN)).map_err(exception)
}

fn draw(mode: &str, seed: u64, weights: Weights, start: u64, count: u64) -> PyResult<Vec<u64>> {
    let sampler = Sampler::new(Mode::from_name(mode).map_err(exception)?, seed, weights).map_err(exception)?;
    let mut passes = PassCache::new();
    let position = |step| start.checked_add(step).map(Position);
    Ok((0..count).filter_map(position).map(|position| sampler.row(position, &mut passes)).collect())
}
