//! A lean gRPC client: unary calls with a ready-made message, `connections` × `streams`.
//!
//! Client and server share the cores of the machine that measures, so what the client costs dilutes every ratio of two
//! servers. Hence one task per connection, nothing allocated per call, and one write for all calls that one read made
//! room for. On the wire it does what clients do: header fields go into the server's table with the first call and are
//! a byte each from then on.

use crate::arguments::Failure;
use crate::http1::STRIDE;
use crate::load::{LoadPlan, Outcome, Prepared};
use crate::pace::{Pace, Schedule};
use crate::report::Tally;
use crate::tls::Stream;
use bytes::{BufMut, Bytes, BytesMut};
use http2::parts::{
    Decoder, Encoder, FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, OutputBuffer, PREFACE, WINDOW_DEFAULT, flag, kind,
    number31, setting,
};
use http2::{Field, Reason};
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// No answer ever waits for a window update of ours: what there is at most, given back by the half.
const WINDOW: u32 = i32::MAX as u32;
/// Largest frame we take; large answers come in few pieces.
const FRAME_BYTES: u32 = 1 << 20;
/// One read. Payloads of answers are taken as they come; every other frame has to fit.
const INPUT_BYTES: usize = 64 << 10;
/// A server that fails is told from one that is slow after so many.
const ERRORS_MAX: u64 = 1000;
/// Parts of a write: head and payload of a frame. The server reads a large message while the rest of it is written.
const SLICES: usize = 2;

/// A request as it goes out.
struct Wire {
    /// Message with its five-byte prefix.
    message: Bytes,
    /// Header fields of its own, encoded so that they mean the same at any time.
    fields: Vec<u8>,
}

/// Every request of a plan, made once for all connections.
fn wires(plan: &LoadPlan) -> Rc<[Wire]> {
    // A plan with one request keeps all its fields in the server's table, as clients do with repeated fields.
    let own = |request: &Prepared| if plan.ring.len() == 1 { Vec::new() } else { literals(&request.headers) };
    plan.ring.iter().map(|request| Wire { message: framed(&request.body), fields: own(request) }).collect()
}

/// Fields as literals that enter no table. Names and values are shorter than 127 bytes.
pub fn literals(headers: &[(impl AsRef<str>, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in headers {
        out.push(0);
        for text in [&name.as_ref().to_ascii_lowercase(), value] {
            out.push(u8::try_from(text.len()).unwrap_or(0).min(126));
            out.extend_from_slice(&text.as_bytes()[..text.len().min(126)]);
        }
    }
    out
}

/// A call that was sent, or is being sent.
struct Call {
    stream: u32,
    /// Which request of the ring.
    entry: usize,
    due: Instant,
    /// Part of the message that waits for windows.
    unsent: Bytes,
    /// Bytes that the server lets us send on this stream.
    window: i64,
    /// Body of the answer, where somebody wants to see it.
    answer: Vec<u8>,
    /// Empty for success, or what the server said instead.
    status: Option<String>,
}

/// A call that is over.
struct Ended {
    due: Instant,
    entry: usize,
    outcome: Result<Vec<u8>, Failure>,
}

/// A payload that has not come whole, or a header block in several frames.
#[derive(Default)]
struct Partial {
    data_bytes: usize,
    data_stream: u32,
    data_ends: bool,
    block: Vec<u8>,
    block_ends: bool,
}

struct Connection {
    stream: Stream,
    requests: Rc<[Wire]>,
    /// Which of them is next.
    next: usize,
    /// Fields of a request, all in the encoder's list.
    fields: u8,
    keep: bool,
    input: Vec<u8>,
    /// Bytes of `input` that hold something.
    filled: usize,
    output: OutputBuffer,
    decoder: Decoder,
    encoder: Encoder,
    partial: Partial,
    calls: Vec<Call>,
    next_stream: u32,
    /// The server's first settings came.
    ready: bool,
    streams_max: usize,
    frame_max: usize,
    window: i64,
    window_of_new: i64,
    /// Bytes that were received and not given back to the connection's window.
    received: u32,
    /// Others had their turn before this one writes.
    yielded: bool,
}

/// A message with its five-byte prefix, not compressed.
pub fn framed(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(message);
    frame.freeze()
}

impl Connection {
    async fn open(plan: &LoadPlan, requests: Rc<[Wire]>, next: usize) -> Result<Self, Failure> {
        let stream = Stream::connect(&plan.address, plan.tls.as_ref()).await?;
        let mut fields: Vec<(&str, &str)> = [(":method", "POST"), (":scheme", "http"), (":path", &plan.path)].into();
        fields.extend([(":authority", "bench"), ("te", "trailers"), ("content-type", "application/grpc")]);
        if let [request] = &plan.ring[..] {
            fields.extend(request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        let fields: Vec<(&'static str, &'static str)> =
            fields.iter().map(|(n, v)| (&*n.to_ascii_lowercase().leak(), &*(*v).to_owned().leak())).collect();
        let count = u8::try_from(fields.len())?;
        let mut this = Self {
            stream,
            next: next % requests.len(),
            requests,
            fields: count,
            keep: !plan.expected.is_empty() || plan.verify,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            output: OutputBuffer::default(),
            decoder: Decoder::new(),
            // For the life of a process that measures once.
            encoder: Encoder::new(fields.leak()),
            partial: Partial::default(),
            calls: Vec::with_capacity(plan.streams),
            next_stream: 1,
            ready: false,
            streams_max: plan.streams,
            frame_max: FRAME_BYTES_MIN as usize,
            window: WINDOW_DEFAULT.into(),
            window_of_new: WINDOW_DEFAULT.into(),
            received: 0,
            yielded: false,
        };
        this.output.tail().extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        let mine =
            [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, WINDOW), (setting::MAX_FRAME_SIZE, FRAME_BYTES)];
        for (name, value) in mine {
            settings.put_u16(name);
            settings.put_u32(value);
        }
        this.send(kind::SETTINGS, 0, 0, &settings);
        this.send(kind::WINDOW_UPDATE, 0, 0, &(WINDOW - WINDOW_DEFAULT).to_be_bytes());
        Ok(this)
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let out = self.output.tail();
        out.extend_from_slice(&FrameHead { length: payload.len(), kind, flags, stream }.bytes());
        out.extend_from_slice(payload);
    }

    fn has_room(&self) -> bool {
        self.ready && self.calls.len() < self.streams_max
    }

    fn start(&mut self, due: Instant) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let out = self.output.tail();
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin(out);
        for i in 0..self.fields {
            self.encoder.field(out, Field::Fixed(i));
        }
        let entry = self.next;
        self.next = (self.next + 1) % self.requests.len();
        out.extend_from_slice(&self.requests[entry].fields);
        let length = out.len() - at - HEAD_BYTES;
        let head = FrameHead { length, kind: kind::HEADERS, flags: flag::END_HEADERS, stream };
        out[at..at + HEAD_BYTES].copy_from_slice(&head.bytes());
        self.calls.push(Call {
            stream,
            entry,
            due,
            unsent: self.requests[entry].message.clone(),
            window: self.window_of_new,
            answer: Vec::new(),
            status: None,
        });
        self.send_bodies();
    }

    /// Sends what the windows allow.
    fn send_bodies(&mut self) {
        for call in &mut self.calls {
            while !call.unsent.is_empty() {
                let allowed = self.window.min(call.window).min(self.frame_max as i64).max(0) as usize;
                let n = call.unsent.len().min(allowed);
                if n == 0 {
                    break;
                }
                let flags = if n == call.unsent.len() { flag::END_STREAM } else { 0 };
                let head = FrameHead { length: n, kind: kind::DATA, flags, stream: call.stream };
                self.output.tail().extend_from_slice(&head.bytes());
                self.output.put(call.unsent.split_to(n));
                self.window -= n as i64;
                call.window -= n as i64;
            }
        }
    }

    /// The call of a stream is over; `failure` says why, where its status does not.
    fn end(&mut self, stream: u32, failure: Option<Failure>, ended: &mut impl FnMut(Ended)) {
        let Some(i) = self.calls.iter().position(|c| c.stream == stream) else { return };
        let call = self.calls.swap_remove(i);
        let outcome = match (failure, call.status) {
            (Some(e), _) => Err(e),
            (None, None) => Err("an answer without grpc-status".into()),
            (None, Some(status)) if status.is_empty() => Ok(call.answer),
            (None, Some(status)) => Err(status.into()),
        };
        ended(Ended { due: call.due, entry: call.entry, outcome });
    }

    /// Takes what came, and tells of calls that are over.
    fn take(&mut self, ended: &mut impl FnMut(Ended)) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            let left = self.filled - at;
            if self.partial.data_bytes > 0 || self.partial.data_ends {
                let n = self.partial.data_bytes.min(left);
                self.data(at, n, ended);
                at += n;
                if self.partial.data_bytes > 0 {
                    break;
                }
                continue;
            }
            let Some(head) = FrameHead::read(&self.input[at..self.filled]) else { break };
            if head.kind == kind::DATA {
                if head.has(flag::PADDED) {
                    return Err("the server pads its frames, which this client does not read".into());
                }
                at += HEAD_BYTES;
                self.partial.data_bytes = head.length;
                self.partial.data_stream = head.stream;
                self.partial.data_ends = head.has(flag::END_STREAM);
                continue;
            }
            if HEAD_BYTES + head.length > self.input.len() {
                return Err(format!("a frame of kind {} with {} bytes", head.kind, head.length).into());
            }
            if left < HEAD_BYTES + head.length {
                break;
            }
            let from = at + HEAD_BYTES;
            at = from + head.length;
            self.frame(head, from, ended)?;
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.received > WINDOW / 2 {
            let received = std::mem::take(&mut self.received);
            self.send(kind::WINDOW_UPDATE, 0, 0, &received.to_be_bytes());
        }
        Ok(())
    }

    /// The next `n` bytes of a payload.
    fn data(&mut self, at: usize, n: usize, ended: &mut impl FnMut(Ended)) {
        let Partial { data_bytes, data_stream, data_ends, .. } = &mut self.partial;
        let stream = *data_stream;
        *data_bytes -= n;
        let is_last = *data_bytes == 0 && std::mem::take(data_ends);
        self.received += n as u32;
        if self.keep
            && let Some(call) = self.calls.iter_mut().find(|c| c.stream == stream)
        {
            call.answer.extend_from_slice(&self.input[at..at + n]);
        }
        if is_last {
            self.end(stream, None, ended);
        }
    }

    /// A whole frame that is not data; its payload begins at `from`.
    fn frame(&mut self, head: FrameHead, from: usize, ended: &mut impl FnMut(Ended)) -> Result<(), Failure> {
        let payload = from..from + head.length;
        match head.kind {
            kind::HEADERS => {
                let mut block = &self.input[payload];
                if head.has(flag::PADDED) {
                    let (&pad, rest) = block.split_first().ok_or("an empty padded frame")?;
                    block = rest.get(..rest.len().saturating_sub(pad.into())).unwrap_or_default();
                }
                if head.has(flag::PRIORITY) {
                    block = block.get(5..).ok_or("a frame that is too short")?;
                }
                self.partial.block.clear();
                self.partial.block.extend_from_slice(block);
                self.partial.block_ends = head.has(flag::END_STREAM);
                self.block(head, ended)?;
            }
            kind::CONTINUATION => {
                self.partial.block.extend_from_slice(&self.input[payload]);
                self.block(head, ended)?;
            }
            kind::RST_STREAM => {
                let code = Reason(number31(&self.input[payload]).unwrap_or_default());
                self.end(head.stream, Some(format!("the server reset the call: {code:?}").into()), ended);
            }
            kind::SETTINGS if !head.has(flag::ACK) => {
                self.settings(payload)?;
                self.send(kind::SETTINGS, flag::ACK, 0, &[]);
                self.ready = true;
                self.send_bodies();
            }
            kind::PING if !head.has(flag::ACK) => {
                let echoed = self.input[payload].to_vec();
                self.send(kind::PING, flag::ACK, 0, &echoed);
            }
            kind::GOAWAY => {
                let text = String::from_utf8_lossy(&self.input[payload]).into_owned();
                return Err(format!("the server closes the connection: {text:?}").into());
            }
            kind::WINDOW_UPDATE => {
                let more = i64::from(number31(&self.input[payload]).unwrap_or_default());
                if head.stream == 0 {
                    self.window += more;
                } else if let Some(call) = self.calls.iter_mut().find(|c| c.stream == head.stream) {
                    call.window += more;
                }
                self.send_bodies();
            }
            _ => {}
        }
        Ok(())
    }

    /// A header block, once it is whole.
    fn block(&mut self, head: FrameHead, ended: &mut impl FnMut(Ended)) -> Result<(), Failure> {
        if !head.has(flag::END_HEADERS) {
            return Ok(());
        }
        let call = self.calls.iter_mut().find(|c| c.stream == head.stream);
        let (mut status, mut text) = (None, String::new());
        self.decoder
            .decode(&self.partial.block, |name, value| match (name, value) {
                (b"grpc-status", b"0") => status = Some(String::new()),
                (b"grpc-status", code) => status = Some(format!("grpc-status {} ", String::from_utf8_lossy(code))),
                (b"grpc-message", message) => text = String::from_utf8_lossy(message).into_owned(),
                _ => {}
            })
            .map_err(|_| "a header block that cannot be read")?;
        if let (Some(call), Some(status)) = (call, status) {
            call.status = Some(if status.is_empty() { status } else { status + &text });
        }
        if self.partial.block_ends {
            self.end(head.stream, None, ended);
        }
        Ok(())
    }

    fn settings(&mut self, payload: std::ops::Range<usize>) -> Result<(), Failure> {
        for entry in self.input[payload].chunks_exact(6) {
            let name = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match name {
                setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                setting::MAX_CONCURRENT_STREAMS => self.streams_max = self.streams_max.min(value as usize),
                setting::INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - self.window_of_new;
                    self.window_of_new = i64::from(value);
                    self.calls.iter_mut().for_each(|c| c.window += more);
                }
                setting::MAX_FRAME_SIZE => self.frame_max = value as usize,
                _ => {}
            }
        }
        if self.streams_max == 0 { Err("the server allows no streams".into()) } else { Ok(()) }
    }

    /// One turn: what came, the calls that are due, one write. Ready when `next` has no more and every call ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        next: &mut impl FnMut(&mut Context<'_>) -> Poll<Option<Instant>>,
        ended: &mut impl FnMut(Ended),
    ) -> Poll<Result<(), Failure>> {
        // All that there is to read before anything is written: one write then serves as many calls as can be.
        loop {
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(result) => result?,
            }
            let n = buffer.filled().len();
            if n == 0 {
                return Poll::Ready(Err("the server closed the connection".into()));
            }
            self.filled += n;
            self.take(ended)?;
        }
        let mut is_over = false;
        while self.has_room() && !is_over {
            match next(cx) {
                Poll::Ready(Some(due)) => self.start(due),
                Poll::Ready(None) => is_over = true,
                Poll::Pending => break,
            }
        }
        // First every other connection that has something to read: what all of them send then meets the server at once,
        // as it does with a client that reads and writes in tasks of their own.
        if !self.output.is_empty() && !std::mem::replace(&mut self.yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yielded = false;
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let n = self.output.slices(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..n]) {
                Poll::Ready(written) => self.output.advance(written?),
                Poll::Pending => break,
            }
        }
        // Plain ones have nothing to flush; TLS keeps what the socket did not take.
        if let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx) {
            return Poll::Ready(Err(e.into()));
        }
        if is_over && self.calls.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// One call; the message of the answer with its five-byte prefix.
pub async fn once(plan: &LoadPlan) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(plan, wires(plan), 0).await?;
    connection.keep = true;
    let (mut due, mut answer) = (Some(Instant::now()), None);
    poll_fn(|cx| connection.poll(cx, &mut |_| Poll::Ready(due.take()), &mut |e| answer = Some(e.outcome))).await?;
    answer.unwrap_or_else(|| Err("no answer".into()))
}

/// `connections` connections with `streams` calls at a time on each.
pub async fn drive(plan: &Rc<LoadPlan>) -> Result<Outcome, Failure> {
    let requests = wires(plan);
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        connections.push(Connection::open(plan, requests.clone(), connections.len() * STRIDE).await?);
    }
    let schedule = Schedule::begin(plan);
    let mut workers = Vec::new();
    for connection in connections {
        let (plan, pace) = (plan.clone(), Pace::new(&schedule)?);
        workers.push(tokio::task::spawn_local(work(plan, connection, pace)));
    }
    let mut tallies = Vec::new();
    for w in workers {
        tallies.push(w.await?);
    }
    Ok(Outcome { tallies, start: schedule.start(), unsent: schedule.unsent() })
}

async fn work(plan: Rc<LoadPlan>, mut connection: Connection, mut pace: Pace) -> Tally {
    let mut tally = Tally::new();
    let start = pace.start();
    let result = poll_fn(|cx| {
        let mut ended = |call: Ended| match call.outcome {
            Ok(answer) if !plan.accepts(call.entry, &answer) => {
                tally.failed("an answer differs from the expected one");
            }
            Ok(_) if call.due >= start => tally.done(call.due),
            Ok(_) => {}
            Err(e) => tally.failed(e.to_string()),
        };
        let polled = connection.poll(cx, &mut |cx| pace.poll_due(cx), &mut ended);
        if tally.errors > ERRORS_MAX { Poll::Ready(Ok(())) } else { polled }
    });
    if let Err(e) = result.await {
        // The requests in flight are lost with the connection.
        (0..connection.calls.len().max(1)).for_each(|_| tally.failed(e.to_string()));
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::net::TcpListener;

    /// Settings of a test server that sends each message back.
    #[derive(Clone, Copy)]
    struct Behaviour {
        window: u32,
        table_bytes: u32,
        streams: u32,
        status: &'static str,
    }

    const USUAL: Behaviour = Behaviour { window: 65_535, table_bytes: 4096, streams: 100, status: "0" };

    /// An echo on the `h2` crate, for one connection after the other; nothing of it is ours.
    async fn serve(listener: TcpListener, b: Behaviour) {
        while let Ok((io, _)) = listener.accept().await {
            tokio::task::spawn_local(async move {
                let mut builder = h2::server::Builder::new();
                builder
                    .initial_window_size(b.window)
                    .header_table_size(b.table_bytes)
                    .max_concurrent_streams(b.streams);
                let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    assert_eq!(request.headers()["content-type"], "application/grpc");
                    assert_eq!(request.uri().path(), "/p");
                    tokio::task::spawn_local(echo(request, respond, b.status));
                }
            });
        }
    }

    async fn echo(request: http::Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>, status: &str) {
        let mut body = request.into_body();
        let mut message = BytesMut::new();
        while let Some(Ok(chunk)) = body.data().await {
            let _ = body.flow_control().release_capacity(chunk.len());
            message.extend_from_slice(&chunk);
        }
        let head = http::Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let Ok(mut send) = respond.send_response(head, false) else { return };
        let _ = send.send_data(message.freeze(), false);
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", status.parse().expect("a value"));
        trailers.insert("grpc-message", "so it is".parse().expect("a value"));
        let _ = send.send_trailers(trailers);
    }

    /// Drives a test server with so many requests, and adds up what was found.
    fn drive_all(b: Behaviour, mut plan: LoadPlan) -> Tally {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            plan.address = listener.local_addr().expect("an address").to_string();
            plan.path = "/p".into();
            plan.duration = Duration::from_secs(30);
            tokio::task::spawn_local(serve(listener, b));
            let outcome = drive(&Rc::new(plan)).await.expect("drives");
            let mut sum = Tally::new();
            outcome.tallies.iter().for_each(|t| sum.add(t));
            sum
        })
    }

    fn plan(bytes: usize, connections: usize, streams: usize, requests: u64) -> LoadPlan {
        let body = Bytes::from((0..bytes).map(|i| i as u8).collect::<Vec<_>>());
        LoadPlan {
            expected: framed(&body),
            ring: vec![Prepared { body, ..Prepared::default() }],
            connections,
            streams,
            requests,
            ..LoadPlan::default()
        }
    }

    #[test]
    fn every_answer_is_the_message_whatever_windows_and_tables_the_server_has() {
        for window in [65_535, 100, 1 << 20] {
            for table_bytes in [4096, 0, 100] {
                for (bytes, requests) in [(0, 200), (100, 200), (300_000, 12)] {
                    let tally = drive_all(Behaviour { window, table_bytes, ..USUAL }, plan(bytes, 2, 3, requests));
                    assert_eq!(tally.first_error, None, "{window} {table_bytes} {bytes}");
                    assert_eq!(tally.latency_ns.len(), requests, "{window} {table_bytes} {bytes}");
                }
            }
        }
    }

    #[test]
    fn no_more_streams_are_open_than_the_server_allows() {
        let tally = drive_all(Behaviour { streams: 2, ..USUAL }, plan(10, 1, 8, 100));
        assert_eq!((tally.first_error.as_deref(), tally.latency_ns.len()), (None, 100));
    }

    #[test]
    fn what_differs_and_what_fails_is_an_error() {
        let tally = drive_all(USUAL, LoadPlan { expected: Bytes::from_static(b"other"), ..plan(10, 1, 2, 20) });
        assert_eq!((tally.errors, tally.latency_ns.len()), (20, 0));
        let tally = drive_all(Behaviour { status: "5", ..USUAL }, plan(10, 1, 2, 20));
        assert_eq!((tally.errors, tally.latency_ns.len()), (20, 0));
        assert!(tally.first_error.is_some_and(|e| e == "grpc-status 5 so it is"));
    }

    #[test]
    fn a_ring_is_sent_in_turn_and_each_answer_is_looked_at() {
        let request = |i: u8| Prepared {
            headers: vec![("traceparent".into(), format!("00-{i:032x}-{i:016x}-01"))],
            body: Bytes::from(vec![i; 10 + usize::from(i)]),
            tail: Bytes::from(vec![i; 5]),
            counter_at: None,
        };
        let ring: Vec<Prepared> = (0..7).map(request).collect();
        let right = LoadPlan { verify: true, expected: Bytes::new(), ring: ring.clone(), ..plan(0, 2, 3, 100) };
        let tally = drive_all(USUAL, right);
        assert_eq!((tally.first_error.as_deref(), tally.latency_ns.len()), (None, 100));
        let wrong = ring.into_iter().map(|r| Prepared { tail: Bytes::from_static(b"other"), ..r }).collect();
        let tally =
            drive_all(USUAL, LoadPlan { verify: true, expected: Bytes::new(), ring: wrong, ..plan(0, 1, 2, 20) });
        assert_eq!((tally.errors, tally.latency_ns.len()), (20, 0));
    }

    #[test]
    fn an_open_loop_sends_what_arrives() {
        let plan = LoadPlan { rate: 2000.0, duration: Duration::from_millis(300), seed: 3, ..plan(10, 2, 4, 0) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let outcome = tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let address = listener.local_addr().expect("an address").to_string();
            tokio::task::spawn_local(serve(listener, USUAL));
            drive(&Rc::new(LoadPlan { address, path: "/p".into(), ..plan })).await.expect("drives")
        });
        let answered: u64 = outcome.tallies.iter().map(|t| t.latency_ns.len()).sum();
        let all = answered + outcome.unsent;
        assert!((450..750).contains(&all), "{all} of about 600 arrivals");
        assert!(outcome.tallies.iter().all(|t| t.errors == 0));
    }
}
