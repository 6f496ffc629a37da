//! The lowest floor of gRPC: epoll, one thread, no HTTP library. Reads the frames of HTTP/2, collects each message in
//! the memory that it is echoed from, and answers with ready-made bytes; with `--tail` the last bytes of the answer are
//! those of the request.
//!
//! For our load generator only, whose frames have no padding and whose windows never end. Skips header blocks.

use crate::arguments::{Arguments, Failure};
use crate::epoll::{listen, turns};
use bytes::{Bytes, BytesMut};
use http2::parts::{
    FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, OutputBuffer, PREFACE, WINDOW_DEFAULT, flag, kind, number31, setting,
};
use load::grpc::literals;
use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

/// Larger than any frame that is not DATA.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes read behind the end of a DATA frame: enough for the next head, and few to copy.
const BEHIND_BYTES: usize = 64;
/// Window of requests, of the connection and of each stream; that of the connection is given back by the half.
const WINDOW: u32 = i32::MAX as u32;
/// Largest frame that requests come in, as at the `h2` floor.
const FRAME_BYTES: u32 = 1 << 20;
/// Parts of one write.
const SLICES: usize = 64;
/// Head of a message: a flag for compression, and the length.
const PREFIX_BYTES: usize = 5;

/// The answer to every request.
struct Answer {
    /// First bytes of the message; the echoed ones follow.
    ready: Bytes,
    tail: usize,
    /// Header blocks of an answer.
    head: Vec<u8>,
    trailers: Vec<u8>,
}

/// A message that is being read. All of its memory is initialised.
#[derive(Default)]
struct Message {
    memory: BytesMut,
    filled: usize,
}

/// The DATA frame that is being read.
#[derive(Default)]
struct Data {
    stream: u32,
    /// Bytes that are missing.
    missing: usize,
    ends: bool,
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of the input that were not looked at.
    from: usize,
    to: usize,
    is_greeted: bool,
    messages: HashMap<u32, Message>,
    data: Data,
    /// Memory of messages; free again when nothing else refers to it.
    spare: Vec<Bytes>,
    output: OutputBuffer,
    /// Largest frame that the client takes.
    frame_max: usize,
    /// Bytes of DATA that were not given back to the window of the connection.
    received: u32,
}

pub fn serve(a: &Arguments) -> Result<(), Failure> {
    memory::thread::request_short_slices();
    let answer = Answer::new(&a.file("answer")?, a.number("tail", 0)?);
    turns(&listen()?, Connection::open, |connection| connection.turn(&answer))
}

impl Answer {
    fn new(message: &Bytes, tail: usize) -> Self {
        let tail = tail.min(message.len());
        // ":status: 200" is in the static table.
        let mut head = vec![0x88];
        head.extend(literals(&[("content-type", "application/grpc".into())]));
        let trailers = literals(&[("grpc-status", "0".into())]);
        Self { ready: message.slice(..message.len() - tail), tail, head, trailers }
    }
}

impl Connection {
    fn open(stream: TcpStream) -> Self {
        let mut this = Self {
            stream,
            input: vec![0; INPUT_BYTES],
            from: 0,
            to: 0,
            is_greeted: false,
            messages: HashMap::new(),
            data: Data::default(),
            spare: Vec::new(),
            output: OutputBuffer::default(),
            frame_max: FRAME_BYTES_MIN as usize,
            received: 0,
        };
        let settings = [(setting::INITIAL_WINDOW_SIZE, WINDOW), (setting::MAX_FRAME_SIZE, FRAME_BYTES)];
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        this.send(kind::SETTINGS, 0, 0, &settings);
        this.send(kind::WINDOW_UPDATE, 0, 0, &(WINDOW - WINDOW_DEFAULT).to_be_bytes());
        this
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let out = self.output.tail();
        out.extend_from_slice(&FrameHead { length: payload.len(), kind, flags, stream }.bytes());
        out.extend_from_slice(payload);
    }

    /// Reads and writes until both would block. False when the connection is over.
    fn turn(&mut self, answer: &Answer) -> bool {
        loop {
            match self.read() {
                Ok((0, _)) => return false,
                Ok((_, is_all)) => {
                    if !self.take(answer) {
                        return false;
                    }
                    // The socket is empty, and the next bytes make a new edge.
                    if is_all {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let n = self.output.slices(&mut slices);
            match self.stream.write_vectored(&slices[..n]) {
                Ok(n) => self.output.advance(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads once, the bytes of a message directly into it. Returns their count, and whether there was room for more.
    fn read(&mut self) -> std::io::Result<(usize, bool)> {
        if let Some(message) = self.messages.get_mut(&self.data.stream).filter(|_| self.data.missing > 0) {
            // Nothing of the input is left while bytes of a frame are missing.
            let room = message.filled..message.filled + self.data.missing;
            let behind = &mut self.input[..BEHIND_BYTES];
            let all = room.len() + behind.len();
            let n = self
                .stream
                .read_vectored(&mut [IoSliceMut::new(&mut message.memory[room.clone()]), IoSliceMut::new(behind)])?;
            let direct = n.min(room.len());
            message.filled += direct;
            self.data.missing -= direct;
            (self.from, self.to) = (0, n - direct);
            return Ok((n, n < all));
        }
        self.input.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let room = &mut self.input[self.to..];
        let all = room.len();
        let n = self.stream.read(room)?;
        self.to += n;
        Ok((n, n < all))
    }

    /// Looks at what was read. False when it cannot be understood.
    fn take(&mut self, answer: &Answer) -> bool {
        if !self.is_greeted {
            if self.to < PREFACE.len() {
                return true;
            }
            self.is_greeted = true;
            self.from = PREFACE.len();
        }
        loop {
            self.collect();
            if self.data.missing > 0 {
                return true;
            }
            if std::mem::take(&mut self.data.ends) {
                self.answer(answer);
            }
            let input = &self.input[self.from..self.to];
            let Some(head) = FrameHead::read(input) else { return true };
            if head.kind == kind::DATA {
                self.from += HEAD_BYTES;
                self.received += head.length as u32;
                self.data = Data { stream: head.stream, missing: head.length, ends: head.has(flag::END_STREAM) };
                continue;
            }
            if HEAD_BYTES + head.length > INPUT_BYTES {
                return false;
            }
            let Some(payload) = input.get(HEAD_BYTES..HEAD_BYTES + head.length) else { return true };
            match head.kind {
                kind::HEADERS => _ = self.messages.insert(head.stream, Message::default()),
                kind::SETTINGS if !head.has(flag::ACK) => {
                    for entry in payload.chunks_exact(6) {
                        if entry[..2] == setting::MAX_FRAME_SIZE.to_be_bytes() {
                            self.frame_max = number31(&entry[2..]).unwrap_or(FRAME_BYTES_MIN) as usize;
                        }
                    }
                    self.send(kind::SETTINGS, flag::ACK, 0, &[]);
                }
                kind::GOAWAY => return false,
                _ => {}
            }
            self.from += HEAD_BYTES + head.length;
        }
    }

    /// Moves bytes of the DATA frame from the input to its message, and makes room for those that are missing.
    fn collect(&mut self) {
        let Some(message) = self.messages.get_mut(&self.data.stream) else { return };
        let n = self.data.missing.min(self.to - self.from);
        let needed = message.filled + self.data.missing;
        if message.memory.len() < needed {
            let spare = if message.filled == 0 { free(&mut self.spare) } else { None };
            message.memory = spare.unwrap_or_else(|| std::mem::take(&mut message.memory));
            // The length of the whole message stands in front of it.
            let prefix = self.input[self.from..self.to].first_chunk::<PREFIX_BYTES>().filter(|_| message.filled == 0);
            let whole = prefix.map_or(0, |&[_, a, b, c, d]| PREFIX_BYTES + u32::from_be_bytes([a, b, c, d]) as usize);
            if message.memory.len() < needed.max(whole) {
                message.memory.resize(needed.max(whole), 0);
            }
        }
        message.memory[message.filled..message.filled + n].copy_from_slice(&self.input[self.from..self.from + n]);
        message.filled += n;
        self.from += n;
        self.data.missing -= n;
    }

    /// Answers the request whose last frame was read.
    fn answer(&mut self, answer: &Answer) {
        let stream = self.data.stream;
        let Some(message) = self.messages.remove(&stream) else { return };
        let memory = message.memory.freeze();
        let echoed = memory.slice(message.filled.saturating_sub(answer.tail)..message.filled);
        if answer.tail > 0 {
            self.spare.push(memory);
        }
        self.send(kind::HEADERS, flag::END_HEADERS, stream, &answer.head);
        for mut rest in [answer.ready.clone(), if answer.tail > 0 { echoed } else { Bytes::new() }] {
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(self.frame_max));
                let head = FrameHead { length: piece.len(), kind: kind::DATA, flags: 0, stream };
                self.output.tail().extend_from_slice(&head.bytes());
                self.output.put(piece);
            }
        }
        self.send(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &answer.trailers);
        if self.received > WINDOW / 2 {
            let back = std::mem::take(&mut self.received);
            self.send(kind::WINDOW_UPDATE, 0, 0, &back.to_be_bytes());
        }
    }
}

/// Memory whose message was answered.
fn free(spare: &mut Vec<Bytes>) -> Option<BytesMut> {
    let at = spare.iter().position(Bytes::is_unique)?;
    spare.swap_remove(at).try_into_mut().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::messages::framed;
    use load::plan::{Plan, Prepared, Protocol};
    use std::net::TcpListener;

    /// Sends requests of `bytes` bytes, whose last `tail` come back behind some others, and looks at every answer.
    fn check(bytes: usize, tail: usize, (connections, streams, requests): (usize, usize, u64)) {
        let body: Bytes = (0..bytes).map(|i| (i / 7) as u8).collect();
        let message = framed(&body);
        let ready = Bytes::from_static(b"what is not echoed");
        let expected: Bytes = [&ready[..], &message[message.len() - tail..]].concat().into();
        let answer = Answer::new(&expected, tail);
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("an address").to_string();
        std::thread::spawn(move || drop(turns(&listener, Connection::open, |c| c.turn(&answer))));
        let plan = Plan {
            protocol: Protocol::Grpc,
            address,
            path: "/p".into(),
            expected,
            ring: vec![Prepared { body, ..Prepared::default() }],
            connections,
            streams,
            requests_max: requests,
            seconds: 30.0,
            ..Plan::default()
        };
        let tally = load::run(plan, || false, |_| {}).expect("runs").tally;
        assert_eq!((tally.first_error(), tally.latency.count()), (None, requests), "{bytes} {tail}");
    }

    #[test]
    fn every_answer_ends_with_the_bytes_of_its_request() {
        check(0, 0, (1, 1, 10));
        check(100, 0, (2, 8, 200));
        check(100, 64, (2, 8, 200));
        check(300_000, 300_000, (2, 3, 30));
        check(5 << 20, 5 << 20, (2, 2, 12));
    }
}
