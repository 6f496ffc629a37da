//! Output of runners: into the log line by line at a limited rate, or unchanged to the server's own output.
//!
//! One thread reads for all runners, so that endless output delays no response of another. A runner can always print:
//! output beyond its rate is read and dropped, and the number of dropped bytes is logged once a second.

use crate::spec::OutputTarget;
use crate::sys::{self, Epoll, Event, Interest};
use backend::now_ns;
use memory::served::Served;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Longest line of the log; longer ones are split.
const LINE_BYTES_MAX: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;
/// Time after which dropped output is noted, if nothing else is printed.
pub const NOTE_DELAY: Duration = Duration::from_secs(1);

/// Splits output into lines within a rate. Pure: the caller passes the time.
pub(crate) struct Lines {
    rest: Vec<u8>,
    bytes_per_second: u64,
    /// Bytes left of the current second.
    left: u64,
    second: u64,
    dropped: u64,
}

/// A line of the log, or a note of dropped bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OutputLine {
    Line(String),
    Dropped(u64),
}

impl Lines {
    pub(crate) fn new(bytes_per_second: u32) -> Self {
        let rate = u64::from(bytes_per_second);
        Self { rest: Vec::new(), bytes_per_second: rate, left: rate, second: 0, dropped: 0 }
    }

    pub(crate) fn take(&mut self, bytes: &[u8], now: u64, to: &mut Vec<OutputLine>) {
        self.tick(now, to);
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let (kept, dropped) = bytes.split_at(room);
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

    /// Begins a new second if it is time, with a note of what the last one dropped.
    fn tick(&mut self, now: u64, to: &mut Vec<OutputLine>) {
        if now / SECOND_NS != self.second {
            self.second = now / SECOND_NS;
            self.left = self.bytes_per_second;
            self.note(to);
        }
    }

    pub(crate) fn end(&mut self, to: &mut Vec<OutputLine>) {
        if !self.rest.is_empty() {
            self.line(to);
        }
        self.note(to);
    }

    fn line(&mut self, to: &mut Vec<OutputLine>) {
        let line = String::from_utf8_lossy(&self.rest);
        to.push(OutputLine::Line(line.trim_end_matches('\r').to_owned()));
        self.rest.clear();
    }

    fn note(&mut self, to: &mut Vec<OutputLine>) {
        if self.dropped > 0 {
            to.push(OutputLine::Dropped(std::mem::take(&mut self.dropped)));
        }
    }
}

/// One output of a runner, which is logged line by line after the runner's name.
pub struct Printer {
    name: String,
    is_error: bool,
    lines: Lines,
}

impl Printer {
    /// `rate`: bytes that are logged per second. Lines of an error output are warnings.
    pub fn new(name: &str, is_error: bool, rate: u32) -> Self {
        let name = if name.is_empty() { "auto-complete" } else { name };
        Self { name: name.to_owned(), is_error, lines: Lines::new(rate) }
    }

    /// Logs the lines that these bytes complete. True if output was dropped that the log does not mention yet: call
    /// `note` after [`NOTE_DELAY`].
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        let mut lines = Vec::new();
        self.lines.take(bytes, now_ns(), &mut lines);
        self.log(lines);
        self.lines.dropped > 0
    }

    /// Logs how much the last second dropped. True if it is too early.
    pub fn note(&mut self) -> bool {
        let mut lines = Vec::new();
        self.lines.tick(now_ns(), &mut lines);
        self.log(lines);
        self.lines.dropped > 0
    }

    /// Logs the rest.
    pub fn end(&mut self) {
        let mut lines = Vec::new();
        self.lines.end(&mut lines);
        self.log(lines);
    }

    fn log(&self, lines: Vec<OutputLine>) {
        for entry in lines {
            match entry {
                OutputLine::Line(line) if self.is_error => log::warn!("{}: {line}", self.name),
                OutputLine::Line(line) => log::info!("{}: {line}", self.name),
                OutputLine::Dropped(bytes) => {
                    log::warn!("{}: {bytes} bytes of output were dropped: it prints too fast", self.name)
                }
            }
        }
    }
}

struct Pipe {
    fd: OwnedFd,
    printer: Printer,
    form: OutputTarget,
}

pub(crate) struct Printed {
    epoll: Epoll,
    pipes: Mutex<HashMap<u64, Pipe>>,
    next: Mutex<u64>,
    /// Set before bytes are taken from a pipe, cleared once they are logged.
    is_logging: AtomicBool,
}

static PRINTED: Served<Option<Printed>> = Served::new();

impl Printed {
    pub(crate) fn get() -> io::Result<&'static Self> {
        let make = || {
            let (pipes, next, is_logging) = (Mutex::default(), Mutex::new(0), AtomicBool::new(false));
            Some(Self { epoll: Epoll::new().ok()?, pipes, next, is_logging })
        };
        let start = |printed: &'static Option<Self>| {
            let Some(printed) = printed else { return false };
            memory::serving::spawn("nereid-printed", || printed.run()).is_ok()
        };
        let printed = PRINTED.get(make, start).and_then(Option::as_ref);
        printed.ok_or_else(|| io::Error::other("no thread for what processes print"))
    }

    /// Reads a pipe until its other end is closed.
    pub(crate) fn add(&self, fd: OwnedFd, name: &str, is_error: bool, form: OutputTarget, rate: u32) -> io::Result<()> {
        let mut next = self.next.lock();
        *next += 1;
        let token = *next;
        let mut pipes = self.pipes.lock();
        self.epoll.add(fd.as_fd(), token, Interest::Read)?;
        pipes.insert(token, Pipe { fd, printer: Printer::new(name, is_error, rate), form });
        Ok(())
    }

    /// True if all that processes have printed so far is logged.
    pub(crate) fn is_idle() -> bool {
        let Some(Some(printed)) = PRINTED.made() else { return true };
        let mut events = Vec::new();
        // Before the flag: what is no longer in a pipe has set it.
        printed.epoll.wait(&mut events, 0);
        events.is_empty() && !printed.is_logging.load(SeqCst)
    }

    fn run(&self) {
        let mut events: Vec<Event> = Vec::new();
        let mut scratch = vec![0; 64 << 10];
        // The log does not mention all output yet that was dropped.
        let mut owes = false;
        loop {
            self.epoll.wait(&mut events, if owes { NOTE_DELAY.as_millis() as i32 } else { -1 });
            if owes {
                owes = self.pipes.lock().values_mut().fold(false, |owes, pipe| pipe.printer.note() | owes);
            }
            self.is_logging.store(true, SeqCst);
            for event in &events {
                // Outside the lock: if nobody reads our own output, only this thread blocks, not a process's start.
                let Some(mut pipe) = self.pipes.lock().remove(&event.token) else { continue };
                match sys::receive(pipe.fd.as_fd(), &mut scratch) {
                    Ok(n) if n > 0 => owes |= pipe.add(scratch.get(..n).unwrap_or_default()),
                    Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    _ => {
                        pipe.printer.end();
                        self.epoll.remove(pipe.fd.as_fd());
                        continue;
                    }
                }
                self.pipes.lock().insert(event.token, pipe);
            }
            self.is_logging.store(false, SeqCst);
        }
    }
}

impl Pipe {
    /// See [`Printer::add`].
    fn add(&mut self, bytes: &[u8]) -> bool {
        match self.form {
            OutputTarget::Lines => return self.printer.add(bytes),
            // A slow reader of our own output delays only the thread that reads runners' output.
            OutputTarget::Raw if self.printer.is_error => drop(io::stderr().write_all(bytes)),
            OutputTarget::Raw => {
                // A line without an end would stay in the buffer of our own output.
                let mut output = io::stdout().lock();
                drop(output.write_all(bytes).and_then(|()| output.flush()));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> OutputLine {
        OutputLine::Line(text.into())
    }

    #[test]
    fn lines_are_joined_split_and_limited() {
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
            [OutputLine::Dropped(1500 - kept as u64), line(&format!("three{}", "x".repeat(kept))), line("next")]
        );
        out.clear();
        let mut lines = Lines::new(u32::MAX);
        lines.take(&[b'z'; 10_000], 0, &mut out);
        lines.end(&mut out);
        let lengths: Vec<_> = out.iter().map(|e| if let OutputLine::Line(l) = e { l.len() } else { 0 }).collect();
        assert_eq!(lengths, [4096, 4096, 1808]);
    }

    #[test]
    fn dropped_output_is_noted_in_the_next_second_without_another_print() {
        let mut lines = Lines::new(10);
        let mut out = Vec::new();
        lines.take(&[b'x'; 25], 5, &mut out);
        lines.tick(SECOND_NS - 1, &mut out);
        assert_eq!(out, [], "the second is not over");
        lines.tick(SECOND_NS, &mut out);
        lines.tick(2 * SECOND_NS, &mut out);
        assert_eq!(out, [OutputLine::Dropped(15)], "once");
    }
}
