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
    standing: Arc<Standing>,
    ticket: Ticket,
    reading: Option<(Arc<Progress>, ReadAhead<S>)>,
}

impl<S: PayloadSlots + 'static> WindowReader<S> {
    /// A reader that moves nothing yet.
    pub fn new(shared: Arc<Shared>, standing: Arc<Standing>, population: Arc<Population>, ticket: Ticket) -> Self {
        Self { shared, population, standing, ticket, reading: None }
    }

    /// The window's progress and its reading; the first call reserves it and begins to read the draws that `delivered`
    /// leaves of its length.
    pub fn begun(
        &mut self,
        limits: impl FnOnce(&Shared) -> ReadLimits,
        delivered: impl FnOnce(u64) -> u64,
    ) -> PyResult<(&Arc<Progress>, &mut ReadAhead<S>)> {
        let (progress, ahead) = match &mut self.reading {
            Some(reading) => reading,
            reading @ None => {
                let progress = self.standing.reserve(&self.ticket)?;
                let (window, count) = (*progress.window(), delivered(progress.window().count()));
                let (population, pool) = (Arc::clone(&self.population), self.shared.pool());
                let ahead = ReadAhead::new(population, window, count, limits(&self.shared), pool);
                reading.insert((progress, ahead))
            }
        };
        Ok((progress, ahead))
    }

    /// The window's progress, once it was reserved.
    pub fn progress(&self) -> Option<&Arc<Progress>> {
        self.reading.as_ref().map(|(progress, _)| progress)
    }

    /// How many samples are to come, where `delivered` says how many of a window's draws are delivered at all.
    pub fn left(&self, delivered: impl FnOnce(u64) -> u64) -> u64 {
        match self.progress() {
            Some(progress) => delivered(progress.window().count()).saturating_sub(progress.taken()),
            None => delivered(self.standing.count_of(&self.ticket)),
        }
    }

    /// The population, and where the stream stands after what was delivered.
    pub fn state(&self) -> (Arc<Population>, CursorState) {
        let cursor = match self.progress() {
            Some(progress) => progress.state(),
            None => self.standing.state_of(&self.ticket),
        };
        (Arc::clone(&self.population), cursor)
    }

    /// Gives up what is on its way; see [`ReadAhead::cancel`].
    pub fn cancel(&mut self) -> Vec<Arc<Task<S>>> {
        self.reading.take().map(|(_, mut ahead)| ahead.cancel()).unwrap_or_default()
    }
}
