//! Turns received bytes into events.

use super::closed::{End, ResetBy};
use super::reading::{Data, HeaderBlock};
use super::stream::Sending;
use super::{ALIVE, Closing, Core, DRAINING, Fatal};
use crate::collect::fill;
use crate::frame::{
    FRAME_BYTES_MAX, FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, PREFACE, Reason, WINDOW_MAX, flag, kind, number31, setting,
};
use crate::head::{BadHead, Builder};
use crate::limits::{CONTINUATIONS_MAX, DISCARD_BYTES_MAX, SETTINGS_BYTES_MAX, STEPS_PER_LOOK, TURN_BYTES};
use bytes::{Buf, Bytes, BytesMut};
use std::time::Instant;

const fn protocol(text: &'static str) -> Fatal {
    Fatal(Reason::PROTOCOL_ERROR, text)
}

const fn size(text: &'static str) -> Fatal {
    Fatal(Reason::FRAME_SIZE_ERROR, text)
}

impl Core {
    /// Processes `bytes` as far as possible, or until the turn is over.
    pub fn receive(&mut self, bytes: &mut BytesMut, now: Instant) {
        let before = self.reading.known_bytes;
        self.reading.received_bytes += bytes.len().saturating_sub(before) as u64;
        self.reading.has_rest = false;
        let mut steps = 0u32;
        while self.closing != Closing::Failed {
            match self.step(bytes, now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(fatal) => self.fail(fatal),
            }
            steps += 1;
            // One read of 256 KiB may contain thousands of frames: calls of 29 bytes each, or resets.
            if steps.is_multiple_of(STEPS_PER_LOOK) && !bytes.is_empty() && (self.options.is_turn_over)() {
                self.reading.has_rest = true;
                break;
            }
        }
        self.reading.known_bytes = bytes.len();
    }

    /// Processes one frame or part of one; returns false if more bytes are needed.
    fn step(&mut self, bytes: &mut BytesMut, now: Instant) -> Result<bool, Fatal> {
        if self.reading.skip > 0 {
            let n = self.reading.skip.min(bytes.len());
            bytes.advance(n);
            self.reading.skip -= n;
            return Ok(self.reading.skip == 0);
        }
        if self.reading.data.is_some() {
            return self.take_data(bytes, now);
        }
        if !self.handshake.prefaced {
            return self.take_preface(bytes);
        }
        let Some(head) = FrameHead::read(bytes) else { return Ok(false) };
        if head.length > self.options.frame_bytes_max as usize {
            return Err(size("frame too large"));
        }
        if !self.handshake.settled && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(protocol("SETTINGS must come first"));
        }
        match &self.reading.block {
            None if head.kind == kind::CONTINUATION => return Err(protocol("CONTINUATION without HEADERS")),
            Some(block) if head.kind != kind::CONTINUATION || head.stream != block.stream => {
                return Err(protocol("a header block was interrupted"));
            }
            _ => {}
        }
        if head.kind == kind::DATA {
            return self.begin_data(head, bytes, now);
        }
        self.check_length(head)?;
        // These are read whole; `check_length` bounds them.
        let is_known = matches!(head.kind, kind::HEADERS..=kind::PING | kind::WINDOW_UPDATE | kind::CONTINUATION);
        if !is_known {
            bytes.advance(HEAD_BYTES);
            self.reading.skip = head.length;
            self.reading.frames += 1;
            return Ok(true);
        }
        let Some(payload) = bytes.get(HEAD_BYTES..HEAD_BYTES + head.length) else { return Ok(false) };
        match head.kind {
            kind::HEADERS => self.take_headers(head, payload, now)?,
            kind::CONTINUATION => self.take_continuation(head, payload, now)?,
            kind::RST_STREAM => self.take_reset(head, now)?,
            kind::SETTINGS => self.take_settings(head, payload, now)?,
            kind::PING => self.take_ping(head, payload, now)?,
            kind::WINDOW_UPDATE => self.take_window(head, number31(payload).unwrap_or_default(), now)?,
            kind::PRIORITY => self.take_priority(head, payload, now)?,
            _ => {}
        }
        bytes.advance(HEAD_BYTES + head.length);
        self.reading.frames += u64::from(self.reading.block.is_none());
        Ok(true)
    }

    fn take_preface(&mut self, bytes: &mut BytesMut) -> Result<bool, Fatal> {
        let n = bytes.len().min(PREFACE.len());
        if bytes.get(..n) != PREFACE.get(..n) {
            self.handshake.is_stray = true;
            return Err(protocol("not HTTP/2"));
        }
        if n < PREFACE.len() {
            return Ok(false);
        }
        bytes.advance(n);
        self.handshake.prefaced = true;
        Ok(true)
    }

    /// Checks the length of a frame that is read whole, before waiting for its payload.
    fn check_length(&self, head: FrameHead) -> Result<(), Fatal> {
        if head.kind == kind::PUSH_PROMISE {
            return Err(protocol("clients cannot push"));
        }
        if head.kind == kind::GOAWAY && head.stream != 0 {
            return Err(protocol("GOAWAY of a stream"));
        }
        let is_good = match head.kind {
            kind::PRIORITY => head.length == 5,
            kind::RST_STREAM | kind::WINDOW_UPDATE => head.length == 4,
            kind::PING => head.length == 8,
            kind::GOAWAY => head.length >= 8,
            kind::SETTINGS if head.has(flag::ACK) => head.length == 0,
            kind::SETTINGS => head.length.is_multiple_of(6),
            _ => true,
        };
        if !is_good {
            return Err(size("frame of a wrong size"));
        }
        if head.kind == kind::SETTINGS && head.length > SETTINGS_BYTES_MAX {
            return Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many settings"));
        }
        let before = self.reading.block.as_ref().map_or(0, |b| b.bytes.len());
        if matches!(head.kind, kind::HEADERS | kind::CONTINUATION) && before + head.length > self.block_bytes_max() {
            return Err(Fatal(Reason::ENHANCE_YOUR_CALM, "header block too large"));
        }
        Ok(())
    }

    /// Largest header block: a list of the allowed size encodes to less, unless a client Huffman-codes strings that
    /// grow by it. The rest is for padding and priorities.
    fn block_bytes_max(&self) -> usize {
        2 * self.options.header_list_bytes_max as usize + FRAME_BYTES_MIN as usize
    }

    // DATA

    fn begin_data(&mut self, head: FrameHead, bytes: &mut BytesMut, now: Instant) -> Result<bool, Fatal> {
        let (mut left, mut padding) = (head.length, 0);
        if head.has(flag::PADDED) {
            if head.length == 0 {
                return Err(size("frame of a wrong size"));
            }
            let Some(&n) = bytes.get(HEAD_BYTES) else { return Ok(false) };
            padding = usize::from(n);
            left = (head.length - 1).checked_sub(padding).ok_or(protocol("more padding than frame"))?;
        }
        if head.stream == 0 || head.stream > self.calls.last_id {
            return Err(protocol("DATA of a stream that is not open"));
        }
        bytes.advance(HEAD_BYTES + usize::from(head.has(flag::PADDED)));
        self.open_data(head, left, padding, now)?;
        self.take_data(bytes, now)
    }

    /// Begins a DATA frame with `left` bytes of a body and `padding`; its stream is, or was, open.
    pub(super) fn open_data(
        &mut self,
        head: FrameHead,
        left: usize,
        padding: usize,
        now: Instant,
    ) -> Result<(), Fatal> {
        // The whole frame counts, padding included, whatever happens to it.
        self.receive_window -= head.length as i64;
        if self.receive_window < 0 {
            return Err(Fatal(Reason::FLOW_CONTROL_ERROR, "more than the connection's window"));
        }
        self.release_connection(head.length - left);
        let ends = head.has(flag::END_STREAM);
        if left == 0 && !ends {
            self.tolerance.count_empty()?;
        } else {
            self.tolerance.empty_frames = 0;
        }
        self.reading.frames += 1;
        self.reading.data = Some(Data { stream: head.stream, left, padding, ends });
        self.reading.last_data = (head.stream, left);
        if self.streams.find(head.stream).is_none() {
            self.check_late(head.stream, now)?;
        }
        if let Some(key) = self.streams.find(head.stream)
            && let Some(stream) = self.streams.get(key)
        {
            stream.body.window -= head.length as i64;
            let is_short = stream.body.length_left.as_mut().is_some_and(|all| match all.checked_sub(left as u64) {
                Some(rest) => {
                    *all = rest;
                    false
                }
                None => true,
            });
            let wrong = match stream {
                s if s.body.received_all => Some(Reason::STREAM_CLOSED),
                s if s.body.window < 0 => Some(Reason::FLOW_CONTROL_ERROR),
                _ if is_short => Some(Reason::PROTOCOL_ERROR),
                _ => None,
            };
            match wrong {
                Some(reason) => self.reject(key, reason, now)?,
                None => self.release_stream(key, head.length - left),
            }
        }
        Ok(())
    }

    fn take_data(&mut self, bytes: &mut BytesMut, now: Instant) -> Result<bool, Fatal> {
        let Some(data) = &mut self.reading.data else { return Ok(true) };
        let n = data.left.min(bytes.len());
        data.left -= n;
        let (stream, left) = (data.stream, data.left);
        if n > 0 {
            let piece = bytes.split_to(n).freeze();
            self.deliver(stream, piece);
        }
        if left > 0 {
            return Ok(false);
        }
        self.close_data(now)?;
        Ok(true)
    }

    /// Ends a DATA frame of which everything but the padding was processed.
    pub(super) fn close_data(&mut self, now: Instant) -> Result<(), Fatal> {
        let Some(data) = self.reading.data.take() else { return Ok(()) };
        // Counted already.
        self.reading.skip = data.padding;
        if data.ends
            && let Some(key) = self.streams.find(data.stream)
        {
            self.end_body(key, now)?;
        }
        Ok(())
    }

    fn deliver(&mut self, id: u32, piece: Bytes) {
        let n = piece.len();
        let Some(key) = self.streams.find(id) else { return self.release_connection(n) };
        let Some(stream) = self.streams.get(key) else { return };
        stream.body.received_bytes += n as u64;
        if !stream.has_body {
            return self.discard(key, n);
        }
        stream.body.unreleased += n;
        let is_next = stream.body.received.is_empty();
        stream.body.received.push(piece);
        match stream.body.target {
            // Earlier bytes are moved by the reading task, which is woken for each turn.
            Some(_) => match is_next && !self.feed(key) {
                true => self.ask_for_room(key),
                false => self.wake_body(key),
            },
            None => stream.wake_body(),
        }
    }

    fn wake_body(&mut self, key: u32) {
        if let Some(stream) = self.streams.get(key) {
            stream.wake_body();
        }
    }

    /// Wakes the reader of a body whose target is full. Without room, pieces wait here, then the client waits.
    pub(super) fn ask_for_room(&mut self, key: u32) {
        if let Some(stream) = self.streams.get(key)
            && let Some(target) = &mut stream.body.target
            && target.missing() > 0
            && target.spare().is_empty()
        {
            stream.wake_body();
        }
    }

    /// Moves received pieces into the target as far as it has room, at most one turn's worth: a late reader may find a
    /// whole window. Returns true if something was moved and there is more.
    pub(super) fn feed(&mut self, key: u32) -> bool {
        let mut taken = 0;
        let Some(stream) = self.streams.get(key) else { return false };
        let Some(target) = &mut stream.body.target else { return false };
        while target.missing() > 0
            && taken < TURN_BYTES
            && let Some(mut piece) = stream.body.received.pop()
        {
            let n = fill(&mut **target, &mut piece, TURN_BYTES - taken);
            taken += n;
            if !piece.is_empty() {
                stream.body.received.unpop(piece);
            }
            if n == 0 {
                break;
            }
        }
        let is_done = target.missing() == 0;
        let has_more = taken > 0 && !is_done && !stream.body.received.is_empty();
        if is_done {
            stream.wake_body();
        }
        self.release(key, taken);
        has_more
    }

    /// Counts `n` bytes that were read into the target: the client may send as many more.
    pub(super) fn count_collected(&mut self, key: u32, n: usize) {
        if let Some(stream) = self.streams.get(key) {
            stream.body.received_bytes += n as u64;
        }
        self.release_connection(n);
        self.release_stream(key, n);
    }

    /// Drops bytes of an unwanted body. The connection's window is restored, and up to a bound also that of the stream:
    /// a client may have to send everything before it reads the response.
    pub(super) fn discard(&mut self, key: u32, n: usize) {
        self.release_connection(n);
        let Some(stream) = self.streams.get(key) else { return };
        stream.body.discarded = stream.body.discarded.saturating_add(n);
        if stream.body.discarded <= DISCARD_BYTES_MAX {
            self.release_stream(key, n);
        }
    }

    /// Checks a frame whose stream is not on the wire, although it or a later one was (RFC 9113, 5.1 and 5.1.1).
    fn check_late(&mut self, id: u32, now: Instant) -> Result<(), Fatal> {
        if matches!(self.closing, Closing::After(after) if id > after) {
            // The client was told that the stream is not served, or is being told.
            return Ok(());
        }
        match self.calls.closed.end(id) {
            End::Reset => Ok(()),
            End::ResetByClient => {
                self.put_reset(id, Reason::STREAM_CLOSED);
                self.tolerance.count_trouble(now)
            }
            End::Closed => Err(Fatal(Reason::STREAM_CLOSED, "a frame of a stream that is closed")),
            End::Skipped => Err(protocol("a stream id smaller than the last one")),
        }
    }

    /// Ends the body: the client has sent all of it.
    fn end_body(&mut self, key: u32, now: Instant) -> Result<(), Fatal> {
        let Some(stream) = self.streams.get(key) else { return Ok(()) };
        if stream.body.length_left.is_some_and(|left| left > 0) {
            return self.reject(key, Reason::PROTOCOL_ERROR, now);
        }
        stream.body.received_all = true;
        stream.wake_body();
        if stream.answer.sending == Sending::Done {
            self.streams.take_off_wire(key);
        }
        Ok(())
    }

    /// Resets a stream because of an error of the client, which counts as abuse.
    fn reject(&mut self, key: u32, reason: Reason, now: Instant) -> Result<(), Fatal> {
        self.reset(key, reason);
        self.tolerance.count_trouble(now)
    }

    // HEADERS

    fn take_headers(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Fatal> {
        if head.stream.is_multiple_of(2) {
            return Err(protocol("HEADERS of a stream that a client must not open"));
        }
        let mut fragment = payload;
        if head.has(flag::PADDED) {
            let (&padding, rest) = fragment.split_first().ok_or(size("frame of a wrong size"))?;
            let length = rest.len().checked_sub(usize::from(padding)).ok_or(protocol("more padding than frame"))?;
            fragment = rest.get(..length).unwrap_or_default();
        }
        let mut depends_on = None;
        if head.has(flag::PRIORITY) {
            depends_on = number31(fragment);
            fragment = fragment.get(5..).ok_or(size("frame of a wrong size"))?;
        }
        // RFC 7540, 5.3.1. RFC 9113 has dropped priorities, but allows this check.
        let depends_on_itself = depends_on == Some(head.stream);
        let ends = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.take_block(head.stream, fragment, ends, depends_on_itself, now);
        }
        let bytes = fragment.to_vec();
        self.reading.block =
            Some(HeaderBlock { stream: head.stream, bytes, ends, depends_on_itself, continuations: 0 });
        Ok(())
    }

    fn take_continuation(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Fatal> {
        let Some(mut block) = self.reading.block.take() else { return Err(protocol("CONTINUATION without HEADERS")) };
        block.bytes.extend_from_slice(payload);
        block.continuations += 1;
        if head.has(flag::END_HEADERS) {
            return self.take_block(block.stream, &block.bytes, block.ends, block.depends_on_itself, now);
        }
        if block.continuations >= CONTINUATIONS_MAX {
            return Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many CONTINUATION frames"));
        }
        self.reading.block = Some(block);
        Ok(())
    }

    /// Processes a whole header block: a request, or trailers.
    fn take_block(
        &mut self,
        id: u32,
        block: &[u8],
        ends: bool,
        depends_on_itself: bool,
        now: Instant,
    ) -> Result<(), Fatal> {
        if id <= self.calls.last_id {
            return self.take_trailers(id, block, ends, now);
        }
        let head = self.calls.read_head(block, self.options.header_list_bytes_max as usize)?;
        self.tolerance.empty_frames = 0;
        self.calls.closed.opened(id, self.calls.last_id);
        self.calls.last_id = id;
        if let Closing::After(_) = self.closing {
            // The client was told that later streams are not served.
            return Ok(());
        }
        let head = match head {
            Ok(_) if depends_on_itself => Err(Reason::PROTOCOL_ERROR),
            Ok(head) if self.streams.len() < self.options.streams_max as usize => Ok(head),
            Ok(_) | Err(BadHead::NoRoom) => Err(Reason::REFUSED_STREAM),
            Err(BadHead::TooLarge) if self.streams.len() < self.options.streams_max as usize => {
                self.answer_too_large(id, ends);
                return self.tolerance.count_trouble(now);
            }
            Err(BadHead::TooLarge) => Err(Reason::REFUSED_STREAM),
            Err(BadHead::Malformed) => Err(Reason::PROTOCOL_ERROR),
        };
        let length = head.as_ref().ok().and_then(|h| h.content_length());
        let head = match head {
            Ok(_) if ends && length.is_some_and(|l| l > 0) => Err(Reason::PROTOCOL_ERROR),
            other => other,
        };
        match head {
            Ok(head) => {
                let (receive_window, send_window) = (i64::from(self.options.stream_window), self.writing.peer_window);
                let (key, stream) = self.streams.open(id);
                if let Some(stream) = stream {
                    stream.head = Some(head);
                    stream.body.length_left = length;
                    stream.body.window = receive_window;
                    stream.answer.window = send_window;
                    stream.body.received_all = ends;
                    // Held by the queue of calls to be accepted.
                    stream.handles = 1;
                    stream.has_body = true;
                }
                self.calls.accepted.push_back(key);
                Ok(())
            }
            Err(reason) => {
                self.put_reset(id, reason);
                self.tolerance.count_trouble(now)
            }
        }
    }

    /// Processes trailers. Their fields are not used, but must be decoded, and they end the body.
    fn take_trailers(&mut self, id: u32, block: &[u8], ends: bool, now: Instant) -> Result<(), Fatal> {
        let mut builder = Builder::new(self.options.header_list_bytes_max as usize);
        self.calls.decode(block, &mut builder)?;
        let Some(key) = self.streams.find(id) else {
            self.check_late(id, now)?;
            return self.tolerance.count_empty();
        };
        let is_over = self.streams.get(key).is_some_and(|s| s.body.received_all);
        if is_over {
            return self.reject(key, Reason::STREAM_CLOSED, now);
        }
        if !ends || !builder.are_trailers() {
            return self.reject(key, Reason::PROTOCOL_ERROR, now);
        }
        self.end_body(key, now)
    }

    // The rest

    fn take_reset(&mut self, head: FrameHead, now: Instant) -> Result<(), Fatal> {
        if head.stream == 0 || head.stream > self.calls.last_id {
            return Err(protocol("RST_STREAM of a stream that is not open"));
        }
        let Some(key) = self.streams.find(head.stream) else { return self.tolerance.count_empty() };
        self.calls.closed.reset(head.stream, ResetBy::Client);
        self.end_stream(key, Reason::CANCEL);
        self.tolerance.count_trouble(now)
    }

    /// Checks priorities, which have no effect.
    fn take_priority(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Fatal> {
        if head.stream == 0 {
            return Err(protocol("PRIORITY without a stream"));
        }
        if number31(payload) != Some(head.stream) {
            return Ok(());
        }
        match self.streams.find(head.stream) {
            Some(key) => self.reject(key, Reason::PROTOCOL_ERROR, now),
            // A stream that is idle or over cannot be reset.
            None => Err(protocol("a stream depends on itself")),
        }
    }

    fn take_settings(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(protocol("SETTINGS of a stream"));
        }
        if head.has(flag::ACK) {
            self.handshake.acknowledged = true;
            return self.tolerance.count_empty();
        }
        if std::mem::replace(&mut self.handshake.settled, true) {
            self.tolerance.count_trouble(now)?;
        }
        let mut window = self.writing.peer_window;
        for entry in payload.chunks_exact(6) {
            let &[a, b, c, d, e, f] = entry else { continue };
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                setting::HEADER_TABLE_SIZE => self.writing.encoder.resize(value as usize),
                setting::ENABLE_PUSH if value > 1 => return Err(protocol("ENABLE_PUSH is 0 or 1")),
                setting::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                    return Err(Fatal(Reason::FLOW_CONTROL_ERROR, "window too large"));
                }
                setting::INITIAL_WINDOW_SIZE => window = i64::from(value),
                setting::MAX_FRAME_SIZE if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&value) => {
                    return Err(protocol("MAX_FRAME_SIZE out of range"));
                }
                setting::MAX_FRAME_SIZE => self.writing.peer_frame_bytes = value as usize,
                _ => {}
            }
        }
        self.writing.put_frame(kind::SETTINGS, flag::ACK, 0, &[]);
        self.change_windows(window)
    }

    /// Applies a new initial window to every open stream.
    fn change_windows(&mut self, window: i64) -> Result<(), Fatal> {
        let change = window - std::mem::replace(&mut self.writing.peer_window, window);
        if change == 0 {
            return Ok(());
        }
        let keys: Vec<u32> = self.streams.keys().collect();
        for key in keys {
            let Some(stream) = self.streams.get(key) else { continue };
            stream.answer.window += change;
            if stream.answer.window > WINDOW_MAX {
                return Err(Fatal(Reason::FLOW_CONTROL_ERROR, "window too large"));
            }
            stream.wake_sender();
            self.list(key);
        }
        Ok(())
    }

    fn take_ping(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(protocol("PING of a stream"));
        }
        if head.has(flag::ACK) {
            if payload == DRAINING && self.closing == Closing::Announced {
                self.drain_after(self.calls.last_id);
            } else if payload == ALIVE && std::mem::take(&mut self.pings.pending) {
                self.pings.answered = true;
            }
            return Ok(());
        }
        let is_repeated = self.tolerance.strikes.has_pinged();
        if self.tolerance.strikes.ping(&self.options.pings, now, self.streams.len() > 0) {
            return Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too_many_pings"));
        }
        if is_repeated {
            // Every ping costs an answer, however often the policy allows pings.
            self.tolerance.count_trouble(now)?;
        }
        self.writing.put_frame(kind::PING, flag::ACK, 0, payload);
        Ok(())
    }

    fn take_window(&mut self, head: FrameHead, more: u32, now: Instant) -> Result<(), Fatal> {
        let more = i64::from(more);
        if head.stream == 0 {
            if more == 0 {
                return Err(protocol("WINDOW_UPDATE without an increment"));
            }
            if self.writing.send_window + more > WINDOW_MAX {
                return Err(Fatal(Reason::FLOW_CONTROL_ERROR, "window too large"));
            }
            if self.writing.send_window <= 0 {
                self.streams.wake_senders();
            }
            self.writing.send_window += more;
            return Ok(());
        }
        if head.stream > self.calls.last_id {
            return Err(protocol("WINDOW_UPDATE of a stream that is not open"));
        }
        let Some(key) = self.streams.find(head.stream) else { return Ok(()) };
        let Some(stream) = self.streams.get(key) else { return Ok(()) };
        if more == 0 {
            return self.reject(key, Reason::PROTOCOL_ERROR, now);
        }
        stream.answer.window += more;
        if stream.answer.window > WINDOW_MAX {
            return self.reject(key, Reason::FLOW_CONTROL_ERROR, now);
        }
        stream.wake_sender();
        self.list(key);
        Ok(())
    }
}
