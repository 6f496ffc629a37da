//! The state of a connection and what changes it, without I/O: `receive` takes bytes, `send` makes them, this file has what both
//! need and the way a connection ends.
//!
//! Invariant: a stream is in the table while the wire or a handle knows it; `reset` is set before a task is woken for it.

mod closed;
mod direct;
mod patience;
mod receive;
mod send;
mod stream;
mod trouble;

#[cfg(test)]
mod tests;

use crate::frame::{FRAME_BYTES_MIN, FrameHead, Reason, WINDOW_DEFAULT, kind, setting};
use crate::handle::{Request, Responder};
use crate::heads::Heads;
use crate::hpack::{Decoder, Encoder};
use crate::ledger::Ledger;
use crate::limits::{DIRECT_FRAMES_MAX, OUTPUT_BYTES_MAX};
use crate::options::Options;
use crate::output::Output;
use bytes::BytesMut;
use closed::{By, Closed};
pub use direct::Read;
pub(crate) use patience::Look;
use patience::Patience;
use receive::{Block, Data};
pub(crate) use send::{Collected, register};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
pub(crate) use stream::Pieces;
use stream::{Sending, Streams};
use trouble::{Strikes, Trouble};

/// Payload of pings that ask whether the client is there.
const ALIVE: [u8; 8] = *b"alive?\0\0";
/// Payload of the ping that tells when a client has heard that we are leaving.
const LEAVING: [u8; 8] = *b"leaving\0";
/// The largest id there can be.
const ID_MAX: u32 = 0x7fff_ffff;

/// How far the end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// The client was asked to leave and has not answered: what it sent meanwhile is served.
    Asked,
    /// Calls up to this one are served.
    After(u32),
    /// Nothing is read or served; what is in the output is the last word.
    Failed,
}

/// Why a connection has to end.
struct Fatal(Reason, &'static str);

pub(crate) struct Core {
    options: Options,
    closing: Closing,

    // Receiving.
    /// Bytes of the client's preface that came; then its SETTINGS have to follow.
    prefaced: bool,
    /// The client sent something else in its place.
    pub(crate) is_stray: bool,
    settled: bool,
    /// The client has acknowledged our SETTINGS.
    acknowledged: bool,
    /// What was left over of the last read: bytes of the beginning of a frame.
    known_bytes: usize,
    /// The turn was over before all of the last read was looked at.
    has_rest: bool,
    /// Bytes that came, and frames, of which a header block is one: marks for `patience`.
    received_bytes: u64,
    frames: u64,
    /// A frame whose payload is thrown away: bytes left.
    skip: usize,
    data: Option<Data>,
    /// Stream and payload of the last DATA frame: the next one is likely to be the same.
    last_data: (u32, usize),
    /// How many such frames a read is laid out for: it grows as they come and falls when others do.
    trust: usize,
    block: Option<Block>,
    decoder: Decoder,
    heads: Heads,
    ledger: Ledger,
    last_id: u32,
    closed: Closed,
    patience: Patience,
    receive_window: i64,
    untold: usize,
    empty_frames: u32,
    trouble: Trouble,
    strikes: Strikes,
    accepted: VecDeque<u32>,

    // Sending.
    output: Output,
    encoder: Encoder,
    send_window: i64,
    peer_window: i64,
    peer_frame_bytes: usize,
    ready: VecDeque<u32>,
    /// An unanswered ping of ours.
    pinged: bool,
    ponged: bool,
    pings_without_data: u32,

    streams: Streams,
    /// The driver's, taken when it is woken.
    pub(crate) waker: Option<Waker>,
    /// The driver will look at the output by itself: it need not be woken.
    pub(crate) in_turn: bool,
}

impl Core {
    fn new(options: Options) -> Self {
        let mut core = Self {
            options,
            closing: Closing::No,
            prefaced: false,
            is_stray: false,
            settled: false,
            acknowledged: false,
            known_bytes: 0,
            has_rest: false,
            received_bytes: 0,
            frames: 0,
            skip: 0,
            data: None,
            last_data: (0, 0),
            trust: DIRECT_FRAMES_MAX,
            block: None,
            decoder: Decoder::new(),
            heads: Heads::default(),
            ledger: Ledger::new(options.freed, options.head_room),
            last_id: 0,
            closed: Closed::default(),
            patience: Patience::default(),
            receive_window: i64::from(options.connection_window.max(WINDOW_DEFAULT)),
            untold: 0,
            empty_frames: 0,
            trouble: Trouble::default(),
            strikes: Strikes::default(),
            accepted: VecDeque::new(),
            output: Output::default(),
            encoder: Encoder::new(options.fixed),
            send_window: i64::from(WINDOW_DEFAULT),
            peer_window: i64::from(WINDOW_DEFAULT),
            peer_frame_bytes: FRAME_BYTES_MIN as usize,
            ready: VecDeque::new(),
            pinged: false,
            ponged: false,
            pings_without_data: 0,
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
        core.put_frame(kind::SETTINGS, 0, 0, &payload);
        if let Some(more @ 1..) = options.connection_window.checked_sub(WINDOW_DEFAULT) {
            core.put_frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        core
    }

    /// Puts a small frame into the output.
    fn put_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let tail = self.output.tail();
        tail.extend_from_slice(&FrameHead { length: payload.len(), kind, flags, stream }.bytes());
        tail.extend_from_slice(payload);
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
        self.closing != Closing::Failed && self.output.len() < OUTPUT_BYTES_MAX
    }

    /// Whether the connection is over once the output is written.
    fn is_finished(&self) -> bool {
        match self.closing {
            Closing::Failed => true,
            // Those that linger have their answer; the driver reads on for a moment.
            Closing::After(_) => self.streams.len() == self.streams.lingering() && self.accepted.is_empty(),
            Closing::No | Closing::Asked => false,
        }
    }

    /// Whether nothing may be written yet: what a client reads that speaks another protocol must not begin with frames.
    pub(crate) fn holds_back(&self) -> bool {
        !self.prefaced && (self.closing == Closing::No || self.is_stray)
    }

    /// Ends the connection with a last word.
    fn fail(&mut self, Fatal(reason, text): Fatal) {
        if self.closing == Closing::Failed {
            return;
        }
        let mut payload = Vec::with_capacity(8 + text.len());
        payload.extend_from_slice(&self.last_id.to_be_bytes());
        payload.extend_from_slice(&reason.0.to_be_bytes());
        payload.extend_from_slice(text.as_bytes());
        self.put_frame(kind::GOAWAY, 0, 0, &payload);
        self.abandon(reason);
    }

    /// Nothing more comes or goes: every stream ends.
    pub(crate) fn abandon(&mut self, reason: Reason) {
        self.closing = Closing::Failed;
        (self.data, self.block) = (None, None);
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
        if self.prefaced {
            self.put_goaway(ID_MAX);
            self.put_frame(kind::PING, 0, 0, &LEAVING);
            self.closing = Closing::Asked;
        } else {
            // It has not said anything that could be under way.
            self.leave_after(self.last_id);
        }
        self.wake_driver();
    }

    fn leave_after(&mut self, id: u32) {
        self.put_goaway(id);
        self.closing = Closing::After(id);
    }

    fn put_goaway(&mut self, id: u32) {
        let ([a, b, c, d], [e, f, g, h]) = (id.to_be_bytes(), Reason::NO_ERROR.0.to_be_bytes());
        self.put_frame(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
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
        self.closed.reset(id, By::Us);
        self.put_frame(kind::RST_STREAM, 0, id, &reason.0.to_be_bytes());
    }

    /// Keeps an answered stream, whose body has not all come, for a while: see `limits::EARLY_ANSWER_TIME`.
    fn linger(&mut self, key: u32) {
        self.streams.linger(key);
        self.wake_driver();
    }

    /// Counts trouble; false when it was too much, and the connection ends.
    fn tolerate(&mut self, now: Instant) -> Result<(), Fatal> {
        match self.trouble.add(now) {
            true => Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many resets, settings or pings")),
            false => Ok(()),
        }
    }

    /// The body of a stream is not wanted any more.
    pub(crate) fn drop_body(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.has_body = false;
        stream.target = None;
        while stream.received.pop().is_some() {}
        let unreleased = std::mem::take(&mut stream.unreleased);
        self.discard(key, unreleased);
        self.drop_handle(key);
    }

    /// Whether the caller waits for more of a body, or only for the next thing that may come.
    pub(crate) fn rest(&mut self, key: u32, rests: bool) {
        if let Some(stream) = self.streams.get(key) {
            stream.rests = rests;
        }
    }

    /// A handle of a stream is gone.
    pub(crate) fn drop_handle(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.handles = stream.handles.saturating_sub(1);
        if stream.handles > 0 {
            return;
        }
        match stream.sending {
            _ if !stream.on_wire => self.streams.reap(key),
            // `pump` sees to it that the stream ends.
            Sending::Ending => {}
            // Answered before all was read. The client stops sending by itself, or is told to later.
            Sending::Done => self.linger(key),
            Sending::Nothing | Sending::Body => self.reset(key, Reason::CANCEL),
        }
    }

    pub(crate) fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// A server's side of one connection, without I/O.
pub struct Machine {
    pub(crate) core: Rc<RefCell<Core>>,
}

impl Machine {
    /// A connection that begins.
    pub fn new(options: Options) -> Self {
        Self { core: Rc::new(RefCell::new(Core::new(options))) }
    }

    /// Takes whole frames, and of DATA frames what is there, from the front of `bytes`. What is left is the beginning of a frame, or
    /// was not wanted (see `may_read`), or is for the next turn (see `has_rest`).
    pub fn receive(&mut self, bytes: &mut BytesMut, now: Instant) {
        self.core.borrow_mut().receive(bytes, now);
    }

    /// Reads into the body that is being received, where that has room for it; see `Body::collect`. Else `None`, and nothing was
    /// read. `rest` is what `receive` left over.
    pub fn read_direct(
        &mut self,
        rest: &mut BytesMut,
        now: Instant,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Poll<std::io::Result<usize>>,
    ) -> Option<Poll<std::io::Result<Read>>> {
        self.core.borrow_mut().read_direct(rest, now, read)
    }

    /// How many bytes are missing until `receive` can do something, as far as is known: for the size of a read.
    pub fn wanted(&self) -> usize {
        self.core.borrow().data.as_ref().map_or(0, |d| d.left)
    }

    /// Whether `receive` is to be called again, in another turn, before more is read: it had many frames, and the turn was over.
    pub fn has_rest(&self) -> bool {
        let core = self.core.borrow();
        core.has_rest && core.closing != Closing::Failed
    }

    /// Whether calls came that were not taken.
    pub fn has_calls(&self) -> bool {
        !self.core.borrow().accepted.is_empty()
    }

    /// A call that came.
    pub fn accept(&mut self) -> Option<(Request, Responder)> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        loop {
            let key = core.accepted.pop_front()?;
            let Some(stream) = core.streams.get(key) else { continue };
            // The places in the queue are handles too: a slot is not used again before it was seen here.
            if !stream.on_wire {
                core.drop_body(key);
                continue;
            }
            let Some(head) = stream.head.take() else { continue };
            stream.handles += 1;
            let is_end = stream.received_all;
            return Some(Request::new(head, &self.core, key, is_end));
        }
    }

    /// Whether more bytes should be given to `receive`: not while the client leaves our output where it is, and not at the end.
    pub fn may_read(&self) -> bool {
        self.core.borrow().may_read()
    }

    /// Whether the connection is over once everything is written.
    pub fn is_finished(&self) -> bool {
        self.core.borrow().is_finished()
    }

    /// Whether it ends because of something the client did.
    pub fn is_failed(&self) -> bool {
        self.core.borrow().closing == Closing::Failed
    }

    /// Moves what may be sent to the end of `to`. For callers without vectored writes: it copies.
    pub fn transmit(&mut self, to: &mut Vec<u8>) {
        let mut core = self.core.borrow_mut();
        loop {
            core.pump();
            if core.output.is_empty() {
                return;
            }
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let n = core.output.slices(&mut slices);
            let mut bytes = 0;
            for slice in slices.iter().take(n) {
                to.extend_from_slice(slice);
                bytes += slice.len();
            }
            core.output.advance(bytes);
        }
    }

    /// Whether the client does not speak HTTP/2.
    pub fn is_stray(&self) -> bool {
        self.core.borrow().is_stray
    }

    /// Asks the client to make no more calls. The connection is over when those under way are.
    pub fn leave(&mut self) {
        self.core.borrow_mut().leave();
    }

    /// Tells the client that no further call is served. The connection is over when those that came are.
    pub fn leave_now(&mut self) {
        let mut core = self.core.borrow_mut();
        if matches!(core.closing, Closing::No | Closing::Asked) {
            let last = core.last_id;
            core.leave_after(last);
            core.wake_driver();
        }
    }

    /// Asks the client whether it is there; false when it is being asked, or may not be again before something else is sent.
    pub fn ping(&mut self) -> bool {
        let mut core = self.core.borrow_mut();
        let max = core.options.pings.sent_without_data_max;
        if core.pinged || !core.settled || (max > 0 && core.pings_without_data >= max) {
            return false;
        }
        core.pinged = true;
        core.pings_without_data += 1;
        core.put_frame(kind::PING, 0, 0, &ALIVE);
        core.wake_driver();
        true
    }

    /// Whether the client has answered a ping since this was last asked.
    pub fn take_pong(&mut self) -> bool {
        std::mem::take(&mut self.core.borrow_mut().ponged)
    }

    /// How long until `look` has to be called; `None` while a client may be silent.
    pub fn look_after(&self) -> Option<Duration> {
        self.core.borrow().look_after()
    }

    /// Gives up what has been waited for too long; false when the connection is to be closed at once, as the client takes
    /// nothing of what is written.
    pub fn look(&mut self, now: Instant) -> bool {
        self.core.borrow_mut().look(now) == Look::GoOn
    }

    /// Whether calls were answered of which the client still sends the body.
    pub fn is_lingering(&self) -> bool {
        self.core.borrow().streams.lingering() > 0
    }

    /// Ends every stream: the client is gone.
    pub fn abandon(&mut self) {
        self.core.borrow_mut().abandon(Reason::CANCEL);
    }

    /// Streams the client has open.
    pub fn streams(&self) -> usize {
        self.core.borrow().streams.len()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.abandon();
    }
}
