//! A lean HTTP/1.1 client: one connection, one request at a time, headers scanned for the length and nothing else.

use crate::arguments::Failure;
use crate::load::{Outcome, Plan};
use crate::pace::{Pace, Schedule};
use crate::report::Tally;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(plan: &Plan) -> Result<Self, Failure> {
        let stream = TcpStream::connect(&plan.address).await?;
        stream.set_nodelay(true)?;
        let mut request =
            format!("POST {} HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n", plan.path, plan.body.len());
        for (name, value) in &plan.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(&plan.body);
        Ok(Self { stream, request, buffer: Vec::with_capacity(64 << 10) })
    }

    /// Sends the request and returns where the body lies in the buffer.
    async fn exchange(&mut self) -> Result<std::ops::Range<usize>, Failure> {
        self.stream.write_all(&self.request).await?;
        self.buffer.clear();
        let mut body = None;
        loop {
            if let Some(range) = &body {
                let range: &std::ops::Range<usize> = range;
                if self.buffer.len() >= range.end {
                    return Ok(range.clone());
                }
                self.buffer.reserve(range.end - self.buffer.len());
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

    fn head(&self, end: usize) -> Result<std::ops::Range<usize>, Failure> {
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
pub async fn once(plan: &Plan) -> Result<Vec<u8>, Failure> {
    let mut c = Connection::open(plan).await?;
    let range = c.exchange().await?;
    Ok(c.buffer[range].to_vec())
}

/// `connections` connections, each with one request at a time.
pub async fn drive(plan: &Rc<Plan>) -> Result<Outcome, Failure> {
    let mut connections = Vec::new();
    for _ in 0..plan.connections * plan.streams {
        connections.push(Connection::open(plan).await?);
    }
    let schedule = Schedule::begin(plan);
    let mut workers = Vec::new();
    for mut connection in connections {
        let plan = plan.clone();
        let mut pace = Pace::new(&schedule)?;
        workers.push(tokio::task::spawn_local(async move {
            let mut tally = Tally::new();
            while let Some(due) = pace.due().await {
                let result = connection.exchange().await;
                match result {
                    Ok(range) if plan.expected.is_empty() || connection.buffer[range.clone()] == plan.expected[..] => {
                        if due >= pace.start() {
                            tally.done(due);
                        }
                    }
                    Ok(_) => tally.failed("an answer differs from the expected one"),
                    Err(e) => {
                        tally.failed(e.to_string());
                        match Connection::open(&plan).await {
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
