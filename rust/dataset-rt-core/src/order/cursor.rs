//! Where a dataset stands in its stream.

use std::sync::Arc;

use super::progress::{CursorState, Progress, Rest};
use super::world::World;
use crate::{Error, Position, Result};

/// What an iterator remembers from when it was made until its first sample is asked for.
///
/// Frameworks make iterators that they never use, so making one must not move the stream.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    epoch_len: u64,
    position: Position,
    rest: Option<Rest>,
    generation: u64,
    world: World,
    /// The fewest draws of a rank that deliver anything.
    least: u64,
}

impl Ticket {
    /// The same for an iterator that delivers full batches alone, to which a rest shorter than one yields nothing.
    #[must_use]
    pub fn in_full_batches(self, batch_size: u64) -> Self {
        Self { least: batch_size.max(1), ..self }
    }

    /// The epoch length of the iterator.
    #[must_use]
    pub fn epoch_len(&self) -> u64 {
        self.epoch_len
    }

    /// Where the dataset stood when the iterator was made.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The rank that it delivers for.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }
}

/// The sampling state of a dataset, or of a rank's view of one.
///
/// ```text
///            ticket            reserve                     advance, finish
///  (iter) ───────────► Ticket ─────────► Arc<Progress> ◄───────────────── (next)
///                                 │            ▲
///  Cursor: position moves past ◄──┘            └── state() reports the newest one until it is consumed
/// ```
///
/// Successive iterators go on in the stream, also after one that was given up. Only [`Self::load`] leaves an
/// interrupted window to be completed: the next iterator to start delivers its rest.
#[derive(Debug)]
pub struct Cursor {
    world: World,
    is_view: bool,
    epoch_len: u64,
    /// Where the next iterator starts.
    position: Position,
    /// A loaded window that nobody has gone on with yet.
    rest: Option<Rest>,
    /// What the iterator that last reserved a window has consumed; it may be dropped by now.
    newest: Option<Arc<Progress>>,
    /// Counts the tables that were replaced.
    generation: u64,
}

impl Cursor {
    /// The start of a stream. A world other than [`World::single`] makes it a rank's view, as [`Self::shard`] does.
    ///
    /// # Errors
    /// [`Error::Config`] for an epoch length that the world cannot divide; see [`World::check_epoch_len`].
    pub fn new(epoch_len: u64, world: World) -> Result<Self> {
        world.check_epoch_len(epoch_len)?;
        let is_view = world != World::single();
        Ok(Self { world, is_view, epoch_len, position: Position(0), rest: None, newest: None, generation: 0 })
    }

    /// Nominal length of the epochs to come: of all ranks together.
    #[must_use]
    pub fn epoch_len(&self) -> u64 {
        self.epoch_len
    }

    /// Sets the nominal length of later epochs; iterators that were made and an interrupted window keep theirs.
    ///
    /// # Errors
    /// [`Error::Config`] as in [`World::check_epoch_len`]; nothing changes then.
    pub fn set_epoch_len(&mut self, epoch_len: u64) -> Result<()> {
        self.world.check_epoch_len(epoch_len)?;
        self.epoch_len = epoch_len;
        Ok(())
    }

    /// How many samples of an epoch this rank takes.
    #[must_use]
    pub fn len_of_rank(&self) -> u64 {
        self.world.count(self.epoch_len)
    }

    /// Where the next iterator starts.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The rank, and how epochs are divided.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }

    /// Whether this is a rank's view, which cannot be divided again.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.is_view
    }

    /// A rank's view, with a position of its own that starts where this one stands, an interrupted window included.
    ///
    /// # Errors
    /// [`Error::Config`] for a view of a view, and as in [`World::check_epoch_len`].
    pub fn shard(&self, world: World) -> Result<Self> {
        self.check_divisible(world)?;
        Ok(Self {
            world,
            is_view: true,
            epoch_len: self.epoch_len,
            position: self.position,
            rest: self.rest,
            newest: None,
            generation: 0,
        })
    }

    /// Takes note of another table of `rows` rows: epochs are as long as it, from position 0 on (`reset`) or from
    /// where the stream stands. What was interrupted or is still running no longer counts.
    ///
    /// # Errors
    /// [`Error::Config`] for a length that the world cannot divide; nothing changes then. To be called before the
    /// table is replaced.
    pub fn replace_population(&mut self, rows: u64, reset: bool) -> Result<()> {
        self.world.check_epoch_len(rows)?;
        self.epoch_len = rows;
        if reset {
            self.position = Position(0);
        }
        self.rest = None;
        self.newest = None;
        self.generation += 1;
        Ok(())
    }

    /// What a new iterator has to remember. Moves nothing.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        let Self { epoch_len, position, rest, generation, world, .. } = *self;
        Ticket { epoch_len, position, rest, generation, world, least: 1 }
    }

    /// As [`Self::ticket`], for an iterator that delivers `world`'s share of the whole dataset.
    ///
    /// # Errors
    /// [`Error::Config`] on a view, which has its world already, and as in [`World::check_epoch_len`].
    pub fn ticket_for(&self, world: World) -> Result<Ticket> {
        self.check_divisible(world)?;
        Ok(Ticket { world, ..self.ticket() })
    }

    /// Reserves the window of an iterator whose first sample is asked for, and moves past it.
    ///
    /// It is the rest of a loaded window if one is waiting and yields anything to any rank, otherwise one of the
    /// iterator's epoch length, behind what the ranks would have taken of the rest. If the table was replaced meanwhile, the iterator starts where the dataset stood when
    /// it was made, and neither moves the dataset nor appears in its state.
    ///
    /// # Errors
    /// [`Error::Config`] if the window would end beyond position 2^64 - 1; nothing changes then.
    pub fn reserve(&mut self, ticket: &Ticket) -> Result<Arc<Progress>> {
        let is_current = ticket.generation == self.generation;
        let (position, rest) = if is_current { (self.position, self.rest) } else { (ticket.position, ticket.rest) };
        let progress = Arc::new(Progress::begin(position, rest, ticket.epoch_len, ticket.world, ticket.least)?);
        if is_current {
            self.position = progress.window().dealt_end();
            self.rest = None;
            self.newest = Some(Arc::clone(&progress));
        }
        Ok(progress)
    }

    /// The state to save: of the newest iterator until its window is consumed, then of the position.
    ///
    /// The epoch length in it is that of later epochs, also if it was set while the iterator ran.
    #[must_use]
    pub fn state(&self) -> CursorState {
        // A consumed window says its dealt end, which is where the cursor stands: only `load` and another table move it
        // otherwise, and both forget the iterator.
        match &self.newest {
            Some(progress) => CursorState { epoch_len: self.epoch_len, ..progress.state() },
            None => self.next_state(),
        }
    }

    /// The state from which a copy's next iterator starts where this one's next iterator does.
    #[must_use]
    pub fn next_state(&self) -> CursorState {
        state_before(self.position, self.rest, self.epoch_len)
    }

    /// How many samples an iterator that has not reserved its window yet would deliver; 0 where it cannot begin.
    #[must_use]
    pub fn count_of(&self, ticket: &Ticket) -> u64 {
        let is_current = ticket.generation == self.generation;
        let (position, rest) = if is_current { (self.position, self.rest) } else { (ticket.position, ticket.rest) };
        let progress = Progress::begin(position, rest, ticket.epoch_len, ticket.world, ticket.least);
        progress.map_or(0, |progress| progress.window().count())
    }

    /// The state of an iterator that has not reserved its window yet.
    #[must_use]
    pub fn state_of(&self, ticket: &Ticket) -> CursorState {
        let is_current = ticket.generation == self.generation;
        let (position, rest) = if is_current { (self.position, self.rest) } else { (ticket.position, ticket.rest) };
        state_before(position, rest, ticket.epoch_len)
    }

    /// Goes to a saved state. The next iterator to start delivers what is left of the state's window.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] with the field that cannot be; nothing changes then.
    pub fn load(&mut self, state: CursorState) -> Result<()> {
        let refuse = |field, expected: String, found: String| {
            Err(Error::StateMismatch { field, expected, found, advice: "load a state as state_dict() gave it" })
        };
        let CursorState { position, epoch_len, window } = state;
        if epoch_len == 0 {
            return refuse("epoch_len", "at least 1".to_owned(), "0".to_owned());
        }
        if self.world.most(epoch_len) == 0 {
            let least = format!("at least {} (the world size, with remainder=\"drop\")", self.world.size());
            return Err(Error::StateMismatch {
                field: "epoch_len",
                expected: least,
                found: epoch_len.to_string(),
                advice: "use remainder=\"extend\" or \"uneven\", or fewer ranks",
            });
        }
        if let Some((start, end)) = window {
            if start > end {
                return refuse("window", "an end at or after its start".to_owned(), format!("[{start}, {end})"));
            }
            if position.0 < start || position.0 > end {
                return refuse("position", format!("one in the window [{start}, {end}]"), position.to_string());
            }
        }
        self.epoch_len = epoch_len;
        self.position = position;
        self.rest = window
            .map(|(start, end)| Rest { start: Position(start), end: Position(end) })
            .filter(|rest| position < rest.end);
        self.newest = None;
        Ok(())
    }

    fn check_divisible(&self, world: World) -> Result<()> {
        if self.is_view {
            return Err(Error::config(format!(
                "the dataset must not be a rank's view already, got that of rank {} of {}; divide the dataset that it \
                 was made from",
                self.world.rank(),
                self.world.size()
            )));
        }
        world.check_epoch_len(self.epoch_len)
    }
}

fn state_before(position: Position, rest: Option<Rest>, epoch_len: u64) -> CursorState {
    CursorState { position, epoch_len, window: rest.map(|rest| (rest.start.0, rest.end.0)) }
}

#[cfg(test)]
mod tests;
