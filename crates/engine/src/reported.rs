//! Times that models report of their own work.

use crate::limits::REPORTED_FUTURE_NS_MAX;
use backend::{Marks, ReportedTimes};

/// Times that a model reports, none of which is far in the future: they would spoil the totals for good.
pub(crate) fn believable(times: ReportedTimes) -> ReportedTimes {
    let latest = backend::now_ns().saturating_add(REPORTED_FUTURE_NS_MAX);
    let ReportedTimes { start, compute_start, compute_end, end } = times;
    let [start, compute_start, compute_end, end] = [start, compute_start, compute_end, end].map(|ns| ns.min(latest));
    ReportedTimes { start, compute_start, compute_end, end }
}

/// Ends of input, inference and output.
pub(crate) fn marks(times: ReportedTimes) -> Marks {
    let ReportedTimes { compute_start, compute_end, end, .. } = times;
    Marks { inputs_ready: compute_start, inference_end: compute_end, outputs_ready: end }
}
