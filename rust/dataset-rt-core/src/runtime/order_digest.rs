//! The digest of an order: what two runs compare to know that they drew the same samples.

use std::sync::Arc;

use super::delivery_digest::OrderHasher;
use super::outside::Outside;
use super::plan::Drawer;
use crate::error::{Error, Result};
use crate::format::Digest;
use crate::identifier::Position;
use crate::population::Population;

/// Draws that are numbered and hashed between two looks at signals: some milliseconds' work.
const PIECE_DRAWS: u64 = 1 << 16;

/// The digest, as [`OrderHasher`] makes it, of the draws `start`, `start + step`, `start + 2 step`, …, `count` of them:
/// with a step of one a piece of the stream, with the world size the share of a rank. Reads no payload.
///
/// # Errors
/// [`Error::Config`] for a step of zero or draws beyond 2^64 - 1, or what `outside` returns.
pub fn order_digest(
    population: &Arc<Population>,
    start: u64,
    step: u64,
    count: u64,
    outside: &mut dyn Outside,
) -> Result<Digest> {
    if step == 0 {
        return Err(Error::config("step must be at least 1, got 0"));
    }
    let last = count.saturating_sub(1).checked_mul(step).and_then(|distance| start.checked_add(distance));
    if last.is_none() {
        let message = match step {
            1 => format!("start + count must be at most 2^64, got {start} + {count}"),
            _ => format!("the last draw must be at most 2^64 - 1, got {count} from {start} on in steps of {step}"),
        };
        return Err(Error::config(message));
    }
    let mut drawer = Drawer::new(Arc::clone(population));
    let mut hasher = OrderHasher::default();
    let mut done = 0;
    while done < count {
        let piece = PIECE_DRAWS.min(count - done);
        let mut result = Ok(());
        outside
            .run(&mut || result = hash_draws(&mut drawer, Position(start + done * step), step, piece, &mut hasher))?;
        result?;
        done += piece;
    }
    Ok(hasher.digest())
}

fn hash_draws(drawer: &mut Drawer, first: Position, step: u64, count: u64, hasher: &mut OrderHasher) -> Result<()> {
    let caches = Arc::clone(drawer.population().caches());
    for record in drawer.records(first, step, count)? {
        let (cache, _, sample) = caches.locate(record?)?;
        hasher.add(cache.cache_id(), sample);
    }
    Ok(())
}
