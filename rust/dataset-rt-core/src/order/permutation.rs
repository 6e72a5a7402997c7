//! Draws without replacement: each pass over the population is a permutation of its own.

use super::feistel;
use super::fisher_yates;
use super::pass_cache::{PassCache, PassKey};
use crate::{Error, Position, Result};

/// The passes over a population: the draw at position k is place k mod rows of pass k div rows.
///
/// Up to 65,536 rows each pass is shuffled in a table, which takes under a millisecond for the largest. Above that, any place
/// of any pass is computed directly, in constant time and memory.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    rows: u64,
    seed: u64,
    half_bits: u32,
}

impl Permutation {
    /// The passes over `rows` rows.
    ///
    /// # Errors
    /// [`Error::Metadata`] without rows.
    pub fn new(rows: u64, seed: u64) -> Result<Self> {
        if rows == 0 {
            return Err(Error::metadata("the table must have at least one row, got none"));
        }
        Ok(Self { rows, seed, half_bits: feistel::half_bits(rows) })
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The row of the population that the draw at `position` names.
    ///
    /// Constant time if the position's pass is in the cache or the population has more than 65,536 rows; else the pass
    /// is shuffled first.
    #[must_use]
    pub fn row(&self, position: Position, cache: &mut PassCache) -> u64 {
        let (pass, place) = (position.0 / self.rows, position.0 % self.rows);
        let key = PassKey { rows: self.rows, seed: self.seed, pass };
        if self.rows <= fisher_yates::MOST_ROWS {
            let data = cache.pass(key, |data| fisher_yates::shuffle(&mut data.table, self.rows, self.seed, pass));
            let row = usize::try_from(place).ok().and_then(|place| data.table.get(place));
            row.copied().map_or(place, u64::from)
        } else {
            let data = cache.pass(key, |data| data.round_keys = feistel::round_keys(self.seed, pass));
            feistel::permute(place, self.rows, self.half_bits, &data.round_keys)
        }
    }
}
