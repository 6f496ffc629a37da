//! What is traced, and where it goes.

/// Where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Files of Triton's form.
    Triton,
    /// Spans. A caller's context decides, too.
    OpenTelemetry,
}

/// What decides which requests are traced, and what is noted of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Told with each record it sampled.
    pub number: u32,
    /// Where they go.
    pub mode: Mode,
    /// Level TIMESTAMPS.
    pub timestamps: bool,
    /// Level TENSORS.
    pub tensors: bool,
    /// Every n-th request; 0 = none but those with a context.
    pub rate: u32,
    /// How many may be sampled; -1 = any number.
    pub count: i32,
}

impl Setting {
    /// Whether it may sample anything.
    pub(crate) fn is_on(&self) -> bool {
        let is_possible = self.rate > 0 && self.count != 0 || self.mode == Mode::OpenTelemetry;
        (self.timestamps || self.tensors) && is_possible
    }
}
