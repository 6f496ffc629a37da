//! Publishes versions: creates one from an opened model and its completed configuration, and lets it serve.

use crate::batching_library::BatchingLibrary;
use crate::cached::Cached;
use crate::chat_model::ChatModel;
use crate::compile;
use crate::ensemble::Ensemble;
use crate::histograms::HistogramShape;
use crate::identity::{ConfigTexts, Identity};
use crate::instance_config::{InstanceConfig, chosen_cores};
use crate::instances::InstanceListener;
use crate::limits;
use crate::on_devices::OnDevices;
use crate::registry::Engine;
use crate::remote_state::RemoteState;
use crate::schedule::Schedule;
use crate::scheduling::Scheduling;
use crate::sequence::Sequencing;
use crate::serving_state::{Dispatch, ServingState};
use crate::statistics::Statistics;
use crate::table::{VersionEntry, VersionState, split_key};
use crate::text_identity::TextIdentity;
use crate::texts;
use crate::version::{ModelVersion, Served};
use crate::warmup;
use arc_swap::ArcSwap;
use backend::{Model, OpenSpec, Opened, all_placements, placements};
use bytes::Bytes;
use cache::Fingerprint;
use memory::{Ledger, MemoryPromise};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_config::SchedulingChoice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use tensor::{Error, Result};

/// Everything that an opened version needs to serve.
#[derive(Debug, Clone, Default)]
pub struct PublishSpec {
    /// Completed `inference.ModelConfig`, encoded.
    pub config: Bytes,
    /// Configuration as JSON.
    pub config_json: String,
    /// Label files by output name.
    pub labels: Vec<(String, Bytes)>,
    /// `platform` of the metadata.
    pub platform: String,
}

/// The parts of a version that its backend or the compiler of graphs makes.
struct Parts {
    /// Memory promised to the model.
    admitted: Option<MemoryPromise>,
    signature: Arc<Signature>,
    served: Served,
    sequencing: Option<Sequencing>,
}

impl Engine {
    /// Finishes an opened model and lets it serve, replacing a version of the same number: its requests in flight
    /// finish. Blocks for as long as the backend takes.
    ///
    /// # Errors
    /// The configuration does not fit the model. The handle is used up in any case.
    pub fn publish(&self, handle: u32, spec: PublishSpec) -> Result<()> {
        let (open, opened) = self.take_opened(handle)?;
        let config = ModelConfig::parse(&spec.config)?;
        limits::check(&config)?;
        let version = self.version_of((&open, opened), &config, spec)?;
        self.look_for_hangs();
        self.watch_usage();
        version.notify_remote(|remote| remote.serve(Arc::new(InstanceListener::of(&version))));
        let names: Vec<_> = (0..).zip(compile::instance_names(&config)).collect();
        warmup::run(&version, &config, &open.model_directory, &names)?;
        // Kept before the table changes, because a request to the new version may continue a sequence of the old one.
        let former = self.serving(&open.model, open.version);
        self.keep(former.as_ref());
        self.directory.change(|table| {
            table.change(&open.model, |entry| {
                let serving = Some(version.clone());
                let ready = VersionEntry { serving, ..VersionEntry::not_serving(VersionState::Ready, "") };
                entry.versions.insert(open.version, ready);
                true
            });
        });
        if let Some(former) = former {
            former.is_replaced_now();
            former.leaves_service();
        }
        // A device may have failed before failures were reported to this version.
        version.look_at_devices();
        Ok(())
    }

    /// Creates a version from an opened model and its completed configuration. It does not serve yet.
    fn version_of(
        &self,
        (open, opened): (&OpenSpec, Option<Box<dyn Opened>>),
        config: &ModelConfig,
        spec: PublishSpec,
    ) -> Result<Arc<ModelVersion>> {
        let options = &self.shared.options;
        let is_graph = opened.is_none();
        let mut schedule = compile::scheduling(config, options.strict_batching_delay, options.delays[0]);
        let signature = compile::signature(config, open.version, &spec.labels)?;
        // A graph has no instances.
        let placed = OnDevices::of(placements(config).filter(|_| !is_graph).map(|instance| instance.device));
        placed.ordinals().iter().try_for_each(|&device| device::failure::check(device))?;
        let limiter = self.shared.resources.as_ref().filter(|_| !is_graph);
        let limited = limiter.map(|limiter| limiter.register(&compile::limited(config))).transpose()?;
        // In this order, so that memory is released after the model if the rest fails.
        let Parts { admitted, signature, served, sequencing } =
            self.parts_of((open, opened), config, &spec, signature, &schedule)?;
        if let Some(text) = served.model().and_then(Model::text) {
            texts::check(open, config)?;
            texts::schedule(&mut schedule, text.batch_tokens_max());
        }
        let chat = ChatModel::of(config, &signature, open, &options.chat)?.map(Box::new);
        let text = TextIdentity::of(config, &signature, served.model(), chat.is_some())?.map(Box::new);
        let batching = open.batching.as_ref().map(|library| {
            BatchingLibrary::start(self.backend("c")?, library, open, config, &spec.config_json, &signature)
        });
        let batching = batching.transpose()?;
        let is_remote = served.remote().is_some();
        let on_device = !placed.is_empty();
        if on_device && !is_remote {
            // Threads that cannot wait read request bodies into it.
            device::prepare_pinned();
        }
        let identity = Identity {
            number: open.version,
            platform: spec.platform,
            namespace: split_key(&open.model).map_or_else(String::new, |(namespace, _)| namespace.to_owned()),
            model_directory: open.model_directory.clone(),
            fingerprint: self.fingerprint(open, is_graph, &spec.config),
            config: ArcSwap::from_pointee(ConfigTexts { json: Bytes::from(spec.config_json), pb: spec.config }),
            load: self.shared.loads.fetch_add(1, Ordering::Relaxed),
            file_bytes: OnceLock::new(),
        };
        let scheduling = Scheduling::new(&schedule, &signature, served.model(), on_device, sequencing, limited);
        let cached = Cached::of(self.shared.cache.as_ref(), config, &signature, &identity);
        let statistics = Statistics::new(
            &options.metrics,
            compile::histogram_buckets_ms(config),
            scheduling.capabilities.batch_size_without_batching.filter(|_| schedule.max_batch_size == 0),
            cached.is_some(),
            placed,
            HistogramShape {
                is_decoupled: signature.decoupled,
                // A graph has no batches.
                rows_max: if is_graph { 0 } else { schedule.max_batch_size },
                tokens_max: schedule.tokens_max,
            },
        );
        schedule.cores = chosen_cores(scheduling.capabilities.cores, config);
        let instances = schedule.cores.unwrap_or(schedule.instances);
        let dispatch = Dispatch::new(
            Schedule::of(schedule, scheduling.sequencing.as_ref()),
            instances,
            why::Ring::new(self.shared.recent_bytes.clone()),
        );
        let serving = ServingState::new(dispatch, InstanceConfig::all(config), is_remote.then(RemoteState::default));
        let trace = self.shared.tracer.watch(&signature.model);
        let version = Arc::new_cyclic(|me: &Weak<ModelVersion>| {
            scheduling.limited.iter().for_each(|limited| limited.belongs_to(me.clone(), &signature));
            ModelVersion {
                signature,
                identity,
                served,
                batching,
                scheduling,
                serving,
                statistics,
                text,
                chat,
                trace,
                cached,
                shared: self.shared.clone(),
                _admitted: admitted,
                me: me.clone(),
            }
        });
        self.directory.add(&version);
        Ok(version)
    }

    /// Finishes an opened model, or compiles a graph.
    fn parts_of(
        &self,
        (open, opened): (&OpenSpec, Option<Box<dyn Opened>>),
        config: &ModelConfig,
        spec: &PublishSpec,
        signature: Signature,
        schedule: &scheduler::Config,
    ) -> Result<Parts> {
        let Some(mut opened) = opened else {
            let Some(SchedulingChoice::EnsembleScheduling(graph)) = &config.scheduling_choice else {
                return Err(Error::internal(format!("model '{}' has neither a backend nor steps", open.model)));
            };
            let namespace = split_key(&open.model).map_or("", |(namespace, _)| namespace);
            let directory = Arc::downgrade(&self.directory);
            let (ensemble, signature) = Ensemble::new(directory, namespace, signature, graph)?;
            let served = Served::Graph(Box::new(ensemble));
            return Ok(Parts { admitted: None, signature, served, sequencing: None });
        };
        opened.configured(&spec.config_json);
        // The memory promised to a version that is about to be replaced is still in use.
        let what = format!("model '{}' version {}", open.model, open.version);
        let mut admitted = Ledger::global().admit(&what, &opened.needs()?)?;
        let signature = Arc::new(signature);
        let options = &self.shared.options;
        let sequencing = Sequencing::of(config, &signature, schedule, options, &open.model_directory)?;
        let seen = sequencing.as_ref().map(|s| Arc::new(s.seen_by_backend(&signature)));
        let model = opened.finish(config, seen.unwrap_or_else(|| signature.clone()))?;
        admitted.loaded();
        for instance in all_placements(config) {
            if let Some(device) = instance.device {
                Ledger::global().check_limit(&instance.name(), device)?;
            }
        }
        Ok(Parts { admitted: Some(admitted), signature, served: Served::Model(model), sequencing })
    }

    /// Hash of everything that responses of a version depend on, if servers share a response cache. Without it the
    /// version has no cache, because it might get responses of another one's files.
    fn fingerprint(&self, open: &OpenSpec, is_ensemble: bool, config: &[u8]) -> Option<Fingerprint> {
        self.shared.cache.as_ref().filter(|(cache, _)| cache.is_shared())?;
        if is_ensemble {
            // Its models are added at lookup.
            return Some(Fingerprint::of_texts(&[config]));
        }
        let mut settings = format!("{:?}", open.settings);
        if let Some(library) = &open.library {
            let file = std::fs::metadata(&library.path).map(|file| (file.len(), file.modified().ok())).ok();
            settings.push_str(&format!("{library:?}{file:?}"));
        }
        // The responses also depend on the code of a Python backend.
        let code = open.code_directory.as_deref().map(|directory| Fingerprint::of_files(directory, &[])).transpose();
        code.and_then(|code| {
            let code = code.as_ref().map_or(&[][..], |code| code.bytes());
            Fingerprint::of_files(&open.version_directory, &[config, settings.as_bytes(), code])
        })
        .inspect_err(|e| {
            let directory = open.version_directory.display();
            log::warn!("model '{}' has no response cache: {directory} cannot be read: {e}", open.model);
        })
        .ok()
    }

    /// Changes the instances and configuration of a serving version without a reload: remaining instances
    /// continue, and statistics are kept. Returns false if only a reload can do that. Blocks while new ones start.
    ///
    /// # Errors
    /// INVALID_ARG for too many instances, or the error of a new one; nothing has changed then.
    pub fn update(&self, name: &str, version: i64, config_pb: Bytes, config_json: String) -> Result<bool> {
        let config = ModelConfig::parse(&config_pb)?;
        limits::check(&config)?;
        let serving = self.directory.load().find(name, Some(version)).cloned();
        let Ok(serving) = serving else { return Ok(false) };
        serving.set_instances(&config, ConfigTexts { json: Bytes::from(config_json), pb: config_pb })
    }
}
