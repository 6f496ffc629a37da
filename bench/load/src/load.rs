//! Closed and open loops over HTTP/1.1 or gRPC.
//!
//! Closed: every stream sends its next request when the last answer came. Open: requests are due at Poisson times whatever the
//! server does, and latency counts from when a request was due, so a stall is seen in full.

use crate::arguments::{Arguments, Failure};
use crate::report::Tally;
use crate::{grpc, http1};
use std::time::{Duration, Instant};

/// What every worker needs to know.
pub struct Plan {
    pub address: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: bytes::Bytes,
    /// Answers are compared with this one; empty = only the status is looked at.
    pub expected: bytes::Bytes,
    pub connections: usize,
    pub streams: usize,
    pub warmup: Duration,
    pub duration: Duration,
    /// Requests per second over all workers; 0 = closed loop.
    pub rate: f64,
    pub seed: u64,
}

/// When a worker's requests are due, and which of them count.
pub struct Pace {
    next: Instant,
    start: Instant,
    end: Instant,
    mean: f64,
    random: u64,
}

impl Pace {
    pub fn new(plan: &Plan, begin: Instant, worker: usize) -> Self {
        let workers = (plan.connections * plan.streams) as f64;
        let start = begin + plan.warmup;
        Self {
            next: begin,
            start,
            end: start + plan.duration,
            mean: if plan.rate > 0.0 { workers / plan.rate } else { 0.0 },
            random: plan.seed.wrapping_add(worker as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    /// Waits until the next request is due. Its time, or `None` when the run is over.
    pub async fn due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if now >= self.end {
            return None;
        }
        if self.mean == 0.0 {
            return Some(now);
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = ((self.random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        self.next += Duration::from_secs_f64(-uniform.ln() * self.mean);
        if self.next >= self.end {
            return None;
        }
        if self.next > now {
            tokio::time::sleep_until(self.next.into()).await;
        }
        Some(self.next)
    }

    /// Warm-up requests do not count.
    pub fn counts(&self, due: Instant) -> bool {
        due >= self.start
    }
}

pub fn run(a: &Arguments) -> Result<(), Failure> {
    let headers = a.optional("headers").unwrap_or("").split(';').filter_map(|h| h.split_once(':'));
    let plan = Plan {
        address: a.text("address")?.to_owned(),
        path: a.text("path")?.to_owned(),
        headers: headers.map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())).collect(),
        body: a.file("body")?,
        expected: if a.optional("expect").is_some() { a.file("expect")? } else { bytes::Bytes::new() },
        connections: a.number("connections", 1)?,
        streams: a.number("streams", 1)?,
        warmup: Duration::from_secs_f64(a.number("warmup", 0.3)?),
        duration: Duration::from_secs_f64(a.number("duration", 2.0)?),
        rate: a.number("rate", 0.0)?,
        seed: a.number("seed", 1)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let plan = std::rc::Rc::new(plan);
    let total = local.block_on(&runtime, async {
        if a.optional("once").is_some() {
            // A separate pass, so that comparing answers costs nothing while the clock runs.
            return match a.text("protocol")? {
                "http" => http1::once(&plan).await,
                _ => grpc::once(&plan).await,
            }
            .map(|answer| {
                crate::check::print(&answer);
                None
            });
        }
        let begin = Instant::now();
        let tallies = match a.text("protocol")? {
            "http" => http1::drive(&plan, begin).await?,
            "grpc" => grpc::drive(&plan, begin).await?,
            other => return Err(Failure::from(format!("--protocol={other}: http or grpc"))),
        };
        Ok(Some(tallies))
    })?;
    if let Some(total) = total {
        let mut sum = Tally::new();
        total.iter().for_each(|t| sum.add(t));
        sum.print(plan.duration.as_secs_f64());
    }
    Ok(())
}
