//! What an ONNX graph says of its tensors.

use crate::ffi::GraphTensor;

/// The tensors of a graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<GraphTensor>,
    pub(crate) outputs: Vec<GraphTensor>,
    pub(crate) initializers: Vec<GraphTensor>,
}
