//! Backends without a framework, for trials and tests: `identity`, `repeat`, `speak`, `square`, `sequence`,
//! `dyna_sequence`, `implicit_state`, `iterative_sequence`, `device_identity`.

mod activities;
mod config;
mod delay;
mod identity;
mod implicit;
mod iterative;
mod on_device;
mod repeat;
mod sequence;
mod speak;
mod square;
mod tensors;
#[cfg(test)]
mod testing;

pub use identity::IDENTITY;
pub use implicit::IMPLICIT;
pub use iterative::ITERATIVE;
pub use on_device::ON_DEVICE;
pub use repeat::REPEAT;
pub use sequence::{DYNA_SEQUENCE, SEQUENCE};
pub use speak::SPEAK;
pub use square::SQUARE;

use backend::{Backend, Model, OpenSpec, Opened};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use tensor::Result;

/// Checks a configuration and makes its model.
type Load = fn(&ModelConfig, Arc<Signature>) -> Result<Arc<dyn Model>>;

/// A backend whose models have no files.
#[derive(Debug, Clone, Copy)]
pub struct TestBackend {
    name: &'static str,
    load: Load,
}

impl Backend for TestBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, _spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(OpenedTest(self.load)))
    }
}

struct OpenedTest(Load);

impl Opened for OpenedTest {
    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        (self.0)(config, signature)
    }
}

/// All backends of this crate.
pub fn all() -> Vec<Arc<dyn Backend>> {
    let all = [IDENTITY, REPEAT, SPEAK, SQUARE, SEQUENCE, DYNA_SEQUENCE, IMPLICIT, ITERATIVE, ON_DEVICE];
    all.into_iter().map(|backend| Arc::new(backend) as Arc<dyn Backend>).collect()
}
