//! A small thread pool for work that would hold a reactor, because it grows with the size of a request or response:
//! parsing, printing, inflating, deflating, ranking, checking strings. The sizes are in [`limits`](crate::limits).
//!
//! A thread is started when none is idle, and ends after it was idle for a while. The threads have a lower priority
//! than reactors. Work for a client that disconnected is not begun, or its result is dropped.
//!
//! There are two queues. Heavy work may take seconds and never occupies all threads, so light work passes it. A client
//! with a large body waits for other large bodies only, in their order. Health requests are never answered here.
//!
//! Invariants: queued work runs or is dropped, and its caller is woken once; at most [`JOBS_WAITING_MAX`] jobs wait.

use crate::limits::{DISPOSE_BYTES_MIN, HEAVY_BYTES_MIN, JOBS_WAITING_MAX};
use crate::rope::charged;
use bytes::Bytes;
use engine::Mailbox;
use memory::{Account, Charge, Kind, SlabPool};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tensor::{Error, Result, allowance};

/// How long an idle thread waits before it ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct OffloadState {
    light: VecDeque<Job>,
    heavy: VecDeque<Job>,
    heavy_running: usize,
    idle: usize,
    threads: usize,
}

struct OffloadPool {
    state: Mutex<OffloadState>,
    work: Condvar,
    threads_max: usize,
}

static POOL: LazyLock<OffloadPool> = LazyLock::new(|| {
    let cores = memory::machine::cpus();
    // At least two, so that light work passes heavy work. One reactor per four cores leaves half of the cores for this.
    OffloadPool { state: Mutex::default(), work: Condvar::new(), threads_max: (cores / 2).max(2) }
});

/// Use and limits of the pool, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadStatus {
    /// Running threads.
    pub threads: usize,
    /// Limit of `threads`.
    pub threads_max: usize,
    /// Jobs that wait for a thread.
    pub waiting: usize,
    /// Limit of `waiting`.
    pub waiting_max: usize,
}

/// Current use of the pool.
pub fn status() -> OffloadStatus {
    let state = POOL.state.lock();
    let waiting = state.light.len() + state.heavy.len();
    OffloadStatus { threads: state.threads, threads_max: POOL.threads_max, waiting, waiting_max: JOBS_WAITING_MAX }
}

impl OffloadPool {
    /// Queues a job; returns it if too many wait.
    fn submit(&'static self, job: Job, is_heavy: bool) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.light.len() + state.heavy.len() >= JOBS_WAITING_MAX {
            return Err(job);
        }
        if is_heavy {
            state.heavy.push_back(job)
        } else {
            state.light.push_back(job)
        }
        self.rouse(state);
        Ok(())
    }

    /// Wakes or starts a thread for a queued job.
    fn rouse(&'static self, mut state: MutexGuard<'_, OffloadState>) {
        // The idle threads may already have been woken for jobs that were queued just before.
        if state.idle >= state.light.len() + state.heavy.len() {
            drop(state);
            self.work.notify_one();
        } else if state.threads < self.threads_max {
            state.threads += 1;
            drop(state);
            if memory::serving::spawn("nereid-offload", || self.run()).is_err() {
                let mut state = self.state.lock();
                state.threads -= 1;
                if state.threads == 0 {
                    // The system cannot start even one thread: the jobs are dropped, and their callers get an error.
                    let dropped = (std::mem::take(&mut state.light), std::mem::take(&mut state.heavy));
                    drop(state);
                    drop(dropped);
                }
            }
        } else {
            // All threads run, but one may be idle because all other queued jobs are heavy.
            drop(state);
            self.work.notify_one();
        }
    }

    /// The next job, and whether it is heavy. One heavy job may always run, and one thread is reserved for light jobs.
    fn next(&self, state: &mut OffloadState) -> Option<(Job, bool)> {
        let may_heavy = state.heavy_running + 1 < self.threads_max;
        let first_heavy = state.heavy_running == 0 || state.light.is_empty();
        if may_heavy
            && first_heavy
            && let Some(job) = state.heavy.pop_front()
        {
            return Some((job, true));
        }
        state.light.pop_front().map(|job| (job, false))
    }

    fn run(&'static self) {
        // At the niceness of the reactors these threads would starve them: beside 4 clients that send 1.5 MB of JSON
        // each, the p50 of small requests was 3.5 ms instead of 0.6 ms, and 7 to 23 ms instead of 0.4 ms with two busy
        // processes in the same cgroup (2 cores).
        memory::thread::lower_priority_slightly();
        let mut state = self.state.lock();
        loop {
            if let Some((job, is_heavy)) = self.next(&mut state) {
                state.heavy_running += usize::from(is_heavy);
                drop(state);
                // The caller gets an error if the job panics. The panic is caught here so that the thread survives.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
                state.heavy_running -= usize::from(is_heavy);
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE_MAX).timed_out();
            state.idle -= 1;
            if timed_out && state.light.is_empty() && state.heavy.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

enum PendingResult<T> {
    Awaited(Option<Waker>),
    Done(T),
    /// The result was taken, or there will be none.
    Gone,
}

struct JobResult<T> {
    outcome: Mutex<PendingResult<T>>,
    cancelled: AtomicBool,
}

/// Set when the caller stops waiting for the result. Long work checks it from time to time.
pub struct CancelFlag<'a>(&'a AtomicBool);

impl CancelFlag<'_> {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The worker's end of a job: sends the result to the caller. If dropped without one, the caller gets an error.
struct Promise<T> {
    shared: Arc<JobResult<T>>,
    mailbox: Option<Arc<Mailbox>>,
}

impl<T> Promise<T> {
    fn put(&self, new: PendingResult<T>) {
        let mut outcome = self.shared.outcome.lock();
        // The result was sent before, or the caller is gone: `new` is dropped.
        let PendingResult::Awaited(waker) = &mut *outcome else { return };
        let waker = waker.take();
        *outcome = new;
        drop(outcome);
        match (waker, &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox.post(waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.put(PendingResult::Gone);
    }
}

/// Resolves with the result of a job. If it is dropped before, the job is not begun or its result is dropped.
pub struct Offloaded<T: Send + 'static> {
    shared: Arc<JobResult<T>>,
}

/// Starts `work` on the pool. `bytes`: the size of its data, which decides between the light and the heavy queue.
///
/// # Errors
/// UNAVAILABLE if too many jobs wait.
pub fn start<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce(&CancelFlag<'_>) -> T + Send + 'static,
) -> Result<Offloaded<T>> {
    let shared =
        Arc::new(JobResult { outcome: Mutex::new(PendingResult::Awaited(None)), cancelled: AtomicBool::new(false) });
    let promise = Promise { shared: shared.clone(), mailbox: Mailbox::mine() };
    let job = move || {
        if !promise.shared.cancelled.load(Ordering::Relaxed) {
            let result = work(&CancelFlag(&promise.shared.cancelled));
            promise.put(PendingResult::Done(result));
        }
    };
    match POOL.submit(Box::new(job), bytes >= HEAVY_BYTES_MIN) {
        Ok(()) => Ok(Offloaded { shared }),
        Err(_) => Err(Error::unavailable(format!(
            "the server has {JOBS_WAITING_MAX} large requests waiting to be parsed or written, which is the limit; \
             try again later"
        ))),
    }
}

/// Runs `work` on the pool and waits for its result.
///
/// # Errors
/// UNAVAILABLE if too many jobs wait; INTERNAL if the work panicked.
pub async fn run<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce(&CancelFlag<'_>) -> T + Send + 'static,
) -> Result<T> {
    start(bytes, work)?.await
}

/// Like [`run`] if `is_long`; otherwise `work` runs on the calling thread.
///
/// # Errors
/// UNAVAILABLE if too many jobs wait; INTERNAL if the work panicked.
pub async fn run_if<T: Send + 'static>(
    is_long: bool,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if is_long { run(bytes, move |_| work()).await } else { Ok(work()) }
}

/// Like [`start`], for work that allocates large buffers. Each buffer is charged to `account` before it is allocated
/// (`tensor::allowance`), and the charge for all of them is returned with the result. Buffers come from slabs where
/// possible, because the pages of slabs are mapped already.
///
/// # Errors
/// UNAVAILABLE if too many jobs wait.
pub fn start_charged<T: Send + 'static>(
    account: &Account,
    kind: Kind,
    bytes: usize,
    work: impl FnOnce(&CancelFlag<'_>) -> T + Send + 'static,
) -> Result<Offloaded<(T, Charge)>> {
    let charge = account.empty(kind, true);
    start(bytes, move |cancel| {
        let charge = Rc::new(RefCell::new(charge));
        let is_refused = Rc::new(Cell::new(false));
        let (grown, refused) = (charge.clone(), is_refused.clone());
        let ask = move |bytes| {
            refused.set(false);
            grown.borrow_mut().grow(bytes).inspect_err(|_| refused.set(true)).map_err(Error::from)
        };
        let result = allowance::within(Box::new(ask), SlabPool::lend, || work(cancel));
        // Counted once per job: a parser may try two ways, and be rejected both times.
        if is_refused.get() {
            charge.borrow().account().count_refusal();
        }
        let nothing = charge.borrow().account().empty(kind, false);
        (result, charge.replace(nothing))
    })
}

/// Like [`start_charged`], and waits for the result.
///
/// # Errors
/// UNAVAILABLE if too many jobs wait; INTERNAL if the work panicked.
pub async fn run_charged<T: Send + 'static>(
    account: &Account,
    kind: Kind,
    bytes: usize,
    work: impl FnOnce(&CancelFlag<'_>) -> T + Send + 'static,
) -> Result<(T, Charge)> {
    start_charged(account, kind, bytes, work)?.await
}

/// Attaches to bytes made by [`start_charged`] their charge, which ends with the last view. No reactor frees them.
pub fn made(bytes: Bytes, mut charge: Charge) -> Bytes {
    charge.shrink(bytes.len());
    if charge.bytes() == 0 { disposed(bytes) } else { charged(disposed(bytes), charge) }
}

impl<T: Send + 'static> Future for Offloaded<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let mut outcome = self.shared.outcome.lock();
        if let PendingResult::Awaited(waker) = &mut *outcome {
            match waker {
                Some(known) => known.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let outcome = std::mem::replace(&mut *outcome, PendingResult::Gone);
        Poll::Ready(match outcome {
            PendingResult::Done(result) => Ok(result),
            _ => Err(Error::internal(
                "work on a large request stopped without a result; this is a defect of the server, please report it",
            )),
        })
    }
}

impl<T: Send + 'static> Drop for Offloaded<T> {
    fn drop(&mut self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
        let left = std::mem::replace(&mut *self.shared.outcome.lock(), PendingResult::Gone);
        // A large result may take long to drop.
        if matches!(left, PendingResult::Done(_)) && crate::hold::is_reactor() {
            drop(POOL.submit(Box::new(move || drop(left)), false));
        }
    }
}

/// Bytes that the pool frees if a reactor drops the last view: unmapping costs about 0.1 ms per MiB.
struct Disposed(Bytes);

impl AsRef<[u8]> for Disposed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Disposed {
    fn drop(&mut self) {
        if crate::hold::is_reactor() {
            let bytes = std::mem::take(&mut self.0);
            // If too many jobs wait, the bytes are freed here.
            drop(POOL.submit(Box::new(move || drop(bytes)), false));
        }
    }
}

/// Returns the same bytes. From `DISPOSE_BYTES_MIN` on, no reactor frees them.
pub fn disposed(bytes: Bytes) -> Bytes {
    if bytes.len() < DISPOSE_BYTES_MIN { bytes } else { Bytes::from_owner(Disposed(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn a_job_returns_its_result_and_a_panic_is_an_error() {
        assert_eq!(wait(run(1, |_| 7)).unwrap(), 7);
        let failed = wait(run(HEAVY_BYTES_MIN, |_| -> u8 { panic!("on purpose") })).unwrap_err();
        assert!(failed.message().contains("without a result"), "{failed}");
        assert_eq!(wait(run(HEAVY_BYTES_MIN, |_| 8)).unwrap(), 8);
    }

    #[test]
    fn heavy_work_leaves_a_thread_for_light_work() {
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let heavy: Vec<_> = (0..2 * POOL.threads_max)
            .map(|_| {
                let gate = gate.clone();
                start(HEAVY_BYTES_MIN, move |_| gate.lock().recv().is_ok()).unwrap()
            })
            .collect();
        assert_eq!(wait(run(1, |_| 1)).unwrap(), 1, "passes");
        let count = heavy.len();
        (0..count).for_each(|_| open.send(()).unwrap());
        for job in heavy {
            assert!(wait(job).unwrap());
        }
    }

    #[test]
    fn work_whose_result_is_dropped_sees_its_cancel_flag() {
        let (tell, told) = mpsc::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let (flag, seen) = (begun.clone(), tell.clone());
        let job = start(1, move |cancel| {
            flag.store(true, Ordering::SeqCst);
            let end = Instant::now() + Duration::from_secs(5);
            while !cancel.is_set() && Instant::now() < end {}
            let _ = seen.send(cancel.is_set());
        });
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(job);
        assert!(told.recv().unwrap());
    }
}
