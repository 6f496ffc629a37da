//! Ensembles (`Served::Graph`): a graph of calls to other versions instead of a model.
//!
//! What an ensemble is, and the models its next request will call. One request on its way through it is in `flow`; which step
//! runs when is decided in the crate `graph`.
//!
//! The plan is made from the signatures of the composing models. When one of them was reloaded since, it is made again with the
//! next request, so an ensemble never runs on what a model used to look like. So it is when one has to be called in order now that
//! had not to, or the other way round: another number of instances is no reload.

use crate::cached::Maker;
use crate::directory::Directory;
use crate::flow::Waiting;
use crate::table::Table;
use crate::turn::InStretch;
use crate::version::ModelVersion;
use arc_swap::ArcSwap;
use graph::{Composing, Inflight, Plan, Turns};
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::{ModelEnsembling, model_ensembling};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// What a version has that is an ensemble.
pub(crate) struct Ensemble {
    directory: Weak<Directory>,
    /// Where its models are looked for first; "" = nowhere.
    namespace: String,
    config: ModelEnsembling,
    signature: Arc<Signature>,
    compiled: ArcSwap<Compiled>,
    /// Calls in flight, over all requests.
    pub(crate) inflight: Mutex<Inflight<Waiting>>,
    /// Calls of requests of sequences. Never locked together with `inflight`.
    pub(crate) turns: Mutex<Turns<Waiting>>,
    /// Calls of requests that were given up, out of their lines and not refused yet.
    withdrawn: Mutex<Vec<Waiting>>,
}

/// A plan, and what it was made from: of each model its signature, and whether it is called in order.
pub(crate) struct Compiled {
    pub(crate) plan: Arc<Plan>,
    /// Steps that keep the state of sequences: requests of one sequence call them in turn.
    pub(crate) in_turn: Vec<usize>,
    made_from: Vec<(Arc<Signature>, bool)>,
    /// A model that it calls reads its inputs on a device.
    reads_on_device: bool,
}

impl Compiled {
    fn is_of(&self, models: &[Arc<ModelVersion>]) -> bool {
        // There is an order only among the answers of a decoupled step.
        let has_order = self.plan.decoupled();
        self.made_from.iter().zip(models).all(|((signature, in_order), model)| {
            Arc::ptr_eq(signature, &model.signature) && (!has_order || model.in_order() == *in_order)
        })
    }
}

impl Ensemble {
    /// Compiles an ensemble with the models that serve now. Returns its signature, completed: whether it is decoupled, and the
    /// labels that its outputs inherit (C-11), follow from the models.
    ///
    /// # Errors
    /// A composing model that does not serve, with the text that requests get, an ensemble that would lie in itself, and what
    /// `Plan::compile` refuses.
    pub(crate) fn new(
        directory: Weak<Directory>,
        namespace: &str,
        mut signature: Signature,
        config: &ModelEnsembling,
    ) -> Result<(Self, Arc<Signature>)> {
        let config = config.clone();
        refuse_ring(&directory, namespace, &signature.model, &config)?;
        let models = find(&directory, namespace, &config)?;
        let plan = compile(&Arc::new(signature.clone()), &config, &models)?.plan;
        signature.decoupled = plan.decoupled();
        for (index, output) in signature.outputs.iter_mut().enumerate() {
            if output.labels.get(0).is_some() {
                continue;
            }
            let origin = plan.origin(index).and_then(|(step, o)| {
                let at = plan.steps().iter().position(|s| std::ptr::eq(s, step))?;
                models.get(at)?.signature.outputs.get(o)
            });
            if let Some(origin) = origin {
                output.labels = origin.labels.clone();
            }
        }
        let signature = Arc::new(signature);
        let compiled = ArcSwap::from_pointee(compile(&signature, &config, &models)?);
        let inflight = Mutex::new(Inflight::new(config.max_inflight_requests, config.step.len()));
        let turns = Mutex::new(Turns::new(config.step.len()));
        let namespace = namespace.to_owned();
        Ok((
            Self {
                directory,
                namespace,
                config,
                signature: signature.clone(),
                compiled,
                inflight,
                turns,
                withdrawn: Mutex::default(),
            },
            signature,
        ))
    }

    /// The plan for a request that begins now, and the version that each step calls: they are held until it is over.
    ///
    /// # Errors
    /// As `new`.
    pub(crate) fn begin(&self) -> Result<(Arc<Compiled>, Vec<Arc<ModelVersion>>)> {
        let models = find(&self.directory, &self.namespace, &self.config)?;
        let compiled = self.compiled.load();
        if compiled.is_of(&models) {
            return Ok((compiled.clone(), models));
        }
        let compiled = Arc::new(compile(&self.signature, &self.config, &models)?);
        if compiled.plan.decoupled() != self.signature.decoupled {
            return Err(Error::unavailable(format!(
                "ensemble '{}' has to be loaded again: its models changed how often they answer",
                self.signature.model
            )));
        }
        self.compiled.store(compiled.clone());
        Ok((compiled, models))
    }

    /// The models that make its answers, those of composing ensembles included, in the order of the steps: their loads, since other
    /// ones may answer otherwise, and what tells them apart on several servers. Put together from the table as it is now; `None` when
    /// one does not serve.
    pub(crate) fn made_by(&self, table: &Table) -> Option<Vec<Maker>> {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        let mut open = vec![self];
        while let Some(ensemble) = open.pop() {
            for step in &ensemble.config.step {
                let version = version_of(table, &ensemble.namespace, step).ok()?;
                if seen.insert(version.identity.load) {
                    all.push((version.identity.load, version.identity.fingerprint));
                    open.extend(version.graph());
                }
            }
        }
        Some(all)
    }

    /// The table that requests look into now.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        Some(self.directory.upgrade()?.table())
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.compiled.load().plan.clone()
    }

    /// Whether a model that it calls reads its inputs on a device, as far as that was known when the plan was made.
    pub(crate) fn reads_on_device(&self) -> bool {
        self.compiled.load().reads_on_device
    }

    /// Whether a step keeps the state of sequences.
    pub(crate) fn keeps_state(&self) -> bool {
        !self.compiled.load().in_turn.is_empty()
    }

    /// Calls that wait, of all requests.
    pub(crate) fn waiting(&self) -> usize {
        let in_turn = self.turns.lock().waiting();
        in_turn + self.inflight.lock().waiting()
    }

    /// Takes the waiting calls of requests that were given up out of their lines, and refuses at most `max` of them. Returns whether there are
    /// more to refuse.
    pub(crate) fn sweep_cancelled(&self, max: usize) -> bool {
        // All in one pass: with a pass for each part, thousands of calls would keep the lines locked most of the time, and reactors wait for them.
        let mut withdrawn = self.inflight.lock().withdraw(Waiting::is_cancelled);
        withdrawn.extend(self.turns.lock().withdraw(Waiting::is_cancelled));
        let (some, rest) = {
            let mut all = self.withdrawn.lock();
            all.append(&mut withdrawn);
            let rest = all.len().saturating_sub(max);
            (all.split_off(rest), rest)
        };
        let _stretch = InStretch::begin();
        some.into_iter().for_each(Waiting::refuse);
        rest > 0
    }
}

/// # Errors
/// INVALID_ARG, Triton's text: a way leads from the ensemble through those that serve now back to it.
fn refuse_ring(directory: &Weak<Directory>, namespace: &str, name: &str, config: &ModelEnsembling) -> Result<()> {
    let directory = directory.upgrade().ok_or_else(|| Error::unavailable("Server exiting"))?;
    let table = directory.table();
    let own = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([(name.to_owned(), name.to_owned(), namespace.to_owned(), config.clone())]);
    // Each with the one it was found in, the shortest way first.
    while let Some((before, at, namespace, config)) = open.pop_front() {
        for step in &config.step {
            let in_own = format!("{namespace}/{}", step.model_name);
            let key = table.key(&namespace, &step.model_name).map_or_else(|_| in_own.clone(), |key| key.into_owned());
            if key == own || (!namespace.is_empty() && in_own == own) {
                // Triton begins with the one that closes the ring; a pair begins with the one that is loaded.
                let (first, last) = if before == name { (before, at) } else { (at, before) };
                return Err(Error::invalid(format!(
                    "circular dependency between ensembles: {first} -> ... -> {last} -> {first}"
                )));
            }
            if !seen.insert((key, step.model_version)) {
                continue;
            }
            let version = version_of(&table, &namespace, step).ok();
            let inner = version.and_then(|v| v.graph()).map(|e| (e.namespace.clone(), e.config.clone()));
            open.extend(inner.map(|(namespace, inner)| (at.clone(), step.model_name.clone(), namespace, inner)));
        }
    }
    Ok(())
}

/// The version of a step that means the latest one; no version has another negative number.
const LATEST: i64 = -1;

fn version_of<'t>(table: &'t Table, namespace: &str, step: &model_ensembling::Step) -> Result<&'t Arc<ModelVersion>> {
    table.find_from(namespace, &step.model_name, (step.model_version != LATEST).then_some(step.model_version))
}

fn find(directory: &Weak<Directory>, namespace: &str, config: &ModelEnsembling) -> Result<Vec<Arc<ModelVersion>>> {
    let directory = directory.upgrade().ok_or_else(|| Error::unavailable("Server exiting"))?;
    let table = directory.table();
    config.step.iter().map(|step| version_of(&table, namespace, step).cloned()).collect()
}

fn compile(signature: &Arc<Signature>, config: &ModelEnsembling, models: &[Arc<ModelVersion>]) -> Result<Compiled> {
    let plans: Vec<_> = models.iter().map(|m| m.graph().map(Ensemble::plan)).collect();
    let composing: Vec<_> = models
        .iter()
        .zip(&plans)
        .map(|(m, plan)| Composing {
            signature: &m.signature,
            in_order: m.in_order(),
            takes_regions: m.cached.is_none(),
            plan: plan.as_deref(),
        })
        .collect();
    let plan = Arc::new(Plan::compile(signature.clone(), config, &composing)?);
    let made_from = composing.iter().zip(models).map(|(c, m)| (m.signature.clone(), c.in_order)).collect();
    let reads_on_device = models.iter().any(|model| model.reads_on_device());
    let in_turn = models.iter().enumerate().filter(|(_, model)| model.keeps_state()).map(|(step, _)| step).collect();
    Ok(Compiled { plan, in_turn, made_from, reads_on_device })
}
