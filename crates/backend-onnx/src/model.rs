//! A session with its prepared inputs and outputs: one value per version, called by all instances at once.

use crate::arena::Arena;
use crate::batch_input::BatchInput;
use crate::captured::Captured;
use crate::ffi::{CName, RunOptions, Session};
use crate::graph::Graph;
use crate::inputs::InputPlan;
use crate::outputs::{Hints, OutputPlan};
use crate::recipe::Recipes;
use backend::{Marks, RunControl, now_ns};
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use tensor::{Error, Result};

/// Maximum number of idle run options kept; models rarely have more instances.
const RUN_OPTIONS_MAX: usize = 64;

pub(crate) struct OnnxModel {
    pub(crate) session: Arc<Session>,
    pub(crate) signature: Arc<Signature>,
    pub(crate) inputs: Vec<InputPlan>,
    pub(crate) batch_inputs: Vec<(BatchInput, Vec<CName>)>,
    pub(crate) outputs: Vec<OutputPlan>,
    pub(crate) hints: Hints,
    pub(crate) runs: Runs,
    pub(crate) recipes: Recipes,
    /// Every output is split by rows and written by the run, and every input comes from the requests.
    pub(crate) may_repeat: bool,
    pub(crate) cost_may_depend_on_data: bool,
    /// Set for models that run with CUDA graphs.
    pub(crate) captured: Option<Captured>,
}

/// State that the runs of a session share.
pub(crate) struct Runs {
    session: Arc<Session>,
    entries: Vec<(String, String)>,
    idle: Mutex<Vec<Arc<RunOptions>>>,
    /// Set for models whose shapes vary.
    arena: Option<Arc<Arena>>,
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
        let runs = Runs::new(session, graph, outputs.first().map(|output| output.name), run_entries, batching)?;
        Ok(Self {
            session: Arc::clone(&runs.session),
            signature,
            inputs,
            batch_inputs,
            outputs,
            hints: Hints::default(),
            runs,
            recipes: Recipes::default(),
            may_repeat,
            cost_may_depend_on_data,
            captured: None,
        })
    }

    /// Runs with CUDA graphs, which the provider of its session captures; with `has_one_graph`, only one graph.
    ///
    /// # Errors
    /// UNSUPPORTED without fixed shapes.
    pub(crate) fn by_graphs(mut self, config: &ModelConfig, has_one_graph: bool) -> Result<Self> {
        let of = (&self.session, &*self.signature, &self.outputs, &self.runs.entries);
        self.captured = Some(Captured::new(of.0, config, of.1, of.2, of.3, has_one_graph)?);
        Ok(self)
    }

    pub(crate) fn device(&self) -> Option<u32> {
        self.session.device()
    }

    /// Stops predicting output shapes, which depend on more than was assumed.
    pub(crate) fn without_hints(&self) {
        self.hints.disable();
        self.recipes.clear();
    }
}

impl Runs {
    /// `output` is any output of the graph.
    pub(crate) fn new(
        mut session: Session,
        graph: &Graph,
        output: Option<CName>,
        entries: &[(String, String)],
        batching: bool,
    ) -> Result<Self> {
        let names = graph.inputs.iter().map(|t| session.name(&t.name)).collect::<Result<_>>()?;
        let session = Arc::new(session);
        let arena = output.and_then(|output| Arena::of(&session, graph, names, output, batching));
        Ok(Self { session, entries: entries.to_vec(), idle: Mutex::default(), arena })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn take_options(&self) -> Result<Arc<RunOptions>> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.session.run_options(&self.entries).map(Arc::new), Ok)
    }

    /// Run options for a batch; the run ends early when all of its requests are cancelled.
    ///
    /// # Errors
    /// CANCELLED when they are cancelled already.
    pub(crate) fn begin(&self, control: &RunControl) -> Result<Arc<RunOptions>> {
        if let Some(arena) = &self.arena {
            arena.runs();
        }
        let options = self.take_options()?;
        if control.arm(|| stopper(&options)) { Ok(options) } else { Err(cancelled()) }
    }

    /// Ends a run, successful or not.
    ///
    /// # Errors
    /// CANCELLED when it was stopped.
    pub(crate) fn end(&self, options: Arc<RunOptions>, control: &RunControl, marks: &mut Marks) -> Result<()> {
        control.disarm();
        marks.inference_end = now_ns();
        if control.is_stopped() {
            // The terminate flag may be set, so these options are not used again.
            return Err(cancelled());
        }
        let mut idle = self.idle.lock();
        if idle.len() < RUN_OPTIONS_MAX {
            idle.push(options);
        }
        Ok(())
    }
}

/// Whether a run may have failed because an output did not have the predicted shape. The library's texts differ between
/// versions, but all contain "shape". Any other error is final, because a second run would take as long again.
pub(crate) fn may_be_wrong_guess(error: &Error) -> bool {
    error.message().as_bytes().windows(5).any(|word| word.eq_ignore_ascii_case(b"shape"))
}

/// Ends the run that uses `options` at the next check of the runtime.
pub(crate) fn stopper(options: &Arc<RunOptions>) -> impl FnOnce() + Send + 'static {
    let options = Arc::clone(options);
    move || options.terminate()
}

pub(crate) fn cancelled() -> Error {
    Error::cancelled("the request was cancelled while its model ran")
}
