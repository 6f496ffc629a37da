//! Returns `INPUT<x>` as `OUTPUT<x>` on a device: inputs and outputs are in memory of the instance's device, and
//! nothing is computed, so that every copy is one of the server.
//!
//! A single input on the device is used in place; a batch is gathered there and divided without a copy.

use crate::TestBackend;
use crate::config::suffix;
use backend::gather::{check_regions, gather_on, input_of};
use backend::{Batch, BatchEntry, Marks, Model, Outcome, RunControl, now_ns, placements, scatter};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use tensor::{Data, Error, RegionRef, Result, part};

/// Backend `device_identity`.
pub const ON_DEVICE: TestBackend = TestBackend { name: "device_identity", load };

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    if signature.inputs.iter().any(|input| input.datatype.byte_size().is_none()) {
        return Err(Error::invalid("'device_identity' backend does not support strings"));
    }
    let source = |name: &str| {
        let index = suffix(name, "OUTPUT")?;
        let found = signature.inputs.iter().position(|i| suffix(&i.name, "INPUT") == Some(index));
        found.and_then(|i| u16::try_from(i).ok())
    };
    let sources: Option<Vec<u16>> = signature.outputs.iter().map(|o| source(&o.name)).collect();
    let sources = sources.ok_or_else(|| Error::invalid("expected input and output indices to match"))?;
    Ok(Arc::new(OnDevice {
        devices: placements(config).map(|instance| instance.device.unwrap_or(0)).collect(),
        signature,
        sources,
    }))
}

struct OnDevice {
    signature: Arc<Signature>,
    /// Input of each output.
    sources: Vec<u16>,
    devices: Vec<u32>,
}

impl OnDevice {
    fn run(&self, instance: u32, entries: &mut [BatchEntry]) -> Result<()> {
        let device = self.devices.get(instance as usize).copied().unwrap_or(0);
        // An output may overwrite an input.
        let stays = entries.iter().all(|entry| entry.request.outputs.iter().all(|output| output.region.is_none()));
        let inputs = (0..self.signature.inputs.len())
            .map(|index| gather_on(entries, u16::try_from(index).unwrap_or(u16::MAX), device, stays))
            .collect::<Result<Vec<Option<RegionRef>>>>()?;
        let mut begins = vec![0; inputs.len()];
        for entry in entries.iter_mut().filter(|entry| entry.result.is_none()) {
            let outcome = check_regions(entry).and_then(|()| self.answer(entry, &inputs, &begins));
            for (input, index) in begins.iter_mut().zip(0..) {
                *input += input_of(entry, index).map_or(0, |input| input.data.len());
            }
            entry.result = Some(outcome);
        }
        Ok(())
    }

    fn answer(&self, entry: &BatchEntry, inputs: &[Option<RegionRef>], begins: &[usize]) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for &(index, slot) in &entry.checked.outputs {
            let missing = || Error::internal("an output has no input");
            let source = *self.sources.get(usize::from(index)).ok_or_else(missing)?;
            let spec = self.signature.outputs.get(usize::from(index)).ok_or_else(missing)?;
            let input = input_of(entry, source).ok_or_else(missing)?;
            let (Some(Some(all)), Some(&begin)) = (inputs.get(usize::from(source)), begins.get(usize::from(source)))
            else {
                return Err(missing());
            };
            let data = Data::Region(part::part(all, begin, input.data.len())?);
            outcome.outputs.push(scatter::output(entry, spec, (index, slot), input.shape.clone(), data)?);
        }
        Ok(outcome)
    }
}

impl Model for OnDevice {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, _control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        // Without a batch dimension, requests cannot run together.
        let together = if self.signature.max_batch_size > 0 { batch.requests.len().max(1) } else { 1 };
        for entries in batch.requests.chunks_mut(together) {
            if let Err(e) = self.run(instance, entries) {
                scatter::fail_all(entries, &e);
            }
        }
        Marks { inputs_ready, inference_end: now_ns(), outputs_ready: now_ns() }
    }
}
