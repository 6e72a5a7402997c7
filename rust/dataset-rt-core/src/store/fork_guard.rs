//! Lock files that a forked child must close, so that a child which outlives its writer blocks nobody.
//!
//! A `flock` lives as long as any descriptor of its open file: a worker that a source forked for its preprocessing
//! would keep the lock after the writer was killed. So descriptors of locks stand in a table which a handler closes in
//! every forked child, before any other code runs there.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// How many locks a process can hold at once; a writer holds one at a time, so this is the number of writing threads.
const CAPACITY: usize = 256;
const FREE: i32 = -1;

static DESCRIPTORS: [AtomicI32; CAPACITY] = [const { AtomicI32::new(FREE) }; CAPACITY];
static INSTALLED: Once = Once::new();

/// Enters a descriptor into the table. Where the table is full, the lock works, but a forked child inherits it.
pub fn register(descriptor: i32) {
    INSTALLED.call_once(install);
    for slot in &DESCRIPTORS {
        if slot.compare_exchange(FREE, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Takes a descriptor out of the table; to be called before it is closed.
pub fn unregister(descriptor: i32) {
    for slot in &DESCRIPTORS {
        if slot.compare_exchange(descriptor, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

#[expect(unsafe_code, reason = "registering a fork handler has no safe interface")]
fn install() {
    // SAFETY: the handler is a plain function that lives as long as the process, and it only does what POSIX allows in
    // the child of a process with several threads: loads and stores of atomics and close().
    unsafe {
        libc::pthread_atfork(None, None, Some(close_in_child));
    }
}

#[expect(unsafe_code, reason = "the handler runs in a forked child and closes descriptors by number")]
unsafe extern "C" fn close_in_child() {
    for slot in &DESCRIPTORS {
        let descriptor = slot.swap(FREE, Ordering::AcqRel);
        if descriptor != FREE {
            // SAFETY: a registered descriptor is open and owned by a `NameLock`, which unregisters it before closing it
            // and which forgets it, instead of closing it again, in a process other than the one that opened it.
            unsafe {
                libc::close(descriptor);
            }
        }
    }
}
