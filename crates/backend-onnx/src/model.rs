//! Runs batches. One value per version, called by every instance at once.

use crate::batch_input::BatchInput;
use crate::captured::Captured;
use crate::ffi::{CName, Outputs, RunOptions, Session, Value};
use crate::inputs::{self, InputPlan};
use crate::on_device;
use crate::open::Graph;
use crate::outputs::{self, Hints, OutputPlan, Produced, RunOutputs, Target};
use crate::recipe::{Recipe, Recipes};
use backend::{Batch, BatchEntry, Capabilities, Marks, Model, RunControl, gather, now_ns, scatter};
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{Error, Result};

/// Most idle run options kept; more than instances of a model are rarely needed.
const RUN_OPTIONS_MAX: usize = 64;

pub(crate) struct OnnxModel {
    pub(crate) session: Arc<Session>,
    pub(crate) signature: Arc<Signature>,
    pub(crate) inputs: Vec<InputPlan>,
    pub(crate) batch_inputs: Vec<(BatchInput, Vec<CName>)>,
    pub(crate) outputs: Vec<OutputPlan>,
    pub(crate) hints: Hints,
    run_entries: Vec<(String, String)>,
    run_options: Mutex<Vec<Arc<RunOptions>>>,
    recipes: Recipes,
    /// Every output is cut by rows and written by the run, and every input comes from the requests.
    may_repeat: bool,
    cost_may_depend_on_data: bool,
    /// It runs by CUDA graphs.
    pub(crate) captured: Option<Captured>,
}

impl OnnxModel {
    pub(crate) fn new(
        mut session: Session,
        config: &ModelConfig,
        signature: Arc<Signature>,
        graph: &Graph,
        run_entries: &[(String, String)],
        cost_may_depend_on_data: bool,
    ) -> Result<Self> {
        let batching = signature.max_batch_size > 0;
        let find = |name: &str| graph.inputs.iter().chain(&graph.initializers).find(|t| t.name == name);
        let inputs = signature
            .inputs
            .iter()
            .map(|spec| {
                let scalar = !batching && find(&spec.name).is_some_and(|t| t.shape.is_empty());
                Ok(InputPlan { name: session.name(&spec.name)?, scalar })
            })
            .collect::<Result<_>>()?;
        let batch_inputs = config
            .batch_input
            .iter()
            .map(|c| {
                let input = BatchInput::read(c, &signature)?;
                let names = input.targets.iter().map(|t| session.name(t)).collect::<Result<_>>()?;
                Ok((input, names))
            })
            .collect::<Result<_>>()?;
        let outputs = signature
            .outputs
            .iter()
            .map(|spec| {
                let scatter = config
                    .batch_output
                    .iter()
                    .find(|b| b.target_name.first().is_some_and(|t| *spec.name == **t))
                    .and_then(|b| b.source_input.first());
                let source = scatter.and_then(|s| signature.inputs.iter().position(|i| *i.name == **s));
                Ok(OutputPlan {
                    name: session.name(&spec.name)?,
                    graph: graph
                        .outputs
                        .iter()
                        .find(|t| *spec.name == *t.name)
                        .map(|t| t.shape.clone())
                        .unwrap_or_default(),
                    is_input: find(&spec.name).is_some(),
                    scatter: source.and_then(|s| u16::try_from(s).ok()),
                })
            })
            .collect::<Result<Vec<OutputPlan>>>()?;
        let may_repeat = config.batch_input.is_empty()
            && config.batch_output.is_empty()
            && outputs.iter().all(|output| !output.is_input);
        Ok(Self {
            session: Arc::new(session),
            signature,
            inputs,
            batch_inputs,
            outputs,
            hints: Hints::default(),
            run_entries: run_entries.to_vec(),
            run_options: Mutex::default(),
            recipes: Recipes::default(),
            may_repeat,
            cost_may_depend_on_data,
            captured: None,
        })
    }

    /// Has it run by CUDA graphs, which the provider of its session was told to capture; one at most with `has_one_graph`.
    ///
    /// # Errors
    /// UNSUPPORTED where shapes are not fixed.
    pub(crate) fn by_graphs(mut self, config: &ModelConfig, has_one_graph: bool) -> Result<Self> {
        let of = (&self.session, &*self.signature, &self.outputs, &self.run_entries);
        self.captured = Some(Captured::new(of.0, config, of.1, of.2, of.3, has_one_graph)?);
        Ok(self)
    }

    /// Where it runs; `None` is the CPU.
    pub(crate) fn device(&self) -> Option<u32> {
        self.session.device()
    }

    fn take_options(&self) -> Result<Arc<RunOptions>> {
        let idle = self.run_options.lock().pop();
        idle.map_or_else(|| self.session.run_options(&self.run_entries).map(Arc::new), Ok)
    }

    /// Options for a run that ends when all its requests are cancelled.
    ///
    /// # Errors
    /// CANCELLED when they are already.
    pub(crate) fn begin(&self, control: &RunControl) -> Result<Arc<RunOptions>> {
        let options = self.take_options()?;
        if control.arm(|| stopper(&options)) { Ok(options) } else { Err(cancelled()) }
    }

    /// Shapes of outputs follow from more than was thought.
    pub(crate) fn without_hints(&self) {
        self.hints.give_up();
        self.recipes.clear();
    }

    /// After the run, whatever became of it.
    ///
    /// # Errors
    /// CANCELLED when it was told to end.
    pub(crate) fn end(&self, options: Arc<RunOptions>, control: &RunControl, marks: &mut Marks) -> Result<()> {
        control.disarm();
        marks.inference_end = now_ns();
        if control.is_stopped() {
            // The flag cannot be trusted to be unset; these options are not used again.
            return Err(cancelled());
        }
        let mut idle = self.run_options.lock();
        if idle.len() < RUN_OPTIONS_MAX {
            idle.push(options);
        }
        Ok(())
    }

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
            let options = self.begin(control)?;
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
            self.end(options, control, marks)?;
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
                        return Err(Error::internal("an output of a run in the host's memory lies on a device"));
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
                let options = || self.take_options();
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

    /// Runs a batch of a kind that was run before.
    ///
    /// # Errors
    /// CANCELLED when all its requests are cancelled, or why the run failed.
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
            // Nothing is wrong with it then: the next batch may run.
            if failed.is_err() {
                self.recipes.put(recipe);
            }
            return failed;
        }
        recipe.serve(&self.signature, entries);
        self.recipes.put(recipe);
        Ok(Repeated::Answered)
    }

    /// One `Run`; gives back the outputs the runtime allocated, `None` where they are in their targets.
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

/// What became of a run by a recipe.
enum Repeated {
    Answered,
    /// Nothing ran.
    Unfit,
    /// Perhaps since an output has another shape this time: it is run without guesses, which has no effects but its outputs.
    Failed,
}

/// Whether a run may have failed since an output did not have the shape we guessed. The library says so in words that change between its
/// versions; all of them name a shape. Any other failure is final: to run again would take the time of a run once more.
pub(crate) fn may_be_wrong_guess(error: &Error) -> bool {
    error.message().as_bytes().windows(5).any(|word| word.eq_ignore_ascii_case(b"shape"))
}

/// Ends the run that uses `options` as soon as the runtime looks.
fn stopper(options: &Arc<RunOptions>) -> impl FnOnce() + Send + 'static {
    let options = Arc::clone(options);
    move || options.terminate()
}

pub(crate) fn cancelled() -> Error {
    Error::cancelled("the request was cancelled while its model ran")
}

impl Model for OnnxModel {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            instances_are_permits: true,
            cost_may_depend_on_data: self.cost_may_depend_on_data,
            ..Capabilities::default()
        }
    }

    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let mut marks = Marks::default();
        // Without a batch dimension there is nothing to put requests together along.
        let together = if self.signature.max_batch_size > 0 { batch.requests.len().max(1) } else { 1 };
        for entries in batch.requests.chunks_mut(together) {
            if let Err(e) = self.run(entries, control, &mut marks) {
                scatter::fail_all(entries, &e);
            }
        }
        marks.outputs_ready = now_ns();
        // A batch that failed on the way did not reach every mark.
        if marks.inputs_ready == 0 {
            marks.inputs_ready = marks.outputs_ready;
        }
        marks.inference_end = marks.inference_end.max(marks.inputs_ready);
        marks
    }
}
