//! Closed and open loops over HTTP/1.1 or gRPC.
//!
//! Closed: every stream sends its next request when the last answer came. Open: requests are due at Poisson times whatever the
//! server does, and latency counts from when a request was due, so a stall is seen in full; see `pace`.

use crate::arguments::{Arguments, Failure};
use crate::report::Tally;
use crate::{grpc, http1};
use std::time::{Duration, Instant};

/// What every worker needs to know.
#[derive(Default)]
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
    /// Requests to send over all workers; 0 = as many as there is time for.
    pub requests: u64,
}

/// What the workers of a run found.
pub struct Outcome {
    pub tallies: Vec<Tally>,
    /// When the requests that count began.
    pub start: Instant,
    /// Arrivals of an open loop that were never sent.
    pub unsent: u64,
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
        requests: a.number("requests", 0)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let plan = std::rc::Rc::new(plan);
    let total = local.block_on(&runtime, async {
        if a.optional("once").is_some() {
            // One answer, written to a file: what the script checks, and what later answers are compared with.
            return match a.text("protocol")? {
                "http" => http1::once(&plan).await,
                _ => grpc::once(&plan).await,
            }
            .and_then(|answer| {
                std::fs::write(a.text("once")?, answer)?;
                Ok(None)
            });
        }
        let done = match a.text("protocol")? {
            "http" => http1::drive(&plan).await?,
            "grpc" => grpc::drive(&plan).await?,
            other => return Err(Failure::from(format!("--protocol={other}: http or grpc"))),
        };
        Ok(Some(done))
    })?;
    if let Some(Outcome { tallies, start, unsent }) = total {
        let mut sum = Tally::new();
        tallies.iter().for_each(|t| sum.add(t));
        // What arrived in the time of an open loop does not depend on when the last answer came.
        let open = sum.latency_ns.len() as f64 / plan.duration.as_secs_f64();
        sum.print(plan.duration, if plan.rate > 0.0 { open } else { sum.rate(start) }, unsent);
    }
    Ok(())
}
