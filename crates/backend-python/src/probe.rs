//! Probes an interpreter's version and packages, once per file and modification.
//!
//! Starts it without a shell, with the time limit of a runner's start. Its output is untrusted: it may be any program.

use crate::child::wait_at_most;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

/// Limit of its output.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;
/// Remembered interpreters; beyond it all are forgotten.
const REMEMBERED_MAX: usize = 256;

/// Oldest Python: the first with `socket.recv_fds`.
pub const PYTHON_MIN: (u32, u32) = (3, 9);
/// Oldest numpy: the first with DLPack.
pub const NUMPY_MIN: (u32, u32) = (1, 22);

/// Prints `implementation, version, numpy or why not, executable`, a line each. Does not import from the current
/// directory.
const SCRIPT: &str = "\
import sys
if sys.path and sys.path[0] in ('', '.'):
    del sys.path[0]
# Python 2 has no such attribute, and is reported as too old below.
print(getattr(getattr(sys, 'implementation', None), 'name', 'cpython'))
print('.'.join(str(n) for n in sys.version_info[:3]))
try:
    import numpy
    print(numpy.__version__)
except ImportError:
    print('')
except Exception as error:
    print('!' + str(error).replace(chr(10), ' ')[:500])
print(sys.executable)
";

/// An interpreter that can run models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Absolute path of the program as given: it may be a script that sets variables.
    pub program: PathBuf,
    /// Absolute path of the interpreter itself, as it reports.
    pub executable: PathBuf,
    /// `3.11.2`.
    pub version: String,
    /// `2.4.1`.
    pub numpy: String,
}

/// Why an interpreter cannot be used: what it is, what is missing, what to do.
pub type Unusable = String;

/// Program, its real path and modification time, and the module path, which changes what the same file reports.
type ProbeKey = (PathBuf, PathBuf, SystemTime, Option<OsString>);

/// State of one interpreter.
#[derive(Default)]
struct InterpreterQuery {
    /// Number of probes that have returned or timed out.
    times: AtomicU64,
    /// Last result. Locked during a probe.
    answer: Mutex<Option<Result<Interpreter, Unusable>>>,
}

/// Remembers the results of probes.
#[derive(Default)]
pub struct Prober {
    known: Mutex<HashMap<ProbeKey, Arc<InterpreterQuery>>>,
}

impl Prober {
    /// Probes `program`, started in `environment`, for at most `timeout`. Concurrent callers share one probe.
    ///
    /// # Errors
    /// It cannot run models, cannot be started, or did not respond in time.
    pub fn probe(
        &self,
        program: &Path,
        environment: &[(OsString, OsString)],
        timeout: Duration,
    ) -> Result<Interpreter, Unusable> {
        let real =
            memory::beneath::usable(program).map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
        let changed = fs::metadata(&real).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let modules = environment.iter().find(|(name, _)| name == "PYTHONPATH").map(|(_, value)| value.clone());
        // A link of a virtual environment and its target are two interpreters: they find other packages.
        let key = (program.to_path_buf(), real, changed, modules);
        let asked = {
            let mut known = self.known.lock();
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
            known.entry(key).or_default().clone()
        };
        let before = asked.times.load(Ordering::Acquire);
        let mut answer = asked.answer.lock();
        let came_meanwhile = asked.times.load(Ordering::Acquire) != before;
        match &*answer {
            // Only successes are kept: a package may be installed without a change of the program, a machine less busy.
            Some(Ok(interpreter)) => return Ok(interpreter.clone()),
            Some(Err(why)) if came_meanwhile => return Err(why.clone()),
            _ => {}
        }
        let found = run_script(program, environment, timeout).and_then(|text| judge(program, &text));
        *answer = Some(found.clone());
        asked.times.fetch_add(1, Ordering::Release);
        found
    }
}

/// Runs the script and returns its output.
fn run_script(program: &Path, environment: &[(OsString, OsString)], timeout: Duration) -> Result<String, Unusable> {
    let cannot = |why: &dyn std::fmt::Display| format!("{} cannot be started: {why}", program.display());
    let mut child = Command::new(program)
        .args(["-c", SCRIPT])
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| cannot(&e))?;
    // Read by a thread: a program that ended may have left others that hold the pipe.
    let (sender, printed) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::Builder::new()
            .name("python-probe".into())
            .spawn(move || {
                let mut text = Vec::new();
                let _ = stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut text);
                let _ = sender.send(text);
            })
            .map_err(|e| cannot(&e))?;
    }
    let Some(status) = wait_at_most(&mut child, timeout).map_err(|e| cannot(&e))? else {
        return Err(format!(
            "{} did not report its version within {} s (stub-timeout-seconds); the next load tries again",
            program.display(),
            timeout.as_secs()
        ));
    };
    if !status.success() {
        return Err(format!("{} does not run: it ended with {status}", program.display()));
    }
    let text = printed.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn judge(program: &Path, text: &str) -> Result<Interpreter, Unusable> {
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default().trim().to_owned();
    let (implementation, version, numpy, executable) = (next(), next(), next(), next());
    let who = format!("{} ({implementation} {version})", program.display());
    if implementation.is_empty() || version.is_empty() {
        return Err(format!("{} did not respond like a Python interpreter", program.display()));
    }
    if implementation != "cpython" {
        return Err(format!("{who} is not CPython"));
    }
    let (major, minor) = PYTHON_MIN;
    if !is_at_least(&version, PYTHON_MIN) {
        return Err(format!("{who} is too old: Python {major}.{minor} or newer is needed"));
    }
    let executable = if executable.starts_with('/') { PathBuf::from(executable) } else { program.to_path_buf() };
    let (major, minor) = NUMPY_MIN;
    let command = format!("{} -m pip install 'numpy>={major}.{minor}'", executable.display());
    if let Some(why) = numpy.strip_prefix('!') {
        return Err(format!("{who} has a numpy that cannot be imported ({why}); repair it with: {command}"));
    }
    if numpy.is_empty() {
        return Err(format!("{who} has no package numpy; get it with: {command}"));
    }
    if !is_at_least(&numpy, NUMPY_MIN) {
        return Err(format!("{who} has numpy {numpy}, and {major}.{minor} or newer is needed; get it with: {command}"));
    }
    Ok(Interpreter { program: program.to_path_buf(), executable, version, numpy })
}

/// Compares the first two numbers of a version.
fn is_at_least(version: &str, least: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part.get(..digits).and_then(|d| d.parse::<u32>().ok()).unwrap_or(0)
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_pyr_05_unusable_interpreters_are_rejected_with_the_remedy() {
        let check = |text: &str, expected: &str| match judge(Path::new("/p/python"), text) {
            Ok(found) => assert_eq!(expected, format!("{} {}", found.version, found.numpy)),
            Err(why) => assert_eq!(expected, why),
        };
        check("cpython\n3.11.2\n2.4.1\n/p/python3.11\n", "3.11.2 2.4.1");
        check("cpython\n3.13.0rc1\n2.0.0rc1\n/p/python\n", "3.13.0rc1 2.0.0rc1");
        check(
            "cpython\n3.8.18\n1.24.0\n/p/python\n",
            "/p/python (cpython 3.8.18) is too old: Python 3.9 or newer is needed",
        );
        check("pypy\n3.10.0\n1.24.0\n/p/python\n", "/p/python (pypy 3.10.0) is not CPython");
        check(
            "cpython\n3.11.2\n\n/p/bin/python\n",
            "/p/python (cpython 3.11.2) has no package numpy; get it with: /p/bin/python -m pip install 'numpy>=1.22'",
        );
        check(
            "cpython\n3.9.1\n1.19.5\n/p/python\n",
            "/p/python (cpython 3.9.1) has numpy 1.19.5, and 1.22 or newer is needed; get it with: \
             /p/python -m pip install 'numpy>=1.22'",
        );
        check("", "/p/python did not respond like a Python interpreter");
    }
}
