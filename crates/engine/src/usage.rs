//! Readings of how the cores are shared, every few seconds: CPU time of the threads and processes that run models, how
//! long they waited for a core, and what the rest of the machine used. No request reads any of it.

use crate::executions::Executions;
use backend::now_ns;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::{read_dir, read_to_string};
use std::path::Path;
use why::{Usage, WINDOW_NS};

/// Interval of readings: a look at the threads of the process takes about a millisecond.
pub(crate) const INTERVAL_NS: u64 = 5_000_000_000;
/// Readings that are kept.
const READINGS_MAX: usize = (WINDOW_NS / INTERVAL_NS) as usize + 1;
/// Length of a tick of `/proc/stat`.
const TICK_NS: u64 = 10_000_000;
/// Names of the threads that run models.
const THREADS: [&str; 4] = ["nereid-worker", "nereid-onnx", "nereid-trees", "nereid-graph"];

/// Readings of the last minutes, oldest first.
#[derive(Default)]
pub(crate) struct UsageLog(Mutex<VecDeque<Usage>>);

impl UsageLog {
    /// All readings, with this one.
    pub(crate) fn with(&self, usage: Option<Usage>) -> Vec<Usage> {
        let mut all: Vec<_> = self.0.lock().iter().copied().collect();
        all.extend(usage);
        all
    }

    pub(crate) fn add(&self, usage: Usage) {
        let mut all = self.0.lock();
        if all.len() >= READINGS_MAX {
            all.pop_front();
        }
        all.push_back(usage);
    }
}

/// Counters of a version at some moments of the last minutes, oldest first. Never empty.
pub(crate) struct CounterLog(Mutex<VecDeque<(u64, Executions)>>);

impl CounterLog {
    /// Begins with the counters of a load at `now`, which are 0.
    pub(crate) fn new(now: u64) -> Self {
        Self(Mutex::new(VecDeque::from([(now, Executions::default())])))
    }

    /// Counts since the oldest counters that are kept, and when those were read.
    pub(crate) fn until(&self, now: &Executions) -> (u64, Executions) {
        let (since, before) = self.0.lock().front().copied().unwrap_or_default();
        let mut counts = Executions::default();
        counts.add_between(&before, now);
        (since, counts)
    }

    pub(crate) fn add(&self, now: u64, counters: Executions) {
        let mut all = self.0.lock();
        all.push_back((now, counters));
        while all.len() > READINGS_MAX || all.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW_NS) {
            all.pop_front();
        }
    }
}

/// Sums over threads.
#[derive(Default)]
struct Threads {
    cpu_ns: u64,
    delay_ns: u64,
}

impl Threads {
    fn add(&mut self, process: &Path, counts: impl Fn(&str) -> bool) {
        for task in read_dir(process.join("task")).into_iter().flatten().flatten() {
            let path = task.path();
            let name = read_to_string(path.join("comm")).unwrap_or_default();
            let times = read_to_string(path.join("schedstat")).unwrap_or_default();
            let mut times = times.split_ascii_whitespace().map_while(|number| number.parse::<u64>().ok());
            if let (true, Some(cpu), Some(delay)) = (counts(name.trim_end()), times.next(), times.next()) {
                self.cpu_ns += cpu;
                self.delay_ns += delay;
            }
        }
    }
}

/// Reads the use of the cores, with that of other processes which run models if there are any. `busy_ns` is the
/// duration of all executions. `None` where the system has no such files.
pub(crate) fn usage(has_runners: bool, busy_ns: u64) -> Option<Usage> {
    let (mut of_models, mut own) = (Threads::default(), Threads::default());
    let own_process = Path::new("/proc/self");
    of_models.add(own_process, |name| THREADS.iter().any(|thread| name.starts_with(thread)));
    own.add(own_process, |_| true);
    if has_runners {
        for process in descendants() {
            let path = Path::new("/proc").join(process.to_string());
            of_models.add(&path, |_| true);
            own.add(&path, |_| true);
        }
    }
    let (machine_ns, throttled_ns) = (machine_ns()?, throttled_ns());
    let Threads { cpu_ns, delay_ns } = of_models;
    Some(Usage { at: now_ns(), cpu_ns, delay_ns, machine_ns, own_ns: own.cpu_ns, busy_ns, throttled_ns })
}

/// Processes that this one has started, and those that they have started.
fn descendants() -> Vec<u32> {
    let mut parents = HashMap::new();
    for process in read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = read_to_string(process.path().join("stat")).unwrap_or_default();
        // Behind the name, which may contain anything.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        parents.insert(id, parent.unwrap_or(0u32));
    }
    let me = std::process::id();
    let is_mine = |mut process: u32| {
        // A process that ended meanwhile may leave a circle of numbers.
        for _ in 0..parents.len() {
            match parents.get(&process) {
                Some(&parent) if parent == me => return true,
                Some(&parent) => process = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|process| is_mine(*process)).collect()
}

/// CPU time of everything on the cores that this process may use.
fn machine_ns() -> Option<u64> {
    let status = read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let is_allowed = |core: u32| {
        allowed.split(',').any(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse().is_ok_and(|first| core >= first) && last.parse().is_ok_and(|last| core <= last)
        })
    };
    let of_core = |line: &str| {
        let (core, times) = line.strip_prefix("cpu")?.split_once(' ')?;
        core.parse().ok().filter(|core| is_allowed(*core))?;
        let ticks: Vec<u64> = times.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
        // All but idle and waiting for disks; guests are counted as users already.
        Some(ticks.iter().take(8).sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>())
    };
    Some(read_to_string("/proc/stat").ok()?.lines().filter_map(of_core).sum::<u64>() * TICK_NS)
}

/// Time for which the quota of the container stopped this process, per core; 0 without one.
fn throttled_ns() -> u64 {
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_group = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|controller| controller == "cpu") => "/sys/fs/cgroup/cpu",
            _ => return None,
        };
        // Inside of a container, the path of the host may not exist.
        let file = |path: &str| read_to_string(format!("{root}{path}/cpu.stat"));
        let text = file(path.trim_end_matches('/')).or_else(|_| file("")).ok()?;
        text.lines().find_map(|line| match line.split_once(' ')? {
            ("throttled_usec", us) => Some(us.parse::<u64>().ok()? * 1000),
            ("throttled_time", ns) => ns.parse().ok(),
            _ => None,
        })
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    groups.lines().filter_map(of_group).max().unwrap_or(0) / cores
}
