//! Bytes objects that worker threads fill before anybody sees them.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

use dataset_rt_core::runtime::{Run, Task};
use dataset_rt_core::store::{PayloadSlots, PerProcess};
use dataset_rt_core::{Error, Result};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One bytes object a payload of a run.
pub struct BytesSlots {
    objects: Vec<Py<PyBytes>>,
    memory: Vec<Memory>,
}

struct Memory {
    start: *mut MaybeUninit<u8>,
    length: usize,
}

#[expect(unsafe_code, reason = "the memory of a bytes object is named by a raw pointer")]
// SAFETY: the pointers lead into the bytes objects beside them, which keep that memory alive and in place; `slot` needs
// the only reference to this value, so one thread at a time writes.
unsafe impl Send for Memory {}

impl BytesSlots {
    /// Allocates the bytes objects of a run, without clearing them.
    pub fn for_run(py: Python<'_>, run: &Run) -> Result<Self> {
        let mut objects = Vec::with_capacity(run.records.len());
        let mut memory = Vec::with_capacity(run.records.len());
        for record in &run.records {
            let (object, start, length) = allocate(py, record.entry.payload_bytes)?;
            objects.push(object);
            memory.push(Memory { start, length });
        }
        Ok(Self { objects, memory })
    }

    /// The filled objects. To be called only after the run was read without an error.
    pub fn into_objects(self) -> Vec<Py<PyBytes>> {
        self.objects
    }
}

impl PayloadSlots for BytesSlots {
    #[expect(unsafe_code, reason = "the slot is the memory of a bytes object")]
    fn slot(&mut self, index: usize) -> &mut [MaybeUninit<u8>] {
        let Some(memory) = self.memory.get(index) else { return &mut [] };
        // SAFETY: `start` is the beginning of `length` bytes inside the object at `index`, which `self.objects` owns.
        // Nobody else has seen that object, so nobody reads or writes it, and the borrow of `self` keeps it alive.
        unsafe { std::slice::from_raw_parts_mut(memory.start, memory.length) }
    }
}

#[expect(unsafe_code, reason = "only Python's C interface allocates a bytes object without filling it")]
fn allocate(py: Python<'_>, bytes: u64) -> Result<(Py<PyBytes>, *mut MaybeUninit<u8>, usize)> {
    let too_large = || Error::config(format!("a payload of {bytes} bytes does not fit this process's memory"));
    let length = ffi::Py_ssize_t::try_from(bytes).map_err(|_| too_large())?;
    // SAFETY: with a null pointer the call gives a new object whose bytes are to be set before it is used, or, for
    // length 0, the shared empty one, which nobody writes to because its slot is empty. Null says that there is no memory.
    let object = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
        Bound::from_owned_ptr_or_opt(py, object)
    };
    let Some(object) = object else {
        drop(PyErr::take(py));
        return Err(too_large());
    };
    // SAFETY: the object was made as a bytes object just now.
    let start = unsafe { ffi::PyBytes_AsString(object.as_ptr()) };
    let object = object.cast_into::<PyBytes>().map_err(|_| too_large())?;
    Ok((object.unbind(), start.cast(), usize::try_from(length).unwrap_or_default()))
}

/// Runs of dropped iterators that a thread was still filling: freed here, by a thread that holds the GIL.
///
/// Each process has a list of its own: a forked child leaves its parent's runs, and their locks, alone.
static LEFTOVERS: PerProcess<Mutex<Vec<Arc<Task<BytesSlots>>>>> = PerProcess::new();

/// Keeps cancelled runs until their threads are done with them, and frees those of earlier calls that are.
///
/// Only threads that hold the GIL call it, so the lock is free whenever Python forks.
pub fn keep_leftovers(_py: Python<'_>, tasks: Vec<Arc<Task<BytesSlots>>>) {
    let leftovers = LEFTOVERS.get_or_init(Mutex::default);
    let mut leftovers = leftovers.lock().unwrap_or_else(PoisonError::into_inner);
    leftovers.extend(tasks);
    leftovers.retain(|task| !task.withdraw());
}
