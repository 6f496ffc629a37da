//! The engine: backends, the table of models, and the steps that load and unload versions.

use crate::chat_model;
use crate::cycles::Cycles;
use crate::deadlines::Deadlines;
use crate::directory::Directory;
use crate::hangs::Hangs;
use crate::load::{Load, LoadMeter};
use crate::pool::Pool;
use crate::rate_limit::Resources;
use crate::readiness_query::ReadinessState;
use crate::statistics::{Snapshot, VersionStatistics};
use crate::table::{ModelEntry, ServerState, Table, VersionEntry, VersionRow, VersionState, parse_version};
use crate::timer::Timer;
use crate::usage::UsageLog;
use crate::usage_watch::UsageWatch;
use crate::version::{Continuing, EngineContext, ModelVersion};
use backend::{Backend, ModelIo, OpenSpec};
use cache::{Cache, LocalCache, Secret};
use memory::RegionRegistry;
use options::{EngineOptions, ServerMetadata};
use parking_lot::Mutex;
use protocol::Regions;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tensor::{Error, RegionRef, Result};
use trace::Tracer;

/// All models of a server, and their shared state.
pub struct Engine {
    backends: Vec<Arc<dyn Backend>>,
    pub(crate) directory: Arc<Directory>,
    opened: Mutex<HashMap<u32, OpenedModel>>,
    handles: AtomicU32,
    state: AtomicU8,
    regions: RegionRegistry,
    pub(crate) shared: Arc<EngineContext>,
    deadlines: OnceLock<Arc<Deadlines>>,
    cycles: OnceLock<Arc<Cycles>>,
    hangs: OnceLock<Arc<Hangs>>,
    usage: OnceLock<Arc<UsageWatch>>,
    load: LoadMeter,
    /// Subscription to device failures.
    listening: OnceLock<device::failure::Listening>,
    me: Weak<Engine>,
}

/// An opened model and its origin; `None` for an ensemble, which has no files.
pub(crate) type OpenedModel = (OpenSpec, Option<Box<dyn backend::Opened>>);

/// An opened version that waits for its completed configuration.
pub struct OpenedVersion {
    /// Pass this to `publish` or `discard`, once.
    pub handle: u32,
    /// Inputs and outputs described by the model file.
    pub io: Option<ModelIo>,
    /// See [`backend::Opened::completed`].
    pub completed: Option<String>,
}

/// Gauges of traces waiting for the exporter, and of dropped ones.
fn trace_gauges(tracer: &Tracer) -> [(&'static str, &'static str, f64); 6] {
    use trace::limits::{TRACES_OPEN_BYTES_MAX, TRACES_WAITING_BYTES_MAX, TRACES_WAITING_MAX};
    let (records, bytes) = tracer.waiting();
    [
        ("nereid_trace_bytes_open", "Bytes of tensors in traces of requests in flight", tracer.open_bytes() as f64),
        ("nereid_trace_bytes_open_max", "Limit of nereid_trace_bytes_open", TRACES_OPEN_BYTES_MAX as f64),
        ("nereid_trace_records_waiting", "Traces that wait for the exporter", records as f64),
        ("nereid_trace_records_waiting_max", "Limit of nereid_trace_records_waiting", TRACES_WAITING_MAX as f64),
        ("nereid_trace_bytes_waiting", "Bytes of the traces that wait", bytes as f64),
        ("nereid_trace_bytes_waiting_max", "Limit of nereid_trace_bytes_waiting", TRACES_WAITING_BYTES_MAX as f64),
    ]
}

impl Engine {
    /// Creates an engine without models.
    ///
    /// # Errors
    /// INTERNAL if no thread can be started; INVALID_ARG if the machine has less memory than the response cache needs,
    /// or for an option of chats.
    pub fn new(options: EngineOptions, backends: Vec<Arc<dyn Backend>>) -> Result<Arc<Self>> {
        let cache = options.response_cache_bytes.map(LocalCache::new).transpose()?;
        Self::with_cache(options, backends, cache.map(|cache| Arc::new(cache) as Arc<dyn Cache>))
    }

    /// Creates an engine without models, with this response cache.
    ///
    /// # Errors
    /// INTERNAL if no thread can be started; INVALID_ARG for an option of chats.
    pub fn with_cache(
        options: EngineOptions,
        backends: Vec<Arc<dyn Backend>>,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Arc<Self>> {
        chat_model::check(&options.chat)?;
        let pool = Pool::new(options.worker_threads_max)
            .map_err(|e| Error::internal(format!("cannot start a worker thread: {e}")))?;
        let directory = Arc::new(Directory::default());
        // Weak, because the table owns the versions.
        let changed = Arc::downgrade(&directory);
        let on_readiness = Box::new(move || changed.upgrade().iter().for_each(|directory| directory.changed()));
        let engine = Arc::new_cyclic(|me: &Weak<Self>| Self {
            backends,
            me: me.clone(),
            shared: Arc::new(EngineContext {
                pool,
                timer: Timer::new(),
                exiting: AtomicBool::new(false),
                inflight: AtomicU64::new(0),
                occupied: AtomicU64::new(0),
                computing: AtomicU32::new(0),
                cache: cache.map(|cache| (cache, Secret::random())),
                resources: options.rate_limit.clone().map(Resources::new),
                continuing: Continuing::default(),
                recent_bytes: Arc::default(),
                usage: UsageLog::default(),
                loads: AtomicU64::new(0),
                tracer: Tracer::default(),
                on_readiness,
                options,
            }),
            directory,
            opened: Mutex::default(),
            handles: AtomicU32::new(1),
            state: AtomicU8::new(ServerState::Initializing as u8),
            listening: OnceLock::new(),
            deadlines: OnceLock::new(),
            cycles: OnceLock::new(),
            hangs: OnceLock::new(),
            usage: OnceLock::new(),
            load: LoadMeter::default(),
            regions: RegionRegistry::new(memory::RegionLimits::default()),
        });
        let me = Arc::downgrade(&engine);
        let listening = device::failure::on_failure(move |device, why| {
            if let Some(engine) = me.upgrade() {
                engine.device_failed(device, why);
            }
        });
        drop(engine.listening.set(listening));
        Ok(engine)
    }

    /// The settings of the engine.
    pub fn options(&self) -> &EngineOptions {
        &self.shared.options
    }

    /// Metadata of the server.
    pub fn server_metadata(&self) -> &ServerMetadata {
        &self.shared.options.metadata
    }

    /// The tracer of requests.
    pub fn tracer(&self) -> &Tracer {
        &self.shared.tracer
    }

    /// Shared memory regions that clients registered.
    pub fn regions(&self) -> &RegionRegistry {
        &self.regions
    }

    /// The version of a request; `version` is the client's text, "" = the highest ready one.
    ///
    /// # Errors
    /// INVALID_ARG if `version` is not a number; otherwise the errors of rows 1–4 of protocol.md 2.9.
    pub fn model(&self, name: &str, version: &str) -> Result<Arc<ModelVersion>> {
        self.model_at(name, parse_version(version)?)
    }

    /// Like `model`, by the number of the version.
    pub(crate) fn model_at(&self, name: &str, version: Option<i64>) -> Result<Arc<ModelVersion>> {
        let table = self.directory.load();
        table.find(name, version).cloned().map_err(|error| {
            let reason = table.reason(name, version).filter(|_| self.shared.options.reasons_in_errors);
            let Some(reason) = reason else { return self.unless_failed(error) };
            self.unless_failed(error.with_text(format!("{}: {reason}", error.message())))
        })
    }

    /// Timeouts of calls between models.
    pub(crate) fn deadlines(&self) -> Arc<Deadlines> {
        self.deadlines.get_or_init(|| Deadlines::new(self.shared.timer.clone())).clone()
    }

    /// The check for models whose instances wait for one another.
    pub(crate) fn cycles(&self) -> &Cycles {
        self.cycles.get_or_init(|| Cycles::new(Arc::downgrade(&self.directory), self.shared.timer.clone()))
    }

    /// Readiness of a version. False for unknown ones, and for all while the server exits: load balancers that ask for
    /// one model must notice before it rejects inferences.
    ///
    /// # Errors
    /// INVALID_ARG if `version` is not a number.
    pub fn model_ready(&self, name: &str, version: &str) -> Result<ReadinessState> {
        let ready = self.model_ready_for_models(name, version)?;
        Ok(if self.is_exiting() { ReadinessState::Known(false) } else { ready })
    }

    /// Like [`model_ready`](Self::model_ready), for requests in flight, which may call models while the server exits.
    ///
    /// # Errors
    /// INVALID_ARG if `version` is not a number.
    pub fn model_ready_for_models(&self, name: &str, version: &str) -> Result<ReadinessState> {
        let version = parse_version(version)?;
        let table = self.directory.load();
        match table.find(name, version) {
            Ok(version) => Ok(version.readiness()),
            Err(_) => self.reject_failed().map(|()| ReadinessState::Known(false)),
        }
    }

    /// Like [`model_ready`](Self::model_ready), without asking models.
    ///
    /// # Errors
    /// INVALID_ARG if `version` is not a number.
    pub fn is_model_ready(&self, name: &str, version: &str) -> Result<bool> {
        let version = parse_version(version)?;
        match self.directory.load().find(name, version) {
            Ok(version) => Ok(!self.is_exiting() && version.is_ready_unasked()),
            Err(_) => self.reject_failed().map(|()| false),
        }
    }

    /// Begins to look for executions that hang.
    pub(crate) fn look_for_hangs(&self) {
        let seconds = self.shared.options.hang_warning_secs;
        if seconds > 0 {
            let new = || Hangs::new(Arc::downgrade(&self.directory), self.shared.timer.clone(), seconds);
            self.hangs.get_or_init(new);
        }
    }

    /// Begins to note the use of the cores.
    pub(crate) fn watch_usage(&self) {
        self.usage.get_or_init(|| UsageWatch::new(&self.shared, &self.directory));
    }

    /// A server whose start failed has no models, and reports that it is not ready instead.
    fn reject_failed(&self) -> Result<()> {
        if self.server_state() == ServerState::Failed { Err(Error::unavailable("Server not ready")) } else { Ok(()) }
    }

    fn unless_failed(&self, error: Error) -> Error {
        self.reject_failed().err().unwrap_or(error)
    }

    /// Ready versions of a model, ascending.
    pub fn ready_versions(&self, name: &str) -> Vec<i64> {
        let table = self.directory.load();
        let entry = table.key("", name).ok().and_then(|key| table.models.get(&*key));
        entry.map(|e| e.ready().map(|v| v.identity.number).collect()).unwrap_or_default()
    }

    /// Number of known models.
    pub fn models(&self) -> usize {
        self.directory.load().models.len()
    }

    /// Statistics of one version, of all ready versions of a model, or (name "") of all ready versions in name order.
    ///
    /// # Errors
    /// The texts of protocol.md 1.7.
    pub fn statistics(&self, name: &str, version: &str) -> Result<Vec<VersionStatistics>> {
        let version = parse_version(version)?;
        self.reject_failed()?;
        let table = self.directory.load();
        if name.is_empty() {
            let mut names: Vec<_> = table.models.iter().collect();
            names.sort_unstable_by_key(|(name, _)| name.as_str());
            return Ok(names.into_iter().flat_map(|(_, e)| e.ready().map(|v| v.statistics())).collect());
        }
        let unavailable = || Error::invalid(format!("requested model '{name}' is not available"));
        let key = table.key("", name)?;
        let entry = table.models.get(&*key).filter(|e| e.ready().next().is_some()).ok_or_else(unavailable)?;
        let Some(version) = version else {
            return Ok(entry.ready().map(|v| v.statistics()).collect());
        };
        entry
            .ready()
            .find(|v| v.identity.number == version)
            .map(|v| vec![v.statistics()])
            .ok_or_else(|| Error::invalid(format!("requested model version is not available for model '{name}'")))
    }

    /// The load, for load balancers.
    pub fn load(&self) -> Load {
        let table = self.directory.load();
        self.load.measure(table.models.values().flat_map(|entry| entry.ready()))
    }

    /// All values of a metrics scrape.
    pub fn snapshot(&self) -> Snapshot {
        let versions = self.statistics("", "").unwrap_or_default();
        let (threads, threads_max) = self.shared.pool.threads();
        let cache = self.shared.cache.as_ref().and_then(|(cache, _)| cache.counters());
        let mut gauges = vec![
            ("nereid_inflight_requests", "Accepted requests without a final response", self.inflight() as f64),
            ("nereid_worker_threads", "Worker threads alive", threads as f64),
            ("nereid_worker_threads_max", "Limit of nereid_worker_threads", threads_max as f64),
            ("nereid_why_bytes", "Bytes of events that explain requests", self.shared.recent_bytes.bytes() as f64),
            ("nereid_why_bytes_max", "Limit of nereid_why_bytes", why::SERVER_BYTES_MAX as f64),
        ];
        gauges.extend(self.at_work());
        gauges.extend(trace_gauges(&self.shared.tracer));
        let failed = device::failure::failures() as f64;
        gauges.push(("nereid_devices_failed", "Devices that failed, and cannot be used before the next start", failed));
        let sequences_max = f64::from(self.shared.options.sequence_limit);
        gauges.push(("nereid_sequences", "Sequences in progress, all models together", self.sequences() as f64));
        gauges.push(("nereid_sequences_max", "Limit of nereid_sequences", sequences_max));
        if let Some(c) = &cache {
            gauges.push(("nereid_response_cache_bytes", "Bytes of the response cache in use", c.used_bytes as f64));
            gauges.push(("nereid_response_cache_bytes_max", "Size of the response cache", c.size_bytes as f64));
        }
        gauges.extend(self.shared.cache.iter().flat_map(|(cache, _)| cache.gauges()));
        let resources = self.shared.resources.as_ref().map(|r| r.usage()).unwrap_or_default();
        Snapshot { versions, gauges, cache, resources }
    }

    /// False while the server starts with closed ports, after its start failed, and when it exits.
    pub fn is_live(&self) -> bool {
        matches!(self.server_state(), ServerState::Ready | ServerState::Loading) && !self.is_to_end()
    }

    /// True if a device failed and the process has to end for that.
    fn is_to_end(&self) -> bool {
        self.shared.options.exit_on_device_error && device::failure::failures() > 0
    }

    /// True if the server takes inferences and, with strict readiness, every known version does. Models are not asked.
    pub fn is_ready(&self) -> bool {
        self.is_live()
            && self.server_state() == ServerState::Ready
            && (!self.shared.options.strict_readiness || self.directory.load().all_ready())
    }

    /// Like [`is_ready`](Self::is_ready), but asks the models that have to be.
    pub fn readiness(&self) -> ReadinessState {
        if !self.is_ready() || !self.shared.options.strict_readiness {
            return ReadinessState::Known(self.is_ready());
        }
        ReadinessState::all(self.directory.load().may_be_unready().iter().map(|version| version.readiness()))
    }

    /// All versions that were ever attempted, of one model or of all; those of one model are ascending.
    pub fn versions(&self, model: Option<&str>) -> Vec<VersionRow> {
        let table = self.directory.load();
        let of = |(key, entry): (&String, &ModelEntry)| -> Vec<_> {
            let why = |v: &VersionEntry| v.serving.as_ref().and_then(|v| v.serving.why_gone());
            let row =
                |(n, v): (&i64, &VersionEntry)| (key.clone(), *n, v.state, why(v).unwrap_or_else(|| v.reason.clone()));
            entry.versions.iter().map(row).collect()
        };
        match model {
            Some(model) => table.models.get_key_value(model).map(of).unwrap_or_default(),
            None => table.models.iter().flat_map(of).collect(),
        }
    }

    /// True once the server is about to end: nothing is ready.
    pub fn is_exiting(&self) -> bool {
        matches!(self.server_state(), ServerState::Leaving | ServerState::Exiting)
    }

    /// State of the server.
    pub fn server_state(&self) -> ServerState {
        match self.state.load(Ordering::Acquire) {
            0 => ServerState::Initializing,
            1 => ServerState::Ready,
            3 => ServerState::Failed,
            4 => ServerState::Loading,
            5 => ServerState::Leaving,
            _ => ServerState::Exiting,
        }
    }

    /// Changes the state of the server. `Exiting` is final and rejects new inferences at once.
    pub fn set_server_state(&self, state: ServerState) {
        let begins_to_exit = state == ServerState::Exiting && !self.shared.exiting.swap(true, Ordering::AcqRel);
        if self.server_state() != ServerState::Exiting {
            self.state.store(state as u8, Ordering::Release);
        }
        if begins_to_exit {
            for version in self.serving_all().iter().chain(&self.shared.continuing.all()) {
                version.server_exits();
            }
        }
        self.directory.changed();
    }

    fn serving_all(&self) -> Vec<Arc<ModelVersion>> {
        let table = self.directory.load();
        let versions = table.models.values().flat_map(|entry| entry.versions.values());
        versions.filter_map(|v| v.serving.clone()).collect()
    }

    /// Calls `f` now, and on the changing thread after each change that may affect `is_ready`. Earlier callbacks stay.
    pub fn on_change(&self, f: impl Fn(&Self) + Send + 'static) {
        let me = self.me.clone();
        self.directory.on_change(Box::new(move || {
            if let Some(engine) = me.upgrade() {
                f(&engine);
            }
        }));
        self.directory.changed();
    }

    /// Accepted requests that are not over; if there are none, unfinished batches.
    pub fn inflight(&self) -> u64 {
        match self.shared.inflight.load(Ordering::Acquire) {
            0 => self.shared.occupied.load(Ordering::Acquire),
            requests => requests,
        }
    }

    /// Gauges of the requests that wait and that execute. Routers read both without labels: of a family with a series
    /// per model, they would take one model's. An ensemble has no instances: its steps count, also those that wait for
    /// their place.
    pub fn at_work(&self) -> [(&'static str, &'static str, f64); 2] {
        // Also those that were replaced or unloaded and still have requests.
        let (mut waiting, mut running) = (0, 0);
        self.directory.each_alive(|version| match version.graph() {
            Some(ensemble) => waiting += ensemble.waiting() as u64,
            None => {
                // The queue of a text model counts texts, so it may be longer than its number of requests.
                let pending = version.serving.pending.load(Ordering::Relaxed);
                waiting += pending;
                running += version.inflight().saturating_sub(pending);
            }
        });
        [
            ("nereid_requests_waiting", "Requests that wait to be executed, of all models.", waiting as f64),
            ("nereid_requests_running", "Requests that are being executed, of all models.", running as f64),
        ]
    }

    /// Sequences in progress, including those of replaced versions.
    pub fn sequences(&self) -> u64 {
        let continuing = self.shared.continuing.all();
        self.serving_all().iter().chain(&continuing).map(|version| version.sequences()).sum()
    }

    /// Waits, at most `limit`, until nothing is in flight and no sequence in progress. Returns the requests in flight,
    /// without sequences that wait for their client. Blocks, so it must not be called on a reactor.
    #[expect(clippy::disallowed_methods, reason = "an event would cost each request")]
    pub fn drain(&self, limit: Duration) -> u64 {
        let end = Instant::now() + limit;
        loop {
            let left = self.inflight();
            if left + self.sequences() == 0 || Instant::now() >= end {
                return left;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends threads and forgets every model. Requests in flight still get their responses.
    pub fn close(&self) {
        self.set_server_state(ServerState::Exiting);
        self.directory.change(|table| *table = Table::default());
        self.opened.lock().clear();
        if let Some((cache, _)) = &self.shared.cache {
            cache.close();
        }
        self.shared.continuing.forget(None);
        self.shared.timer.close();
        self.shared.pool.close();
    }

    /// Opens a model, and blocks for as long as that takes. Without a backend the version is an ensemble.
    ///
    /// # Errors
    /// The backend is unknown, or its error.
    pub fn open(&self, backend: &str, spec: OpenSpec) -> Result<OpenedVersion> {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        if backend.is_empty() {
            self.opened.lock().insert(handle, (spec, None));
            return Ok(OpenedVersion { handle, io: None, completed: None });
        }
        let opened = self.backend(backend)?.open(&spec)?;
        let (io, completed) = (opened.io(), opened.completed());
        self.opened.lock().insert(handle, (spec, Some(opened)));
        Ok(OpenedVersion { handle, io, completed })
    }

    pub(crate) fn backend(&self, name: &str) -> Result<&dyn Backend> {
        self.backends.iter().find(|b| b.name() == name).map(|found| &**found).ok_or_else(|| {
            Error::invalid(format!(
                "unable to find backend library for backend '{name}', try specifying runtime on \
                 the model configuration."
            ))
        })
    }

    pub(crate) fn take_opened(&self, handle: u32) -> Result<OpenedModel> {
        let opened = self.opened.lock().remove(&handle);
        opened.ok_or_else(|| Error::internal(format!("model handle {handle} is not open")))
    }

    /// Drops an opened model that will not serve.
    pub fn discard(&self, handle: u32) {
        self.opened.lock().remove(&handle);
    }

    /// A device failed for good: versions lose their instances on it, and are not ready.
    fn device_failed(&self, device: u32, why: &str) {
        let why = device::failure::lost(device, why);
        for version in self.directory.load().may_be_unready() {
            version.device_failed(device, &why);
        }
        self.directory.changed();
    }

    pub(crate) fn serving(&self, name: &str, version: i64) -> Option<Arc<ModelVersion>> {
        self.directory.load().models.get(name)?.versions.get(&version)?.serving.clone()
    }

    /// Keeps a version that is about to be replaced for its sequences.
    pub(crate) fn keep(&self, version: Option<&Arc<ModelVersion>>) {
        let Some(version) = version.filter(|v| v.scheduling.sequencing.is_some()) else { return };
        if let Some(gone) = self.shared.continuing.keep(version.clone()) {
            gone.end_sequences();
        }
    }

    /// Sets the state of a version that does not serve, or adds it. Only `publish` makes it READY; a READY version
    /// keeps serving while it is LOADING (a reload).
    pub fn set_version_state(&self, name: &str, version: i64, state: VersionState, reason: &str) {
        self.directory.change(|table| {
            table.change(name, |entry| {
                let old = entry.versions.get(&version);
                let serves = old.is_some_and(|v| v.state == VersionState::Ready && v.serving.is_some());
                if state != VersionState::Ready && !(state == VersionState::Loading && serves) {
                    entry.versions.insert(version, VersionEntry::not_serving(state, reason));
                }
                true
            });
        });
    }

    /// Adds a model without versions, or removes a model.
    pub fn set_model_known(&self, name: &str, known: bool) {
        self.directory.change(|table| table.change(name, |_| known));
    }

    /// Takes a version out of service: UNLOADING at once. Call `retired` after its last request.
    pub fn retire(&self, name: &str, version: i64) -> Option<Arc<ModelVersion>> {
        self.keep(self.serving(name, version).as_ref());
        let (mut retiring, mut is_last) = (None, true);
        self.directory.change(|table| {
            table.change_known(name, |entry| {
                let Some(v) = entry.versions.get_mut(&version) else { return };
                v.state = VersionState::Unloading;
                retiring = v.serving.take();
                v.leaving = retiring.as_ref().map(|retiring| retiring.identity.load);
                is_last = entry.ready().next().is_none();
            });
        });
        if is_last {
            // Unloaded, not replaced, so its sequences end. Accepted requests still finish.
            for former in self.shared.continuing.forget(Some(name)) {
                if retiring.as_ref().is_none_or(|retiring| !Arc::ptr_eq(retiring, &former)) {
                    former.end_sequences();
                }
            }
        } else if let Some(retiring) = &retiring {
            self.shared.continuing.retire(name, version);
            retiring.is_replaced_now();
        }
        if let Some(retiring) = &retiring {
            retiring.leaves_service();
        }
        retiring
    }

    /// Called after the last request of the retired load of a version: it is UNLOADED, unless it has a newer state.
    pub fn retired(&self, name: &str, version: i64, load: Option<u64>, reason: &str) {
        self.directory.change(|table| {
            table.change_known(name, |entry| {
                if let Some(v) = entry.versions.get_mut(&version)
                    && v.state == VersionState::Unloading
                    && v.leaving == load
                {
                    v.state = VersionState::Unloaded;
                    v.reason = reason.to_owned();
                }
            });
        });
    }
}

impl Regions for Engine {
    fn resolve(&self, name: &str, offset: u64, byte_size: u64) -> Result<RegionRef> {
        self.regions.resolve(name, offset, byte_size)
    }
}
