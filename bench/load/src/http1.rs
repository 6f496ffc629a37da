//! A lean HTTP/1.1 client: one connection, one request at a time, headers scanned for the length and nothing else.

use crate::arguments::Failure;
use crate::load::{LoadPlan, Outcome, Prepared};
use crate::pace::{Pace, Schedule};
use crate::report::Tally;
use crate::tls::Stream;
use bytes::Buf;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Connections begin this far apart in the ring: what one sends is not what its neighbour just sent.
pub const STRIDE: usize = 37;
/// Bytes of the longest request that is copied to get its counter: of a longer one only the front is. A copy of 16 MiB
/// costs the client as much as the server's whole work, and its memory pushes the server's out of a shared cache.
const COPIED_BYTES_MAX: usize = 64 << 10;
/// Bytes per read of an answer that nobody looks at: it is not kept, as little as that of a gRPC call is.
const DISCARDED_BYTES: usize = 64 << 10;

/// A request as it goes out.
struct Wire {
    bytes: Vec<u8>,
    /// Where its counter stands.
    counter_at: Option<usize>,
}

/// Every request of a plan, made once for all connections.
fn wires(plan: &LoadPlan) -> Rc<[Wire]> {
    let wire = |request: &Prepared| {
        let method = if plan.method.is_empty() { "POST" } else { &plan.method };
        let (path, length) = (&plan.path, request.body.len());
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n");
        for (name, value) in &request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let counter_at = request.counter_at.map(|at| head.len() + at);
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&request.body);
        Wire { bytes, counter_at }
    };
    plan.ring.iter().map(wire).collect()
}

struct Connection {
    stream: Stream,
    requests: Rc<[Wire]>,
    /// Which of them is next.
    next: usize,
    /// Where a request gets its counter.
    request: Vec<u8>,
    count: Rc<Cell<u32>>,
    buffer: Vec<u8>,
    /// Whether answers are looked at.
    keep: bool,
}

impl Connection {
    async fn open(plan: &LoadPlan, requests: Rc<[Wire]>, next: usize, count: Rc<Cell<u32>>) -> Result<Self, Failure> {
        let stream = Stream::connect(&plan.address, plan.tls.as_ref()).await?;
        let next = next % requests.len();
        let keep = plan.verify || !plan.expected.is_empty();
        let buffer = Vec::with_capacity(DISCARDED_BYTES);
        Ok(Self { stream, requests, next, request: Vec::new(), count, buffer, keep })
    }

    /// Sends the next request and returns where the body of its answer lies in the buffer, if it is kept.
    async fn exchange(&mut self) -> Result<Range<usize>, Failure> {
        let wire = &self.requests[self.next];
        self.next = (self.next + 1) % self.requests.len();
        match wire.counter_at {
            None => self.stream.write_all(&wire.bytes).await?,
            Some(at) => {
                let copied = if wire.bytes.len() > COPIED_BYTES_MAX { at + 8 } else { wire.bytes.len() };
                let (front, rest) = wire.bytes.split_at(copied);
                self.request.clear();
                self.request.extend_from_slice(front);
                let mut left = self.count.get();
                self.count.set(left.wrapping_add(1));
                for digit in self.request[at..at + 8].iter_mut().rev() {
                    *digit = b"0123456789abcdef"[(left & 15) as usize];
                    left >>= 4;
                }
                self.stream.write_all_buf(&mut Buf::chain(&self.request[..], rest)).await?;
            }
        }
        // Plain ones have nothing to flush; TLS keeps what the socket did not take.
        self.stream.flush().await?;
        self.buffer.clear();
        let (mut body, mut discarded): (Option<Range<usize>>, _) = (None, 0);
        loop {
            if let Some(range) = &body {
                if discarded + self.buffer.len() >= range.end {
                    return Ok(if self.keep { range.clone() } else { 0..0 });
                }
                if self.keep {
                    self.buffer.reserve(range.end - self.buffer.len());
                } else if self.buffer.len() == self.buffer.capacity() {
                    discarded += self.buffer.len();
                    self.buffer.clear();
                }
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            if body.is_none()
                && let Some(end) = find(&self.buffer, b"\r\n\r\n")
            {
                body = Some(self.head(end + 4)?);
            }
        }
    }

    fn head(&self, end: usize) -> Result<Range<usize>, Failure> {
        let head = std::str::from_utf8(&self.buffer[..end])?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(head.lines().next().unwrap_or("no status").to_owned().into());
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        Ok(end..end + length.ok_or("an answer without Content-Length")?)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// One exchange; the body of the answer.
pub async fn once(plan: &LoadPlan) -> Result<Vec<u8>, Failure> {
    let mut c = Connection { keep: true, ..Connection::open(plan, wires(plan), 0, Rc::default()).await? };
    let range = c.exchange().await?;
    Ok(c.buffer[range].to_vec())
}

/// `connections` connections, each with one request at a time.
pub async fn drive(plan: &Rc<LoadPlan>) -> Result<Outcome, Failure> {
    let mut connections = Vec::new();
    let (requests, count) = (wires(plan), Rc::new(Cell::new(0)));
    for i in 0..plan.connections * plan.streams {
        connections.push(Connection::open(plan, requests.clone(), i * STRIDE, count.clone()).await?);
    }
    let schedule = Schedule::begin(plan);
    let mut workers = Vec::new();
    for mut connection in connections {
        let plan = plan.clone();
        let mut pace = Pace::new(&schedule)?;
        workers.push(tokio::task::spawn_local(async move {
            let mut tally = Tally::new();
            while let Some(due) = pace.due().await {
                let entry = connection.next;
                let result = connection.exchange().await;
                match result {
                    Ok(range) if plan.accepts(entry, &connection.buffer[range.clone()]) => {
                        if due >= pace.start() {
                            tally.done(due);
                        }
                    }
                    Ok(_) => tally.failed("an answer differs from the expected one"),
                    Err(e) => {
                        tally.failed(e.to_string());
                        match Connection::open(&plan, connection.requests.clone(), entry, connection.count.clone())
                            .await
                        {
                            Ok(c) => connection = c,
                            Err(_) => break,
                        }
                    }
                }
            }
            tally
        }));
    }
    let mut tallies = Vec::new();
    for w in workers {
        tallies.push(w.await?);
    }
    Ok(Outcome { tallies, start: schedule.start(), unsent: schedule.unsent() })
}
