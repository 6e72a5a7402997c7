//! The threads of a runtime.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, unbounded};

use crate::error::{Error, Result};
use crate::store::{PerProcess, RecordReader};

/// The most threads that a runtime starts unless it is told a number: beyond it, memory bandwidth is the limit.
const DEFAULT_MOST_WORKERS: usize = 8;

/// A piece of work. It never waits for another piece, so any number of threads can work off any number of pieces.
pub type Job = Box<dyn FnOnce(&mut RecordReader) + Send>;

/// Native threads that are shared by all operations of one runtime, started at first need.
///
/// The state is per process: a forked child never touches its parent's threads and queues, and starts threads of its
/// own for what it opens itself.
#[derive(Debug)]
pub struct Runtime {
    workers: usize,
    pool: PerProcess<Mutex<PoolState>>,
}

#[derive(Debug, Default)]
enum PoolState {
    #[default]
    Unstarted,
    Running(Arc<Pool>),
    Closed,
}

/// Running threads. They end when the last handle is dropped.
#[derive(Debug)]
pub struct Pool {
    sender: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

impl Runtime {
    /// At most `workers` threads; by default as many as the process may use processors, but no more than 8.
    ///
    /// # Errors
    /// [`Error::Config`] for 0 workers.
    pub fn new(workers: Option<usize>) -> Result<Self> {
        let usable = || thread::available_parallelism().map_or(1, NonZeroUsize::get).min(DEFAULT_MOST_WORKERS);
        match workers.unwrap_or_else(usable) {
            0 => Err(Error::config("num_workers must be at least 1, got 0")),
            workers => Ok(Self { workers, pool: PerProcess::new() }),
        }
    }

    /// The most threads that this runtime has.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The running threads, started now if they are not; `None` where the calling thread does the work: with one
    /// worker, after [`Runtime::close`], and where the system gives no threads.
    pub fn pool(&self) -> Option<Arc<Pool>> {
        if self.workers == 1 {
            return None;
        }
        let mut state = self.pool.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, PoolState::Unstarted) {
            *state = Pool::start(self.workers).map_or(PoolState::Closed, |pool| PoolState::Running(Arc::new(pool)));
        }
        match &*state {
            PoolState::Running(pool) => Some(Arc::clone(pool)),
            PoolState::Unstarted | PoolState::Closed => None,
        }
    }

    /// Lets the threads end once nothing uses them. What is used later works in the calling thread.
    pub fn close(&self) {
        let mut state = self.pool.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        *state = PoolState::Closed;
    }
}

impl Pool {
    /// Starts as many of the threads as the system gives; `None` where it gives none.
    fn start(workers: usize) -> Option<Self> {
        let (sender, receiver) = unbounded::<Job>();
        let threads: Vec<_> = (0..workers)
            .map_while(|number| {
                let receiver = receiver.clone();
                let work = move || {
                    let mut reader = RecordReader::default();
                    while let Ok(job) = receiver.recv() {
                        // Jobs catch the panics that they can report; one that they missed must not end the thread.
                        if catch_unwind(AssertUnwindSafe(|| job(&mut reader))).is_err() {
                            reader = RecordReader::default();
                        }
                    }
                };
                thread::Builder::new().name(format!("dataset-rt-{number}")).spawn(work).ok()
            })
            .collect();
        (!threads.is_empty()).then_some(Self { sender: Some(sender), threads, process: process::id() })
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Puts a piece of work in the queue. Its operation bounds how many it puts there.
    pub fn submit(&self, job: Job) {
        if let Some(sender) = &self.sender {
            // It fails only when every thread has ended, which none does while the pool lives.
            let _ = sender.send(job);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != process::id() {
            // In a forked child: its parent's threads do not run here, so it must neither wait for them nor touch the
            // queue, whose locks they may have held.
            std::mem::forget(self.sender.take());
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.sender = None;
        let current = thread::current().id();
        for thread in self.threads.drain(..) {
            // A thread of the pool may hold its last handle; it cannot wait for itself, and ends by itself.
            if thread.thread().id() != current {
                let _ = thread.join();
            }
        }
    }
}
