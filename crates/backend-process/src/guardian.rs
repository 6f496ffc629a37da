//! Ends what runners leave behind: processes that a model started and that are no longer in its runner's group (B-PYR-09).
//!
//! A runner dies with the server: the kernel sees to that. What it started may not, and after a SIGKILL of the server nothing of ours runs any more. So
//! another process, one per server, hears which runners there are, and learns of the server's end from the kernel, which closes its socket. It also ends what
//! is left of a single runner. Which program that is, is the business of who starts runners.
//!
//! Invariant: the socket of a guardian that runs is closed by the end of the server only, for it takes that for the end of all runners.

use crate::output::Printed;
use crate::spec::{Command, Output};
use crate::sys::{self, Child, Program};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, OnceLock};

/// All processes below a runner have it, unless they clear their environment: which server's runner that is.
pub(crate) const VARIABLE: &str = "NEREID_RUNNER";
const OUTPUT_BYTES_PER_SECOND: u32 = 4096;

static PROGRAM: OnceLock<Command> = OnceLock::new();
static GUARDIAN: Mutex<Guardian> = Mutex::new(Guardian { runners: BTreeMap::new(), process: None, is_missing: false });

/// No other server of this machine has it, before or after.
static SERVER: LazyLock<String> = LazyLock::new(|| {
    let pid = std::process::id();
    let start = start_of(pid.cast_signed()).unwrap_or(0);
    // In another container the same numbers may be another server's.
    format!("{pid}-{start}-{:016x}", RandomState::new().hash_one(start))
});

/// Names the program that ends what runners leave behind; the first one counts. It is told the server's name behind its arguments.
pub fn guard_with(command: Command) {
    let _ = PROGRAM.set(command);
}

struct Guardian {
    /// Those that are not over, as the guardian is told.
    runners: BTreeMap<u64, String>,
    process: Option<Process>,
    /// It could not be started, which was said.
    is_missing: bool,
}

/// In this order: it is killed before its socket is closed.
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
        Printed::get()?.add(out, "guardian", false, Output::Lines, OUTPUT_BYTES_PER_SECOND)?;
        Ok(Self { _child: child, socket })
    }

    /// Whether it was told: a guardian that is gone or stopped is not.
    fn tell(&self, line: &str) -> bool {
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
            // Something killed it: another one hears of the runner, and of its end.
            self.start();
            self.tell(&line);
        }
        self.runners.remove(&id);
    }

    fn tell(&self, line: &str) -> bool {
        self.process.as_ref().is_some_and(|process| process.tell(line))
    }

    /// Starts it, again if need be.
    fn start(&mut self) {
        self.process = None;
        let Some(command) = PROGRAM.get() else { return };
        match Process::start(command) {
            Ok(process) if self.runners.values().all(|line| process.tell(line)) => self.process = Some(process),
            Ok(_) => log::warn!("what models start may outlive a server that is killed: the guardian ended at once"),
            Err(e) if !self.is_missing => {
                self.is_missing = true;
                log::warn!("what models start may outlive a server that is killed: no guardian could be started: {e}");
            }
            Err(_) => {}
        }
    }
}

/// A runner's process, as the guardian knows it; dropped, what it left behind is ended.
pub(crate) struct Guarded(u64);

impl Guarded {
    /// A process that was started and not waited for, so its number is its own.
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

/// What the variable says in a runner.
pub(crate) fn variable(id: u64) -> (OsString, OsString) {
    (VARIABLE.into(), format!("{}-{id}", *SERVER).into())
}

/// When a process began, in ticks since the system did.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    start_in(&stat)
}

/// The name in front may have blanks and parentheses.
fn start_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_read_whatever_it_is_called() {
        let rest = "S 1 70 70 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 10";
        for name in ["python3", "a b", ") S (", "(x) 1 2"] {
            assert_eq!(start_in(&format!("70 ({name}) {rest}")), Some(12345), "{name}");
        }
        assert_eq!(start_in("70 (x) S 1"), None);
        assert!(start_of(std::process::id().cast_signed()).is_some());
    }
}
