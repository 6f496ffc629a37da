//! Turns responses into bytes.

use super::Core;
use super::stream::{BodyEnd, Sending};
use crate::collect::{Collect, Collected, Gone, NotCollected};
use crate::frame::{Reason, WINDOW_DEFAULT, kind};
use crate::hpack::{Encoder, Field};
use crate::limits::{DATA_FRAME_BYTES_MAX, WRITE_BYTES};
use crate::wake::register;
use bytes::{Buf, Bytes};
use std::task::{Context, Poll};

impl Core {
    /// Restores `n` bytes of the connection's window.
    pub fn release_connection(&mut self, n: usize) {
        self.unannounced += n;
        let window = self.options.connection_window.max(WINDOW_DEFAULT);
        if self.unannounced >= (window / 2).max(1) as usize {
            let more = u32::try_from(std::mem::take(&mut self.unannounced)).unwrap_or(window);
            self.receive_window += i64::from(more);
            self.writing.put_frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
            self.wake_driver();
        }
    }

    /// Restores `n` bytes of the stream's window.
    pub fn release_stream(&mut self, key: u32, n: usize) {
        let half = (self.options.stream_window / 2).max(1) as usize;
        let Some(stream) = self.streams.get(key).filter(|s| s.on_wire && !s.body.received_all) else { return };
        stream.body.unannounced += n;
        if stream.body.unannounced >= half {
            let more = u32::try_from(std::mem::take(&mut stream.body.unannounced)).unwrap_or_default();
            stream.body.window += i64::from(more);
            let id = stream.id;
            self.writing.put_frame(kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes());
            self.wake_driver();
        }
    }

    /// Releases `n` used bytes of a body.
    pub fn release(&mut self, key: u32, n: usize) {
        let Some(stream) = self.streams.get(key) else { return };
        let n = n.min(stream.body.unreleased);
        stream.body.unreleased -= n;
        self.release_connection(n);
        self.release_stream(key, n);
    }

    /// Returns the next piece of a body.
    pub fn poll_data(&mut self, key: u32, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Reason>>> {
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(None) };
        if let Some(reason) = stream.reset {
            return Poll::Ready(Some(Err(reason)));
        }
        if let Some(piece) = stream.body.received.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if stream.body.received_all {
            return Poll::Ready(None);
        }
        register(&mut stream.body.waker, cx);
        Poll::Pending
    }

    /// Sets the target of the next bytes of a body.
    pub fn collect(&mut self, key: u32, target: Box<dyn Collect>) {
        let Some(stream) = self.streams.get(key).filter(|s| s.has_body) else { return };
        stream.body.target = Some(target);
        self.feed(key);
    }

    /// Returns the collected bytes. The task is woken when there is more to collect, unless there is some now.
    pub fn poll_collected(&mut self, key: u32, cx: &mut Context<'_>) -> Collected {
        let Some(stream) = self.streams.get(key) else { return Collected::Done(None) };
        // Checked before room is requested: a stream that is over did not end for lack of room.
        if let Some(reason) = stream.reset {
            stream.body.target = None;
            return Collected::Done(Some(Err(NotCollected::Ended(reason))));
        }
        if let Some(target) = &mut stream.body.target
            && target.missing() > 0
            && target.spare().is_empty()
            && target.poll_room(cx) == Poll::Ready(false)
        {
            let missing = target.missing();
            stream.body.target = None;
            return Collected::Done(Some(Err(NotCollected::NoRoom { missing })));
        }
        // The target may have more room now, and there may be more than a turn can move.
        let has_more = self.feed(key);
        let Some(stream) = self.streams.get(key) else { return Collected::Done(None) };
        match &stream.body.target {
            Some(target) if target.missing() > 0 && !(stream.body.received_all && stream.body.received.is_empty()) => {
                register(&mut stream.body.waker, cx);
                if has_more { Collected::HasMore } else { Collected::Waiting }
            }
            Some(target) if target.missing() > 0 => {
                stream.body.target = None;
                Collected::Done(None)
            }
            _ => Collected::Done(stream.body.target.take().map(|target| Ok(target.into_bytes()))),
        }
    }

    pub fn send_head(&mut self, key: u32, status: u16, fields: &[Field<'_>], ends: bool) -> Result<(), Gone> {
        let stream = self.streams.get(key).filter(|s| s.on_wire && s.answer.sending == Sending::Nothing).ok_or(Gone)?;
        stream.answer.sending = Sending::Body;
        let id = stream.id;
        self.put_block(id, ends, |encoder, out| {
            Encoder::status(out, status);
            fields.iter().for_each(|f| encoder.field(out, *f));
        });
        if ends {
            self.finish(key);
        }
        self.wake_driver();
        Ok(())
    }

    /// Sends or queues a part of a body.
    pub fn send_data(&mut self, key: u32, mut data: impl Buf, ends: bool) -> Result<(), Gone> {
        let room = self.writing.output.len() < WRITE_BYTES;
        let largest = self.writing.peer_frame_bytes.min(DATA_FRAME_BYTES_MAX) as i64;
        let window = self.writing.send_window.min(largest);
        let stream = self.streams.get(key).filter(|s| s.on_wire && s.answer.sending == Sending::Body).ok_or(Gone)?;
        let n = data.remaining();
        if n == 0 && !ends {
            return Ok(());
        }
        // Queued bytes go first.
        if stream.answer.queued == 0 && room && n as i64 <= stream.answer.window.min(window) {
            stream.answer.window -= n as i64;
            stream.answer.sent_bytes += n as u64;
            self.writing.send_window -= n as i64;
            let id = stream.id;
            self.writing.put_data_head(id, n, ends);
            self.note_sent();
            while data.has_remaining() {
                let part = data.chunk().len();
                self.writing.output.put(data.copy_to_bytes(part));
            }
            if ends {
                self.finish(key);
            }
        } else {
            while data.has_remaining() {
                let part = data.chunk().len();
                stream.answer.queue.push_back(data.copy_to_bytes(part));
            }
            stream.answer.queued += n;
            if ends {
                stream.answer.end = Some(BodyEnd::Data);
                stream.answer.sending = Sending::Ending;
            }
            self.list(key);
        }
        self.wake_driver();
        Ok(())
    }

    /// Sends or queues trailers, which end the stream.
    pub fn send_trailers(&mut self, key: u32, fields: &[Field<'_>]) -> Result<(), Gone> {
        let stream = self.streams.get(key).filter(|s| s.on_wire && s.answer.sending == Sending::Body).ok_or(Gone)?;
        if stream.answer.queued == 0 {
            let id = stream.id;
            self.put_block(id, true, |encoder, out| fields.iter().for_each(|f| encoder.field(out, *f)));
            self.finish(key);
        } else {
            stream.answer.sending = Sending::Ending;
            let mut block = Vec::new();
            fields.iter().for_each(|f| self.writing.encoder.literal(&mut block, *f));
            stream.answer.end = Some(BodyEnd::Trailers(block));
            self.list(key);
        }
        self.wake_driver();
        Ok(())
    }

    /// Bytes that the client's windows and our limit allow now.
    pub fn capacity(&mut self, key: u32) -> usize {
        let bound = self.options.send_buffer_bytes_max;
        let window = self.writing.send_window;
        let Some(stream) = self.streams.get(key).filter(|s| s.on_wire) else { return 0 };
        let window = usize::try_from(stream.answer.window.min(window)).unwrap_or(0);
        window.min(bound).saturating_sub(stream.answer.queued)
    }

    /// Ready with the capacity once it is not 0; `None` if the stream is over.
    pub fn poll_capacity(&mut self, key: u32, cx: &Context<'_>) -> Poll<Option<usize>> {
        let room = self.capacity(key);
        let Some(stream) = self.streams.get(key).filter(|s| s.on_wire) else { return Poll::Ready(None) };
        if room > 0 {
            return Poll::Ready(Some(room));
        }
        stream.answer.wants_room = true;
        register(&mut stream.answer.waker, cx);
        Poll::Pending
    }

    /// Ready with the number of queued bytes once it is at most `most`; `None` if the stream is over.
    pub fn poll_queued(&mut self, key: u32, most: usize, cx: &Context<'_>) -> Poll<Option<usize>> {
        let Some(stream) = self.streams.get(key).filter(|s| s.on_wire) else { return Poll::Ready(None) };
        if stream.answer.queued <= most {
            return Poll::Ready(Some(stream.answer.queued));
        }
        // `timeouts` bounds how long bytes stay queued; each sent frame wakes the sender.
        register(&mut stream.answer.waker, cx);
        Poll::Pending
    }

    /// Ready when the stream has ended early.
    pub fn poll_reset(&mut self, key: u32, cx: &Context<'_>) -> Poll<Reason> {
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(Reason::CANCEL) };
        if let Some(reason) = stream.reset {
            return Poll::Ready(reason);
        }
        register(&mut stream.answer.waker, cx);
        Poll::Pending
    }

    /// Queues a stream if it has bytes to send.
    pub(super) fn list(&mut self, key: u32) {
        let Some(stream) = self.streams.get(key) else { return };
        let has_something = stream.answer.queued > 0 || stream.answer.end.is_some();
        if has_something && !stream.answer.is_listed {
            stream.answer.is_listed = true;
            self.writing.ready.push_back(key);
        }
    }

    /// Moves queued bodies into the output, one frame per stream in turn, within the windows and the size of a write.
    pub fn pump(&mut self) {
        let largest = self.writing.peer_frame_bytes.min(DATA_FRAME_BYTES_MAX);
        while self.writing.output.len() < WRITE_BYTES {
            let Some(key) = self.writing.ready.pop_front() else { return };
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.answer.queued > 0 && stream.answer.window > 0 && self.writing.send_window <= 0 {
                // No stream can send; after the next WINDOW_UPDATE this one is first.
                return self.writing.ready.push_front(key);
            }
            stream.answer.is_listed = false;
            if !stream.on_wire || (stream.answer.queued == 0 && stream.answer.end.is_none()) {
                continue;
            }
            let window = usize::try_from(stream.answer.window.min(self.writing.send_window)).unwrap_or(0);
            let n = stream.answer.queued.min(largest).min(window);
            if n == 0 && stream.answer.queued > 0 {
                // The stream's window is used up. An update lists it again.
                continue;
            }
            self.pump_frame(key, n);
        }
    }

    /// Writes a DATA frame with `n` queued bytes of a stream, and its end if those were the last.
    fn pump_frame(&mut self, key: u32, n: usize) {
        let Some(stream) = self.streams.get(key) else { return };
        let id = stream.id;
        stream.answer.queued -= n;
        stream.answer.sent_bytes += n as u64;
        stream.answer.window -= n as i64;
        self.writing.send_window -= n as i64;
        let is_last = stream.answer.queued == 0;
        let ends = is_last && matches!(stream.answer.end, Some(BodyEnd::Data));
        stream.wake_sender();
        if n > 0 || ends {
            self.writing.put_data_head(id, n, ends);
        }
        let mut left = n;
        while left > 0 {
            let Some(part) = stream.answer.queue.front_mut() else { break };
            let taken = part.split_to(left.min(part.len()));
            left -= taken.len();
            if part.is_empty() {
                stream.answer.queue.pop_front();
            }
            self.writing.output.put(taken);
        }
        let end = if is_last { stream.answer.end.take() } else { None };
        self.note_sent();
        if let Some(end) = end {
            if let BodyEnd::Trailers(block) = end {
                self.put_block(id, true, |_, out| out.extend_from_slice(&block));
            }
            self.finish(key);
        } else {
            self.list(key);
        }
    }

    /// Ends a response whose last frame is in the output.
    fn finish(&mut self, key: u32) {
        self.tolerance.trouble.forgive();
        let Some(stream) = self.streams.get(key) else { return };
        stream.answer.sending = Sending::Done;
        if stream.body.received_all {
            self.streams.take_off_wire(key);
        } else if stream.handles == 0 {
            self.linger(key);
        }
    }

    fn note_sent(&mut self) {
        self.tolerance.strikes.clear();
        self.pings.without_data = 0;
    }

    /// Writes a header block, in as many frames as it needs.
    fn put_block(&mut self, id: u32, ends: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        self.note_sent();
        self.writing.put_block(id, ends, write);
    }

    /// Answers 431 to a request whose head is too large; no caller sees it.
    pub(super) fn answer_too_large(&mut self, id: u32, ends: bool) {
        let (key, stream) = self.streams.open(id);
        if let Some(stream) = stream {
            stream.body.received_all = ends;
            stream.body.window = i64::from(self.options.stream_window);
        }
        self.put_block(id, true, |_, out| Encoder::status(out, 431));
        self.finish(key);
    }
}
