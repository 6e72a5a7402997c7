//! Checks the files of caches in parallel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::outside::{Outside, WAIT};
use super::pool::Pool;
use crate::error::{Error, Result};
use crate::store::{Cache, verify_file};

/// Checks length and BLAKE3 of every file of `caches` and gives every fault found, in the order of caches and names.
///
/// # Errors
/// What `outside` returns; faults are no error of this function.
pub fn verify_caches(caches: &[Arc<Cache>], pool: Option<&Pool>, outside: &mut dyn Outside) -> Result<Vec<Error>> {
    let files: Vec<(Arc<Cache>, String)> = caches
        .iter()
        .flat_map(|cache| cache.manifest().files.keys().map(|name| (Arc::clone(cache), name.clone())))
        .collect();
    let check = Arc::new(Check {
        files,
        next: AtomicUsize::new(0),
        cancelled: AtomicBool::new(false),
        state: Mutex::new((0, Vec::new())),
        changed: Condvar::new(),
    });
    if let Some(pool) = pool {
        for _ in 0..pool.threads() {
            let check = Arc::clone(&check);
            pool.submit(Box::new(move |_| while check.step() {}));
        }
    }
    let result = loop {
        if check.finished() {
            break Ok(());
        }
        // Without a pool this thread does it all, otherwise it helps; it looks at signals after every file.
        let step = outside.run(&mut || {
            if !check.step() {
                check.wait();
            }
        });
        if step.is_err() {
            check.cancelled.store(true, Ordering::Relaxed);
            break step;
        }
    };
    result.map(|()| check.take_faults())
}

#[derive(Debug)]
struct Check {
    files: Vec<(Arc<Cache>, String)>,
    next: AtomicUsize,
    cancelled: AtomicBool,
    /// How many files are done, and the faults with the number of their file.
    state: Mutex<(usize, Vec<(usize, Error)>)>,
    changed: Condvar,
}

impl Check {
    /// Checks the next file; false where there is none.
    fn step(&self) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some((cache, name)) = self.files.get(number) else { return false };
        let mut check = || if self.cancelled.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
        // A file that is never counted would be waited for without end.
        let result = catch_unwind(AssertUnwindSafe(|| verify_file(cache, name, &mut check)))
            .unwrap_or_else(|panic| Err(Error::from_panic(panic.as_ref())));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        if let Err(error) = result {
            state.1.push((number, error));
        }
        self.changed.notify_all();
        true
    }

    fn finished(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 == self.files.len()
    }

    fn wait(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 < self.files.len() {
            drop(self.changed.wait_timeout(state, WAIT));
        }
    }

    fn take_faults(&self) -> Vec<Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.sort_by_key(|(number, _)| *number);
        state.1.drain(..).map(|(_, error)| error).collect()
    }
}
