//! Calls of code that belongs to the user.

use std::mem;
use std::thread;

/// Calls code of the user that may run for long: a source's iterator, a progress display.
///
/// When the interpreter ends, Python before 3.14 ends any other thread that asks for the GIL, by unwinding it. That must
/// not reach frames of Rust, where it would abort the program. So such a thread stands still here until the program is
/// over, as Python 3.14 has it. What it was writing is left as by a killed writer.
pub fn call<T>(code: impl FnOnce() -> T) -> T {
    let guard = StandStill;
    let result = code();
    mem::forget(guard);
    result
}

/// Dropped only where the thread is unwound.
struct StandStill;

impl Drop for StandStill {
    fn drop(&mut self) {
        // A panic unwinds as well, and is caught further out.
        while !thread::panicking() {
            thread::park();
        }
    }
}
