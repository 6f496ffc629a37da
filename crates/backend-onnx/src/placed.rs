//! A version with instances on devices: one session, and one model, for each device and for the host if it has
//! instances, too. Each instance runs the model of its location.
//!
//! Concurrent runs on a device have separate streams, which the runtime assigns and reuses. So instances need no
//! streams of their own, and the weights are on a device once.

use crate::model::OnnxModel;
use backend::{Batch, Marks, Model, RunControl, scatter};
use std::sync::Arc;
use tensor::Error;

pub(crate) struct PlacedModel {
    models: Vec<OnnxModel>,
    /// Index into `models` by instance number.
    of_instance: Vec<usize>,
}

impl PlacedModel {
    /// The only model of a version without devices, otherwise a `PlacedModel`.
    pub(crate) fn or_plain(mut models: Vec<OnnxModel>, of_instance: Vec<usize>) -> Arc<dyn Model> {
        match models.pop() {
            Some(only) if models.is_empty() && only.device().is_none() => Arc::new(only),
            last => {
                models.extend(last);
                Arc::new(Self { models, of_instance })
            }
        }
    }
}

impl Model for PlacedModel {
    // Default capabilities: an instance number selects a device, whose waits a reactor's CPU clock does not measure.

    fn execute(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let model = self.of_instance.get(instance as usize).and_then(|&at| self.models.get(at));
        match model {
            Some(model) => model.execute(instance, batch, control),
            None => {
                scatter::fail_all(batch.requests, &Error::internal(format!("there is no instance {instance}")));
                Marks::default()
            }
        }
    }
}
