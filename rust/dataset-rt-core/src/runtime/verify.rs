//! Checks the files of caches in parallel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::outside::{Outside, WAIT};
use super::pool::Pool;
use crate::error::{Error, Result};
use crate::format::Manifest;
use crate::store::{Cache, FileCheck, foreign_files};

/// How much of a file is read between two looks at whether to go on. A disk of 20 MB/s takes a fifth of a second.
const PIECE_MEBIBYTES: usize = 4;

/// A cache's folder and its manifest: all that its files are checked against.
pub type Described = (PathBuf, Manifest);

/// What a verification tells its caller as it goes on.
pub trait VerifyObserver: Outside {
    /// So many more bytes were checked.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where the caller wants to stop.
    fn progress(&mut self, bytes: u64) -> Result<()>;
}

/// Tells nobody.
struct Quiet<'a>(&'a mut dyn Outside);

impl Outside for Quiet<'_> {
    fn run(&mut self, work: &mut (dyn FnMut() + Send)) -> Result<()> {
        self.0.run(work)
    }
}

impl VerifyObserver for Quiet<'_> {
    fn progress(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}

/// Checks length and BLAKE3 of every file of `caches` and gives every fault found, in the order of caches and names; what
/// lies in a cache's folder besides is a fault after those of its files.
///
/// # Errors
/// What `outside` returns; faults are no error of this function.
pub fn verify_caches(caches: &[Arc<Cache>], pool: Option<&Pool>, outside: &mut dyn Outside) -> Result<Vec<Error>> {
    let described = caches.iter().map(|cache| Arc::new((cache.path().to_path_buf(), cache.manifest().clone())));
    verify_described(&described.collect::<Vec<_>>(), pool, &mut Quiet(outside))
}

/// The same for caches that cannot be opened, perhaps.
///
/// # Errors
/// What `observer` returns.
pub fn verify_described(
    caches: &[Arc<Described>],
    pool: Option<&Pool>,
    observer: &mut dyn VerifyObserver,
) -> Result<Vec<Error>> {
    let mut files = Vec::new();
    for cache in caches {
        files.extend(cache.1.files.keys().map(|name| (Arc::clone(cache), Some(name.clone()))));
        files.push((Arc::clone(cache), None));
    }
    let check = Arc::new(Check {
        files,
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        cancelled: AtomicBool::new(false),
        state: Mutex::new((0, Vec::new())),
        changed: Condvar::new(),
    });
    if let Some(pool) = pool {
        for _ in 0..pool.threads() {
            let mut checker = Checker::new(Arc::clone(&check));
            pool.submit(Box::new(move |_| while checker.step() {}));
        }
    }
    let mut checker = Checker::new(Arc::clone(&check));
    let result = loop {
        if check.finished() {
            break observer.progress(check.bytes.swap(0, Ordering::Relaxed));
        }
        // Without a pool this thread does it all, otherwise it helps; it looks at signals after every piece of a file.
        let mut work = || {
            if !checker.step() {
                check.wait();
            }
        };
        let step = observer.run(&mut work).and_then(|()| observer.progress(check.bytes.swap(0, Ordering::Relaxed)));
        if step.is_err() {
            check.cancelled.store(true, Ordering::Relaxed);
            break step;
        }
    };
    result.map(|()| check.take_faults())
}

#[derive(Debug)]
struct Check {
    /// Each file by its cache and name; without a name, what should not be there.
    files: Vec<(Arc<Described>, Option<String>)>,
    next: AtomicUsize,
    /// Bytes that were checked and not told yet.
    bytes: AtomicU64,
    cancelled: AtomicBool,
    /// How many files are done, and the faults with the number of their file.
    state: Mutex<(usize, Vec<(usize, Error)>)>,
    changed: Condvar,
}

impl Check {
    /// Goes on with the file of a number, which it opens first: its faults once it is done, and `None` before.
    fn piece(&self, number: usize, open: &mut Option<FileCheck>) -> Result<Option<Vec<Error>>> {
        let Some((cache, name)) = self.files.get(number) else { return Ok(Some(Vec::new())) };
        let (folder, manifest) = &**cache;
        let Some(name) = name else { return foreign_files(folder, manifest).map(Some) };
        if open.is_none() {
            *open = FileCheck::begin(folder, manifest, name)?;
        }
        let is_done = open.as_mut().map_or(Ok(true), |file| file.step(PIECE_MEBIBYTES))?;
        Ok(is_done.then(Vec::new))
    }

    fn done(&self, number: usize, faults: Vec<Error>) {
        let file = self.files.get(number).and_then(|(cache, name)| cache.1.files.get(name.as_ref()?));
        self.bytes.fetch_add(file.map_or(0, |file| file.bytes), Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        state.1.extend(faults.into_iter().map(|fault| (number, fault)));
        self.changed.notify_all();
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

/// One thread's part of a check.
#[derive(Debug)]
struct Checker {
    check: Arc<Check>,
    /// The file that it is at, by its number.
    current: Option<(usize, Option<FileCheck>)>,
}

impl Checker {
    fn new(check: Arc<Check>) -> Self {
        Self { check, current: None }
    }

    /// Goes on with its file, or with the next one; false where there is none.
    fn step(&mut self) -> bool {
        let check = &self.check;
        let taken = self.current.take().unwrap_or_else(|| (check.next.fetch_add(1, Ordering::Relaxed), None));
        let (number, mut open) = taken;
        if number >= check.files.len() || check.cancelled.load(Ordering::Relaxed) {
            return false;
        }
        // A file that is never counted would be waited for without end.
        let piece = catch_unwind(AssertUnwindSafe(|| check.piece(number, &mut open)))
            .unwrap_or_else(|panic| Err(Error::from_panic(panic.as_ref())));
        match piece {
            Ok(None) => self.current = Some((number, open)),
            Ok(Some(faults)) => check.done(number, faults),
            Err(error) => check.done(number, vec![error]),
        }
        true
    }
}
