//! Length-prefixed messages over an HTTP/2 stream: flag, four bytes of length, message.

use super::status::{Status, code};
use crate::assemble::Assembler;
use crate::encoding::{DecompressError, Encoding, compress, decompress, decompress_small};
use crate::exchange::EarlyVersion;
use crate::limits::{
    BODY_BYTES_MAX, DEFLATE_BYTES_ON_REACTOR_MAX, INFLATE_RATIO_MAX, PRINT_BYTES_ON_REACTOR_MAX,
    RANK_BYTES_ON_REACTOR_MAX,
};
use crate::offload::{self, Offloaded};
use crate::rope::Rope;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use engine::Engine;
use http2::{Body, NotCollected};
use memory::{Account, Charge, Kind, Short};
use prost::Message;
use protocol::InferResponse;
use protocol::grpc::{model_of, raw_offset};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::Error;

/// Size of the flag and the length in front of each message.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Alignment of the contents of a tensor: a cache line, which suits every datatype and the widest loads.
pub(crate) const TENSOR_ALIGN: usize = 64;

/// Reads messages from a stream.
pub struct Messages {
    body: Body,
    encoding: Encoding,
    unpacked_bytes_max: usize,
    /// Received and not yet used.
    chunk: Bytes,
    /// Received bytes that were not returned to the flow-control window yet.
    unreleased: usize,
    state: MessageState,
    account: Rc<Account>,
    /// A streaming call, whose client may pause between two messages.
    is_stream: bool,
    lost_one: bool,
    /// Set for inferences on a machine with devices: knows whether a message is received in pinned memory.
    engine: Option<Arc<Engine>>,
    early: EarlyVersion,
}

enum MessageState {
    /// Part of a prefix was received.
    Prefix([u8; PREFIX_BYTES], usize),
    /// The received beginning of a message waits for room.
    Begin { compressed: bool, place: Box<Assembler> },
    /// The connection collects the rest of the message.
    Message { compressed: bool },
    /// A message was rejected for lack of room; `left` bytes of it are skipped.
    Skip { left: usize },
    /// Another thread decompresses a large message.
    Inflating(Offloaded<(Result<Bytes, DecompressError>, Charge)>),
    /// Nothing more is read.
    Ended,
}

impl Messages {
    /// Reads the messages of a call. `encoding`: its `grpc-encoding`. `unpacked_bytes_max`: limit of a decompressed
    /// message. `is_stream`: there is no timeout between messages. `engine`: set for inferences if there are devices.
    pub fn new(
        body: Body,
        encoding: Encoding,
        account: Rc<Account>,
        unpacked_bytes_max: usize,
        is_stream: bool,
        engine: Option<Arc<Engine>>,
    ) -> Self {
        let state = MessageState::Prefix([0; PREFIX_BYTES], 0);
        let chunk = Bytes::new();
        Self {
            body,
            encoding,
            unpacked_bytes_max,
            chunk,
            unreleased: 0,
            state,
            account,
            is_stream,
            lost_one: false,
            engine,
            early: EarlyVersion::default(),
        }
    }

    /// The next message; `None` at the end of the request.
    ///
    /// # Errors
    /// CANCELLED if the client disconnected, RESOURCE_EXHAUSTED for a message that is too large, INTERNAL for broken
    /// framing. Nothing more can be read then, unless `lost_one` returns true.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            match &mut self.state {
                MessageState::Ended => return Poll::Ready(Ok(None)),
                MessageState::Inflating(work) => {
                    let unpacked = ready!(Pin::new(work).poll(cx));
                    self.state = MessageState::Prefix([0; PREFIX_BYTES], 0);
                    return match unpacked {
                        Ok((Ok(bytes), charge)) => Poll::Ready(Ok(Some(offload::made(bytes, charge)))),
                        Ok((Err(why), _)) => Poll::Ready(Err(self.not_unpacked(why))),
                        Err(error) if self.is_stream => {
                            self.lost_one = true;
                            Poll::Ready(Err(error.into()))
                        }
                        Err(error) => self.fail(error.into()),
                    };
                }
                MessageState::Prefix(prefix, at) => {
                    let n = self.chunk.len().min(PREFIX_BYTES - *at);
                    if let Some(to) = prefix.get_mut(*at..*at + n) {
                        self.chunk.copy_to_slice(to);
                    }
                    *at += n;
                    if *at == PREFIX_BYTES {
                        let [flag, length @ ..] = *prefix;
                        let length = u32::from_be_bytes(length);
                        if flag > 1 {
                            return self.fail(Status::new(code::INTERNAL, "malformed message prefix"));
                        }
                        if u64::from(length) > BODY_BYTES_MAX {
                            let text = format!("Received message larger than max ({length} vs. {BODY_BYTES_MAX})");
                            return self.fail(Status::new(code::RESOURCE_EXHAUSTED, text));
                        }
                        let (compressed, length) = (flag == 1, length as usize);
                        if self.chunk.len() >= length {
                            // The usual small message is used without a copy.
                            let message = self.chunk.split_to(length);
                            self.state = MessageState::Prefix([0; PREFIX_BYTES], 0);
                            match self.unpack(message, compressed) {
                                Some(unpacked) => return Poll::Ready(unpacked.map(Some)),
                                None => continue,
                            }
                        }
                        let pad = if compressed {
                            0
                        } else {
                            raw_offset(&self.chunk).map_or(0, |at| at.wrapping_neg() % TENSOR_ALIGN)
                        };
                        let near_device = !compressed && self.is_near_device();
                        match Assembler::new(length, pad, &self.account, near_device) {
                            Ok(place) => self.state = MessageState::Begin { compressed, place: Box::new(place) },
                            Err(short) => return self.reject(short, length),
                        }
                        continue;
                    }
                }
                MessageState::Skip { left } => {
                    let n = self.chunk.len().min(*left);
                    self.chunk.advance(n);
                    *left -= n;
                    if *left == 0 {
                        self.state = MessageState::Prefix([0; PREFIX_BYTES], 0);
                        continue;
                    }
                }
                MessageState::Begin { place, .. } => {
                    // Copies the bytes that came with the prefix. While it waits for room, the client's window stays
                    // closed.
                    while !self.chunk.is_empty() && place.missing() > 0 {
                        if let Err(short) = ready!(place.poll_room(cx)) {
                            let missing = place.missing();
                            return self.reject(short, missing);
                        }
                        let taken = place.push(&self.chunk);
                        self.chunk.advance(taken);
                    }
                    let begun = std::mem::replace(&mut self.state, MessageState::Ended);
                    let MessageState::Begin { compressed, place } = begun else { continue };
                    // Even an empty slice would keep the buffer of the next read in use.
                    self.chunk = Bytes::new();
                    self.body.release(std::mem::take(&mut self.unreleased));
                    self.body.collect(place);
                    self.state = MessageState::Message { compressed };
                    continue;
                }
                MessageState::Message { compressed } => {
                    let compressed = *compressed;
                    let Poll::Ready(collected) = self.body.poll_collected(cx) else {
                        self.body.pause(false);
                        return Poll::Pending;
                    };
                    match collected {
                        Some(Ok(message)) => {
                            self.state = MessageState::Prefix([0; PREFIX_BYTES], 0);
                            match self.unpack(message, compressed) {
                                Some(unpacked) => return Poll::Ready(unpacked.map(Some)),
                                None => continue,
                            }
                        }
                        Some(Err(NotCollected::NoRoom { missing })) => {
                            return self.reject(self.account.short(), missing);
                        }
                        Some(Err(NotCollected::Ended(_))) => {
                            return self.fail(Status::new(code::CANCELLED, "CANCELLED"));
                        }
                        None => {
                            let text = "the request ended inside a message";
                            return self.fail(Status::new(code::INTERNAL, text));
                        }
                    }
                }
            }
            // Released only when more is read: the usual request is one chunk, which is released with its stream.
            if self.unreleased > 0 {
                self.body.release(std::mem::take(&mut self.unreleased));
            }
            let Poll::Ready(data) = self.body.poll_data(cx) else {
                self.body.pause(self.is_stream && matches!(self.state, MessageState::Prefix(_, 0)));
                return Poll::Pending;
            };
            match data {
                Some(Ok(chunk)) => {
                    self.unreleased = chunk.len();
                    self.chunk = chunk;
                }
                Some(Err(_)) => return self.fail(Status::new(code::CANCELLED, "CANCELLED")),
                None => {
                    let whole = matches!(self.state, MessageState::Prefix(_, 0));
                    self.state = MessageState::Ended;
                    return Poll::Ready(if whole {
                        Ok(None)
                    } else {
                        Err(Status::new(code::INTERNAL, "the request ended inside a message"))
                    });
                }
            }
        }
    }

    /// Whether the message that begins is for a model that runs on a device. False if its name was not received yet.
    fn is_near_device(&mut self) -> bool {
        let Some(engine) = &self.engine else { return false };
        let Some((name, version)) = model_of(&self.chunk) else { return false };
        self.early = EarlyVersion::find(engine, name, version);
        self.early.found().is_some_and(|model| model.reads_on_device())
    }

    /// The version that decided where the last message was read to.
    pub fn early(&self) -> &EarlyVersion {
        &self.early
    }

    /// Whether the last error lost one message of a stream only, so that the next can be read. Call after each error.
    pub fn lost_one(&mut self) -> bool {
        std::mem::take(&mut self.lost_one)
    }

    /// Rejects a message for lack of room; `left` bytes of it are still to come. A stream loses only that message.
    fn reject(&mut self, short: Short, left: usize) -> Poll<Result<Option<Bytes>, Status>> {
        self.account.count_refusal();
        if !self.is_stream {
            return self.fail(short.into());
        }
        self.state = MessageState::Skip { left };
        self.lost_one = true;
        Poll::Ready(Err(short.into()))
    }

    /// Error of a message that was read, but not decompressed. For lack of room, a stream loses only that message.
    fn not_unpacked(&mut self, why: DecompressError) -> Status {
        self.lost_one = self.is_stream && matches!(why, DecompressError::NoRoom(_));
        why.into()
    }

    fn fail(&mut self, status: Status) -> Poll<Result<Option<Bytes>, Status>> {
        self.state = MessageState::Ended;
        Poll::Ready(Err(status))
    }

    /// Decompresses a message if necessary; `None` if another thread does that.
    fn unpack(&mut self, message: Bytes, compressed: bool) -> Option<Result<Bytes, Status>> {
        match (compressed, self.encoding) {
            (false, _) => return Some(Ok(message)),
            (true, Encoding::Identity) => {
                let text = "compressed message without the header grpc-encoding";
                return Some(Err(Status::new(code::INTERNAL, text)));
            }
            (true, _) => {}
        }
        let bytes_max = self.unpacked_bytes_max;
        if let Some(unpacked) = decompress_small(&message, bytes_max) {
            return Some(unpacked.map_err(|why| self.not_unpacked(why)));
        }
        // The decompressed size is unknown, so the maximum decides between light and heavy work.
        let bytes = message.len().saturating_mul(INFLATE_RATIO_MAX);
        let work = offload::start_charged(&self.account, Kind::Unpacked, bytes, move |cancel| {
            decompress(&message, bytes_max, || cancel.is_set())
        });
        match work {
            Ok(work) => {
                self.state = MessageState::Inflating(work);
                None
            }
            Err(error) => {
                self.lost_one = self.is_stream;
                Some(Err(error.into()))
            }
        }
    }
}

impl From<DecompressError> for Status {
    fn from(why: DecompressError) -> Self {
        match why {
            DecompressError::Broken(error) => Self::new(code::INTERNAL, error.message()),
            DecompressError::TooLarge(error) => Self::new(code::RESOURCE_EXHAUSTED, error.message()),
            DecompressError::NoRoom(error) => error.into(),
        }
    }
}

/// Encodes a message with its prefix.
pub fn frame(message: &impl Message) -> Rope {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Cannot fail: the room was reserved above.
    let _ = message.encode(&mut out);
    out.freeze().into()
}

/// Compression of the inference responses of a call.
#[derive(Debug, Clone, Copy)]
pub struct Packing {
    encoding: Encoding,
    level: u32,
}

impl Packing {
    pub fn new(level: Option<u32>, encoding: Encoding) -> Self {
        Self { encoding, level: level.unwrap_or_default() }
    }

    /// Whether ranking or compressing a response takes so long that another thread does it.
    pub fn is_long(self, response: &InferResponse) -> bool {
        let mut bytes = response.id.len();
        for output in &response.outputs {
            bytes += output.answered_bytes();
            if output.form.classification > 0 && output.answered_bytes() > RANK_BYTES_ON_REACTOR_MAX {
                return true;
            }
        }
        response.id.len() > PRINT_BYTES_ON_REACTOR_MAX
            || (self.encoding != Encoding::Identity
                && bytes > DEFLATE_BYTES_ON_REACTOR_MAX / self.level.max(1) as usize)
    }
}

/// Frames an inference response, compressed if `packing` says so.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory to compress it.
pub fn frame_encoded(encoded: protocol::grpc::Encoded, packing: Packing) -> Result<Rope, Error> {
    let Packing { encoding, level } = packing;
    if encoding == Encoding::Identity {
        return Ok(Rope::new(encoded.into_frame().into_iter().map(offload::disposed)));
    }
    let pieces = encoded.into_message();
    let Some(packed) = compress(pieces.iter().map(|p| &p[..]), encoding, level)? else {
        let length = pieces.iter().map(Bytes::len).sum();
        return Ok(Rope::new(std::iter::once(prefix(0, length)).chain(pieces.into_iter().map(offload::disposed))));
    };
    Ok(Rope::new([prefix(1, packed.len()), offload::disposed(packed)].into_iter()))
}

fn prefix(flag: u8, length: usize) -> Bytes {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    Bytes::copy_from_slice(&[flag, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference as pb;

    #[test]
    fn the_model_is_known_once_its_name_was_received() {
        let message = |model: &str, version: &str| pb::ModelInferRequest {
            model_name: model.into(),
            model_version: version.into(),
            id: "7".into(),
            raw_input_contents: vec![Bytes::from(vec![0xaa; 500])],
            ..Default::default()
        };
        let bytes = message("résumé", "12").encode_to_vec();
        assert_eq!(model_of(&bytes), Some(("résumé", "12")));
        let bytes = message("m", "").encode_to_vec();
        assert_eq!(model_of(&bytes), Some(("m", "")));
        // Name (three bytes), then the id, whose tag shows that no version follows.
        assert_eq!(
            (model_of(&bytes[..2]), model_of(&bytes[..3]), model_of(&bytes[..4])),
            (None, None, Some(("m", "")))
        );
        assert_eq!(model_of(&message("", "").encode_to_vec()), None, "no name at the beginning");
        // Another order, invalid UTF-8, a length beyond the end.
        for other in [&[0x12, 1, b'1', 0x0a, 1, b'm'][..], &[0x0a, 1, 0xff, 0x12], &[0x0a, 0x7f, b'm'], &[0x08, 1], &[]]
        {
            assert_eq!(model_of(other), None, "{other:x?}");
        }
    }

    #[test]
    fn the_first_raw_tensor_is_found_at_any_offset() {
        for n in 0..70 {
            let raw = vec![Bytes::from(vec![0xaa; 500]), Bytes::from(vec![0xbb; 10])];
            let message = pb::ModelInferRequest {
                model_name: "m".repeat(n),
                id: "7".into(),
                inputs: vec![pb::model_infer_request::InferInputTensor {
                    name: "IN".into(),
                    shape: vec![n as i64],
                    ..Default::default()
                }],
                raw_input_contents: raw.clone(),
                ..Default::default()
            };
            let bytes = message.encode_to_vec();
            let at = raw_offset(&bytes).unwrap();
            assert_eq!(bytes[at..at + 500], raw[0], "{n}");
            assert_eq!(raw_offset(&bytes[..at]), Some(at), "the data need not be there");
            assert_eq!(raw_offset(&bytes[..at - 1]), None);
        }
        for other in [&[][..], &[0x0f], &[0xff; 20], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1], &[0x08]] {
            assert_eq!(raw_offset(other), None, "{other:x?}");
        }
    }
}
