//! Ends processes that runners leave behind: `nereid-backend-host --guardian SERVER`, one per server. It does what
//! nereid_runner/guardian.py does, for servers that need no Python.
//!
//! A library may start processes outside its process's group. They are found by session and group, and by the variable
//! that descendants inherit; not if they leave the session and clear the environment.
//!
//! Reads lines from descriptor 0: `+ID PID START` adds a runner, which leads session PID and began at START (of
//! /proc/PID/stat); `-ID` removes it. When the server ends, in whatever way, the kernel closes that descriptor.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant};

const VARIABLE: &[u8] = b"NEREID_RUNNER=";
/// Time limit for processes that the kernel does not end, or that start others faster than they are found.
const SWEEP_TIME: Duration = Duration::from_secs(5);
/// Time for a server to end after it closed its descriptors.
const SERVER_TIME: Duration = Duration::from_secs(30);
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// A running process, as /proc shows it.
struct Stat {
    group: i32,
    session: i32,
    start: u64,
}

/// Runners by id: their pids and starts.
type Runners = HashMap<String, (i32, u64)>;

/// Guards the runners of a server until it has ended.
pub(crate) fn run(server: &str) {
    let pid: i32 = server.split('-').next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let mut runners = Runners::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let mut words = line.get(1..).unwrap_or_default().split(' ');
        let id = words.next().unwrap_or_default().to_owned();
        if line.starts_with('+') {
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            if let (Some(pid), Some(start)) = (number(), number()) {
                runners.insert(id, (i32::try_from(pid).unwrap_or(0), start));
            }
        } else if line.starts_with('-') {
            end_remains(server, id, &mut runners);
        }
    }
    if has_ended(pid) {
        let prefix = format!("{server}-").into_bytes();
        sweep(&leaders(runners.values()), |value| value.starts_with(&prefix));
    }
}

fn leaders<'a>(runners: impl Iterator<Item = &'a (i32, u64)>) -> HashMap<i32, u64> {
    runners.copied().collect()
}

/// Ends what a runner left behind.
fn end_remains(server: &str, id: String, runners: &mut Runners) {
    let value = format!("{server}-{id}").into_bytes();
    let runner = runners.remove(&id);
    let killed = sweep(&leaders(runner.iter()), |found| found == value);
    if !killed.is_empty() {
        let all: Vec<_> = killed.iter().map(ToString::to_string).collect();
        let text = format!("ended processes that a model had started, which still ran: {}\n", all.join(", "));
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

/// True if the server, our parent, has ended; waits for one that is about to.
fn has_ended(server: i32) -> bool {
    let until = Instant::now() + SERVER_TIME;
    loop {
        if std::os::unix::process::parent_id().cast_signed() != server {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        pause(Duration::from_millis(10));
    }
}

#[expect(clippy::disallowed_methods, reason = "a process of its own, which only waits")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain blanks and parentheses.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Stat { group: number(2)?, session: number(3)?, start: fields.get(19)?.parse().ok()? })
}

fn variable(pid: i32) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment).ok()?;
    environment.split(|&byte| byte == 0).find_map(|part| part.strip_prefix(VARIABLE)).map(<[u8]>::to_vec)
}

/// Kills all processes that belong to these leaders of sessions or have such a variable, until none is found.
fn sweep(leaders: &HashMap<i32, u64>, is_meant: impl Fn(&[u8]) -> bool) -> BTreeSet<i32> {
    let since = leaders.values().copied().min().unwrap_or(0);
    // A session's number is not reused while it has a process; a leader of another age leads another session.
    let leads = |pid: i32| {
        let start = leaders.get(&pid)?;
        Some(fs::metadata(format!("/proc/{pid}")).is_err() || stat(pid).is_none_or(|leader| leader.start == *start))
    };
    let belongs = |pid: i32| {
        let Some(found) = stat(pid).filter(|found| found.start >= since) else { return false };
        [found.group, found.session].into_iter().any(|leader| leads(leader) == Some(true))
            || variable(pid).is_some_and(|value| is_meant(&value))
    };
    let own = std::process::id().cast_signed();
    let (mut killed, until) = (BTreeSet::new(), Instant::now() + SWEEP_TIME);
    let mut wait = Duration::from_millis(1);
    loop {
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let found: HashSet<_> = pids.filter(|&pid| pid != 1 && pid != own && kill(pid, &belongs)).collect();
        if found.is_empty() || Instant::now() >= until {
            return killed;
        }
        killed.extend(found);
        // A killed process takes a moment to end.
        pause(wait);
        wait = (wait * 2).min(Duration::from_millis(100));
    }
}

/// Kills a process if it belongs; returns true if it did.
fn kill(pid: i32, belongs: &impl Fn(i32) -> bool) -> bool {
    let Some(process) = Pid::from_raw(pid).filter(|_| belongs(pid)) else { return false };
    let opened = pidfd_open(process, PidfdFlags::empty());
    // Checked again: the pid may have been reused before the descriptor was opened. On an old or restricted kernel
    // there is none, and the pid could be reused after the check.
    belongs(pid)
        && match opened {
            Ok(descriptor) => pidfd_send_signal(descriptor, Signal::KILL),
            Err(_) => kill_process(process, Signal::KILL),
        }
        .is_ok()
}
