//! Where a dataset's stream stands, and over which population.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataset_rt_core::order::{Cursor, CursorState, Progress, Ticket};
use dataset_rt_core::population::Population;
use pyo3::prelude::*;

use crate::errors::exception;

/// The mutable part of a dataset. Its lock is taken only by threads that hold the GIL, and no Python runs while it is
/// held, so that nobody who holds the GIL ever waits for it, and it is free whenever Python forks.
pub struct Standing {
    state: Mutex<(Arc<Population>, Cursor)>,
}

impl Standing {
    pub fn new(population: Arc<Population>, cursor: Cursor) -> Self {
        Self { state: Mutex::new((population, cursor)) }
    }

    /// Works with population and cursor. The exception of a failure is made after the lock is given back: making it runs
    /// Python.
    pub fn with<R>(
        &self,
        work: impl FnOnce(&mut Arc<Population>, &mut Cursor) -> dataset_rt_core::Result<R>,
    ) -> PyResult<R> {
        let result = {
            let mut standing = self.lock();
            let (population, cursor) = &mut *standing;
            work(population, cursor)
        };
        result.map_err(exception)
    }

    /// The population of now, and where the stream of an iterator that has not begun stands.
    pub fn state_of(&self, ticket: &Ticket) -> CursorState {
        self.lock().1.state_of(ticket)
    }

    /// How many samples an iterator that has not begun would deliver.
    pub fn count_of(&self, ticket: &Ticket) -> u64 {
        self.lock().1.count_of(ticket)
    }

    pub fn lock(&self) -> MutexGuard<'_, (Arc<Population>, Cursor)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the window of an iterator.
    pub fn reserve(&self, ticket: &Ticket) -> PyResult<Arc<Progress>> {
        self.with(|_, cursor| cursor.reserve(ticket))
    }
}
