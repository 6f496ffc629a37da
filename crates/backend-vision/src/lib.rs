//! The steps before and after a network that sees pictures: `image` decodes files to tensors, `boxes` reads detections,
//! `labels` reads classes. The crate `vision` computes; here are configurations, batches and memory.
//!
//! Shapes have the rows first, with and without batching: an ONNX file with a fixed batch of 1 fits without a reshape.

mod boxes;
mod image;
mod labels;
mod model;
mod parameters;

pub use boxes::BOXES;
pub use image::IMAGE;
pub use labels::LABELS;

use backend::{Backend, Model, ModelIo, OpenSpec, Opened, TensorIo};
use protocol::Signature;
use protocol::pb::inference::{ModelConfig, model_instance_group::Kind};
use std::sync::Arc;
use tensor::{Error, Result};

/// Checks a configuration and makes its model.
type LoadVision = fn(&ModelConfig, Arc<Signature>) -> Result<Arc<dyn Model>>;

/// A backend whose models have no files.
#[derive(Debug, Clone, Copy)]
pub struct VisionBackend {
    name: &'static str,
    io: fn(&ModelConfig) -> Result<ModelIo>,
    load: LoadVision,
}

impl Backend for VisionBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let config = ModelConfig::parse(&spec.config)?;
        if config.instance_group.iter().any(|group| matches!(group.kind(), Kind::Gpu | Kind::Model)) {
            let name = self.name;
            return Err(Error::invalid(format!(
                "backend '{name}' runs on the CPU: set the kind of the instance group to KIND_CPU"
            )));
        }
        let mut io = (self.io)(&config)?;
        let batches = config.max_batch_size > 0;
        let inputs = io.inputs.iter_mut().zip(config.input.iter().map(|input| &input.dims));
        let outputs = io.outputs.iter_mut().zip(config.output.iter().map(|output| &output.dims));
        inputs.chain(outputs).for_each(|(tensor, dims)| fit(tensor, dims, batches));
        Ok(Box::new(OpenedVision { io, load: self.load }))
    }
}

/// Takes from a configuration what is open: variable dims, and without batching whether the rows are a dim.
fn fit(tensor: &mut TensorIo, dims: &[i64], batches: bool) {
    let rows = usize::from(batches);
    if !batches && dims.len() + 1 == tensor.shape.len() {
        tensor.shape.remove(0);
    }
    for (own, &dim) in tensor.shape.iter_mut().skip(rows).zip(dims) {
        if *own == -1 {
            *own = dim;
        }
    }
}

struct OpenedVision {
    io: ModelIo,
    load: LoadVision,
}

impl Opened for OpenedVision {
    fn io(&self) -> Option<ModelIo> {
        Some(self.io.clone())
    }

    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        (self.load)(config, signature)
    }
}

/// All backends of this crate.
pub fn all() -> Vec<Arc<dyn Backend>> {
    [IMAGE, BOXES, LABELS].into_iter().map(|backend| Arc::new(backend) as Arc<dyn Backend>).collect()
}
