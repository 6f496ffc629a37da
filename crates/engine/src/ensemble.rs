//! Ensembles (`Served::Graph`): a graph of calls to other versions instead of a model.
//!
//! The configuration and plan of an ensemble, and the models that its next request calls. `flow` handles one request;
//! the crate `graph` decides which step runs when.
//!
//! The plan is made from the signatures of the composing models, and made again by the next request after one of them
//! was reloaded, so that it never uses an old signature. The same applies when a model starts or stops to respond in
//! order, which may follow from a change of its instances.

use crate::cached::Maker;
use crate::delivery_scope::DeliveryScope;
use crate::directory::Directory;
use crate::flow::StepCall;
use crate::table::Table;
use crate::version::ModelVersion;
use arc_swap::ArcSwap;
use graph::{Composing, Inflight, Plan, Turns};
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::{ModelEnsembling, model_ensembling};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// State of a version that is an ensemble.
pub(crate) struct Ensemble {
    directory: Weak<Directory>,
    /// Namespace in which its models are searched first; "" = none.
    namespace: String,
    config: ModelEnsembling,
    signature: Arc<Signature>,
    compiled: ArcSwap<Compiled>,
    /// Calls in flight, over all requests.
    pub(crate) inflight: Mutex<Inflight<StepCall>>,
    /// Calls of requests of sequences. Never locked together with `inflight`.
    pub(crate) turns: Mutex<Turns<StepCall>>,
    /// Calls of cancelled requests, removed from their queues but not rejected yet.
    withdrawn: Mutex<Vec<StepCall>>,
}

/// A plan and its sources: each model's signature, and whether it responds in order.
pub(crate) struct Compiled {
    pub(crate) plan: Arc<Plan>,
    /// Steps that keep the state of sequences: requests of one sequence call them in turn.
    pub(crate) in_turn: Vec<usize>,
    made_from: Vec<(Arc<Signature>, bool)>,
    /// True if a model that it calls reads its inputs on a device.
    reads_on_device: bool,
    _ordered: OrderKept,
}

/// Versions that run one request after another, because the responses of an ensemble are in the order of its calls.
struct OrderKept(Vec<Arc<AtomicU32>>);

impl OrderKept {
    fn of<'v>(versions: impl Iterator<Item = &'v Arc<ModelVersion>>) -> Self {
        let keep = |version: &'v Arc<ModelVersion>| {
            version.serving.order_kept_for.fetch_add(1, Ordering::Relaxed);
            version.serving.order_kept_for.clone()
        };
        Self(versions.map(keep).collect())
    }
}

impl Drop for OrderKept {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Compiled {
    fn is_of(&self, models: &[Arc<ModelVersion>]) -> bool {
        // Order only matters among the responses of a decoupled step.
        let has_order = self.plan.decoupled();
        self.made_from.iter().zip(models).all(|((signature, in_order), model)| {
            Arc::ptr_eq(signature, &model.signature) && (!has_order || model.in_order() == *in_order)
        })
    }
}

impl Ensemble {
    /// Compiles an ensemble with the models that serve now. Returns the signature completed from the models: whether it
    /// is decoupled, and the labels inherited by outputs (C-11).
    ///
    /// # Errors
    /// A composing model does not serve (with requests' text), the ensemble contains itself, or `Plan::compile` fails.
    pub(crate) fn new(
        directory: Weak<Directory>,
        namespace: &str,
        mut signature: Signature,
        config: &ModelEnsembling,
    ) -> Result<(Self, Arc<Signature>)> {
        let config = config.clone();
        reject_cycle(&directory, namespace, &signature.model, &config)?;
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

    /// The plan for a new request, and the version that each step calls; kept by the caller until the request ends.
    ///
    /// # Errors
    /// A composing model does not serve (with the text for requests), the ensemble contains itself, or `Plan::compile`
    /// fails.
    pub(crate) fn begin(&self) -> Result<(Arc<Compiled>, Vec<Arc<ModelVersion>>)> {
        let models = find(&self.directory, &self.namespace, &self.config)?;
        let compiled = self.compiled.load();
        if compiled.is_of(&models) {
            return Ok((compiled.clone(), models));
        }
        let compiled = Arc::new(compile(&self.signature, &self.config, &models)?);
        if compiled.plan.decoupled() != self.signature.decoupled {
            let model = &self.signature.model;
            let text = format!(
                "ensemble '{model}' has to be loaded again: one of its models changed the number of its responses"
            );
            return Err(Error::unavailable(text).retry(false));
        }
        self.compiled.store(compiled.clone());
        Ok((compiled, models))
    }

    /// The versions that make its responses, including those of nested ensembles, in the order of steps: their loads
    /// and fingerprints; and whether one of them reads parameters of requests. Taken from the current table; `None` if
    /// one does not serve.
    pub(crate) fn made_by(&self, table: &Table) -> Option<(Vec<Maker>, bool)> {
        let (mut seen, mut all, mut reads_parameters) = (HashSet::new(), Vec::new(), false);
        let mut open = vec![self];
        while let Some(ensemble) = open.pop() {
            for step in &ensemble.config.step {
                let version = version_of(table, &ensemble.namespace, step).ok()?;
                if seen.insert(version.identity.load) {
                    all.push((version.identity.load, version.identity.fingerprint));
                    reads_parameters |= version.scheduling.texts.is_some();
                    open.extend(version.graph());
                }
            }
        }
        Some((all, reads_parameters))
    }

    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        Some(self.directory.upgrade()?.table())
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.compiled.load().plan.clone()
    }

    /// True if a model that it calls read its inputs on a device when the plan was made.
    pub(crate) fn reads_on_device(&self) -> bool {
        self.compiled.load().reads_on_device
    }

    /// True if a step keeps the state of sequences.
    pub(crate) fn keeps_state(&self) -> bool {
        !self.compiled.load().in_turn.is_empty()
    }

    /// Number of waiting calls, of all requests.
    pub(crate) fn waiting(&self) -> usize {
        let in_turn = self.turns.lock().waiting();
        in_turn + self.inflight.lock().waiting()
    }

    /// Removes waiting calls of cancelled requests, and rejects at most `max`. Returns whether there are more to
    /// reject.
    pub(crate) fn sweep_cancelled(&self, max: usize) -> bool {
        // One pass: with a pass per part, thousands of calls would block the locks that reactors need.
        let mut withdrawn = self.inflight.lock().withdraw(StepCall::is_cancelled);
        withdrawn.extend(self.turns.lock().withdraw(StepCall::is_cancelled));
        let (some, rest) = {
            let mut all = self.withdrawn.lock();
            all.append(&mut withdrawn);
            let rest = all.len().saturating_sub(max);
            (all.split_off(rest), rest)
        };
        let _scope = DeliveryScope::begin();
        some.into_iter().for_each(StepCall::cancel);
        rest > 0
    }
}

/// # Errors
/// INVALID_ARG, with Triton's text: the ensemble would call itself through versions that serve now.
fn reject_cycle(directory: &Weak<Directory>, namespace: &str, name: &str, config: &ModelEnsembling) -> Result<()> {
    let directory = directory.upgrade().ok_or_else(|| Error::unavailable("Server exiting"))?;
    let table = directory.table();
    let own = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([(name.to_owned(), name.to_owned(), namespace.to_owned(), config.clone())]);
    // Each with the ensemble that contains it, breadth first.
    while let Some((before, at, namespace, config)) = open.pop_front() {
        for step in &config.step {
            let in_own = format!("{namespace}/{}", step.model_name);
            let key = table.key(&namespace, &step.model_name).map_or_else(|_| in_own.clone(), |key| key.into_owned());
            if key == own || (!namespace.is_empty() && in_own == own) {
                // Triton names the one that closes the cycle first; for a pair it is the one that is loaded.
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

/// The `model_version` of a step that means the latest one.
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
    let ordered = OrderKept::of(models.iter().filter(|_| plan.decoupled()));
    Ok(Compiled { plan, in_turn, made_from, reads_on_device, _ordered: ordered })
}
