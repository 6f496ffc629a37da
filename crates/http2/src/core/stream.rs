//! Streams and their table.

use super::stall::StallTimer;
use crate::collect::Collect;
use crate::frame::Reason;
use crate::head::RequestHead;
use crate::limits::PIECES_MAX;
use crate::pieces::Pieces;
use bytes::Bytes;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

/// Progress of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sending {
    #[default]
    Nothing,
    /// The head was sent.
    Body,
    /// The caller has finished; part of the body is still queued.
    Ending,
    /// The last frame is in the output.
    Done,
}

/// Follows the last byte of a response.
#[derive(Debug)]
pub enum BodyEnd {
    /// A flag in the last DATA frame.
    Data,
    /// Trailers, encoded so that they may be sent at any time.
    Trailers(Vec<u8>),
}

/// A stream, while it is on the wire or has a handle.
#[derive(Default)]
pub struct Stream {
    pub id: u32,
    /// True while frames of it may come or be sent.
    pub on_wire: bool,
    pub handles: u8,
    pub has_body: bool,
    pub head: Option<Rc<RequestHead>>,
    pub body: Incoming,
    pub answer: Outgoing,
    /// Set if the stream ended early.
    pub reset: Option<Reason>,
}

/// The body of a request.
#[derive(Default)]
pub struct Incoming {
    /// The client has sent the whole body.
    pub received_all: bool,
    pub received: Pieces,
    /// Memory that the body is read into, as far as it has room.
    pub target: Option<Box<dyn Collect>>,
    /// Remaining window in bytes.
    pub window: i64,
    /// Received bytes that the caller has not released.
    pub unreleased: usize,
    /// Released bytes that no WINDOW_UPDATE has announced.
    pub unannounced: usize,
    /// Announced bytes of the body that have not come.
    pub length_left: Option<u64>,
    pub waker: Option<Waker>,
    /// The stream was answered early; the rest of the body is dropped.
    pub lingers: bool,
    /// Dropped bytes.
    pub discarded: usize,
    /// The caller is between two messages, so no timeout applies to the body.
    pub is_paused: bool,
    /// Received bytes: a progress mark for `timeouts`.
    pub received_bytes: u64,
    pub stall: StallTimer,
}

/// The response.
#[derive(Default)]
pub struct Outgoing {
    pub sending: Sending,
    /// Send window; negative if the client has shrunk it.
    pub window: i64,
    pub queue: VecDeque<Bytes>,
    pub queued: usize,
    pub end: Option<BodyEnd>,
    /// True while in the list of streams that may send.
    pub is_listed: bool,
    pub waker: Option<Waker>,
    /// The caller waits for `capacity`.
    pub wants_room: bool,
    /// Bytes moved to the output: a progress mark for `timeouts`.
    pub sent_bytes: u64,
    pub stall: StallTimer,
}

impl Stream {
    fn begin(&mut self, id: u32) {
        self.id = id;
        self.on_wire = true;
        self.handles = 0;
        self.has_body = false;
        self.body.received_all = false;
        self.body.unreleased = 0;
        self.body.unannounced = 0;
        self.body.length_left = None;
        self.answer.sending = Sending::Nothing;
        self.reset = None;
        (self.body.lingers, self.body.is_paused, self.answer.wants_room) = (false, false, false);
        (self.body.discarded, self.body.received_bytes, self.answer.sent_bytes) = (0, 0, 0);
        (self.body.stall, self.answer.stall) = (StallTimer::default(), StallTimer::default());
        // `is_listed` stays: the list entry remains and serves the next stream in this slot.
    }

    /// Frees the memory of a finished stream; its small tables stay for the next one.
    fn clear(&mut self) {
        self.head = None;
        self.body.received.clear();
        self.body.target = None;
        self.body.waker = None;
        self.answer.waker = None;
        self.drop_queue();
    }

    /// Drops queued output.
    pub fn drop_queue(&mut self) {
        self.answer.queue.clear();
        self.answer.queue.shrink_to(PIECES_MAX);
        self.answer.queued = 0;
        self.answer.end = None;
    }

    /// Wakes the reader and the writer.
    pub fn wake_all(&mut self) {
        self.wake_body();
        self.wake_sender();
    }

    /// Wakes the reader of the body.
    pub fn wake_body(&mut self) {
        if let Some(waker) = self.body.waker.take() {
            waker.wake();
        }
    }

    /// True if the caller waits for more of the body and has nothing else to do.
    pub fn awaits_body(&self) -> bool {
        self.has_body && !self.body.is_paused && self.body.waker.is_some() && self.body.received.is_empty()
    }

    /// Whether only the client can continue the body, and the response. Takes the windows of the connection.
    pub fn awaits_client(&self, receive_window: i64, send_window: i64) -> (bool, bool) {
        let body = !self.body.received_all && self.awaits_body() && self.body.window > 0 && receive_window > 0;
        let has_something = self.answer.queued > 0 || self.answer.wants_room;
        let room = has_something
            && matches!(self.answer.sending, Sending::Body | Sending::Ending)
            && (self.answer.window <= 0 || send_window <= 0);
        (body, room)
    }

    /// Wakes the writer of the response.
    pub fn wake_sender(&mut self) {
        self.answer.wants_room = false;
        if let Some(waker) = self.answer.waker.take() {
            waker.wake();
        }
    }
}

/// The streams of a connection. A key is valid while its stream is on the wire or has a handle.
#[derive(Default)]
pub struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// Id and key of the streams on the wire, in order, as ids only grow.
    wire: VecDeque<(u32, u32)>,
    /// Number of lingering streams on the wire.
    lingering: usize,
}

impl Streams {
    pub fn len(&self) -> usize {
        self.wire.len()
    }

    pub fn lingering(&self) -> usize {
        self.lingering
    }

    /// Keeps an answered stream on the wire.
    pub fn linger(&mut self, key: u32) {
        if let Some(stream) = self.slots.get_mut(key as usize).filter(|s| s.on_wire && !s.body.lingers) {
            stream.body.lingers = true;
            self.lingering += 1;
        }
    }

    /// Slots in use, for tests.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Begins a stream; its id must be larger than all before it.
    pub fn open(&mut self, id: u32) -> (u32, Option<&mut Stream>) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Stream::default());
            self.slots.len() as u32 - 1
        });
        self.wire.push_back((id, key));
        let stream = self.slots.get_mut(key as usize);
        (key, stream.map(|s| (s.begin(id), s).1))
    }

    pub fn get(&mut self, key: u32) -> Option<&mut Stream> {
        self.slots.get_mut(key as usize)
    }

    fn place(&self, id: u32) -> Option<usize> {
        // Usually one of a few, and the oldest.
        match self.wire.front() {
            Some((first, _)) if *first == id => Some(0),
            _ => self.wire.binary_search_by_key(&id, |w| w.0).ok(),
        }
    }

    /// The key of a stream on the wire.
    pub fn find(&self, id: u32) -> Option<u32> {
        self.place(id).and_then(|at| self.wire.get(at)).map(|w| w.1)
    }

    pub fn take_off_wire(&mut self, key: u32) {
        let Some(stream) = self.slots.get_mut(key as usize).filter(|s| s.on_wire) else { return };
        stream.on_wire = false;
        self.lingering -= usize::from(std::mem::take(&mut stream.body.lingers));
        let id = stream.id;
        if let Some(at) = self.place(id) {
            self.wire.remove(at);
        }
        self.reap(key);
    }

    /// Frees the slot once the stream is off the wire and has no handle.
    pub fn reap(&mut self, key: u32) {
        let Some(stream) = self.slots.get_mut(key as usize) else { return };
        if !stream.on_wire && stream.handles == 0 {
            stream.clear();
            self.free.push(key);
        }
    }

    /// Wakes all writers that wait for room.
    pub fn wake_senders(&mut self) {
        for (_, key) in &self.wire {
            if let Some(stream) = self.slots.get_mut(*key as usize) {
                stream.wake_sender();
            }
        }
    }

    /// Keys of the streams on the wire.
    pub fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.wire.iter().map(|w| w.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reused_once_off_the_wire_and_without_handles() {
        let mut streams = Streams::default();
        let keys: Vec<u32> = (0..5).map(|n| streams.open(2 * n + 1).0).collect();
        streams.get(keys[2]).unwrap().handles = 1;
        streams.take_off_wire(keys[2]);
        streams.take_off_wire(keys[4]);
        assert_eq!((streams.find(5), streams.find(7), streams.len(), streams.used()), (None, Some(keys[3]), 3, 4));
        assert_eq!(streams.open(11).0, keys[4]);
        streams.get(keys[2]).unwrap().handles = 0;
        streams.reap(keys[2]);
        assert_eq!((streams.open(13).0, streams.find(13)), (keys[2], Some(keys[2])));
    }
}
