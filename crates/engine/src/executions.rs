//! What executions of a version counted: all of them together, and those of one device. Pure.

/// How often something happened and how long it took in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Duration {
    /// Occurrences.
    pub count: u64,
    /// Nanoseconds, cumulative.
    pub ns: u64,
}

impl Duration {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns += ns;
    }
}

/// What executions counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Executions {
    /// Rows of requests that succeeded.
    pub inference_count: u64,
    /// With at least one success.
    pub execution_count: u64,
    /// Successful requests.
    pub success: Duration,
    /// Waiting for the instance.
    pub queue: Duration,
    /// Gathering inputs.
    pub compute_input: Duration,
    /// Running the model.
    pub compute_infer: Duration,
    /// Splitting outputs.
    pub compute_output: Duration,
    /// Requests that the backend failed.
    pub failures: u64,
}

impl Executions {
    /// What was counted between two moments is added: `now` is not before `before`.
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
