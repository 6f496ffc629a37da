//! The response of a model to one request.

use protocol::{OutputTensor, Parameter};
use smallvec::SmallVec;
use tensor::Name;

/// The response to a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The requested outputs, in configuration order.
    pub outputs: SmallVec<[OutputTensor; 2]>,
    /// Response parameters.
    pub parameters: Vec<(Name, Parameter)>,
}
