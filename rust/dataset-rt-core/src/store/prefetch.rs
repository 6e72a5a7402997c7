//! Hints to the processor about bytes that will be read soon.

/// The size of a processor's cache line, in bytes.
const LINE_BYTES: usize = 64;

/// Asks for the cache lines of `bytes`.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    prefetch_lines(bytes.as_ptr(), bytes.len());
}

/// Asks for the cache lines of `length` bytes at `start`, whatever lies there. Never faults, and nothing is read.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "there is no hint to give"))]
pub fn prefetch_lines(start: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // The bytes may begin in the middle of a line, and then end in one more.
        let into_line = start.addr() % LINE_BYTES;
        for line in (0..into_line + length).step_by(LINE_BYTES) {
            #[expect(unsafe_code, reason = "the hint takes a raw pointer")]
            // SAFETY: it touches the processor's caches alone, and is valid for any address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_sub(into_line).wrapping_add(line).cast());
            }
        }
    }
}
