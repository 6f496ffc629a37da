//! Counters of responses by their index in a request. Pure.

use crate::executions::Duration;

/// End of a response of a decoupled model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseEnd {
    Success,
    Failed,
    /// Nothing was sent.
    Empty,
    Cancelled,
}

/// Counters of the responses with one index (observability.md 2.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseStatistics {
    /// Computing responses that were not cancelled.
    pub compute_infer: Duration,
    /// Making the outputs of responses that had some.
    pub compute_output: Duration,
    /// Whole time of delivered responses with outputs.
    pub success: Duration,
    /// Whole time of failed responses.
    pub fail: Duration,
    /// Whole time of empty responses.
    pub empty: Duration,
    /// Whole time of cancelled responses.
    pub cancel: Duration,
}

impl ResponseStatistics {
    /// Adds a response begun at `start`, with outputs from `output`, ended at `now`.
    pub(crate) fn add(&mut self, end: ResponseEnd, (start, output, now): (u64, Option<u64>, u64)) {
        let all = now.saturating_sub(start);
        if end == ResponseEnd::Cancelled {
            return self.cancel.add(all);
        }
        let output = if end == ResponseEnd::Success { Some(output.unwrap_or(now)) } else { output };
        self.compute_infer.add(output.unwrap_or(now).saturating_sub(start));
        if let Some(output) = output {
            self.compute_output.add(now.saturating_sub(output));
        }
        match end {
            ResponseEnd::Failed => self.fail.add(all),
            ResponseEnd::Empty => self.empty.add(all),
            _ => self.success.add(all),
        }
    }
}
