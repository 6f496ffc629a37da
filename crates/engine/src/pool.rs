//! One elastic pool of worker threads for all models.
//!
//! A version that may run a batch holds an instance permit; it needs a thread only while it runs. Threads are started when work
//! finds none idle and end after a quiet while, so an idle model costs none (design §5).
//!
//! Invariant: a job handed to `submit` runs; jobs wait only when `threads_max` threads are all busy. The last thread never leaves,
//! so that work goes on when the machine refuses to start another.

use backend::sync::{Condvar, Mutex, spawn, wait_for};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long a thread without work stays. Long enough that a model with a request a second keeps its warm thread.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// What threads of a pool do.
pub trait Task: Send + 'static {
    /// Does it. What panics has answered its requests and given its instance back.
    fn run(self);
}

/// The threads, and the jobs that wait for them.
pub struct Pool<W> {
    state: Mutex<State<W>>,
    work: Condvar,
    threads_max: usize,
}

struct State<W> {
    jobs: VecDeque<W>,
    idle: usize,
    threads: usize,
    closed: bool,
}

impl<W: Task> Pool<W> {
    /// Starts with one thread.
    ///
    /// # Errors
    /// The machine refuses even the first thread.
    pub fn new(threads_max: usize) -> std::io::Result<Arc<Self>> {
        let state = State { jobs: VecDeque::new(), idle: 0, threads: 1, closed: false };
        let pool = Arc::new(Self { state: Mutex::new(state), work: Condvar::new(), threads_max: threads_max.max(1) });
        pool.spawn()?;
        Ok(pool)
    }

    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let pool = self.clone();
        spawn("nereid-worker", move || pool.run())
    }

    /// Has a thread do this.
    pub fn submit(self: &Arc<Self>, job: W) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        // `idle` counts threads that wait and were not yet promised to a job before this one.
        if state.idle >= state.jobs.len() {
            drop(state);
            self.work.notify_one();
        } else if state.threads < self.threads_max {
            state.threads += 1;
            drop(state);
            if self.spawn().is_err() {
                // No thread to be had: those that work will take the job when they are done.
                self.state.lock().threads -= 1;
                self.work.notify_one();
            }
        }
    }

    fn run(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The thread goes on.
                if catch_unwind(AssertUnwindSafe(|| job.run())).is_err() {
                    log::error!("a worker thread panicked; this is a defect of the server, please report it");
                }
                state = self.state.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let timed_out;
            (state, timed_out) = wait_for(&self.work, state, IDLE_MAX);
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() && state.threads > 1 {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Lets idle threads end now.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    /// Lets threads that wait find that they waited for too long.
    #[cfg(feature = "loom")]
    pub fn expire(&self) {
        self.work.expire();
    }

    /// Threads alive now, and the most there may be.
    pub fn threads(&self) -> (usize, usize) {
        (self.state.lock().threads, self.threads_max)
    }
}
