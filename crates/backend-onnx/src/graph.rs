//! The tensors of an ONNX graph.

use crate::ffi::GraphTensor;

#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<GraphTensor>,
    pub(crate) outputs: Vec<GraphTensor>,
    pub(crate) initializers: Vec<GraphTensor>,
}
