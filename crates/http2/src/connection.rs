//! Drives a [`Machine`] over a socket: one read per turn, all calls it contained, one write.

use crate::core::{ConnectionProgress, Machine};
use crate::handle::{Request, StreamWriter};
use crate::limits::{LINGER, LINGER_BYTES_MAX, READ_BYTES, READ_BYTES_MAX, TURN_BYTES};
use crate::options::Options;
use crate::socket::Socket;
use crate::yielding::yield_turn;
use bytes::BytesMut;
use std::future::Future;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::AsyncReadExt;
use tokio::time::{Sleep, sleep};

/// Slices of one vectored write.
const SLICES: usize = 32;

/// True if other tasks should have their turn. Asks again only after another `TURN_BYTES`.
fn is_over(moved: &mut usize, is_turn_over: fn() -> bool) -> bool {
    if *moved < TURN_BYTES {
        return false;
    }
    let is_over = is_turn_over();
    if !is_over {
        *moved = 0;
    }
    is_over
}

enum ConnectionState {
    Open,
    /// The last frame is written. Closing the socket with unread bytes would keep the client from reading that frame.
    Lingering {
        left: usize,
        until: Pin<Box<Sleep>>,
    },
    Over,
}

/// The server's side of one connection over a socket.
pub struct Connection<T> {
    io: T,
    machine: Machine,
    buffer: BytesMut,
    /// Size of the next read.
    read_bytes: usize,
    /// The last read filled its buffer, had bytes that a caller waits for, or exceeded a turn: others go first.
    is_full: bool,
    /// Bytes read and written in this turn, or since `is_turn_over` last allowed more.
    moved: usize,
    is_turn_over: fn() -> bool,
    state: ConnectionState,
    /// When the machine next checks its timeouts; set while one runs.
    timer: Option<Pin<Box<Sleep>>>,
    is_armed: bool,
}

impl<T: Socket> Connection<T> {
    /// A new connection, of which `read` was read already.
    pub fn new(io: T, read: BytesMut, options: Options) -> Self {
        let mut machine = Machine::new(options);
        let mut buffer = read;
        if !buffer.is_empty() {
            machine.receive(&mut buffer, Instant::now());
        }
        Self {
            io,
            machine,
            buffer,
            read_bytes: READ_BYTES,
            is_full: false,
            moved: 0,
            is_turn_over: options.is_turn_over,
            state: ConnectionState::Open,
            timer: None,
            is_armed: false,
        }
    }

    /// Returns the next call; `None` when there will be no more and everything is written.
    ///
    /// Also reads and writes. Poll again in the same turn until it is pending: responses are written then, all
    /// together.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Request, StreamWriter)>> {
        self.machine.core.borrow_mut().in_turn = true;
        let poll = loop {
            let poll = self.poll_turn(cx);
            if poll.is_ready() || !matches!(self.state, ConnectionState::Open) {
                break poll;
            }
            match self.poll_timer(cx) {
                Poll::Pending => break poll,
                // An ended stream may have left frames to write.
                Poll::Ready(true) => {}
                Poll::Ready(false) => break self.end(),
            }
        };
        if poll.is_pending() {
            self.moved = 0;
            let mut core = self.machine.core.borrow_mut();
            core.in_turn = false;
            crate::wake::register(&mut core.waker, cx);
        }
        poll
    }

    /// Returns the socket of a client that does not speak HTTP/2, with the bytes it sent; nothing was written to it.
    /// For use after `poll_accept` has ended.
    pub fn into_stray(self) -> Option<(T, BytesMut)> {
        self.machine.is_stray().then_some((self.io, self.buffer))
    }

    /// Asks the client to make no more calls. `poll_accept` ends when the calls in progress are answered.
    pub fn drain(&mut self) {
        self.machine.drain();
    }

    /// Like `drain`, for a connection without calls: ends at once, without waiting for calls under way.
    pub fn drain_now(&mut self) {
        self.machine.drain_now();
    }

    /// A view of what the connection waits for.
    pub fn progress(&self) -> ConnectionProgress {
        self.machine.progress()
    }

    /// True if the client has no open stream.
    pub fn is_idle(&self) -> bool {
        self.machine.streams() == 0
    }

    /// Pings the client with the next write; returns false if a ping is unanswered or not allowed at this time.
    pub fn ping(&mut self) -> bool {
        self.machine.ping()
    }

    /// Returns true if the client has answered a ping since the last call.
    pub fn take_pong(&mut self) -> bool {
        self.machine.take_pong()
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Request, StreamWriter)>> {
        loop {
            if !matches!(self.state, ConnectionState::Open) {
                return self.poll_linger(cx).map(|()| None);
            }
            if let Some(call) = self.machine.accept() {
                return Poll::Ready(Some(call));
            }
            let Ok(is_written) = self.write(cx) else {
                return self.end();
            };
            if is_written && self.machine.is_finished() {
                if self.machine.is_failed() || self.machine.is_lingering() {
                    self.state = ConnectionState::Lingering { left: LINGER_BYTES_MAX, until: Box::pin(sleep(LINGER)) };
                    continue;
                }
                // Both sides are finished.
                let _ = Pin::new(&mut self.io).poll_shutdown(cx);
                return self.end();
            }
            // The readers of the received bytes go first; otherwise these would pile up.
            if std::mem::take(&mut self.is_full) || is_over(&mut self.moved, self.is_turn_over) {
                yield_turn(cx);
                return Poll::Pending;
            }
            if self.machine.has_rest() {
                self.receive();
                continue;
            }
            if !self.machine.may_read() {
                return Poll::Pending;
            }
            let Self { machine, buffer, io, .. } = self;
            match machine.read_direct(buffer, Instant::now(), |slices| io.poll_read_vectored(cx, slices)) {
                Some(Poll::Ready(Ok(read))) if read.bytes > 0 => {
                    self.is_full = read.is_awaited || machine.has_rest();
                    self.moved += read.bytes;
                    continue;
                }
                Some(Poll::Ready(_)) => return self.end(),
                Some(Poll::Pending) => return Poll::Pending,
                None => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(n) if n > 0 => {
                    self.moved += n;
                    let filled = self.is_full;
                    self.receive();
                    // A body that fills one read after the other is read in larger ones. Calls are not: all calls of
                    // one read run before the first is answered.
                    self.read_bytes = match filled && !self.machine.has_calls() {
                        true => (2 * self.read_bytes).min(READ_BYTES_MAX),
                        false => READ_BYTES,
                    };
                }
                _ => return self.end(),
            }
        }
    }

    /// Passes received bytes to the machine, and ends the turn if they were too many for one.
    fn receive(&mut self) {
        self.machine.receive(&mut self.buffer, Instant::now());
        self.is_full |= self.machine.has_rest();
    }

    /// Ready when the machine has checked its timeouts; false if the connection has to close.
    ///
    /// A running timer is not moved, so that a busy connection sets one every few seconds instead of one per call.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(after) = self.machine.look_after() else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(after)));
        // Only lingering streams can be due before the running timer.
        let is_late = || self.machine.is_lingering() && timer.deadline() > tokio::time::Instant::now() + after;
        if !self.is_armed || is_late() {
            timer.as_mut().reset(tokio::time::Instant::now() + after);
            self.is_armed = true;
        }
        ready!(timer.as_mut().poll(cx));
        self.is_armed = false;
        // The clock of the timers, which tests can stop.
        Poll::Ready(self.machine.look(tokio::time::Instant::now().into_std()))
    }

    fn end(&mut self) -> Poll<Option<(Request, StreamWriter)>> {
        self.state = ConnectionState::Over;
        self.machine.abandon();
        Poll::Ready(None)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let want = self.machine.bytes_missing().clamp(self.read_bytes, READ_BYTES_MAX);
        if self.buffer.is_empty() && want == READ_BYTES && self.buffer.capacity() > 4 * READ_BYTES {
            // A large body has ended: its buffer is not kept for small reads.
            self.buffer = BytesMut::new();
        }
        if self.buffer.capacity() - self.buffer.len() < want / 4 {
            self.buffer.reserve(want);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let n = ready!(pin!(self.io.read_buf(&mut self.buffer)).poll(cx))?;
        self.is_full = n >= room;
        Poll::Ready(Ok(n))
    }

    /// Writes output, bounded by the turn; returns true if all of it was written.
    fn write(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        let mut core = self.machine.core.borrow_mut();
        if core.holds_back() {
            return if core.handshake.is_stray { Err(std::io::ErrorKind::InvalidData.into()) } else { Ok(true) };
        }
        loop {
            core.pump();
            let output = core.output();
            if output.is_empty() {
                // A socket that encrypts may still hold some of it.
                return match Pin::new(&mut self.io).poll_flush(cx) {
                    Poll::Pending => Ok(false),
                    Poll::Ready(result) => result.map(|()| true),
                };
            }
            if is_over(&mut self.moved, self.is_turn_over) {
                return Ok(false);
            }
            let io = Pin::new(&mut self.io);
            let poll = match output.single() {
                Some(slice) => io.poll_write(cx, slice),
                None => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let n = output.slices(&mut slices);
                    io.poll_write_vectored(cx, slices.get(..n).unwrap_or_default())
                }
            };
            match poll {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(result) => {
                    let n = result?;
                    self.moved += n;
                    output.advance(n);
                }
            }
        }
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ConnectionState::Lingering { left, until } = &mut self.state else { return Poll::Ready(()) };
        if ready!(Pin::new(&mut self.io).poll_shutdown(cx)).is_ok() {
            loop {
                self.buffer.clear();
                self.buffer.reserve(READ_BYTES);
                match pin!(self.io.read_buf(&mut self.buffer)).poll(cx) {
                    Poll::Ready(Ok(n)) if n > 0 && n < *left => *left -= n,
                    Poll::Ready(_) => break,
                    Poll::Pending if until.as_mut().poll(cx).is_ready() => break,
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
        self.state = ConnectionState::Over;
        Poll::Ready(())
    }
}
