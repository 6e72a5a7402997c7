//! State that every process has of its own, so that a forked child never waits for a lock of its parent.
//!
//! A lock that another thread holds at the moment of a fork stays locked in the child for ever: the thread that
//! would unlock it does not exist there. So whatever is guarded or made lazily hangs on a chain with one link per
//! process: the child finds that the link is another process's, leaves it alone and appends its own.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// No process has this number.
const NOBODY: u32 = 0;

/// A value per process, made at the process's first use of it.
#[derive(Debug)]
pub struct PerProcess<T> {
    /// Its owner. An atomic: a lock would stay locked in a child that is forked while it is taken.
    process: AtomicU32,
    value: OnceLock<T>,
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> PerProcess<T> {
    /// An empty chain; costs nothing, so it can be a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self { process: AtomicU32::new(NOBODY), value: OnceLock::new(), next: OnceLock::new() }
    }

    /// This process's value, made by `make` if there is none yet.
    ///
    /// Threads of one process that come at once wait for each other; a child never waits for its parent.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.link().value.get_or_init(make)
    }

    /// The value of this process or of one that it was forked from, whichever exists: for immutable values.
    pub fn inherited(&self) -> Option<&T> {
        let mut link = self;
        loop {
            if let Some(value) = link.value.get() {
                return Some(value);
            }
            link = link.next.get()?;
        }
    }

    fn link(&self) -> &Self {
        let current = process::id();
        let mut link = self;
        while link
            .process
            .compare_exchange(NOBODY, current, Ordering::AcqRel, Ordering::Acquire)
            .is_err_and(|owner| owner != current)
        {
            link = link.next.get_or_init(|| Box::new(Self::new()));
        }
        link
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::PerProcess;

    #[test]
    fn a_value_is_made_once_and_found_again() {
        let chain = PerProcess::new();
        assert_eq!(chain.inherited(), None);
        assert_eq!(*chain.get_or_init(|| 7), 7);
        assert_eq!(*chain.get_or_init(|| 8), 7);
        assert_eq!(chain.inherited(), Some(&7));
    }
}
