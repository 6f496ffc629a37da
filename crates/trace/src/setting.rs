//! Settings of traces.

/// Destination of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Files in Triton's format.
    Triton,
    /// OpenTelemetry spans. Requests with a caller's context are traced as well.
    OpenTelemetry,
}

/// Rules for sampling requests and for the contents of their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Number that each of its records has.
    pub number: u32,
    /// Destination of the records.
    pub mode: Mode,
    /// Level TIMESTAMPS.
    pub timestamps: bool,
    /// Level TENSORS.
    pub tensors: bool,
    /// Every n-th request is sampled; 0 = only those with a context.
    pub rate: u32,
    /// Most requests that are sampled; -1 = no limit.
    pub count: i32,
}

impl Setting {
    /// True if the setting can sample a request.
    pub(crate) fn is_on(&self) -> bool {
        let is_possible = self.rate > 0 && self.count != 0 || self.mode == Mode::OpenTelemetry;
        (self.timestamps || self.tensors) && is_possible
    }
}
