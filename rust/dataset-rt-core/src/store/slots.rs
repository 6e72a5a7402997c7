//! Where payloads are written to.

use std::mem::MaybeUninit;

/// Memory for the payloads of a run, one slot a record, filled by a worker thread.
///
/// The owner of the memory decides what it is: Python's bytes objects, or one buffer that becomes an Arrow column.
pub trait PayloadSlots: Send {
    /// The memory of the payload `index`, exactly as long as the payload.
    fn slot(&mut self, index: usize) -> &mut [MaybeUninit<u8>];
}
