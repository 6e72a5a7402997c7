//! What both kinds of iterators do: reserve a window at the first `next`, read it ahead, say how far they are.

use std::sync::Arc;

use dataset_rt_core::order::{CursorState, Progress, Ticket};
use dataset_rt_core::population::Population;
use dataset_rt_core::runtime::{ReadAhead, ReadLimits, Task};
use dataset_rt_core::store::PayloadSlots;
use pyo3::prelude::*;

use crate::shared::Shared;
use crate::standing::Standing;

/// One window of a dataset, read into memory of the kind `S`.
pub struct WindowReader<S: PayloadSlots + 'static> {
    pub shared: Arc<Shared>,
    pub population: Arc<Population>,
    origin: Origin,
    reading: Option<(Arc<Progress>, ReadAhead<S>)>,
}

/// Where a reader's window comes from.
enum Origin {
    /// The reader reserves it, and what it delivers is consumed.
    Next(Arc<Standing>, Ticket),
    /// It is reserved already, by somebody who says what was consumed.
    Reserved(Arc<Progress>),
}

impl<S: PayloadSlots + 'static> WindowReader<S> {
    /// A reader that moves nothing yet.
    pub fn new(shared: Arc<Shared>, standing: Arc<Standing>, population: Arc<Population>, ticket: Ticket) -> Self {
        Self { shared, population, origin: Origin::Next(standing, ticket), reading: None }
    }

    /// A reader of a window that is reserved already. It reports nothing as consumed.
    pub fn reserved(shared: Arc<Shared>, population: Arc<Population>, progress: Arc<Progress>) -> Self {
        Self { shared, population, origin: Origin::Reserved(progress), reading: None }
    }

    /// The window's reading; the first call reserves it and begins to read the draws that `delivered`
    /// leaves of its length.
    pub fn begun(
        &mut self,
        limits: impl FnOnce(&Shared) -> ReadLimits,
        delivered: impl FnOnce(u64) -> u64,
    ) -> PyResult<&mut ReadAhead<S>> {
        let (_, ahead) = match &mut self.reading {
            Some(reading) => reading,
            reading @ None => {
                let progress = match &self.origin {
                    Origin::Next(standing, ticket) => standing.reserve(ticket)?,
                    Origin::Reserved(progress) => Arc::clone(progress),
                };
                let (window, count) = (*progress.window(), delivered(progress.window().count()));
                let (population, pool) = (Arc::clone(&self.population), self.shared.pool());
                let ahead = ReadAhead::new(population, window, count, limits(&self.shared), pool);
                reading.insert((progress, ahead))
            }
        };
        Ok(ahead)
    }

    /// The window's progress once it was reserved, before that what it will be reserved by.
    fn begun_or_ticket(&self) -> Result<&Progress, (&Standing, &Ticket)> {
        match (&self.origin, &self.reading) {
            (Origin::Reserved(progress), _) | (Origin::Next(..), Some((progress, _))) => Ok(progress),
            (Origin::Next(standing, ticket), None) => Err((standing, ticket)),
        }
    }

    /// Notes what was delivered, unless somebody else says what was consumed.
    pub fn consumed(&self, note: impl FnOnce(&Progress)) {
        if let (Origin::Next(..), Some((progress, _))) = (&self.origin, &self.reading) {
            note(progress);
        }
    }

    /// How many samples are to come, where `delivered` says how many of a window's draws are delivered at all.
    pub fn left(&self, delivered: impl FnOnce(u64) -> u64) -> u64 {
        match self.begun_or_ticket() {
            Ok(progress) => delivered(progress.window().count()).saturating_sub(progress.taken()),
            Err((standing, ticket)) => delivered(standing.count_of(ticket)),
        }
    }

    /// The population, and where the stream stands after what was delivered.
    pub fn state(&self) -> (Arc<Population>, CursorState) {
        let cursor = match self.begun_or_ticket() {
            Ok(progress) => progress.state(),
            Err((standing, ticket)) => standing.state_of(ticket),
        };
        (Arc::clone(&self.population), cursor)
    }

    /// Gives up what is on its way; see [`ReadAhead::cancel`].
    pub fn cancel(&mut self) -> Vec<Arc<Task<S>>> {
        self.reading.take().map(|(_, mut ahead)| ahead.cancel()).unwrap_or_default()
    }
}
