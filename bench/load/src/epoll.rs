//! The lowest floor: epoll, one thread, no HTTP library. Reads a request by its Content-Length and writes ready-made
//! bytes; with `--tail` the last bytes of the answer are those of the request, out of the buffer they were read into:
//! an echo.

#![allow(unsafe_code)] // epoll has no safe wrapper in std; four calls, each with its reason

use crate::arguments::{Arguments, Failure};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

struct Connection {
    stream: TcpStream,
    /// Grows to the longest request and is kept.
    input: Vec<u8>,
    filled: usize,
    /// Bytes of answers still to be written.
    owed: usize,
    /// Where in the input the echoed bytes end.
    echo_end: usize,
}

/// The answer to every request.
struct Answer {
    /// Head and body; without the echoed bytes.
    ready: Vec<u8>,
    tail: usize,
}

impl Answer {
    fn len(&self) -> usize {
        self.ready.len() + self.tail
    }
}

pub fn serve(a: &Arguments) -> Result<(), Failure> {
    memory::thread::request_short_slices();
    let body = a.file("answer")?;
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    let tail = a.number("tail", 0usize)?.min(body.len());
    answer.extend_from_slice(&body[..body.len() - tail]);
    let answer = Answer { ready: answer, tail };
    let open = |stream| Connection { stream, input: vec![0; 64 << 10], filled: 0, owed: 0, echo_end: 0 };
    turns(&listen()?, open, |connection| connection.turn(&answer))
}

/// A listener on a free port, which is printed.
pub fn listen() -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("ready {}", listener.local_addr()?.port());
    Ok(listener)
}

/// Accepts connections for ever. Calls `turn` of each when its socket can be read or written again, until it returns
/// false.
pub fn turns<C>(
    listener: &TcpListener,
    open: impl Fn(TcpStream) -> C,
    turn: impl Fn(&mut C) -> bool,
) -> Result<(), Failure> {
    listener.set_nonblocking(true)?;
    // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
    let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if raw < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: `raw` was just made and belongs to nobody else.
    let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
    let watch = |fd: RawFd, events: i32| {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        // SAFETY: `epoll` and `fd` are open, and `event` lives over the call.
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) }
    };
    watch(listener.as_raw_fd(), libc::EPOLLIN);
    let mut connections: HashMap<RawFd, C> = HashMap::new();
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 64];
    loop {
        // SAFETY: `events` has room for 64 entries and lives over the call.
        let n = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 64, -1) };
        for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
            let fd = event.u64 as RawFd;
            if fd == listener.as_raw_fd() {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let fd = stream.as_raw_fd();
                    watch(fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET);
                    connections.insert(fd, open(stream));
                }
            } else if connections.get_mut(&fd).is_some_and(|c| !turn(c)) {
                connections.remove(&fd);
            }
        }
    }
}

impl Connection {
    /// Reads and writes until both would block. False when the connection is over.
    fn turn(&mut self, answer: &Answer) -> bool {
        // An echo is written out of the input, which must stay until then; the client has nothing to send meanwhile.
        while answer.tail == 0 || self.owed == 0 {
            if self.filled == self.input.len() {
                let wanted = request_length(&self.input[..self.filled]).unwrap_or(0).max(self.filled * 2);
                self.input.resize(wanted, 0);
            }
            let room = self.input.len() - self.filled;
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return false,
                Ok(n) => {
                    self.filled += n;
                    self.answer_complete(answer);
                    // Less than there was room for: the socket is empty, and the next bytes make a new edge.
                    if n < room {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        while self.owed > 0 {
            let written = (answer.len() - self.owed % answer.len()) % answer.len();
            let rest = match written.checked_sub(answer.ready.len()) {
                Some(echoed) => &self.input[self.echo_end - answer.tail + echoed..self.echo_end],
                None => &answer.ready[written..],
            };
            match self.stream.write(rest) {
                Ok(n) => self.owed -= n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes whole requests out of the input; each is owed one answer.
    fn answer_complete(&mut self, answer: &Answer) {
        while let Some(length) = request_length(&self.input[..self.filled]).filter(|l| self.filled >= *l) {
            if answer.tail > 0 {
                self.echo_end = length.max(answer.tail);
                self.filled = 0;
                self.owed = answer.len();
                return;
            }
            self.input.copy_within(length..self.filled, 0);
            self.filled -= length;
            self.owed += answer.len();
        }
    }
}

/// Length of the first request, head and body, once its head is complete.
pub fn request_length(input: &[u8]) -> Option<usize> {
    let head = input.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&input[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some(head + length.unwrap_or(0))
}
