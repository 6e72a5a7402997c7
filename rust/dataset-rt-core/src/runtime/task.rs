//! A run that is read by whoever comes first: a thread of the pool, or the consumer that needs it now.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::outside::{Outside, WAIT};
use super::plan::Run;
use crate::error::{Error, Result};
use crate::store::{CacheSet, PayloadSlots, PlannedRecord, RecordReader};

/// Payload bytes that a calling thread reads between two looks at signals: some milliseconds' work.
const PIECE_BYTES: u64 = 32 << 20;

/// What a run needs to be read.
#[derive(Debug)]
pub struct Work<S> {
    run: Run,
    slots: S,
}

impl<S> Work<S> {
    /// A run with memory for its payloads.
    ///
    /// # Errors
    /// What `allocate` returns.
    pub fn new(run: Run, allocate: impl FnOnce(&Run) -> Result<S>) -> Result<Self> {
        let slots = allocate(&run)?;
        Ok(Self { run, slots })
    }

    /// The records.
    pub fn run(&self) -> &Run {
        &self.run
    }
}

/// A run whose every slot was written and checked. Only reading makes one.
#[derive(Debug)]
pub struct Filled<S> {
    run: Run,
    slots: S,
}

impl<S> Filled<S> {
    /// The records.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The records, and their payloads.
    pub fn into_parts(self) -> (Run, S) {
        (self.run, self.slots)
    }
}

/// A run that was read, or what was wrong together with the memory, which the consumer frees.
pub type Outcome<S> = std::result::Result<Filled<S>, Box<(Error, Work<S>)>>;

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

    /// The caches that the records are of.
    pub fn caches(&self) -> &CacheSet {
        &self.caches
    }

    /// Takes a run that nobody has begun to read; the task is over then.
    pub fn claim(&self) -> Option<Work<S>> {
        self.take_waiting(State::Gone)
    }

    /// Reads the run in this thread if nobody has begun.
    pub fn execute(&self, reader: &mut RecordReader) {
        let Some(work) = self.take_waiting(State::Running) else { return };
        let Work { run, mut slots } = work;
        let read = read_caught(&self.caches, &run.records, &mut slots, self.verify, &self.cancelled, reader);
        let outcome = match read {
            Ok(()) => Ok(Filled { run, slots }),
            Err(error) => Err(Box::new((error, Work { run, slots }))),
        };
        *self.lock() = State::Done(outcome);
        self.changed.notify_all();
    }

    /// Puts a run back that was read but could not be delivered yet.
    pub fn put_back(&self, outcome: Outcome<S>) {
        *self.lock() = State::Done(outcome);
    }

    /// Waits a little for whoever is reading the run.
    pub fn wait(&self) {
        let state = self.lock();
        if matches!(*state, State::Running) {
            drop(self.changed.wait_timeout(state, WAIT));
        }
    }

    fn take_waiting(&self, next: State<S>) -> Option<Work<S>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, next) {
            State::Waiting(work) => Some(work),
            other => {
                *state = other;
                None
            }
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

/// Why reading in the calling thread stopped, and what was read already if that was all.
#[derive(Debug)]
pub struct Stopped<S> {
    /// What the caller said.
    pub error: Error,
    /// The run, if its last piece had been read.
    pub outcome: Option<Outcome<S>>,
}

/// Reads a run in the calling thread, in pieces after which `outside` says whether to go on.
///
/// # Errors
/// [`Stopped`] where `outside` says so. What is wrong with the records is in the outcome.
pub fn read_in_pieces<S: PayloadSlots>(
    caches: &CacheSet,
    work: Work<S>,
    verify: bool,
    reader: &mut RecordReader,
    outside: &mut dyn Outside,
) -> std::result::Result<Outcome<S>, Box<Stopped<S>>> {
    let never = AtomicBool::new(false);
    let Work { run, mut slots } = work;
    let (mut first, mut result, mut stop) = (0, Ok(()), None);
    while let Some(records) = run.records.get(first..).filter(|records| !records.is_empty()) {
        let piece = piece_of(records);
        let mut part = Part { slots: &mut slots, first };
        let asked = outside.run(&mut || result = read_caught(caches, piece, &mut part, verify, &never, reader));
        first += piece.len();
        stop = asked.err();
        if result.is_err() || stop.is_some() {
            break;
        }
    }
    let complete = first >= run.records.len();
    let outcome = match result {
        Ok(()) if complete => Some(Ok(Filled { run, slots })),
        Ok(()) => None,
        Err(error) => Some(Err(Box::new((error, Work { run, slots })))),
    };
    match (stop, outcome) {
        (None, Some(outcome)) => Ok(outcome),
        (Some(error), outcome) => Err(Box::new(Stopped { error, outcome })),
        (None, None) => {
            let error = Error::Internal { message: "a run was left half read".to_owned() };
            Err(Box::new(Stopped { error, outcome: None }))
        }
    }
}

/// As many records from the front as fit [`PIECE_BYTES`], but at least one.
fn piece_of(records: &[PlannedRecord]) -> &[PlannedRecord] {
    let mut bytes = 0_u64;
    let fitting = records.iter().take_while(|record| {
        bytes = bytes.saturating_add(record.entry.payload_bytes);
        bytes <= PIECE_BYTES
    });
    let length = fitting.count().max(1);
    records.get(..length).unwrap_or(records)
}

/// The slots of a run from one of its records on.
struct Part<'slots, S> {
    slots: &'slots mut S,
    first: usize,
}

impl<S: PayloadSlots> PayloadSlots for Part<'_, S> {
    fn slot(&mut self, index: usize) -> &mut [MaybeUninit<u8>] {
        self.slots.slot(self.first.saturating_add(index))
    }
}

/// Reads records, and turns a panic into an error.
fn read_caught(
    caches: &CacheSet,
    records: &[PlannedRecord],
    slots: &mut dyn PayloadSlots,
    verify: bool,
    cancelled: &AtomicBool,
    reader: &mut RecordReader,
) -> Result<()> {
    let read = || reader.read(caches, records, slots, verify, cancelled);
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| Err(Error::from_panic(panic.as_ref())))
}
