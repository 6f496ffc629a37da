//! Threads of a session that help its calling thread, and how many of them may: none takes a core from another run.
//!
//! A session whose configuration names no threads has one helper for each core but one. Alone, a run uses all of them
//! ("wide"), which spin for some microseconds between operators, because waking a sleeping core takes longer than many
//! operators. While several runs are on their way, helpers are held so that calling threads and helpers together are as
//! many as cores ("narrow"); a held helper sleeps. A run that is wide when another begins becomes narrow at once: the
//! library lets the calling thread do what no helper has begun. So both plans share one session and its weights.
//!
//! A helper is held in the callback of an asynchronous run that fails at once, as it has no outputs.
//!
//! Measured with MiniLM and 32 tokens on two cores: two runs whose helpers spin take 1.36 times as long as narrow ones,
//! and two that share a helper which sleeps 1.07 times. With spins of 20 µs a run alone is as fast as with unlimited
//! ones; beside two busy processes, unlimited spins take 1.7 times as long as none, and these 1.1.

use super::base::{RawRunOptions, check, non_null};
use ort::sys;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor::Result;

/// Maximum number of helpers of all sessions. Sessions beyond it share the pool that does not spin.
pub(crate) const HELPERS_MAX: usize = 512;
/// How long a helper spins between two operators, in µs.
const SPIN_US: u32 = 20;
/// First release, `1.<minor>`, that bounds spinning by time.
const BOUNDED_SPINS_SINCE: u32 = 26;

/// Maximum number of helpers of a session that are asked to be held and have not come: the library chooses the queue of
/// each, perhaps that of a helper that is held.
const ASKED_MAX: usize = 64;

thread_local! {
    /// Set while this thread asks: it runs what it asks for itself if the library's queue is full.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// Keys of a session's options.
pub(crate) const INTRA_SPINNING: &str = "session.intra_op.allow_spinning";
pub(super) const INTER_SPINNING: &str = "session.inter_op.allow_spinning";

/// All sessions with helpers: they share the cores of the process.
struct AllSessions {
    helpers: AtomicUsize,
    /// The runs in progress.
    runs: Mutex<Runs>,
}

static ALL: AllSessions =
    AllSessions { helpers: AtomicUsize::new(0), runs: Mutex::new(Runs { count: 0, sessions: SmallVec::new_const() }) };

struct Runs {
    count: usize,
    /// Sessions with their number of runs.
    sessions: SmallVec<[(Arc<Helpers>, usize); 4]>,
}

/// Permission to have helpers, until dropped.
pub(super) struct Reserved(usize);

impl Reserved {
    /// Reserves helpers for a session; `None` if there is only one core, or no helper is left.
    pub(super) fn new() -> Option<Self> {
        let helpers = cores() - 1;
        let fits = |used: usize| used.checked_add(helpers).filter(|&sum| helpers > 0 && sum <= HELPERS_MAX);
        let reserved = ALL.helpers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        reserved.ok().map(|_| Self(helpers))
    }

    /// Number of threads of the session, with the calling one.
    pub(super) fn threads(&self) -> i32 {
        i32::try_from(self.0 + 1).unwrap_or(i32::MAX)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        ALL.helpers.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Cores that this process may use, by affinity and quota.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Entries of a session's options that bound the spinning of its helpers. With a quota of CPU time, spinning would use
/// up time that runs need, so it is off.
pub(super) fn spinning(minor: u32) -> SmallVec<[(&'static str, String); 3]> {
    let is_limited = allowed_cores().is_none_or(|allowed| allowed != cores());
    if is_limited || minor < BOUNDED_SPINS_SINCE {
        return SmallVec::from_iter([(INTRA_SPINNING, "0".to_owned())]);
    }
    SmallVec::from_iter([
        (INTRA_SPINNING, "1".to_owned()),
        ("session.intra_op.spin_duration_us", SPIN_US.to_string()),
        ("session.force_spinning_stop", "1".to_owned()),
    ])
}

/// Number of cores that the affinity allows, whatever the quota.
fn allowed_cores() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let masks = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
    Some(masks.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit.count_ones() as usize).sum())
}

/// The helpers of one session.
pub(super) struct Helpers {
    state: Mutex<Held>,
    changed: Condvar,
    session: NonNull<sys::OrtSession>,
    options: RawRunOptions,
    reserved: Reserved,
}

// SAFETY: sessions and run options may be used from any thread; the options are never changed after `new`.
unsafe impl Send for Helpers {}
// SAFETY: as above.
unsafe impl Sync for Helpers {}

#[derive(Default)]
struct Held {
    /// How many helpers are to be held.
    wanted: usize,
    /// How many are held.
    held: usize,
    /// How many were asked to be held and have not come yet.
    asked: usize,
}

impl Helpers {
    /// # Safety
    /// `session` stays live until [`Self::end`] has returned.
    pub(super) unsafe fn new(
        api: &'static sys::OrtApi,
        session: NonNull<sys::OrtSession>,
        reserved: Reserved,
    ) -> Result<Arc<Self>> {
        let mut options = null_mut();
        // SAFETY: a valid out pointer, then an owned handle.
        let options = unsafe {
            call!(api.CreateRunOptions(&raw mut options))?;
            RawRunOptions(non_null(options)?, api)
        };
        // SAFETY: a live handle. Runs with these options fail, should they ever get past their missing outputs.
        unsafe { call!(api.RunOptionsSetTerminate(options.0.as_ptr()))? };
        Ok(Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), session, options, reserved }))
    }

    /// Number of threads that a run may use, with the calling one.
    pub(super) fn threads(&self) -> u32 {
        u32::try_from(self.reserved.0 + 1).unwrap_or(u32::MAX)
    }

    /// Begins a run, which ends when the guard is dropped.
    pub(super) fn run(self: &Arc<Self>) -> Run<'_> {
        let mut runs = ALL.runs.lock();
        runs.count += 1;
        match runs.sessions.iter_mut().find(|(session, _)| Arc::ptr_eq(session, self)) {
            Some((_, count)) => *count += 1,
            None => runs.sessions.push((self.clone(), 1)),
        }
        let free = (self.reserved.0 + 1).saturating_sub(runs.count) / runs.sessions.len();
        for (session, _) in &runs.sessions {
            session.hold(session.reserved.0.saturating_sub(free));
        }
        Run(self)
    }

    /// Holds so many helpers from now on.
    fn hold(self: &Arc<Self>, wanted: usize) {
        let mut state = self.state.lock();
        state.wanted = wanted;
        if state.held > wanted {
            self.changed.notify_all();
        }
        // Who was asked may be behind one that is held, so more are asked with every run until enough are held.
        // One alone has one queue.
        let asked_max = if self.reserved.0 == 1 { 1 } else { ASKED_MAX };
        let missing = wanted.saturating_sub(state.held).min(asked_max.saturating_sub(state.asked));
        state.asked += missing;
        drop(state);
        for _ in 0..missing {
            self.ask();
        }
    }

    /// Asks a helper to be held: whichever is free first.
    fn ask(self: &Arc<Self>) {
        let api = self.options.1;
        let this = Arc::into_raw(self.clone());
        ASKS.set(true);
        // SAFETY: session and options are live (`end` waits for this run). Nothing is read or written through the
        // pointers to names and values, of which there are none. `held` gets the reference that `this` is.
        let status = unsafe {
            (api.RunAsync)(
                self.session.as_ptr(),
                self.options.0.as_ptr(),
                NO_NAMES.0.as_ptr(),
                NO_VALUES.0.as_ptr().cast(),
                0,
                NO_NAMES.0.as_ptr(),
                0,
                NO_VALUES.0.as_ptr().cast_mut().cast(),
                Some(held),
                this.cast_mut().cast(),
            )
        };
        ASKS.set(false);
        if check(api, status).is_err() {
            // SAFETY: a run that did not begin does not call back, so the reference is still ours.
            let this = unsafe { Arc::from_raw(this) };
            this.state.lock().asked -= 1;
            this.changed.notify_all();
        }
    }

    /// Holds the calling helper for as long as it is wanted.
    fn stay(&self) {
        let mut state = self.state.lock();
        state.asked = state.asked.saturating_sub(1);
        // Never the thread that asks, which begins a run and may hold locks.
        if state.held < state.wanted && !ASKS.get() {
            state.held += 1;
            while state.held <= state.wanted {
                self.changed.wait(&mut state);
            }
            state.held -= 1;
        }
        drop(state);
        // `end` may wait for it.
        self.changed.notify_all();
    }

    /// Releases all helpers. No run is in progress, and none begins after it.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.wanted = 0;
        self.changed.notify_all();
        while state.asked > 0 || state.held > 0 {
            self.changed.wait(&mut state);
        }
    }
}

/// A run in progress.
pub(super) struct Run<'h>(&'h Arc<Helpers>);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut runs = ALL.runs.lock();
        runs.count -= 1;
        if let Some(at) = runs.sessions.iter().position(|(session, _)| Arc::ptr_eq(session, self.0))
            && let Some((_, count)) = runs.sessions.get_mut(at)
        {
            *count -= 1;
            if *count == 0 {
                runs.sessions.swap_remove(at);
            }
        }
        // Helpers stay held: the next run decides, so that runs that follow each other closely wake nobody.
    }
}

struct Nothing<T>([*const T; 1]);

// SAFETY: null pointers that nobody follows.
unsafe impl<T> Sync for Nothing<T> {}

/// Arrays of length 0 whose addresses are not null.
static NO_NAMES: Nothing<c_char> = Nothing([std::ptr::null()]);
static NO_VALUES: Nothing<sys::OrtValue> = Nothing([std::ptr::null()]);

/// Called on a helper when the run of `Helpers::ask` has failed.
unsafe extern "system" fn held(this: *mut c_void, _: *mut *mut sys::OrtValue, _: usize, status: sys::OrtStatusPtr) {
    // SAFETY: `ask` gave this reference to the run, which calls back once.
    let this = unsafe { Arc::from_raw(this.cast_const().cast::<Helpers>()) };
    if !status.0.is_null() {
        // SAFETY: a status that we own, released once.
        unsafe { (this.options.1.ReleaseStatus)(status.0) };
    }
    this.stay();
}
