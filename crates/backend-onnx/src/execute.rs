//! Runs batches in host memory, and passes batches with device memory to `on_device`.

use crate::ffi::{CName, Outputs, RunOptions, Value};
use crate::inputs;
use crate::model::{OnnxModel, cancelled, may_be_wrong_guess, stopper};
use crate::on_device;
use crate::outputs::{self, Produced, RunOutputs, Target};
use crate::recipe::Recipe;
use backend::{Batch, BatchEntry, Capabilities, Marks, Model, RunControl, gather, now_ns, scatter};
use smallvec::SmallVec;
use tensor::{Error, Result};

impl OnnxModel {
    fn run(&self, entries: &mut [BatchEntry], control: &RunControl, marks: &mut Marks) -> Result<()> {
        if let Some(device) = self.session.device() {
            device::stand_apart();
            if self.captured.is_some() || on_device::concerns(entries) {
                return self.run_on(device, entries, control, marks);
            }
        }
        let mut guesses = true;
        if let Some(recipe) = self.recipes.take(entries) {
            match self.repeat(recipe, entries, control, marks)? {
                Repeated::Answered => return Ok(()),
                Repeated::Unfit => {}
                Repeated::Failed => guesses = false,
            }
        }
        gather::stage(entries, &self.signature, inputs::may_stay);
        if entries.iter().all(|e| e.result.is_some()) {
            return Ok(());
        }
        let (wanted, mut produced) = {
            let tensors =
                inputs::feed(&self.inputs, &self.batch_inputs, &self.signature, entries, self.session.device())?;
            let runtime = self.session.runtime();
            let names: SmallVec<[CName; 4]> = tensors.iter().map(|t| t.name).collect();
            let mut plan =
                RunOutputs::new(&self.outputs, &self.hints, &self.signature, entries, &tensors, outputs::target)?;
            let output_names: SmallVec<[CName; 4]> =
                plan.wanted.iter().filter_map(|&i| self.outputs.get(usize::from(i))).map(|o| o.name).collect();
            if !guesses {
                plan.without_hints();
            }
            marks.inputs_ready = now_ns();
            let options = self.runs.begin(control)?;
            let feeds: SmallVec<[Value<'_>; 4]> =
                tensors.iter().map(|t| t.value(runtime, &self.signature)).collect::<Result<_>>()?;
            let mut outcome = self.run_once(&mut plan, &options, &names, &feeds, &output_names);
            if plan.has_hints() && !control.is_stopped() && outcome.as_ref().is_err_and(may_be_wrong_guess) {
                guesses = false;
                plan.without_hints();
                outcome = self.run_once(&mut plan, &options, &names, &feeds, &output_names);
            }
            if !guesses && outcome.is_ok() {
                self.without_hints();
            }
            self.runs.end(options, control, marks)?;
            let allocated = outcome?;
            let mut produced: SmallVec<[Produced; 2]> = SmallVec::new();
            for ((value, target), &index) in
                allocated.into_iter().zip(std::mem::take(&mut plan.targets)).zip(&plan.wanted)
            {
                let spec = self
                    .signature
                    .outputs
                    .get(usize::from(index))
                    .ok_or_else(|| Error::internal("an output is not configured"))?;
                produced.push(match (target, value) {
                    (Target::Slab { shape, slab }, _) => Produced::Bytes { shape, bytes: slab.freeze() },
                    (Target::Region { shape, region, .. }, _) => Produced::Region { shape, region },
                    (Target::Device { .. } | Target::RuntimeOnDevice, _) => {
                        return Err(Error::internal("an output of a run in the host's memory is on a device"));
                    }
                    (Target::Runtime, Some(value)) => {
                        Produced::from_runtime(value, spec, &self.session, tensors.iter().map(|t| &*t.data))?
                    }
                    (Target::Runtime, None) => {
                        return Err(Error::internal(format!("no data for inference output '{}'", spec.name)));
                    }
                });
            }
            plan.learn(&self.hints, &produced);
            if self.may_repeat && !self.hints.are_wrong() {
                let made = (&plan.wanted[..], &produced[..]);
                let options = || self.runs.take_options();
                let recipe =
                    Recipe::of(&self.session, options, &self.signature, entries, &tensors, &output_names, made);
                if let Some(recipe) = recipe {
                    self.recipes.put(recipe);
                }
            }
            (plan.wanted, produced)
        };
        outputs::distribute(&self.outputs, &self.signature, entries, &wanted, &mut produced);
        Ok(())
    }

    /// Repeats a run with a recipe.
    ///
    /// # Errors
    /// CANCELLED when all its requests are cancelled, or the error of the run.
    fn repeat(
        &self,
        mut recipe: Box<Recipe>,
        entries: &mut [BatchEntry],
        control: &RunControl,
        marks: &mut Marks,
    ) -> Result<Repeated> {
        if !recipe.fill(entries) {
            return Ok(Repeated::Unfit);
        }
        marks.inputs_ready = now_ns();
        if !control.arm(|| stopper(recipe.options())) {
            return Err(cancelled());
        }
        let ran = recipe.run(&self.session);
        control.disarm();
        marks.inference_end = now_ns();
        if control.is_stopped() {
            return Err(cancelled());
        }
        if let Err(error) = ran {
            let failed = if may_be_wrong_guess(&error) { Ok(Repeated::Failed) } else { Err(error) };
            // The recipe is not the cause, so later batches may use it.
            if failed.is_err() {
                self.recipes.put(recipe);
            }
            return failed;
        }
        recipe.serve(&self.signature, entries);
        self.recipes.put(recipe);
        Ok(Repeated::Answered)
    }

    /// Runs once and returns the outputs that the runtime allocated, `None` for those in their targets.
    fn run_once<'v>(
        &self,
        plan: &mut RunOutputs,
        options: &RunOptions,
        names: &[CName],
        feeds: &[Value<'v>],
        output_names: &[CName],
    ) -> Result<Outputs<'v>> {
        let RunOutputs { wanted, targets, .. } = plan;
        let values = RunOutputs::values(targets, wanted, &self.signature, self.session.runtime())?;
        self.session.run(options, names, feeds, output_names, values)
    }
}

enum Repeated {
    Answered,
    /// The inputs did not fit; nothing ran.
    Unfit,
    /// An output may have another shape this time. Running again without hints is safe, as runs have no side effects.
    Failed,
}

impl Model for OnnxModel {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            instances_are_permits: true,
            cost_may_depend_on_data: self.cost_may_depend_on_data,
            cores: self.session.cores(),
            ..Capabilities::default()
        }
    }

    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        execute(self.signature.max_batch_size > 0, batch, |entries, marks| self.run(entries, control, marks))
    }
}

/// Runs a batch, as one run if the model batches, otherwise as one for each request.
pub(crate) fn execute(
    is_batching: bool,
    batch: &mut Batch<'_>,
    mut run: impl FnMut(&mut [BatchEntry], &mut Marks) -> Result<()>,
) -> Marks {
    let mut marks = Marks::default();
    // Without a batch dimension, requests cannot run together.
    let together = if is_batching { batch.requests.len().max(1) } else { 1 };
    for entries in batch.requests.chunks_mut(together) {
        if let Err(e) = run(entries, &mut marks) {
            scatter::fail_all(entries, &e);
        }
    }
    marks.outputs_ready = now_ns();
    // A batch that failed early did not reach every mark.
    if marks.inputs_ready == 0 {
        marks.inputs_ready = marks.outputs_ready;
    }
    marks.inference_end = marks.inference_end.max(marks.inputs_ready);
    marks
}
