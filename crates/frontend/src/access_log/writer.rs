//! A log with its thread, which writes waiting lines a few times a second. So a line costs a reactor no system call,
//! except for waking the thread after a pause.

use super::file::LogFile;
use super::json_line::JsonLine;
use super::queue::{LineQueue, LogCounts, Put};
use crate::limits::LINES_UNFINISHED_MAX;
use backend::now_ns;
use parking_lot::{Condvar, Mutex};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tensor::{Error, Result};

/// How long lines are collected before they are written, unless there are many.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// Makes the last part of a line, on the thread of the log.
pub type FinishLine = Box<dyn FnOnce(&mut JsonLine<'_>) + Send>;

/// A line without its last part, and the function that makes it.
type Unfinished = (Vec<u8>, FinishLine);

thread_local! {
    /// Buffer in which this thread encodes a line, kept for reuse.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// This thread's shard of every queue.
    static SHARD: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed))
    };
}

/// A log. When it is dropped, its thread writes the lines that wait and ends.
#[derive(Debug)]
pub struct LineLog {
    shared: Arc<LogWriterState>,
    thread: Thread,
}

struct LogWriterState {
    queue: LineQueue,
    unfinished: Mutex<VecDeque<Unfinished>>,
    flag: &'static str,
    /// The thread waits for a line.
    is_asleep: AtomicBool,
    is_closing: AtomicBool,
    /// The file may have been moved, and its path has to be checked now.
    is_moved: AtomicBool,
    /// The thread has written the last line.
    is_done: Mutex<bool>,
    done: Condvar,
    /// Wall clock in µs at time 0 of the engine's clock. Updated with each write, because the wall clock may be set.
    epoch_us: AtomicU64,
    written: AtomicU64,
    lost_error: AtomicU64,
}

impl fmt::Debug for LogWriterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriterState").field("flag", &self.flag).finish_non_exhaustive()
    }
}

impl LogWriterState {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.unfinished.lock().is_empty()
    }
}

impl LineLog {
    /// Opens the log of a flag. `bytes_max`: limit of the waiting bytes of each reactor.
    ///
    /// # Errors
    /// INVALID_ARG if the file cannot be opened; INTERNAL if the system cannot start a thread.
    pub fn open(flag: &'static str, path: &str, reactors: usize, bytes_max: usize) -> Result<Self> {
        let file = LogFile::open(path)
            .map_err(|error| Error::invalid(format!("failed to open the file of --{flag}, '{path}': {error}")))?;
        let shared = Arc::new(LogWriterState {
            queue: LineQueue::new(reactors, bytes_max),
            unfinished: Mutex::default(),
            flag,
            is_asleep: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_moved: AtomicBool::new(false),
            is_done: Mutex::new(false),
            done: Condvar::new(),
            epoch_us: AtomicU64::new(wall_clock_us()),
            written: AtomicU64::new(0),
            lost_error: AtomicU64::new(0),
        });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name(flag.into()).spawn(move || Writer::new(of_thread, file).run());
        let thread = thread.map_err(|e| Error::internal(format!("cannot start the thread of --{flag}: {e}")))?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// Adds a line, or drops it if there is no room. Never waits.
    pub fn put(&self, fill: impl FnOnce(&mut JsonLine<'_>)) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            let mut line = JsonLine::begin(scratch, self.shared.epoch_us.load(Ordering::Relaxed));
            fill(&mut line);
            line.end();
            match self.shared.queue.put(SHARD.get(), scratch) {
                Put::Urgent => self.thread.unpark(),
                // Read after the queue was locked; the thread sets it before it locks the queue. So either this sees
                // that the thread sleeps, or the thread sees the line.
                Put::Waits if self.shared.is_asleep.load(Ordering::SeqCst) => self.thread.unpark(),
                Put::Waits | Put::Lost => {}
            }
        });
    }

    /// Adds a line whose last part takes long and is made by the thread of the log. The part is omitted if
    /// `LINES_UNFINISHED_MAX` such lines wait.
    pub fn put_later(&self, fill: impl Fn(&mut JsonLine<'_>), rest: FinishLine) {
        let mut begun = Vec::new();
        fill(&mut JsonLine::begin(&mut begun, self.shared.epoch_us.load(Ordering::Relaxed)));
        let mut unfinished = self.shared.unfinished.lock();
        if unfinished.len() < LINES_UNFINISHED_MAX {
            unfinished.push_back((begun, rest));
            drop(unfinished);
            return self.thread.unpark();
        }
        drop(unfinished);
        self.put(|line| {
            fill(line);
            line.flag("parameters_left_out");
        });
    }

    /// Reopens the file if it was moved: later lines go to the new file.
    pub fn reopen(&self) {
        self.shared.is_moved.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }

    pub fn counts(&self) -> LogCounts {
        LogCounts {
            written: self.shared.written.load(Ordering::Relaxed),
            lost_error: self.shared.lost_error.load(Ordering::Relaxed),
            ..self.shared.queue.counts()
        }
    }

    /// Ends the log. Waits until all lines are written, at most until `end`: the reader of a pipe may not read.
    pub fn finish(&self, end: Instant) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.thread.unpark();
        let mut is_done = self.shared.is_done.lock();
        while !*is_done && !self.shared.done.wait_until(&mut is_done, end).timed_out() {}
    }
}

impl Drop for LineLog {
    fn drop(&mut self) {
        // The thread writes the remaining lines.
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Wall clock in µs at time 0 of the engine's clock.
#[expect(clippy::disallowed_methods, reason = "lines have the time of day")]
pub fn wall_clock_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
    now.saturating_sub(now_ns() / 1000)
}

/// The state of the log's thread.
struct Writer {
    shared: Arc<LogWriterState>,
    file: LogFile,
    spare: Vec<u8>,
    /// Number of lines lost since the last one that was written.
    missing: u64,
    /// The failure to reopen the file was logged.
    is_stuck: bool,
}

impl Writer {
    fn new(shared: Arc<LogWriterState>, file: LogFile) -> Self {
        Self { shared, file, spare: Vec::new(), missing: 0, is_stuck: false }
    }

    fn run(mut self) {
        let shared = self.shared.clone();
        loop {
            let closing = shared.is_closing.load(Ordering::SeqCst);
            if !closing {
                shared.is_asleep.store(true, Ordering::SeqCst);
                let is_needed =
                    || [&shared.is_closing, &shared.is_moved].iter().any(|flag| flag.load(Ordering::SeqCst));
                while shared.is_idle() && !is_needed() {
                    std::thread::park();
                }
                shared.is_asleep.store(false, Ordering::SeqCst);
                // An urgent line ends the wait.
                if !shared.is_moved.load(Ordering::SeqCst) {
                    std::thread::park_timeout(GATHER_TIME);
                }
                shared.epoch_us.store(wall_clock_us(), Ordering::Relaxed);
            }
            self.write();
            if closing {
                break;
            }
        }
        *shared.is_done.lock() = true;
        shared.done.notify_all();
    }

    fn write(&mut self) {
        let at_once = self.shared.is_moved.swap(false, Ordering::SeqCst);
        let looked = self.file.look(Instant::now(), at_once);
        match looked {
            Ok(()) => self.is_stuck = false,
            Err(error) if !self.is_stuck => {
                self.is_stuck = true;
                log::warn!(
                    "the file of --{} was removed and cannot be created again: {error}; the server tries each second",
                    self.shared.flag
                );
            }
            Err(_) => {}
        }
        // One at a time, so that the memory of one is freed before the next is finished.
        loop {
            let next = self.shared.unfinished.lock().pop_front();
            let Some((begun, rest)) = next else { break };
            let mut whole = begun;
            let mut line = JsonLine::resume(&mut whole, self.shared.epoch_us.load(Ordering::Relaxed));
            rest(&mut line);
            line.end();
            self.write_lines(&whole);
        }
        let mut spare = std::mem::take(&mut self.spare);
        let shared = self.shared.clone();
        shared.queue.take(&mut spare, |lines| self.write_lines(lines));
        self.spare = spare;
    }

    fn write_lines(&mut self, lines: &[u8]) {
        let shared = self.shared.clone();
        let count = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
        match self.file.write(lines, || shared.is_closing.load(Ordering::SeqCst)) {
            Ok(()) => {
                shared.written.fetch_add(count(lines), Ordering::Relaxed);
                if self.missing > 0 {
                    let missing = std::mem::take(&mut self.missing);
                    log::warn!("lines of --{} are written again; {missing} lines before were lost", shared.flag);
                }
            }
            Err((written, error)) => {
                let (done, left) = lines.split_at(written.min(lines.len()));
                shared.written.fetch_add(count(done), Ordering::Relaxed);
                let lost = count(left);
                shared.lost_error.fetch_add(lost, Ordering::Relaxed);
                // The failure is logged once, and not for each line.
                if self.missing == 0 {
                    log::error!("lines of --{} are lost, because writing fails: {error}", shared.flag);
                }
                self.missing += lost;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("nereid-writer-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn end() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn every_line_is_written_even_at_the_end() {
        let path = file("all");
        let log = LineLog::open("access-log", path.to_str().unwrap(), 2, 1 << 20).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    (0..1000).for_each(|n| log.put(|line| _ = line.number("thread", thread).number("n", n)))
                });
            }
        });
        log.finish(end());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 4000);
        assert!(text.lines().all(|line| protocol::json::Value::parse(line.as_bytes()).is_ok()));
        assert_eq!((log.counts().written, log.counts().waiting_bytes), (4000, 0));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_single_line_is_written_soon() {
        let path = file("one");
        let log = LineLog::open("access-log", path.to_str().unwrap(), 1, 1 << 20).unwrap();
        for n in 1..4 {
            log.put(|line| _ = line.number("n", n));
            let end = end();
            while log.counts().written < n {
                assert!(Instant::now() < end, "never written");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::fs::remove_file(path).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted() {
        let log = LineLog::open("audit-log", "/dev/full", 1, 1 << 20).unwrap();
        (0..10).for_each(|n| log.put(|line| _ = line.number("n", n)));
        log.finish(end());
        assert_eq!((log.counts().written, log.counts().lost_error), (0, 10));
    }
}
