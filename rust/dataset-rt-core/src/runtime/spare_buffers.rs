//! Memory of batches that their consumer is done with, for the next ones.
//!
//! The system clears memory that it gives out, page by page, which takes longer than filling it with payloads. So a large
//! buffer comes back when the last array over it is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, TryLockError, Weak};

use arrow_buffer::Buffer;
use bytes::Bytes;

/// How many buffers wait at most: one that is about to be filled, and one that was dropped meanwhile.
const SPARE_BUFFERS: usize = 2;
/// Smaller ones are left to the allocator, which keeps such memory itself.
const LEAST_BYTES: usize = 64 << 10;

/// Buffers of the readers that share them. They are freed with the last one.
#[derive(Default)]
pub struct SpareBuffers(Mutex<Vec<Vec<u8>>>);

impl SpareBuffers {
    /// An empty buffer of at least `bytes` capacity, and not much more; or one of none, to be enlarged.
    pub fn take(&self, bytes: u64) -> Vec<u8> {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= wanted && buffer.capacity() / 2 <= wanted;
        self.with(|spare| spare.iter().position(fits).map(|place| spare.swap_remove(place)))
            .flatten()
            .unwrap_or_default()
    }

    /// The bytes as an Arrow buffer, whose memory comes back in the end.
    pub fn lend(self: Arc<Self>, bytes: Vec<u8>) -> Buffer {
        if bytes.capacity() < LEAST_BYTES {
            return Buffer::from_vec(bytes);
        }
        Buffer::from(Bytes::from_owner(Lent { bytes, owner: Arc::downgrade(&self) }))
    }

    fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.with(|spare| {
            // The oldest goes: its size may be out of use.
            if spare.len() >= SPARE_BUFFERS {
                spare.remove(0);
            }
            spare.push(buffer);
        });
    }

    /// Nobody ever waits: not another thread, and not a forked child, in which a thread of the parent would hold it for
    /// ever. What cannot be put back is freed.
    fn with<R>(&self, work: impl FnOnce(&mut Vec<Vec<u8>>) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut spare) => Some(work(&mut spare)),
            Err(TryLockError::Poisoned(spare)) => Some(work(&mut spare.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl fmt::Debug for SpareBuffers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SpareBuffers").finish_non_exhaustive()
    }
}

/// A buffer that an array holds.
struct Lent {
    bytes: Vec<u8>,
    owner: Weak<SpareBuffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.put(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{LEAST_BYTES, SPARE_BUFFERS, SpareBuffers};

    #[test]
    fn memory_comes_back_when_the_last_array_is_dropped_and_not_before() {
        let spare = Arc::new(SpareBuffers::default());
        let lent = Arc::clone(&spare).lend(vec![7; LEAST_BYTES]);
        let address = lent.as_ptr();
        let kept = lent.slice(5);
        drop(lent);
        assert_eq!(spare.take(LEAST_BYTES as u64).capacity(), 0);
        assert!(kept.iter().all(|byte| *byte == 7));
        drop(kept);
        let again = spare.take(LEAST_BYTES as u64);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        assert_eq!(spare.take(LEAST_BYTES as u64).capacity(), 0);
    }

    #[test]
    fn few_buffers_wait_and_none_that_is_much_too_large() {
        let spare = Arc::new(SpareBuffers::default());
        let lent: Vec<_> = (0..5).map(|_| Arc::clone(&spare).lend(vec![0; 4 * LEAST_BYTES])).collect();
        drop(lent);
        assert_eq!(spare.take(LEAST_BYTES as u64).capacity(), 0);
        let waiting = (0..5).filter(|_| spare.take(4 * LEAST_BYTES as u64).capacity() > 0).count();
        assert_eq!(waiting, SPARE_BUFFERS);
    }

    #[test]
    fn what_outlives_its_reader_is_freed_alone() {
        let spare = Arc::new(SpareBuffers::default());
        let lent = Arc::clone(&spare).lend(vec![3; LEAST_BYTES]);
        drop(spare);
        assert!(lent.iter().all(|byte| *byte == 3));
    }
}
