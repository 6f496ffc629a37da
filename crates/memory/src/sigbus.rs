//! Survives clients that truncate a mapped file: the access raises SIGBUS, the handler maps a zero page in its place
//! and marks the region, and the request fails instead of the process.
//!
//! The handler runs in signal context: it reads a fixed array of atomics, calls mmap (a bare system call) and nothing
//! else. Faults outside our mappings go to the previous handler of SIGBUS.
//!
//! Invariant: a slot's `start` is non-zero exactly while its mapping may be touched, so just its faults are handled.

#![allow(unsafe_code)] // sigaction, the handler, mmap over the lost page

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Live mappings; the handler searches at most this many slots.
pub(crate) const SLOTS: usize = 4096;

struct GuardedRange {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    intact: AtomicBool,
}

/// State of the handler; a process has one handler.
struct Guarded {
    table: [GuardedRange; SLOTS],
    /// Slots ever used: keeps the search of a small server short.
    used: AtomicUsize,
    page_bytes: AtomicUsize,
    installed: Once,
    /// The previous handler of SIGBUS. Written once, before ours is installed.
    previous: UnsafeCell<MaybeUninit<libc::sigaction>>,
    /// `previous` may be read.
    has_previous: AtomicBool,
}

// SAFETY: `previous` is written once under `installed` before `has_previous` is set, and only read afterwards.
unsafe impl Sync for Guarded {}

static GUARDED: Guarded = Guarded {
    table: [const {
        GuardedRange {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            intact: AtomicBool::new(true),
        }
    }; SLOTS],
    used: AtomicUsize::new(0),
    page_bytes: AtomicUsize::new(4096),
    installed: Once::new(),
    previous: UnsafeCell::new(MaybeUninit::zeroed()),
    has_previous: AtomicBool::new(false),
};

/// A slot of the table, held by one mapping.
pub(crate) struct Guard(usize);

impl Guard {
    /// Takes a free slot and installs the handler.
    pub(crate) fn reserve() -> Option<Self> {
        install();
        for (i, slot) in GUARDED.table.iter().enumerate() {
            if slot.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                slot.intact.store(true, Ordering::Relaxed);
                GUARDED.used.fetch_max(i + 1, Ordering::Release);
                return Some(Self(i));
            }
        }
        None
    }

    /// Registers a range with the handler. It must not be touched before this returns.
    pub(crate) fn protect(&self, start: usize, len: usize) {
        if let Some(slot) = GUARDED.table.get(self.0) {
            slot.end.store(start.saturating_add(len), Ordering::Relaxed);
            slot.start.store(start, Ordering::Release);
        }
    }

    /// Unregisters the range, which is not touched any more.
    pub(crate) fn unprotect(&self) {
        if let Some(slot) = GUARDED.table.get(self.0) {
            slot.start.store(0, Ordering::Release);
        }
    }

    /// False once a page of the mapping was replaced.
    pub(crate) fn is_intact(&self) -> bool {
        GUARDED.table.get(self.0).is_some_and(|s| s.intact.load(Ordering::Acquire))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.unprotect();
        if let Some(slot) = GUARDED.table.get(self.0) {
            slot.taken.store(false, Ordering::Release);
        }
    }
}

fn install() {
    GUARDED.installed.call_once(|| {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page)
            && page.is_power_of_two()
        {
            GUARDED.page_bytes.store(page, Ordering::Relaxed);
        }
        // SAFETY: `action` is initialised (zeroed is a valid sigaction), the handler has the signature that SA_SIGINFO
        // requires and is async-signal-safe; `previous` is written by this one call, inside `Once`. SA_NODEFER: a fault
        // in a chained handler must not be swallowed. SA_ONSTACK: the faulting stack may be small.
        unsafe {
            // Read first, then replaced: the handler may run at once and must find `previous` complete.
            libc::sigaction(libc::SIGBUS, std::ptr::null(), (*GUARDED.previous.get()).as_mut_ptr());
            GUARDED.has_previous.store(true, Ordering::Release);
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    if !replace_page(address) {
        chain(signal, info, context);
    }
}

/// Replaces a lost page with zeros; returns false if the address is not ours.
fn replace_page(address: usize) -> bool {
    let used = GUARDED.used.load(Ordering::Acquire).min(SLOTS);
    for slot in GUARDED.table.iter().take(used) {
        let start = slot.start.load(Ordering::Acquire);
        if start == 0 || address < start || address >= slot.end.load(Ordering::Relaxed) {
            continue;
        }
        let page = GUARDED.page_bytes.load(Ordering::Relaxed);
        // Marked first: a thread that reads the zeros must already find the mark.
        slot.intact.store(false, Ordering::Release);
        // SAFETY: `address` lies in a mapping of ours that the faulting thread has pinned, so the page is still ours to
        // replace; mmap is a bare system call, fit for signal context; errno is restored.
        return unsafe {
            let errno = errno_location();
            let saved = *errno;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED;
            let got =
                libc::mmap((address & !(page - 1)) as *mut _, page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            *errno = saved;
            got != libc::MAP_FAILED
        };
    }
    false
}

fn errno_location() -> *mut libc::c_int {
    #[cfg(target_os = "linux")]
    // SAFETY: returns the address of this thread's errno.
    unsafe {
        libc::__errno_location()
    }
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above.
    unsafe {
        libc::__error()
    }
}

/// Calls the previous handler; without one the default action follows (death with a core).
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !GUARDED.has_previous.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: complete since `has_previous` is set. Its owner gave the function pointer to sigaction with the signature
    // of its flags. Without a handler the default is restored; the faulting instruction runs again and ends the process.
    unsafe {
        let previous = (*GUARDED.previous.get()).assume_init_ref();
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
