//! The state machine on bytes: frames of a client and the frames it gets.

use super::*;
use crate::collect::{Gone, NotCollected};
use crate::frame::{FRAME_BYTES_MAX, FrameHead, HEAD_BYTES, PREFACE, flag};
use crate::handle::{Request, StreamWriter};
use crate::hpack::{Decoder, Field};
use crate::limits::{
    CONTINUATIONS_MAX, DISCARD_BYTES_MAX, EMPTY_FRAMES_MAX, HELD_HEAD_BYTES_MAX, SETTINGS_BYTES_MAX,
    TROUBLE_FORGIVEN_EVERY, TROUBLE_MAX, TURN_BYTES,
};
use crate::options::Pings;
use bytes::{BufMut, Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::{LocalSet, spawn_local};

const FIXED: &[(&str, &str)] = &[("content-type", "application/grpc"), ("grpc-status", "0")];
/// `:method: POST`, `:scheme: http`, `:path: /`, all from the static table.
const POST: &[u8] = &[0x83, 0x86, 0x84];

fn options() -> Options {
    Options { fixed: FIXED, streams_max: 8, stream_window: 100_000, connection_window: 200_000, ..Options::default() }
}

/// A client that sends exactly the bytes of the test.
struct Wire {
    machine: Machine,
    buffer: BytesMut,
    now: Instant,
    decoder: Decoder,
}

/// A frame as the client receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReceivedFrame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHead { length: payload.len(), kind, flags, stream }.bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        entries.iter().flat_map(|(id, v)| id.to_be_bytes().into_iter().chain(v.to_be_bytes())).collect();
    frame(kind::SETTINGS, 0, 0, &payload)
}

impl Wire {
    fn with(options: Options, entries: &[(u16, u32)]) -> Self {
        let mut wire = Self::silent(options);
        wire.send(PREFACE);
        wire.send(&settings(entries));
        let seen = wire.received();
        assert_eq!((seen[0].kind, seen.last().unwrap().flags), (kind::SETTINGS, flag::ACK));
        wire
    }

    fn silent(options: Options) -> Self {
        Self { machine: Machine::new(options), buffer: BytesMut::new(), now: Instant::now(), decoder: Decoder::new() }
    }

    fn new() -> Self {
        Self::with(options(), &[])
    }

    fn send(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.machine.receive(&mut self.buffer, self.now);
        while self.machine.has_rest() {
            self.machine.receive(&mut self.buffer, self.now);
        }
    }

    fn request(&mut self, id: u32, ends: bool) {
        let end = if ends { flag::END_STREAM } else { 0 };
        self.send(&frame(kind::HEADERS, flag::END_HEADERS | end, id, POST));
    }

    fn call(&mut self, id: u32, ends: bool) -> (Request, StreamWriter) {
        self.request(id, ends);
        self.machine.accept().expect("a call")
    }

    fn data(&mut self, id: u32, n: usize, ends: bool) {
        self.send(&frame(kind::DATA, u8::from(ends), id, &vec![b'd'; n]));
    }

    fn window(&mut self, id: u32, more: u32) {
        self.send(&frame(kind::WINDOW_UPDATE, 0, id, &more.to_be_bytes()));
    }

    fn received(&mut self) -> Vec<ReceivedFrame> {
        let mut bytes = Vec::new();
        self.machine.transmit(&mut bytes);
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Some(head) = FrameHead::read(rest) {
            let payload = rest[HEAD_BYTES..HEAD_BYTES + head.length].to_vec();
            rest = &rest[HEAD_BYTES + head.length..];
            all.push(ReceivedFrame { kind: head.kind, flags: head.flags, stream: head.stream, payload });
        }
        assert!(rest.is_empty(), "half a frame");
        all
    }

    /// Short forms of all received frames.
    fn short(&mut self) -> Vec<String> {
        let seen = self.received();
        seen.into_iter().map(|f| self.describe(&f)).collect()
    }

    fn describe(&mut self, f: &ReceivedFrame) -> String {
        let number = |at: usize| f.payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes(b.try_into().unwrap()));
        let end =
            if matches!(f.kind, kind::DATA | kind::HEADERS) && f.flags & flag::END_STREAM != 0 { " end" } else { "" };
        match f.kind {
            kind::DATA => format!("DATA {} {}{end}", f.stream, f.payload.len()),
            kind::HEADERS => {
                let mut fields = String::new();
                let mut each = |n: &[u8], v: &[u8]| {
                    fields += &format!(" {}={}", String::from_utf8_lossy(n), String::from_utf8_lossy(v));
                };
                self.decoder.decode(&f.payload, &mut each).unwrap();
                format!("HEADERS {}{fields}{end}", f.stream)
            }
            kind::RST_STREAM => format!("RST {} {}", f.stream, number(0)),
            kind::GOAWAY => {
                format!("GOAWAY {} {} {}", number(0), number(4), String::from_utf8_lossy(&f.payload[8..]))
            }
            kind::WINDOW_UPDATE => format!("WINDOW {} {}", f.stream, number(0)),
            kind::PING => format!("PING {}", f.flags),
            kind::SETTINGS => format!("SETTINGS {}", f.flags),
            other => format!("frame {other} {}", f.stream),
        }
    }
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn read(request: &mut Request) -> String {
    match request.body.poll_data(&mut cx()) {
        Poll::Pending => "pending".into(),
        Poll::Ready(None) => "end".into(),
        Poll::Ready(Some(Ok(piece))) => piece.len().to_string(),
        Poll::Ready(Some(Err(reason))) => format!("reset {}", reason.0),
    }
}

/// Checks the GOAWAY that a client gets if it first sends `bytes`.
fn check_fatal(bytes: &[u8], reason: Reason) {
    let mut wire = Wire::new();
    wire.request(1, false);
    wire.send(bytes);
    let last = wire.short().pop().unwrap_or_default();
    assert!(last.starts_with(&format!("GOAWAY 1 {} ", reason.0)), "{last:?} after {bytes:x?}");
    assert!(wire.machine.is_finished() && !wire.machine.may_read());
    wire.data(1, 1, true);
    assert!(wire.received().is_empty() && wire.machine.streams() == 0);
}

/// Checks the reset that a client gets if it opens stream 1 and then sends `bytes`.
fn check_reset(bytes: &[u8], reason: Reason) {
    let mut wire = Wire::new();
    let (mut request, mut respond) = wire.call(1, false);
    wire.send(bytes);
    assert_eq!(wire.short(), [format!("RST 1 {}", reason.0)], "after {bytes:x?}");
    assert_eq!(read(&mut request), format!("reset {}", reason.0));
    assert_eq!(respond.poll_reset(&mut cx()), Poll::Ready(reason));
    assert_eq!(respond.send_head(200, &[], true), Err(Gone));
    // The connection stays open.
    wire.call(3, true);
}

#[test]
fn a_call_is_answered_and_a_second_response_uses_the_table() {
    let mut wire = Wire::new();
    for id in [1, 3] {
        let (mut request, mut respond) = wire.call(id, false);
        assert_eq!((request.head.method(), request.head.path()), (&b"POST"[..], &b"/"[..]));
        assert_eq!(read(&mut request), "pending");
        wire.data(id, 10, true);
        assert_eq!((read(&mut request), read(&mut request)), ("10".into(), "end".into()));
        respond.send_head(200, &[Field::Fixed(0)], false).unwrap();
        respond.send_data(Bytes::from_static(b"hello"), false).unwrap();
        respond.send_trailers(&[Field::Fixed(1)]).unwrap();
        assert_eq!(respond.send_trailers(&[]), Err(Gone));
        drop((request, respond));
        let mut bytes = Vec::new();
        wire.machine.transmit(&mut bytes);
        if id == 3 {
            assert_eq!(bytes.len(), 9 + 2 + 9 + 5 + 9 + 1);
        }
        assert_eq!(wire.machine.streams(), 0);
    }
    assert_eq!(wire.machine.core.borrow_mut().streams.used(), 0);
}

#[test]
fn repeated_heads_are_decoded_once_until_the_table_changes() {
    let mut wire = Wire::new();
    let (a, _x) = wire.call(1, true);
    let (b, _y) = wire.call(3, true);
    assert!(Rc::ptr_eq(&a.head, &b.head));
    // The same bytes with another meaning afterwards: index 62 is the newest entry.
    let newest = |id| frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, id, &[0x83, 0x86, 0x84, 0xbe]);
    let insert = |id, value| {
        frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, id, &[0x83, 0x86, 0x84, 0x40, 1, b'k', 1, value])
    };
    for (id, bytes, expected) in [
        (5, insert(5, b'1'), b'1'),
        (7, newest(7), b'1'),
        (9, newest(9), b'1'),
        (11, insert(11, b'2'), b'2'),
        (13, newest(13), b'2'),
        (15, newest(15), b'2'),
    ] {
        wire.send(&bytes);
        let (request, _) = wire.machine.accept().unwrap();
        assert_eq!(request.head.get("k"), Some(&[expected][..]), "stream {id}");
    }
}

#[test]
fn input_may_be_split_anywhere() {
    let mut all = [&PREFACE[..], &settings(&[])].concat();
    let block = [POST, &[0x40, 1, b'k', 3, b'a', b'b', b'c']].concat();
    all.extend(frame(
        kind::HEADERS,
        flag::PRIORITY | flag::PADDED,
        1,
        &[&[2, 0, 0, 0, 0, 9], &block[..4], &[0, 0]].concat(),
    ));
    all.extend(frame(kind::CONTINUATION, 0, 1, &block[4..6]));
    all.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[6..]));
    all.extend(frame(0x77, 0xff, 1, b"nobody knows"));
    all.extend(frame(kind::PRIORITY, 0, 9, &[0; 5]));
    all.extend(frame(kind::DATA, flag::PADDED, 1, b"\x03helloXXX"));
    all.extend(frame(kind::DATA, 0, 1, b" world"));
    all.extend(frame(kind::GOAWAY, 0, 0, &[0; 20]));
    all.extend(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &[0x00, 1, b't', 1, b'v']));
    for step in [1, 2, 3, 7, 10, 1000] {
        let mut wire = Wire::silent(options());
        for piece in all.chunks(step) {
            wire.send(piece);
        }
        let (mut request, _respond) = wire.machine.accept().unwrap();
        assert_eq!(request.head.get("k"), Some(&b"abc"[..]));
        let mut body = Vec::new();
        while let Poll::Ready(Some(piece)) = request.body.poll_data(&mut cx()) {
            body.extend_from_slice(&piece.unwrap());
        }
        assert_eq!((&body[..], read(&mut request)), (&b"hello world"[..], "end".into()), "step {step}");
    }
}

#[test]
fn rfc9113_connection_errors_end_the_connection_with_their_code() {
    let large = frame(kind::DATA, 0, 1, &vec![0; 64 * 1024 + 1]);
    let head = |kind, length| FrameHead { length, kind, flags: 0, stream: 1 }.bytes();
    for (bytes, reason) in [
        (frame(kind::DATA, 0, 0, b"x"), Reason::PROTOCOL_ERROR),
        (frame(kind::DATA, 0, 3, b"x"), Reason::PROTOCOL_ERROR),
        (frame(kind::DATA, flag::PADDED, 1, b"\x05abc"), Reason::PROTOCOL_ERROR),
        (frame(kind::DATA, flag::PADDED, 1, b""), Reason::FRAME_SIZE_ERROR),
        (large, Reason::FRAME_SIZE_ERROR),
        (head(kind::HEADERS, FRAME_BYTES_MAX as usize).to_vec(), Reason::FRAME_SIZE_ERROR),
        (frame(kind::HEADERS, flag::END_HEADERS, 2, POST), Reason::PROTOCOL_ERROR),
        (frame(kind::HEADERS, flag::END_HEADERS, 0, POST), Reason::PROTOCOL_ERROR),
        (frame(kind::HEADERS, flag::END_HEADERS | flag::PADDED, 3, b"\x09abc"), Reason::PROTOCOL_ERROR),
        (frame(kind::HEADERS, flag::END_HEADERS | flag::PRIORITY, 3, b"abc"), Reason::FRAME_SIZE_ERROR),
        (frame(kind::HEADERS, flag::END_HEADERS, 3, &[0xbe]), Reason::COMPRESSION_ERROR),
        (frame(kind::CONTINUATION, flag::END_HEADERS, 1, POST), Reason::PROTOCOL_ERROR),
        ([frame(kind::HEADERS, 0, 3, POST), frame(kind::PING, 0, 0, &[0; 8])].concat(), Reason::PROTOCOL_ERROR),
        (
            [frame(kind::HEADERS, 0, 3, POST), frame(kind::CONTINUATION, flag::END_HEADERS, 5, POST)].concat(),
            Reason::PROTOCOL_ERROR,
        ),
        (frame(kind::PRIORITY, 0, 0, &[0; 5]), Reason::PROTOCOL_ERROR),
        (frame(kind::PRIORITY, 0, 1, &[0; 4]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::RST_STREAM, 0, 0, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::RST_STREAM, 0, 3, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::RST_STREAM, 0, 1, &[0; 5]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::SETTINGS, 0, 1, &[]), Reason::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 0, &[0; 5]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), Reason::FRAME_SIZE_ERROR),
        (settings(&[(setting::ENABLE_PUSH, 2)]), Reason::PROTOCOL_ERROR),
        (settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]), Reason::FLOW_CONTROL_ERROR),
        (settings(&[(setting::MAX_FRAME_SIZE, 16_383)]), Reason::PROTOCOL_ERROR),
        (settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)]), Reason::PROTOCOL_ERROR),
        (frame(kind::PUSH_PROMISE, 0, 1, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::PING, 0, 1, &[0; 8]), Reason::PROTOCOL_ERROR),
        (frame(kind::PING, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::GOAWAY, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
        (frame(kind::GOAWAY, 0, 1, &[0; 8]), Reason::PROTOCOL_ERROR),
        (frame(kind::PRIORITY, 0, 5, &[0, 0, 0, 5, 1]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), Reason::FLOW_CONTROL_ERROR),
    ] {
        check_fatal(&bytes, reason);
    }
    for first in [&b"GET / HTTP/1.1\r\n"[..], &[&PREFACE[..], &frame(kind::PING, 0, 0, &[0; 8])].concat()] {
        let mut wire = Wire::silent(options());
        wire.send(first);
        assert!(wire.short().pop().unwrap().starts_with("GOAWAY 0 1 "), "{first:?}");
    }
}

#[test]
fn rfc9113_stream_errors_reset_only_the_stream() {
    let trailers = |flags, block: &[u8]| frame(kind::HEADERS, flag::END_HEADERS | flags, 1, block);
    for (bytes, reason) in [
        (trailers(0, &[0x00, 1, b't', 1, b'v']), Reason::PROTOCOL_ERROR),
        (trailers(flag::END_STREAM, POST), Reason::PROTOCOL_ERROR),
        (frame(kind::PRIORITY, 0, 1, &[0x80, 0, 0, 1, 1]), Reason::PROTOCOL_ERROR),
        (trailers(flag::END_STREAM, &[0x00, 1, b'T', 1, b'v']), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0; 4]), Reason::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), Reason::FLOW_CONTROL_ERROR),
        ([frame(kind::DATA, 1, 1, b"x"), frame(kind::DATA, 0, 1, b"x")].concat(), Reason::STREAM_CLOSED),
        ([frame(kind::DATA, 1, 1, b"x"), trailers(flag::END_STREAM, &[])].concat(), Reason::STREAM_CLOSED),
        (
            [frame(kind::DATA, 0, 1, &[0; 60_000]), frame(kind::DATA, 0, 1, &[0; 40_001])].concat(),
            Reason::FLOW_CONTROL_ERROR,
        ),
    ] {
        check_reset(&bytes, reason);
    }
    // Malformed heads: the call is never accepted.
    let length = |n: u8| [POST, &[0x0f, 0x0d, 1, n]].concat();
    for (block, flags) in [
        (&[0x83, 0x86][..], 0),
        (&[0x83, 0x86, 0x84, 0x84], 0),
        (&[0x83, 0x86, 0x84, 0x00, 1, b'K', 1, b'v'], 0),
        (&[0x88], 0),
        (&length(b'5'), flag::END_STREAM),
        (&length(b'x'), 0),
        // `:path: v2`, `:path: *`
        (&[0x83, 0x86, 0x04, 2, b'v', b'2'], 0),
        (&[0x83, 0x86, 0x04, 1, b'*'], 0),
        // `:authority: a`, `host: b`
        (&[0x83, 0x86, 0x84, 0x01, 1, b'a', 0x0f, 0x17, 1, b'b'], 0),
    ] {
        let mut wire = Wire::new();
        wire.send(&frame(kind::HEADERS, flag::END_HEADERS | flags, 1, block));
        assert_eq!(wire.short(), ["RST 1 1"], "{block:x?}");
        assert!(wire.machine.accept().is_none());
        wire.call(3, true);
    }
    // More, or less, than was announced.
    for (n, ends) in [(6, false), (6, true), (4, true)] {
        let mut wire = Wire::new();
        wire.send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &length(b'5')));
        let (mut request, _respond) = wire.machine.accept().unwrap();
        wire.data(1, n, ends);
        assert_eq!(wire.short(), ["RST 1 1"], "{n} of 5");
        assert_eq!(read(&mut request), "reset 1");
    }
}

#[test]
fn frames_of_finished_streams_are_read_and_dropped() {
    let mut wire = Wire::new();
    drop(wire.call(1, false));
    assert_eq!(wire.short(), ["RST 1 8"]);
    // The table must stay in step: the next stream uses the field that this one inserts.
    wire.send(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &[0x40, 1, b'k', 1, b'v']));
    wire.window(1, 5);
    wire.send(&frame(kind::RST_STREAM, 0, 1, &[0; 4]));
    for _ in 0..10 {
        wire.data(1, 20_000, false);
    }
    assert_eq!(wire.short(), ["WINDOW 0 100000", "WINDOW 0 100000"], "the others get their room back");
    wire.send(&frame(kind::HEADERS, flag::END_HEADERS, 3, &[POST, &[0xbe]].concat()));
    assert_eq!(wire.machine.accept().unwrap().0.head.get("k"), Some(&b"v"[..]));
}

/// Checks the frames that a client gets for `bytes` after stream 5, the only one, was finished by `end`.
fn check_late(end: impl Fn(&mut Wire), bytes: &[u8], expected: &str) {
    let mut wire = Wire::new();
    end(&mut wire);
    wire.short();
    wire.send(bytes);
    let seen = wire.short();
    assert_eq!(seen.join(", "), expected, "after {bytes:x?}");
    assert_eq!(wire.machine.is_failed(), expected.starts_with("GOAWAY"));
}

#[test]
fn rfc9113_5_1_frames_of_closed_streams_end_the_stream_or_the_connection() {
    let answered = |wire: &mut Wire| {
        let (_request, mut respond) = wire.call(5, true);
        respond.send_head(200, &[], true).unwrap();
    };
    let reset_by_client = |wire: &mut Wire| {
        let _call = wire.call(5, false);
        wire.send(&frame(kind::RST_STREAM, 0, 5, &[0; 4]));
    };
    let reset_by_us = |wire: &mut Wire| drop(wire.call(5, false));
    let headers = |id| frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, id, POST);
    let data = |id| frame(kind::DATA, 1, id, b"late");
    let closed = "GOAWAY 5 5 a frame of a stream that is closed";
    let smaller = "GOAWAY 5 1 a stream id smaller than the last one";
    check_late(answered, &data(5), closed);
    check_late(answered, &headers(5), closed);
    for end in [&answered as &dyn Fn(&mut Wire), &reset_by_client, &reset_by_us] {
        // 5.1.1: the id of a new stream is larger than all before it.
        check_late(end, &headers(3), smaller);
        check_late(end, &data(1), smaller);
        // These may cross our last frame.
        check_late(end, &frame(kind::WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]), "");
        check_late(end, &frame(kind::RST_STREAM, 0, 5, &[0; 4]), "");
        check_late(end, &frame(kind::PRIORITY, 0, 5, &[0; 5]), "");
    }
    check_late(reset_by_client, &data(5), "RST 5 5");
    check_late(reset_by_client, &headers(5), "RST 5 5");
    check_late(reset_by_client, &[data(5), data(5)].concat(), "RST 5 5");
    check_late(reset_by_us, &data(5), "");
    check_late(reset_by_us, &headers(5), "");
    // 5.3.1 of RFC 7540, and a stream that was never served.
    let itself = [&[0, 0, 0, 7, 1][..], POST].concat();
    let itself = frame(kind::HEADERS, flag::END_HEADERS | flag::PRIORITY, 7, &itself);
    check_late(answered, &[itself, data(7)].concat(), "RST 7 1");
}

#[test]
fn rfc9113_8_1_an_early_response_is_followed_by_a_reset_only_after_silence() {
    let mut wire = Wire::new();
    let refuse = |wire: &mut Wire, id| {
        let (_request, mut respond) = wire.call(id, false);
        respond.send_head(404, &[], true).unwrap();
    };
    refuse(&mut wire, 1);
    assert_eq!(
        (wire.short(), wire.machine.look_after()),
        (vec!["HEADERS 1 :status=404 end".into()], Some(Duration::from_secs(1)))
    );
    // The body is dropped, and its window is restored.
    for _ in 0..2 {
        wire.data(1, 60_000, false);
    }
    assert_eq!(wire.short(), ["WINDOW 1 60000", "WINDOW 0 120000", "WINDOW 1 60000"]);
    let start = Instant::now();
    let look = |wire: &mut Wire, seconds| {
        assert!(wire.machine.look(start + Duration::from_secs(seconds)));
        wire.short()
    };
    assert_eq!(look(&mut wire, 0), Vec::<String>::new());
    wire.data(1, 10, false);
    assert_eq!(look(&mut wire, 2), Vec::<String>::new(), "it moves");
    assert_eq!(look(&mut wire, 4), ["RST 1 0"]);
    assert_eq!((wire.machine.streams(), wire.machine.look_after().is_some()), (0, true));
    // Bytes under way are read and dropped; the end of the body ends the stream.
    wire.data(1, 10, true);
    refuse(&mut wire, 3);
    wire.data(3, 10, true);
    assert_eq!((wire.short(), wire.machine.streams()), (vec!["HEADERS 3 :status=404 end".into()], 0));
    // Errors still reset the stream.
    refuse(&mut wire, 5);
    wire.window(5, 0);
    assert_eq!(wire.short(), ["HEADERS 5 :status=404 end", "RST 5 1"]);
    // There is a limit on the dropped bytes.
    refuse(&mut wire, 7);
    wire.short();
    let mut room = 100_000;
    let mut sent = 0;
    while room > 0 {
        let n = room.min(60_000);
        wire.data(7, n, false);
        (room, sent) = (room - n, sent + n);
        for seen in wire.short() {
            room += seen.strip_prefix("WINDOW 7 ").map_or(0, |n| n.parse::<usize>().unwrap());
        }
    }
    assert!((DISCARD_BYTES_MAX..DISCARD_BYTES_MAX + 200_000).contains(&sent), "{sent}");
    look(&mut wire, 10);
    assert_eq!(look(&mut wire, 12), ["RST 7 0"]);
}

/// Checks a client every second that sends nothing more; returns the frames it gets, with their time.
fn silence(wire: &mut Wire, seconds: u64) -> String {
    let start = Instant::now();
    for second in 0..=seconds {
        let goes_on = wire.machine.look(start + Duration::from_secs(second));
        let seen = if goes_on { wire.short() } else { vec!["closed".into()] };
        if !seen.is_empty() {
            return format!("{second}: {}", seen.join(", "));
        }
    }
    "nothing".into()
}

#[test]
fn each_missing_frame_closes_the_connection_after_its_timeout() {
    let hello = [&PREFACE[..], &settings(&[])].concat();
    let preface = "20: GOAWAY 0 1 no preface and SETTINGS in time";
    let frame_part = "20: GOAWAY 0 1 an incomplete frame or header block, without the rest in time";
    let half = [&PREFACE[..], &settings(&[]), &frame(kind::SETTINGS, flag::ACK, 0, &[])].concat();
    for (bytes, expected) in [
        (Vec::new(), preface),
        (PREFACE[..10].to_vec(), preface),
        (PREFACE.to_vec(), preface),
        (hello[..30].to_vec(), preface),
        (hello.clone(), "60: GOAWAY 0 4 SETTINGS were not acknowledged in time"),
        ([&half[..], &[0, 0, 5]].concat(), frame_part),
        ([&half[..], &frame(kind::HEADERS, 0, 1, POST)].concat(), frame_part),
        ([&half[..], &frame(kind::HEADERS, flag::END_HEADERS, 1, POST)[..10]].concat(), frame_part),
        (half.clone(), "nothing"),
    ] {
        let mut wire = Wire::silent(options());
        wire.send(&bytes);
        wire.received();
        assert_eq!(silence(&mut wire, 200), expected, "after {bytes:x?}");
        assert_eq!(wire.machine.look_after(), None);
    }
    // Single bytes do not extend the timeout of a head.
    let mut wire = Wire::silent(options());
    wire.send(&half);
    wire.received();
    let (start, mut ended) = (Instant::now(), None);
    for (second, part) in frame(kind::HEADERS, 0, 1, &[0; 60]).chunks(1).enumerate() {
        wire.send(part);
        wire.machine.look(start + Duration::from_secs(second as u64));
        ended = ended.or(wire.machine.is_failed().then_some(second));
    }
    assert_eq!(ended, Some(20));
}

/// A connection whose handshake is complete.
fn settled(entries: &[(u16, u32)]) -> Wire {
    let mut wire = Wire::with(options(), entries);
    wire.send(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
    assert_eq!(wire.machine.look_after(), None);
    wire
}

#[test]
fn a_stalled_body_ends_its_stream_or_with_a_silent_client_the_connection() {
    let silent = "60: GOAWAY 1 8 an incomplete body, without more data in time";
    // A caller waits for the body, within a frame or between two.
    for half_a_frame in [false, true] {
        let mut wire = settled(&[]);
        let (mut request, _respond) = wire.call(1, false);
        wire.data(1, 10, false);
        if half_a_frame {
            wire.send(&frame(kind::DATA, 0, 1, &[0; 100])[..50]);
        }
        while read(&mut request) != "pending" {}
        let expected =
            if half_a_frame { "60: GOAWAY 1 1 an incomplete DATA frame, without the rest in time" } else { silent };
        assert_eq!(silence(&mut wire, 100), expected);
        assert!(read(&mut request).starts_with("reset"));
    }
    // The client is slow, but alive: only its stream is reset.
    let mut wire = settled(&[]);
    let (mut request, _respond) = wire.call(1, false);
    assert_eq!(read(&mut request), "pending");
    let start = Instant::now();
    let mut seen = Vec::new();
    for second in 0..80u64 {
        wire.send(&frame(kind::PING, flag::ACK, 0, &[0; 8]));
        wire.machine.look(start + Duration::from_secs(second));
        seen.extend(wire.short().into_iter().map(|frame| format!("{second}: {frame}")));
    }
    assert_eq!(seen, ["60: RST 1 8"]);
    // Not waited for, complete, or resting: no timeout applies.
    for quiet in [&(|_: &mut Request| ()) as &dyn Fn(&mut Request), &|r| r.body.pause(true)] {
        let mut wire = settled(&[]);
        let (mut request, _respond) = wire.call(1, false);
        wire.data(1, 10, false);
        quiet(&mut request);
        if request.body.poll_data(&mut cx()).is_ready()
            && wire.machine.core.borrow_mut().streams.get(0).unwrap().body.is_paused
        {
            assert_eq!(read(&mut request), "pending");
        }
        assert_eq!(silence(&mut wire, 1000), "nothing");
    }
    let mut wire = settled(&[]);
    let (mut request, _respond) = wire.call(1, true);
    assert_eq!((read(&mut request), silence(&mut wire, 1000)), ("end".into(), "nothing".into()));
}

#[test]
fn a_stalled_body_is_reset_early_while_others_wait_for_memory() {
    thread_local! { static SHORT: Cell<bool> = const { Cell::new(false) }; }
    let mut wire = Wire::with(Options { is_short: || SHORT.get(), ..options() }, &[]);
    wire.send(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
    let mut calls: Vec<_> = [1, 3, 5].map(|id| wire.call(id, false)).into();
    // The first has begun, the second has no bytes, and the third makes progress.
    for id in [1, 5] {
        wire.data(id, 10, false);
    }
    for (request, _) in &mut calls {
        while read(request) != "pending" {}
    }
    let start = Instant::now();
    let mut look = |second| {
        wire.data(5, 1, false);
        while read(&mut calls[2].0) != "pending" {}
        assert!(wire.machine.look(start + Duration::from_secs(second)));
        wire.short()
    };
    assert_eq!((0..20).flat_map(&mut look).collect::<Vec<_>>(), Vec::<String>::new(), "nobody waits");
    SHORT.set(true);
    assert_eq!(look(20), ["RST 1 8"]);
    assert_eq!((21..30).flat_map(&mut look).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(read(&mut calls[0].0), "reset 8");
}

#[test]
fn a_stalled_response_ends_its_stream_or_with_a_silent_client_the_connection() {
    let answer = |wire: &mut Wire, queue: bool| {
        let (request, mut respond) = wire.call(1, true);
        respond.send_head(200, &[], false).unwrap();
        match queue {
            true => respond.send_data(Bytes::from(vec![0; 1 << 24]), true).unwrap(),
            false => assert_eq!(respond.poll_capacity(&mut cx()), Poll::Pending),
        }
        wire.short();
        (request, respond)
    };
    for queue in [true, false] {
        let mut wire = settled(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
        let _call = answer(&mut wire, queue);
        assert_eq!(silence(&mut wire, 100), "60: GOAWAY 1 8 no room for a response in time");
    }
    // A small window now and then is enough; a client that sends other frames loses only the stream.
    for (gives, expected) in [(true, ""), (false, "60: RST 1 8")] {
        let mut wire = settled(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
        let _call = answer(&mut wire, true);
        let (start, mut seen) = (Instant::now(), Vec::new());
        for second in 0..200u64 {
            wire.send(&frame(kind::PING, flag::ACK, 0, &[0; 8]));
            if gives && second % 50 == 49 {
                wire.window(1, 1);
            }
            wire.machine.look(start + Duration::from_secs(second));
            seen.extend(wire.short().into_iter().filter(|f| f != "DATA 1 1").map(|frame| format!("{second}: {frame}")));
        }
        assert_eq!(seen.join(", "), expected);
    }
    // The client does not read, so nothing more can be sent.
    let mut wire = settled(&[]);
    let (_request, mut respond) = wire.call(1, true);
    respond.send_head(200, &[], true).unwrap();
    let start = Instant::now();
    let ended = (0..100).find(|second| !wire.machine.look(start + Duration::from_secs(*second)));
    assert_eq!(ended, Some(60));
}

#[test]
fn an_unanswered_call_is_cancelled_and_an_early_response_is_sent() {
    let mut wire = Wire::new();
    let (request, mut respond) = wire.call(1, false);
    respond.send_head(200, &[], false).unwrap();
    drop((request, respond));
    assert_eq!(wire.short()[1..], ["RST 1 8"]);
    let (request, mut respond) = wire.call(3, false);
    respond.send_head(404, &[], true).unwrap();
    drop((request, respond));
    // RFC 9113, 8.1 allows a reset at once; clients then lose the response.
    assert_eq!(wire.short(), ["HEADERS 3 :status=404 end"]);
    wire.data(3, 1, true);
    let (request, mut respond) = wire.call(5, false);
    respond.send_head(404, &[], true).unwrap();
    wire.data(5, 1, true);
    drop((request, respond));
    assert_eq!(wire.short(), ["HEADERS 5 :status=404 end"]);
    assert_eq!((wire.machine.streams(), wire.machine.core.borrow_mut().streams.used()), (0, 0));
}

#[test]
fn flow_control_of_requests_restores_windows_only_on_release() {
    let mut wire = Wire::new();
    let (mut request, _respond) = wire.call(1, false);
    for _ in 0..2 {
        wire.data(1, 49_999, false);
    }
    assert_eq!((read(&mut request), wire.short()), ("49999".into(), vec![]));
    request.body.release(49_999);
    assert_eq!(wire.short(), Vec::<String>::new(), "less than half");
    request.body.release(1);
    assert_eq!(wire.short(), ["WINDOW 1 50000"]);
    request.body.release(1_000_000);
    assert_eq!(wire.short(), Vec::<String>::new(), "no more than came: 49998, and the connection's half is 100000");
    // The window of padding is restored at once.
    wire.send(&frame(kind::DATA, flag::PADDED, 1, &[&[255][..], &[0; 255]].concat()));
    assert_eq!(wire.short(), ["WINDOW 0 100254", "WINDOW 1 50254"]);
    wire.data(1, 40_000, false);
    drop(request);
    // The body has no reader: it is dropped, and its window is restored.
    wire.data(1, 60_000, false);
    assert_eq!(wire.short(), ["WINDOW 0 100000", "WINDOW 1 100000"]);
    // The connection's whole window, spread over streams.
    let mut wire = Wire::new();
    let _calls: Vec<_> = (0..3).map(|n| wire.call(2 * n + 1, false)).collect();
    for (id, n) in [(1, 60_000), (1, 40_000), (3, 60_000), (3, 40_000)] {
        wire.data(id, n, false);
    }
    assert_eq!(wire.short(), Vec::<String>::new());
    wire.data(5, 1, false);
    assert!(wire.short()[0].starts_with("GOAWAY 5 3 "));
}

#[test]
fn flow_control_of_responses_obeys_both_windows() {
    let mut wire = Wire::with(options(), &[(setting::INITIAL_WINDOW_SIZE, 10)]);
    let (_a, mut one) = wire.call(1, true);
    let (_b, mut two) = wire.call(3, true);
    for respond in [&mut one, &mut two] {
        respond.send_head(200, &[], false).unwrap();
        assert_eq!(respond.capacity(), 10);
        respond.send_data(Bytes::from(vec![0; 25]), false).unwrap();
        assert_eq!((respond.capacity(), respond.poll_capacity(&mut cx())), (0, Poll::Pending));
    }
    wire.short();
    two.send_trailers(&[Field::Fixed(1)]).unwrap();
    wire.window(3, 5);
    assert_eq!(wire.short(), ["DATA 3 5"]);
    wire.window(1, 100);
    assert_eq!((wire.short(), one.capacity()), (vec!["DATA 1 15".into()], 85));
    wire.window(3, 100);
    assert_eq!(wire.short(), ["DATA 3 10", "HEADERS 3 grpc-status=0 end"]);
    one.send_data(Bytes::new(), true).unwrap();
    assert_eq!(wire.short(), ["DATA 1 0 end"]);
    // 50 of 65535 are used; from here on the connection's window is the smaller one.
    let mut wire = Wire::with(options(), &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    let (_a, mut one) = wire.call(1, true);
    let (_b, mut two) = wire.call(3, true);
    for respond in [&mut one, &mut two] {
        respond.send_head(200, &[], false).unwrap();
        respond.send_data(Bytes::from(vec![0; 50_000]), true).unwrap();
    }
    assert_eq!(wire.short()[2..], ["DATA 1 16384", "DATA 3 16384", "DATA 1 16384", "DATA 3 16383"]);
    let (_c, three) = wire.call(5, true);
    assert_eq!(three.capacity(), 0, "its own window is large");
    wire.window(0, 10_000);
    assert_eq!(wire.short(), ["DATA 1 10000"]);
    wire.window(0, 100_000);
    assert_eq!(wire.short(), ["DATA 3 16384", "DATA 1 7232 end", "DATA 3 849 end"]);
}

#[test]
fn flow_control_nothing_is_sent_while_a_window_is_negative() {
    let mut wire = Wire::with(options(), &[(setting::INITIAL_WINDOW_SIZE, 1000)]);
    let (_a, mut respond) = wire.call(1, true);
    respond.send_head(200, &[], false).unwrap();
    respond.send_data(Bytes::from(vec![0; 900]), false).unwrap();
    wire.short();
    wire.send(&settings(&[(setting::INITIAL_WINDOW_SIZE, 100)]));
    assert_eq!(respond.capacity(), 0);
    respond.send_data(Bytes::from(vec![0; 30]), true).unwrap();
    assert_eq!(wire.short(), ["SETTINGS 1"]);
    wire.window(1, 800);
    assert_eq!(wire.short(), Vec::<String>::new(), "it is 0 now");
    wire.window(1, 10);
    assert_eq!(wire.short(), ["DATA 1 10"]);
    wire.send(&settings(&[(setting::INITIAL_WINDOW_SIZE, 150)]));
    assert_eq!(wire.short(), ["SETTINGS 1", "DATA 1 20 end"]);
    // A change that makes the window of an open stream too large.
    let _more = wire.call(3, true);
    wire.window(3, 0x7fff_fff0 - 150);
    assert_eq!(wire.short(), Vec::<String>::new());
    wire.send(&settings(&[(setting::INITIAL_WINDOW_SIZE, 1000)]));
    assert!(wire.short().pop().unwrap().starts_with("GOAWAY 3 3 "));
}

#[test]
fn a_reset_by_the_client_drops_queued_output() {
    let mut wire = Wire::with(options(), &[(setting::INITIAL_WINDOW_SIZE, 10)]);
    let (mut request, mut respond) = wire.call(1, false);
    wire.data(1, 5, false);
    respond.send_head(200, &[], false).unwrap();
    respond.send_data(Bytes::from(vec![0; 25]), false).unwrap();
    wire.short();
    wire.send(&frame(kind::RST_STREAM, 0, 1, &8u32.to_be_bytes()));
    assert_eq!(read(&mut request), "reset 8");
    assert_eq!(respond.poll_reset(&mut cx()), Poll::Ready(Reason::CANCEL));
    assert_eq!(respond.send_data(Bytes::from_static(b"x"), true), Err(Gone));
    drop((request, respond));
    assert_eq!((wire.short(), wire.machine.core.borrow_mut().streams.used()), (vec![], 0));
    // Reset before it was accepted: no caller sees it.
    wire.request(3, true);
    wire.send(&frame(kind::RST_STREAM, 0, 3, &8u32.to_be_bytes()));
    assert!(wire.machine.accept().is_none());
    assert_eq!(wire.machine.core.borrow_mut().streams.used(), 0);
}

#[test]
fn draining_serves_calls_under_way_and_none_after_them() {
    let mut wire = Wire::new();
    let (_a, mut one) = wire.call(1, true);
    wire.machine.drain();
    wire.machine.drain();
    assert_eq!(wire.short(), [format!("GOAWAY {ID_MAX} 0 "), "PING 0".into()]);
    // Sent before the client received the GOAWAY.
    let (_b, mut two) = wire.call(3, true);
    wire.send(&frame(kind::PING, flag::ACK, 0, &DRAINING));
    assert_eq!(wire.short(), ["GOAWAY 3 0 "]);
    wire.request(5, true);
    assert!(wire.machine.accept().is_none());
    one.send_head(200, &[], true).unwrap();
    assert!(!wire.machine.is_finished());
    two.send_head(200, &[], true).unwrap();
    assert!(wire.machine.is_finished() && !wire.machine.is_failed());
    let mut silent = Wire::silent(options());
    silent.machine.drain();
    assert!(silent.machine.is_finished());
}

#[test]
fn pings_are_answered_and_ours_are_counted() {
    let pings = Pings { sent_without_data_max: 2, ..Pings::default() };
    let mut wire = Wire::with(Options { pings, ..options() }, &[]);
    wire.send(&frame(kind::PING, 0, 0, b"12345678"));
    assert_eq!(
        wire.received(),
        [ReceivedFrame { kind: kind::PING, flags: flag::ACK, stream: 0, payload: b"12345678".to_vec() }]
    );
    for allowed in [true, true, false] {
        assert_eq!(wire.machine.ping(), allowed);
        assert!(!wire.machine.ping(), "one at a time");
        if let Some(ping) = wire.received().pop() {
            wire.send(&frame(kind::PING, flag::ACK, 0, b"whatever"));
            assert!(!wire.machine.take_pong());
            wire.send(&frame(kind::PING, flag::ACK, 0, &ping.payload));
        }
        assert_eq!(wire.machine.take_pong(), allowed);
    }
    let (_a, mut respond) = wire.call(1, true);
    respond.send_head(200, &[], true).unwrap();
    assert!(wire.machine.ping(), "something was sent");
}

#[test]
fn d12_too_many_pings_end_the_connection() {
    let pings = Pings { interval_min: Duration::from_secs(300), strikes_max: 2, ..Pings::default() };
    let mut wire = Wire::with(Options { pings, ..options() }, &[]);
    for _ in 0..3 {
        wire.send(&frame(kind::PING, 0, 0, &[0; 8]));
        assert_eq!(wire.short(), ["PING 1"]);
    }
    wire.send(&frame(kind::PING, 0, 0, &[0; 8]));
    assert_eq!(wire.short(), ["GOAWAY 0 11 too_many_pings"]);
}

/// Sends the same until the connection ends; returns how often.
fn until_calm(wire: &mut Wire, most: u32, mut once: impl FnMut(&mut Wire, u32)) -> u32 {
    for n in 0..most {
        once(wire, n);
        if wire.machine.is_failed() {
            let last = wire.short().pop().unwrap();
            assert!(last.contains(" 11 "), "{last}");
            return n + 1;
        }
        wire.machine.transmit(&mut Vec::new());
    }
    panic!("still there after {most}")
}

#[test]
fn floods_end_the_connection() {
    let calm = |most, once: &mut dyn FnMut(&mut Wire, u32)| until_calm(&mut Wire::new(), most, once);
    // Rapid reset.
    let rapid = calm(5000, &mut |w, n| {
        w.request(2 * n + 1, true);
        w.send(&frame(kind::RST_STREAM, 0, 2 * n + 1, &[0; 4]));
    });
    assert_eq!(rapid, TROUBLE_MAX + 1);
    // The same, with resets provoked from us.
    let made = calm(5000, &mut |w, n| {
        w.request(2 * n + 1, true);
        w.window(2 * n + 1, 0);
    });
    assert_eq!(made, TROUBLE_MAX + 1);
    // More streams than allowed.
    let many = calm(5000, &mut |w, n| w.request(2 * n + 1, true));
    assert_eq!(many, TROUBLE_MAX + 1 + options().streams_max);
    let changes = calm(5000, &mut |w, _| w.send(&settings(&[])));
    assert_eq!(changes, TROUBLE_MAX + 1);
    // Pings, whether or not a policy limits their interval; the first is free.
    let ping = frame(kind::PING, 0, 0, &[7; 8]);
    assert_eq!(calm(3000, &mut |w, _| w.send(&ping)), TROUBLE_MAX + 2);
    // Pings with other output in between are limited only by that output.
    let mut wire = Wire::new();
    for n in 0..3000 {
        let (_request, mut respond) = wire.call(2 * n + 1, true);
        respond.send_head(200, &[], true).unwrap();
        wire.machine.transmit(&mut Vec::new());
        wire.send(&ping);
        assert!(!wire.machine.is_failed(), "after {n}");
    }
    let mut wire = Wire::new();
    let _call = wire.call(1, false);
    assert_eq!(until_calm(&mut wire, 10_000, |w, _| w.data(1, 0, false)), EMPTY_FRAMES_MAX + 1);
    // A header block without an end, limited by number and by size.
    let part = |n, payload: &[u8]| frame(if n == 0 { kind::HEADERS } else { kind::CONTINUATION }, 0, 1, payload);
    assert_eq!(calm(5000, &mut |w, n| w.send(&part(n, &[]))), CONTINUATIONS_MAX + 1);
    assert!(calm(50, &mut |w, n| w.send(&part(n, &[0; 16_384]))) <= 10);
    calm(1, &mut |w, _| w.send(&frame(kind::SETTINGS, 0, 0, &vec![0; SETTINGS_BYTES_MAX / 6 * 6 + 6])));
    // Answered calls compensate: every other call is reset.
    let mut wire = Wire::new();
    for n in 0..3000 {
        let (_request, mut respond) = wire.call(4 * n + 1, true);
        respond.send_head(200, &[], true).unwrap();
        wire.request(4 * n + 3, true);
        wire.send(&frame(kind::RST_STREAM, 0, 4 * n + 3, &[0; 4]));
        assert!(wire.machine.accept().is_none() && !wire.machine.is_failed(), "after {n}");
        wire.machine.transmit(&mut Vec::new());
    }
}

#[test]
fn nothing_is_read_from_a_client_that_takes_no_output() {
    let mut wire = Wire::new();
    let pings = frame(kind::PING, 0, 0, &[7; 8]).repeat(1000);
    let mut sent = 0;
    while wire.machine.may_read() {
        wire.send(&pings);
        sent += pings.len();
        assert!(sent <= OUTPUT_BYTES_MAX + pings.len());
        // As many at once are too many.
        wire.now += TROUBLE_FORGIVEN_EVERY * TROUBLE_MAX;
    }
    assert_eq!(wire.received().len() * 17, sent);
    assert!(wire.machine.may_read());
}

#[test]
fn a_head_of_many_large_indices_gets_431_and_no_memory() {
    let mut wire = Wire::with(Options { header_list_bytes_max: 16 * 1024, ..options() }, &[]);
    let mut block = [POST, &[0x40, 1, b'k', 0x7f, 0x81, 0x1e]].concat();
    block.put_bytes(b'v', 127 + 1 + (0x1e << 7));
    wire.send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block));
    assert!(wire.machine.accept().is_some());
    wire.short();
    let mut bomb = POST.to_vec();
    bomb.put_bytes(0xbe, 16_000);
    wire.send(&frame(kind::HEADERS, flag::END_HEADERS, 3, &bomb));
    assert_eq!(wire.short(), ["HEADERS 3 :status=431 end"]);
    assert_eq!(wire.machine.streams(), 1);
    wire.data(3, 5, true);
    assert_eq!(wire.machine.streams(), 0, "the body was thrown away");
    assert!(wire.machine.accept().is_none() && !wire.machine.is_failed());
}

/// Sends a call with one long field that enters the table; the next call refers to it.
fn long_field(wire: &mut Wire) -> (Request, StreamWriter) {
    let mut block = [POST, &[0x40, 1, b'k', 0x7f, 0x81, 0x1e]].concat();
    block.put_bytes(b'v', 127 + 1 + (0x1e << 7));
    wire.send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block));
    wire.machine.accept().expect("a call")
}

#[test]
fn heads_of_one_connection_are_bounded_together() {
    thread_local! { static FREED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) }; }
    let options = Options { streams_max: 4096, freed: |n| FREED.set(FREED.get() + n), ..options() };
    let mut wire = Wire::with(options, &[]);
    drop(long_field(&mut wire));
    // The blocks differ, so that no two calls share a head.
    let bomb = |id: u32| {
        let mut block = POST.to_vec();
        block.put_bytes(0xbe, 15);
        block.extend_from_slice(&[0, 1, b'n', 4]);
        block.extend_from_slice(format!("{id:04}").as_bytes());
        frame(kind::HEADERS, flag::END_HEADERS, id, &block)
    };
    let held = |wire: &Wire| wire.machine.core.borrow().calls.ledger.bytes();
    let mut open = Vec::new();
    for id in (3..600).step_by(2) {
        wire.send(&bomb(id));
        open.extend(wire.machine.accept());
        assert!(held(&wire) <= HELD_HEAD_BYTES_MAX);
    }
    let refused = wire.short().iter().filter(|s| s.starts_with("RST") && s.ends_with(" 7")).count();
    assert_eq!((open.len() + refused, wire.machine.is_failed()), (299, false));
    assert!(open.len() > 100 && refused > 100, "{} of 299", open.len());
    open.clear();
    assert!(held(&wire) < HELD_HEAD_BYTES_MAX / 8, "the heads that are remembered are all: {}", held(&wire));
    assert!(FREED.get() > HELD_HEAD_BYTES_MAX / 2);
    wire.send(&bomb(601));
    assert!(wire.machine.accept().is_some(), "there is room again");
    // A client that continues loses its connection.
    let mut all = Vec::new();
    for id in (603..9000).step_by(2) {
        wire.send(&bomb(id));
        all.extend(wire.machine.accept());
    }
    assert!(wire.machine.is_failed());
}

#[test]
fn bytes_before_collect_are_moved_one_turn_at_a_time() {
    let large = Options { stream_window: 1 << 21, connection_window: 1 << 21, frame_bytes_max: 1 << 20, ..options() };
    let mut wire = Wire::with(large, &[]);
    let (mut request, _respond) = wire.call(1, false);
    wire.data(1, 1 << 20, false);
    request.body.collect(Box::new(Target { bytes: Rc::default(), room: vec![0; (1 << 20) + 5], part: 1 << 20 }));
    let mut turns = 1;
    let bytes = loop {
        match request.body.poll_collected(&mut cx()) {
            Poll::Ready(all) => break all.unwrap().unwrap(),
            Poll::Pending => turns += 1,
        }
        if turns == 2 {
            wire.data(1, 5, true);
        }
    };
    assert_eq!(turns, (1 << 20) / TURN_BYTES);
    assert_eq!(bytes.len(), (1 << 20) + 5);
}

/// A task that wakes itself would run all of its turns before the sockets are polled.
#[test]
fn a_new_connection_is_noticed_after_one_turn_of_moving_a_body() {
    const BYTES: usize = 16 * TURN_BYTES;
    let window = BYTES as u32;
    let large = Options { stream_window: window, connection_window: window, frame_bytes_max: 1 << 20, ..options() };
    let mut wire = Wire::with(large, &[]);
    let (mut request, _respond) = wire.call(1, false);
    (0..BYTES >> 20).for_each(|_| wire.data(1, 1 << 20, false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let turns = LocalSet::new().block_on(&runtime, async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = tokio::net::UnixStream::from_std(ours).unwrap();
        let turns = Rc::new(Cell::new(0));
        let counter = turns.clone();
        spawn_local(async move {
            request.body.collect(Box::new(Target { bytes: Rc::default(), room: vec![0; BYTES], part: BYTES }));
            poll_fn(|cx| {
                counter.set(counter.get() + 1);
                if counter.get() == 2 {
                    theirs.write_all(b"x").unwrap();
                }
                request.body.poll_collected(cx)
            })
            .await
        });
        ours.readable().await.unwrap();
        turns.get()
    });
    assert!((2..5).contains(&turns), "{turns} of 16");
}

/// A target that never has room.
struct FullTarget;

impl crate::collect::Collect for FullTarget {
    fn spare(&mut self) -> &mut [u8] {
        &mut []
    }

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }

    fn filled(&mut self, _: usize) {}

    fn missing(&self) -> usize {
        10
    }

    fn into_bytes(self: Box<Self>) -> Bytes {
        Bytes::new()
    }
}

/// Both get ENHANCE_YOUR_CALM; only one lacked room.
#[test]
fn a_body_without_room_differs_from_one_of_a_failed_connection() {
    let mut wire = Wire::new();
    let (mut refused, _respond) = wire.call(1, false);
    refused.body.collect(Box::new(FullTarget));
    assert_eq!(refused.body.poll_collected(&mut cx()), Poll::Ready(Some(Err(NotCollected::NoRoom { missing: 10 }))));
    let (mut ended, _respond) = wire.call(3, false);
    ended.body.collect(Box::new(FullTarget));
    (0..=TROUBLE_MAX).for_each(|_| wire.send(&settings(&[])));
    assert!(wire.machine.is_failed());
    let calm = NotCollected::Ended(Reason::ENHANCE_YOUR_CALM);
    assert_eq!(ended.body.poll_collected(&mut cx()), Poll::Ready(Some(Err(calm))));
}

#[test]
fn a_head_longer_than_a_frame_is_continued() {
    let mut wire = Wire::new();
    let (_request, mut respond) = wire.call(1, true);
    let long = vec![b'm'; 40_000];
    respond.send_head(200, &[Field::Fixed(0), Field::Literal("grpc-message", &long)], true).unwrap();
    let seen = wire.received();
    let kinds: Vec<_> = seen.iter().map(|f| (f.kind, f.flags, f.payload.len() <= 16_384)).collect();
    assert_eq!(
        kinds,
        [
            (kind::HEADERS, flag::END_STREAM, true),
            (kind::CONTINUATION, 0, true),
            (kind::CONTINUATION, flag::END_HEADERS, true)
        ]
    );
    let block: Vec<u8> = seen.into_iter().flat_map(|f| f.payload).collect();
    let mut fields = 0;
    wire.decoder
        .decode(&block, |_, v| fields += usize::from(v == b"200" || v == b"application/grpc" || *v == long))
        .unwrap();
    assert_eq!(fields, 3);
}

#[test]
fn streams_beyond_the_limit_are_refused_until_one_ends() {
    let mut wire = Wire::new();
    let mut calls: Vec<_> = (0..8).map(|n| wire.call(2 * n + 1, true)).collect();
    wire.request(17, true);
    assert_eq!(wire.short(), ["RST 17 7"]);
    calls.pop().unwrap().1.send_head(200, &[], true).unwrap();
    wire.call(19, true);
}

#[test]
fn handles_return_errors_after_their_connection() {
    let mut wire = Wire::new();
    let (mut request, mut respond) = wire.call(1, false);
    drop(wire);
    assert_eq!((read(&mut request), respond.poll_reset(&mut cx())), ("reset 8".into(), Poll::Ready(Reason::CANCEL)));
    assert_eq!((respond.send_head(200, &[], false), respond.capacity()), (Err(Gone), 0));
    assert_eq!(respond.poll_capacity(&mut cx()), Poll::Ready(None));
    request.body.release(10);
}

/// A target with parts of `part` bytes.
struct Target {
    bytes: Rc<RefCell<Vec<u8>>>,
    room: Vec<u8>,
    part: usize,
}

impl crate::collect::Collect for Target {
    fn spare(&mut self) -> &mut [u8] {
        let n = self.part.min(self.missing());
        &mut self.room[..n]
    }

    fn filled(&mut self, n: usize) {
        self.bytes.borrow_mut().extend(self.room.drain(..n));
    }

    fn missing(&self) -> usize {
        self.room.len()
    }

    fn into_bytes(self: Box<Self>) -> Bytes {
        std::mem::take(&mut *self.bytes.borrow_mut()).into()
    }
}

/// Results of a call and its neighbours when frames are read in pieces, directly into the target if possible.
fn collected(frames: &[u8], length: usize, part: usize, pieces: usize) -> (Vec<u8>, Vec<String>, usize, bool) {
    let big = Options { stream_window: 1 << 20, connection_window: 1 << 20, frame_bytes_max: 1 << 20, ..options() };
    let mut wire = Wire::with(big, &[]);
    let (mut request, _respond) = wire.call(1, false);
    request.body.collect(Box::new(Target { bytes: Rc::default(), room: vec![0xee; length], part }));
    let (mut at, mut direct) = (0, 0);
    while at < frames.len() && !wire.machine.is_failed() {
        let piece = &frames[at..frames.len().min(at.saturating_add(pieces))];
        let mut source = piece;
        let read =
            wire.machine.read_direct(&mut wire.buffer, wire.now, |slices| Poll::Ready(source.read_vectored(slices)));
        match read {
            Some(Poll::Ready(Ok(read))) => {
                at += read.bytes;
                direct += 1;
            }
            Some(_) => unreachable!(),
            None => {
                let piece = &piece[..piece.len().min(50)];
                wire.send(piece);
                at += piece.len();
            }
        }
    }
    let mut all = match request.body.poll_collected(&mut cx()) {
        Poll::Ready(Some(Ok(bytes))) => bytes.to_vec(),
        Poll::Ready(Some(Err(NotCollected::Ended(reason)))) => format!("reset {}", reason.0).into_bytes(),
        Poll::Ready(Some(Err(NotCollected::NoRoom { .. }))) => unreachable!("it has room"),
        Poll::Ready(None) => b"too short".to_vec(),
        Poll::Pending => b"pending".to_vec(),
    };
    while let Poll::Ready(Some(Ok(piece))) = request.body.poll_data(&mut cx()) {
        all.extend_from_slice(&piece);
    }
    let mut others = Vec::new();
    while let Some((mut request, _)) = wire.machine.accept() {
        let came = read(&mut request);
        others.push(format!("{}: {came}", String::from_utf8_lossy(request.head.path())));
    }
    (all, others, direct, wire.machine.is_failed())
}

#[test]
fn direct_reads_give_the_same_body_for_any_split() {
    let body: Vec<u8> = (0..100_000u32).map(|n| (n * 7 + n / 255) as u8).collect();
    let data = |range: std::ops::Range<usize>, flags| frame(kind::DATA, flags, 1, &body[range]);
    let cut = |size: usize| {
        let parts = body.chunks(size).enumerate();
        parts
            .map(|(i, part)| frame(kind::DATA, u8::from((i + 1) * size >= body.len()), 1, part))
            .collect::<Vec<_>>()
            .concat()
    };
    let other = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3, POST);
    let streams = [
        cut(16_384),
        cut(5000),
        cut(30_000),
        cut(60_000),
        // Other frames in between, of the same size or not; padding; a separate end; a call after the body.
        [
            data(0..16_384, 0),
            frame(kind::PING, 0, 0, &[1; 8]),
            data(16_384..32_768, 0),
            other.clone(),
            data(32_768..100_000, 1),
        ]
        .concat(),
        [data(0..16_384, 0), frame(0x77, 0, 1, &[9; 16_384]), data(16_384..100_000, 0), data(0..0, 1), other.clone()]
            .concat(),
        [
            data(0..20_000, 0),
            frame(kind::DATA, flag::PADDED, 1, &[&[7][..], &body[20_000..40_000], &[0; 7]].concat()),
            data(40_000..100_000, 0),
        ]
        .concat(),
        [data(0..16_384, 0), data(16_384..20_000, 0), data(20_000..36_384, 0), data(36_384..100_000, 1), other]
            .concat(),
        // An early end, a reset, a protocol error.
        [data(0..16_384, 0), data(16_384..32_768, 1)].concat(),
        [data(0..16_384, 0), frame(kind::RST_STREAM, 0, 1, &[0; 4])].concat(),
        [data(0..16_384, 1), data(16_384..32_768, 0), data(16_384..32_768, 0)].concat(),
        [data(0..16_384, 0), frame(kind::DATA, 0, 0, &body[..16_384])].concat(),
    ];
    let mut direct = 0;
    for (i, frames) in streams.iter().enumerate() {
        for length in [100_000, 99_000, 16_384, 20_001] {
            let whole = collected(frames, length, usize::MAX, usize::MAX);
            // Without direct reads.
            let mut plain = Wire::with(
                Options { stream_window: 1 << 20, connection_window: 1 << 20, frame_bytes_max: 1 << 20, ..options() },
                &[],
            );
            let (mut request, _respond) = plain.call(1, false);
            plain.send(frames);
            let mut all = Vec::new();
            while let Poll::Ready(Some(Ok(piece))) = request.body.poll_data(&mut cx()) {
                all.extend_from_slice(&piece);
            }
            if i < 8 {
                assert!(all == body && whole.0 == body, "{i} {length}: {} bytes", whole.0.len());
            }
            assert_eq!(whole.3, plain.machine.is_failed(), "{i}");
            for part in [7000, 65_536, usize::MAX] {
                for pieces in [usize::MAX, 65_536, 16_393, 16_392, 9, 5001, 25_000] {
                    let cut = collected(frames, length, part, pieces);
                    direct += cut.2;
                    assert!(
                        cut.0 == whole.0 && cut.1 == whole.1 && cut.3 == whole.3,
                        "{i} {length} {part} {pieces}: {:?}",
                        cut.1
                    );
                }
            }
        }
    }
    assert!(direct > 1000, "{direct} reads went to their place");
}

#[test]
fn many_frames_of_one_read_are_processed_in_several_turns_in_order() {
    let mut wire = Wire::with(Options { streams_max: 4096, ..options() }, &[]);
    let calls = 10 * crate::limits::STEPS_PER_LOOK;
    let ids: Vec<u32> = (0..calls).map(|n| 2 * n + 1).collect();
    for id in &ids {
        wire.buffer.extend_from_slice(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, *id, POST));
    }
    let (mut turns, mut accepted) = (0, Vec::new());
    loop {
        wire.machine.receive(&mut wire.buffer, wire.now);
        turns += 1;
        let taken = std::iter::from_fn(|| wire.machine.accept()).collect::<Vec<_>>();
        assert!(taken.len() <= crate::limits::STEPS_PER_LOOK as usize, "{} calls in one turn", taken.len());
        accepted.extend(taken);
        if !wire.machine.has_rest() {
            break;
        }
    }
    assert_eq!((turns, accepted.len()), (10, ids.len()));
    assert!(wire.buffer.is_empty());
    // After the last frame nothing is left for another turn, so a driver reads again.
    wire.send(&frame(kind::PING, 0, 0, &[7; 8]));
    assert!(wire.received().iter().any(|seen| seen.kind == kind::PING && seen.flags == flag::ACK));
}
