//! Limits of ensembles. Configurations and requests may come over the network.

/// Most steps of an ensemble.
pub const STEPS_MAX: usize = 1024;
/// Most entries in the input and output maps of all steps together, plus the ensemble's own inputs and outputs.
pub const MAPPINGS_MAX: usize = 16_384;
/// Most calls that one request makes, including those in nested ensembles, with each iteration counted once. A chain of
/// ensembles with two steps, each step the previous ensemble, doubles the number with every model directory.
pub const CALLS_MAX: u64 = 16_384;
/// Deepest nesting of ensembles: the end of the innermost one is processed by all of them on one stack.
pub const DEPTH_MAX: u32 = 16;

/// Limits of one request. A decoupled step may respond faster than later steps run, without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most incomplete iterations of decoupled steps; one more ends the request.
    pub iterations_max: usize,
    /// Most bytes of tensors in incomplete iterations. The first iteration may be larger, so that any tensor can pass.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { iterations_max: 1024, bytes_max: 256 << 20 }
    }
}
