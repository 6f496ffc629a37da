//! One elastic pool of worker threads for all models.
//!
//! A version needs a thread only while a batch runs. Threads are started if no idle one is left, and end after some
//! time without work, so an idle model has none (design §5).
//!
//! Invariant: a submitted job runs; jobs wait only while `threads_max` threads are busy. The last thread never ends, so
//! that work continues if the machine cannot start another.

use backend::sync::{Condvar, Mutex, spawn, wait_for};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long a thread stays without work. Long enough that a model with one request per second keeps its warm thread.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// A job of a pool.
pub trait Task: Send + 'static {
    /// Runs the job. A job that panics must have answered its requests and returned its instance.
    fn run(self);
}

/// The threads and the queued jobs.
pub struct Pool<W> {
    state: Mutex<PoolState<W>>,
    work: Condvar,
    threads_max: usize,
}

struct PoolState<W> {
    jobs: VecDeque<W>,
    idle: usize,
    threads: usize,
    closed: bool,
}

impl<W: Task> Pool<W> {
    /// Starts with one thread.
    ///
    /// # Errors
    /// The machine cannot start even the first thread.
    pub fn new(threads_max: usize) -> std::io::Result<Arc<Self>> {
        let state = PoolState { jobs: VecDeque::new(), idle: 0, threads: 1, closed: false };
        let pool = Arc::new(Self { state: Mutex::new(state), work: Condvar::new(), threads_max: threads_max.max(1) });
        pool.spawn()?;
        Ok(pool)
    }

    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let pool = self.clone();
        spawn("nereid-worker", move || pool.run())
    }

    /// Runs the job on a thread.
    pub fn submit(self: &Arc<Self>, job: W) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        // `idle` counts waiting threads that no earlier job will use.
        if state.idle >= state.jobs.len() {
            drop(state);
            self.work.notify_one();
        } else if state.threads < self.threads_max {
            state.threads += 1;
            drop(state);
            if self.spawn().is_err() {
                // No thread could be started: a busy one takes the job later.
                self.state.lock().threads -= 1;
                self.work.notify_one();
            }
        }
    }

    /// Queues a job behind all others, for a thread of the pool that is free next: no other thread starts for it.
    pub fn requeue(&self, job: W) {
        self.state.lock().jobs.push_back(job);
    }

    fn run(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The thread continues after a panic.
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

    /// Ends idle threads now.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    /// Wakes waiting threads as if their time were over.
    #[cfg(feature = "loom")]
    pub fn expire(&self) {
        self.work.expire();
    }

    /// Number of threads now, and its maximum.
    pub fn threads(&self) -> (usize, usize) {
        (self.state.lock().threads, self.threads_max)
    }
}
