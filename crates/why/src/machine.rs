//! How the cores were shared while a model ran.

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// When they were read, in ns.
    pub at: u64,
    /// CPU time of the threads that run models, in ns.
    pub cpu_ns: u64,
    /// Time that these threads were ready to run and waited for a core, in ns.
    pub delay_ns: u64,
    /// CPU time of the whole machine, in ns.
    pub machine_ns: u64,
    /// CPU time of this process and its children, in ns.
    pub own_ns: u64,
    /// Duration of all executions on those threads, in ns.
    pub busy_ns: u64,
    /// Time that the quota of the container stopped it, in ns, the sum of the cores that it ran on.
    pub throttled_ns: u64,
}

/// Mean use of the cores between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cores {
    /// Cores that this process may run on.
    pub allowed: f64,
    /// Mean number of cores that model threads used.
    pub used: f64,
    /// Mean number of model threads that were ready and waited for a core.
    pub waiting: f64,
    /// Mean number of cores that other threads of the process used.
    pub front: f64,
    /// Mean number of cores that other processes used.
    pub others: f64,
    /// Mean number of executions that ran.
    pub busy: f64,
    /// Share of the time in which the quota of the container stopped the process.
    pub throttled: f64,
    /// Length of the interval in seconds; 0 if nothing is known.
    pub seconds: f64,
}

impl Cores {
    /// The difference of two readings.
    pub fn between(before: &Usage, after: &Usage, allowed: f64) -> Self {
        let ns = after.at.saturating_sub(before.at).max(1) as f64;
        let mean = |before: u64, after: u64| after.saturating_sub(before) as f64 / ns;
        let own = mean(before.own_ns, after.own_ns);
        let (used, waiting) = (mean(before.cpu_ns, after.cpu_ns), mean(before.delay_ns, after.delay_ns));
        // It stops on each core that threads are ready on.
        let stopped = (used + waiting).min(allowed).max(1.0);
        Self {
            allowed,
            used,
            waiting,
            front: (own - used).max(0.0),
            others: (mean(before.machine_ns, after.machine_ns) - own).max(0.0),
            busy: mean(before.busy_ns, after.busy_ns),
            throttled: (mean(before.throttled_ns, after.throttled_ns) / stopped).min(1.0),
            seconds: ns / 1e9,
        }
    }
}
