//! From a position to a row of the population.

use super::mode::Mode;
use super::pass_cache::PassCache;
use super::permutation::Permutation;
use super::replacement::{replacement_point, replacement_row};
use super::weights::Weights;
use crate::{Error, Position, Result};

/// The stream of one population: immutable, so any number of threads may draw from it, each with its own cache.
#[derive(Debug)]
pub struct Sampler {
    mode: Mode,
    seed: u64,
    weights: Weights,
    permutation: Permutation,
}

impl Sampler {
    /// The stream of draws from the population that `weights` belong to.
    ///
    /// # Errors
    /// [`Error::Config`] for draws without replacement from rows of unequal weights.
    pub fn new(mode: Mode, seed: u64, weights: Weights) -> Result<Self> {
        if mode == Mode::Permutation && !weights.is_equal() {
            return Err(Error::config(
                "weights must all be equal without replacement; reset the column weight to 1.0, or sample with \
                 replacement=True",
            ));
        }
        let permutation = Permutation::new(weights.rows(), seed)?;
        Ok(Self { mode, seed, weights, permutation })
    }

    /// Number of rows of the population.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.weights.rows()
    }

    /// How it draws.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The seed of the random words.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The weights of the population, which [`Mode::Ordered`] leaves aside.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The row that the draw at `position` names. Constant time, but see [`Permutation::row`]; allocates only where
    /// the cache takes in its first passes.
    #[must_use]
    pub fn row(&self, position: Position, cache: &mut PassCache) -> u64 {
        match self.mode {
            Mode::Ordered => position.0 % self.rows(),
            Mode::Replacement => replacement_row(self.seed, position, &self.weights),
            Mode::Permutation => self.permutation.row(position, cache),
        }
    }

    /// The rows of the draws `first`, `first + step`, `first + 2·step`, …, as many as `rows` has places.
    ///
    /// What [`Self::row`] gives one by one, but several times as fast in a large weighted table. The last position must
    /// be below 2^64; a step of 1 follows the stream, and a step of the world's size follows a rank's share.
    pub fn fill(&self, first: Position, step: u64, cache: &mut PassCache, rows: &mut [u64]) {
        let positions = (0_u64..).map(|index| Position(first.0.wrapping_add(index.wrapping_mul(step))));
        if self.mode == Mode::Replacement {
            for (point, position) in rows.iter_mut().zip(positions) {
                *point = replacement_point(self.seed, position, self.weights.total());
            }
            self.weights.rows_under(rows);
        } else {
            for (row, position) in rows.iter_mut().zip(positions) {
                *row = self.row(position, cache);
            }
        }
    }
}
