//! Every number that bounds an ensemble. A configuration may come over the network, and so may the requests.

/// Steps of an ensemble.
pub const STEPS_MAX: usize = 1024;
/// Entries in the input and output maps of all steps together, and the ensemble's own inputs and outputs.
pub const MAPPINGS_MAX: usize = 16_384;
/// Calls that one request makes, those inside composing ensembles included and each iteration counted once. Ensembles of two
/// equal steps, each the ensemble before, would double it with every model directory.
pub const CALLS_MAX: u64 = 16_384;
/// Ensembles inside one another: the end of the innermost is told through all of them on one stack.
pub const DEPTH_MAX: u32 = 16;

/// What one request may hold on its way. A decoupled step may answer faster than those behind it can take, without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Iterations of decoupled steps that are not done yet; one more ends the request.
    pub iterations_max: usize,
    /// Bytes of tensors in iterations that are not done yet. The first iteration may be larger, or no large tensor could pass.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { iterations_max: 1024, bytes_max: 256 << 20 }
    }
}
