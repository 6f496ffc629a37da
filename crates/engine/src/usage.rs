//! Readings of how the cores are shared, every few seconds: CPU time of the threads and processes that run models, how
//! long they waited for a core, and what the rest of the machine used. No request reads any of it.

use crate::executions::Executions;
use backend::now_ns;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::{read_dir, read_to_string};
use std::hash::Hash;
use why::{Usage, WINDOW_NS};

/// Interval of readings: a look at the threads of the process takes about a millisecond.
pub(crate) const INTERVAL_NS: u64 = 5_000_000_000;
/// Readings that are kept.
const READINGS_MAX: usize = (WINDOW_NS / INTERVAL_NS) as usize + 1;
/// Length of a tick of `/proc/stat`.
const TICK_NS: u64 = 10_000_000;
/// Names of the threads that run models.
const THREADS: [&str; 4] = ["nereid-worker", "nereid-onnx", "nereid-trees", "nereid-graph"];

/// The work of the versions that are alive.
#[derive(Default)]
pub(crate) struct Models {
    /// True if some run in processes of their own.
    pub(crate) has_runners: bool,
    /// Duration of all executions of each load, in ns.
    pub(crate) busy_ns: HashMap<u64, u64>,
}

/// Readings of the last minutes, oldest first.
#[derive(Default)]
pub(crate) struct UsageLog {
    readings: Mutex<VecDeque<Usage>>,
    sums: Mutex<Sums>,
}

impl UsageLog {
    /// All readings, with one of now.
    pub(crate) fn with_now(&self, models: Models) -> Vec<Usage> {
        let now = self.sums.lock().read(models);
        self.readings.lock().iter().copied().chain(now).collect()
    }

    /// Takes and keeps a reading.
    pub(crate) fn add_now(&self, models: Models) {
        let Some(now) = self.sums.lock().read(models) else { return };
        let mut all = self.readings.lock();
        if all.len() >= READINGS_MAX {
            all.pop_front();
        }
        all.push_back(now);
    }
}

/// Counters of a version when they had changed, oldest first: each held until about the next. Never empty.
pub(crate) struct CounterLog(Mutex<VecDeque<(u64, Executions)>>);

impl CounterLog {
    /// Begins with the counters of a load at `now`, which are 0.
    pub(crate) fn new(now: u64) -> Self {
        Self(Mutex::new(VecDeque::from([(now, Executions::default())])))
    }

    /// Counts of the last minutes until `now`, and since when.
    pub(crate) fn until(&self, now: u64, counters: &Executions) -> (u64, Executions) {
        let (since, before) = self.0.lock().front().copied().unwrap_or_default();
        let mut counts = Executions::default();
        counts.add_between(&before, counters);
        (since.max(now.saturating_sub(WINDOW_NS + INTERVAL_NS)), counts)
    }

    pub(crate) fn add(&self, now: u64, counters: Executions) {
        let mut all = self.0.lock();
        if all.back().is_none_or(|(_, last)| *last != counters) {
            all.push_back((now, counters));
        }
        while all.len() > READINGS_MAX || all.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW_NS) {
            all.pop_front();
        }
        if all.len() == 1 {
            all.shrink_to_fit();
        }
    }
}

/// CPU time and time without a core of a thread, in ns.
type ThreadTimes = (u64, u64);

/// Sums that never fall, though threads, processes and versions end: each reading adds by how much the counters of
/// those that live rose.
#[derive(Default)]
struct Sums {
    threads: HashMap<u32, ThreadTimes>,
    processes: HashMap<u32, u64>,
    versions: HashMap<u64, u64>,
    cpu_ns: u64,
    delay_ns: u64,
    own_ns: u64,
    busy_ns: u64,
}

impl Sums {
    /// Reads the use of the cores, with that of other processes which run models if there are any. `None` where the
    /// system does not tell.
    fn read(&mut self, Models { has_runners, busy_ns }: Models) -> Option<Usage> {
        let me = std::process::id();
        let (mut threads, mut processes, mut left) = (HashMap::new(), HashMap::new(), vec![me]);
        while let Some(process) = left.pop() {
            let Some(cpu_ns) = process_ns(process) else { continue };
            processes.insert(process, cpu_ns);
            for task in read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
                let file = |name| read_to_string(task.path().join(name)).unwrap_or_default();
                if has_runners {
                    let children = file("children");
                    left.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
                }
                let id = task.file_name().to_str().and_then(|name| name.parse().ok());
                if process != me || THREADS.iter().any(|thread| file("comm").starts_with(thread)) {
                    threads.extend(id.zip(times(&file("schedstat"))));
                }
            }
        }
        if has_runners && processes.len() < 2 {
            // Their work would count as that of others.
            return None;
        }
        for (id, (cpu, delay)) in &threads {
            let (cpu_before, delay_before) = self.threads.get(id).copied().unwrap_or_default();
            self.cpu_ns += cpu.saturating_sub(cpu_before);
            self.delay_ns += delay.saturating_sub(delay_before);
        }
        self.own_ns += gained(&mut self.processes, processes);
        self.busy_ns += gained(&mut self.versions, busy_ns);
        self.threads = threads;
        let ((machine_ns, _), throttled_ns) = (machine()?, throttled_ns());
        let Self { cpu_ns, delay_ns, own_ns, busy_ns, .. } = *self;
        Some(Usage { at: now_ns(), cpu_ns, delay_ns, machine_ns, own_ns, busy_ns, throttled_ns })
    }
}

/// Returns by how much counters rose since those before, which they replace.
fn gained<K: Eq + Hash>(before: &mut HashMap<K, u64>, now: HashMap<K, u64>) -> u64 {
    let gained = |(id, value): (&K, &u64)| value.saturating_sub(before.get(id).copied().unwrap_or(0));
    let sum = now.iter().map(gained).sum();
    *before = now;
    sum
}

fn times(schedstat: &str) -> Option<ThreadTimes> {
    let mut times = schedstat.split_ascii_whitespace().map_while(|number| number.parse().ok());
    Some((times.next()?, times.next()?))
}

/// CPU time of a process, with that of its threads that ended.
fn process_ns(process: u32) -> Option<u64> {
    let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).map_while(|field| field.parse().ok());
    let (user, system): (u64, u64) = (fields.next()?, fields.next()?);
    Some((user + system) * TICK_NS)
}

/// CPU time of everything on the cores that this process may use, in ns, and their number.
fn machine() -> Option<(u64, u32)> {
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
        // All but idle and waiting for disks. Guests are counted as users already, and a host that takes cores away is
        // no process of this machine.
        Some(ticks.iter().take(7).sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>())
    };
    let stat = read_to_string("/proc/stat").ok()?;
    let sum = |(ns, cores), ticks: u64| (ns + ticks * TICK_NS, cores + 1);
    Some(stat.lines().filter_map(of_core).fold((0, 0), sum)).filter(|(_, cores)| *cores > 0)
}

/// Cores that this process may run on, and how many of them its quota allows at once, which may be a part of one.
pub(crate) fn cores() -> (f64, f64) {
    let known = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let allowed = machine().map_or(known, |(_, cores)| f64::from(cores));
    (allowed, groups().iter().filter_map(|group| quota(group)).fold(allowed, f64::min))
}

fn quota(group: &str) -> Option<f64> {
    let file = |name: &str| read_to_string(format!("{group}/{name}"));
    let text = file("cpu.max").or_else(|_| Ok(file("cpu.cfs_quota_us")? + &file("cpu.cfs_period_us")?));
    quota_of(&text.map_err(|_: std::io::Error| ()).ok()?)
}

/// Quota and period; without a quota, the first is "max" or negative.
fn quota_of(text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse::<f64>().ok().filter(|n| *n > 0.0));
    Some(numbers.next()?? / numbers.next()??)
}

/// Time for which the quota of the container stopped this process, the sum of its cores; 0 without one.
fn throttled_ns() -> u64 {
    let of_group = |group: &String| {
        let text = read_to_string(format!("{group}/cpu.stat")).ok()?;
        text.lines().find_map(|line| match line.split_once(' ')? {
            ("throttled_usec", us) => Some(us.parse::<u64>().ok()?.saturating_mul(1000)),
            ("throttled_time", ns) => ns.parse().ok(),
            _ => None,
        })
    };
    groups().iter().filter_map(of_group).max().unwrap_or(0)
}

/// Directories of the groups that share quotas of CPU time with this process. Inside of a container, the path of the
/// host may not exist, and the root is its own.
fn groups() -> Vec<String> {
    let mut groups = Vec::new();
    for line in read_to_string("/proc/self/cgroup").unwrap_or_default().lines() {
        let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) else {
            continue;
        };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|controller| controller == "cpu") => "/sys/fs/cgroup/cpu",
            _ => continue,
        };
        let path = path.trim_end_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        groups.extend(ends.map(|end| format!("{root}{}", &path[..end])));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_kept_when_they_change_and_leave_after_minutes() {
        const S: u64 = 1_000_000_000;
        let counters = |failures| Executions { failures, ..Executions::default() };
        let log = CounterLog::new(5 * S);
        let kept = || {
            let all = log.0.lock();
            (all.len(), all.capacity())
        };
        (1..=200).for_each(|i| log.add(5 * S + i * INTERVAL_NS, counters(0)));
        assert_eq!(kept(), (1, 1), "an idle version");
        let until = |now: u64, failures| log.until(now * S, &counters(failures));
        assert_eq!(until(1005, 0), (700 * S, counters(0)));
        log.add(1010 * S, counters(3));
        log.add(1015 * S, counters(4));
        assert_eq!(until(1020, 5), (715 * S, counters(5)));
        log.add(1311 * S, counters(4));
        assert_eq!(until(1312, 5), (1010 * S, counters(2)), "without what came before the last five minutes");
        log.add(1316 * S, counters(4));
        assert_eq!((until(1320, 4), kept()), ((1015 * S, counters(0)), (1, 1)));
    }

    #[test]
    fn quotas_of_both_kinds_of_groups_are_parts_of_cores() {
        assert_eq!(quota_of("50000 100000\n"), Some(0.5));
        assert_eq!(quota_of("250000\n100000\n"), Some(2.5));
        assert_eq!((quota_of("max 100000\n"), quota_of("-1\n100000\n"), quota_of("")), (None, None, None));
    }

    #[test]
    fn sums_keep_the_time_of_threads_that_ended() {
        let mut sums = Sums::default();
        let mut read = |busy: u64| {
            let busy_ns = HashMap::from([(busy, busy)]);
            sums.read(Models { has_runners: false, busy_ns }).expect("Linux")
        };
        let before = read(7);
        let (spun, end) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let spin = move || {
            while process_ns(std::process::id()).expect("Linux") < before.own_ns + 5 * TICK_NS {}
            spun.0.send(()).expect("received");
            let _ = end.1.recv();
        };
        let thread = std::thread::Builder::new().name("nereid-worker-1".into()).spawn(spin).expect("a thread");
        spun.1.recv().expect("sent");
        let during = read(7);
        drop(end.0);
        thread.join().expect("no panic");
        let after = read(3);
        assert!(during.cpu_ns > before.cpu_ns, "{during:?}");
        assert!(after.cpu_ns >= during.cpu_ns && after.own_ns >= during.own_ns, "{after:?}, {during:?}");
        assert!(after.own_ns >= before.own_ns + 5 * TICK_NS, "{after:?}, {before:?}");
        assert_eq!((before.busy_ns, during.busy_ns, after.busy_ns), (7, 7, 10), "of a version that was unloaded");
    }
}
