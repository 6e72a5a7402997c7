//! Whether reads came from a device, or from memory.

/// How many blocks the calling thread has had read from devices since it began. Only differences mean something; always
/// 0 where the system does not count them for threads.
#[must_use]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the count has no safe interface")]
pub fn device_reads() -> i64 {
    // SAFETY: `rusage` is plain data that the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_inblock
    }
}

/// As above.
#[must_use]
#[cfg(not(target_os = "linux"))]
pub fn device_reads() -> i64 {
    0
}
