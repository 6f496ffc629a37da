//! The core as a JavaScript object.

use crate::control::Bridge;
use crate::failure::{Result, thrown, unbound};
use crate::json::Json;
use crate::metrics::Families;
use crate::services::Services;
use crate::settle::{Report, Settled, Settler};
use crate::stream::Pull;
use crate::workers::{NodeThreads, WorkerCall};
use crate::{convert, device_memory, embed, gpu, infer, logging, objects as js, traces};
use backend::Host;
use backend_c::CBackend;
use backend_javascript::{JavaScriptBackend, Threads};
use backend_onnx::{ForestBackend, OnnxBackend, TextBackend};
use backend_python::PythonBackend;
use bytes::Bytes;
use cache_library::LibraryCache;
use cache_redis::RedisCache;
use device::Monitor;
use device::failure::Listening;
use engine::{Engine, ServerState, Started, Ticket, VersionState};
use frontend::embed::Embedded;
use frontend::{Bound, BoundListener, FrontEnd, FrontendOptions, StartFailure};
use napi::bindgen_prelude::{BigInt, Buffer, FnArgs, Function};
use napi_derive::napi;
use options::{CoreOptions, IssuerOptions, ListenOptions, OpenSpec, RequestLogOptions, TraceSetting};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Fault};

/// Time for connections to finish after the last response.
const CLOSE_GRACE: Duration = Duration::from_millis(500);
/// Time for freeing the memory of models at the end.
const UNLOAD_GRACE: Duration = Duration::from_secs(2);

/// The core, one per server. Methods with a `ticket` report through `onSettled` exactly once; the others return
/// directly. Errors are thrown with an `ErrorCode` as `code`.
#[napi]
pub struct NativeCore {
    engine: Arc<Engine>,
    control: Arc<Bridge>,
    services: Arc<Services>,
    /// Keys that the front ends accept; `None` = no key is needed.
    keys: Mutex<Option<Arc<frontend::Keyring>>>,
    /// Logs of requests and control calls of all front ends; dropped by `close`.
    logs: Mutex<Option<Arc<frontend::Logs>>>,
    settler: Mutex<Option<Settler>>,
    running: Arc<Mutex<Option<FrontEnd>>>,
    /// Front ends that are bound, but do not serve yet.
    bound: Mutex<Option<Bound>>,
    /// Socket for metrics, which JavaScript serves, until it takes the socket.
    metrics: Mutex<Option<BoundListener>>,
    tickets: Arc<Mutex<HashMap<u32, Ticket>>>,
    streams: Mutex<HashMap<u32, Arc<Pull>>>,
    runners: Runners,
    /// Requests that other servers of this process received; dropped by `close`.
    embedded: Arc<Mutex<Option<Embedded>>>,
    embedded_bodies: embed::Bodies,
    /// Dropped by `close`.
    gpus: Mutex<Option<(Monitor, Listening)>>,
}

/// Makes what runs models outside of the core.
#[derive(Clone)]
struct Runners {
    /// The main thread, which makes workers.
    threads: Arc<dyn Threads>,
    /// The processes of libraries.
    libraries: Arc<CBackend>,
}

fn failure(StartFailure { service, error }: StartFailure) -> js::BindFailure {
    js::BindFailure { service: service.into(), code: error.code().constant(), message: error.message().into() }
}

fn text(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}

#[napi]
impl NativeCore {
    #[napi(constructor)]
    pub fn new(
        #[napi(ts_arg_type = "CoreOptions")] options: Json<CoreOptions>,
        on_control: Function<'_, FnArgs<(js::ControlCall,)>, ()>,
        on_log: Function<'_, FnArgs<(js::LogRecord,)>, ()>,
        #[napi(ts_arg_type = "(ticket: number, failure: Failure | null, value: unknown) => void")] on_settled: Function<
            '_,
            Report,
            (),
        >,
        on_traces: Function<'_, (), ()>,
        on_device_failure: Function<'_, FnArgs<(String,)>, ()>,
        #[napi(ts_arg_type = "(id: number, start: WorkerStart | null, ends: boolean, explains: boolean) => void")]
        on_worker: Function<'_, WorkerCall, ()>,
    ) -> Result<Self> {
        let Json(mut options) = options;
        logging::install(&on_log).map_err(unbound)?;
        memory::pressure::check_container().map_err(|e| thrown(&e))?;
        convert::limit_memory(options.memory_limit_bytes);
        device_memory::limit(&options.device_memory);
        let library = options.onnxruntime_library;
        let mut backends = backend_test::all();
        backends.push(Arc::new(OnnxBackend::new(library.clone())));
        backends.push(Arc::new(OnnxBackend::plans(library.clone())));
        backends.push(Arc::new(TextBackend::new(library)));
        backends.push(Arc::new(ForestBackend));
        backends.push(Arc::new(PythonBackend::new(options.python)));
        let libraries = Arc::new(CBackend::new(options.libraries.clone()));
        backends.push(Arc::clone(&libraries) as _);
        let threads: Arc<dyn Threads> = Arc::new(NodeThreads::new(&on_worker).map_err(unbound)?);
        backends.push(Arc::new(JavaScriptBackend::new(options.javascript, Arc::clone(&threads))));
        let attached = backends.clone();
        options.engine.delays = ["TRITONSERVER_DELAY_SCHEDULER", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"].map(number_of);
        let engine = match (options.response_cache_redis, options.response_cache_library) {
            (Some(redis), _) => RedisCache::start(redis)
                .and_then(|cache| Engine::with_cache(options.engine, backends, Some(Arc::new(cache)))),
            (None, Some(library)) => LibraryCache::start(library, options.libraries)
                .and_then(|cache| Engine::with_cache(options.engine, backends, Some(Arc::new(cache)))),
            (None, None) => Engine::new(options.engine, backends),
        };
        let engine = engine.map_err(|e| thrown(&e))?;
        traces::notify(engine.tracer(), &on_traces).map_err(unbound)?;
        let control = Arc::new(Bridge::new(&on_control).map_err(unbound)?);
        let settler = Settler::new(&on_settled).map_err(unbound)?;
        let failures = gpu::notify_failures(&on_device_failure).map_err(unbound)?;
        let services = Services::new(engine.clone(), control.clone(), options.custom_metrics, &attached);
        Ok(Self {
            engine,
            control,
            services,
            runners: Runners { threads, libraries },
            keys: Mutex::default(),
            logs: Mutex::default(),
            settler: Mutex::new(Some(settler)),
            running: Arc::default(),
            bound: Mutex::default(),
            metrics: Mutex::default(),
            tickets: Arc::default(),
            streams: Mutex::default(),
            embedded: Arc::default(),
            embedded_bodies: embed::Bodies::default(),
            gpus: Mutex::new(Some((gpu::monitor(options.gpu_metrics_interval_ms), failures))),
        })
    }

    fn settler(&self) -> Result<Settler> {
        self.settler.lock().clone().ok_or_else(|| thrown(&Error::unavailable("Server exiting")))
    }

    /// Opens a version with one of our backends. `config` is copied into `spec`.
    #[napi]
    pub fn open_model(
        &self,
        #[napi(ts_arg_type = "Ticket<Opened>")] ticket: u32,
        backend: String,
        #[napi(ts_arg_type = "OpenSpec")] spec: Json<OpenSpec>,
        config: Buffer,
    ) -> Result<()> {
        let spec = OpenSpec { config: Bytes::copy_from_slice(&config), ..spec.0 };
        let engine = self.engine.clone();
        let open = move || engine.open(&backend, spec).map(|o| Settled::Opened(convert::opened(o)));
        self.settler()?.run_load(ticket, open);
        Ok(())
    }

    /// Finishes the initialisation of the backend and makes the version READY, replacing one of the same number.
    #[napi]
    pub fn publish_model(
        &self,
        #[napi(ts_arg_type = "Ticket<void>")] ticket: u32,
        handle: u32,
        spec: js::PublishSpec,
    ) -> Result<()> {
        let (engine, spec) = (self.engine.clone(), convert::publish_spec(spec));
        self.settler()?.run_load(ticket, move || engine.publish(handle, spec).map(|()| Settled::Nothing));
        Ok(())
    }

    #[napi]
    pub fn discard_model(&self, handle: u32) {
        self.engine.discard(handle);
    }

    /// Changes the instances of a serving version to those of this configuration without a reload; `config` and
    /// `configJson` as in `PublishSpec`. False if only a reload can do that. Rejects with INVALID_ARG for too many
    /// instances, or with the error of a new one.
    #[napi]
    pub fn update_model(
        &self,
        #[napi(ts_arg_type = "Ticket<boolean>")] ticket: u32,
        name: String,
        version: i64,
        config: Buffer,
        config_json: String,
    ) -> Result<()> {
        let (engine, config) = (self.engine.clone(), Bytes::copy_from_slice(&config));
        self.settler()?.run_load(ticket, move || engine.update(&name, version, config, config_json).map(Settled::Flag));
        Ok(())
    }

    /// Adds a model or a version, or changes the state of one that does not serve. Only `publishModel` sets READY.
    #[napi]
    pub fn set_version_state(
        &self,
        name: String,
        version: i64,
        #[napi(ts_arg_type = "VersionState")] state: String,
        reason: String,
    ) {
        if let Some(state) = VersionState::from_name(&state) {
            self.engine.set_version_state(&name, version, state, &reason);
        }
    }

    /// Marks a model without any version as known or not; strict readiness fails while there is a known one.
    #[napi]
    pub fn set_model_known(&self, name: String, known: bool) {
        self.engine.set_model_known(&name, known);
    }

    /// Sets UNLOADING at once and resolves when the last request has ended; then UNLOADED with `reason`, unless the
    /// version has a newer state.
    #[napi]
    pub fn retire_model(
        &self,
        #[napi(ts_arg_type = "Ticket<void>")] ticket: u32,
        name: String,
        version: i64,
        reason: String,
    ) -> Result<()> {
        let settler = self.settler()?;
        // Sets UNLOADING before this call returns; only the waiting needs a thread.
        let retiring = self.engine.retire(&name, version);
        let engine = self.engine.clone();
        settler.run_load(ticket, move || {
            if let Some(version) = &retiring {
                wait_until(|| version.inflight() == 0);
            }
            let load = retiring.as_ref().map(|version| version.identity.load);
            drop(retiring);
            engine.retired(&name, version, load, &reason);
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    #[napi]
    pub fn set_server_state(&self, #[napi(ts_arg_type = "ServerState")] state: String) {
        self.engine.set_server_state(match state.as_str() {
            "ready" => ServerState::Ready,
            "exiting" => return self.refuse(),
            "failed" => ServerState::Failed,
            "loading" => ServerState::Loading,
            _ => ServerState::Initializing,
        });
    }

    /// Rejects new inferences, except those of sequences in progress.
    fn refuse(&self) {
        self.engine.set_server_state(ServerState::Exiting);
        if let Some(embedded) = &*self.embedded.lock() {
            embedded.refuse();
        }
        if let Some(running) = &*self.running.lock() {
            running.refuse();
        }
    }

    /// Does not query models.
    #[napi]
    pub fn is_ready(&self) -> bool {
        self.engine.is_ready()
    }

    /// Readiness as over the network: queries models whose code reports it, at most 5 s. Without a name, the server's.
    #[napi]
    pub fn ask_ready(
        &self,
        #[napi(ts_arg_type = "Ticket<boolean>")] ticket: u32,
        name: String,
        version: String,
    ) -> Result<()> {
        let settler = self.settler()?;
        let ready = match name.as_str() {
            "" => self.engine.readiness(),
            name => self.engine.model_ready(name, &version).map_err(|e| thrown(&e))?,
        };
        ready.notify(move |ready| settler.settle(ticket, Ok(Settled::Flag(ready))));
        Ok(())
    }

    /// All versions that were ever attempted, of one model or of all; those of one model ascending.
    #[napi]
    pub fn versions(&self, model: Option<String>) -> Vec<js::VersionRow> {
        self.engine.versions(model.as_deref()).into_iter().map(Into::into).collect()
    }

    /// Starts logging requests and control calls, until `close`. Call it before `bind` and `openEmbedded`.
    /// `reactorThreads` as in `ListenOptions`; each has a queue of lines. Throws INVALID_ARG if a file cannot be
    /// opened.
    #[napi]
    pub fn open_logs(
        &self,
        #[napi(ts_arg_type = "RequestLogOptions")] options: Json<RequestLogOptions>,
        reactor_threads: u32,
    ) -> Result<()> {
        let reactors = frontend::reactors(reactor_threads as usize);
        let logs = frontend::Logs::open(&options.0, reactors).map_err(|e| thrown(&e))?;
        *self.logs.lock() = logs.map(Arc::new);
        Ok(())
    }

    /// Binds the ports of front ends and metrics and reads certificates; clients are not accepted yet. If anything
    /// fails, `failures` lists it and nothing is bound. Call it after `openKeys` and `openLogs`.
    #[napi]
    pub fn bind(
        &self,
        #[napi(ts_arg_type = "ListenOptions")] options: Json<ListenOptions>,
        metrics: Option<js::MetricsAddress>,
    ) -> Result<js::BoundPorts> {
        let options = self.frontend_options(options.0);
        let mut ports = js::BoundPorts::default();
        let bound = frontend::bind(self.engine.clone(), self.control.clone(), &options);
        let metrics = metrics.map(|at| frontend::bind_metrics(&at.address, at.port)).transpose();
        match (bound, metrics) {
            (Ok(bound), Ok(metrics)) => {
                ports.http_port = bound.http_port;
                ports.grpc_port = bound.grpc_port;
                ports.control_port = bound.control_port;
                ports.metrics_port = metrics.as_ref().map_or(0, |held| held.port);
                *self.bound.lock() = Some(bound);
                *self.metrics.lock() = metrics;
            }
            (bound, metrics) => {
                let failures = bound.err().unwrap_or_default().into_iter().chain(metrics.err());
                ports.failures = failures.map(failure).collect();
            }
        }
        Ok(ports)
    }

    fn frontend_options(&self, listen: ListenOptions) -> FrontendOptions {
        let (keys, logs) = (self.keys.lock().clone(), self.logs.lock().clone());
        FrontendOptions { listen, keys, logs, ..FrontendOptions::default() }
    }

    /// Closes ports and socket files at once, for a process that ends while its models load.
    #[napi]
    pub fn unbind(&self) {
        self.release_bound();
        drop(self.running.lock().take());
    }

    /// Closes sockets that are bound but do not serve.
    fn release_bound(&self) {
        self.bound.lock().take();
        self.metrics.lock().take();
    }

    /// Descriptor of the metrics socket, now owned by the caller; null if the caller has to bind its own.
    #[napi]
    pub fn take_metrics_socket(&self) -> Option<i32> {
        self.metrics.lock().take()?.into_descriptor()
    }

    /// Serves on the sockets of `bind`. Rejects with UNAVAILABLE, as a `BindFailure`, if another process was first.
    #[napi]
    pub fn listen(&self, #[napi(ts_arg_type = "Ticket<void>")] ticket: u32) -> Result<()> {
        let (bound, running) = (self.bound.lock().take(), self.running.clone());
        self.settler()?.run(ticket, move || {
            *running.lock() = bound.map(Bound::serve).transpose()?;
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    /// Gives a connection to the program that embeds this server, whose socket is descriptor `fd`; it stays open for
    /// the caller. Resolves when the program has answered.
    #[napi]
    pub fn serve_embedder(&self, #[napi(ts_arg_type = "Ticket<void>")] ticket: u32, fd: i32) -> Result<()> {
        let services = self.services.clone();
        self.settler()?.run(ticket, move || {
            let host: Weak<dyn Host> = Arc::downgrade(&(services.clone() as Arc<dyn Host>));
            let kept = backend_process::serve_embedder(fd, host)?;
            *services.embedder.lock() = Some(kept);
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    /// Reads keys and certificates again and reopens request logs that were moved; returns the files. Invalid files are
    /// logged and the previous contents stay in use.
    #[napi]
    pub fn reread(&self) -> Vec<String> {
        let mut files = self.keys.lock().as_ref().map(|ring| ring.reread()).unwrap_or_default();
        files.extend(self.running.lock().as_ref().map(FrontEnd::reread).unwrap_or_default());
        files.extend(self.logs.lock().as_ref().map(|logs| logs.reopen()).unwrap_or_default());
        files
    }

    /// Accepts requests that another server of this process received. Options as for listeners; binds nothing.
    #[napi]
    pub fn open_embedded(&self, #[napi(ts_arg_type = "ListenOptions")] options: Json<ListenOptions>) -> Result<()> {
        let settle = embed::settle(self.settler()?, self.embedded_bodies.clone());
        let options = self.frontend_options(options.0);
        let started = Embedded::start(self.engine.clone(), self.control.clone(), options, settle);
        *self.embedded.lock() = Some(started.map_err(|e| thrown(&e))?);
        Ok(())
    }

    fn with_embedded(&self, work: impl FnOnce(&Embedded)) -> Result<()> {
        let embedded = self.embedded.lock();
        embedded.as_ref().map(work).ok_or_else(|| thrown(&Error::unavailable("Server exiting")))
    }

    /// Begins a request; `ticket` is its number and the ticket of its first call.
    #[napi]
    pub fn embed(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer>")] ticket: u32,
        request: js::EmbeddedRequest,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.begin(ticket, embed::request(request)))
    }

    /// Begins a gRPC call, like `embed`.
    #[napi]
    pub fn embed_call(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedCallAnswer>")] ticket: u32,
        request: js::EmbeddedCall,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.call(ticket, embed::call(request)))
    }

    /// A further piece of the messages of call `request`; `length` is that of the message that the piece begins.
    #[napi]
    pub fn embed_piece(
        &self,
        #[napi(ts_arg_type = "Ticket<void>")] ticket: u32,
        request: u32,
        piece: Option<Buffer>,
        length: Option<f64>,
        ends: bool,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.piece(request, ticket, embed::piece(piece, length), ends))
    }

    /// The requested body of `request`, in pieces; without pieces, `bytes` is its size.
    #[napi]
    pub fn embed_body(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer>")] ticket: u32,
        request: u32,
        body: Option<Vec<Buffer>>,
        bytes: f64,
    ) -> Result<()> {
        // Copied: JavaScript may write into its buffers as soon as the call returns.
        let gathered = body.map(|pieces| embed::gathered(&pieces)).transpose().map_err(|e| thrown(&e))?;
        self.with_embedded(|embedded| embedded.body(request, ticket, gathered.ok_or(bytes as u64)))
    }

    /// Copies the large body reported for `ticket` into `to`, which has its size. Without `to` it is dropped.
    #[napi]
    pub fn embed_take(&self, ticket: u32, to: Option<Buffer>) -> Result<()> {
        let parts = self.embedded_bodies.lock().remove(&ticket).unwrap_or_default();
        embed::take(&parts, to).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn embed_next(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer | EmbeddedCallAnswer>")] ticket: u32,
        request: u32,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.next(request, ticket))
    }

    /// Cancels `request`.
    #[napi]
    pub fn embed_give_up(&self, request: u32) {
        if let Some(embedded) = &*self.embedded.lock() {
            embedded.cancel(request);
        }
    }

    /// Requires a key of this file for requests on both ports. The file is read again when it changes. Call it before
    /// `bind`. Throws INVALID_ARG with the file, the line, the field and the mistake.
    #[napi]
    pub fn open_keys(
        &self,
        file: String,
        #[napi(ts_arg_type = "IssuerOptions | null")] issuer: Json<Option<IssuerOptions>>,
    ) -> Result<()> {
        let ring = frontend::Keyring::open(file.as_ref(), issuer.0);
        *self.keys.lock() = Some(ring.map_err(|e| thrown(&e))?);
        Ok(())
    }

    /// True if HTTP requests with this method and path need a key at present. A name in braces stands for a model that
    /// only scopes for any model include.
    #[napi]
    pub fn needs_key(&self, method: String, path: String) -> bool {
        self.keys.lock().as_ref().is_some_and(|ring| !frontend::is_open_to_all(ring, &method, &path))
    }

    /// Replaces the keys of the issuer, a JWK set; returns the number of keys that can verify tokens. Throws
    /// INVALID_ARG for anything else; the previous keys stay.
    #[napi]
    pub fn set_issuer_keys(&self, text: String) -> Result<u32> {
        let Some(ring) = self.keys.lock().clone() else { return Ok(0) };
        let count = ring.replace_issuer_keys(text.as_bytes()).map_err(|why| thrown(&Error::invalid(why)))?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// True if a token named an unknown key of the issuer since the last call.
    #[napi]
    pub fn misses_issuer_key(&self) -> bool {
        self.keys.lock().as_ref().is_some_and(|ring| ring.access().take_misses_key())
    }

    /// Closes the listeners for a process that continues with their sockets. Open connections end with their responses.
    #[napi]
    pub fn hand_over(&self) {
        if let Some(running) = &*self.running.lock() {
            running.hand_over();
        }
    }

    /// Open connections.
    #[napi]
    pub fn connections(&self) -> i64 {
        self.running.lock().as_ref().map_or(0, |running| i64::try_from(running.connections()).unwrap_or(i64::MAX))
    }

    /// True if all reactors have shown activity since the last call, and before they are started.
    #[napi]
    pub fn pulse(&self) -> bool {
        self.running.lock().as_ref().is_none_or(FrontEnd::pulse)
    }

    /// Makes the server not ready, and closes connections with their next response; the listeners stay open, and
    /// requests are answered. False if no client is connected and none was lately, so that none is affected.
    #[napi]
    pub fn leave(&self) -> bool {
        self.engine.set_server_state(ServerState::Leaving);
        if let Some(embedded) = &*self.embedded.lock() {
            embedded.leave();
        }
        self.running.lock().as_ref().is_some_and(FrontEnd::leave)
    }

    /// Sequences in progress, including those of replaced versions.
    #[napi]
    pub fn sequences(&self) -> i64 {
        i64::try_from(self.engine.sequences()).unwrap_or(i64::MAX)
    }

    /// Closes the listeners and rejects new inferences; resolves after at most `timeoutMs` with the number of requests
    /// and sequences still in progress.
    #[napi]
    pub fn drain(&self, #[napi(ts_arg_type = "Ticket<number>")] ticket: u32, timeout_ms: i64) -> Result<()> {
        let settler = self.settler()?;
        self.refuse();
        if let Some(running) = &*self.running.lock() {
            running.stop_accepting();
        }
        let engine = self.engine.clone();
        let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        settler.run(ticket, move || Ok(Settled::Count(engine.drain(limit) as i64)));
        Ok(())
    }

    /// Ends connections and threads, unmaps regions, waits for processes of models that finalize. The last call:
    /// afterwards nothing keeps the event loop alive.
    #[napi]
    pub fn close(&self, #[napi(ts_arg_type = "Ticket<void>")] ticket: u32, grace_ms: i64) -> Result<()> {
        let settler = self.settler.lock().take().ok_or_else(|| thrown(&Error::unavailable("Server exiting")))?;
        self.release_bound();
        let (engine, running, gpus) = (self.engine.clone(), self.running.lock().take(), self.gpus.lock().take());
        let embedded = self.embedded.lock().take();
        let embedder = self.services.embedder.lock().take();
        let logs = self.logs.lock().clone();
        let Runners { threads, libraries } = self.runners.clone();
        let streams = std::mem::take(&mut *self.streams.lock());
        streams.values().for_each(|pull| pull.cancel());
        settler.clone().run(ticket, move || {
            drop(gpus);
            drop(embedded);
            drop(embedder);
            if let Some(running) = running {
                running.close(CLOSE_GRACE);
            }
            // After all writers have ended.
            if let Some(logs) = logs {
                logs.finish();
            }
            engine.close();
            engine.regions().forget_all();
            device::release_pools();
            if !memory::release::finish(UNLOAD_GRACE) {
                log::warn!("models are still being unloaded; the process ends without them");
            }
            libraries.close();
            let grace = Duration::from_millis(u64::try_from(grace_ms).unwrap_or(0));
            let until = Instant::now() + grace;
            if !backend_python::wait_for_ends(grace) {
                log::warn!("processes of models are still finalizing, and are ended now");
            }
            if !backend_javascript::worker::wait_for_ends(&threads, until) {
                log::warn!("workers of JavaScript models are still finalizing, and are ended now");
            }
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    /// Ends the worker threads that import or initialize a JavaScript model, or null = any: their loads fail.
    #[napi]
    pub fn end_starting_workers(&self, model: Option<String>) {
        backend_javascript::worker::end_starting(&self.runners.threads, model.as_deref());
    }

    #[napi]
    pub fn snapshot(&self) -> js::Snapshot {
        let (mut triton, mut families) = (Families::default(), Families::default());
        let counted = self.engine.snapshot();
        let gpu = self.gpus.lock().as_ref().map(|(monitor, _)| monitor.status());
        if let Some(gpu) = &gpu {
            triton.gpus(&gpu.usage);
            families.gpu_available(gpu);
        }
        triton.pinned_pool();
        if let Some(cache) = &counted.cache {
            triton.cache(cache);
        }
        families.resources(&counted.resources);
        families.memory();
        families.device_memory();
        for (name, help, value) in counted.gauges {
            families.one(name, help, value);
        }
        if let Some(ring) = &*self.keys.lock() {
            families.keys(ring.access());
        }
        if let Some(logs) = &*self.logs.lock() {
            logs.counts().for_each(|(name, counts)| families.log(name, &counts));
        }
        if let Some(running) = &*self.running.lock() {
            families.front_end(running);
        }
        families.models(self.services.metrics());
        js::Snapshot {
            versions: counted.versions.into_iter().map(convert::version_statistics).collect(),
            triton: triton.0,
            families: families.0,
            gpu_uuids: gpu
                .map(|gpu| gpu.uuids.into_iter().map(Option::unwrap_or_default).collect())
                .unwrap_or_default(),
            log_records_dropped: logging::DROPPED.load(std::sync::atomic::Ordering::Relaxed) as f64,
            trace_records_dropped: self.engine.tracer().lost() as f64,
        }
    }

    /// The two families of `snapshot` that routers read many times a second.
    #[napi]
    pub fn requests(&self) -> Vec<js::Family> {
        let mut families = Families::default();
        for (name, help, value) in self.engine.at_work() {
            families.one(name, help, value);
        }
        families.0
    }

    /// The GPUs and their use; values that one does not report are 0.
    #[napi]
    pub fn devices(&self) -> Vec<js::DeviceUse> {
        let status = self.gpus.lock().as_ref().map(|(monitor, _)| monitor.status());
        let of = |usage: &device::Usage| js::DeviceUse {
            uuid: usage.uuid.clone(),
            used_bytes: usage.memory_used_bytes.unwrap_or_default() as f64,
            total_bytes: usage.memory_total_bytes.unwrap_or_default() as f64,
            utilization: usage.utilization.unwrap_or_default(),
        };
        status.map(|status| status.usage.iter().map(of).collect()).unwrap_or_default()
    }

    /// The reply to a `ControlCall`: JSON text, or an error code and a message.
    #[napi]
    pub fn control_reply(
        &self,
        id: u32,
        json: Option<String>,
        #[napi(ts_arg_type = "ErrorCode | null")] error_code: Option<String>,
        message: String,
        #[napi(ts_arg_type = "Fault")] fault: String,
        retryable: bool,
    ) {
        let code = error_code.map(|name| Code::ALL.into_iter().find(|code| code.constant() == name));
        let fault = Fault::ALL.into_iter().find(|known| known.name() == fault).unwrap_or(Fault::Server);
        self.control.reply(
            id,
            match (json, code) {
                (Some(json), None) => Ok(json),
                (_, code) => {
                    let code = code.flatten().unwrap_or(Code::Internal);
                    Err(Error::new(code, message).by(fault).retry(retryable))
                }
            },
        );
    }

    /// Verbose level of the core's log; 0 = none.
    #[napi]
    pub fn set_verbose_level(&self, level: u32) {
        logging::set_verbose_level(level);
    }

    /// Replaces the default trace setting (`model` empty) or that of a model; null makes the model use the default.
    /// Throws RESOURCE_EXHAUSTED for too many models.
    #[napi]
    pub fn set_trace_setting(
        &self,
        model: String,
        #[napi(ts_arg_type = "TraceSetting | null")] setting: Json<Option<TraceSetting>>,
    ) -> Result<()> {
        self.engine.tracer().set(&model, setting.0).map_err(|e| thrown(&e))
    }

    /// Number of requests the setting of a model may still sample; -1 = no limit.
    #[napi]
    pub fn trace_count_left(&self, model: String) -> i32 {
        self.engine.tracer().left(&model)
    }

    /// Takes at most `max` complete records, fewer if their tensors are large. `clockNs` is `process.hrtime.bigint()`.
    #[napi]
    pub fn take_traces(&self, max: u32, clock_ns: BigInt) -> js::TakenTraces {
        traces::take(self.engine.tracer(), max, clock_ns.get_u64().1)
    }

    /// Stops sampling; each setting ends with its last record.
    #[napi]
    pub fn close_traces(&self) {
        self.engine.tracer().close();
    }

    /// Starts an inference with one response; `cancel` cancels it.
    #[napi]
    pub fn infer(
        &self,
        #[napi(ts_arg_type = "Ticket<NativeInferResponse>")] ticket: u32,
        request: js::NativeInferRequest,
    ) -> Result<()> {
        let settler = self.settler()?;
        let (name, version) = (request.model.clone(), request.version.clone());
        let started = self.engine.model(&name, &version).and_then(|model| {
            protocol::grpc::reject_decoupled(&model.signature)?;
            let request = infer::request(request)?;
            let (settler, tickets, signature) = (settler.clone(), self.tickets.clone(), model.signature.clone());
            let answered = move |result: tensor::Result<Box<protocol::InferResponse>>| {
                tickets.lock().remove(&ticket);
                let result = result.and_then(|r| infer::response(*r, &signature));
                settler.settle(ticket, result.map(|r| Settled::Response(Box::new(r))));
            };
            let sink = answered.clone();
            let started = model.call(Box::new(request), || Arc::new(infer::OnlyAnswer::new(sink)), None)?;
            Ok(match started {
                Started::Answered(result) => {
                    answered(result);
                    None
                }
                Started::Queued(handle) => Some(handle),
            })
        });
        match started {
            Ok(None) => {}
            Ok(Some(handle)) => {
                // Locked before the check: a response either came already or will find the handle to remove.
                let mut tickets = self.tickets.lock();
                if !handle.is_settled() {
                    tickets.insert(ticket, handle);
                }
            }
            Err(e) => settler.settle(ticket, Err(e)),
        }
        Ok(())
    }

    /// Starts a request with any number of responses. Throws if rejected; otherwise call `cancel(ticket)` once, at the
    /// end.
    #[napi]
    pub fn infer_stream(&self, ticket: u32, request: js::NativeInferRequest) -> Result<()> {
        let settler = self.settler()?;
        let model = self.engine.model(&request.model, &request.version).map_err(|e| thrown(&e))?;
        let pull = infer::request(request).and_then(|request| Pull::start(settler, &model, request));
        self.streams.lock().insert(ticket, pull.map_err(|e| thrown(&e))?);
        Ok(())
    }

    /// The available responses of request `stream`, at least one unless it has ended. Rejects with the first error,
    /// which is the last result; after `cancel` with CANCELLED. One call at a time.
    #[napi]
    pub fn next_responses(
        &self,
        #[napi(ts_arg_type = "Ticket<NextResponses>")] ticket: u32,
        stream: u32,
    ) -> Result<()> {
        let pull = self.streams.lock().get(&stream).cloned();
        pull.ok_or_else(|| thrown(&Error::cancelled("")))?.next(ticket);
        Ok(())
    }

    #[napi]
    pub fn cancel(&self, ticket: u32) {
        let pull = self.streams.lock().remove(&ticket);
        if let Some(pull) = pull {
            return pull.cancel();
        }
        let handle = self.tickets.lock().remove(&ticket);
        if let Some(handle) = handle {
            handle.cancel();
        }
    }

    /// The body of the corresponding HTTP response, JSON text.
    #[napi]
    pub fn server_metadata(&self) -> String {
        let m = self.engine.server_metadata();
        text(&protocol::http::server_metadata_json(&m.name, &m.version, &m.extensions))
    }

    #[napi]
    pub fn model_metadata(&self, name: String, version: String) -> Result<String> {
        let metadata = frontend::Metadata::find(&self.engine, &name, &version).map_err(|e| thrown(&e))?;
        Ok(text(&metadata.json()))
    }

    #[napi]
    pub fn model_config(&self, name: String, version: String) -> Result<String> {
        let model = self.engine.model(&name, &version).map_err(|e| thrown(&e))?;
        Ok(text(&model.identity.config_json()))
    }

    #[napi]
    pub fn model_statistics(&self, name: String, version: String) -> Result<String> {
        self.engine.statistics(&name, &version).map(|s| engine::statistics_json(&s)).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn model_ready(&self, name: String, version: String) -> Result<bool> {
        self.engine.is_model_ready(&name, &version).map_err(|e| thrown(&e))
    }
}

/// An environment variable for tests; 0 if it is not a number.
fn number_of(variable: &str) -> u32 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "an event would cost each request")]
fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
