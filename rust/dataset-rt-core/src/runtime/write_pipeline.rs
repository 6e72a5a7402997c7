//! Encodes batches on the pool's threads and appends them in the source's order, with a bound on what is in between.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::encode::{EncodedBatch, Encoders, SampleBatch};
use super::outside::{Outside, WAIT};
use super::pool::Pool;
use crate::error::{Error, Result};
use crate::store::CacheWriter;

/// The part of a write between the source and the files.
#[derive(Debug)]
pub struct WritePipeline<P> {
    shared: Arc<Shared<P>>,
    pool: Option<Arc<Pool>>,
    most_samples: u64,
    most_bytes: u64,
    submitted: u64,
    process: u32,
}

#[derive(Debug)]
struct Shared<P> {
    encoders: Encoders,
    state: Mutex<State<P>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<P> {
    /// `None` while a thread appends to it.
    writer: Option<Box<CacheWriter>>,
    /// Encoded batches by number, waiting for those before them.
    waiting: BTreeMap<u64, (SampleBatch<P>, EncodedBatch)>,
    /// Batches that are done with. The caller frees them: threads must not free what belongs to Python.
    done: Vec<SampleBatch<P>>,
    /// Number of the batch to append next.
    next: u64,
    /// Samples and payload bytes between the source and the files.
    samples: u64,
    bytes: u64,
    /// Batches whose thread has not finished.
    running: u64,
    failure: Option<Error>,
}

impl<P: AsRef<[u8]> + Send + 'static> WritePipeline<P> {
    /// A pipeline into `writer` that holds at most `most_samples` samples and `most_bytes` of payload, but always one
    /// batch; without a pool the calling thread does everything.
    pub fn new(
        writer: CacheWriter,
        encoders: Encoders,
        pool: Option<Arc<Pool>>,
        most_samples: u64,
        most_bytes: u64,
    ) -> Self {
        let state = State {
            writer: Some(Box::new(writer)),
            waiting: BTreeMap::new(),
            done: Vec::new(),
            next: 0,
            samples: 0,
            bytes: 0,
            running: 0,
            failure: None,
        };
        let shared = Arc::new(Shared { encoders, state: Mutex::new(state), changed: Condvar::new() });
        Self { shared, pool, most_samples, most_bytes, submitted: 0, process: process::id() }
    }

    /// Hands the next batch on, after waiting until there is room for it.
    ///
    /// # Errors
    /// The failure of an earlier batch or of this one, or what `outside` returns.
    pub fn submit(&mut self, batch: SampleBatch<P>, outside: &mut dyn Outside) -> Result<()> {
        let (samples, bytes) = (batch.samples.len() as u64, batch.payload_bytes);
        let (most_samples, most_bytes) = (self.most_samples, self.most_bytes);
        drop(std::mem::take(&mut self.shared.lock().done));
        self.wait_until(outside, |state| {
            state.samples == 0
                || (state.samples.saturating_add(samples) <= most_samples
                    && state.bytes.saturating_add(bytes) <= most_bytes)
        })?;
        let number = self.submitted;
        self.submitted += 1;
        {
            let mut state = self.shared.lock();
            state.samples += samples;
            state.bytes += bytes;
            state.running += 1;
        }
        let shared = Arc::clone(&self.shared);
        match &self.pool {
            Some(pool) => pool.submit(Box::new(move |_| shared.process(number, batch))),
            None => {
                let mut batch = Some(batch);
                outside.run(&mut || {
                    if let Some(batch) = batch.take() {
                        shared.process(number, batch);
                    }
                })?;
            }
        }
        self.shared.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Waits until everything is appended and gives the writer back.
    ///
    /// # Errors
    /// The failure of a batch, or what `outside` returns.
    pub fn finish(self, outside: &mut dyn Outside) -> Result<CacheWriter> {
        self.wait_until(outside, |state| state.running == 0)?;
        let writer = self.shared.lock().writer.take();
        writer.map(|writer| *writer).ok_or_else(|| Error::Internal { message: "the writer is gone".to_owned() })
    }

    fn wait_until(&self, outside: &mut dyn Outside, ready: impl Fn(&State<P>) -> bool + Sync) -> Result<()> {
        loop {
            {
                let mut state = self.shared.lock();
                if let Some(failure) = state.failure.take() {
                    return Err(failure);
                }
                if ready(&state) {
                    return Ok(());
                }
            }
            let shared = &self.shared;
            outside.run(&mut || {
                // Looks again: what was notified of since the lock was released would otherwise be slept through.
                let state = shared.lock();
                if state.failure.is_none() && !ready(&state) {
                    drop(shared.changed.wait_timeout(state, WAIT));
                }
            })?;
        }
    }
}

impl<P> Drop for WritePipeline<P> {
    /// Waits for the threads that still work on a batch, so that nothing is written to a folder that is being removed.
    fn drop(&mut self) {
        if self.process != process::id() {
            // In a child that the source forked and that unwinds through its copy of the write: the threads that would
            // finish do not run here, and one of them may have held the lock.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let mut state = self.shared.lock();
        if state.failure.is_none() {
            // Batches that have not begun are skipped by their threads.
            state.failure = Some(Error::Interrupted);
        }
        while state.running > 0 {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let done = (state.writer.take(), std::mem::take(&mut state.waiting), std::mem::take(&mut state.done));
        drop(state);
        drop(done);
    }
}

impl<P> Shared<P> {
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        // Nothing panics while it is locked: encoding and appending are done outside of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: AsRef<[u8]>> Shared<P> {
    /// Encodes a batch, then appends it and those that waited for it, unless another thread is appending.
    fn process(&self, number: u64, batch: SampleBatch<P>) {
        if self.lock().failure.is_some() {
            self.lock().done.push(batch);
        } else {
            let encoded = catch_unwind(AssertUnwindSafe(|| self.encoders.encode(&batch)))
                .unwrap_or_else(|panic| Err(Error::from_panic(panic.as_ref())));
            match encoded {
                Ok(encoded) => {
                    self.lock().waiting.insert(number, (batch, encoded));
                    self.append_waiting();
                }
                Err(error) => {
                    let mut state = self.lock();
                    state.done.push(batch);
                    state.failure.get_or_insert(error);
                }
            }
        }
        self.lock().running -= 1;
        self.changed.notify_all();
    }

    fn append_waiting(&self) {
        let mut state = self.lock();
        let Some(mut writer) = state.writer.take() else { return };
        while state.failure.is_none() {
            let next = state.next;
            let Some((batch, encoded)) = state.waiting.remove(&next) else { break };
            drop(state);
            let appended = catch_unwind(AssertUnwindSafe(|| encoded.append_to(&batch, &mut writer)))
                .unwrap_or_else(|panic| Err(Error::from_panic(panic.as_ref())));
            state = self.lock();
            state.next += 1;
            state.samples -= batch.samples.len() as u64;
            state.bytes -= batch.payload_bytes;
            state.done.push(batch);
            if let Err(error) = appended {
                state.failure.get_or_insert(error);
            }
            self.changed.notify_all();
        }
        state.writer = Some(writer);
    }
}
