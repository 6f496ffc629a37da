//! Counters of executions of a version, in total or of one device. Pure.

/// Number and total time of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Duration {
    /// Occurrences.
    pub count: u64,
    /// Total nanoseconds.
    pub ns: u64,
}

impl Duration {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns += ns;
    }
}

/// Counters of executions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Executions {
    /// Rows of requests that succeeded.
    pub inference_count: u64,
    /// Executions with at least one success.
    pub execution_count: u64,
    /// Successful requests.
    pub success: Duration,
    /// Time waiting for an instance.
    pub queue: Duration,
    /// Time gathering inputs.
    pub compute_input: Duration,
    /// Time running the model.
    pub compute_infer: Duration,
    /// Time splitting outputs.
    pub compute_output: Duration,
    /// Requests that failed in the backend.
    pub failures: u64,
}

impl Executions {
    /// Adds the difference of two readings of the same counters; `now` is the later one.
    pub(crate) fn add_between(&mut self, before: &Self, now: &Self) {
        let between = |a: u64, b: u64| b.saturating_sub(a);
        let add = |to: &mut Duration, a: Duration, b: Duration| {
            to.count += between(a.count, b.count);
            to.ns += between(a.ns, b.ns);
        };
        self.inference_count += between(before.inference_count, now.inference_count);
        self.execution_count += between(before.execution_count, now.execution_count);
        self.failures += between(before.failures, now.failures);
        add(&mut self.success, before.success, now.success);
        add(&mut self.queue, before.queue, now.queue);
        add(&mut self.compute_input, before.compute_input, now.compute_input);
        add(&mut self.compute_infer, before.compute_infer, now.compute_infer);
        add(&mut self.compute_output, before.compute_output, now.compute_output);
    }
}
