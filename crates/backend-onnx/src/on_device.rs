//! Batches of which something lies on a device, or is wanted there, for a session that runs there: inputs are read and outputs written where they
//! are. Batches that lie in the host's memory altogether do not come here: the runtime brings them over in the stream of the run.
//!
//! What is copied, and why, of a tensor on the device of the session:
//! - an input of several requests that do not lie in a row, or at an address that kernels cannot use (`DEVICE_ALIGNMENT`), once;
//! - an input in a client's region whose values steer memory (`inputs::steers_memory`), once: the client could change it during the run;
//! - an output that its region cannot have in place (`outputs::target_on`), once;
//! - all others not at all.

use crate::captured::Captured;
use crate::ffi::{Binding, CName, RunOptions, Value};
use crate::inputs::{self, Tensor, is_on_device};
use crate::model::{OnnxModel, cancelled, may_be_wrong_guess};
use crate::outputs::{self, Produced, RunOutputs, Target, byte_len};
use backend::gather::rows_of;
use backend::{BatchEntry, Marks, RunControl, gather, now_ns, scatter};
use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{DataType, Error, Result};

/// Whether something of a batch lies on a device, or may stay there.
pub(crate) fn concerns(entries: &[BatchEntry]) -> bool {
    let live = || entries.iter().filter(|e| e.result.is_none());
    live().any(|e| e.request.inputs.iter().any(|i| is_on_device(&i.data)))
        || live().any(|e| e.checked.outputs.iter().any(|&(_, slot)| is_wanted_there(e, slot)))
}

/// Whether a request wants an output in memory of a device, or takes it there.
fn is_wanted_there(entry: &BatchEntry, slot: Option<u16>) -> bool {
    match scatter::region_of(entry, slot) {
        Some(region) => region.host().is_none(),
        None => scatter::form_of(entry, slot).anywhere,
    }
}

impl OnnxModel {
    /// Runs a batch that `concerns` a device, on that of the session.
    pub(crate) fn run_on(
        &self,
        device: u32,
        entries: &mut [BatchEntry],
        control: &RunControl,
        marks: &mut Marks,
    ) -> Result<()> {
        gather::stage_on(entries, &self.signature, inputs::may_stay);
        if entries.iter().all(|e| e.result.is_some()) {
            return Ok(());
        }
        let (wanted, mut produced) = {
            let tensors = inputs::feed(&self.inputs, &self.batch_inputs, &self.signature, entries, Some(device))?;
            let is_wanted = |index: u16| {
                let live = entries.iter().filter(|e| e.result.is_none());
                let mut slots = live.filter_map(|e| Some((e, e.checked.outputs.iter().find(|(i, _)| *i == index)?.1)));
                slots.any(|(entry, slot)| is_wanted_there(entry, slot))
            };
            let target = |known, spec: &_, index, alone: Option<&_>| {
                if is_wanted(index) {
                    Ok(outputs::target_on(device, known, spec, index, alone))
                } else {
                    outputs::target(known, spec, index, alone)
                }
            };
            let mut plan = RunOutputs::new(&self.outputs, &self.hints, &self.signature, entries, &tensors, target)?;
            if self.hints.are_wrong() {
                self.allocated_there(&mut plan, is_wanted);
            }
            if let Some(captured) = &self.captured {
                let produced = self.by_graph(captured, entries, &mut plan, &tensors, control, marks)?;
                (plan.wanted, produced)
            } else {
                let feeds: SmallVec<[Value<'_>; 4]> =
                    tensors.iter().map(|t| self.value_of(t)).collect::<Result<_>>()?;
                marks.inputs_ready = now_ns();
                let options = self.begin(control)?;
                let mut outcome = self.run_bound(&mut plan, &options, &tensors, &feeds);
                if plan.has_hints()
                    && !control.is_stopped()
                    && outcome.as_ref().is_err_and(may_be_wrong_guess)
                    && device::failure::check(device).is_ok()
                {
                    // As in a run in the host's memory: only here may an output have another shape than we expected.
                    plan.without_hints();
                    self.allocated_there(&mut plan, is_wanted);
                    outcome = self.run_bound(&mut plan, &options, &tensors, &feeds);
                    if outcome.is_ok() {
                        self.without_hints();
                    }
                }
                self.end(options, control, marks)?;
                let produced = outcome?;
                plan.learn(&self.hints, &produced);
                (plan.wanted, produced)
            }
        };
        outputs::distribute(&self.outputs, &self.signature, entries, &wanted, &mut produced);
        Ok(())
    }

    /// One run by a CUDA graph; gives back its outputs.
    fn by_graph(
        &self,
        captured: &Captured,
        entries: &[BatchEntry],
        plan: &mut RunOutputs,
        tensors: &[Tensor<'_>],
        control: &RunControl,
        marks: &mut Marks,
    ) -> Result<SmallVec<[Produced; 2]>> {
        // A run that is ended half-way could not be captured, and one that is replayed has no half-way.
        if control.is_stopped() {
            return Err(cancelled());
        }
        marks.inputs_ready = now_ns();
        let rows = entries.iter().filter(|e| e.result.is_none()).map(rows_of).sum();
        let rows = if self.signature.max_batch_size > 0 { rows } else { 0 };
        let ran = captured.run(&self.session, &self.outputs, &self.signature, plan, tensors, rows);
        marks.inference_end = now_ns();
        ran
    }

    /// Has the runtime allocate outputs on the device that are wanted there, where it allocates them at all. Strings are the host's, and what hands
    /// an input through is wherever that is.
    fn allocated_there(&self, plan: &mut RunOutputs, is_wanted: impl Fn(u16) -> bool) {
        for (target, &index) in plan.targets.iter_mut().zip(&plan.wanted) {
            let spec = self.signature.outputs.get(usize::from(index));
            let is_plain = spec.is_some_and(|spec| spec.datatype != DataType::Bytes)
                && self.outputs.get(usize::from(index)).is_some_and(|output| !output.is_input);
            if matches!(target, Target::Runtime) && is_plain && is_wanted(index) {
                *target = Target::RuntimeOnDevice;
            }
        }
    }

    fn value_of<'t>(&self, tensor: &'t Tensor<'_>) -> Result<Value<'t>> {
        match &*tensor.data {
            tensor::Data::Region(region) if region.host().is_none() => {
                self.session.on_device(tensor.datatype, &tensor.shape, region, region.len())
            }
            _ => tensor.value(self.session.runtime(), &self.signature),
        }
    }

    /// One run; gives back its outputs.
    fn run_bound(
        &self,
        plan: &mut RunOutputs,
        options: &RunOptions,
        tensors: &[Tensor<'_>],
        feeds: &[Value<'_>],
    ) -> Result<SmallVec<[Produced; 2]>> {
        let specs: SmallVec<[_; 4]> =
            plan.wanted.iter().filter_map(|&index| self.signature.outputs.get(usize::from(index))).collect();
        let names: SmallVec<[CName; 4]> =
            plan.wanted.iter().filter_map(|&index| self.outputs.get(usize::from(index))).map(|o| o.name).collect();
        let runtime = self.session.runtime();
        let allocated = {
            let mut binding = Binding::new(&self.session)?;
            for (tensor, value) in tensors.iter().zip(feeds) {
                binding.input(tensor.name, value)?;
            }
            for ((target, spec), &name) in plan.targets.iter_mut().zip(&specs).zip(&names) {
                let value = match target {
                    Target::Runtime | Target::RuntimeOnDevice => {
                        binding.allocated(name, matches!(target, Target::RuntimeOnDevice))?;
                        continue;
                    }
                    Target::Slab { shape, slab } => Value::output(runtime, spec.datatype, shape, slab)?,
                    Target::Region { shape, region, len } => {
                        Value::region_output(runtime, spec.datatype, shape, region, *len)?
                    }
                    Target::Device { shape, region, len } => {
                        self.session.on_device(spec.datatype, shape, region, *len)?
                    }
                };
                binding.output(name, &value)?;
            }
            binding.run(options)?;
            binding.outputs()?
        };
        let lent = || tensors.iter().map(|t| &*t.data);
        let finished = std::mem::take(&mut plan.targets).into_iter().zip(allocated).zip(&specs);
        let finished = finished.map(|((target, value), spec)| match target {
            Target::Slab { shape, slab } => Ok(Produced::Bytes { shape, bytes: slab.freeze() }),
            Target::Region { shape, region, .. } | Target::Device { shape, region, .. } => {
                Ok(Produced::Region { shape, region })
            }
            Target::Runtime | Target::RuntimeOnDevice => {
                let value =
                    value.ok_or_else(|| Error::internal(format!("no data for inference output '{}'", spec.name)))?;
                if matches!(target, Target::Runtime) {
                    return Produced::from_runtime(value, spec, &self.session, lent());
                }
                let shape = Produced::checked_shape(&value, spec, &self.session)?;
                match byte_len(spec.datatype, &shape) {
                    None => Err(Error::internal("strings do not lie on a device")),
                    Some(0) => Ok(Produced::Bytes { shape, bytes: Bytes::new() }),
                    Some(len) => Ok(Produced::Region { region: value.into_region(&self.session, len, lent())?, shape }),
                }
            }
        });
        finished.collect()
    }
}
