//! Options of traces.

use serde::Deserialize;
#[cfg(feature = "typescript")]
use ts_rs::TS;

/// Destination of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "lowercase")]
pub enum TraceMode {
    /// Files in Triton's format.
    Triton,
    /// OpenTelemetry spans. Requests with a caller's context are traced as well.
    OpenTelemetry,
}

/// Rules for sampling requests and for the contents of their records. A new setting restarts the counters; requests in
/// flight finish under the setting they were sampled with. After its last record `takeTraces` has it in `ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceSetting {
    /// Number that each of its records has: chosen by the caller, never reused; 0 = none.
    pub number: u32,
    /// Destination of the records.
    pub mode: TraceMode,
    /// Level TIMESTAMPS.
    pub timestamps: bool,
    /// Level TENSORS.
    pub tensors: bool,
    /// Every n-th request is sampled; 0 = only those with a W3C context, in the mode of OpenTelemetry.
    pub rate: u32,
    /// Most requests that are sampled; -1 = no limit. A W3C context is always traced.
    pub count: i32,
}

impl TraceSetting {
    /// True if the setting can sample a request.
    pub fn is_on(&self) -> bool {
        let is_possible = self.rate > 0 && self.count != 0 || self.mode == TraceMode::OpenTelemetry;
        (self.timestamps || self.tensors) && is_possible
    }
}
