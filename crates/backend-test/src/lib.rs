//! Backends without a framework, for trials and tests: `identity`, `repeat`, `square`, `sequence`, `dyna_sequence`,
//! `implicit_state`, `iterative_sequence`, `device_identity`.

mod activities;
mod config;
mod delay;
mod identity;
mod implicit;
mod iterative;
mod on_device;
mod repeat;
mod sequence;
mod square;
mod tensors;
#[cfg(test)]
mod testing;

pub use identity::IdentityBackend;
pub use implicit::ImplicitBackend;
pub use iterative::IterativeBackend;
pub use on_device::DeviceBackend;
pub use repeat::RepeatBackend;
pub use sequence::SequenceBackend;
pub use square::SquareBackend;

use backend::Backend;
use std::sync::Arc;

/// All backends of this crate.
pub fn all() -> Vec<Arc<dyn Backend>> {
    vec![
        Arc::new(IdentityBackend),
        Arc::new(RepeatBackend),
        Arc::new(SquareBackend),
        Arc::new(SequenceBackend::ByRow),
        Arc::new(SequenceBackend::ById),
        Arc::new(ImplicitBackend),
        Arc::new(IterativeBackend),
        Arc::new(DeviceBackend),
    ]
}
