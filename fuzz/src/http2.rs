//! Bytes of a client on an HTTP/2 connection, behind the preface.

use bytes::{Bytes, BytesMut};
use http2::{Body, Field, Machine, Options, StreamWriter};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FIXED: &[(&str, &str)] = &[("content-type", "application/grpc"), ("grpc-status", "0")];
/// Window of a client that did not give more room.
const WINDOW: u64 = 65_535;

/// The first byte says in what pieces the rest comes and how calls are answered; the rest is frames.
pub fn http2(data: &[u8]) -> bool {
    let Some((&how, frames)) = data.split_first() else { return false };
    let pieces = 1 + usize::from(how & 0x3f);
    let whole = quiet(frames, frames.len().max(1));
    assert_eq!(quiet(frames, pieces), whole, "in pieces of {pieces}");
    busy(frames, pieces, how >> 6);
    whole.is_some_and(|calls| !calls.is_empty())
}

fn options() -> Options {
    Options {
        stream_window: 70_000,
        connection_window: 100_000,
        frame_bytes_max: 20_000,
        streams_max: 4,
        header_list_bytes_max: 4096,
        send_buffer_bytes_max: 50_000,
        fixed: FIXED,
        ..Options::default()
    }
}

fn feed(machine: &mut Machine, frames: &[u8], pieces: usize, mut after: impl FnMut(&mut Machine)) {
    let (now, mut buffer) = (Instant::now(), BytesMut::from(PREFACE));
    machine.receive(&mut buffer, now);
    for piece in frames.chunks(pieces) {
        buffer.extend_from_slice(piece);
        machine.receive(&mut buffer, now);
        while machine.has_rest() {
            machine.receive(&mut buffer, now);
        }
        after(machine);
    }
}

fn read(body: &mut Body) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match body.poll_data(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(piece))) => all.extend_from_slice(&piece),
            Poll::Ready(end) => return (all, end.is_none()),
            Poll::Pending => return (all, false),
        }
    }
}

/// A call as far as it came: path, fields, body, whether that was all of it.
type Call = (Vec<u8>, Vec<(String, Vec<u8>)>, Vec<u8>, bool);

/// The calls that are there when everything was read; `None` when the connection ended. Nobody answers meanwhile, so
/// that it cannot matter when what came.
fn quiet(frames: &[u8], pieces: usize) -> Option<Vec<Call>> {
    let mut machine = Machine::new(options());
    feed(&mut machine, frames, pieces, |_| {});
    if machine.is_failed() {
        assert!(machine.is_finished() && !machine.may_read() && machine.accept().is_none() && machine.streams() == 0);
        return None;
    }
    let mut calls = Vec::new();
    while let Some((mut request, _respond)) = machine.accept() {
        let fields: Vec<_> = request.head.fields().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
        assert!(fields.iter().all(|(n, v)| !n.is_empty() && !v.contains(&b'\n')));
        let (body, is_end) = read(&mut request.body);
        assert!(body.len() as u32 <= options().stream_window);
        calls.push((request.head.path().to_vec(), fields, body, is_end));
    }
    assert!(calls.len() as u32 <= options().streams_max);
    Some(calls)
}

/// Answers while frames come, and checks what is sent.
fn busy(frames: &[u8], pieces: usize, how: u8) {
    let mut machine = Machine::new(options());
    let mut open: Vec<(http2::Request, StreamWriter)> = Vec::new();
    let mut sent = Vec::new();
    feed(&mut machine, frames, pieces, |machine| {
        while let Some((request, mut respond)) = machine.accept() {
            let path = request.head.path().to_vec();
            let _ = respond.send_head(200, &[Field::Fixed(0), Field::Literal("x-path", &path)], false);
            open.push((request, respond));
        }
        for (request, respond) in &mut open {
            let (body, is_end) = read(&mut request.body);
            if how & 1 == 0 {
                request.body.release(body.len());
            }
            let room = respond.capacity();
            if how & 2 == 0 || room > 0 {
                let _ = respond.send_data(Bytes::from(body), false);
                let _ = respond.send_data(Bytes::from(vec![0; 3000]), false);
            }
            if is_end {
                let _ = respond.send_trailers(&[Field::Fixed(1)]);
            }
        }
        // Calls whose stream is over are removed; the oldest of many is not answered.
        open.retain_mut(|(_, respond)| respond.poll_reset(&mut Context::from_waker(Waker::noop())).is_pending());
        if open.len() > 3 {
            open.remove(0);
        }
        machine.transmit(&mut sent);
    });
    machine.transmit(&mut sent);
    check(&sent, frames);
    if how == 3 {
        machine.drain();
        drop(open);
        machine.transmit(&mut sent);
    }
}

/// Frames of a peer that keeps to the rules, and no more of a body than the client can have had room for.
fn check(sent: &[u8], received: &[u8]) {
    let mut room = WINDOW;
    walk(received, |kind, stream, payload| {
        if (kind, stream) == (8, 0) {
            room += payload.first_chunk().map_or(0, |b| u64::from(u32::from_be_bytes(*b) & 0x7fff_ffff));
        }
    });
    let mut body = 0;
    let left = walk(sent, |kind, stream, payload| {
        assert!(matches!(kind, 0 | 1 | 3 | 4 | 6..=9), "frame {kind}");
        assert!(payload.len() <= 16_384 || received.windows(2).any(|w| w == [0, 5]), "larger than anybody may send");
        assert!(stream % 2 == 1 || matches!(kind, 4 | 6 | 7 | 8));
        if kind == 0 {
            body += payload.len() as u64;
        }
    });
    assert_eq!(left, 0, "half a frame");
    assert!(body <= room, "{body} bytes for a room of {room}");
}

/// Visits whole frames; bytes behind the last.
fn walk(mut bytes: &[u8], mut each: impl FnMut(u8, u32, &[u8])) -> usize {
    while let Some(&[a, b, c, kind, _, s, t, u, v]) = bytes.first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some(payload) = bytes.get(9..9 + length) else { break };
        each(kind, u32::from_be_bytes([s & 0x7f, t, u, v]), payload);
        bytes = &bytes[9 + length..];
    }
    bytes.len()
}
