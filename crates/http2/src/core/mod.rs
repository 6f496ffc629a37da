//! State of a connection and its changes, without I/O: `receive` reads frames, `send` writes them; this file has their
//! common part and the end of a connection. [`Machine`] is the interface.
//!
//! Invariant: a stream is in the table while the wire or a handle knows it; `reset` is set before tasks are woken.

mod calls;
mod closed;
mod direct;
mod ending;
mod machine;
mod progress;
mod reading;
mod receive;
mod send;
mod stall;
mod stream;
mod timeouts;
mod tolerance;
mod trouble;
mod writing;

#[cfg(test)]
mod tests;

pub use direct::Read;
pub use machine::Machine;
pub use progress::{ConnectionProgress, Waits};

use crate::frame::{Reason, WINDOW_DEFAULT, kind, setting};
use crate::limits::OUTPUT_BYTES_MAX;
use crate::options::Options;
use crate::output::OutputBuffer;
use calls::Calls;
use closed::ResetBy;
use ending::{Closing, Fatal};
use reading::{Handshake, Reading};
use std::task::Waker;
use stream::{Sending, Streams};
use tolerance::Tolerance;
use writing::Writing;

/// Payload of pings that check whether the client is alive.
const ALIVE: [u8; 8] = *b"alive?\0\0";
/// Payload of the ping whose answer shows that the client has received our GOAWAY.
const DRAINING: [u8; 8] = *b"leaving\0";
/// Largest possible stream id.
const ID_MAX: u32 = 0x7fff_ffff;

pub(crate) struct Core {
    options: Options,
    closing: Closing,
    pub(crate) handshake: Handshake,
    reading: Reading,
    calls: Calls,
    /// Remaining window of the connection in bytes.
    receive_window: i64,
    /// Released bytes that no WINDOW_UPDATE has announced.
    unannounced: usize,
    tolerance: Tolerance,
    writing: Writing,
    pings: Pings,
    streams: Streams,
    /// The driver's waker, taken when it is woken.
    pub(crate) waker: Option<Waker>,
    /// The driver is running and will check the output itself.
    pub(crate) in_turn: bool,
}

/// Our own pings.
#[derive(Default)]
struct Pings {
    /// One is unanswered.
    pending: bool,
    /// One was answered since the last `take_pong`.
    answered: bool,
    /// Pings since other output.
    without_data: u32,
}

impl Core {
    fn new(options: Options) -> Self {
        let mut core = Self {
            options,
            closing: Closing::No,
            handshake: Handshake::default(),
            reading: Reading::default(),
            calls: Calls::new(&options),
            receive_window: i64::from(options.connection_window.max(WINDOW_DEFAULT)),
            unannounced: 0,
            tolerance: Tolerance::default(),
            writing: Writing::new(&options),
            pings: Pings::default(),
            streams: Streams::default(),
            waker: None,
            in_turn: true,
        };
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, options.streams_max),
            (setting::INITIAL_WINDOW_SIZE, options.stream_window),
            (setting::MAX_FRAME_SIZE, options.frame_bytes_max),
            (setting::MAX_HEADER_LIST_SIZE, options.header_list_bytes_max),
        ];
        let mut payload = [0; 24];
        for (to, (id, value)) in payload.chunks_exact_mut(6).zip(settings) {
            let ([a, b], [c, d, e, f]) = (id.to_be_bytes(), value.to_be_bytes());
            to.copy_from_slice(&[a, b, c, d, e, f]);
        }
        core.writing.put_frame(kind::SETTINGS, 0, 0, &payload);
        if let Some(more @ 1..) = options.connection_window.checked_sub(WINDOW_DEFAULT) {
            core.writing.put_frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        core
    }

    /// Wakes the driver, because there is output.
    fn wake_driver(&mut self) {
        if !self.in_turn
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// False while the peer leaves too much output unread.
    fn may_read(&self) -> bool {
        self.closing != Closing::Failed && self.writing.output.len() < OUTPUT_BYTES_MAX
    }

    /// True if the connection ends once the output is written.
    fn is_finished(&self) -> bool {
        match self.closing {
            Closing::Failed => true,
            // Lingering streams have their response; the driver reads on for a moment.
            Closing::After(_) => self.streams.len() == self.streams.lingering() && self.calls.accepted.is_empty(),
            Closing::No | Closing::Announced => false,
        }
    }

    /// True while nothing may be written: a client of another protocol must not receive HTTP/2 frames.
    pub(crate) fn holds_back(&self) -> bool {
        !self.handshake.prefaced && (self.closing == Closing::No || self.handshake.is_stray)
    }

    /// Ends the connection with a GOAWAY.
    fn fail(&mut self, Fatal(reason, text): Fatal) {
        if self.closing == Closing::Failed {
            return;
        }
        let mut payload = Vec::with_capacity(8 + text.len());
        payload.extend_from_slice(&self.calls.last_id.to_be_bytes());
        payload.extend_from_slice(&reason.0.to_be_bytes());
        payload.extend_from_slice(text.as_bytes());
        self.writing.put_frame(kind::GOAWAY, 0, 0, &payload);
        self.abandon(reason);
    }

    /// Ends every stream, because the connection is over.
    pub(crate) fn abandon(&mut self, reason: Reason) {
        self.closing = Closing::Failed;
        (self.reading.data, self.reading.block) = (None, None);
        let keys: Vec<u32> = self.streams.keys().collect();
        for key in keys {
            self.end_stream(key, reason);
        }
    }

    /// Sends GOAWAY: open calls are finished, new ones are refused.
    fn drain(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        if self.handshake.prefaced {
            self.writing.put_goaway(ID_MAX);
            self.writing.put_frame(kind::PING, 0, 0, &DRAINING);
            self.closing = Closing::Announced;
        } else {
            // The client has not finished the handshake, so no call is under way.
            self.drain_after(self.calls.last_id);
        }
        self.wake_driver();
    }

    fn drain_after(&mut self, id: u32) {
        self.writing.put_goaway(id);
        self.closing = Closing::After(id);
    }

    /// Takes a stream off the wire early and wakes its handles.
    fn end_stream(&mut self, key: u32, reason: Reason) {
        let Some(stream) = self.streams.get(key).filter(|s| s.on_wire) else { return };
        stream.reset = Some(reason);
        stream.drop_queue();
        stream.wake_all();
        self.streams.take_off_wire(key);
    }

    /// Resets a stream and takes it off the wire.
    fn reset(&mut self, key: u32, reason: Reason) {
        let Some(id) = self.streams.get(key).filter(|s| s.on_wire).map(|s| s.id) else { return };
        self.put_reset(id, reason);
        self.end_stream(key, reason);
        self.wake_driver();
    }

    /// Writes RST_STREAM.
    fn put_reset(&mut self, id: u32, reason: Reason) {
        self.calls.closed.reset(id, ResetBy::Us);
        self.writing.put_frame(kind::RST_STREAM, 0, id, &reason.0.to_be_bytes());
    }

    /// Keeps an answered stream with an incomplete body for a while: see `limits::EARLY_ANSWER_TIME`.
    fn linger(&mut self, key: u32) {
        self.streams.linger(key);
        self.wake_driver();
    }

    /// Drops the body of a stream.
    pub(crate) fn drop_body(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.has_body = false;
        stream.body.target = None;
        while stream.body.received.pop().is_some() {}
        let unreleased = std::mem::take(&mut stream.body.unreleased);
        self.discard(key, unreleased);
        self.drop_handle(key);
    }

    /// Sets whether the caller rests between two messages instead of waiting for the body.
    pub(crate) fn pause(&mut self, key: u32, is_paused: bool) {
        if let Some(stream) = self.streams.get(key) {
            stream.body.is_paused = is_paused;
        }
    }

    /// Drops a handle of a stream.
    pub(crate) fn drop_handle(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.handles = stream.handles.saturating_sub(1);
        if stream.handles > 0 {
            return;
        }
        match stream.answer.sending {
            _ if !stream.on_wire => self.streams.reap(key),
            // `pump` ends the stream.
            Sending::Ending => {}
            // Answered before the whole body was read. The client stops sending by itself, or is reset later.
            Sending::Done => self.linger(key),
            Sending::Nothing | Sending::Body => self.reset(key, Reason::CANCEL),
        }
    }

    pub(crate) fn output(&mut self) -> &mut OutputBuffer {
        &mut self.writing.output
    }
}
