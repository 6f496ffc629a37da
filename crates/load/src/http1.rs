//! A lean HTTP/1.1 client: one connection, one request at a time.

use crate::body::{Body, HEAD_BYTES_MAX, Head};
use crate::events::{Events, StreamEvent};
use crate::pace::{Measurement, Pace, Watch};
use crate::plan::{AnyError, Form, Plan, Prepared};
use crate::tls::{Connector, Stream};
use bytes::Buf;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Connections begin this far apart in the ring: what one sends is not what its neighbour just sent.
pub const STRIDE: usize = 37;
/// Bytes of the longest request that is copied to get its counter: of a longer one only the front is. A copy of 16 MiB
/// costs the client as much as the server's whole work, and its memory pushes the server's out of a shared cache.
const COPIED_BYTES_MAX: usize = 64 << 10;
/// Bytes per read of an answer; also the longest head.
const READ_BYTES: usize = HEAD_BYTES_MAX;
/// Bytes of an answer other than 200 that are read for its text.
const FAILURE_BYTES_MAX: usize = 4 << 10;
/// How long the end of a body may come behind `[DONE]`.
const BODY_END: Duration = Duration::from_millis(100);
/// Pause before a connection that could not be opened is tried again.
pub const PAUSE: Duration = Duration::from_millis(50);

/// A request as it goes out.
pub struct Wire {
    bytes: Vec<u8>,
    /// Where its counter stands.
    counter_at: Option<usize>,
}

/// Every request of a plan, made once for all connections.
pub fn wires(plan: &Plan) -> Rc<[Wire]> {
    let wire = |request: &Prepared| {
        let (method, host, path, length) = (&plan.method, plan.host(), &plan.path, request.body.len());
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n");
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

/// A connection, which is opened anew whenever that is needed.
pub struct HttpClient {
    connector: Rc<Connector>,
    stream: Option<Stream>,
    /// The connection has answered before, so that the server may close it at any time.
    is_used: bool,
    requests: Rc<[Wire]>,
    /// Which of them is next.
    next: usize,
    /// Where a request gets its counter.
    request: Vec<u8>,
    count: Rc<Cell<u32>>,
    buffer: Vec<u8>,
    /// Body of the last answer, as far as somebody looks at it.
    answer: Vec<u8>,
    /// Whether answers are looked at.
    keeps: bool,
    form: Form,
    response_bytes_max: u64,
    /// When the last response of the last request came.
    ended: Instant,
}

/// How the server answered a request.
enum Received {
    Success,
    /// With something else, which is no reason to end the connection.
    Failure(String),
    /// There was no answer: it closed the connection, which may have been idle.
    Closed,
}

/// Responses of one request of several.
struct Answered<'a> {
    each: &'a mut dyn FnMut(),
    failure: Option<String>,
    /// When `[DONE]` came.
    done: Option<Instant>,
}

impl Answered<'_> {
    fn answer(self) -> Received {
        self.failure.map_or(Received::Success, Received::Failure)
    }

    fn event(&mut self, event: StreamEvent<'_>) {
        match event {
            _ if self.done.is_some() => {}
            StreamEvent::Data => (self.each)(),
            StreamEvent::Error(text) => self.failure = Some(text.to_owned()),
            StreamEvent::Done => self.done = Some(Instant::now()),
        }
    }
}

impl HttpClient {
    /// Opens a connection whose first request is that at `next`.
    pub async fn open(
        plan: &Plan,
        connector: &Rc<Connector>,
        requests: &Rc<[Wire]>,
        next: usize,
        count: &Rc<Cell<u32>>,
    ) -> Result<Self, AnyError> {
        Ok(Self {
            stream: Some(connector.connect().await?),
            is_used: false,
            connector: connector.clone(),
            next: next % requests.len(),
            requests: requests.clone(),
            request: Vec::new(),
            count: count.clone(),
            buffer: vec![0; READ_BYTES],
            answer: Vec::new(),
            keeps: plan.compares(),
            form: plan.form,
            response_bytes_max: plan.response_bytes_max,
            ended: Instant::now(),
        })
    }

    /// Sends the next request, and reads its answer. `each` is called for each of several responses.
    async fn exchange(&mut self, each: &mut dyn FnMut()) -> Result<Result<(), String>, AnyError> {
        let entry = self.next;
        self.next = (self.next + 1) % self.requests.len();
        loop {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => {
                    self.is_used = false;
                    self.connector.connect().await?
                }
            };
            // Dropped on an error, also that of a limit: what is on its way belongs to no later request.
            let written = self.send(&mut stream, entry).await;
            let (answer, stays) = match self.receive(&mut stream, each).await {
                Ok((Received::Closed, _)) => match written {
                    // As clients do: the server closed an idle connection while the request was on its way.
                    _ if std::mem::take(&mut self.is_used) => continue,
                    Err(e) => return Err(e.into()),
                    Ok(()) => return Err("the server closed the connection without a response".into()),
                },
                // The server may answer before it has the whole request, and close.
                received => received?,
            };
            if stays && written.is_ok() {
                (self.stream, self.is_used) = (Some(stream), true);
            }
            return Ok(if let Received::Failure(text) = answer { Err(text) } else { Ok(()) });
        }
    }

    async fn send(&mut self, stream: &mut Stream, entry: usize) -> std::io::Result<()> {
        let wire = &self.requests[entry];
        match wire.counter_at {
            None => stream.write_all(&wire.bytes).await?,
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
                stream.write_all_buf(&mut Buf::chain(&self.request[..], rest)).await?;
            }
        }
        // Plain ones have nothing to flush; TLS keeps what the socket did not take.
        stream.flush().await
    }

    /// Reads an answer, and says whether the connection takes another request.
    async fn receive(&mut self, stream: &mut Stream, each: &mut dyn FnMut()) -> Result<(Received, bool), AnyError> {
        self.answer.clear();
        let (mut filled, mut body_bytes) = (0, 0u64);
        let mut head: Option<Head> = None;
        let mut events = Events::default();
        let mut answered = Answered { each, failure: None, done: None };
        loop {
            let reading = stream.read(&mut self.buffer[filled..]);
            let read = match answered.done {
                None => reading.await,
                // Nothing of interest follows; if the body does not end, the connection takes no other request.
                Some(_) => match tokio::time::timeout(BODY_END, reading).await {
                    Ok(read) => read,
                    Err(_) => {
                        self.ended = answered.done.unwrap_or_else(Instant::now);
                        return Ok((answered.answer(), false));
                    }
                },
            };
            let read = match read {
                Ok(n) => n,
                Err(_) if head.is_none() && filled == 0 => 0,
                Err(e) => return Err(e.into()),
            };
            match &head {
                _ if read > 0 => {}
                None if filled == 0 => return Ok((Received::Closed, false)),
                Some(Head { body: Body::UntilClosed, .. }) => break,
                _ => return Err("the server closed the connection inside a response".into()),
            }
            filled += read;
            let mut from = 0;
            if head.is_none() {
                head = Head::read(&self.buffer[..filled])?;
                from = head.as_ref().map_or(0, |head| head.bytes);
            }
            let Some(head) = &mut head else { continue };
            let is_success = head.status == 200;
            let keeps = if is_success { if self.keeps { usize::MAX } else { 0 } } else { FAILURE_BYTES_MAX };
            let mut failure = Ok(());
            let taken = head.body.take(&self.buffer[from..filled], |part| {
                body_bytes += part.len() as u64;
                let room = keeps.saturating_sub(self.answer.len()).min(part.len());
                self.answer.extend_from_slice(&part[..room]);
                if is_success && self.form == Form::Events && failure.is_ok() {
                    failure = events.take(part, |event| answered.event(event));
                }
            })?;
            failure?;
            if body_bytes > self.response_bytes_max {
                return Err(format!("a response of more than {} bytes", self.response_bytes_max).into());
            }
            if head.body.is_over() {
                match filled - from - taken {
                    0 => break,
                    more => return Err(format!("{more} bytes after a response").into()),
                }
            }
            filled = 0;
        }
        let Some(head) = head else { return Ok((Received::Closed, false)) };
        self.ended = answered.done.unwrap_or_else(Instant::now);
        let answer = match head.status {
            200 => answered.answer(),
            _ => Received::Failure(failure_text(&head, &self.answer)),
        };
        Ok((answer, !head.closes))
    }
}

/// The status of an answer, with the text in `{"error": …}`, or the beginning of another body.
fn failure_text(head: &Head, body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let error = json.as_ref().and_then(|json| json.get("error"));
    // OpenAI's API has an object here.
    let error = error.and_then(|e| e.as_str().or_else(|| e.get("message")?.as_str()));
    let text = error.map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), str::to_owned);
    format!("{} {}", head.status, if text.is_empty() { &head.reason } else { &text })
}

/// One exchange; the body of the answer.
pub async fn once(plan: &Plan, connector: &Rc<Connector>) -> Result<Vec<u8>, AnyError> {
    let mut connection = HttpClient::open(plan, connector, &wires(plan), 0, &Rc::default()).await?;
    connection.keeps = true;
    let answered = Watch::new(plan.timeout()).limit(connection.exchange(&mut || {})).await;
    answered.ok_or_else(|| timed_out(plan))???;
    Ok(connection.answer)
}

/// The text of a request without a response in time.
pub fn timed_out(plan: &Plan) -> String {
    format!("no response within {} s", plan.timeout_s)
}

/// Sends requests, one after the other, until the run is over.
pub async fn work(run: Rc<Measurement>, mut connection: HttpClient, mut pace: Pace) {
    let mut watch = Watch::new(run.plan.timeout());
    while let Some(due) = pace.due().await {
        let entry = connection.next;
        run.sent(due);
        let mut last = None;
        let mut each = || {
            let now = Instant::now();
            run.count(due, |tally| tally.response(due, last, now));
            last = Some(now);
        };
        match watch.limit(connection.exchange(&mut each)).await {
            Some(Ok(Ok(()))) if run.plan.accepts(entry, &connection.answer) => run.done(due, connection.ended),
            Some(Ok(Ok(()))) => run.failed(due, "a response differs from the expected one"),
            Some(Ok(Err(text))) => run.failed(due, &text),
            Some(Err(e)) => {
                run.failed(due, &e.to_string());
                if connection.stream.is_none() && !connection.is_used && run.goes_on() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            None => run.failed(due, &timed_out(&run.plan)),
        }
    }
}
