//! One stream, and the table of them.

use super::still::Still;
use crate::collect::Collect;
use crate::frame::Reason;
use crate::head::RequestHead;
use crate::limits::PIECES_MAX;
use crate::pieces::Pieces;
use bytes::Bytes;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

/// How far the response is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sending {
    /// Nothing was sent.
    #[default]
    Nothing,
    /// The head was.
    Body,
    /// The caller has said all there is; some of it is still queued.
    Ending,
    /// The last frame is in the output.
    Done,
}

/// What follows the last byte of a response.
#[derive(Debug)]
pub enum End {
    /// The last DATA frame says so.
    Data,
    /// Trailers, encoded so that they mean the same at any time.
    Trailers(Vec<u8>),
}

/// A stream, for as long as the wire or a handle knows it.
#[derive(Default)]
pub struct Stream {
    pub id: u32,
    /// Whether frames of it may still come or go.
    pub on_wire: bool,
    /// Handles.
    pub handles: u8,
    pub has_body: bool,
    pub head: Option<Rc<RequestHead>>,
    pub body: Incoming,
    pub answer: Outgoing,
    /// The stream ended before its time.
    pub reset: Option<Reason>,
}

/// The body of a request.
#[derive(Default)]
pub struct Incoming {
    /// The client sent its last frame.
    pub received_all: bool,
    pub received: Pieces,
    /// Where the body goes instead, as far as it has room.
    pub target: Option<Box<dyn Collect>>,
    /// Bytes that may still come before we say that there is room for more.
    pub window: i64,
    /// Bytes that came and that the caller did not release.
    pub unreleased: usize,
    /// Bytes that were released and of which the client was not told.
    pub untold: usize,
    /// Bytes that the head announced and that did not come.
    pub length_left: Option<u64>,
    pub waker: Option<Waker>,
    /// The stream was answered before all of this came, and waits for the rest of it, which is thrown away.
    pub lingers: bool,
    /// Bytes that were thrown away.
    pub discarded: usize,
    /// The caller is between two messages: the client may take its time.
    pub rests: bool,
    /// Bytes that came: a mark for `patience`.
    pub received_bytes: u64,
    pub still: Still,
}

/// The response.
#[derive(Default)]
pub struct Outgoing {
    pub sending: Sending,
    /// May be negative: a client can change its mind about windows.
    pub window: i64,
    pub queue: VecDeque<Bytes>,
    pub queued: usize,
    pub end: Option<End>,
    /// In the list of streams that may send.
    pub is_listed: bool,
    pub waker: Option<Waker>,
    /// The caller waits for `capacity`.
    pub wants_room: bool,
    /// Bytes that went to the output: a mark for `patience`.
    pub sent_bytes: u64,
    pub still: Still,
}

impl Stream {
    fn begin(&mut self, id: u32) {
        self.id = id;
        self.on_wire = true;
        self.handles = 0;
        self.has_body = false;
        self.body.received_all = false;
        self.body.unreleased = 0;
        self.body.untold = 0;
        self.body.length_left = None;
        self.answer.sending = Sending::Nothing;
        self.reset = None;
        (self.body.lingers, self.body.rests, self.answer.wants_room) = (false, false, false);
        (self.body.discarded, self.body.received_bytes, self.answer.sent_bytes) = (0, 0, 0);
        (self.body.still, self.answer.still) = (Still::default(), Still::default());
        // `is_listed` stays: a place in the list is not taken back, and serves the next stream in the slot.
    }

    /// Gives up what a stream holds when it is not wanted; its small tables stay for the next one.
    fn clear(&mut self) {
        self.head = None;
        self.body.received.clear();
        self.body.target = None;
        self.body.waker = None;
        self.answer.waker = None;
        self.drop_queue();
    }

    /// Forgets what was to be sent.
    pub fn drop_queue(&mut self) {
        self.answer.queue.clear();
        self.answer.queue.shrink_to(PIECES_MAX);
        self.answer.queued = 0;
        self.answer.end = None;
    }

    /// Wakes the task that waits for it.
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

    /// Whether the caller has nothing to do but wait for more of the body.
    pub fn awaits_body(&self) -> bool {
        self.has_body && !self.body.rests && self.body.waker.is_some() && self.body.received.is_empty()
    }

    /// Wakes the writer of the response.
    pub fn wake_sender(&mut self) {
        self.answer.wants_room = false;
        if let Some(waker) = self.answer.waker.take() {
            waker.wake();
        }
    }
}

/// The streams of a connection. A key is good for as long as its stream is on the wire or has a handle.
#[derive(Default)]
pub struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// Id and key of those on the wire. Ids only grow, so it is in order.
    wire: VecDeque<(u32, u32)>,
    /// Those of them that linger.
    lingering: usize,
}

impl Streams {
    /// Streams on the wire.
    pub fn len(&self) -> usize {
        self.wire.len()
    }

    /// Streams on the wire that were answered before all of their body came.
    pub fn lingering(&self) -> usize {
        self.lingering
    }

    /// Lets an answered stream stay on the wire.
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

    /// Begins a stream; its id is larger than all before it.
    pub fn open(&mut self, id: u32) -> (u32, Option<&mut Stream>) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Stream::default());
            self.slots.len() as u32 - 1
        });
        self.wire.push_back((id, key));
        let stream = self.slots.get_mut(key as usize);
        (key, stream.map(|s| (s.begin(id), s).1))
    }

    /// The stream of a key.
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

    /// The key of an id that is on the wire.
    pub fn find(&self, id: u32) -> Option<u32> {
        self.place(id).and_then(|at| self.wire.get(at)).map(|w| w.1)
    }

    /// Nothing more comes or goes for it.
    pub fn leave_wire(&mut self, key: u32) {
        let Some(stream) = self.slots.get_mut(key as usize).filter(|s| s.on_wire) else { return };
        stream.on_wire = false;
        self.lingering -= usize::from(std::mem::take(&mut stream.body.lingers));
        let id = stream.id;
        if let Some(at) = self.place(id) {
            self.wire.remove(at);
        }
        self.reap(key);
    }

    /// Makes the slot free when neither the wire nor a handle knows it any more.
    pub fn reap(&mut self, key: u32) {
        let Some(stream) = self.slots.get_mut(key as usize) else { return };
        if !stream.on_wire && stream.handles == 0 {
            stream.clear();
            self.free.push(key);
        }
    }

    /// Wakes all who wait for room.
    pub fn wake_senders(&mut self) {
        for (_, key) in &self.wire {
            if let Some(stream) = self.slots.get_mut(*key as usize) {
                stream.wake_sender();
            }
        }
    }

    /// All that are on the wire.
    pub fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.wire.iter().map(|w| w.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_once_neither_wire_nor_handle_knows_it() {
        let mut streams = Streams::default();
        let keys: Vec<u32> = (0..5).map(|n| streams.open(2 * n + 1).0).collect();
        streams.get(keys[2]).unwrap().handles = 1;
        streams.leave_wire(keys[2]);
        streams.leave_wire(keys[4]);
        assert_eq!((streams.find(5), streams.find(7), streams.len(), streams.used()), (None, Some(keys[3]), 3, 4));
        assert_eq!(streams.open(11).0, keys[4]);
        streams.get(keys[2]).unwrap().handles = 0;
        streams.reap(keys[2]);
        assert_eq!((streams.open(13).0, streams.find(13)), (keys[2], Some(keys[2])));
    }
}
