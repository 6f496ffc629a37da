//! A version with instances on devices: one session for each device, and one for the host where it has instances as well. Each session is a
//! model of its own here; an instance runs that of its place.
//!
//! Several runs on one device have a stream each: the runtime takes one for a run and keeps it for the next, so an instance needs none of
//! its own, and the weights are on a device once.

use crate::model::OnnxModel;
use backend::{Batch, Marks, Model, RunControl, scatter};
use std::sync::Arc;
use tensor::Error;

pub(crate) struct PlacedModel {
    models: Vec<OnnxModel>,
    /// By number of an instance, which of them it runs.
    of_instance: Vec<usize>,
}

impl PlacedModel {
    /// `of_instance` are indices of `models`.
    pub(crate) fn new(models: Vec<OnnxModel>, of_instance: Vec<usize>) -> Self {
        Self { models, of_instance }
    }

    /// The only model of a version without devices; a version like this one otherwise.
    pub(crate) fn or_plain(mut models: Vec<OnnxModel>, of_instance: Vec<usize>) -> Option<Arc<dyn Model>> {
        if models.len() == 1 && models.first().is_some_and(|m| m.device().is_none()) {
            return Some(Arc::new(models.pop()?));
        }
        Some(Arc::new(Self::new(models, of_instance)))
    }
}

impl Model for PlacedModel {
    // The default capabilities hold: an instance number names a device, and the CPU clock of a reactor does not measure the wait for a device.

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
