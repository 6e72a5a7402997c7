//! Draws with replacement: each names a row by its weight, whatever the others name.

use super::philox::{DRAW, philox4x64_10};
use super::weights::Weights;
use crate::Position;

/// The point in `0..total` that the draw at `position` hits.
///
/// A 128-bit random fraction times `total`, rounded down: no loop, and no bias above `total` / 2^128.
#[must_use]
#[inline]
pub fn replacement_point(seed: u64, position: Position, total: u64) -> u64 {
    let [high, low, _, _] = philox4x64_10([position.0, 0, 0, 0], [seed, DRAW]);
    let (_, carry) = low.carrying_mul(total, 0);
    let (_, point) = high.carrying_mul(total, carry);
    point
}

/// The row of the population that the draw at `position` names, by weight. Constant time on average.
#[must_use]
#[inline]
pub fn replacement_row(seed: u64, position: Position, weights: &Weights) -> u64 {
    weights.row(replacement_point(seed, position, weights.total()))
}
