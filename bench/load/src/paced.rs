//! The floor of paced responses: one thread that wakes at whole milliseconds and sends each event that is due, as the
//! model `repeat` does. What is left is a wake for all that fall together and a send for each.

#![allow(clippy::disallowed_methods, reason = "it keeps time, and has no other work")]

use crate::arguments::{Arguments, Failure};
use crate::epoll::{listen, request_length};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
/// An event of the model, as a chunk.
const EVENT: &[u8] =
    b"4c\r\ndata: {\"model_name\":\"repeat\",\"model_version\":\"1\",\"IDX\":599,\"OUT\":16777215}\n\n\r\n";
const END: &[u8] = b"0\r\n\r\n";

struct Paced {
    stream: TcpStream,
    /// A request until it is complete.
    request: Vec<u8>,
    /// Events to come, and when the next is due.
    left: usize,
    due: Instant,
}

impl Paced {
    /// Reads a request, or sends what is due; false at the end of the connection.
    fn turn(&mut self, delay: Duration) -> std::io::Result<bool> {
        if self.left == 0 {
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(n) => self.request.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
            if request_length(&self.request).is_none_or(|length| self.request.len() < length) {
                return Ok(true);
            }
            // Two lists of as many numbers, and a third member.
            let body = self.request.split(|&b| b == b'{').next_back().unwrap_or_default();
            self.left = body.iter().filter(|&&b| b == b',').count() / 2;
            self.request.clear();
            self.due = Instant::now() + delay;
            self.stream.write_all(HEAD)?;
            return Ok(true);
        }
        if self.due <= Instant::now() {
            self.stream.write_all(EVENT)?;
            self.left -= 1;
            self.due += delay;
            if self.left == 0 {
                self.stream.write_all(END)?;
            }
        }
        Ok(true)
    }
}

/// Serves connections for ever, with `--delay-ms` between events.
pub fn serve(a: &Arguments) -> Result<(), Failure> {
    memory::thread::request_short_slices();
    let delay = Duration::from_millis(a.number("delay-ms", 5)?);
    let listener = listen()?;
    listener.set_nonblocking(true)?;
    let (start, mut all) = (Instant::now(), Vec::new());
    loop {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            all.push(Paced { stream, request: Vec::new(), left: 0, due: Instant::now() });
        }
        all.retain_mut(|one| one.turn(delay).unwrap_or(false));
        let ticks = start.elapsed().as_micros() / TICK.as_micros() + 1;
        std::thread::sleep((start + TICK * ticks as u32).saturating_duration_since(Instant::now()));
    }
}
