//! Reads a window's draws ahead of their consumer, in runs, and delivers them in order.

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::outside::Outside;
use super::plan::{Drawer, Run, plan};
use super::pool::Pool;
use super::task::{Filled, Task, Work, read_in_pieces};
use crate::error::Result;
use crate::order::Window;
use crate::population::Population;
use crate::store::{PayloadSlots, RecordReader};

/// Draws of a run of single samples: the cost of handing a run to a thread is spread over them. With two threads and
/// 1 KiB a sample took 574 ns at 16 draws a run, 518 at 32 and 504 at 64, each with four runs in flight, and 493 with eight.
const RUN_DRAWS: u64 = 64;
/// Payload bytes of such a run. With two threads and 100 KiB a shuffled sample took 5.4 µs with 256 KiB a run, 3.9 with
/// 512 KiB, 3.5 with 1 MiB and 4.5 with 2 MiB, each with four runs in flight.
const RUN_BYTES: u64 = 1 << 20;
/// Runs in flight at most.
const RUNS_AHEAD: usize = 8;
/// Payload bytes in flight beyond which no run is begun that would not find a free thread: few large payloads stay in the
/// processor's cache. With runs of 1 MiB, eight in flight cost 0.6 µs more a sample of 100 KiB than four.
const CACHED_BYTES: u64 = 4 << 20;

/// How far and in which pieces to read ahead.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    run_draws: u64,
    run_bytes: u64,
    ahead_draws: u64,
    ahead_bytes: u64,
    verify: bool,
}

impl ReadLimits {
    /// For a reader that delivers single samples: at most `prefetch_size` of them and `prefetch_bytes` of payload are
    /// read ahead, whichever is less, but always one.
    #[must_use]
    pub fn samples(prefetch_size: u64, prefetch_bytes: u64, verify: bool) -> Self {
        Self {
            run_draws: (prefetch_size / 4).clamp(1, RUN_DRAWS),
            run_bytes: (prefetch_bytes / 4).clamp(1, RUN_BYTES),
            ahead_draws: prefetch_size.max(1),
            ahead_bytes: prefetch_bytes,
            verify,
        }
    }

    /// For a reader that delivers batches: a batch is one run. Two are on their way where `prefetch_bytes` allows it,
    /// however small `prefetch_size` is, because one batch is read by one thread; and one at least.
    #[must_use]
    pub fn batches(batch_size: u64, prefetch_size: u64, prefetch_bytes: u64, verify: bool) -> Self {
        Self {
            run_draws: batch_size.max(1),
            run_bytes: u64::MAX,
            ahead_draws: prefetch_size.max(batch_size.saturating_mul(2)),
            ahead_bytes: prefetch_bytes,
            verify,
        }
    }
}

/// A run whose payloads are complete and checked, and the place in the window of its first draw.
pub type FinishedRun<S> = (u64, Filled<S>);

/// Reads the draws of one window.
#[derive(Debug)]
pub struct ReadAhead<S: PayloadSlots + 'static> {
    drawer: Drawer,
    window: Window,
    count: u64,
    limits: ReadLimits,
    pool: Option<Arc<Pool>>,
    /// Runs on their way, oldest first, with the place of their first draw.
    queue: VecDeque<(u64, Arc<Task<S>>)>,
    queued_draws: u64,
    queued_bytes: u64,
    /// The next run, while the queue has no room for its bytes.
    planned: Option<Run>,
    /// Place of the first draw that no run holds, and of the first that was not delivered.
    next: u64,
    delivered: u64,
    /// How many draws of the next run its bytes leave room for, as far as the last one tells: no more are looked up.
    likely_draws: u64,
    /// Draws before this place are read one by one, after a run failed, so that all before the bad one are delivered.
    single_until: u64,
    cancelled: Arc<AtomicBool>,
    /// Cancelled runs that a thread was still reading: their memory must outlive it.
    leftovers: Vec<Arc<Task<S>>>,
    reader: RecordReader,
    process: u32,
}

impl<S: PayloadSlots + 'static> ReadAhead<S> {
    /// Reads the first `count` draws of `window`; by the calling thread alone where there is no pool.
    #[must_use]
    pub fn new(
        population: Arc<Population>,
        window: Window,
        count: u64,
        limits: ReadLimits,
        pool: Option<Arc<Pool>>,
    ) -> Self {
        Self {
            drawer: Drawer::new(population),
            window,
            count,
            limits,
            pool,
            queue: VecDeque::new(),
            queued_draws: 0,
            queued_bytes: 0,
            planned: None,
            next: 0,
            delivered: 0,
            likely_draws: u64::MAX,
            single_until: 0,
            cancelled: Arc::new(AtomicBool::new(false)),
            leftovers: Vec::new(),
            reader: RecordReader::default(),
            process: process::id(),
        }
    }

    /// The next run, or `None` after the last. `allocate` makes the memory for a run's payloads.
    ///
    /// # Errors
    /// What is wrong with the next sample, after all samples before it were delivered; the same again at the next call,
    /// unless it was mended. Or what `allocate` and `outside` return.
    pub fn next(
        &mut self,
        allocate: &mut dyn FnMut(&Run) -> Result<S>,
        outside: &mut dyn Outside,
    ) -> Result<Option<FinishedRun<S>>> {
        if self.process != process::id() {
            self.leave_to_parent();
        }
        loop {
            let planned = self.top_up(allocate);
            let Some((first, task)) = self.queue.front().cloned() else {
                return planned.map(|()| None);
            };
            let result = loop {
                if let Some(result) = task.take_done() {
                    break result;
                }
                if let Some(work) = task.claim() {
                    let read = read_in_pieces(task.caches(), work, self.limits.verify, &mut self.reader, outside);
                    match read {
                        Ok(outcome) => break outcome,
                        Err(stopped) => {
                            match stopped.outcome {
                                Some(outcome) => task.put_back(outcome),
                                None => self.restart(),
                            }
                            return Err(stopped.error);
                        }
                    }
                }
                outside.run(&mut || task.wait())?;
            };
            match result {
                Ok(filled) => {
                    self.queue.pop_front();
                    let draws = filled.run().records.len() as u64;
                    self.queued_draws -= draws;
                    self.queued_bytes -= filled.run().payload_bytes;
                    self.delivered = first + draws;
                    // The next runs are read while the consumer works on this one. What is wrong with them is said when
                    // they are asked for.
                    let _ = self.top_up(allocate);
                    return Ok(Some((first, filled)));
                }
                Err(failed) => {
                    let (error, _) = *failed;
                    let single = first < self.single_until || self.limits.run_draws == 1;
                    let after = self.queue.get(1).map_or(self.next, |(first, _)| *first);
                    self.restart();
                    if single || after <= first + 1 || self.limits.run_bytes == u64::MAX {
                        return Err(error);
                    }
                    self.single_until = after;
                }
            }
        }
    }

    /// Delivers the run with the first draw `first`, the last that was given out, once more: its consumer failed.
    pub fn give_back(&mut self, first: u64) {
        self.delivered = first;
        self.restart();
    }

    /// Plans and starts runs until the limits are reached. Its error concerns the next run after those in the queue.
    fn top_up(&mut self, allocate: &mut dyn FnMut(&Run) -> Result<S>) -> Result<()> {
        while self.next < self.count && self.has_room() {
            let careful = self.next < self.single_until;
            let run = match self.planned.take() {
                Some(run) => run,
                None => self.plan_next(if careful { 1 } else { self.limits.run_draws })?,
            };
            let (draws, bytes) = (run.records.len() as u64, run.payload_bytes);
            if !self.queue.is_empty() && self.queued_bytes.saturating_add(bytes) > self.limits.ahead_bytes {
                self.planned = Some(run);
                break;
            }
            let work = Work::new(run, &mut *allocate)?;
            let caches = Arc::clone(self.drawer.population().caches());
            let task = Arc::new(Task::new(caches, work, self.limits.verify, Arc::clone(&self.cancelled)));
            if let Some(pool) = self.pool.as_ref().filter(|_| !careful) {
                let task = Arc::clone(&task);
                pool.submit(Box::new(move |reader| task.execute(reader)));
            }
            self.queue.push_back((self.next, task));
            self.queued_draws += draws;
            self.queued_bytes += bytes;
            self.next += draws;
        }
        Ok(())
    }

    /// Plans a run of at most `most` draws from the next one on.
    fn plan_next(&mut self, most: u64) -> Result<Run> {
        let caches = Arc::clone(self.drawer.population().caches());
        let (first, step) = (self.window.position(self.next), self.window.world().size());
        let most = most.min(self.likely_draws);
        let records = self.drawer.records(first, step, most.min(self.count - self.next))?;
        let run = plan(&caches, records, self.limits.run_bytes)?;
        if self.limits.run_bytes != u64::MAX {
            let draws = run.records.len() as u64;
            self.likely_draws = if draws < most { draws + 1 } else { self.likely_draws.saturating_mul(2) };
        }
        Ok(run)
    }

    fn has_room(&self) -> bool {
        if self.queue.is_empty() {
            return true;
        }
        let Some(pool) = &self.pool else { return false };
        let needed = self.queue.len() <= pool.threads() || self.queued_bytes < CACHED_BYTES;
        needed
            && self.next >= self.single_until
            && self.queue.len() < RUNS_AHEAD
            && self.queued_draws.saturating_add(self.limits.run_draws) <= self.limits.ahead_draws
    }

    /// Gives up what is on its way and goes back to the first draw that was not delivered.
    fn restart(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.leftovers.extend(self.queue.drain(..).map(|(_, task)| task));
        self.leftovers.retain(|task| !task.withdraw());
        self.cancelled = Arc::new(AtomicBool::new(false));
        self.queued_draws = 0;
        self.queued_bytes = 0;
        self.planned = None;
        self.next = self.delivered;
    }

    /// Gives up what is on its way and returns the runs that a thread is still reading, which stop at their next record.
    ///
    /// Whoever must not let that thread free their memory keeps them until [`Task::withdraw`] says that it is done.
    pub fn cancel(&mut self) -> Vec<Arc<Task<S>>> {
        if self.process == process::id() {
            self.restart();
        } else {
            self.leave_to_parent();
        }
        self.count = self.delivered;
        std::mem::take(&mut self.leftovers)
    }

    /// In a forked child: forgets the parent's threads, queue and locks, and goes on in the calling thread.
    fn leave_to_parent(&mut self) {
        std::mem::forget(std::mem::take(&mut self.queue));
        std::mem::forget(std::mem::take(&mut self.leftovers));
        std::mem::forget(self.pool.take());
        self.cancelled = Arc::new(AtomicBool::new(false));
        self.reader = RecordReader::default();
        self.queued_draws = 0;
        self.queued_bytes = 0;
        self.planned = None;
        self.next = self.delivered;
        self.process = process::id();
    }
}

impl<S: PayloadSlots + 'static> Drop for ReadAhead<S> {
    fn drop(&mut self) {
        drop(self.cancel());
    }
}
