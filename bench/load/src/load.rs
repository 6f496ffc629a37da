//! Closed and open loops over HTTP/1.1 or gRPC.
//!
//! Closed: every stream sends its next request when the last answer came. Open: requests are due at Poisson times
//! whatever the server does, and latency counts from when a request was due, so a stall is seen in full; see `pace`.

use crate::arguments::{Arguments, Failure};
use crate::report::Tally;
use crate::{grpc, http1, tls};
use std::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

/// A request that was made before the clock runs.
#[derive(Default, Clone)]
pub struct Prepared {
    pub headers: Vec<(String, String)>,
    pub body: bytes::Bytes,
    /// Expected end of an answer, when answers are checked.
    pub tail: bytes::Bytes,
    /// Where a counter overwrites eight digits of the body, so that all requests differ. HTTP only.
    pub counter_at: Option<usize>,
}

/// The load, for all workers.
#[derive(Default)]
pub struct LoadPlan {
    pub address: String,
    /// Method of HTTP; empty = POST.
    pub method: String,
    pub path: String,
    /// Sent in turn by every connection, each beginning elsewhere. Never empty.
    pub ring: Vec<Prepared>,
    /// Answers are compared with this one; empty = they are not.
    pub expected: bytes::Bytes,
    /// The end of each answer is compared with the `tail` of its request.
    pub verify: bool,
    pub connections: usize,
    pub streams: usize,
    pub warmup: Duration,
    pub duration: Duration,
    /// Requests per second over all workers; 0 = closed loop.
    pub rate: f64,
    pub seed: u64,
    /// Requests to send over all workers; 0 = as many as there is time for.
    pub requests: u64,
    /// `None` = connections are plain.
    pub tls: Option<TlsConnector>,
}

impl LoadPlan {
    /// Whether an answer to this request of the ring is what it must be, as far as that is asked for.
    pub fn accepts(&self, entry: usize, answer: &[u8]) -> bool {
        (self.expected.is_empty() || answer == &self.expected[..])
            && (!self.verify || answer.ends_with(&self.ring[entry].tail))
    }
}

/// Results of the workers of a run.
pub struct Outcome {
    pub tallies: Vec<Tally>,
    /// When the requests that count began.
    pub start: Instant,
    /// Arrivals of an open loop that were never sent.
    pub unsent: u64,
}

fn headers(text: &str) -> Vec<(String, String)> {
    let fields = text.split(';').filter_map(|h| h.split_once(':'));
    fields.map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())).collect()
}

/// Reads a file of requests, each with a line `<body bytes> <tail bytes> <counter or -> <headers>`, a body and a tail.
fn read_ring(mut file: bytes::Bytes) -> Result<Vec<Prepared>, Failure> {
    let mut ring = Vec::new();
    while !file.is_empty() {
        let end = file.iter().position(|&b| b == b'\n').ok_or("a request without a line")?;
        let line = String::from_utf8(file.split_to(end + 1).to_vec())?;
        let mut words = line.trim_end().splitn(4, ' ');
        let mut word = || words.next().ok_or("a line with too few words");
        let (body, tail, counter) = (word()?.parse()?, word()?.parse()?, word()?.parse().ok());
        let headers = headers(word().unwrap_or_default());
        if file.len() < body + tail {
            return Err("a request is cut off".into());
        }
        ring.push(Prepared { headers, body: file.split_to(body), tail: file.split_to(tail), counter_at: counter });
    }
    if ring.is_empty() { Err("no request in the file".into()) } else { Ok(ring) }
}

pub fn run(a: &Arguments) -> Result<(), Failure> {
    let ring = match a.optional("ring") {
        Some(_) => read_ring(a.file("ring")?)?,
        None => {
            let headers = headers(a.optional("headers").unwrap_or(""));
            vec![Prepared { headers, body: a.file("body")?, ..Prepared::default() }]
        }
    };
    let plan = LoadPlan {
        address: a.text("address")?.to_owned(),
        method: a.optional("method").unwrap_or_default().to_owned(),
        path: a.text("path")?.to_owned(),
        ring,
        verify: a.optional("verify").is_some(),
        expected: if a.optional("expect").is_some() { a.file("expect")? } else { bytes::Bytes::new() },
        connections: a.number("connections", 1)?,
        streams: a.number("streams", 1)?,
        warmup: Duration::from_secs_f64(a.number("warmup", 0.3)?),
        duration: Duration::from_secs_f64(a.number("duration", 2.0)?),
        rate: a.number("rate", 0.0)?,
        seed: a.number("seed", 1)?,
        requests: a.number("requests", 0)?,
        tls: tls::connector(a)?,
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
        // The rate of an open loop does not depend on when the last answer came.
        let open = sum.latency_ns.len() as f64 / plan.duration.as_secs_f64();
        sum.print(plan.duration, if plan.rate > 0.0 { open } else { sum.rate(start) }, unsent);
    }
    Ok(())
}
