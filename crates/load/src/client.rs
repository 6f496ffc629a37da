//! A connection of gRPC: frames of HTTP/2 in both directions. What to send, and when, its caller says.
//!
//! Whatever the server sends, memory is bounded: by limits of frames, of header blocks, of an answer, and of what waits
//! for a server that does not read.

use crate::call::{Asked, ClientCall, News};
use crate::messages::unescaped;
use crate::plan::{AnyError, Form, Plan, Responses};
use crate::tls::{Connector, Stream};
use bytes::{BufMut, Bytes};
use http2::parts::{
    Decoder, Encoder, FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, OutputBuffer, PREFACE, WINDOW_DEFAULT, flag, kind,
    number31, setting,
};
use http2::{Field, Reason};
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
pub struct Wire {
    /// Message with its five-byte prefix.
    pub message: Bytes,
    /// Header fields of its own, encoded so that they mean the same at any time.
    pub fields: Vec<u8>,
}

/// The requests of all connections.
pub struct Wires {
    /// In the order of the ring.
    pub requests: Vec<Wire>,
    /// Header fields of every request. For the life of a process that measures once.
    pub fields: &'static [(&'static str, &'static str)],
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

/// Bytes from the server, and what they began.
struct Input {
    bytes: Vec<u8>,
    /// Bytes that hold something.
    filled: usize,
    partial: Partial,
    decoder: Decoder,
    /// Bytes that were received and not given back to the connection's window.
    received: u32,
}

/// Bytes for the server.
struct Output {
    buffer: OutputBuffer,
    encoder: Encoder,
    /// Bytes that the server caused by frames about the connection.
    control_bytes: usize,
    /// Others had their turn before this one writes.
    yielded: bool,
}

/// Limits that the server sets.
struct Allowed {
    streams: usize,
    frame_bytes: usize,
    window: i64,
    window_of_new: i64,
}

/// A connection.
pub struct GrpcClient {
    stream: Stream,
    /// The requests of all connections.
    pub wires: Rc<Wires>,
    /// Which request is next.
    pub next: usize,
    /// Whether bodies of answers are kept.
    pub keeps: bool,
    /// `None`: unary calls.
    responses: Option<Responses>,
    response_bytes_max: u64,
    streams_wanted: usize,
    input: Input,
    output: Output,
    allowed: Allowed,
    calls: Vec<ClientCall>,
    next_stream: u32,
    opened: Instant,
    /// The server's first settings came.
    ready: bool,
    /// The server wants no further calls.
    is_closing: bool,
}

impl GrpcClient {
    /// Opens a connection whose first request is that at `next`.
    pub async fn open(plan: &Plan, connector: &Connector, wires: &Rc<Wires>, next: usize) -> Result<Self, AnyError> {
        let window = WINDOW_DEFAULT.into();
        let frame_bytes = FRAME_BYTES_MIN as usize;
        let (partial, decoder, encoder) = (Partial::default(), Decoder::new(), Encoder::new(wires.fields));
        let mut this = Self {
            stream: connector.connect().await?,
            next: next % wires.requests.len(),
            keeps: plan.compares(),
            responses: (plan.form == Form::Stream).then_some(plan.responses),
            response_bytes_max: plan.response_bytes_max,
            wires: wires.clone(),
            streams_wanted: plan.streams,
            input: Input { bytes: vec![0; INPUT_BYTES], filled: 0, partial, decoder, received: 0 },
            output: Output { buffer: OutputBuffer::default(), encoder, control_bytes: 0, yielded: false },
            allowed: Allowed { streams: plan.streams, frame_bytes, window, window_of_new: window },
            calls: Vec::with_capacity(plan.streams),
            next_stream: 1,
            opened: Instant::now(),
            ready: false,
            is_closing: false,
        };
        this.output.buffer.tail().extend_from_slice(PREFACE);
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
        let out = self.output.buffer.tail();
        out.extend_from_slice(&FrameHead { length: payload.len(), kind, flags, stream }.bytes());
        out.extend_from_slice(payload);
        self.output.control_bytes += HEAD_BYTES + payload.len();
    }

    /// The open stream that waits for a request; `calls.len()` if there is room for another call.
    fn room(&self) -> Option<usize> {
        if !self.ready || self.is_closing {
            return None;
        }
        let idle = self.responses.and_then(|_| self.calls.iter().position(|c| c.asked.is_none()));
        idle.or((self.calls.len() < self.allowed.streams && self.next_stream < STREAM_MAX).then_some(self.calls.len()))
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
        let out = self.output.buffer.tail();
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.output.encoder.begin(out);
        for i in 0..self.wires.fields.len() {
            self.output.encoder.field(out, Field::Fixed(i as u8));
        }
        out.extend_from_slice(&self.wires.requests[entry].fields);
        let length = out.len() - at - HEAD_BYTES;
        let head = FrameHead { length, kind: kind::HEADERS, flags: flag::END_HEADERS, stream };
        out[at..at + HEAD_BYTES].copy_from_slice(&head.bytes());
        self.calls.push(ClientCall::new(stream, self.allowed.window_of_new));
    }

    /// Sends what the windows allow.
    fn send_bodies(&mut self) {
        for call in &mut self.calls {
            while !call.unsent.is_empty() {
                let allowed = self.allowed.window.min(call.window).min(self.allowed.frame_bytes as i64).max(0) as usize;
                let n = call.unsent.len().min(allowed);
                if n == 0 {
                    break;
                }
                let is_last = n == call.unsent.len() && self.responses.is_none();
                let flags = if is_last { flag::END_STREAM } else { 0 };
                let head = FrameHead { length: n, kind: kind::DATA, flags, stream: call.stream };
                self.output.buffer.tail().extend_from_slice(&head.bytes());
                self.output.buffer.put(call.unsent.split_to(n));
                self.allowed.window -= n as i64;
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
    fn take(&mut self, told: &mut impl FnMut(News<'_>)) -> Result<(), AnyError> {
        let mut at = 0;
        loop {
            let left = self.input.filled - at;
            if self.input.partial.data_bytes > 0 || self.input.partial.data_ends {
                let n = self.input.partial.data_bytes.min(left);
                self.data(at, n, told);
                at += n;
                if self.input.partial.data_bytes > 0 {
                    break;
                }
                continue;
            }
            let Some(head) = FrameHead::read(&self.input.bytes[at..self.input.filled]) else { break };
            if head.length > FRAME_BYTES as usize || head.kind != kind::DATA && HEAD_BYTES + head.length > INPUT_BYTES {
                return Err(format!("a frame of kind {} with {} bytes", head.kind, head.length).into());
            }
            if head.kind == kind::DATA {
                if head.has(flag::PADDED) {
                    return Err("the server pads its frames, which this client does not read".into());
                }
                at += HEAD_BYTES;
                self.input.partial.data_bytes = head.length;
                self.input.partial.data_stream = head.stream;
                self.input.partial.data_ends = head.has(flag::END_STREAM);
                continue;
            }
            if left < HEAD_BYTES + head.length {
                break;
            }
            let from = at + HEAD_BYTES;
            at = from + head.length;
            self.frame(head, from, told)?;
            if self.output.control_bytes > CONTROL_BYTES_MAX {
                return Err("the server sends frames about the connection and does not read".into());
            }
        }
        self.input.bytes.copy_within(at..self.input.filled, 0);
        self.input.filled -= at;
        if self.input.received > WINDOW / 2 {
            let received = std::mem::take(&mut self.input.received);
            self.send(kind::WINDOW_UPDATE, 0, 0, &received.to_be_bytes());
        }
        Ok(())
    }

    /// The next `n` bytes of a payload.
    fn data(&mut self, at: usize, n: usize, told: &mut impl FnMut(News<'_>)) {
        let Partial { data_bytes, data_stream, data_ends, .. } = &mut self.input.partial;
        let stream = *data_stream;
        *data_bytes -= n;
        let is_last = *data_bytes == 0 && std::mem::take(data_ends);
        self.input.received += n as u32;
        if let Some(i) = self.calls.iter().position(|c| c.stream == stream) {
            let call = &mut self.calls[i];
            call.received += n as u64;
            if self.keeps || self.responses.is_some() {
                call.answer.extend_from_slice(&self.input.bytes[at..at + n]);
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
    fn frame(&mut self, head: FrameHead, from: usize, told: &mut impl FnMut(News<'_>)) -> Result<(), AnyError> {
        let payload = from..from + head.length;
        match head.kind {
            kind::HEADERS => {
                let mut block = &self.input.bytes[payload];
                if head.has(flag::PADDED) {
                    let (&pad, rest) = block.split_first().ok_or("an empty padded frame")?;
                    block = rest.get(..rest.len().saturating_sub(pad.into())).unwrap_or_default();
                }
                if head.has(flag::PRIORITY) {
                    block = block.get(5..).ok_or("a frame that is too short")?;
                }
                self.input.partial.block.clear();
                self.input.partial.block.extend_from_slice(block);
                self.input.partial.block_ends = head.has(flag::END_STREAM);
                self.block(head, told)?;
            }
            kind::CONTINUATION => {
                self.input.partial.block.extend_from_slice(&self.input.bytes[payload]);
                self.block(head, told)?;
            }
            kind::RST_STREAM => {
                let code = Reason(number31(&self.input.bytes[payload]).unwrap_or_default());
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
                let echoed: [u8; 8] = self.input.bytes[payload].try_into().map_err(|_| "a ping that is not 8 bytes")?;
                self.send(kind::PING, flag::ACK, 0, &echoed);
            }
            kind::GOAWAY => self.goaway(payload, told)?,
            kind::WINDOW_UPDATE => {
                let more = i64::from(number31(&self.input.bytes[payload]).unwrap_or_default());
                let window = match head.stream {
                    0 => Some(&mut self.allowed.window),
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
    fn goaway(&mut self, payload: std::ops::Range<usize>, told: &mut impl FnMut(News<'_>)) -> Result<(), AnyError> {
        let payload = &self.input.bytes[payload];
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
    fn block(&mut self, head: FrameHead, told: &mut impl FnMut(News<'_>)) -> Result<(), AnyError> {
        if self.input.partial.block.len() > BLOCK_BYTES_MAX {
            return Err(format!("a header block of more than {BLOCK_BYTES_MAX} bytes").into());
        }
        if !head.has(flag::END_HEADERS) {
            return Ok(());
        }
        let call = self.calls.iter_mut().find(|c| c.stream == head.stream);
        let (mut status, mut text, mut http_status) = (None, String::new(), String::new());
        self.input
            .decoder
            .decode(&self.input.partial.block, |name, value| match (name, value) {
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
        if self.input.partial.block_ends {
            self.ended(head.stream, told);
        }
        Ok(())
    }

    fn settings(&mut self, payload: std::ops::Range<usize>) -> Result<(), AnyError> {
        for entry in self.input.bytes[payload].chunks_exact(6) {
            let name = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match name {
                setting::HEADER_TABLE_SIZE => self.output.encoder.resize(value as usize),
                setting::MAX_CONCURRENT_STREAMS => self.allowed.streams = self.streams_wanted.min(value as usize),
                setting::INITIAL_WINDOW_SIZE if value > WINDOW => return Err("a window beyond its limit".into()),
                setting::INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - self.allowed.window_of_new;
                    self.allowed.window_of_new = i64::from(value);
                    self.calls.iter_mut().for_each(|c| c.window += more);
                }
                setting::MAX_FRAME_SIZE if value < FRAME_BYTES_MIN => return Err("frames below their limit".into()),
                setting::MAX_FRAME_SIZE => self.allowed.frame_bytes = value as usize,
                _ => {}
            }
        }
        if self.allowed.streams == 0 { Err("the server allows no streams".into()) } else { Ok(()) }
    }

    /// When the oldest request was sent, or the connection was opened if the server did not begin yet.
    pub fn oldest(&self) -> Option<Instant> {
        let asked = self.calls.iter().filter_map(|c| c.asked.as_ref()).map(|asked| asked.sent).min();
        if self.ready { asked } else { Some(self.opened) }
    }

    /// Ends what took longer than `limit`.
    pub fn expire(&mut self, limit: Duration, text: &str, told: &mut impl FnMut(News<'_>)) -> Result<(), AnyError> {
        // Without its settings nothing can be sent, and what it does not read would pile up.
        if !self.ready || !self.output.buffer.is_empty() {
            return Err(text.into());
        }
        let is_late = |c: &ClientCall| c.asked.as_ref().is_some_and(|asked| asked.sent.elapsed() >= limit);
        while let Some(i) = self.calls.iter().position(is_late) {
            self.abandon(i, text, true, told);
        }
        Ok(())
    }

    /// One turn: what came, the calls that are due, one write. Ready when `next` has no more and every call ended, with
    /// true, or when the server wants to end the connection, with false.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        next: &mut impl FnMut(&mut Context<'_>) -> Poll<Option<Instant>>,
        told: &mut impl FnMut(News<'_>),
    ) -> Poll<Result<bool, AnyError>> {
        // All that there is to read before anything is written: one write then serves as many calls as can be.
        loop {
            let mut buffer = ReadBuf::new(&mut self.input.bytes[self.input.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(result) => result?,
            }
            let n = buffer.filled().len();
            if n == 0 {
                return Poll::Ready(Err("the server closed the connection".into()));
            }
            self.input.filled += n;
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
        if !self.output.buffer.is_empty() && !std::mem::replace(&mut self.output.yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.output.yielded = false;
        let is_idle = self.calls.iter().all(|c| c.asked.is_none());
        if is_over && is_idle {
            for i in 0..self.calls.len() {
                self.send(kind::DATA, flag::END_STREAM, self.calls[i].stream, &[]);
            }
            self.calls.clear();
        }
        while !self.output.buffer.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let n = self.output.buffer.slices(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..n]) {
                Poll::Ready(written) => self.output.buffer.advance(written?),
                Poll::Pending => break,
            }
        }
        if self.output.buffer.is_empty() {
            self.output.control_bytes = 0;
        }
        // Plain ones have nothing to flush; TLS keeps what the socket did not take.
        if let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx) {
            return Poll::Ready(Err(e.into()));
        }
        let is_spent = self.is_closing || self.next_stream >= STREAM_MAX;
        if is_idle && (is_over || is_spent) { Poll::Ready(Ok(is_over)) } else { Poll::Pending }
    }

    /// When the requests in flight were due. They are lost with the connection.
    pub fn lost(&mut self) -> Vec<Instant> {
        self.calls.drain(..).filter_map(|call| call.asked).map(|asked| asked.due).collect()
    }
}
