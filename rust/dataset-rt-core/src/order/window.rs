//! A stretch of the stream, dealt to the ranks one draw after another.

use super::world::World;
use crate::{Error, Position, Result};

/// The draws that one iterator, or those of all ranks together, deliver: rank r takes the draws start + r,
/// start + r + size, start + r + 2·size, … up to its count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window {
    start: Position,
    nominal_end: Position,
    dealt_end: Position,
    count: u64,
    world: World,
}

impl Window {
    /// The window of `length` draws from `start` on, as `world` divides it.
    ///
    /// # Errors
    /// [`Error::Config`] if the window, or what is dealt of it, would end beyond position 2^64 - 1.
    pub fn deal(start: Position, length: u64, world: World) -> Result<Self> {
        let end = |length: u64| start.0.checked_add(length).map(Position);
        let (Some(nominal_end), Some(dealt_end)) = (end(length), world.checked_stride(length).and_then(end)) else {
            return Err(Error::config(format!(
                "an epoch must end at or before position 2^64 - 1; one of {length} draws from position {start} for {} \
                 ranks does not: start the stream again at position 0",
                world.size()
            )));
        };
        Ok(Self { start, nominal_end, dealt_end, count: world.count(length), world })
    }

    /// Its first position.
    #[must_use]
    pub const fn start(&self) -> Position {
        self.start
    }

    /// The position after its last one, before it was divided.
    #[must_use]
    pub const fn nominal_end(&self) -> Position {
        self.nominal_end
    }

    /// The position after the last one that any rank takes: where the next window starts.
    #[must_use]
    pub const fn dealt_end(&self) -> Position {
        self.dealt_end
    }

    /// How many draws this rank takes.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The rank, and how the window is divided.
    #[must_use]
    pub const fn world(&self) -> World {
        self.world
    }

    /// The position of this rank's draw `index`, which must be below [`Self::count`].
    #[must_use]
    pub const fn position(&self, index: u64) -> Position {
        let offset = index.saturating_mul(self.world.size()).saturating_add(self.world.rank());
        Position(self.start.0.saturating_add(offset))
    }

    /// Where the stream stands when every rank has consumed `taken` draws: never past the dealt end.
    #[must_use]
    pub const fn consumed(&self, taken: u64) -> Position {
        let position = self.start.0.saturating_add(taken.saturating_mul(self.world.size()));
        if position < self.dealt_end.0 { Position(position) } else { self.dealt_end }
    }

    /// How many batches of `batch_size` this rank's draws make; `drop_last` leaves out a short last one.
    #[must_use]
    pub const fn batches(&self, batch_size: u64, drop_last: bool) -> u64 {
        batches_of(self.count, batch_size, drop_last)
    }

    /// What [`Self::consumed`] is to be asked after `batches` batches of `batch_size` draws.
    ///
    /// A short last batch counts as a whole one, so ranks whose counts differ say the same. Where the short batch is
    /// left out (`drop_last`), the last full one counts for all that remains.
    #[must_use]
    pub const fn taken_by(&self, batches: u64, batch_size: u64, drop_last: bool) -> u64 {
        let taken = batches.saturating_mul(batch_size);
        if drop_last && batches > 0 && taken.saturating_add(batch_size) > self.count { u64::MAX } else { taken }
    }
}

/// How many batches of `batch_size` (0 is taken for 1) `draws` make; `drop_last` leaves out a short last one.
#[must_use]
pub const fn batches_of(draws: u64, batch_size: u64, drop_last: bool) -> u64 {
    let batch_size = if batch_size == 0 { 1 } else { batch_size };
    if drop_last { draws / batch_size } else { draws.div_ceil(batch_size) }
}
