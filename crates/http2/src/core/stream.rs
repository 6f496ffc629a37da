//! One stream, and the table of them.

use super::patience::Still;
use crate::frame::Reason;
use crate::handle::Collect;
use crate::head::RequestHead;
use crate::limits::{JOINED_BYTES, PIECES_MAX, SMALL_PIECE_BYTES};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

/// How far the response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Nothing was sent.
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

/// Pieces of a received body. Small ones are put together once there are many: each costs more than its bytes.
#[derive(Default)]
pub struct Pieces {
    whole: VecDeque<Bytes>,
    /// Behind all of `whole`.
    joined: BytesMut,
}

impl Pieces {
    /// Takes a piece.
    pub fn push(&mut self, piece: Bytes) {
        if self.whole.len() < PIECES_MAX && self.joined.is_empty() || piece.len() > SMALL_PIECE_BYTES {
            self.flush();
            return self.whole.push_back(piece);
        }
        if self.joined.len() + piece.len() > JOINED_BYTES {
            self.flush();
        }
        self.joined.extend_from_slice(&piece);
    }

    /// Puts back what is left of a piece.
    pub fn unpop(&mut self, piece: Bytes) {
        self.whole.push_front(piece);
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.joined).freeze());
        }
    }

    /// The next piece.
    pub fn pop(&mut self) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.flush();
        }
        self.whole.pop_front()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.joined.is_empty()
    }

    fn clear(&mut self) {
        self.whole.clear();
        self.whole.shrink_to(PIECES_MAX);
        self.joined = BytesMut::new();
    }
}

/// A stream, for as long as the wire or a handle knows it.
pub struct Stream {
    pub id: u32,
    /// Whether frames of it may still come or go.
    pub on_wire: bool,
    /// Handles.
    pub handles: u8,
    pub has_body: bool,
    pub head: Option<Rc<RequestHead>>,

    /// The client sent its last frame.
    pub received_all: bool,
    pub received: Pieces,
    /// Where the body goes instead, as far as it has room.
    pub target: Option<Box<dyn Collect>>,
    /// Bytes that may still come before we say that there is room for more.
    pub receive_window: i64,
    /// Bytes that came and that the caller did not release.
    pub unreleased: usize,
    /// Bytes that were released and of which the client was not told.
    pub untold: usize,
    /// Bytes that the head announced and that did not come.
    pub length_left: Option<u64>,
    pub body_waker: Option<Waker>,

    pub sending: Sending,
    /// May be negative: a client can change its mind about windows.
    pub send_window: i64,
    pub queue: VecDeque<Bytes>,
    pub queued: usize,
    pub end: Option<End>,
    /// In the list of streams that may send.
    pub is_listed: bool,
    pub send_waker: Option<Waker>,

    /// The stream ended before its time.
    pub reset: Option<Reason>,

    /// It was answered before all of its body came, and waits for the rest of it, which is thrown away.
    pub lingers: bool,
    /// Bytes of its body that were thrown away.
    pub discarded: usize,
    /// The caller is between two messages of its body: the client may take its time.
    pub rests: bool,
    /// The caller waits for `capacity`.
    pub wants_room: bool,
    /// Bytes of its body that came, and bytes of its answer that went to the output: marks for `patience`.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub body_still: Still,
    pub send_still: Still,
}

impl Stream {
    fn new() -> Self {
        Self {
            id: 0,
            on_wire: false,
            handles: 0,
            has_body: false,
            head: None,
            received_all: false,
            received: Pieces::default(),
            target: None,
            receive_window: 0,
            unreleased: 0,
            untold: 0,
            length_left: None,
            body_waker: None,
            sending: Sending::Nothing,
            send_window: 0,
            queue: VecDeque::new(),
            queued: 0,
            end: None,
            is_listed: false,
            send_waker: None,
            reset: None,
            lingers: false,
            discarded: 0,
            rests: false,
            wants_room: false,
            received_bytes: 0,
            sent_bytes: 0,
            body_still: Still::default(),
            send_still: Still::default(),
        }
    }

    fn begin(&mut self, id: u32) {
        self.id = id;
        self.on_wire = true;
        self.handles = 0;
        self.has_body = false;
        self.received_all = false;
        self.unreleased = 0;
        self.untold = 0;
        self.length_left = None;
        self.sending = Sending::Nothing;
        self.reset = None;
        (self.lingers, self.rests, self.wants_room) = (false, false, false);
        (self.discarded, self.received_bytes, self.sent_bytes) = (0, 0, 0);
        (self.body_still, self.send_still) = (Still::default(), Still::default());
        // `is_listed` stays: a place in the list is not taken back, and serves the next stream in the slot.
    }

    /// Gives up what a stream holds when it is not wanted; its small tables stay for the next one.
    fn clear(&mut self) {
        self.head = None;
        self.received.clear();
        self.target = None;
        self.body_waker = None;
        self.send_waker = None;
        self.drop_queue();
    }

    /// Forgets what was to be sent.
    pub fn drop_queue(&mut self) {
        self.queue.clear();
        self.queue.shrink_to(PIECES_MAX);
        self.queued = 0;
        self.end = None;
    }

    /// Wakes the task that waits for it.
    pub fn wake_all(&mut self) {
        self.wake_body();
        self.wake_sender();
    }

    /// Wakes the reader of the body.
    pub fn wake_body(&mut self) {
        if let Some(waker) = self.body_waker.take() {
            waker.wake();
        }
    }

    /// Whether the caller has nothing to do but wait for more of the body.
    pub fn awaits_body(&self) -> bool {
        self.has_body && !self.rests && self.body_waker.is_some() && self.received.is_empty()
    }

    /// Wakes the writer of the response.
    pub fn wake_sender(&mut self) {
        self.wants_room = false;
        if let Some(waker) = self.send_waker.take() {
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
        if let Some(stream) = self.slots.get_mut(key as usize).filter(|s| s.on_wire && !s.lingers) {
            stream.lingers = true;
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
            self.slots.push(Stream::new());
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
        self.lingering -= usize::from(std::mem::take(&mut stream.lingers));
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
    fn pieces_come_out_as_they_went_in_however_small() {
        for size in [1, 100, 1024, 1025, 5000] {
            let (mut pieces, mut all, mut read) = (Pieces::default(), Vec::new(), Vec::new());
            for n in 0..200u32 {
                let piece = vec![n as u8; if n % 7 == 0 { 2000 } else { size }];
                all.extend_from_slice(&piece);
                pieces.push(piece.into());
                if n % 50 == 49 {
                    read.extend_from_slice(&pieces.pop().unwrap());
                }
            }
            while let Some(piece) = pieces.pop() {
                read.extend_from_slice(&piece);
            }
            assert_eq!(read, all, "pieces of {size}");
        }
        let mut pieces = Pieces::default();
        (0..100_000).for_each(|_| pieces.push(Bytes::from_static(b"x")));
        assert!(pieces.whole.len() <= PIECES_MAX + 100_000 / JOINED_BYTES + 1);
    }

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
