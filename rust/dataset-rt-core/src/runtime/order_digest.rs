//! The digest of an order: what two runs compare to know that they drew the same samples.

use std::sync::Arc;

use super::outside::Outside;
use super::plan::Drawer;
use crate::error::{Error, Result};
use crate::format::Digest;
use crate::identifier::Position;
use crate::population::Population;

/// Draws that are numbered and hashed between two looks at signals: some milliseconds' work.
const PIECE_DRAWS: u64 = 1 << 16;

/// BLAKE3 over `cache_id` and `sample_id`, eight little-endian bytes each, of the draws `start`, `start + 1`, …,
/// `count` of them. Reads no payload.
///
/// # Errors
/// [`Error::Config`] for draws beyond 2^64 - 1, or what `outside` returns.
pub fn order_digest(population: &Arc<Population>, start: u64, count: u64, outside: &mut dyn Outside) -> Result<Digest> {
    if count > 0 && start.checked_add(count - 1).is_none() {
        return Err(Error::config(format!("start + count must be at most 2^64, got {start} + {count}")));
    }
    let mut drawer = Drawer::new(Arc::clone(population));
    let mut hasher = blake3::Hasher::new();
    let mut done = 0;
    while done < count {
        let piece = PIECE_DRAWS.min(count - done);
        let mut result = Ok(());
        outside.run(&mut || result = hash_draws(&mut drawer, Position(start + done), piece, &mut hasher))?;
        result?;
        done += piece;
    }
    Ok(Digest::from(hasher.finalize()))
}

fn hash_draws(drawer: &mut Drawer, first: Position, count: u64, hasher: &mut blake3::Hasher) -> Result<()> {
    let caches = Arc::clone(drawer.population().caches());
    let mut bytes = Vec::new();
    for record in drawer.records(first, 1, count)? {
        let (cache, _, sample) = caches.locate(record?)?;
        bytes.extend_from_slice(&cache.cache_id().0.to_le_bytes());
        bytes.extend_from_slice(&sample.0.to_le_bytes());
    }
    hasher.update(&bytes);
    Ok(())
}
