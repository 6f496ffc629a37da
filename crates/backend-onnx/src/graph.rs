//! The tensors of an ONNX graph.

use crate::ffi::GraphTensor;
use backend::{ModelIo, TensorIo};

#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<GraphTensor>,
    pub(crate) outputs: Vec<GraphTensor>,
    pub(crate) initializers: Vec<GraphTensor>,
}

impl Graph {
    pub(crate) fn io(&self) -> ModelIo {
        let io = |t: &GraphTensor, optional| TensorIo {
            name: t.name.clone(),
            datatype: t.datatype,
            shape: t.shape.clone(),
            optional,
        };
        let inputs = self.inputs.iter().map(|t| io(t, false));
        ModelIo {
            inputs: inputs.chain(self.initializers.iter().map(|t| io(t, true))).collect(),
            outputs: self.outputs.iter().map(|t| io(t, false)).collect(),
        }
    }
}
