//! The guard of mapped files: a handler that turns a lost page into an error instead of a signal.
//!
//! Where a mapped file became shorter, or its disk fails, the processor finds no page and the kernel sends SIGBUS to the
//! thread that copies. For an address in one of our mappings the handler puts pages of zeros there, marks the mapping as
//! broken and returns; the copy ends, and whoever copied looks at the mark before the bytes are used. Wayland's
//! `wl_shm_buffer` guards its pools the same way.
//!
//! ```text
//!   copy ──fault──► kernel ──SIGBUS──► handler: ours?  ── yes ──► zeros, mark, return ──► copy ends, mark is seen
//!                                                      └─ no ───► the handler that was there before
//! ```
//!
//! Others install handlers too (PyTorch's loader workers, Python's faulthandler), before us and after us, and some of
//! them call the one that they replaced, which may be ours. So [`Guard::arm`] looks before each run of reads whether ours
//! is on top, and keeps a list of those that it found instead, newest first. A signal that is not ours goes to the first
//! of them; when it comes back, from that handler or because its cause is still there, to the next; and at the end of the
//! list to the default action, so that no two handlers call each other for ever.

use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::error::{Error, Result};

/// How many mappings a process can have; a file beyond them is read by positioned reads. Several times what
/// [`super::files`] keeps, because a forked child inherits its parent's, which it neither uses nor frees.
const MAPPINGS: usize = 8_192;
/// How many threads can hand signals on at once and be told apart.
const THREADS: usize = 64;
/// How many handlers that were there before are remembered.
const HANDLERS: usize = 8;

/// What the handler must know of a mapping, read without a lock.
struct Region {
    taken: AtomicBool,
    /// Odd while the addresses change.
    version: AtomicUsize,
    start: AtomicUsize,
    /// Address after the last page.
    end: AtomicUsize,
    broken: AtomicBool,
}

static REGIONS: [Region; MAPPINGS] = [const {
    Region {
        taken: AtomicBool::new(false),
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; MAPPINGS];

/// Where the search for a free region begins.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// The size of a page in bytes, for the handler, which must not ask.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A handler that was there before ours. Nodes are never changed or freed: the handler may look at them at any time.
struct Previous {
    action: libc::sigaction,
    next: *const Previous,
}

static PREVIOUS: AtomicPtr<Previous> = AtomicPtr::new(ptr::null_mut());

/// The last signal that a thread handed on.
struct HandedOn {
    thread: AtomicUsize,
    /// Whether the previous handler is still running.
    active: AtomicBool,
    /// Address of the fault; 0 for a signal that somebody sent.
    address: AtomicUsize,
    /// How many handlers have had it.
    handlers: AtomicUsize,
}

static HANDED_ON: [HandedOn; THREADS] = [const {
    HandedOn {
        thread: AtomicUsize::new(0),
        active: AtomicBool::new(false),
        address: AtomicUsize::new(0),
        handlers: AtomicUsize::new(0),
    }
}; THREADS];

/// A mapping that the handler knows of, until this is dropped.
#[derive(Debug)]
pub struct Registration(usize);

impl Registration {
    /// Tells the handler of `length` mapped bytes at `start`, the beginning of a page; `None` where the table is full.
    pub fn new(start: usize, length: usize) -> Option<Self> {
        let hint = HINT.load(Ordering::Relaxed);
        let places = (hint..MAPPINGS).chain(0..hint);
        let (place, region) = places.filter_map(|place| Some((place, REGIONS.get(place)?))).find(|(_, region)| {
            region.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        HINT.store((place + 1) % MAPPINGS, Ordering::Relaxed);
        region.broken.store(false, Ordering::Relaxed);
        region.set(start, start.saturating_add(length.next_multiple_of(page_bytes())));
        Some(Self(place))
    }

    /// Whether a page of the mapping was lost: then copies may hold zeros that are not in the file.
    pub fn is_broken(&self) -> bool {
        // The copy consists of plain loads, which neither the compiler nor the processor may move behind this one: the
        // zeros may be another thread's doing.
        compiler_fence(Ordering::SeqCst);
        fence(Ordering::Acquire);
        REGIONS.get(self.0).is_none_or(|region| region.broken.load(Ordering::Acquire))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(region) = REGIONS.get(self.0) {
            region.set(0, 0);
            region.taken.store(false, Ordering::Release);
        }
    }
}

impl Region {
    /// Changes the addresses; only whoever took the region does.
    fn set(&self, start: usize, end: usize) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The end of the region, if `address` lies in it. One that is changing holds no page that anybody copies from.
    fn end_around(&self, address: usize) -> Option<usize> {
        let version = self.version.load(Ordering::SeqCst);
        let (start, end) = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        let steady = version.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == version;
        (steady && start <= address && address < end).then_some(end)
    }
}

fn page_bytes() -> usize {
    match PAGE_BYTES.load(Ordering::Relaxed) {
        0 => {
            let bytes = rustix::param::page_size();
            PAGE_BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Proof that the handler was on top when this was made, and that this thread receives the signal. Copies out of mappings
/// ask for it.
///
/// It holds nobody off: a handler that another thread installs during the run stands before ours until the next
/// [`Guard::arm`]. A fault goes to that one first, and reaches ours if it calls the handler that it replaced.
#[derive(Debug)]
pub struct Guard {
    armed: bool,
    /// Whether this thread blocked the signal before.
    blocked: bool,
    /// A signal mask is its thread's own.
    thread: PhantomData<*const ()>,
}

impl Guard {
    /// For reads of files that are not mapped.
    pub fn unarmed() -> Self {
        Self { armed: false, blocked: false, thread: PhantomData }
    }

    /// To be called before each run of copies, in the thread that copies: two system calls where nothing changed, one
    /// more where somebody replaced the handler.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses the handler; mappings must not be read then.
    pub fn arm() -> Result<Self> {
        page_bytes();
        forget_handed_on();
        match install().and_then(|()| unblock()) {
            Ok(blocked) => Ok(Self { armed: true, blocked, thread: PhantomData }),
            Err(error) => Err(Error::io("cannot handle SIGBUS to guard", Path::new("mapped files"), error)),
        }
    }

    /// Whether mapped files may be read.
    pub fn is_armed(&self) -> bool {
        self.armed
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.blocked {
            // What cannot be restored stays unblocked, which is the default.
            let _ = change_mask(libc::SIG_BLOCK);
        }
    }
}

/// Lets this thread receive the signal, and says whether it did not: a fault of a thread that blocks it ends the
/// process, handler or not.
fn unblock() -> io::Result<bool> {
    change_mask(libc::SIG_UNBLOCK)
}

#[expect(unsafe_code, reason = "signal masks have no safe interface")]
fn change_mask(how: libc::c_int) -> io::Result<bool> {
    // SAFETY: both sets are plain data that the calls fill before they are read.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGBUS);
        match libc::pthread_sigmask(how, &raw const set, &raw mut before) {
            0 => Ok(libc::sigismember(&raw const before, libc::SIGBUS) == 1),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Puts our handler on top, if it is not there.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
fn install() -> io::Result<()> {
    let ours = handle as *const () as usize;
    // SAFETY: `sigaction` is plain data, and a null pointer asks without changing anything. The new handler is a plain
    // function that lives as long as the process: an extension module is never unloaded.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut found) != 0 {
            return Err(io::Error::last_os_error());
        }
        while found.sa_sigaction != ours {
            remember(found);
            let mut wanted: libc::sigaction = std::mem::zeroed();
            wanted.sa_sigaction = ours;
            // On the alternate stack, where the thread has one, as handlers of stack overflows are. Not blocked while it
            // runs, so that a previous handler which sends the signal again comes back here at once.
            wanted.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // Whether calls are restarted after a signal that somebody sent stays as it was.
            wanted.sa_flags |= found.sa_flags & libc::SA_RESTART;
            wanted.sa_mask = found.sa_mask;
            let mut replaced: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, &raw const wanted, &raw mut replaced) != 0 {
                return Err(io::Error::last_os_error());
            }
            if replaced.sa_sigaction == found.sa_sigaction {
                break;
            }
            // Somebody installed another one between the two calls.
            found = replaced;
        }
    }
    Ok(())
}

/// Puts a handler at the head of the list, unless it is there. What the list held stays readable for ever: a handler may
/// be reading it.
#[expect(unsafe_code, reason = "the list is made of raw pointers, so that a signal handler can read it")]
fn remember(found: libc::sigaction) {
    let mut known = PREVIOUS.load(Ordering::Acquire);
    loop {
        // SAFETY: nodes in the list are leaked boxes, written before they are published, so each pointer to one is null or
        // good for ever.
        let listed = unsafe { known.as_ref() };
        let head = if found.sa_sigaction == libc::SIG_DFL {
            ptr::null_mut()
        } else if listed.is_some_and(|listed| is_same(&listed.action, &found)) {
            // Whoever puts the same one on top each time must not cost memory each time.
            return;
        } else {
            list_behind(found, listed)
        };
        match PREVIOUS.compare_exchange(known, head, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => {
                // Another thread was first, so nobody has seen this list.
                discard(head);
                known = newer;
            }
        }
    }
}

/// Whether two actions are called in the same way; masks do not matter to whoever hands on.
fn is_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    one.sa_sigaction == other.sa_sigaction && one.sa_flags == other.sa_flags
}

/// A new list: a handler, and behind it those of another list that differ from it.
#[expect(unsafe_code, reason = "the list is made of raw pointers, so that a signal handler can read it")]
fn list_behind(found: libc::sigaction, mut listed: Option<&Previous>) -> *mut Previous {
    let mut kept = vec![found];
    while let Some(previous) = listed {
        if previous.action.sa_sigaction != found.sa_sigaction && kept.len() < HANDLERS {
            kept.push(previous.action);
        }
        // SAFETY: as in `remember`.
        listed = unsafe { previous.next.as_ref() };
    }
    let mut head: *mut Previous = ptr::null_mut();
    for action in kept.into_iter().rev() {
        head = Box::into_raw(Box::new(Previous { action, next: head }));
    }
    head
}

/// Frees a list that was never published.
#[expect(unsafe_code, reason = "the list is made of raw pointers, so that a signal handler can read it")]
fn discard(mut node: *mut Previous) {
    while !node.is_null() {
        // SAFETY: `list_behind` made each node as a box, and nobody else has a pointer to it.
        node = unsafe { Box::from_raw(node) }.next.cast_mut();
    }
}

/// The handler. It does only what a signal handler may: loads and stores of atomics, and system calls.
#[expect(unsafe_code, reason = "a signal handler gets raw pointers")]
unsafe extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to a handler that was installed with SA_SIGINFO, and so does whoever
    // chains to it. For a fault, as opposed to a signal that somebody sent (code <= 0), it holds the address.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    if fault.is_some_and(mend) {
        return;
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { hand_on(signal, info, context, fault) }
}

/// Puts zeros under a lost address of ours and under what follows it in the mapping.
#[expect(unsafe_code, reason = "replacing pages has no safe interface")]
fn mend(address: usize) -> bool {
    let Some((region, end)) = REGIONS.iter().find_map(|region| Some((region, region.end_around(address)?))) else {
        return false;
    };
    // Whoever sees the zeros sees the mark, too.
    region.broken.store(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let page = address - address % PAGE_BYTES.load(Ordering::Relaxed).max(1);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the pages lie in one of our mappings, which exists as long as a thread copies out of it, as the one that
    // faulted does; all of it is plain bytes that nobody holds a reference to.
    unsafe { mmap_anonymous(page as *mut _, end - page, ProtFlags::READ, flags).is_ok() }
}

/// The record of the calling thread, which others share by chance.
#[expect(unsafe_code, reason = "the only function that names the calling thread without a system call")]
fn handed_on() -> Option<(usize, &'static HandedOn)> {
    // SAFETY: takes nothing and always succeeds.
    let thread = usize::try_from(unsafe { libc::pthread_self() }).ok()?;
    // Threads differ in the pages that they lie in.
    HANDED_ON.get((thread >> 12) % THREADS).map(|record| (thread, record))
}

/// Forgets what this thread handed on: it is not in a handler now, so its signal was dealt with.
fn forget_handed_on() {
    if let Some((thread, record)) = handed_on()
        && record.thread.load(Ordering::Relaxed) == thread
    {
        record.active.store(false, Ordering::Relaxed);
        record.thread.store(0, Ordering::Relaxed);
    }
}

/// Gives a signal that is not ours to the next handler that has not had it.
#[expect(unsafe_code, reason = "calling another signal handler has no safe interface")]
unsafe fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, fault: Option<usize>) {
    let Some((thread, record)) = handed_on() else { return };
    let address = fault.unwrap_or(0);
    let came_back = record.thread.load(Ordering::Relaxed) == thread
        && (record.active.load(Ordering::Relaxed)
            || (fault.is_some() && record.address.load(Ordering::Relaxed) == address));
    let had = if came_back { record.handlers.load(Ordering::Relaxed) } else { 0 };
    let mut node = PREVIOUS.load(Ordering::Acquire).cast_const();
    for _ in 0..had {
        // SAFETY: as in `remember`.
        node = unsafe { node.as_ref() }.map_or(ptr::null(), |previous| previous.next);
    }
    // SAFETY: as in `remember`.
    let Some(previous) = (unsafe { node.as_ref() }) else {
        return end_by_default(signal, fault.is_some());
    };
    let action = previous.action.sa_sigaction;
    if action == libc::SIG_IGN {
        // A sent signal can be ignored, a fault cannot.
        return if fault.is_some() {
            end_by_default(signal, true)
        };
    }
    record.thread.store(thread, Ordering::Relaxed);
    record.address.store(address, Ordering::Relaxed);
    record.handlers.store(had + 1, Ordering::Relaxed);
    record.active.store(true, Ordering::Relaxed);
    // SAFETY: the action was installed as a handler by somebody, is neither the default nor to be ignored, and is called
    // as its own flags say, with what the kernel gave us.
    unsafe {
        if previous.action.sa_flags & libc::SA_SIGINFO == 0 {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(action);
            handler(signal);
        } else {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(action);
            handler(signal, info, context);
        }
    }
    record.active.store(false, Ordering::Relaxed);
}

/// Lets the default action end the process: a fault happens again on return, a signal that was sent is sent once more.
#[expect(unsafe_code, reason = "signal handlers have no safe interface")]
fn end_by_default(signal: libc::c_int, is_fault: bool) {
    // SAFETY: the action is plain data; both calls may be made in a signal handler.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        if !is_fault {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::ptr;
    use std::sync::atomic::Ordering;

    use super::{Guard, PREVIOUS};

    extern "C" fn theirs(_signal: libc::c_int) {}

    #[expect(unsafe_code, reason = "signal handlers have no safe interface")]
    fn put_theirs_on_top() {
        // SAFETY: the action is plain data, and its handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = theirs as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()), 0);
        }
    }

    #[test]
    fn a_handler_that_is_put_on_top_again_and_again_is_remembered_once() {
        put_theirs_on_top();
        drop(Guard::arm().unwrap());
        let remembered = PREVIOUS.load(Ordering::Acquire);
        assert!(!remembered.is_null());
        for _ in 0..100 {
            put_theirs_on_top();
            drop(Guard::arm().unwrap());
            assert_eq!(PREVIOUS.load(Ordering::Acquire), remembered);
        }
    }
}
