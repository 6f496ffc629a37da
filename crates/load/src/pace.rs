//! When requests are due, and what all connections of a run share.
//!
//! Closed loop: a worker's next request is due when its last answer came. Open loop: arrivals form one process; an idle
//! worker takes the next arrival and waits for its time, so a request waits for a worker only while all of them are
//! busy, and that wait is part of its latency. (A process per worker would be Poisson in sum too, but a worker that is
//! busy would then hold back its own arrivals while others are idle, and the client's queueing would look like the
//! server's.)

use crate::plan::{Arrivals, Plan};
use crate::report::{Outcome, Tally};
use crate::system::{self, Timer};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// After the end, how long arrivals that are already due are still sent, and never longer than a request may take.
const GRACE: Duration = Duration::from_secs(1);

/// Bytes that went over connections, without those of TLS.
#[derive(Default)]
pub struct Traffic {
    /// Sent.
    pub out: Cell<u64>,
    /// Received.
    pub input: Cell<u64>,
}

/// A run: what is due, and what was counted.
pub struct Measurement {
    /// The load.
    pub plan: Plan,
    start: Instant,
    end: Cell<Instant>,
    /// Until then arrivals that are already due are sent.
    send_until: Cell<Instant>,
    /// The arrival that was taken last.
    next: Cell<Instant>,
    random: Cell<u64>,
    /// Requests that may still be sent and count.
    budget: Cell<u64>,
    /// Arrivals that a worker took and could not send.
    unsent: Cell<u64>,
    /// Requests that count and are on their way.
    in_flight: Cell<u64>,
    /// When the last of those that count ended, however it did.
    over: Cell<Option<Instant>>,
    tally: RefCell<Tally>,
    /// Bytes and CPU time before the requests that count.
    before: Cell<(u64, u64, Duration)>,
    traffic: Rc<Traffic>,
}

impl Measurement {
    /// Begins now: connections must be open already.
    pub fn begin(plan: Plan, traffic: Rc<Traffic>) -> Rc<Self> {
        let begin = Instant::now();
        let start = begin + Duration::from_secs_f64(plan.warmup_s);
        let end = start + Duration::from_secs_f64(plan.seconds);
        Rc::new(Self {
            start,
            end: Cell::new(end),
            send_until: Cell::new(end + GRACE.min(plan.timeout())),
            next: Cell::new(begin),
            random: Cell::new(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            budget: Cell::new(if plan.requests_max == 0 { u64::MAX } else { plan.requests_max }),
            unsent: Cell::new(0),
            in_flight: Cell::new(0),
            over: Cell::new(None),
            tally: RefCell::default(),
            before: Cell::new((traffic.out.get(), traffic.input.get(), system::cpu_time())),
            traffic,
            plan,
        })
    }

    /// When the requests that count begin: those due before it are warm-up.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// The warm-up is over.
    pub fn started(&self) {
        self.before.set((self.traffic.out.get(), self.traffic.input.get(), system::cpu_time()));
    }

    /// No further request is sent.
    pub fn stop(&self) {
        let now = Instant::now();
        self.end.set(self.end.get().min(now));
        self.send_until.set(now);
    }

    /// When the run is over whatever the server does: every request was due long enough before.
    pub fn deadline(&self) -> Instant {
        self.end.get() + self.plan.timeout()
    }

    /// Whether the time is not up.
    pub fn goes_on(&self) -> bool {
        self.budget.get() > 0 && Instant::now() < self.end.get()
    }

    /// Whether requests are due whatever the server does.
    fn is_open(&self) -> bool {
        self.plan.arrivals != Arrivals::Closed
    }

    /// Counts something of a request that was due at `due`, unless it was of the warm-up.
    pub fn count(&self, due: Instant, record: impl FnOnce(&mut Tally)) {
        if due >= self.start {
            record(&mut self.tally.borrow_mut());
        }
    }

    /// A request is sent.
    pub fn sent(&self, due: Instant) {
        self.count(due, |tally| {
            self.in_flight.set(self.in_flight.get() + 1);
            if self.is_open() {
                tally.sent(due, Instant::now());
            }
        });
    }

    /// A request had its last response at `at`.
    pub fn done(&self, due: Instant, at: Instant) {
        self.count(due, |tally| {
            self.ended(at);
            tally.done(due, at, self.plan.samples);
        });
    }

    /// A request failed.
    pub fn failed(&self, due: Instant, why: &str) {
        self.count(due, |tally| {
            self.ended(Instant::now());
            tally.failed(why);
        });
    }

    fn ended(&self, at: Instant) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        self.over.set(Some(at));
    }

    /// A connection was lost, or could not be opened, without a request.
    pub fn unreachable(&self, why: &str) {
        self.count(Instant::now(), |tally| tally.failed(why));
    }

    /// Nobody waits any longer for the requests in flight.
    pub fn abandon(&self, why: &str) {
        for _ in 0..self.in_flight.get() {
            self.failed(self.start, why);
        }
    }

    /// Ends an interval of the series at `at`, `interval` after the last one ended.
    pub fn point(&self, at: Instant, interval: Duration) -> serde_json::Value {
        self.tally.borrow_mut().point(at - self.start, interval)
    }

    /// The outcome of the run.
    pub fn outcome(&self) -> Outcome {
        let (out, input, cpu) = self.before.get();
        // A run that ends with its last request does so before its time.
        let end = if self.budget.get() == 0 { self.over.get().unwrap_or(self.start) } else { self.end.get() };
        Outcome {
            tally: self.tally.take(),
            start: self.start,
            seconds: end.min(self.end.get()).saturating_duration_since(self.start).as_secs_f64(),
            unsent: self.unsent.get() + self.left(),
            cpu: system::cpu_time().saturating_sub(cpu),
            bytes: (self.traffic.out.get() - out, self.traffic.input.get() - input),
        }
    }

    /// Arrivals of the window that nobody took; of random ones, as many as are expected.
    fn left(&self) -> u64 {
        let left = self.end.get().saturating_duration_since(self.next.get().max(self.start));
        let left = (left.as_secs_f64() * self.plan.rate) as u64;
        if self.is_open() { left.min(self.budget.get()) } else { 0 }
    }

    fn arrival(&self) -> Option<Instant> {
        let mean = 1.0 / self.plan.rate;
        let distance = match self.plan.arrivals {
            Arrivals::Constant => mean,
            _ => -self.uniform().ln() * mean,
        };
        let next = self.next.get() + Duration::from_secs_f64(distance);
        self.next.set(next);
        (next < self.end.get()).then_some(next)
    }

    /// A number in (0, 1]: the logarithm of 0 is not a time.
    fn uniform(&self) -> f64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        ((x >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    fn take(&self) -> Option<Instant> {
        let now = Instant::now();
        // Arrivals that the warm-up left over would take the place of those that are measured.
        if now >= self.start && self.next.get() < self.start {
            self.next.set(self.start);
        }
        let due = match self.is_open() {
            true if now >= self.send_until.get() => return None,
            true => self.arrival()?,
            false => (now < self.end.get()).then_some(now)?,
        };
        if due >= self.start {
            self.budget.set(self.budget.get().checked_sub(1)?);
        }
        Some(due)
    }
}

/// One worker's view of the schedule.
pub struct Pace {
    run: Rc<Measurement>,
    /// `None` in a closed loop.
    timer: Option<Timer>,
    /// The arrival this worker waits for.
    taken: Option<Instant>,
}

impl Pace {
    /// The view of one more worker.
    pub fn new(run: &Rc<Measurement>) -> std::io::Result<Self> {
        let timer = if run.is_open() { Some(Timer::new()?) } else { None };
        Ok(Self { run: run.clone(), timer, taken: None })
    }

    /// Waits until the next request is due. Its time, or `None` when the run is over.
    pub async fn due(&mut self) -> Option<Instant> {
        poll_fn(|cx| self.poll_due(cx)).await
    }

    /// The same without waiting, for workers that have more to do. A worker whose connection takes several requests at
    /// a time asks again after each: it then waits for the earliest arrival that no other has, and none waits for
    /// another worker.
    pub fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let due = match self.taken {
            Some(due) => due,
            None => match self.run.take() {
                Some(due) => due,
                None => return Poll::Ready(None),
            },
        };
        if let Some(timer) = &mut self.timer {
            if self.taken.is_none() && timer.arm(due).is_err() {
                return Poll::Ready(None);
            }
            self.taken = Some(due);
            if ready!(timer.poll_until(due, cx)).is_err() {
                return Poll::Ready(None);
            }
            self.taken = None;
        }
        Poll::Ready(Some(due))
    }
}

impl Drop for Pace {
    /// An arrival that was taken while there was no connection for it is one that was not sent.
    fn drop(&mut self) {
        if self.taken.is_some_and(|due| due >= self.run.start && due < self.run.end.get()) {
            self.run.unsent.set(self.run.unsent.get() + 1);
        }
    }
}

/// Ends requests that take too long. Its timer runs on and is set anew only when it fires, so that a request costs
/// nothing.
pub struct Watch {
    sleep: Pin<Box<Sleep>>,
    limit: Duration,
}

impl Watch {
    /// Requests may take as long as `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { sleep: Box::pin(sleep_until((Instant::now() + limit).into())), limit }
    }

    /// Whether the request that began at `oldest` took too long. Otherwise the task is woken when it has.
    pub fn poll(&mut self, oldest: impl Fn() -> Option<Instant>, cx: &mut Context<'_>) -> bool {
        while self.sleep.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let end = oldest().unwrap_or(now) + self.limit;
            if end <= now {
                return true;
            }
            self.sleep.as_mut().reset(end.into());
        }
        false
    }

    /// The result of `work`, or `None` if it takes too long.
    pub async fn limit<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.poll(|| Some(began), cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arrivals: Arrivals, rate: f64, seconds: f64) -> Plan {
        Plan { arrivals, rate, seconds, seed: 7, ..Plan::default() }
    }

    #[test]
    fn arrivals_are_poisson() {
        // Mean and variance of the counts per interval agree, and the rate is the one asked for.
        let run = Measurement::begin(plan(Arrivals::Poisson, 10_000.0, 100.0), Rc::default());
        let mut counts = vec![0f64; 10_000];
        while let Some(at) = run.arrival() {
            counts[((at - run.start).as_secs_f64() * 100.0) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean - 100.0).abs() < 0.5, "mean {mean}");
        assert!((variance / mean - 1.0).abs() < 0.06, "variance {variance} for mean {mean}");
    }

    #[test]
    fn constant_arrivals_are_equally_far_apart() {
        let run = Measurement::begin(plan(Arrivals::Constant, 1000.0, 0.01), Rc::default());
        let all: Vec<_> = std::iter::from_fn(|| run.arrival()).map(|at| (at - run.start).as_micros()).collect();
        assert_eq!(all, [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]);
    }

    #[test]
    fn a_request_budget_ends_the_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let plan = Plan { requests_max: 3, ..plan(Arrivals::Closed, 0.0, 100.0) };
            let mut pace = Pace::new(&Measurement::begin(plan, Rc::default())).expect("timer");
            let mut sent = 0;
            while pace.due().await.is_some() {
                sent += 1;
            }
            assert_eq!(sent, 3);
        });
    }
}
