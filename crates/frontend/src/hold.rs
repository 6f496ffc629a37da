//! How long a reactor works for one client at a stretch.
//!
//! A reactor serves thousands of clients by turns, so what it does for one of them delays all others. Every task of a reactor is
//! [`spawn`]ed here: what one poll of it took is counted in a histogram, which `/metrics` shows. It counts the CPU of the thread, not
//! the time that passed: a reactor that was preempted did not hold anybody up by itself.
//!
//! Polls follow each other without a pause, so the end of one is the start of the next: a poll costs one look at the monotonic
//! clock. The CPU clock costs a system call; it is read for a poll that may have been long, and besides so often that what was
//! used before that poll is known to [`BASELINE_NS`].
//!
//! Work that has many pieces asks [`is_due`] between them, or awaits [`pause`], and goes on in the task's next poll.

pub use http2::go_on_later;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::task::{JoinHandle, spawn_local, yield_now};

/// Upper bounds of the histogram, in nanoseconds. The fourth is the promise: 1 ms.
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
/// Work in many pieces goes on in another poll once this one took so long: a third of what a client may have.
const PATIENCE_NS: u64 = 300_000;
/// A poll that took longer by the monotonic clock is judged on the CPU clock.
const DOUBT_NS: u64 = 250_000;
/// After so much work the CPU clock is read again. What a poll is charged for can be too much by this, never too little.
const BASELINE_NS: u64 = 100_000;
/// What the kernel takes to put a thread to sleep and to wake it up, in CPU of that thread; roughly, and on the safe side.
const PARK_NS: u64 = 2_000;

/// Holds of one reactor. It alone writes; anyone reads.
#[derive(Debug, Default)]
pub struct Holds {
    counts: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// Holds of all reactors together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldTotals {
    /// Holds between the bounds of [`BOUNDS_NS`], the longest last.
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// All of them together.
    pub sum_ns: u64,
    /// The longest since the start.
    pub max_ns: u64,
}

impl Holds {
    fn count(&self, ns: u64) {
        // One writer: no need for an operation that locks the cache line.
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
    /// Adds those of one reactor.
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
    /// When the last poll ended, or the thread woke up.
    mark: Cell<Option<Instant>>,
    /// CPU the thread had used when that was last read, and the work done since then.
    baseline: Cell<u64>,
    since: Cell<u64>,
}

thread_local! {
    static METER: Meter = const {
        Meter { holds: OnceCell::new(), mark: Cell::new(None), baseline: Cell::new(0), since: Cell::new(0) }
    };
}

/// Makes this thread a reactor whose holds are counted.
pub fn begin(holds: Arc<Holds>) {
    METER.with(|m| {
        // A thread becomes a reactor once.
        let _ = m.holds.set(holds);
        m.baseline.set(memory::thread::cpu_ns());
        m.mark.set(Some(Instant::now()));
    });
}

/// The thread woke up: what comes now is work. For the runtime's hook.
pub fn woke() {
    METER.with(|m| {
        if m.mark.get().is_some() {
            m.since.set(m.since.get() + PARK_NS);
            m.mark.set(Some(Instant::now()));
        }
    });
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

/// A poll of a task ended.
fn ended() {
    METER.with(|m| {
        let (Some(mark), Some(holds)) = (m.mark.get(), m.holds.get()) else { return };
        let now = Instant::now();
        m.mark.set(Some(now));
        let took = nanoseconds(mark, now);
        let since = m.since.get() + took;
        if since < BASELINE_NS {
            m.since.set(since);
            return holds.count(took);
        }
        let cpu = memory::thread::cpu_ns();
        let used = cpu.saturating_sub(m.baseline.get());
        m.baseline.set(cpu);
        m.since.set(0);
        holds.count(if took > DOUBT_NS { took.min(used) } else { took });
    });
}

/// Whether this thread is a reactor.
pub fn is_reactor() -> bool {
    METER.try_with(|m| m.holds.get().is_some()).unwrap_or(false)
}

/// Whether this poll took so long that the rest of its work should wait for the next.
pub fn is_due() -> bool {
    METER.with(|m| m.mark.get().is_some_and(|mark| nanoseconds(mark, Instant::now()) > PATIENCE_NS))
}

/// Lets others have their turn, if this task had a long one.
pub async fn pause() {
    if is_due() {
        yield_now().await;
    }
}

/// A task of this reactor whose polls are counted.
pub fn spawn(work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    // Boxed, so that the compiler makes the code of a task once and not for each of 23 futures: a twelfth of this crate's.
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

    /// Holds of a reactor that did `task`.
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
    fn work_in_pieces_is_done_in_many_polls() {
        let totals = holds(|| async {
            for _ in 0..200 {
                work(Duration::from_micros(50));
                pause().await;
            }
        });
        assert!(totals.max_ns < 1_000_000 && totals.sum_ns > 10_000_000, "{totals:?}");
    }

    /// How many pieces of long work were done between a message and its receipt by another task.
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
    fn who_comes_in_the_middle_of_long_work_is_seen_at_its_next_pause() {
        assert!(pieces_before_a_message_is_seen(|| Box::pin(pause())) <= 2);
        let later = || {
            let mut waited = false;
            Box::pin(poll_fn(move |cx| {
                if std::mem::replace(&mut waited, true) {
                    return Poll::Ready(());
                }
                go_on_later(cx);
                Poll::Pending
            })) as Pin<Box<dyn Future<Output = ()>>>
        };
        assert!(pieces_before_a_message_is_seen(later) <= 2);
    }
}
