//! Reads large bodies from the socket directly into the caller's memory, bypassing the read buffer.
//!
//! Clients cut bodies into frames of 16 KiB; one read per frame would cost more than it saves. So a read is planned for
//! the frames that are likely to come: the rest of the current one, then head and payload of similar frames in turn, up
//! to `limits::READ_BYTES_MAX`. If a head differs from the prediction, the bytes after it move to the read buffer and
//! are processed from there, as after a normal read.
//!
//! Invariant: a target's `filled` counts only bytes of its own body, in order.

use super::{Closing, Core};
use crate::collect::Collect;
use crate::frame::{FrameHead, HEAD_BYTES, flag, kind};
use crate::limits::{DIRECT_BYTES_MIN, DIRECT_FRAMES_MAX};
use bytes::BytesMut;
use smallvec::SmallVec;
use std::io::{IoSliceMut, Result};
use std::task::Poll;
use std::time::Instant;

/// Space for bytes after the end of a body: the frame that ends its stream, the next call.
const TAIL_BYTES: usize = 2048;

struct PredictedFrame {
    /// Length of its payload.
    length: usize,
    /// Part of the payload that the target has room for.
    planned: usize,
}

/// The result of a direct read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// Number of bytes; 0 at the end of the connection.
    pub bytes: usize,
    /// True if the caller waits for these bytes or has to make room; otherwise the next read needs no one else.
    pub is_awaited: bool,
}

impl Core {
    /// Reads into the body that is being received, if there is one and its target has room; otherwise returns `None`
    /// and reads nothing. `rest` holds the beginning of a frame from earlier reads. `read` fills slices, in order.
    pub fn read_direct(
        &mut self,
        rest: &mut BytesMut,
        now: Instant,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Poll<Result<usize>>,
    ) -> Option<Poll<Result<Read>>> {
        if self.reading.skip > 0 || self.reading.block.is_some() || self.closing == Closing::Failed {
            return None;
        }
        let (id, left) = match &self.reading.data {
            Some(data) if data.padding == 0 && rest.is_empty() => (data.stream, data.left),
            None if rest.len() < HEAD_BYTES => (self.reading.last_data.0, 0),
            _ => return None,
        };
        let key = self.streams.find(id)?;
        let frame_bytes = self.reading.last_data.1;
        let stream = self.streams.get(key).filter(|s| s.body.received.is_empty() && !s.body.received_all)?;
        let mut target = stream.body.target.take()?;
        let polled = self.read_into(&mut *target, left, frame_bytes, rest, read);
        // Taken out, because its stream may change meanwhile.
        let result = match polled {
            Some(Poll::Ready(Ok((bytes, planned, predicted, heads, tail)))) => {
                if bytes >= planned {
                    self.reading.predicted_frames_max =
                        (2 * self.reading.predicted_frames_max + 1).min(DIRECT_FRAMES_MAX);
                }
                self.reading.received_bytes += bytes as u64;
                self.take_direct(id, &mut *target, bytes, left, &predicted, &heads, &tail, rest, now);
                let is_awaited = target.missing() == 0 || target.spare().is_empty();
                Some(Poll::Ready(Ok(Read { bytes, is_awaited })))
            }
            Some(Poll::Ready(Err(error))) => Some(Poll::Ready(Err(error))),
            Some(Poll::Pending) => Some(Poll::Pending),
            None => None,
        };
        if let Some(key) = self.streams.find(id)
            && let Some(stream) = self.streams.get(key).filter(|s| s.has_body)
        {
            if target.missing() == 0 || stream.body.received_all {
                stream.wake_body();
            }
            stream.body.target = Some(target);
            self.ask_for_room(key);
        }
        if matches!(result, Some(Poll::Ready(Ok(_)))) {
            // Bytes that do not belong to the body; they are counted already.
            self.reading.known_bytes = rest.len();
            self.receive(rest, now);
        }
        result
    }

    #[allow(clippy::type_complexity)] // one caller, which takes it apart
    fn read_into(
        &mut self,
        target: &mut dyn Collect,
        left: usize,
        frame_bytes: usize,
        rest: &mut BytesMut,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Poll<Result<usize>>,
    ) -> Option<
        Poll<Result<(usize, usize, SmallVec<[PredictedFrame; 16]>, [[u8; HEAD_BYTES]; DIRECT_FRAMES_MAX], Vec<u8>)>>,
    > {
        let missing = target.missing();
        let spare = target.spare();
        let room = spare.len();
        let first = left.min(room);
        let (mut planned, mut covered) = (first, first);
        let mut predicted: SmallVec<[PredictedFrame; 16]> = SmallVec::new();
        // Frames after one that exceeds the body or the room cannot be predicted.
        let mut goes_on = first == left;
        while goes_on
            && planned < room
            && predicted.len() < self.reading.predicted_frames_max
            && frame_bytes >= DIRECT_BYTES_MIN
        {
            let length = frame_bytes.min(missing - covered);
            let part = length.min(room - planned);
            predicted.push(PredictedFrame { length, planned: part });
            planned += part;
            covered += part;
            goes_on = part == length && covered < missing;
        }
        if planned < DIRECT_BYTES_MIN {
            return None;
        }
        let mut heads = [[0; HEAD_BYTES]; DIRECT_FRAMES_MAX];
        let begun = rest.len();
        if let Some(place) = heads.first_mut().and_then(|head| head.get_mut(..begun)) {
            place.copy_from_slice(rest);
        }
        let mut tail = vec![0; if covered == missing { TAIL_BYTES } else { 0 }];
        let mut slices: SmallVec<[IoSliceMut<'_>; 2 * DIRECT_FRAMES_MAX + 2]> = SmallVec::new();
        let (mut part, mut spare) = spare.split_at_mut(first);
        if !part.is_empty() {
            slices.push(IoSliceMut::new(part));
        }
        let mut wanted = planned;
        for (i, (frame, head)) in predicted.iter().zip(&mut heads).enumerate() {
            let head = head.get_mut(if i == 0 { begun } else { 0 }..).unwrap_or_default();
            wanted += head.len();
            slices.push(IoSliceMut::new(head));
            (part, spare) = spare.split_at_mut(frame.planned);
            slices.push(IoSliceMut::new(part));
        }
        if !tail.is_empty() {
            slices.push(IoSliceMut::new(&mut tail));
        }
        let n = match read(&mut slices) {
            Poll::Pending => return Some(Poll::Pending),
            Poll::Ready(Err(error)) => return Some(Poll::Ready(Err(error))),
            Poll::Ready(Ok(n)) => n,
        };
        drop(slices);
        Some(Poll::Ready(Ok((n, wanted, predicted, heads, tail))))
    }

    /// Distributes the bytes of a direct read.
    #[allow(clippy::too_many_arguments)] // the layout of one read, in its order
    fn take_direct(
        &mut self,
        id: u32,
        target: &mut dyn Collect,
        mut n: usize,
        left: usize,
        predicted: &[PredictedFrame],
        heads: &[[u8; HEAD_BYTES]],
        tail: &[u8],
        rest: &mut BytesMut,
        now: Instant,
    ) {
        let first = left.min(target.spare().len()).min(n);
        n -= first;
        if left > 0 && !self.take_payload(id, target, first, now) {
            if predicted.is_empty() {
                // The frame continues after the collected part.
                rest.extend_from_slice(tail.get(..n).unwrap_or_default());
            }
            return;
        }
        for (i, (frame, head)) in predicted.iter().zip(heads).enumerate() {
            let begun = if i == 0 { rest.len() } else { 0 };
            let came = n.min(HEAD_BYTES - begun);
            if came == 0 && begun == 0 {
                return;
            }
            n -= came;
            rest.clear();
            if begun + came < HEAD_BYTES {
                return rest.extend_from_slice(head.get(..begun + came).unwrap_or_default());
            }
            let Some(read) = FrameHead::read(head) else { return };
            let is_it =
                (read.kind, read.stream, read.length) == (kind::DATA, id, frame.length) && !read.has(flag::PADDED);
            if !is_it || self.closing == Closing::Failed {
                // Bodies that alternate, or frames of many sizes: moving bytes twice costs more than direct reads save.
                self.reading.predicted_frames_max /= 4;
                rest.extend_from_slice(head);
                return put_back(target, n, predicted, heads, i, tail, rest);
            }
            if let Err(fatal) = self.open_data(read, frame.length, 0, now) {
                return self.fail(fatal);
            }
            if self.streams.find(id).is_none() {
                // Rejected: the rest of the frame and the bytes after it are processed as usual.
                return put_back(target, n, predicted, heads, i, tail, rest);
            }
            let part = n.min(frame.planned);
            n -= part;
            if !self.take_payload(id, target, part, now) {
                return;
            }
        }
        rest.extend_from_slice(tail.get(..n).unwrap_or_default());
    }

    /// Counts `n` bytes of the open frame that are in place; returns true if the frame is complete.
    fn take_payload(&mut self, id: u32, target: &mut dyn Collect, n: usize, now: Instant) -> bool {
        target.filled(n);
        let Some(key) = self.streams.find(id) else { return false };
        self.count_collected(key, n);
        let Some(data) = &mut self.reading.data else { return false };
        data.left -= n.min(data.left);
        if data.left > 0 {
            return false;
        }
        if let Err(fatal) = self.close_data(now) {
            self.fail(fatal);
            return false;
        }
        true
    }
}

/// Moves the bytes read after an unexpected head into the read buffer.
fn put_back(
    target: &mut dyn Collect,
    mut n: usize,
    predicted: &[PredictedFrame],
    heads: &[[u8; HEAD_BYTES]],
    from: usize,
    tail: &[u8],
    rest: &mut BytesMut,
) {
    let mut spare: &[u8] = target.spare();
    let mut heads = heads.iter().take(predicted.len()).skip(from + 1);
    for frame in predicted.iter().skip(from) {
        let Some((payload, behind)) = spare.split_at_checked(frame.planned) else { return };
        let part = n.min(payload.len());
        rest.extend_from_slice(payload.get(..part).unwrap_or_default());
        (spare, n) = (behind, n - part);
        if let Some(head) = heads.next() {
            let part = n.min(HEAD_BYTES);
            rest.extend_from_slice(head.get(..part).unwrap_or_default());
            n -= part;
        }
    }
    rest.extend_from_slice(tail.get(..n).unwrap_or_default());
}
