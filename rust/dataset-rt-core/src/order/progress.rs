//! How much of a window was consumed, and the state that says so.

use std::sync::atomic::{AtomicU64, Ordering};

use super::window::Window;
use super::world::World;
use crate::{Error, Position, Result};

/// What a saved state says of the stream: enough to go on with the very next draw.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CursorState {
    /// The next draw that nobody has consumed.
    pub position: Position,
    /// Length of the epochs to come.
    pub epoch_len: u64,
    /// Inside a window: where it started, and where it ends before it is divided among ranks.
    ///
    /// A resumed window keeps its first start, however often it was interrupted.
    pub window: Option<(u64, u64)>,
}

/// A window that was interrupted: what lies between the position and `end` is still to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Rest {
    /// Where the window started.
    pub(super) start: Position,
    /// Its nominal end.
    pub(super) end: Position,
}

/// A reserved window and how many of its draws this rank has consumed.
///
/// Shared between the iterator, which advances it, and the dataset, which reports it. Reading ahead does not count:
/// [`Self::advance`] is for samples that were handed to the user.
#[derive(Debug)]
pub struct Progress {
    window: Window,
    /// Start of the whole window, of which `window` may be the rest.
    nominal_start: Position,
    epoch_len: u64,
    /// `u64::MAX` once the iterator is at its end.
    taken: AtomicU64,
}

impl Progress {
    /// The rest of an interrupted window if it gives `least` draws to any rank, otherwise a window of `epoch_len`.
    ///
    /// A rest that is passed over moves the position as if it had been delivered: by nothing where the ranks would not
    /// have taken any of it, and past the draws of a short batch that is left out.
    pub(super) fn begin(
        position: Position,
        rest: Option<Rest>,
        epoch_len: u64,
        world: World,
        least: u64,
    ) -> Result<Self> {
        let (nominal_start, position, length) = match rest {
            Some(rest) => {
                let left = rest.end.0.saturating_sub(position.0);
                if world.most(left) >= least {
                    (rest.start, position, left)
                } else {
                    let behind = Window::deal(position, left, world)?.dealt_end();
                    (behind, behind, epoch_len)
                }
            }
            None => (position, position, epoch_len),
        };
        let window = Window::deal(position, length, world)?;
        Ok(Self { window, nominal_start, epoch_len, taken: AtomicU64::new(0) })
    }

    /// A whole window that no dataset has reserved, and nothing of which is consumed: for callers that choose where a
    /// window starts.
    ///
    /// # Errors
    /// As [`Window::deal`].
    pub fn at(start: Position, epoch_len: u64, world: World) -> Result<Self> {
        Self::begin(start, None, epoch_len, world, 1)
    }

    /// The draws to deliver: all of a window, or what was left of an interrupted one.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The epoch length of the iterator.
    #[must_use]
    pub fn epoch_len(&self) -> u64 {
        self.epoch_len
    }

    /// Notes that `draws` more were consumed by this rank. Going past the end is no error: it is the end.
    pub fn advance(&self, draws: u64) {
        self.update(|taken| taken.saturating_add(draws));
    }

    /// Notes that one more batch was consumed; see [`Window::taken_by`]. All batches must be of that size.
    pub fn advance_batch(&self, batch_size: u64, drop_last: bool) {
        self.update(|taken| self.behind_batch(taken, batch_size, drop_last));
    }

    /// As [`Self::advance_batch`], for callers that count by themselves, and may count wrong.
    ///
    /// # Errors
    /// [`Error::Config`] where no batch is left; nothing is noted then.
    pub fn advance_counted(&self, batch_size: u64, drop_last: bool) -> Result<()> {
        let least = if drop_last { batch_size } else { 1 };
        let change = |taken: u64| {
            let is_left = taken.saturating_add(least) <= self.window.count();
            is_left.then(|| self.behind_batch(taken, batch_size, drop_last))
        };
        match self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, change) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::config(format!(
                "advance() must be called once for each of the window's {} batches and not after finish(), got one more \
                 call; reserve the next window and advance that",
                self.window.batches(batch_size, drop_last)
            ))),
        }
    }

    fn behind_batch(&self, taken: u64, batch_size: u64, drop_last: bool) -> u64 {
        let taken = taken.saturating_add(batch_size);
        let is_last = taken.saturating_add(batch_size) > self.window.count();
        if drop_last && is_last { u64::MAX } else { taken }
    }

    /// Notes that the iterator is at its end, so that all ranks are, whatever this one's share was.
    pub fn finish(&self) {
        self.taken.store(u64::MAX, Ordering::Release);
    }

    /// How many draws of its share this rank has consumed.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire).min(self.window.count())
    }

    /// Where the stream stands, all ranks being as far as this one.
    #[must_use]
    pub fn position(&self) -> Position {
        self.window.consumed(self.taken.load(Ordering::Acquire))
    }

    /// Whether nothing of the window is left on any rank.
    #[must_use]
    pub fn is_consumed(&self) -> bool {
        self.position() == self.window.dealt_end()
    }

    /// The state of the iterator.
    #[must_use]
    pub fn state(&self) -> CursorState {
        self.state_at(self.taken.load(Ordering::Acquire))
    }

    /// The state as it is once this rank has consumed `taken` draws of its share.
    ///
    /// For callers that count by themselves, as behind a loader that reads ahead; with batches, what
    /// [`Window::taken_by`] says.
    #[must_use]
    pub fn state_at(&self, taken: u64) -> CursorState {
        let position = self.window.consumed(taken);
        let inside = position < self.window.dealt_end();
        let window = inside.then(|| (self.nominal_start.0, self.window.nominal_end().0));
        CursorState { position, epoch_len: self.epoch_len, window }
    }

    /// The state as it is once this rank has consumed `batches` batches.
    ///
    /// # Errors
    /// [`Error::Config`] where the window has fewer.
    pub fn state_after(&self, batches: u64, batch_size: u64, drop_last: bool) -> Result<CursorState> {
        let most = self.window.batches(batch_size, drop_last);
        if batches > most {
            return Err(Error::config(format!(
                "batches must be in [0, {most}], which is how many this window has, got {batches}"
            )));
        }
        Ok(self.state_at(self.window.taken_by(batches, batch_size, drop_last)))
    }

    fn update(&self, change: impl Fn(u64) -> u64) {
        // One thread advances at a time; two would still lose nothing.
        let mut taken = self.taken.load(Ordering::Acquire);
        while let Err(newer) =
            self.taken.compare_exchange_weak(taken, change(taken), Ordering::AcqRel, Ordering::Acquire)
        {
            taken = newer;
        }
    }
}
