//! A run that is read by whoever comes first: a thread of the pool, or the consumer that needs it now.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::outside::WAIT;
use super::plan::Run;
use crate::error::Error;
use crate::store::{CacheSet, PayloadSlots, RecordReader};

/// What a run needs to be read.
#[derive(Debug)]
pub struct Work<S> {
    /// The records.
    pub run: Run,
    /// Memory for their payloads.
    pub slots: S,
}

/// A run that was read, or what was wrong together with the memory, which the consumer frees.
pub type Outcome<S> = std::result::Result<Work<S>, Box<(Error, Work<S>)>>;

/// A run on its way.
#[derive(Debug)]
pub struct Task<S> {
    caches: Arc<CacheSet>,
    verify: bool,
    cancelled: Arc<AtomicBool>,
    state: Mutex<State<S>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<S> {
    Waiting(Work<S>),
    Running,
    Done(Outcome<S>),
    Gone,
}

impl<S: PayloadSlots> Task<S> {
    /// A run that nobody reads yet.
    pub fn new(caches: Arc<CacheSet>, work: Work<S>, verify: bool, cancelled: Arc<AtomicBool>) -> Self {
        Self { caches, verify, cancelled, state: Mutex::new(State::Waiting(work)), changed: Condvar::new() }
    }

    /// Reads the run in this thread if nobody has begun.
    pub fn execute(&self, reader: &mut RecordReader) {
        let taken = {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, State::Running) {
                State::Waiting(work) => work,
                other => {
                    *state = other;
                    return;
                }
            }
        };
        let result = read_now(&self.caches, taken, self.verify, &self.cancelled, reader);
        *self.lock() = State::Done(result);
        self.changed.notify_all();
    }

    /// Reads the run if nobody has begun, or waits a little for whoever has.
    pub fn execute_or_wait(&self, reader: &mut RecordReader) {
        self.execute(reader);
        let state = self.lock();
        if matches!(*state, State::Running) {
            drop(self.changed.wait_timeout(state, WAIT));
        }
    }

    /// The finished run, once; `None` while it is not finished.
    pub fn take_done(&self) -> Option<Outcome<S>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Done(result) => Some(result),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Frees the memory of a run that nobody is reading, and says whether that is so. A run that is being read stays
    /// with its thread; ask again later.
    pub fn withdraw(&self) -> bool {
        let mut state = self.lock();
        if matches!(*state, State::Running) {
            return false;
        }
        let gone = std::mem::replace(&mut *state, State::Gone);
        drop(state);
        drop(gone);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        // Nothing panics while it is locked: panics of a read are caught before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a run in this thread.
///
/// # Errors
/// As [`RecordReader::read`]; [`Error::Internal`] for a panic.
pub fn read_now<S: PayloadSlots>(
    caches: &CacheSet,
    mut work: Work<S>,
    verify: bool,
    cancelled: &AtomicBool,
    reader: &mut RecordReader,
) -> Outcome<S> {
    let read = || reader.read(caches, &work.run.records, &mut work.slots, verify, cancelled);
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(())) => Ok(work),
        Ok(Err(error)) => Err(Box::new((error, work))),
        Err(panic) => Err(Box::new((Error::from_panic(panic.as_ref()), work))),
    }
}
