//! The process of the library: its socket, and the threads that write to it and read from it.

use frames::cache::{CacheAnswer, CacheOperation, CacheStatus, read_answer, write_request};
use options::{LibraryCacheOptions, LibraryProcess};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use tensor::{Error, Result};

/// Time that the library has to initialize.
const START_TIME: Duration = Duration::from_secs(60);
/// Maximum bytes that the library prints in a second, on one of its outputs. The rest is dropped.
const SECOND_BYTES_MAX: usize = 64 * 1024;
/// Longest line in bytes that the library prints.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// Values that count requests until they are dropped, by the number of the request.
type Permits = Arc<Mutex<HashMap<u64, Box<dyn Any + Send>>>>;

pub(crate) struct Process {
    socket: UnixStream,
    messages: Sender<Vec<u8>>,
    /// Dropped with the answers of their requests.
    permits: Permits,
    child: Mutex<Option<Child>>,
    /// Closed by the reader at the end.
    ended: Mutex<Receiver<()>>,
}

impl Process {
    /// Starts the process and waits until the cache is initialized. `answer` gets the number of a lookup and what was
    /// found; `ended` is called once, at the end.
    pub(crate) fn start(
        options: &LibraryCacheOptions,
        host: &LibraryProcess,
        answer: impl Fn(u64, Option<Vec<u8>>) + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let failed =
            |error: io::Error| Error::internal(format!("the cache '{}' cannot be started: {error}", options.name));
        let (socket, its) = UnixStream::pair().map_err(failed)?;
        let mut child = Command::new(&host.program)
            .arg(&host.library)
            .arg("cache")
            .arg(&options.path)
            .args(host.user.iter().map(|user| format!("--user={user}")))
            .env_clear()
            .envs(&host.environment)
            // Signals of a terminal are for the server, which lets the library finalize.
            .process_group(0)
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        for output in [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)] {
            let name = options.name.clone();
            let output = output.map(std::fs::File::from);
            thread(move || output.into_iter().for_each(|output| print(&name, output))).map_err(failed)?;
        }
        let mut reads = BufReader::new(socket.try_clone().map_err(failed)?);
        let first = first(&socket, &mut reads, options.config.as_bytes());
        if !matches!(&first, Ok(answer) if answer.status == CacheStatus::Done) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let first = first.map_err(failed)?;
        if first.status != CacheStatus::Done {
            return Err(Error::invalid(String::from_utf8_lossy(&first.contents).into_owned()));
        }
        let (messages, waiting) = channel::<Vec<u8>>();
        let mut writes = socket.try_clone().map_err(failed)?;
        thread(move || {
            // A failure also ends the reader.
            for bytes in waiting {
                let _ = writes.write_all(&bytes);
            }
        })
        .map_err(failed)?;
        let (reads_on, over) = channel();
        let permits = Permits::default();
        let answered = Arc::clone(&permits);
        thread(move || {
            while let Ok(CacheAnswer { id, status, contents }) = read_answer(&mut reads) {
                let permit = answered.lock().remove(&id);
                drop(permit);
                answer(id, (status == CacheStatus::Done).then_some(contents));
            }
            ended();
            drop(reads_on);
        })
        .map_err(failed)?;
        Ok(Self { socket, messages, permits, child: Mutex::new(Some(child)), ended: Mutex::new(over) })
    }

    /// Sends a request; `permit` is dropped once it is answered, or never will be.
    pub(crate) fn send(
        &self,
        operation: CacheOperation,
        id: u64,
        key: &str,
        contents: &[u8],
        permit: Box<dyn Any + Send>,
    ) {
        self.permits.lock().insert(id, permit);
        let _ = self.messages.send(write_request(operation, id, key, contents));
    }

    /// Ends a process that does not answer, at once.
    pub(crate) fn kill(&self) {
        if let Some(child) = self.child.lock().as_mut() {
            let _ = child.kill();
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// True once the process has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.lock().try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Lets the library finalize and waits for its process; kills it after `time`.
    pub(crate) fn end(&self, time: Duration) {
        let _ = self.socket.shutdown(Shutdown::Write);
        let is_over = self.ended.lock().recv_timeout(time) == Err(RecvTimeoutError::Disconnected);
        if let Some(mut child) = self.child.lock().take() {
            if !is_over {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(mut child) = self.child.get_mut().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("nereid-cache".into()).spawn(work).map(drop)
}

/// Configures the cache.
fn first(mut socket: &UnixStream, reads: &mut impl Read, config: &[u8]) -> io::Result<CacheAnswer> {
    socket.write_all(&write_request(CacheOperation::Configure, 0, "", config))?;
    socket.set_read_timeout(Some(START_TIME))?;
    let answer = read_answer(reads)?;
    socket.set_read_timeout(None)?;
    Ok(answer)
}

/// Logs what the library prints, a line at a time and at a limited rate.
fn print(name: &str, output: std::fs::File) {
    let mut lines = BufReader::new(output);
    let (mut began, mut bytes, mut dropped) = (Instant::now(), 0, 0_u64);
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if began.elapsed() >= Duration::from_secs(1) {
            if dropped > 0 {
                log::info!(
                    "cache '{name}': {dropped} lines were dropped: more than {SECOND_BYTES_MAX} bytes in a second"
                );
            }
            (began, bytes, dropped) = (Instant::now(), 0, 0);
        }
        // A line costs more than its bytes.
        bytes += line.len() + 64;
        if bytes > SECOND_BYTES_MAX {
            dropped += 1;
        } else {
            log::info!("cache '{name}': {}", String::from_utf8_lossy(line.trim_ascii_end()));
        }
    }
}
