//! The saved state of a stream, and what must hold for it to be loaded.

use crate::error::{Error, Result};
use crate::format::Digest;
use crate::order::{CursorState, ORDER_VERSION};
use crate::population::Population;

/// Up to so many caches are named one by one in a state; more by a digest, so that a state stays small.
const NAMED_CACHES: usize = 16;

/// Everything that a stream needs to go on in another process, at any world size. Its size does not grow with the data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamState {
    /// Version of the order.
    pub order_version: u64,
    /// Name of the mode.
    pub mode: String,
    /// The seed.
    pub seed: u64,
    /// Number of rows in the population.
    pub rows: u64,
    /// Digest of the population, 64 hexadecimal digits.
    pub population: String,
    /// Identities of the caches in ascending order, or one digest of them.
    pub caches: Vec<String>,
    /// Where the stream stands.
    pub cursor: CursorState,
}

impl StreamState {
    /// The state of a stream over `population` that stands at `cursor`.
    #[must_use]
    pub fn new(population: &Population, cursor: CursorState) -> Self {
        Self {
            order_version: u64::from(ORDER_VERSION),
            mode: population.sampler().mode().name().to_owned(),
            seed: population.sampler().seed(),
            rows: population.rows(),
            population: population.digest().to_string(),
            caches: cache_names(population),
            cursor,
        }
    }

    /// Checks that a state's version of the order is this release's.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] for `order_version`.
    pub fn check_version(order_version: u64) -> Result<()> {
        let own = u64::from(ORDER_VERSION);
        if order_version == own {
            return Ok(());
        }
        Err(Error::StateMismatch {
            field: "order_version",
            expected: own.to_string(),
            found: order_version.to_string(),
            advice: "load it with a release of dataset-rt that has this order",
        })
    }

    /// Checks that the state is one of a stream over `population`.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] naming the first field that differs.
    pub fn check(&self, population: &Population) -> Result<()> {
        let own = Self::new(population, self.cursor);
        let differs = |field, expected: String, found: String, advice| {
            if expected == found { Ok(()) } else { Err(Error::StateMismatch { field, expected, found, advice }) }
        };
        Self::check_version(self.order_version)?;
        differs(
            "mode",
            own.mode,
            self.mode.clone(),
            "open the caches with the shuffle and replacement of the saved run",
        )?;
        differs("seed", own.seed.to_string(), self.seed.to_string(), "open the caches with the seed of the saved run")?;
        differs("caches", own.caches.join(", "), self.caches.join(", "), "open the caches of the saved run")?;
        let advice = "call update_metadata with the table of the saved run first";
        differs("rows", own.rows.to_string(), self.rows.to_string(), advice)?;
        differs("population", own.population, self.population.clone(), advice)
    }
}

fn cache_names(population: &Population) -> Vec<String> {
    let caches = population.caches().by_id();
    if caches.len() <= NAMED_CACHES {
        return caches.iter().map(|cache| cache.cache_id().to_string()).collect();
    }
    let mut hasher = blake3::Hasher::new();
    for cache in caches {
        hasher.update(&cache.cache_id().0.to_le_bytes());
    }
    vec![format!("{} caches: {}", caches.len(), Digest::from(hasher.finalize()))]
}
