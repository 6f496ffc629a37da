//! Ends processes that a model started and that left its runner's process group (B-PYR-09).
//!
//! The kernel ends a runner with the server, but not the processes it started, and after SIGKILL the server cannot
//! either. So another process, one per server, keeps a list of the runners and learns of the server's end when the
//! kernel closes its socket. It also cleans up after single runners. The caller provides its program.
//!
//! Invariant: only the end of the server closes the socket of a running guardian, which then ends all runners.

use crate::output::Printed;
use crate::spec::{Command, OutputTarget};
use crate::sys::{self, Child, Program};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

/// Environment variable with the server and the runner of a process; inherited unless a process clears its environment.
pub(crate) const VARIABLE: &str = "NEREID_RUNNER";
const OUTPUT_BYTES_PER_SECOND: u32 = 4096;

static GUARDIAN: Mutex<Guardian> =
    Mutex::new(Guardian { command: None, runners: BTreeMap::new(), process: None, is_missing: false });

/// Unique on this machine, also over time.
static SERVER: LazyLock<String> = LazyLock::new(|| {
    let pid = std::process::id();
    let start = start_of(pid.cast_signed()).unwrap_or(0);
    // In another container another server may have the same numbers.
    format!("{pid}-{start}-{:016x}", RandomState::new().hash_one(start))
});

/// Sets the guardian's program; the first call counts. The server's name is appended to its arguments.
pub fn guard_with(command: Command) {
    GUARDIAN.lock().command.get_or_insert(command);
}

struct Guardian {
    command: Option<Command>,
    /// Line about each runner that has not ended.
    runners: BTreeMap<u64, String>,
    process: Option<Process>,
    /// The guardian could not be started, which was logged.
    is_missing: bool,
}

/// Fields in this order: the process is killed before its socket is closed.
struct Process {
    _child: Child,
    socket: UnixStream,
}

impl Process {
    fn start(command: &Command) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let (out, their_out) = sys::pipe()?;
        let nothing = File::options().write(true).open("/dev/null")?;
        let mut arguments = command.arguments.clone();
        arguments.push(OsString::from(SERVER.as_str()));
        let mut program = Program::new(&command.program, &arguments, &command.environment)?;
        program.outlives = true;
        let child = sys::spawn(&program, &[theirs.as_fd(), their_out.as_fd(), nothing.as_fd()])?;
        Printed::get()?.add(out, "guardian", false, OutputTarget::Lines, OUTPUT_BYTES_PER_SECOND)?;
        Ok(Self { _child: child, socket })
    }

    /// Returns false if the guardian has ended or stopped.
    fn send(&self, line: &str) -> bool {
        sys::send(self.socket.as_fd(), line.as_bytes(), None).is_ok_and(|sent| sent == line.len())
    }
}

impl Guardian {
    fn begin(&mut self, id: u64, line: String) {
        let is_told = self.tell(&line);
        self.runners.insert(id, line);
        if !is_told {
            self.start();
        }
    }

    fn end(&mut self, id: u64) {
        if !self.runners.contains_key(&id) {
            return;
        }
        let line = format!("-{id}\n");
        if !self.tell(&line) {
            // It was killed: another one receives the runner and its end.
            self.start();
            self.tell(&line);
        }
        self.runners.remove(&id);
    }

    fn tell(&self, line: &str) -> bool {
        self.process.as_ref().is_some_and(|process| process.send(line))
    }

    /// Starts the guardian, or starts it again.
    fn start(&mut self) {
        self.process = None;
        let Some(command) = &self.command else { return };
        match Process::start(command) {
            Ok(process) if self.runners.values().all(|line| process.send(line)) => self.process = Some(process),
            Ok(_) => log::warn!("processes of models may outlive a killed server: the guardian ended at once"),
            Err(e) if !self.is_missing => {
                self.is_missing = true;
                log::warn!("processes of models may outlive a killed server: no guardian could be started: {e}");
            }
            Err(_) => {}
        }
    }
}

/// Registration of a runner's process; when dropped, the processes it left behind are ended.
pub(crate) struct Guarded(u64);

impl Guarded {
    /// Registers a process that was not waited for, so its pid is its own.
    pub(crate) fn new(id: u64, pid: i32) -> Self {
        if let Some(start) = start_of(pid) {
            GUARDIAN.lock().begin(id, format!("+{id} {pid} {start}\n"));
        }
        Self(id)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        GUARDIAN.lock().end(self.0);
    }
}

/// The variable of a runner.
pub(crate) fn variable(id: u64) -> (OsString, OsString) {
    (VARIABLE.into(), format!("{}-{id}", *SERVER).into())
}

/// Start of a process in ticks since boot.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    start_in(&stat)
}

/// Parses a `stat` file, whose name field may contain blanks and parentheses.
fn start_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_read_for_any_name() {
        let rest = "S 1 70 70 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 10";
        for name in ["python3", "a b", ") S (", "(x) 1 2"] {
            assert_eq!(start_in(&format!("70 ({name}) {rest}")), Some(12345), "{name}");
        }
        assert_eq!(start_in("70 (x) S 1"), None);
        assert!(start_of(std::process::id().cast_signed()).is_some());
    }
}
