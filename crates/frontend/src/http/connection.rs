//! One HTTP/1 connection: read a head, read its body, answer, write, again. Requests are answered one at a time and in
//! order; requests that a client sends ahead wait in the buffer.
//!
//! While a request is being answered the socket is watched: if the client disconnects, the future of the response is
//! dropped, and with it the inference (P 1.1). The meaning of requests is in `exchange`.

use super::body::RequestBody;
use super::chunked::{ChunkError, Chunks, Progress};
use super::context::HttpContext;
use super::events::{Event, Events};
use super::reply::{BodyParts, JSON, Reply};
use super::request::{BadRequest, Framing, RequestHead, head_length};
use super::service;
use crate::assemble::{Assembler, grow};
use crate::exchange::{BodyPlace, Exchange, HttpExchange, refuse_head};
use crate::hold;
use crate::idle::IdleHandle;
use crate::limits::{
    ANSWERS_PER_LOOK, BODY_STALL_TIME_MAX, DISCARD_BYTES_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, INLINE_BODY_BYTES_MAX,
    LINGER_BYTES_MAX, LINGER_TIME_MAX, READ_AHEAD_BYTES_MAX, SLOW_TIME_MAX, STALLED_BODY_GIVES_WAY_TIME,
    STALLED_BODY_LOOK_INTERVAL, STEP_BYTES,
};
use crate::origin::{Caller, Client};
use crate::record::WHY;
use crate::rope::Rope;
use crate::socket::Io;
use crate::stray;
use crate::table::routes;
use crate::transfer::Shortage;
use bytes::{Buf, Bytes, BytesMut};
use memory::{Account, Charge, Kind, Short};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tensor::{Data, RegionMemory, RegionRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const READ_BYTES: usize = 16 * 1024;
/// A body of at most this size is copied behind the head: one plain write is cheaper than a vectored one.
const JOIN_BYTES_MAX: usize = 2048;
/// Small events that are ready at once are written together, up to this size.
const EVENTS_WRITE_BYTES: usize = 16 * 1024;
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Runs one write of a response, with a timeout. The timer is created only if the work has to wait.
async fn with_timeout<T>(place: &IdleHandle, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut work = pin!(work);
    if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return result;
    }
    place.transfer().wait_for(Some(Shortage::SlowResponse));
    let result = Box::pin(timeout(BODY_STALL_TIME_MAX, work)).await;
    place.transfer().wait_for(None);
    result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// `with_timeout` for a read of a body that may hold memory: if other requests wait for memory, a stalled body fails.
async fn with_body_timeout(
    account: &Account,
    place: &IdleHandle,
    work: impl Future<Output = io::Result<usize>>,
) -> Result<usize, BodyError> {
    let mut work = pin!(work);
    let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
    let read = match polled {
        Poll::Ready(result) => result?,
        Poll::Pending => {
            place.transfer().wait_for(Some(Shortage::SlowBody));
            // Boxed: most reads do not wait, and the future of each connection has the size of its largest state.
            let read = Box::pin(wait_for_body(account, place, work)).await;
            place.transfer().wait_for(None);
            read?
        }
    };
    place.transfer().moved(read);
    Ok(read)
}

async fn wait_for_body(
    account: &Account,
    place: &IdleHandle,
    mut work: Pin<&mut impl Future<Output = io::Result<usize>>>,
) -> Result<usize, BodyError> {
    let mut stalled = Duration::ZERO;
    while stalled < BODY_STALL_TIME_MAX {
        if place.transfer().is_too_slow() {
            return Err(BodyError::Slow);
        }
        if let Ok(result) = timeout(STALLED_BODY_LOOK_INTERVAL, work.as_mut()).await {
            return Ok(result?);
        }
        stalled += STALLED_BODY_LOOK_INTERVAL;
        if stalled >= STALLED_BODY_GIVES_WAY_TIME && account.used() > 0 && account.is_short() {
            return Err(BodyError::Stalled(stalled));
        }
    }
    Err(BodyError::Gone)
}

/// Waits for memory for a body until its client disconnects.
///
/// A client that closed its side counts as disconnected, as it does while it is answered. This is noticed if the kernel
/// had room for all it sent: the end of a connection comes after its bytes.
async fn while_connected(io: &impl Io, wait: impl Future<Output = Result<(), Short>>) -> Result<(), BodyError> {
    let mut wait = pin!(wait);
    if let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await {
        return Ok(result?);
    }
    // Boxed: few connections ever wait, and the future of each has the size of its largest state.
    let mut left = Box::pin(io.left());
    poll_fn(|cx| match wait.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(result.map_err(BodyError::from)),
        Poll::Pending => left.as_mut().poll(cx).map(|()| Err(BodyError::Gone)),
    })
    .await
}

/// Reason why the connection has no next request.
enum Stop {
    /// The client closed the connection, or reading failed.
    Gone,
    /// The client speaks HTTP/2.
    Http2,
    /// The client speaks TLS at a plain port.
    Tls,
    /// The head is rejected with this response.
    Reject(Box<Reply>),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<BodyError> for Stop {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Short(short) => Self::Reject(Box::new(Reply::short(&short))),
            _ => Self::Gone,
        }
    }
}

impl From<BadRequest> for Stop {
    fn from(bad: BadRequest) -> Self {
        Self::Reject(Box::new(Reply::text_error(400, JSON, &bad.0).closing()))
    }
}

struct Connection<S> {
    io: S,
    place: IdleHandle,
    /// Bytes that were read and not yet used.
    buffer: BytesMut,
    /// Head of the reply being written; kept for its memory.
    out: Vec<u8>,
    /// Memory of the connection beyond the initial size of `buffer` and `out`.
    account: Account,
    /// Charge of a body in `buffer` beyond its initial size, until it is answered.
    charge: Option<Charge>,
    /// Charge of heads in `buffer` beyond its initial size: of requests sent ahead, or a very long one.
    ahead: Option<Charge>,
}

/// Serves a connection until it ends.
pub async fn run<S: Io>(io: S, context: Arc<HttpContext>, caller: Caller, place: IdleHandle) {
    let mut connection = Connection {
        io,
        place,
        buffer: BytesMut::with_capacity(READ_BYTES),
        out: Vec::with_capacity(512),
        account: context.shared.budget().account(),
        charge: None,
        ahead: None,
    };
    let client = Client::from(caller);
    let mut first = true;
    let mut head = RequestHead::default();
    loop {
        if !connection.buffer.is_empty() {
            // The client has sent its next request, and perhaps many more: other clients are served in between.
            hold::pause().await;
        }
        connection.place.wait();
        let read = connection.read_head(&mut head, first).await;
        connection.place.work();
        match read {
            Ok(()) => connection.place.work_on_request(),
            Err(Stop::Gone) => return,
            Err(Stop::Tls) => return context.shared.strays().note_tls(&caller, false),
            Err(Stop::Http2) => {
                let Connection { io, buffer, place, .. } = connection;
                return super::h2c::run(io, buffer, context, caller, &place).await;
            }
            Err(Stop::Reject(reply)) => {
                let refused = refuse_head(&context, &caller, "http/1.1", &reply);
                if connection.write(*reply, None, true, false, false).await.is_ok() {
                    // Its line in the access log is written now, not after the wait for the client.
                    refused.sent();
                    connection.place.wait();
                    connection.linger().await;
                }
                return;
            }
        }
        first = false;
        if connection.buffer.len() <= READ_BYTES {
            connection.ahead = None;
        }
        let exchanged = connection.exchange(&head, &context, &client).await;
        head.clear();
        match exchanged {
            Ok(true) => {}
            Ok(false) => {
                connection.place.wait();
                return connection.linger().await;
            }
            Err(_) => return,
        }
    }
}

impl<S: Io> Connection<S> {
    /// Answers one request; `Ok(false)` if the connection must be closed after it.
    async fn exchange(&mut self, head: &RequestHead, context: &Arc<HttpContext>, client: &Client) -> io::Result<bool> {
        let protocol = if head.http11 { "http/1.1" } else { "http/1.0" };
        let (exchange, admission) = HttpExchange::begin(context, client, head, protocol, routes::find, &self.account);
        // Bytes to come of a body that is not read, before the next request.
        let mut unread = 0;
        let (mut reply, reusable) = match admission {
            Err(reply) => {
                let left = self.skip_body(head);
                unread = left.unwrap_or_default();
                (*reply, left.is_some())
            }
            Ok(bytes_max) => match self.read_body(&exchange, bytes_max).await {
                Ok(body) => {
                    let Self { io, buffer, account, ahead, .. } = self;
                    let mut answer = pin!(service::respond(&exchange, body));
                    let reply = poll_fn(|cx| match answer.as_mut().poll(cx) {
                        Poll::Ready(reply) => Poll::Ready(Some(reply)),
                        Poll::Pending => poll_watch(io, buffer, account, ahead, cx).map(|()| None),
                    });
                    match reply.await {
                        Some(reply) => (reply, true),
                        None => {
                            exchange.needs_record();
                            return Ok(false);
                        }
                    }
                }
                Err(BodyError::NotWanted(reply)) => {
                    let left = self.skip_body(head);
                    unread = left.unwrap_or_default();
                    (*reply, left.is_some())
                }
                // The end of a rejected body is unknown or far away: no further request can be read.
                Err(BodyError::TooLarge(n)) => (exchange.too_large(n), false),
                Err(BodyError::Malformed(why)) => (Reply::text_error(400, JSON, why), false),
                Err(BodyError::Short(short)) => (exchange.short(&short), false),
                Err(BodyError::Stalled(time)) => {
                    self.account.count_refusal();
                    (stalled(time), false)
                }
                Err(BodyError::Slow) => (too_slow(), false),
                Err(BodyError::Gone) => return Err(io::ErrorKind::UnexpectedEof.into()),
            },
        };
        // One request at a time: the account holds the charge of its body, which may be part of the response.
        exchange.complete(&mut reply, self.account.used());
        // Without chunks, the end of a streamed body is the end of the connection.
        let has_end = head.http11 || reply.rest.is_none();
        let keep = head.keep_alive && reusable && has_end && !reply.close && !context.shared.is_parting();
        self.write(reply, Some(&exchange.with), head.http11, keep, head.is_head).await?;
        exchange.sent();
        self.charge = None;
        drop(exchange);
        // After the response, so that the client does not wait for it.
        Ok(keep && self.discard(unread).await)
    }

    async fn read_head(&mut self, head: &mut RequestHead, first: bool) -> Result<(), Stop> {
        let mut seen = 0;
        let mut deadline = None;
        let mut skipped = false;
        loop {
            // Some clients end a body with an empty line that is not part of it (RFC 9112, 2.2).
            if !skipped && self.buffer.starts_with(b"\r\n") {
                self.buffer.advance(2);
                (seen, skipped) = (0, true);
            }
            if !self.buffer.is_empty() {
                if first && self.buffer.starts_with(HTTP2_PREFACE) {
                    return Err(Stop::Http2);
                }
                if first && !S::IS_ENCRYPTED && stray::is_tls(&self.buffer) {
                    return Err(Stop::Tls);
                }
                if let Some(length) = head_length(&self.buffer, seen)? {
                    return Ok(head.read(self.buffer.split_to(length).freeze())?);
                }
                seen = self.buffer.len();
                if seen > READ_BYTES && self.ahead.is_none() {
                    let mut charge = self.account.empty(Kind::Head, true);
                    while_connected(&self.io, grow(&mut charge, HEAD_BYTES_MAX)).await?;
                    self.ahead = Some(charge);
                }
            }
            // The timeout starts with the first byte: an idle connection may stay open.
            let read = match (seen, deadline) {
                (0, _) => self.fill().await?,
                (_, None) => {
                    deadline = Some(tokio::time::Instant::now() + HEAD_TIME_MAX);
                    continue;
                }
                (_, Some(at)) => tokio::time::timeout_at(at, self.fill()).await.map_err(|_| Stop::Gone)??,
            };
            if read == 0 {
                return Err(Stop::Gone);
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        fill(&mut self.io, &mut self.buffer).await
    }

    /// `fill` with the timeout of a body.
    async fn fill_body(&mut self) -> Result<(), BodyError> {
        hold::pause().await;
        match with_body_timeout(&self.account, &self.place, fill(&mut self.io, &mut self.buffer)).await? {
            0 => Err(BodyError::Gone),
            _ => Ok(()),
        }
    }

    async fn read_body(&mut self, exchange: &HttpExchange<'_>, bytes_max: u64) -> Result<RequestBody, BodyError> {
        let head = exchange.head;
        if may_be_spared(head)
            && let Some(reply) = exchange.reject_early()
        {
            return Err(BodyError::NotWanted(Box::new(reply)));
        }
        let (mut is_later, mut tail) = (false, None);
        let bytes = match head.framing {
            Framing::Length(0) => Ok(Bytes::new()),
            Framing::Length(length) if length > bytes_max => Err(BodyError::TooLarge(length)),
            Framing::Length(length) => {
                let length = usize::try_from(length).map_err(|_| BodyError::TooLarge(length))?;
                is_later = self.buffer.len() < length;
                if is_later {
                    self.send_continue(head).await?;
                }
                match exchange.body_place(length, S::TAKES_REGIONS) {
                    BodyPlace::Buffer => self.read_inline(length).await,
                    BodyPlace::Region { json, region } => {
                        let (bytes, filled) = Box::pin(self.read_region(json, region)).await?;
                        tail = filled;
                        Ok(bytes)
                    }
                    BodyPlace::Slab { near_device } => self.read_slab(head, length, near_device).await,
                }
            }
            Framing::Chunked => {
                is_later = true;
                self.send_continue(head).await?;
                self.read_chunked(bytes_max).await
            }
        };
        let bytes = bytes?;
        if is_later {
            exchange.with.record.body_came();
        }
        Ok(RequestBody { bytes, tail, sends_regions: S::TAKES_REGIONS })
    }

    async fn send_continue(&mut self, head: &RequestHead) -> io::Result<()> {
        if head.expect {
            write_all(&mut self.io, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        Ok(())
    }

    /// Reads a small body, which stays in the buffer, without a copy.
    async fn read_inline(&mut self, length: usize) -> Result<Bytes, BodyError> {
        if length > READ_BYTES {
            self.charge_small(length).await?;
        }
        if let Some(missing) = length.checked_sub(self.buffer.len()) {
            self.buffer.reserve(missing);
        }
        while self.buffer.len() < length {
            self.fill_body().await?;
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn charge_small(&mut self, bytes: usize) -> Result<(), BodyError> {
        let mut charge = self.account.empty(Kind::Body, true);
        while_connected(&self.io, grow(&mut charge, bytes)).await?;
        self.charge = Some(charge);
        Ok(())
    }

    /// Reads a large body directly into a slab of its size.
    async fn read_slab(&mut self, head: &RequestHead, length: usize, near_device: bool) -> Result<Bytes, BodyError> {
        // Shifts the body so that the raw tensors, which follow the JSON, are aligned.
        let json = head.json_length().filter(|&json| json <= length);
        let shift = json.map_or(0, |n| (64 - n % 64) % 64);
        let mut body = Assembler::new(length, shift, &self.account, near_device)?;
        self.collect(&mut body).await?;
        Ok(body.into_bytes())
    }

    /// Reads the JSON head of a body, and the rest directly into a region.
    async fn read_region(&mut self, json: usize, region: RegionRef) -> Result<(Bytes, Option<RegionRef>), BodyError> {
        let head = self.read_inline(json).await?;
        let mut tail = Assembler::into_region(region, &self.account)?;
        self.collect(&mut tail).await?;
        Ok((head, tail.into_filled()))
    }

    /// Reads the rest of a body of known length.
    async fn collect(&mut self, body: &mut Assembler) -> Result<(), BodyError> {
        while body.missing() > 0 {
            while_connected(&self.io, body.room()).await?;
            let taken = body.push(&self.buffer);
            if taken > 0 {
                self.buffer.advance(taken);
                continue;
            }
            let Self { io, account, place, .. } = self;
            let read = match body.spare_region() {
                Some((region, range)) => {
                    let read = poll_fn(|cx| io.poll_receive(cx, &**region, range.clone()));
                    with_body_timeout(account, place, read).await?
                }
                None => with_body_timeout(account, place, io.read(body.spare())).await?,
            };
            match read {
                0 => return Err(BodyError::Gone),
                n => body.filled(n),
            }
            hold::pause().await;
        }
        Ok(())
    }

    async fn read_chunked(&mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        let (mut chunks, mut small, mut large) = (Chunks::new(bytes_max), BytesMut::new(), None);
        loop {
            match chunks.next(&mut self.buffer)? {
                Progress::Data(data) => {
                    let length = small.len() + data.len();
                    if large.is_none() && length > INLINE_BODY_BYTES_MAX {
                        // The length is unknown: reserves address space, which is cheap, so that the body never moves.
                        let length_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.account.most());
                        let mut body = Assembler::growing(length_max.max(length), &self.account)?;
                        let begun = std::mem::take(&mut small);
                        while_connected(&self.io, body.collect(&begun)).await?;
                        self.charge = None;
                        large = Some(body);
                    }
                    match &mut large {
                        Some(body) => while_connected(&self.io, body.collect(&data)).await?,
                        None => {
                            if length > READ_BYTES && self.charge.is_none() {
                                self.charge_small(INLINE_BODY_BYTES_MAX).await?;
                            }
                            small.extend_from_slice(&data);
                        }
                    }
                }
                Progress::More => {
                    self.fill_body().await?;
                    hold::pause().await;
                }
                Progress::Done => return Ok(large.map_or_else(|| small.freeze(), Assembler::into_bytes)),
            }
        }
    }

    /// Discards the received part of a body of which nothing was read. Returns the bytes to come; `None` if they are
    /// too many, unknown or malformed, and the connection must be closed.
    fn skip_body(&mut self, head: &RequestHead) -> Option<usize> {
        match head.framing {
            Framing::Length(0) => Some(0),
            // The client may wait for a `100 Continue`, which is not sent.
            _ if head.expect => None,
            Framing::Length(length) if length > DISCARD_BYTES_MAX => None,
            Framing::Length(length) => {
                let length = usize::try_from(length).ok()?;
                let here = length.min(self.buffer.len());
                self.buffer.advance(here);
                Some(length - here)
            }
            Framing::Chunked => {
                let mut chunks = Chunks::new(DISCARD_BYTES_MAX);
                loop {
                    match chunks.next(&mut self.buffer) {
                        Ok(Progress::Data(_)) => {}
                        Ok(Progress::Done) => return Some(0),
                        _ => return None,
                    }
                }
            }
        }
    }

    /// Reads and discards `left` bytes; false if they do not arrive.
    async fn discard(&mut self, mut left: usize) -> bool {
        while left > 0 {
            if self.fill_body().await.is_err() {
                return false;
            }
            let taken = left.min(self.buffer.len());
            self.buffer.advance(taken);
            left -= taken;
        }
        true
    }

    /// `exchange`: of the reply, unless its head was invalid.
    async fn write(
        &mut self,
        mut reply: Reply,
        exchange: Option<&Exchange>,
        http11: bool,
        keep_alive: bool,
        is_head: bool,
    ) -> io::Result<()> {
        self.out.clear();
        reply.write_head(&mut self.out, http11, keep_alive);
        if is_head {
            return with_timeout(&self.place, write_all(&mut self.io, &self.out)).await;
        }
        let chunked = reply.chunked && http11;
        let length = reply.body_length();
        if chunked && length > 0 {
            self.out.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        }
        if let Some(events) = reply.rest.take() {
            return Box::pin(self.write_events(reply.body, events, exchange, chunked)).await;
        }
        let end: &'static [u8] = match (chunked, length) {
            (false, _) => b"",
            (true, 0) => b"0\r\n\r\n",
            (true, _) => b"\r\n0\r\n\r\n",
        };
        if !reply.tail.is_empty() {
            return Box::pin(self.write_regions(reply)).await;
        }
        if length <= JOIN_BYTES_MAX {
            for part in &reply.body {
                self.out.extend_from_slice(part);
            }
            self.out.extend_from_slice(end);
            return with_timeout(&self.place, write_all(&mut self.io, &self.out)).await;
        }
        self.write_out(Rope::new(reply.body.into_iter().chain(std::iter::once(Bytes::from_static(end))))).await
    }

    /// Writes `out` and then `rest`.
    async fn write_out(&mut self, mut rest: Rope) -> io::Result<()> {
        let mut head = self.out.as_slice();
        while !head.is_empty() || rest.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 8];
            let [first, others @ ..] = &mut slices;
            let n = if head.is_empty() {
                rest.chunks_vectored(&mut slices)
            } else {
                *first = IoSlice::new(head);
                1 + rest.chunks_vectored(others)
            };
            // One piece is written without a vector: saves half a microsecond per response of a stream.
            let written = match slices.get(..n).unwrap_or_default() {
                [one] => with_timeout(&self.place, self.io.write(one)).await?,
                several => with_timeout(&self.place, self.io.write_vectored(several)).await?,
            };
            self.place.transfer().moved(written);
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let of_head = written.min(head.len());
            head = head.get(of_head..).unwrap_or_default();
            rest.advance(written - of_head);
            if rest.has_remaining() {
                hold::pause().await;
            }
        }
        with_timeout(&self.place, self.io.flush()).await
    }

    /// Writes `out` and a body of which some parts lie in regions.
    async fn write_regions(&mut self, reply: Reply) -> io::Result<()> {
        // The head of the body is short unless outputs before the first in a region are not.
        if reply.body.iter().map(Bytes::len).sum::<usize>() <= JOIN_BYTES_MAX {
            reply.body.iter().for_each(|part| self.out.extend_from_slice(part));
        } else {
            self.write_out(Rope::new(reply.body.into_iter())).await?;
            self.out.clear();
        }
        for part in reply.tail {
            match part {
                Data::Bytes(bytes) => {
                    self.write_out(bytes.into()).await?;
                    self.out.clear();
                }
                Data::Region(region) => self.write_region(&*region).await?,
            }
        }
        with_timeout(&self.place, self.io.flush()).await
    }

    /// Writes `out` and then a region.
    async fn write_region(&mut self, region: &dyn RegionMemory) -> io::Result<()> {
        let (mut front, mut at) = (0, 0);
        while at < region.len() {
            let Self { io, out, place, .. } = self;
            let head = out.get(front..).unwrap_or_default();
            let range = at..region.len().min(at + STEP_BYTES);
            let written = with_timeout(place, poll_fn(|cx| io.poll_send(cx, head, region, range.clone()))).await?;
            place.transfer().moved(written);
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let of_head = written.min(head.len());
            front += of_head;
            at += written - of_head;
            hold::pause().await;
        }
        self.out.clear();
        Ok(())
    }

    /// Writes `first`, whose size line is in `out` if it is a chunk, and then each event as soon as it is ready.
    /// Watches the client while it waits. Responses that the client does not read stay in the inbox, which counts them.
    async fn write_events(
        &mut self,
        first: BodyParts,
        mut events: Box<Events>,
        exchange: Option<&Exchange>,
        chunked: bool,
    ) -> io::Result<()> {
        let end: &'static [u8] = if chunked { b"\r\n" } else { b"" };
        // A small event is written together with those that are ready.
        if first.iter().map(Bytes::len).sum::<usize>() <= JOIN_BYTES_MAX {
            first.iter().for_each(|part| self.out.extend_from_slice(part));
            self.out.extend_from_slice(end);
        } else {
            let first = Rope::new(first.into_iter().chain(std::iter::once(Bytes::from_static(end))));
            self.write_out(first).await?;
            self.out.clear();
        }
        loop {
            // Events that are ready at once are written together.
            let mut large = None;
            let mut is_over = false;
            let mut taken = 0u32;
            poll_fn(|cx| {
                while large.is_none() && self.out.len() < EVENTS_WRITE_BYTES {
                    if taken.is_multiple_of(ANSWERS_PER_LOOK) && !self.out.is_empty() && hold::is_due() {
                        break;
                    }
                    taken = taken.wrapping_add(1);
                    match events.poll_next(cx) {
                        Poll::Ready(Some(event)) => large = put_event(&mut self.out, event, chunked),
                        Poll::Ready(None) => {
                            is_over = true;
                            break;
                        }
                        Poll::Pending if !self.out.is_empty() => break,
                        Poll::Pending => {
                            let Self { io, buffer, account, ahead, .. } = &mut *self;
                            return poll_watch(io, buffer, account, ahead, cx)
                                .map(|()| Err(io::Error::from(io::ErrorKind::UnexpectedEof)));
                        }
                    }
                }
                Poll::Ready(Ok(()))
            })
            .await?;
            if is_over && chunked {
                self.out.extend_from_slice(b"0\r\n");
                if let Some(why) = exchange.and_then(|exchange| exchange.why()) {
                    [WHY, ": ", &why, "\r\n"].iter().for_each(|part| self.out.extend_from_slice(part.as_bytes()));
                }
                self.out.extend_from_slice(b"\r\n");
            }
            self.write_out(large.unwrap_or_default()).await?;
            self.out.clear();
            if is_over {
                return Ok(());
            }
            hold::pause().await;
        }
    }

    /// Closes so that the client can read the response: closing a socket with unread data resets the connection, and
    /// the reset may overtake the response.
    async fn linger(&mut self) {
        let drain = async {
            if self.io.shutdown().await.is_err() {
                return;
            }
            let mut left = LINGER_BYTES_MAX;
            loop {
                hold::pause().await;
                self.buffer.clear();
                match self.fill().await {
                    Ok(n) if n > 0 && n < left => left -= n,
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER_TIME_MAX, drain).await;
    }
}

/// Whether a body may be long or awaits `100 Continue`: then the head is checked for errors before the body is read.
fn may_be_spared(head: &RequestHead) -> bool {
    head.expect || !matches!(head.framing, Framing::Length(length) if length <= DISCARD_BYTES_MAX)
}

/// Writes and flushes: a TLS socket may buffer.
async fn write_all(io: &mut impl Io, bytes: &[u8]) -> io::Result<()> {
    io.write_all(bytes).await?;
    io.flush().await
}

async fn fill(io: &mut impl Io, buffer: &mut BytesMut) -> io::Result<usize> {
    if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
        buffer.reserve(READ_BYTES);
    }
    io.read_buf(buffer).await
}

/// Ready once the client has disconnected. Reads ahead up to a limit, or less if there is no memory: beyond it a
/// disconnect is noticed only when the response is written.
fn poll_watch(
    io: &mut impl Io,
    buffer: &mut BytesMut,
    account: &Account,
    ahead: &mut Option<Charge>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    while buffer.len() < READ_AHEAD_BYTES_MAX {
        if buffer.len() > READ_BYTES && ahead.is_none() {
            *ahead = account.charge(Kind::Head, true, READ_AHEAD_BYTES_MAX).ok();
            if ahead.is_none() {
                return Poll::Pending;
            }
        }
        match pin!(fill(io, buffer)).poll(cx) {
            Poll::Ready(Ok(n)) if n > 0 => {}
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Pending
}

/// Appends an event, as a chunk or as it is. A large part is not copied but returned, to be written next.
fn put_event(out: &mut Vec<u8>, event: Event, chunked: bool) -> Option<Rope> {
    if chunked {
        // Writing to a vector does not fail.
        let _ = write!(out, "{:x}\r\n", event.bytes());
    }
    let end: &'static [u8] = if chunked { b"\r\n" } else { b"" };
    if event.bytes() > JOIN_BYTES_MAX {
        return Some(Rope::new(event.parts.into_iter().chain([Bytes::from_static(end)])));
    }
    event.parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(end);
    None
}

fn stalled(time: Duration) -> Reply {
    let text = format!(
        "no byte of the request body arrived for {} s, while other requests wait for its memory (--memory-limit)",
        time.as_secs()
    );
    Reply::text_error(408, JSON, &text).closing()
}

#[cold]
fn too_slow() -> Reply {
    let text = format!(
        "the request body arrived more slowly than --slow-client-bytes-per-sec for {} s, while connections or memory \
         are short",
        SLOW_TIME_MAX.as_secs()
    );
    Reply::text_error(408, JSON, &text).closing()
}

/// Reason why a body was not read. The connection ends after the response, if there is one.
enum BodyError {
    /// The head is rejected with this response.
    NotWanted(Box<Reply>),
    /// The body is longer than allowed: its length so far.
    TooLarge(u64),
    /// The framing is invalid: the error text.
    Malformed(&'static str),
    /// There is no memory for the body.
    Short(Short),
    /// The body made no progress for this time, and other requests wait for its memory.
    Stalled(Duration),
    /// The client was too slow while connections or memory ran short.
    Slow,
    /// The client disconnected or stopped sending.
    Gone,
}

impl From<io::Error> for BodyError {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<Short> for BodyError {
    fn from(short: Short) -> Self {
        Self::Short(short)
    }
}

impl From<ChunkError> for BodyError {
    fn from(broken: ChunkError) -> Self {
        match broken {
            ChunkError::TooLarge(bytes) => Self::TooLarge(bytes),
            ChunkError::Malformed(why) => Self::Malformed(why),
        }
    }
}
