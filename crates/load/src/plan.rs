//! The plan of a measurement. Every other module reads it, and it reads none.

use bytes::Bytes;
use serde::Deserialize;
use std::time::Duration;

/// An error for the person who started the measurement.
pub type AnyError = Box<dyn std::error::Error>;

/// A request that was made before the clock runs.
#[derive(Default, Clone)]
pub struct Prepared {
    /// Names and values of its own header fields.
    pub headers: Vec<(String, String)>,
    /// Body; for gRPC the message.
    pub body: Bytes,
    /// Expected end of an answer, when answers are checked.
    pub tail: Bytes,
    /// Where a counter overwrites eight digits of the body, so that all requests differ. HTTP only.
    pub counter_at: Option<usize>,
}

/// The protocol of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

/// The form of the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One response: a body of HTTP, or a unary call.
    #[default]
    Single,
    /// Server-sent events until the end of the body or `data: [DONE]`.
    Events,
    /// Messages of `ModelStreamInfer`: the calls stay open, each with one request at a time.
    Stream,
}

/// Which message of a stream ends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Responses {
    /// The first.
    One,
    /// The one whose parameter `triton_final_response` is true.
    #[default]
    Final,
}

/// When requests are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// When the answer to the last one came.
    #[default]
    Closed,
    /// At equal distances.
    Constant,
    /// At random: a Poisson process.
    Poisson,
}

/// Files of TLS.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Certificates that sign the server's; without them those of the system.
    pub ca: Option<String>,
    /// The client's certificate.
    pub certificate: Option<String>,
    /// The key of that certificate.
    pub key: Option<String>,
    /// Any certificate will do.
    pub insecure: bool,
}

/// The load, as it is read from JSON. A missing member has its default.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// HTTP/1.1 or gRPC.
    pub protocol: Protocol,
    /// `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// `Host` or `:authority`, and the name in the server's certificate; without it that of the address.
    pub host: Option<String>,
    /// Absent: connections are not encrypted.
    pub tls: Option<Tls>,
    /// Method of HTTP.
    pub method: String,
    /// Path of every request.
    pub path: String,
    /// Path of the file with the requests.
    pub requests: String,
    /// The form of an answer.
    pub form: Form,
    /// The message that ends a request of a stream.
    pub responses: Responses,
    /// Connections.
    pub connections: usize,
    /// Requests in flight on each; HTTP/1.1 opens as many connections.
    pub streams: usize,
    /// When requests are due.
    pub arrivals: Arrivals,
    /// Requests per second over all connections, unless the loop is closed.
    pub rate: f64,
    /// Seed of the random arrivals.
    pub seed: u64,
    /// Requests of the first seconds are not counted.
    pub warmup_s: f64,
    /// How long requests are counted.
    pub seconds: f64,
    /// Requests that count over all connections, besides those of the warm-up; 0 = as many as there is time for.
    pub requests_max: u64,
    /// Seconds between lines of progress; 0 = none.
    pub progress_s: f64,
    /// The result lists the latencies of the first requests, `report::SAMPLES_MAX` of them.
    pub samples: bool,
    /// Seconds from the moment a request is sent to its last response, and for a connection.
    pub timeout_s: f64,
    /// Bytes of the longest answer that is read to its end.
    pub response_bytes_max: u64,
    /// Sent in turn by every connection, each beginning elsewhere. Never empty.
    #[serde(skip)]
    pub ring: Vec<Prepared>,
    /// Answers are compared with this one; empty = they are not.
    #[serde(skip)]
    pub expected: Bytes,
    /// The end of each answer is compared with the `tail` of its request.
    #[serde(skip)]
    pub verify: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            protocol: Protocol::Http,
            address: String::new(),
            host: None,
            tls: None,
            method: "POST".into(),
            path: "/".into(),
            requests: String::new(),
            form: Form::Single,
            responses: Responses::Final,
            connections: 1,
            streams: 1,
            arrivals: Arrivals::Closed,
            rate: 0.0,
            seed: 1,
            warmup_s: 0.0,
            seconds: 2.0,
            requests_max: 0,
            progress_s: 0.0,
            samples: false,
            timeout_s: 30.0,
            response_bytes_max: 1 << 30,
            ring: Vec::new(),
            expected: Bytes::new(),
            verify: false,
        }
    }
}

/// Most requests in flight over all connections.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// Longest time in a plan, in seconds: a month.
const SECONDS_MAX: f64 = 31.0 * 86_400.0;

impl Plan {
    /// Reads a plan and the file of its requests.
    pub fn read(text: &str) -> Result<Self, AnyError> {
        let mut plan: Self = serde_json::from_str(text).map_err(|e| format!("the plan: {e}"))?;
        let file = std::fs::read(&plan.requests)
            .map_err(|e| format!("the plan names the file of requests \"{}\": {e}", plan.requests))?;
        plan.ring = read_ring(file.into()).map_err(|e| format!("{}: {e}", plan.requests))?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), AnyError> {
        for (name, value, zero) in [
            ("warmup_s", self.warmup_s, true),
            ("seconds", self.seconds, false),
            ("progress_s", self.progress_s, true),
            ("timeout_s", self.timeout_s, false),
        ] {
            if !(value > 0.0 || zero && value == 0.0) || value > SECONDS_MAX {
                return Err(format!("{name} is {value}: give seconds, at most {SECONDS_MAX}").into());
            }
        }
        if self.arrivals != Arrivals::Closed && !(self.rate > 0.0 && self.rate <= 1e9) {
            return Err(format!("rate is {}: arrivals that are not closed need requests per second", self.rate).into());
        }
        let in_flight = self.connections.saturating_mul(self.streams);
        if !(1..=IN_FLIGHT_MAX).contains(&in_flight) {
            let (connections, streams) = (self.connections, self.streams);
            return Err(format!(
                "connections × streams is {connections} × {streams}: give 1 to {IN_FLIGHT_MAX} in all"
            )
            .into());
        }
        match (self.protocol, self.form) {
            (Protocol::Grpc, Form::Events) => Err("form events is of HTTP: over gRPC give stream".into()),
            (Protocol::Http, Form::Stream) => Err("form stream is of gRPC: over HTTP give events".into()),
            _ => Ok(()),
        }
    }

    /// `Host` or `:authority`.
    pub fn host(&self) -> &str {
        match &self.host {
            Some(host) => host,
            None if self.address.starts_with("unix:") => "localhost",
            None => &self.address,
        }
    }

    /// Time from sending a request to its last response.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_s)
    }

    /// Whether bodies of answers are compared.
    pub fn compares(&self) -> bool {
        self.verify || !self.expected.is_empty()
    }

    /// Whether an answer to this request of the ring is what it must be, as far as that is asked for.
    pub fn accepts(&self, entry: usize, answer: &[u8]) -> bool {
        (self.expected.is_empty() || answer == &self.expected[..])
            && (!self.verify || answer.ends_with(&self.ring[entry].tail))
    }
}

/// Header fields: `name: value;…`, or `[["name","value"],…]`, whose values may have semicolons.
pub fn headers(text: &str) -> Result<Vec<(String, String)>, AnyError> {
    let text = text.trim();
    let fields: Vec<(String, String)> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|e| format!("header fields {text}: {e}"))?
    } else {
        let fields = text.split(';').filter_map(|h| h.split_once(':'));
        fields.map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())).collect()
    };
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    let is_value = |value: &str| !value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f);
    match fields.iter().find(|(name, value)| !is_name(name) || !is_value(value)) {
        Some((name, _)) => Err(format!("\"{}\" is not a valid header field", name.escape_debug()).into()),
        None => Ok(fields),
    }
}

/// Reads a file of requests, each with a line `<body bytes> <tail bytes> <counter or -> <headers>`, a body and a tail.
pub fn read_ring(mut file: Bytes) -> Result<Vec<Prepared>, AnyError> {
    let mut ring = Vec::new();
    while !file.is_empty() {
        let end = file.iter().position(|&b| b == b'\n').ok_or("a request without a line")?;
        let line = String::from_utf8(file.split_to(end + 1).to_vec())?;
        let mut words = line.trim_end().splitn(4, ' ');
        let mut word = || words.next().ok_or("a line with too few words");
        let (body, tail, counter): (usize, usize, Option<usize>) =
            (word()?.parse()?, word()?.parse()?, word()?.parse().ok());
        let headers = headers(word().unwrap_or_default())?;
        if body.checked_add(tail).is_none_or(|bytes| file.len() < bytes) {
            return Err("a request is cut off".into());
        }
        if counter.is_some_and(|at| at.checked_add(8).is_none_or(|end| end > body)) {
            return Err("a counter is outside of its body".into());
        }
        ring.push(Prepared { headers, body: file.split_to(body), tail: file.split_to(tail), counter_at: counter });
    }
    if ring.is_empty() { Err("no request in the file".into()) } else { Ok(ring) }
}
