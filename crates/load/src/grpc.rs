//! A lean gRPC client: calls with ready-made messages, `connections` × `streams`.
//!
//! Client and server share the cores of the machine that measures, so what the client costs dilutes every ratio of two
//! servers. Hence one task per connection, nothing allocated per call, and one write for all calls that one read made
//! room for. On the wire it does what clients do: header fields go into the server's table with the first call and are
//! a byte each from then on.

use crate::http1::{PAUSE, STRIDE, timed_out};
use crate::messages::{PREFIX_BYTES, framed, message_bytes, stream_response, unescaped};
use crate::pace::{Pace, Run, Watch};
use crate::plan::{Failure, Form, Plan, Prepared, Responses};
use crate::tls::{Connector, Stream};
use bytes::{BufMut, Bytes};
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
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// No answer ever waits for a window update of ours: what there is at most, given back by the half.
const WINDOW: u32 = i32::MAX as u32;
/// Largest frame we take; large answers come in few pieces.
const FRAME_BYTES: u32 = 1 << 20;
/// One read. Payloads of answers are taken as they come; every other frame has to fit.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of the longest header block of an answer.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Bytes of answers to frames about the connection that may wait for a server that does not read.
const CONTROL_BYTES_MAX: usize = 1 << 20;
/// The last stream of a connection.
const STREAM_MAX: u32 = i32::MAX as u32;
/// Parts of a write: head and payload of a frame. The server reads a large message while the rest of it is written.
const SLICES: usize = 2;

/// A request as it goes out.
struct Wire {
    /// Message with its five-byte prefix.
    message: Bytes,
    /// Header fields of its own, encoded so that they mean the same at any time.
    fields: Vec<u8>,
}

/// What all connections send.
pub struct Wires {
    requests: Vec<Wire>,
    /// Header fields of every request. For the life of a process that measures once.
    fields: &'static [(&'static str, &'static str)],
}

/// Every request of a plan, made once for all connections.
pub fn wires(plan: &Plan) -> Result<Rc<Wires>, Failure> {
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let mut fields: Vec<(&str, &str)> = vec![(":method", "POST"), (":scheme", scheme), (":path", &plan.path)];
    fields.extend([(":authority", plan.host()), ("te", "trailers"), ("content-type", "application/grpc")]);
    // A plan with one request keeps all its fields in the server's table, as clients do with repeated fields.
    if let [request] = &plan.ring[..] {
        fields.extend(request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
    let own = |request: &Prepared| if plan.ring.len() == 1 { Vec::new() } else { literals(&request.headers) };
    let wire = |request: &Prepared| Wire { message: framed(&request.body), fields: own(request) };
    let requests: Vec<Wire> = plan.ring.iter().map(wire).collect();
    let of_all: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let longest = of_all + requests.iter().map(|wire| wire.fields.len()).max().unwrap_or_default();
    if longest > FRAME_BYTES_MIN as usize || fields.len() > usize::from(u8::MAX) {
        let count = fields.len();
        return Err(
            format!("{count} header fields with {longest} bytes: 255 with {FRAME_BYTES_MIN} can be sent").into()
        );
    }
    let leaked = |(name, value): &(&str, &str)| -> (&'static str, &'static str) {
        (name.to_ascii_lowercase().leak(), (*value).to_owned().leak())
    };
    Ok(Rc::new(Wires { requests, fields: fields.iter().map(leaked).collect::<Vec<_>>().leak() }))
}

/// Fields as literals that enter no table.
pub fn literals(headers: &[(impl AsRef<str>, String)]) -> Vec<u8> {
    let (mut out, encoder) = (Vec::new(), Encoder::new(&[]));
    for (name, value) in headers {
        encoder.literal(&mut out, Field::Literal(&name.as_ref().to_ascii_lowercase(), value.as_bytes()));
    }
    out
}

/// A request on its way.
struct Asked {
    /// Which request of the ring.
    entry: usize,
    due: Instant,
    sent: Instant,
    /// When the last of several responses came.
    last: Option<Instant>,
}

/// A call. One of a stream stays open and has one request after the other.
struct Call {
    stream: u32,
    /// `None`: an open stream that waits for its next request.
    asked: Option<Asked>,
    /// Part of the message that waits for windows.
    unsent: Bytes,
    /// Bytes that the server lets us send on this stream.
    window: i64,
    /// Body of the answer, where somebody looks at it; of a stream what is incomplete.
    answer: Vec<u8>,
    /// Bytes of the answer, and those that were not given back to the window of an open stream.
    received: u64,
    owed: u32,
    /// `:status`, unless it is 200.
    http_status: String,
    /// Empty for success, or what the server said instead.
    status: Option<String>,
}

impl Call {
    fn failure(self) -> Option<(Asked, String)> {
        let text = match self.status {
            Some(status) if !status.is_empty() => status,
            Some(_) => "the stream ended before its request".to_owned(),
            None if self.http_status.is_empty() => "an answer without grpc-status".to_owned(),
            None => format!("an answer with HTTP status {} and without grpc-status", self.http_status),
        };
        Some((self.asked?, text))
    }
}

/// What came of a request.
enum News<'a> {
    /// One of several responses.
    Response {
        due: Instant,
        last: Option<Instant>,
    },
    /// The last response. Its body, if it is kept.
    Done {
        due: Instant,
        entry: usize,
        answer: &'a [u8],
    },
    Failed {
        due: Instant,
        text: &'a str,
    },
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
    wires: Rc<Wires>,
    /// Which request is next.
    next: usize,
    keeps: bool,
    /// `None`: unary calls.
    responses: Option<Responses>,
    response_bytes_max: u64,
    input: Vec<u8>,
    /// Bytes of `input` that hold something.
    filled: usize,
    output: OutputBuffer,
    /// Bytes of the output that the server caused by frames about the connection.
    control_bytes: usize,
    decoder: Decoder,
    encoder: Encoder,
    partial: Partial,
    calls: Vec<Call>,
    next_stream: u32,
    opened: Instant,
    /// The server's first settings came.
    ready: bool,
    /// The server wants no further calls.
    is_closing: bool,
    streams_max: usize,
    streams_wanted: usize,
    frame_max: usize,
    window: i64,
    window_of_new: i64,
    /// Bytes that were received and not given back to the connection's window.
    received: u32,
    /// Others had their turn before this one writes.
    yielded: bool,
}

impl Connection {
    async fn open(plan: &Plan, connector: &Connector, wires: &Rc<Wires>, next: usize) -> Result<Self, Failure> {
        let mut this = Self {
            stream: connector.connect().await?,
            next: next % wires.requests.len(),
            keeps: plan.compares(),
            responses: (plan.form == Form::Stream).then_some(plan.responses),
            response_bytes_max: plan.response_bytes_max,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            output: OutputBuffer::default(),
            control_bytes: 0,
            decoder: Decoder::new(),
            encoder: Encoder::new(wires.fields),
            wires: wires.clone(),
            partial: Partial::default(),
            calls: Vec::with_capacity(plan.streams),
            next_stream: 1,
            opened: Instant::now(),
            ready: false,
            is_closing: false,
            streams_max: plan.streams,
            streams_wanted: plan.streams,
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
        self.control_bytes += HEAD_BYTES + payload.len();
    }

    /// The open stream that waits for a request; `calls.len()` if there is room for another call.
    fn room(&self) -> Option<usize> {
        if !self.ready || self.is_closing {
            return None;
        }
        let idle = self.responses.and_then(|_| self.calls.iter().position(|c| c.asked.is_none()));
        idle.or((self.calls.len() < self.streams_max && self.next_stream < STREAM_MAX).then_some(self.calls.len()))
    }

    fn start(&mut self, due: Instant, at: usize) {
        let entry = self.next;
        self.next = (self.next + 1) % self.wires.requests.len();
        if at == self.calls.len() {
            self.open_call(entry);
        }
        let call = &mut self.calls[at];
        call.asked = Some(Asked { entry, due, sent: Instant::now(), last: None });
        call.unsent = self.wires.requests[entry].message.clone();
        self.send_bodies();
    }

    fn open_call(&mut self, entry: usize) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let out = self.output.tail();
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin(out);
        for i in 0..self.wires.fields.len() {
            self.encoder.field(out, Field::Fixed(i as u8));
        }
        out.extend_from_slice(&self.wires.requests[entry].fields);
        let length = out.len() - at - HEAD_BYTES;
        let head = FrameHead { length, kind: kind::HEADERS, flags: flag::END_HEADERS, stream };
        out[at..at + HEAD_BYTES].copy_from_slice(&head.bytes());
        self.calls.push(Call {
            stream,
            asked: None,
            unsent: Bytes::new(),
            window: self.window_of_new,
            answer: Vec::new(),
            received: 0,
            owed: 0,
            http_status: String::new(),
            status: None,
        });
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
                let is_last = n == call.unsent.len() && self.responses.is_none();
                let flags = if is_last { flag::END_STREAM } else { 0 };
                let head = FrameHead { length: n, kind: kind::DATA, flags, stream: call.stream };
                self.output.tail().extend_from_slice(&head.bytes());
                self.output.put(call.unsent.split_to(n));
                self.window -= n as i64;
                call.window -= n as i64;
            }
        }
    }

    /// The server ended a call.
    fn ended(&mut self, stream: u32, told: &mut impl FnMut(News<'_>)) {
        let Some(i) = self.calls.iter().position(|c| c.stream == stream) else { return };
        let call = self.calls.swap_remove(i);
        match (&call.status, &call.asked) {
            (Some(status), Some(asked)) if status.is_empty() && self.responses.is_none() => {
                told(News::Done { due: asked.due, entry: asked.entry, answer: &call.answer });
            }
            _ => {
                if let Some((asked, text)) = call.failure() {
                    told(News::Failed { due: asked.due, text: &text });
                }
            }
        }
    }

    /// The call at `i` is over for another reason.
    fn abandon(&mut self, i: usize, text: &str, is_reset: bool, told: &mut impl FnMut(News<'_>)) {
        let call = self.calls.swap_remove(i);
        if is_reset {
            self.send(kind::RST_STREAM, 0, call.stream, &Reason::CANCEL.0.to_be_bytes());
        }
        if let Some(asked) = call.asked {
            told(News::Failed { due: asked.due, text });
        }
    }

    /// Takes what came, and tells of it.
    fn take(&mut self, told: &mut impl FnMut(News<'_>)) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            let left = self.filled - at;
            if self.partial.data_bytes > 0 || self.partial.data_ends {
                let n = self.partial.data_bytes.min(left);
                self.data(at, n, told);
                at += n;
                if self.partial.data_bytes > 0 {
                    break;
                }
                continue;
            }
            let Some(head) = FrameHead::read(&self.input[at..self.filled]) else { break };
            if head.length > FRAME_BYTES as usize || head.kind != kind::DATA && HEAD_BYTES + head.length > INPUT_BYTES {
                return Err(format!("a frame of kind {} with {} bytes", head.kind, head.length).into());
            }
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
            if left < HEAD_BYTES + head.length {
                break;
            }
            let from = at + HEAD_BYTES;
            at = from + head.length;
            self.frame(head, from, told)?;
            if self.control_bytes > CONTROL_BYTES_MAX {
                return Err("the server sends frames about the connection and does not read".into());
            }
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
    fn data(&mut self, at: usize, n: usize, told: &mut impl FnMut(News<'_>)) {
        let Partial { data_bytes, data_stream, data_ends, .. } = &mut self.partial;
        let stream = *data_stream;
        *data_bytes -= n;
        let is_last = *data_bytes == 0 && std::mem::take(data_ends);
        self.received += n as u32;
        if let Some(i) = self.calls.iter().position(|c| c.stream == stream) {
            let call = &mut self.calls[i];
            call.received += n as u64;
            if self.keeps || self.responses.is_some() {
                call.answer.extend_from_slice(&self.input[at..at + n]);
            }
            let mut failure = None;
            if let Some(responses) = self.responses {
                failure = call.responses(responses, told).err().map(|e| e.to_string());
                call.received = call.answer.len() as u64;
                call.owed += n as u32;
                if call.owed > WINDOW / 2 {
                    let owed = std::mem::take(&mut call.owed);
                    self.send(kind::WINDOW_UPDATE, 0, stream, &owed.to_be_bytes());
                }
            }
            if self.calls[i].received > self.response_bytes_max {
                failure = Some(format!("a response of more than {} bytes", self.response_bytes_max));
            }
            if let Some(text) = failure {
                return self.abandon(i, &text, true, told);
            }
        }
        if is_last {
            self.ended(stream, told);
        }
    }

    /// A whole frame that is not data; its payload begins at `from`.
    fn frame(&mut self, head: FrameHead, from: usize, told: &mut impl FnMut(News<'_>)) -> Result<(), Failure> {
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
                self.block(head, told)?;
            }
            kind::CONTINUATION => {
                self.partial.block.extend_from_slice(&self.input[payload]);
                self.block(head, told)?;
            }
            kind::RST_STREAM => {
                let code = Reason(number31(&self.input[payload]).unwrap_or_default());
                if let Some(i) = self.calls.iter().position(|c| c.stream == head.stream) {
                    self.abandon(i, &format!("the server reset the call: {code:?}"), false, told);
                }
            }
            kind::SETTINGS if !head.has(flag::ACK) => {
                self.settings(payload)?;
                self.send(kind::SETTINGS, flag::ACK, 0, &[]);
                self.ready = true;
                self.send_bodies();
            }
            kind::PING if !head.has(flag::ACK) => {
                let echoed: [u8; 8] = self.input[payload].try_into().map_err(|_| "a ping that is not 8 bytes")?;
                self.send(kind::PING, flag::ACK, 0, &echoed);
            }
            kind::GOAWAY => self.goaway(payload, told)?,
            kind::WINDOW_UPDATE => {
                let more = i64::from(number31(&self.input[payload]).unwrap_or_default());
                let window = match head.stream {
                    0 => Some(&mut self.window),
                    stream => self.calls.iter_mut().find(|c| c.stream == stream).map(|call| &mut call.window),
                };
                if let Some(window) = window {
                    *window += more;
                    if *window > WINDOW.into() {
                        return Err("the server opens a window beyond its limit".into());
                    }
                }
                self.send_bodies();
            }
            _ => {}
        }
        Ok(())
    }

    /// The server closes the connection: the calls that it took go on, the others are not answered.
    fn goaway(&mut self, payload: std::ops::Range<usize>, told: &mut impl FnMut(News<'_>)) -> Result<(), Failure> {
        let payload = &self.input[payload];
        let (last, code) =
            number31(payload).zip(payload.get(4..).and_then(number31)).ok_or("a frame that is too short")?;
        if code != Reason::NO_ERROR.0 {
            let text = String::from_utf8_lossy(&payload[8..]).into_owned();
            return Err(format!("the server closes the connection: {:?} {text:?}", Reason(code)).into());
        }
        self.is_closing = true;
        while let Some(i) = self.calls.iter().position(|c| c.stream > last) {
            self.abandon(i, "the server closes the connection and did not take the call", false, told);
        }
        Ok(())
    }

    /// A header block, once it is whole.
    fn block(&mut self, head: FrameHead, told: &mut impl FnMut(News<'_>)) -> Result<(), Failure> {
        if self.partial.block.len() > BLOCK_BYTES_MAX {
            return Err(format!("a header block of more than {BLOCK_BYTES_MAX} bytes").into());
        }
        if !head.has(flag::END_HEADERS) {
            return Ok(());
        }
        let call = self.calls.iter_mut().find(|c| c.stream == head.stream);
        let (mut status, mut text, mut http_status) = (None, String::new(), String::new());
        self.decoder
            .decode(&self.partial.block, |name, value| match (name, value) {
                (b":status", b"200") => {}
                (b":status", code) => http_status = String::from_utf8_lossy(code).into_owned(),
                (b"grpc-status", b"0") => status = Some(String::new()),
                (b"grpc-status", code) => status = Some(format!("grpc-status {} ", String::from_utf8_lossy(code))),
                (b"grpc-message", message) => text = unescaped(message),
                _ => {}
            })
            .map_err(|_| "a header block that cannot be read")?;
        if let Some(call) = call {
            if !http_status.is_empty() {
                call.http_status = http_status;
            }
            if let Some(status) = status {
                call.status = Some(if status.is_empty() { status } else { status + &text });
            }
        }
        if self.partial.block_ends {
            self.ended(head.stream, told);
        }
        Ok(())
    }

    fn settings(&mut self, payload: std::ops::Range<usize>) -> Result<(), Failure> {
        for entry in self.input[payload].chunks_exact(6) {
            let name = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match name {
                setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                setting::MAX_CONCURRENT_STREAMS => self.streams_max = self.streams_wanted.min(value as usize),
                setting::INITIAL_WINDOW_SIZE if value > WINDOW => return Err("a window beyond its limit".into()),
                setting::INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - self.window_of_new;
                    self.window_of_new = i64::from(value);
                    self.calls.iter_mut().for_each(|c| c.window += more);
                }
                setting::MAX_FRAME_SIZE if value < FRAME_BYTES_MIN => return Err("frames below their limit".into()),
                setting::MAX_FRAME_SIZE => self.frame_max = value as usize,
                _ => {}
            }
        }
        if self.streams_max == 0 { Err("the server allows no streams".into()) } else { Ok(()) }
    }

    /// When the oldest request was sent, or the connection was opened if the server did not begin yet.
    fn oldest(&self) -> Option<Instant> {
        let asked = self.calls.iter().filter_map(|c| c.asked.as_ref()).map(|asked| asked.sent).min();
        if self.ready { asked } else { Some(self.opened) }
    }

    /// Ends what took longer than `limit`.
    fn expire(&mut self, limit: Duration, text: &str, told: &mut impl FnMut(News<'_>)) -> Result<(), Failure> {
        // Without its settings nothing can be sent, and what it does not read would pile up.
        if !self.ready || !self.output.is_empty() {
            return Err(text.into());
        }
        let is_late = |c: &Call| c.asked.as_ref().is_some_and(|asked| asked.sent.elapsed() >= limit);
        while let Some(i) = self.calls.iter().position(is_late) {
            self.abandon(i, text, true, told);
        }
        Ok(())
    }

    /// One turn: what came, the calls that are due, one write. Ready when `next` has no more and every call ended, with
    /// true, or when the server wants to end the connection, with false.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        next: &mut impl FnMut(&mut Context<'_>) -> Poll<Option<Instant>>,
        told: &mut impl FnMut(News<'_>),
    ) -> Poll<Result<bool, Failure>> {
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
            self.take(told)?;
        }
        let mut is_over = false;
        while let Some(at) = self.room() {
            match next(cx) {
                Poll::Ready(Some(due)) => self.start(due, at),
                Poll::Ready(None) => {
                    is_over = true;
                    break;
                }
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
        let is_idle = self.calls.iter().all(|c| c.asked.is_none());
        if is_over && is_idle {
            for i in 0..self.calls.len() {
                self.send(kind::DATA, flag::END_STREAM, self.calls[i].stream, &[]);
            }
            self.calls.clear();
        }
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let n = self.output.slices(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..n]) {
                Poll::Ready(written) => self.output.advance(written?),
                Poll::Pending => break,
            }
        }
        if self.output.is_empty() {
            self.control_bytes = 0;
        }
        // Plain ones have nothing to flush; TLS keeps what the socket did not take.
        if let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx) {
            return Poll::Ready(Err(e.into()));
        }
        let is_spent = self.is_closing || self.next_stream >= STREAM_MAX;
        if is_idle && (is_over || is_spent) { Poll::Ready(Ok(is_over)) } else { Poll::Pending }
    }
}

impl Call {
    /// Takes whole messages off the body of a stream.
    fn responses(&mut self, responses: Responses, told: &mut impl FnMut(News<'_>)) -> Result<(), Failure> {
        let mut at = 0;
        while let Some(length) = message_bytes(&self.answer[at..])?
            && let Some(message) = self.answer.get(at + PREFIX_BYTES..at + PREFIX_BYTES + length)
        {
            at += PREFIX_BYTES + length;
            let asked = self.asked.as_mut().ok_or("a response to no request")?;
            let response = stream_response(message)?;
            if !response.error.is_empty() {
                return Err(response.error.into());
            }
            if response.is_response {
                told(News::Response { due: asked.due, last: asked.last.replace(Instant::now()) });
            }
            if responses == Responses::One || response.is_final {
                told(News::Done { due: asked.due, entry: asked.entry, answer: message });
                self.asked = None;
            }
        }
        self.answer.drain(..at);
        Ok(())
    }
}

/// One call; the message of the answer with its five-byte prefix.
pub async fn once(plan: &Plan, connector: &Connector) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(plan, connector, &wires(plan)?, 0).await?;
    connection.keeps = true;
    let (mut due, mut answer) = (Some(Instant::now()), Err("no answer".into()));
    let mut told = |news: News<'_>| match news {
        News::Done { answer: message, .. } => answer = Ok(message.to_vec()),
        News::Failed { text, .. } => answer = Err(text.into()),
        News::Response { .. } => {}
    };
    let calls = poll_fn(|cx| connection.poll(cx, &mut |_| Poll::Ready(due.take()), &mut told));
    Watch::new(plan.timeout()).limit(calls).await.ok_or_else(|| timed_out(plan))??;
    answer
}

/// One connection with its requests, opened anew when that is needed, until the run is over.
pub struct Worker {
    connector: Rc<Connector>,
    connection: Connection,
}

impl Worker {
    /// Opens the connection number `number`.
    pub async fn open(
        plan: &Plan,
        connector: &Rc<Connector>,
        wires: &Rc<Wires>,
        number: usize,
    ) -> Result<Self, Failure> {
        let connection = Connection::open(plan, connector, wires, number * STRIDE).await?;
        Ok(Self { connector: connector.clone(), connection })
    }

    /// Sends requests until the run is over.
    pub async fn work(mut self, run: Rc<Run>, mut pace: Pace) {
        let (limit, text) = (run.plan.timeout(), timed_out(&run.plan));
        loop {
            let mut watch = Watch::new(limit);
            let connection = &mut self.connection;
            let mut told = |news: News<'_>| match news {
                News::Response { due, last } => {
                    let now = Instant::now();
                    run.count(due, |tally| tally.response(due, last, now));
                }
                News::Done { due, entry, answer } if run.plan.accepts(entry, answer) => run.done(due, Instant::now()),
                News::Done { due, .. } => run.failed(due, "an answer differs from the expected one"),
                News::Failed { due, text } => run.failed(due, text),
            };
            let mut next = |cx: &mut Context<'_>| {
                let due = pace.poll_due(cx);
                if let Poll::Ready(Some(due)) = due {
                    run.sent(due);
                }
                due
            };
            let result = poll_fn(|cx| {
                let polled = connection.poll(cx, &mut next, &mut told);
                if polled.is_pending() && watch.poll(|| connection.oldest(), cx) {
                    connection.expire(limit, &text, &mut told)?;
                    // The reset is written, and the next request begins.
                    cx.waker().wake_by_ref();
                }
                polled
            });
            match result.await {
                Ok(true) => return,
                Ok(false) => {}
                Err(e) => {
                    // The requests in flight are lost with the connection.
                    let lost: Vec<_> = connection.calls.drain(..).filter_map(|c| c.asked).map(|a| a.due).collect();
                    let lost = if lost.is_empty() { vec![Instant::now()] } else { lost };
                    lost.into_iter().for_each(|due| run.failed(due, &e.to_string()));
                    if run.goes_on() {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            loop {
                if !run.goes_on() {
                    return;
                }
                let (wires, next) = (self.connection.wires.clone(), self.connection.next);
                let opened = watch.limit(Connection::open(&run.plan, &self.connector, &wires, next)).await;
                match opened.unwrap_or_else(|| Err(text.clone().into())) {
                    Ok(connection) => {
                        self.connection = connection;
                        break;
                    }
                    Err(e) => run.failed(Instant::now(), &e.to_string()),
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
