//! The state of a connection and what changes it, without I/O: `receive` takes bytes, `send` makes them, this file has what both
//! need and the way a connection ends. [`Machine`] is its face.
//!
//! Invariant: a stream is in the table while the wire or a handle knows it; `reset` is set before a task is woken for it.

mod calls;
mod closed;
mod direct;
mod ending;
mod machine;
mod patience;
mod reading;
mod receive;
mod send;
mod still;
mod stream;
mod tolerance;
mod trouble;
mod writing;

#[cfg(test)]
mod tests;

pub use direct::Read;
pub use machine::Machine;

use crate::frame::{Reason, WINDOW_DEFAULT, kind, setting};
use crate::limits::OUTPUT_BYTES_MAX;
use crate::options::Options;
use crate::output::Output;
use calls::Calls;
use closed::By;
use ending::{Closing, Fatal};
use reading::{Handshake, Reading};
use std::task::Waker;
use stream::{Sending, Streams};
use tolerance::Tolerance;
use writing::Writing;

/// Payload of pings that ask whether the client is there.
const ALIVE: [u8; 8] = *b"alive?\0\0";
/// Payload of the ping that tells when a client has heard that we are leaving.
const LEAVING: [u8; 8] = *b"leaving\0";
/// The largest id there can be.
const ID_MAX: u32 = 0x7fff_ffff;

pub(crate) struct Core {
    options: Options,
    closing: Closing,
    pub(crate) handshake: Handshake,
    reading: Reading,
    calls: Calls,
    /// Bytes that may still come before we say that there is room for more.
    receive_window: i64,
    /// Bytes that were released and of which the client was not told.
    untold: usize,
    tolerance: Tolerance,
    writing: Writing,
    pings: Pings,
    streams: Streams,
    /// The driver's, taken when it is woken.
    pub(crate) waker: Option<Waker>,
    /// The driver will look at the output by itself: it need not be woken.
    pub(crate) in_turn: bool,
}

/// Pings of ours, which ask whether the client is there.
#[derive(Default)]
struct Pings {
    /// One is not answered yet.
    asked: bool,
    /// One was answered since this was last looked at.
    answered: bool,
    /// Sent since anything else was.
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
            untold: 0,
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

    /// Lets the driver know that there is something to write.
    fn wake_driver(&mut self) {
        if !self.in_turn
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// Whether more may be read: not while the peer does not take what we say.
    fn may_read(&self) -> bool {
        self.closing != Closing::Failed && self.writing.output.len() < OUTPUT_BYTES_MAX
    }

    /// Whether the connection is over once the output is written.
    fn is_finished(&self) -> bool {
        match self.closing {
            Closing::Failed => true,
            // Those that linger have their answer; the driver reads on for a moment.
            Closing::After(_) => self.streams.len() == self.streams.lingering() && self.calls.accepted.is_empty(),
            Closing::No | Closing::Asked => false,
        }
    }

    /// Whether nothing may be written yet: what a client reads that speaks another protocol must not begin with frames.
    pub(crate) fn holds_back(&self) -> bool {
        !self.handshake.prefaced && (self.closing == Closing::No || self.handshake.is_stray)
    }

    /// Ends the connection with a last word.
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

    /// Nothing more comes or goes: every stream ends.
    pub(crate) fn abandon(&mut self, reason: Reason) {
        self.closing = Closing::Failed;
        (self.reading.data, self.reading.block) = (None, None);
        let keys: Vec<u32> = self.streams.keys().collect();
        for key in keys {
            self.end_stream(key, reason);
        }
    }

    /// Asks the client to leave: no new calls, those that are there are finished.
    fn leave(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        if self.handshake.prefaced {
            self.writing.put_goaway(ID_MAX);
            self.writing.put_frame(kind::PING, 0, 0, &LEAVING);
            self.closing = Closing::Asked;
        } else {
            // It has not said anything that could be under way.
            self.leave_after(self.calls.last_id);
        }
        self.wake_driver();
    }

    fn leave_after(&mut self, id: u32) {
        self.writing.put_goaway(id);
        self.closing = Closing::After(id);
    }

    /// Takes a stream off the wire before its time and tells its handles.
    fn end_stream(&mut self, key: u32, reason: Reason) {
        let Some(stream) = self.streams.get(key).filter(|s| s.on_wire) else { return };
        stream.reset = Some(reason);
        stream.drop_queue();
        stream.wake_all();
        self.streams.leave_wire(key);
    }

    /// Tells the client that a stream is over, and takes it off the wire.
    fn reset(&mut self, key: u32, reason: Reason) {
        let Some(id) = self.streams.get(key).filter(|s| s.on_wire).map(|s| s.id) else { return };
        self.put_reset(id, reason);
        self.end_stream(key, reason);
        self.wake_driver();
    }

    /// Tells the client that a stream is over.
    fn put_reset(&mut self, id: u32, reason: Reason) {
        self.calls.closed.reset(id, By::Us);
        self.writing.put_frame(kind::RST_STREAM, 0, id, &reason.0.to_be_bytes());
    }

    /// Keeps an answered stream, whose body has not all come, for a while: see `limits::EARLY_ANSWER_TIME`.
    fn linger(&mut self, key: u32) {
        self.streams.linger(key);
        self.wake_driver();
    }

    /// The body of a stream is not wanted any more.
    pub(crate) fn drop_body(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.has_body = false;
        stream.body.target = None;
        while stream.body.received.pop().is_some() {}
        let unreleased = std::mem::take(&mut stream.body.unreleased);
        self.discard(key, unreleased);
        self.drop_handle(key);
    }

    /// Whether the caller waits for more of a body, or only for the next thing that may come.
    pub(crate) fn rest(&mut self, key: u32, rests: bool) {
        if let Some(stream) = self.streams.get(key) {
            stream.body.rests = rests;
        }
    }

    /// A handle of a stream is gone.
    pub(crate) fn drop_handle(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.handles = stream.handles.saturating_sub(1);
        if stream.handles > 0 {
            return;
        }
        match stream.answer.sending {
            _ if !stream.on_wire => self.streams.reap(key),
            // `pump` sees to it that the stream ends.
            Sending::Ending => {}
            // Answered before all was read. The client stops sending by itself, or is told to later.
            Sending::Done => self.linger(key),
            Sending::Nothing | Sending::Body => self.reset(key, Reason::CANCEL),
        }
    }

    pub(crate) fn output(&mut self) -> &mut Output {
        &mut self.writing.output
    }
}
