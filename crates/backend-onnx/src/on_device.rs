//! Runs batches with tensors on a device, or requested there, on that device's session, in place where possible.
//! Batches entirely in host memory do not use this module: the runtime copies them in the stream of the run.
//!
//! Tensors on the session's device are copied once in these cases, otherwise not at all:
//! - an input of several requests that are not contiguous, or misaligned for kernels (`DEVICE_ALIGNMENT`);
//! - an input in a client's region that steers memory (`inputs::steers_memory`): it could change during the run;
//! - an output that cannot be written to its region directly (`outputs::target_on`).

use crate::captured::Captured;
use crate::ffi::{Binding, CName, RunOptions, Value};
use crate::inputs::{self, RunInput, is_on_device};
use crate::model::{OnnxModel, cancelled, may_be_wrong_guess};
use crate::outputs::{self, Produced, RunOutputs, Target, byte_len};
use backend::gather::rows_of;
use backend::{BatchEntry, Marks, RunControl, gather, now_ns, scatter};
use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{DataType, Error, Result};

/// Whether a batch has inputs on a device, or outputs that may stay there.
pub(crate) fn concerns(entries: &[BatchEntry]) -> bool {
    let live = || entries.iter().filter(|e| e.result.is_none());
    live().any(|e| e.request.inputs.iter().any(|i| is_on_device(&i.data)))
        || live().any(|e| e.checked.outputs.iter().any(|&(_, slot)| is_wanted_there(e, slot)))
}

/// Whether a request wants an output in device memory, or accepts it there.
fn is_wanted_there(entry: &BatchEntry, slot: Option<u16>) -> bool {
    match scatter::region_of(entry, slot) {
        Some(region) => region.host().is_none(),
        None => scatter::form_of(entry, slot).anywhere,
    }
}

impl OnnxModel {
    /// Runs a batch that `concerns` a device, on the session's device.
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
                let options = self.runs.begin(control)?;
                let mut outcome = self.run_bound(&mut plan, &options, &tensors, &feeds);
                if plan.has_hints()
                    && !control.is_stopped()
                    && outcome.as_ref().is_err_and(may_be_wrong_guess)
                    && device::failure::check(device).is_ok()
                {
                    // As for runs in host memory, the failure may mean that an output has an unexpected shape.
                    plan.without_hints();
                    self.allocated_there(&mut plan, is_wanted);
                    outcome = self.run_bound(&mut plan, &options, &tensors, &feeds);
                    if outcome.is_ok() {
                        self.without_hints();
                    }
                }
                self.runs.end(options, control, marks)?;
                let produced = outcome?;
                plan.learn(&self.hints, &produced);
                (plan.wanted, produced)
            }
        };
        outputs::distribute(&self.outputs, &self.signature, entries, &wanted, &mut produced);
        Ok(())
    }

    /// Runs with a CUDA graph and returns the outputs.
    fn by_graph(
        &self,
        captured: &Captured,
        entries: &[BatchEntry],
        plan: &mut RunOutputs,
        tensors: &[RunInput<'_>],
        control: &RunControl,
        marks: &mut Marks,
    ) -> Result<SmallVec<[Produced; 2]>> {
        // A capture cannot be cancelled, and neither can a replay.
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

    /// Lets the runtime allocate on the device those of its outputs that are requested there. Strings are always on the
    /// host, and an output that passes an input through is where that input is.
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

    fn value_of<'t>(&self, tensor: &'t RunInput<'_>) -> Result<Value<'t>> {
        match &*tensor.data {
            tensor::Data::Region(region) if region.host().is_none() => {
                self.session.on_device(tensor.datatype, &tensor.shape, region, region.len())
            }
            _ => tensor.value(self.session.runtime(), &self.signature),
        }
    }

    fn run_bound(
        &self,
        plan: &mut RunOutputs,
        options: &RunOptions,
        tensors: &[RunInput<'_>],
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
