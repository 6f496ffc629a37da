//! Lets a thread that loads models compute like any other until threads that serve requests wait for a core. Then it steps behind for good.
//!
//! Always behind, it also lost to programs that serve nothing: a load of 102 MB without any request took 4 to 9 s beside compilers on two cores.
//! Only the way behind can be taken when there is need: without privileges nobody lowers a niceness again.
//!
//! Need is what the kernel says: for how long threads that serve, and processes that run models, were ready to run and had no core. Where it
//! does not say, a thread steps behind at once.
//!
//! Invariant: the thread that loads is alive as long as its watcher is, so its id is its own.

pub use crate::roster::{Entry, process_serves};

use crate::roster::{self, id};
use crate::{serving, thread};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Times between two looks of the watcher, each twice as long as the one before. A look takes some 4 µs for each thread that serves.
const LOOK_TIME: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_millis(40);
/// Threads that serve waited too long when they waited for this part of the time between two looks, all of them together.
const WAITED_SHARE: u32 = 20;

/// Watches for a thread that loads, until it is dropped there.
#[derive(Debug)]
pub struct Yielding(Option<(Sender<Infallible>, JoinHandle<()>)>);

/// From now on this thread steps behind as soon as threads that serve wait for a core.
pub fn by_need() -> Yielding {
    by_need_of(roster::all)
}

fn by_need_of(serving: impl Fn() -> Vec<i32> + Send + 'static) -> Yielding {
    // Before any thread steps behind.
    serving::prepare();
    let watched = id().filter(|&id| waited_ns(id).is_some());
    let started = watched.and_then(|id| {
        let mut waits = Waits::of(&serving());
        let (alive, over) = channel::<Infallible>();
        let watch = move || {
            let mut time = *LOOK_TIME.start();
            while over.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                if waits.are_long(&serving()) {
                    return thread::step_behind_of(id);
                }
                time = (2 * time).min(*LOOK_TIME.end());
            }
        };
        Some((alive, Builder::new().name("nereid-yielding".into()).spawn(watch).ok()?))
    });
    if started.is_none() {
        thread::step_behind();
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

/// How long threads had waited for a core at the last look.
struct Waits {
    at: Instant,
    waited_ns: HashMap<i32, u64>,
}

impl Waits {
    fn of(threads: &[i32]) -> Self {
        let waited_ns = threads.iter().filter_map(|&id| Some((id, waited_ns(id)?))).collect();
        Self { at: Instant::now(), waited_ns }
    }

    /// Looks again, and says whether they waited for too long since the last time.
    fn are_long(&mut self, threads: &[i32]) -> bool {
        let before = std::mem::replace(self, Self::of(threads));
        let since = |(id, now): (&i32, &u64)| now.saturating_sub(*before.waited_ns.get(id).unwrap_or(now));
        let waited: u64 = self.waited_ns.iter().map(since).sum();
        Duration::from_nanos(waited) * WAITED_SHARE > self.at.saturating_duration_since(before.at)
    }
}

/// For how long a thread was ready and had no core, in nanoseconds since it began. `None` where the kernel does not say.
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

    /// Whether a load beside a busy thread on its core, which serves or does not, stepped behind within so long.
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
            let _yielding = by_need_of(move || if serves { vec![other] } else { Vec::new() });
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
    fn a_load_steps_behind_a_thread_that_serves_and_waits_and_behind_no_other() {
        assert!(!steps_behind(false, Duration::from_millis(100)));
        if niceness() >= 10 {
            return eprintln!("not compared: these tests run with the niceness of loads or more");
        }
        assert!(steps_behind(true, Duration::from_secs(5)));
    }

    #[test]
    fn threads_that_serve_are_known_until_they_end() {
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
