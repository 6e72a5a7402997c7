//! Files mapped into memory: a copy out of one spares a system call for each record.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::announce::Reads;
use super::bus_guard::{Guard, Registration};
use super::hashed_copy::copy_and_hash;
use super::prefetch::prefetch_lines;

/// A file's bytes in memory, read-only, of which only copies are ever given out.
#[derive(Debug)]
pub struct GuardedMapping {
    start: *const u8,
    length: usize,
    /// `None` only while it is dropped.
    registration: Option<Registration>,
    /// Device and inode: the same file, whatever stands at its path by now.
    file: (u64, u64),
    /// What the system was told last.
    shuffled: AtomicBool,
}

#[expect(unsafe_code, reason = "a mapping is named by a raw pointer")]
// SAFETY: the memory is mapped read-only from `map` to `drop`, whichever thread looks at it, and nobody writes through it.
unsafe impl Send for GuardedMapping {}
#[expect(unsafe_code, reason = "a mapping is named by a raw pointer")]
// SAFETY: as for `Send`; all methods only read.
unsafe impl Sync for GuardedMapping {}

impl GuardedMapping {
    /// Maps the first `length` bytes of a file; `None` where that cannot be done (no address space, too many maps, a file
    /// system that does not map), and positioned reads must serve.
    #[must_use]
    #[expect(unsafe_code, reason = "mapping a file has no safe interface")]
    pub fn map(file: &File, length: u64) -> Option<Self> {
        let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
        let metadata = file.metadata().ok()?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0) }.ok()?;
        let Some(registration) = Registration::new(start as usize, length) else {
            unmap(start.cast(), length);
            return None;
        };
        Some(Self {
            start: start.cast(),
            length,
            registration: Some(registration),
            file: (metadata.dev(), metadata.ino()),
            shuffled: AtomicBool::new(false),
        })
    }

    /// Copies the bytes at `offset` into `slot` and gives them as initialised memory; `None` where the range is not in
    /// the mapping. Look at [`GuardedMapping::is_broken`] before using them.
    #[must_use]
    #[inline]
    #[expect(unsafe_code, reason = "the mapping is read through a raw pointer")]
    pub fn copy<'slot>(
        &self,
        guard: &Guard,
        offset: u64,
        slot: &'slot mut [MaybeUninit<u8>],
    ) -> Option<&'slot mut [u8]> {
        let source = self.source(guard, offset, slot.len())?;
        // SAFETY: so many bytes are mapped at `source`, and `slot` is memory of its own. Should the file change meanwhile,
        // the copy holds some mixture of bytes, which the record's check then finds: nothing but plain bytes is ever read
        // from a mapping. Should a page be lost, the guard, which is armed, supplies zeros.
        unsafe {
            ptr::copy_nonoverlapping(source, slot.as_mut_ptr().cast(), slot.len());
            Some(slot.assume_init_mut())
        }
    }

    /// As [`GuardedMapping::copy`], with the XXH3-64 of the copy.
    #[must_use]
    #[inline]
    #[expect(unsafe_code, reason = "the mapping is read through a raw pointer")]
    pub fn copy_hashed<'slot>(
        &self,
        guard: &Guard,
        offset: u64,
        slot: &'slot mut [MaybeUninit<u8>],
    ) -> Option<(&'slot mut [u8], u64)> {
        let source = self.source(guard, offset, slot.len())?;
        // SAFETY: as in `copy`; the hash is that of the copy, whatever becomes of the file.
        unsafe {
            let hash = copy_and_hash(source, slot);
            Some((slot.assume_init_mut(), hash))
        }
    }

    /// Where `length` bytes at `offset` are mapped, if they are and may be read.
    #[inline]
    fn source(&self, guard: &Guard, offset: u64, length: usize) -> Option<*const u8> {
        if length == 0 {
            // No bytes are to be had anywhere.
            return Some(self.start);
        }
        let offset = usize::try_from(offset).ok()?;
        let reachable = offset.checked_add(length)? <= self.length && guard.is_armed();
        reachable.then(|| self.start.wrapping_add(offset))
    }

    /// As [`GuardedMapping::copy`], over bytes that are initialised already; false where the range is not in the mapping.
    #[must_use]
    #[expect(unsafe_code, reason = "initialised memory is lent as memory to be filled")]
    pub fn copy_over(&self, guard: &Guard, offset: u64, bytes: &mut [u8]) -> bool {
        // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and `copy` only writes initialised bytes to it.
        let slot = unsafe { &mut *(ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) };
        self.copy(guard, offset, slot).is_some()
    }

    /// Asks the processor for the bytes at `offset` ahead of their copy. Never faults.
    #[inline]
    pub fn prefetch(&self, offset: u64, length: u64) {
        let Some(offset) = usize::try_from(offset).ok().filter(|offset| *offset < self.length) else { return };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.length - offset);
        prefetch_lines(self.start.wrapping_add(offset), length);
    }

    /// Asks the system to read the bytes at `offset` from the disk, and does not wait for it.
    #[expect(unsafe_code, reason = "advice about memory takes a raw pointer")]
    pub fn announce(&self, offset: u64, length: u64) {
        let page = rustix::param::page_size();
        let Some(offset) = usize::try_from(offset).ok().filter(|offset| *offset < self.length) else { return };
        let start = offset - offset % page;
        let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(offset).min(self.length);
        // SAFETY: the range lies in the mapping, and this advice changes no byte of it. It may be ignored.
        let _ = unsafe { madvise(self.start.wrapping_add(start) as *mut _, end - start, Advice::WillNeed) };
    }

    /// Lets the system read ahead of reads in order, and a missing page of shuffled ones alone. Otherwise it reads some
    /// mebibytes around it, of which they use nothing; what is wanted beyond the page is announced.
    #[expect(unsafe_code, reason = "advice about memory takes a raw pointer")]
    pub fn expect(&self, reads: Reads<'_>) {
        let shuffled = matches!(reads, Reads::Shuffled(_));
        if self.shuffled.load(Ordering::Relaxed) == shuffled {
            return;
        }
        self.shuffled.store(shuffled, Ordering::Relaxed);
        let advice = if shuffled { Advice::Random } else { Advice::Normal };
        // SAFETY: the range is the mapping, and this advice changes no byte of it. It may be ignored.
        let _ = unsafe { madvise(self.start.cast_mut().cast(), self.length, advice) };
    }

    /// Whether a page of it was lost: then copies may hold zeros that are not in the file.
    #[must_use]
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.registration.as_ref().is_none_or(Registration::is_broken)
    }

    /// How many bytes there are from `offset` on.
    #[must_use]
    pub fn bytes_from(&self, offset: u64) -> u64 {
        (self.length as u64).saturating_sub(offset)
    }

    /// Device and inode of the file.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        self.file
    }
}

impl Drop for GuardedMapping {
    fn drop(&mut self) {
        // First: once it is unmapped, the addresses may be somebody else's, whose faults are not ours to mend.
        self.registration = None;
        unmap(self.start.cast_mut(), self.length);
    }
}

/// Unmaps what `map` mapped.
#[expect(unsafe_code, reason = "unmapping has no safe interface")]
fn unmap(start: *mut u8, length: usize) {
    // SAFETY: the mapping was made with this address and length, is unmapped once, and no reference into it exists.
    let _ = unsafe { munmap(start.cast(), length) };
}
