//! Where a dataset's stream stands, and over which population.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataset_rt_core::order::{Cursor, CursorState, Progress, Ticket};
use dataset_rt_core::population::Population;
use pyo3::prelude::*;

use crate::errors::exception;

/// What changes together in a dataset.
pub struct Place {
    pub population: Arc<Population>,
    pub cursor: Cursor,
    /// The user's table that the population was made from, or `None` while nobody has edited it.
    pub table: Option<Py<PyAny>>,
}

/// The mutable part of a dataset. Its lock is taken only by threads that hold the GIL, and no Python runs while it is
/// held, so that nobody who holds the GIL ever waits for it, and it is free whenever Python forks.
pub struct Standing {
    place: Mutex<Place>,
}

impl Standing {
    pub fn new(place: Place) -> Self {
        Self { place: Mutex::new(place) }
    }

    /// Works with the place. The exception of a failure is made after the lock is given back: making it runs Python. For
    /// the same reason `work` must not drop a Python object.
    pub fn with<R>(&self, work: impl FnOnce(&mut Place) -> dataset_rt_core::Result<R>) -> PyResult<R> {
        let result = work(&mut self.lock());
        result.map_err(exception)
    }

    /// The population of now, and where the stream of an iterator that has not begun stands.
    pub fn state_of(&self, ticket: &Ticket) -> CursorState {
        self.lock().cursor.state_of(ticket)
    }

    /// How many samples an iterator that has not begun would deliver.
    pub fn count_of(&self, ticket: &Ticket) -> u64 {
        self.lock().cursor.count_of(ticket)
    }

    pub fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the window of an iterator.
    pub fn reserve(&self, ticket: &Ticket) -> PyResult<Arc<Progress>> {
        self.with(|place| place.cursor.reserve(ticket))
    }
}
