//! When requests are due. One schedule is shared by all workers of a run.
//!
//! Closed loop: a worker's next request is due when its last answer came. Open loop: arrivals form one Poisson process;
//! an idle worker takes the next arrival and waits for its time, so a request waits for a worker only while all of them
//! are busy, and that wait is part of its latency. (A process per worker would be Poisson in sum too, but a worker that
//! is busy would then hold back its own arrivals while others are idle, and the client's queueing would look like the
//! server's.)

use crate::load::LoadPlan;
use crate::timer::Timer;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// After the end, how long arrivals that are already due are still sent.
const GRACE: Duration = Duration::from_secs(1);

pub struct Schedule {
    next: Cell<Instant>,
    start: Instant,
    end: Instant,
    /// Mean seconds between arrivals; 0 = closed loop.
    mean: f64,
    random: Cell<u64>,
    /// Requests that may still be sent.
    budget: Cell<u64>,
    /// Arrivals that could not be sent: the server is too far behind for any latency to be true.
    unsent: Cell<u64>,
}

impl Schedule {
    /// Begins now: connections must be open already.
    pub fn begin(plan: &LoadPlan) -> Rc<Self> {
        let begin = Instant::now();
        let start = begin + plan.warmup;
        Rc::new(Self {
            next: Cell::new(begin),
            start,
            end: start + plan.duration,
            mean: if plan.rate > 0.0 { 1.0 / plan.rate } else { 0.0 },
            random: Cell::new(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            budget: Cell::new(if plan.requests == 0 { u64::MAX } else { plan.requests }),
            unsent: Cell::new(0),
        })
    }

    /// When the requests that count begin.
    pub fn start(&self) -> Instant {
        self.start
    }

    pub fn unsent(&self) -> u64 {
        self.unsent.get()
    }

    fn arrival(&self) -> Option<Instant> {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        // In (0, 1]: the logarithm of 0 is not a time.
        let uniform = ((x >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        let next = self.next.get() + Duration::from_secs_f64(-uniform.ln() * self.mean);
        self.next.set(next);
        (next < self.end).then_some(next)
    }
}

/// One worker's view of the schedule.
pub struct Pace {
    schedule: Rc<Schedule>,
    timer: Timer,
    /// The arrival this worker waits for.
    taken: Option<Instant>,
}

impl Pace {
    pub fn new(schedule: &Rc<Schedule>) -> std::io::Result<Self> {
        Ok(Self { schedule: schedule.clone(), timer: Timer::new()?, taken: None })
    }

    /// Waits until the next request is due. Its time, or `None` when the run is over.
    pub async fn due(&mut self) -> Option<Instant> {
        poll_fn(|cx| self.poll_due(cx)).await
    }

    /// The same without waiting, for workers that have more to do. A worker whose connection takes several requests at
    /// a time asks again after each: as it then waits for the earliest arrival nobody else has, none waits for another
    /// worker.
    pub fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let due = match self.taken {
            Some(due) => due,
            None => match self.take() {
                Some(due) => due,
                None => return Poll::Ready(None),
            },
        };
        if self.schedule.mean > 0.0 {
            if self.taken.is_none() && self.timer.arm(due).is_err() {
                return Poll::Ready(None);
            }
            self.taken = Some(due);
            if ready!(self.timer.poll_until(due, cx)).is_err() {
                return Poll::Ready(None);
            }
            self.taken = None;
        }
        Poll::Ready(Some(due))
    }

    fn take(&self) -> Option<Instant> {
        let s = &self.schedule;
        s.budget.set(s.budget.get().checked_sub(1)?);
        let now = Instant::now();
        if s.mean == 0.0 {
            return (now < s.end).then_some(now);
        }
        let due = s.arrival()?;
        if now >= s.end + GRACE {
            s.unsent.set(s.unsent.get() + 1);
            while s.arrival().is_some() {
                s.unsent.set(s.unsent.get() + 1);
            }
            return None;
        }
        Some(due)
    }

    /// When the requests that count begin: those due before it are warm-up.
    pub fn start(&self) -> Instant {
        self.schedule.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: f64, seconds: f64) -> LoadPlan {
        LoadPlan { rate, duration: Duration::from_secs_f64(seconds), seed: 7, ..LoadPlan::default() }
    }

    #[test]
    fn arrivals_are_poisson() {
        // Mean and variance of the counts per interval agree, and the rate is the one asked for.
        let schedule = Schedule::begin(&plan(10_000.0, 100.0));
        let (mut counts, begin) = (vec![0f64; 10_000], schedule.start);
        while let Some(at) = schedule.arrival() {
            counts[((at - begin).as_secs_f64() * 100.0) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean - 100.0).abs() < 0.5, "mean {mean}");
        assert!((variance / mean - 1.0).abs() < 0.06, "variance {variance} for mean {mean}");
    }

    #[test]
    fn timers_are_finer_than_a_millisecond() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let late = runtime.block_on(async {
            let timer = Timer::new().expect("timer");
            let mut late: Vec<_> = Vec::new();
            for _ in 0..51 {
                let at = Instant::now() + Duration::from_micros(300);
                timer.arm(at).expect("arms");
                std::future::poll_fn(|cx| timer.poll_until(at, cx)).await.expect("waits");
                late.push(at.elapsed());
            }
            late.sort();
            late[25]
        });
        assert!(late < Duration::from_micros(700), "median lateness {late:?}");
    }

    #[test]
    fn a_request_budget_ends_the_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let plan = LoadPlan { requests: 3, ..plan(0.0, 100.0) };
            let mut pace = Pace::new(&Schedule::begin(&plan)).expect("timer");
            let mut sent = 0;
            while pace.due().await.is_some() {
                sent += 1;
            }
            assert_eq!(sent, 3);
        });
    }
}
