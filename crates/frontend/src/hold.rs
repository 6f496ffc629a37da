//! How long a reactor works for one client at a stretch.
//!
//! A reactor serves thousands of clients in turn, so the work for one of them delays all others. Every task of a
//! reactor is started by [`spawn`], which measures each poll of the task and counts it in a histogram that `/metrics`
//! shows. A measured poll is a *hold*. Its length is CPU time of the thread and not elapsed time, because while the
//! operating system runs another thread the reactor does no work.
//!
//! Polls follow one another without a pause, so the end of one is the start of the next: each poll reads the monotonic
//! clock once. Reading the CPU clock is a system call. It is read after a poll that may have been long, and otherwise
//! once per [`BASELINE_NS`] of work. Of the CPU time since the last reading, what the short polls before a long one
//! took is not the long one's. Runs of models on the reactor are judged by the same readings (`engine::inline`).
//!
//! Work that consists of many pieces calls [`is_due`] between them, or awaits [`pause`], and continues in the next poll
//! of its task.

pub use http2::yield_turn;
use memory::thread::{now_ns, read_cpu};
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::{JoinHandle, spawn_local, yield_now};

/// Upper bounds of the histogram buckets, in nanoseconds. The fourth, 1 ms, is the longest hold that is allowed.
pub const BOUNDS_NS: [u64; 13] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
];
/// Time after which work that consists of many pieces continues in another poll: a third of the longest hold that is
/// allowed.
const PATIENCE_NS: u64 = 300_000;
/// Elapsed time above which a poll is measured by the CPU clock.
const DOUBT_NS: u64 = 250_000;
/// Work after which the CPU clock is read again. A hold can be counted too long by what the thread did between polls
/// meanwhile, such as waking up.
const BASELINE_NS: u64 = 250_000;
/// CPU time that the kernel charges to a thread for going to sleep and waking up. A rough upper bound.
const PARK_NS: u64 = 2_000;

/// Holds of one reactor. Only the reactor's thread writes; any thread may read.
#[derive(Debug, Default)]
pub struct Holds {
    counts: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// Sum of the holds of all reactors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldTotals {
    /// Holds per bucket of [`BOUNDS_NS`]. The last bucket has those above all bounds.
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// Sum of their lengths, in ns.
    pub sum_ns: u64,
    /// The longest hold since the start, in ns.
    pub max_ns: u64,
}

impl Holds {
    fn count(&self, ns: u64) {
        // There is one writer, so a load and a store suffice and no locked operation is needed.
        let add = |to: &AtomicU64, n| to.store(to.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        let bucket = BOUNDS_NS.iter().position(|&bound| ns <= bound).unwrap_or(BOUNDS_NS.len());
        if let Some(counter) = self.counts.get(bucket) {
            add(counter, 1);
        }
        add(&self.sum_ns, ns);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }
}

impl HoldTotals {
    /// Adds the holds of one reactor.
    pub fn add(&mut self, holds: &Holds) {
        for (total, counter) in self.counts.iter_mut().zip(&holds.counts) {
            *total += counter.load(Ordering::Relaxed);
        }
        self.sum_ns += holds.sum_ns.load(Ordering::Relaxed);
        self.max_ns = self.max_ns.max(holds.max_ns.load(Ordering::Relaxed));
    }
}

/// The clocks of a reactor.
struct Meter {
    holds: OnceCell<Arc<Holds>>,
    /// When the last poll ended, or the thread woke up, by [`now_ns`]; 0 on a thread that is no reactor.
    mark: Cell<u64>,
    /// CPU time of the thread when the CPU clock was last read, in ns.
    baseline: Cell<u64>,
    /// Work since then by the monotonic clock, in ns: polls, and [`PARK_NS`] for each time the thread woke up.
    since: Cell<u64>,
    /// The polls alone, in ns.
    polled: Cell<u64>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            holds: OnceCell::new(),
            mark: Cell::new(0),
            baseline: Cell::new(0),
            since: Cell::new(0),
            polled: Cell::new(0),
        }
    };
}

/// Makes the calling thread a reactor and counts its holds in `holds`.
pub fn begin(holds: Arc<Holds>) {
    METER.with(|m| {
        // A second call has no effect: a thread becomes a reactor once.
        let _ = m.holds.set(holds);
        m.baseline.set(read_cpu(now_ns()).cpu_ns);
        m.mark.set(now_ns().max(1));
    });
}

/// Starts the next measurement when the thread wakes up. Called by the runtime's hook.
pub fn woke() {
    METER.with(|m| {
        if m.mark.get() > 0 {
            m.since.set(m.since.get() + PARK_NS);
            m.mark.set(now_ns());
        }
    });
}

/// When the poll began that runs, by [`now_ns`]; the clock is not read on a reactor.
#[inline]
pub fn poll_began() -> u64 {
    match METER.try_with(|m| m.mark.get()) {
        Ok(0) | Err(_) => now_ns(),
        Ok(mark) => mark,
    }
}

/// Measures the poll that just ended, and starts the next measurement.
fn ended() {
    METER.with(|m| {
        let Some(holds) = m.holds.get() else { return };
        let now = now_ns();
        let took = now.saturating_sub(m.mark.replace(now));
        let since = m.since.get() + took;
        if since < BASELINE_NS {
            m.since.set(since);
            m.polled.set(m.polled.get() + took);
            return holds.count(took);
        }
        let cpu = read_cpu(now).cpu_ns;
        // The polls before this one were too short to have been preempted: the thread would have waited for longer than
        // they took together.
        let used = cpu.saturating_sub(m.baseline.get()).saturating_sub(m.polled.get());
        m.baseline.set(cpu);
        m.since.set(0);
        m.polled.set(0);
        holds.count(if took > DOUBT_NS { took.min(used) } else { took });
    });
}

/// Whether the calling thread is a reactor.
pub fn is_reactor() -> bool {
    METER.try_with(|m| m.holds.get().is_some()).unwrap_or(false)
}

/// Whether the current poll has taken so long that the rest of its work should wait for the next one.
pub fn is_due() -> bool {
    METER.with(|m| m.mark.get() > 0 && now_ns().saturating_sub(m.mark.get()) > PATIENCE_NS)
}

/// Lets other tasks of the reactor run if the current poll has been long.
pub async fn pause() {
    if is_due() {
        yield_now().await;
    }
}

/// Starts a task on this reactor and measures each of its polls.
pub fn spawn(work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    // Boxed, so that the compiler generates the code of a task once and not for each of 23 futures, which took a
    // twelfth of this crate's code size.
    spawn_boxed(Box::pin(work))
}

fn spawn_boxed(mut work: Pin<Box<dyn Future<Output = ()>>>) -> JoinHandle<()> {
    spawn_local(poll_fn(move |cx| {
        let polled = work.as_mut().poll(cx);
        ended();
        polled
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::rc::Rc;
    use std::task::Poll;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    fn work(duration: Duration) {
        let end = memory::thread::cpu_ns() + duration.as_nanos() as u64;
        while memory::thread::cpu_ns() < end {}
    }

    /// Holds of a reactor that ran `task`.
    fn holds<F: Future<Output = ()> + 'static>(task: impl FnOnce() -> F + Send + 'static) -> HoldTotals {
        let reactor = move || {
            let holds = Arc::new(Holds::default());
            begin(holds.clone());
            let runtime = Builder::new_current_thread().enable_all().on_thread_unpark(woke).build().unwrap();
            let _ = LocalSet::new().block_on(&runtime, async { spawn(task()).await });
            let mut totals = HoldTotals::default();
            totals.add(&holds);
            totals
        };
        std::thread::spawn(reactor).join().unwrap()
    }

    #[test]
    fn the_longest_poll_is_found_by_cpu_and_not_by_time() {
        let ms = Duration::from_millis;
        let totals = holds(move || async move {
            for _ in 0..100 {
                yield_now().await;
            }
            work(ms(3));
            yield_now().await;
            std::thread::sleep(ms(40));
            yield_now().await;
            tokio::time::sleep(ms(40)).await;
        });
        assert!((3_000_000..5_000_000).contains(&totals.max_ns), "{totals:?}");
        assert!(totals.sum_ns < 10_000_000, "waiting is no work: {totals:?}");
        assert!(totals.counts.iter().sum::<u64>() >= 103);
    }

    #[test]
    fn the_cpu_clock_is_read_once_for_many_short_polls() {
        let (tell, told) = std::sync::mpsc::channel();
        holds(move || async move {
            let (from, mut readings, mut last) = (std::time::Instant::now(), 0, memory::thread::last_cpu_reading());
            for _ in 0..500 {
                work(Duration::from_micros(20));
                yield_now().await;
                readings += usize::from(memory::thread::last_cpu_reading() != last);
                last = memory::thread::last_cpu_reading();
            }
            tell.send((readings, from.elapsed())).unwrap();
        });
        let (readings, took) = told.recv().unwrap();
        // Bounded by the elapsed time, because these polls may be preempted.
        let most = took.as_nanos() as usize / 200_000 + 1;
        assert!((1..=most).contains(&readings), "{readings} readings of the CPU clock in {took:?}");
    }

    #[test]
    fn short_polls_before_a_long_one_that_was_preempted_are_not_counted_with_it() {
        let totals = holds(|| async {
            for _ in 0..200 {
                for _ in 0..3 {
                    work(Duration::from_micros(60));
                    yield_now().await;
                }
                work(Duration::from_micros(100));
                // Stands for a preemption by another thread.
                std::thread::sleep(Duration::from_millis(1));
                yield_now().await;
            }
        });
        // A long poll used 100 us and what it costs to sleep; with the three short ones before it that would be more
        // than 250 us.
        let long: u64 = totals.counts[2..].iter().sum();
        assert!(long <= 40, "{totals:?}");
    }

    #[test]
    fn long_work_with_pauses_takes_many_polls() {
        let totals = holds(|| async {
            for _ in 0..200 {
                work(Duration::from_micros(50));
                pause().await;
            }
        });
        assert!(totals.max_ns < 1_000_000 && totals.sum_ns > 10_000_000, "{totals:?}");
    }

    /// Number of pieces of long work that run between the sending of a message and its receipt by another task.
    fn pieces_before_a_message_is_seen(again: fn() -> Pin<Box<dyn Future<Output = ()>>>) -> usize {
        let reactor = move || {
            begin(Arc::new(Holds::default()));
            let runtime = Builder::new_current_thread().enable_all().on_thread_unpark(woke).build().unwrap();
            LocalSet::new().block_on(&runtime, async {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                let ours = tokio::net::UnixStream::from_std(ours).unwrap();
                let done = Rc::new(Cell::new(0));
                let counter = done.clone();
                let long = spawn_local(async move {
                    for i in 0..200 {
                        work(Duration::from_micros(350));
                        counter.set(i);
                        if i == 10 {
                            (&theirs).write_all(b"x").unwrap();
                        }
                        again().await;
                        ended();
                    }
                });
                ours.readable().await.unwrap();
                let seen = done.get() - 10;
                long.abort();
                seen
            })
        };
        std::thread::spawn(reactor).join().unwrap()
    }

    #[test]
    fn a_message_during_long_work_is_seen_at_the_next_pause() {
        assert!(pieces_before_a_message_is_seen(|| Box::pin(pause())) <= 2);
        let later = || {
            let mut waited = false;
            Box::pin(poll_fn(move |cx| {
                if std::mem::replace(&mut waited, true) {
                    return Poll::Ready(());
                }
                yield_turn(cx);
                Poll::Pending
            })) as Pin<Box<dyn Future<Output = ()>>>
        };
        assert!(pieces_before_a_message_is_seen(later) <= 2);
    }
}
