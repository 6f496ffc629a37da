//! A large body on its way from the socket straight to its place, among other frames, wherever reads end.

use bytes::{Bytes, BytesMut};
use http2::{Body, Collect, Machine, NotCollected, Options, Reason, Request, StreamWriter};
use std::cell::RefCell;
use std::io::Read;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The preface, empty SETTINGS, and a POST on stream 1 whose body is open.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x03\x01\x04\x00\x00\x00\x01\x83\x86\x84";
/// The byte in front of a body in its place; it must not change.
const PAD: u8 = 0xaa;
/// Where reads end, in bytes: behind a head, behind a frame of 16 KiB, inside of everything.
const CUTS: [usize; 8] = [usize::MAX, 9, 50, 4096, 5001, 16_392, 16_393, 65_536];
/// Bytes for which a place has room at once.
const PARTS: [usize; 4] = [usize::MAX, 4096, 7000, 65_536];

/// The first four bytes say where reads end, how the place is and how much of the body it wants; the rest is frames.
pub fn http2_direct(data: &[u8]) -> bool {
    let Some((&[how, pad, low, high], frames)) = data.split_first_chunk() else { return false };
    let length = 1 + 2 * usize::from(u16::from_le_bytes([low, high]));
    let place = Layout { length, pad: usize::from(pad & 0x3f), part: PARTS[usize::from(how >> 3 & 3)] };
    let plain = plain(frames);
    let (direct, reads) = direct(frames, place, CUTS[usize::from(how & 7)]);
    assert_eq!(direct, plain, "{reads} reads to the place");
    reads > 0
}

/// Result of a connection: the body of the first call and how it ends, the other calls, whether all of it failed.
#[derive(Debug, PartialEq)]
struct Outcome {
    body: Vec<u8>,
    end: End,
    others: Vec<(Vec<u8>, Vec<u8>, End)>,
    is_failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Open,
    Whole,
    Reset(Reason),
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn begin() -> (Machine, BytesMut, Request, StreamWriter) {
    // Windows beyond any input: what is read late must not differ for that.
    let options = Options {
        stream_window: 1 << 20,
        connection_window: 1 << 22,
        frame_bytes_max: 1 << 20,
        is_turn_over: || false,
        ..Options::default()
    };
    let (mut machine, mut buffer) = (Machine::new(options), BytesMut::from(BEGINNING));
    machine.receive(&mut buffer, Instant::now());
    let (request, respond) = machine.accept().expect("a call");
    (machine, buffer, request, respond)
}

/// Appends the rest of a body; a reset takes back what came.
fn rest(body: &mut Body, all: &mut Vec<u8>) -> End {
    loop {
        match body.poll_data(&mut cx()) {
            Poll::Ready(Some(Ok(piece))) => all.extend_from_slice(&piece),
            Poll::Ready(Some(Err(reason))) => {
                all.clear();
                return End::Reset(reason);
            }
            Poll::Ready(None) => return End::Whole,
            Poll::Pending => return End::Open,
        }
    }
}

fn finish(mut machine: Machine, body: Vec<u8>, end: End) -> Outcome {
    let mut others = Vec::new();
    while let Some((mut request, _respond)) = machine.accept() {
        let mut all = Vec::new();
        let end = rest(&mut request.body, &mut all);
        others.push((request.head.path().to_vec(), all, end));
    }
    Outcome { body, end, others, is_failed: machine.is_failed() }
}

/// All of it through the read buffer, in one piece.
fn plain(frames: &[u8]) -> Outcome {
    // Nobody answers, and nobody hangs up.
    let (mut machine, mut buffer, mut request, _respond) = begin();
    buffer.extend_from_slice(frames);
    machine.receive(&mut buffer, Instant::now());
    let mut body = Vec::new();
    let end = rest(&mut request.body, &mut body);
    finish(machine, body, end)
}

#[derive(Clone, Copy)]
struct Layout {
    length: usize,
    pad: usize,
    part: usize,
}

/// A place as the front end's: behind padding, with room that grows in steps.
struct Place {
    bytes: Rc<RefCell<Vec<u8>>>,
    room: Vec<u8>,
    at: usize,
    layout: Layout,
    granted: usize,
}

impl Place {
    fn new(layout: Layout) -> Self {
        let room = vec![PAD; layout.pad + layout.length];
        Self { bytes: Rc::default(), room, at: layout.pad, layout, granted: 0 }
    }
}

impl Collect for Place {
    fn spare(&mut self) -> &mut [u8] {
        let end = self.layout.pad + self.granted;
        &mut self.room[self.at..end]
    }

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        assert_eq!(self.at, self.layout.pad + self.granted, "asked for while there was room");
        self.granted = self.granted.saturating_add(self.layout.part).min(self.layout.length);
        Poll::Ready(true)
    }

    fn filled(&mut self, n: usize) {
        let end = self.at + n;
        assert!(end <= self.layout.pad + self.granted, "more than there was room for");
        self.bytes.borrow_mut().extend_from_slice(&self.room[self.at..end]);
        self.at = end;
    }

    fn missing(&self) -> usize {
        self.room.len() - self.at
    }

    fn into_bytes(self: Box<Self>) -> Bytes {
        assert!(self.room[..self.layout.pad].iter().all(|&b| b == PAD), "written in front of the body");
        self.room[self.layout.pad..self.at].to_vec().into()
    }
}

/// Straight to the place, as far as the machine wants that; and how many reads went there.
fn direct(frames: &[u8], layout: Layout, cut: usize) -> (Outcome, usize) {
    // Nobody answers, and nobody hangs up.
    let (mut machine, mut buffer, mut request, _respond) = begin();
    let place = Place::new(layout);
    let came = place.bytes.clone();
    request.body.collect(Box::new(place));
    let (mut at, mut reads, mut collected) = (0, 0, None);
    loop {
        // As its task would, whenever something happened.
        if collected.is_none()
            && let Poll::Ready(result) = request.body.poll_collected(&mut cx())
        {
            collected = Some(result);
        }
        if at == frames.len() || machine.is_failed() {
            break;
        }
        let piece = &frames[at..frames.len().min(at.saturating_add(cut))];
        let mut source = piece;
        let read = machine.read_direct(&mut buffer, Instant::now(), |slices| Poll::Ready(source.read_vectored(slices)));
        match read {
            Some(Poll::Ready(Ok(read))) => {
                assert!(read.bytes > 0 && read.bytes <= piece.len());
                at += read.bytes;
                reads += 1;
            }
            Some(_) => unreachable!("reads are always ready"),
            None => {
                // In reads of the usual kind, so that there are many chances for the others.
                let piece = &piece[..piece.len().min(500)];
                buffer.extend_from_slice(piece);
                machine.receive(&mut buffer, Instant::now());
                at += piece.len();
            }
        }
    }
    let mut body = came.borrow().clone();
    let end = match collected {
        Some(Some(Ok(bytes))) => {
            assert!(bytes == body && bytes.len() == layout.length);
            rest(&mut request.body, &mut body)
        }
        // Ended early, in one way or another; or what came since ended it.
        Some(None) => rest(&mut request.body, &mut body),
        Some(Some(Err(NotCollected::Ended(reason)))) => {
            body.clear();
            End::Reset(reason)
        }
        Some(Some(Err(NotCollected::NoRoom { .. }))) => unreachable!("there always is some"),
        None => End::Open,
    };
    (finish(machine, body, end), reads)
}
