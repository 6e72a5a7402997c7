//! State that one thread at a time works with.

use std::sync::{Mutex, MutexGuard, TryLockError};

use dataset_rt_core::Error;
use pyo3::PyResult;

use crate::errors::exception;

/// The state of an iterator. Nobody ever waits for it: not another thread, and not a forked child, in which a thread
/// of the parent would hold it for ever.
pub struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub fn new(state: T) -> Self {
        Self(Mutex::new(state))
    }

    /// The state, or an error where another thread is at work with it.
    pub fn take(&self) -> PyResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(state) => Ok(state),
            // Whatever panicked left the state valid: it is changed in single steps.
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(exception(Error::config(
                "an iterator serves one thread at a time, got a call from another one; make an iterator for each thread",
            ))),
        }
    }

    /// The state, from whoever owns it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
