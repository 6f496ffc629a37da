//! What runners print: line by line into the log, so many bytes a second at most, or as it is.
//!
//! One thread reads for all of them, so that a process that prints without end costs no answer of another. It is never kept from printing: what is beyond its rate is
//! read and dropped, and how much that was is said once a second.

use crate::spec::Output;
use crate::sys::{self, Epoll, Event, Interest};
use backend::now_ns;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Longest line of the log; a longer one is cut into several.
const LINE_BYTES_MAX: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// Cuts what comes into lines and bounds them. Pure: the caller passes the time.
pub(crate) struct Lines {
    rest: Vec<u8>,
    bytes_per_second: u64,
    /// Bytes left of the current second.
    left: u64,
    second: u64,
    dropped: u64,
}

/// What goes into the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Line(String),
    Dropped(u64),
}

impl Lines {
    pub(crate) fn new(bytes_per_second: u32) -> Self {
        let rate = u64::from(bytes_per_second);
        Self { rest: Vec::new(), bytes_per_second: rate, left: rate, second: 0, dropped: 0 }
    }

    /// Takes what was printed.
    pub(crate) fn take(&mut self, came: &[u8], now: u64, to: &mut Vec<Entry>) {
        if now / SECOND_NS != self.second {
            self.second = now / SECOND_NS;
            self.left = self.bytes_per_second;
            self.note(to);
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(came.len());
        let (kept, dropped) = came.split_at(room);
        self.left -= kept.len() as u64;
        self.dropped += dropped.len() as u64;
        for piece in kept.split_inclusive(|&b| b == b'\n') {
            let is_whole = piece.ends_with(b"\n");
            let mut piece = piece.strip_suffix(b"\n").unwrap_or(piece);
            while self.rest.len() + piece.len() > LINE_BYTES_MAX {
                let (now, later) = piece.split_at(LINE_BYTES_MAX.saturating_sub(self.rest.len()));
                self.rest.extend_from_slice(now);
                piece = later;
                self.line(to);
            }
            self.rest.extend_from_slice(piece);
            if is_whole {
                self.line(to);
            }
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, to: &mut Vec<Entry>) {
        if !self.rest.is_empty() {
            self.line(to);
        }
        self.note(to);
    }

    fn line(&mut self, to: &mut Vec<Entry>) {
        let line = String::from_utf8_lossy(&self.rest);
        to.push(Entry::Line(line.trim_end_matches('\r').to_owned()));
        self.rest.clear();
    }

    fn note(&mut self, to: &mut Vec<Entry>) {
        if self.dropped > 0 {
            to.push(Entry::Dropped(std::mem::take(&mut self.dropped)));
        }
    }
}

/// One pipe of a process.
struct Pipe {
    fd: OwnedFd,
    name: String,
    is_error: bool,
    form: Output,
    lines: Lines,
}

pub(crate) struct Printed {
    epoll: Epoll,
    pipes: Mutex<HashMap<u64, Pipe>>,
    next: Mutex<u64>,
}

impl Printed {
    pub(crate) fn get() -> io::Result<&'static Self> {
        static PRINTED: OnceLock<Option<Printed>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let made = PRINTED.get_or_init(|| {
            let epoll = Epoll::new().ok()?;
            Some(Self { epoll, pipes: Mutex::default(), next: Mutex::new(0) })
        });
        let printed = made.as_ref().ok_or_else(|| io::Error::other("no thread for what processes print"))?;
        let runs = THREAD.get_or_init(|| memory::serving::spawn("nereid-printed", || printed.run()).is_ok());
        if *runs { Ok(printed) } else { Err(io::Error::other("no thread for what processes print")) }
    }

    /// Reads a pipe until its other end is closed.
    pub(crate) fn add(&self, fd: OwnedFd, name: &str, is_error: bool, form: Output, rate: u32) -> io::Result<()> {
        let mut next = self.next.lock();
        *next += 1;
        let token = *next;
        let mut pipes = self.pipes.lock();
        self.epoll.add(fd.as_fd(), token, Interest::Read)?;
        pipes.insert(token, Pipe { fd, name: name.to_owned(), is_error, form, lines: Lines::new(rate) });
        Ok(())
    }

    fn run(&self) {
        let mut events: Vec<Event> = Vec::new();
        let mut scratch = vec![0; 64 << 10];
        let mut entries = Vec::new();
        loop {
            self.epoll.wait(&mut events, -1);
            for event in &events {
                // Out of the lock: where our own output is not read, this thread alone waits, and not one that starts a process.
                let Some(mut pipe) = self.pipes.lock().remove(&event.token) else { continue };
                match sys::receive(pipe.fd.as_fd(), &mut scratch) {
                    Ok(n) if n > 0 => pipe.took(scratch.get(..n).unwrap_or_default(), &mut entries),
                    Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    _ => {
                        pipe.lines.end(&mut entries);
                        pipe.log(&mut entries);
                        self.epoll.remove(pipe.fd.as_fd());
                        continue;
                    }
                }
                self.pipes.lock().insert(event.token, pipe);
            }
        }
    }
}

impl Pipe {
    fn took(&mut self, came: &[u8], entries: &mut Vec<Entry>) {
        match self.form {
            Output::Lines => {
                self.lines.take(came, now_ns(), entries);
                self.log(entries);
            }
            // Whoever reads our output slowly slows down what is read here, and nothing else.
            Output::Raw if self.is_error => drop(io::stderr().write_all(came)),
            Output::Raw => {
                // A line without an end would stay in the buffer of our own output.
                let mut output = io::stdout().lock();
                drop(output.write_all(came).and_then(|()| output.flush()));
            }
        }
    }

    fn log(&self, entries: &mut Vec<Entry>) {
        for entry in entries.drain(..) {
            match entry {
                Entry::Line(line) if self.is_error => log::warn!("{}: {line}", self.name),
                Entry::Line(line) => log::info!("{}: {line}", self.name),
                Entry::Dropped(bytes) => {
                    log::warn!("{}: {bytes} bytes of output were dropped: it prints too much", self.name)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Entry {
        Entry::Line(text.into())
    }

    #[test]
    fn lines_are_put_together_cut_and_bounded() {
        let mut lines = Lines::new(100);
        let mut out = Vec::new();
        lines.take(b"one\r\ntw", 0, &mut out);
        lines.take(b"o\n\nthree", 1, &mut out);
        assert_eq!(out, [line("one"), line("two"), line("")]);
        out.clear();
        lines.take(&[b'x'; 1000], 2, &mut out);
        lines.take(&[b'y'; 500], 3, &mut out);
        assert_eq!(out, [], "no line has ended, and the rest is dropped");
        lines.take(b"\nnext\n", SECOND_NS, &mut out);
        let kept = 100 - "one\r\ntwo\n\nthree".len();
        assert_eq!(
            out,
            [Entry::Dropped(1500 - kept as u64), line(&format!("three{}", "x".repeat(kept))), line("next")]
        );
        out.clear();
        let mut lines = Lines::new(u32::MAX);
        lines.take(&[b'z'; 10_000], 0, &mut out);
        lines.end(&mut out);
        let lengths: Vec<_> = out.iter().map(|e| if let Entry::Line(l) = e { l.len() } else { 0 }).collect();
        assert_eq!(lengths, [4096, 4096, 1808]);
    }
}
