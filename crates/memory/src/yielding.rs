//! Lowers the priority of a thread that loads models once threads that serve requests wait for a core, for good.
//!
//! With a low priority from the start, a load of 102 MB without any request took 4 to 9 s beside compilers on two
//! cores. Priorities can only be lowered on demand: without privileges a niceness cannot be lowered again.
//!
//! The measure is the kernel's: the time that serving threads, and processes that run models, were ready to run without
//! a core. Where the kernel does not report it, the priority is lowered at once.
//!
//! Invariant: a loading thread outlives its watcher, so its id stays its own.

pub use crate::roster::{ServingThread, register_process};

use crate::roster::{self, id};
use crate::{serving, thread};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Intervals of the watcher, each twice as long as the one before. A check takes some 4 µs per serving thread.
const LOOK_TIME: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_millis(40);
/// Serving threads waited too long if their total wait exceeds this fraction of the interval.
const WAITED_SHARE: u32 = 20;

/// Watches a loading thread until dropped by it.
#[derive(Debug)]
pub struct Yielding(Option<(Sender<Infallible>, JoinHandle<()>)>);

/// Lowers this thread's priority as soon as serving threads wait for a core.
pub fn when_contended() -> Yielding {
    watch(roster::all)
}

fn watch(serving: impl Fn() -> Vec<i32> + Send + 'static) -> Yielding {
    // Before the priority of any thread is lowered.
    serving::prepare();
    let watched = id().filter(|&id| waited_ns(id).is_some());
    let started = watched.and_then(|id| {
        let mut waits = Waits::of(&serving());
        let (alive, over) = channel::<Infallible>();
        let watch = move || {
            let mut time = *LOOK_TIME.start();
            while over.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                if waits.measure_is_long(&serving()) {
                    return thread::lower_priority_of(id);
                }
                time = (2 * time).min(*LOOK_TIME.end());
            }
        };
        Some((alive, Builder::new().name("nereid-yielding".into()).spawn(watch).ok()?))
    });
    if started.is_none() {
        thread::lower_priority();
    }
    Yielding(started)
}

impl Drop for Yielding {
    fn drop(&mut self) {
        if let Some((alive, watcher)) = self.0.take() {
            drop(alive);
            let _ = watcher.join();
        }
    }
}

/// Time that threads had waited for a core at the last check.
struct Waits {
    at: Instant,
    waited_ns: HashMap<i32, u64>,
}

impl Waits {
    fn of(threads: &[i32]) -> Self {
        let waited_ns = threads.iter().filter_map(|&id| Some((id, waited_ns(id)?))).collect();
        Self { at: Instant::now(), waited_ns }
    }

    /// Measures again; returns true if they waited too long since the last time.
    fn measure_is_long(&mut self, threads: &[i32]) -> bool {
        let before = std::mem::replace(self, Self::of(threads));
        let since = |(id, now): (&i32, &u64)| now.saturating_sub(*before.waited_ns.get(id).unwrap_or(now));
        let waited: u64 = self.waited_ns.iter().map(since).sum();
        Duration::from_nanos(waited) * WAITED_SHARE > self.at.saturating_duration_since(before.at)
    }
}

/// Time in ns that a thread was ready without a core since it began. `None` if the kernel does not report it.
fn waited_ns(id: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::roster::serve;
    use crate::thread::{niceness, pin};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Computes on the first core until `until`, or for ten seconds.
    fn compute(until: impl Fn() -> bool) -> bool {
        let from = Instant::now();
        while !until() {
            if from.elapsed() > Duration::from_secs(10) {
                return false;
            }
        }
        true
    }

    /// True if a load yields within `limit` to a busy thread on its core, registered or not (`serves`).
    fn steps_behind(serves: bool, limit: Duration) -> bool {
        let over = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let is_over = over.clone();
        let busy = std::thread::spawn(move || {
            pin(0);
            tell.send(id().expect("an id")).expect("heard");
            compute(|| is_over.load(Ordering::Relaxed))
        });
        let other = told.recv().expect("told");
        let load = std::thread::spawn(move || {
            pin(0);
            let before = niceness();
            let _yielding = watch(move || if serves { vec![other] } else { Vec::new() });
            let from = Instant::now();
            compute(|| niceness() != before || from.elapsed() > limit);
            niceness() != before
        });
        let stepped = load.join().expect("no panic");
        over.store(true, Ordering::Relaxed);
        busy.join().expect("no panic");
        stepped
    }

    #[test]
    fn a_load_yields_only_to_serving_threads_that_wait() {
        assert!(!steps_behind(false, Duration::from_millis(100)));
        if niceness() >= 10 {
            return eprintln!("not compared: these tests run with the niceness of loads or more");
        }
        assert!(steps_behind(true, Duration::from_secs(5)));
    }

    #[test]
    fn serving_threads_are_registered_until_they_end() {
        let serves = || {
            serve();
            serve();
            let id = id().expect("an id");
            assert_eq!(roster::all().iter().filter(|&&other| other == id).count(), 1);
            id
        };
        let ended = std::thread::spawn(serves).join().expect("no panic");
        assert!(!roster::all().contains(&ended));
        let spawned = serving::call("nereid-test", || roster::all().contains(&id().expect("an id")));
        assert_eq!(spawned.ok(), Some(true));
    }
}
