//! A server: made of its options, served, drained, closed.

use crate::control::{Controller, FrontControl};
use crate::logging::{LogSink, ServerLog};
use crate::metrics::Families;
use crate::process::Claim;
use crate::services::Services;
use backend::metrics::FamilySnapshot;
use backend::{Backend, Host};
use backend_c::CBackend;
use backend_javascript::{JavaScriptBackend, Threads};
use backend_onnx::{ForestBackend, OnnxBackend, TextBackend};
use backend_process::RunnerGuard;
use backend_python::PythonBackend;
use cache_library::LibraryCache;
use cache_redis::RedisCache;
use device::Monitor;
use device::failure::{Listening, on_failure};
use engine::{Engine, ServerState, VersionStatistics};
use frontend::embed::{Embedded, Settle};
use frontend::{Bound, BoundListener, Control, FrontEnd, FrontendOptions, Keyring, Logs, StartFailure};
use options::{CoreOptions, IssuerOptions, ListenOptions, RequestLogOptions};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tensor::{Error, Result};

/// Time for connections to finish after the last response.
const CLOSE_GRACE: Duration = Duration::from_millis(500);
/// Time for freeing the memory of models at the end.
const UNLOAD_GRACE: Duration = Duration::from_secs(2);

/// Services that the program around a server provides.
pub struct Outside {
    /// Executes control operations.
    pub control: Arc<dyn Controller>,
    /// Receives log lines.
    pub log: Arc<dyn LogSink>,
    /// Makes threads for JavaScript models.
    pub threads: Arc<dyn Threads>,
    /// Called when the first trace waits to be taken.
    pub on_traces: Box<dyn Fn() + Send + Sync>,
    /// Called with the ordinal of each GPU that fails permanently, and why, also for earlier failures.
    pub on_device_failure: DeviceFailed,
}

/// Receives the ordinal of a GPU, and why it failed.
pub type DeviceFailed = Box<dyn Fn(u32, &str) + Send + Sync>;

/// Address of a metrics server, which the program around runs.
#[derive(Debug, Clone)]
pub struct Address {
    /// IP address or path of a socket.
    pub address: String,
    /// Port; 0 picks a free one.
    pub port: u16,
}

/// Bound ports; 0 if a front end is off or a Unix socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Ports {
    pub http: u16,
    pub grpc: u16,
    pub openai: u16,
    pub control: u16,
    pub metrics: u16,
}

/// All data of a scrape, read at one moment.
pub struct Scrape {
    /// Counters of each version.
    pub versions: Vec<VersionStatistics>,
    /// Families without versions that have Triton's names, in its order.
    pub triton: Vec<FamilySnapshot>,
    /// Our own, and then those of models in the order of their creation.
    pub families: Vec<FamilySnapshot>,
    /// Uuids by ordinal of the devices with metrics; `None` for others.
    pub gpu_uuids: Vec<Option<String>>,
    /// Lines of the core's log that were lost.
    pub log_records_dropped: u64,
    /// Traces that were lost.
    pub traces_dropped: u64,
}

/// Front ends, from their sockets to their end.
#[derive(Default)]
struct FrontEnds {
    /// Front ends that are bound, but do not serve yet.
    bound: Mutex<Option<Bound>>,
    running: Mutex<Option<FrontEnd>>,
    /// Socket for metrics, until the program around takes it.
    metrics: Mutex<Option<BoundListener>>,
    /// Requests that other servers of this process received.
    embedded: Mutex<Option<Embedded>>,
}

/// Makers of threads and processes that run models.
struct Runners {
    threads: Arc<dyn Threads>,
    /// The processes of libraries.
    libraries: Arc<CBackend>,
}

/// One server of this process.
pub struct Server {
    engine: Arc<Engine>,
    control: Arc<dyn Control>,
    services: Arc<Services>,
    /// Keys that the front ends accept; `None` = no key is needed.
    keys: Mutex<Option<Arc<Keyring>>>,
    /// Logs of requests and control calls of all front ends.
    logs: Mutex<Option<Arc<Logs>>>,
    fronts: FrontEnds,
    runners: Runners,
    /// Connection to the program that embeds this server.
    embedder: Mutex<Option<RunnerGuard>>,
    gpus: Mutex<Option<(Monitor, Listening)>>,
    /// Both end last: `close` logs, and frees what the claim is about.
    log_and_claim: Mutex<Option<(ServerLog, Claim)>>,
}

impl Server {
    /// Makes a server without models, which does not listen.
    ///
    /// # Errors
    /// INVALID_ARG for wrong options, or if a running server of this process has other memory limits.
    pub fn start(mut options: CoreOptions, outside: Outside) -> Result<Self> {
        let log = ServerLog::new(outside.log);
        let claim = Claim::memory(&options)?;
        let libraries = Arc::new(CBackend::new(options.libraries.clone()));
        let backends = backends(&options, &libraries, &outside.threads);
        let attached = backends.clone();
        options.engine.delays = ["TRITONSERVER_DELAY_SCHEDULER", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"].map(number_of);
        let engine = match (options.response_cache_redis, options.response_cache_library) {
            (Some(redis), _) => {
                let cache = Arc::new(RedisCache::start(redis)?);
                Engine::with_cache(options.engine, backends, Some(cache))
            }
            (None, Some(library)) => {
                let cache = Arc::new(LibraryCache::start(library, options.libraries)?);
                Engine::with_cache(options.engine, backends, Some(cache))
            }
            (None, None) => Engine::new(options.engine, backends),
        }?;
        engine.tracer().wake_with(outside.on_traces);
        let interval = options.gpu_metrics_interval_ms.map(|ms| Duration::from_millis(ms.into()));
        let services = Services::new(engine.clone(), outside.control.clone(), options.custom_metrics, &attached);
        Ok(Self {
            engine,
            control: Arc::new(FrontControl(outside.control)),
            services,
            keys: Mutex::default(),
            logs: Mutex::default(),
            fronts: FrontEnds::default(),
            runners: Runners { threads: outside.threads, libraries },
            embedder: Mutex::default(),
            gpus: Mutex::new(Some((Monitor::start(interval), on_failure(outside.on_device_failure)))),
            log_and_claim: Mutex::new(Some((log, claim))),
        })
    }

    /// Runs models, and knows their state.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Sets the state of the server. `Exiting` also rejects new inferences, except those of sequences in progress.
    pub fn set_state(&self, state: ServerState) {
        self.engine.set_server_state(state);
        if state == ServerState::Exiting {
            self.fronts.embedded.lock().iter().for_each(Embedded::refuse);
            self.fronts.running.lock().iter().for_each(FrontEnd::refuse);
        }
    }

    /// Sets a version UNLOADING now. The returned function waits until the last request has ended; then it is UNLOADED
    /// with `reason`, unless it has a newer state.
    pub fn retire(&self, name: String, version: i64, reason: String) -> impl FnOnce() + Send + 'static {
        let retiring = self.engine.retire(&name, version);
        let engine = self.engine.clone();
        move || {
            if let Some(version) = &retiring {
                wait_until(|| version.inflight() == 0);
            }
            let load = retiring.as_ref().map(|version| version.identity.load);
            drop(retiring);
            engine.retired(&name, version, load, &reason);
        }
    }

    /// Level of the core's log: 0 = errors, warnings and information; 1 adds details; 2 and more add everything.
    pub fn set_verbose_level(&self, level: u32) {
        self.log_and_claim.lock().iter().for_each(|(log, _)| log.set_verbose_level(level));
    }

    /// Starts logging requests and control calls. Call it before `bind` and `open_embedded`. `reactors` as in
    /// `ListenOptions`; each has a queue of lines.
    ///
    /// # Errors
    /// INVALID_ARG if a file cannot be opened.
    pub fn open_logs(&self, options: &RequestLogOptions, reactors: usize) -> Result<()> {
        let logs = Logs::open(options, frontend::reactors(reactors))?;
        *self.logs.lock() = logs.map(Arc::new);
        Ok(())
    }

    /// Requires a key of this file for requests on all ports. The file is read again when it changes. Call it before
    /// `bind`.
    ///
    /// # Errors
    /// INVALID_ARG with the file, the line, the field and the mistake.
    pub fn open_keys(&self, file: &Path, issuer: Option<IssuerOptions>) -> Result<()> {
        *self.keys.lock() = Some(Keyring::open(file, issuer)?);
        Ok(())
    }

    /// Keys that the front ends accept.
    pub fn keys(&self) -> Option<Arc<Keyring>> {
        self.keys.lock().clone()
    }

    fn frontend_options(&self, listen: ListenOptions) -> FrontendOptions {
        let (keys, logs) = (self.keys(), self.logs.lock().clone());
        FrontendOptions { listen, keys, logs, ..FrontendOptions::default() }
    }

    /// Binds the ports of front ends and metrics and reads certificates; clients are not accepted yet.
    ///
    /// # Errors
    /// A failure per service that cannot start; nothing is bound then.
    pub fn bind(&self, listen: ListenOptions, metrics: Option<Address>) -> Result<Ports, Vec<StartFailure>> {
        let options = self.frontend_options(listen);
        let bound = frontend::bind(self.engine.clone(), self.control.clone(), &options);
        let metrics = metrics.map(|at| frontend::bind_metrics(&at.address, at.port)).transpose();
        match (bound, metrics) {
            (Ok(bound), Ok(metrics)) => {
                let ports = Ports {
                    http: bound.http_port,
                    grpc: bound.grpc_port,
                    openai: bound.openai_port,
                    control: bound.control_port,
                    metrics: metrics.as_ref().map_or(0, |held| held.port),
                };
                *self.fronts.bound.lock() = Some(bound);
                *self.fronts.metrics.lock() = metrics;
                Ok(ports)
            }
            (bound, metrics) => Err(bound.err().unwrap_or_default().into_iter().chain(metrics.err()).collect()),
        }
    }

    /// Serves on the sockets of `bind`.
    ///
    /// # Errors
    /// UNAVAILABLE, as a [`StartFailure`], if another process was first.
    pub fn listen(&self) -> Result<()> {
        let bound = self.fronts.bound.lock().take();
        *self.fronts.running.lock() = bound.map(Bound::serve).transpose()?;
        Ok(())
    }

    /// Closes ports and socket files at once, for a process that ends while its models load.
    pub fn unbind(&self) {
        self.release_bound();
        drop(self.fronts.running.lock().take());
    }

    /// Closes sockets that are bound but do not serve.
    fn release_bound(&self) {
        self.fronts.bound.lock().take();
        self.fronts.metrics.lock().take();
    }

    /// Descriptor of the metrics socket, now owned by the caller; `None` if the caller has to bind its own.
    pub fn take_metrics_socket(&self) -> Option<i32> {
        self.fronts.metrics.lock().take()?.into_descriptor()
    }

    /// Accepts requests that another server of this process received. Options as for listeners; binds nothing.
    ///
    /// # Errors
    /// INVALID_ARG for wrong options; INTERNAL if no thread can be started.
    pub fn open_embedded(&self, listen: ListenOptions, settle: Settle) -> Result<()> {
        let options = self.frontend_options(listen);
        let started = Embedded::start(self.engine.clone(), self.control.clone(), options, settle)?;
        *self.fronts.embedded.lock() = Some(started);
        Ok(())
    }

    /// Calls `work` with the requests that another server received.
    ///
    /// # Errors
    /// UNAVAILABLE before `open_embedded` and after `begin_close`.
    pub fn with_embedded(&self, work: impl FnOnce(&Embedded)) -> Result<()> {
        let embedded = self.fronts.embedded.lock();
        embedded.as_ref().map(work).ok_or_else(|| Error::unavailable("Server exiting"))
    }

    /// Gives the connection `fd` to the program that embeds this server; it stays open for the caller. Returns when the
    /// program has answered.
    ///
    /// # Errors
    /// The error of the connection.
    pub fn serve_embedder(&self, fd: i32) -> Result<()> {
        let host: Weak<dyn Host> = Arc::downgrade(&(self.services.clone() as Arc<dyn Host>));
        let kept = backend_process::serve_embedder(fd, host)?;
        *self.embedder.lock() = Some(kept);
        Ok(())
    }

    /// Reads keys and certificates again and reopens request logs that were moved; returns the files. Invalid files are
    /// logged and the previous contents stay in use.
    pub fn reread(&self) -> Vec<String> {
        let mut files = self.keys().map(|ring| ring.reread()).unwrap_or_default();
        files.extend(self.with_running(FrontEnd::reread).unwrap_or_default());
        files.extend(self.logs.lock().as_ref().map(|logs| logs.reopen()).unwrap_or_default());
        files
    }

    /// Calls `work` with the front ends; `None` if none serves.
    pub fn with_running<T>(&self, work: impl FnOnce(&FrontEnd) -> T) -> Option<T> {
        self.fronts.running.lock().as_ref().map(work)
    }

    /// Makes the server not ready, and closes connections with their next response; the listeners stay open, and
    /// requests are answered. False if no client is connected and none was lately, so that none is affected.
    pub fn leave(&self) -> bool {
        self.engine.set_server_state(ServerState::Leaving);
        self.fronts.embedded.lock().iter().for_each(Embedded::leave);
        self.with_running(FrontEnd::leave).unwrap_or(false)
    }

    /// Closes the listeners and rejects new inferences. `Engine::drain` waits for those in progress.
    pub fn stop_accepting(&self) {
        self.set_state(ServerState::Exiting);
        self.with_running(FrontEnd::stop_accepting);
    }

    /// Ends the worker threads that import or initialize a JavaScript model, or `None` = any: their loads fail.
    pub fn end_starting_workers(&self, model: Option<&str>) {
        backend_javascript::worker::end_starting(&self.runners.threads, model);
    }

    /// Ends connections and threads, unmaps regions, waits up to `grace` for processes of models that finalize. The
    /// last call.
    pub fn close(&self, grace: Duration) {
        self.release_bound();
        drop(self.gpus.lock().take());
        drop(self.fronts.embedded.lock().take());
        drop(self.embedder.lock().take());
        let running = self.fronts.running.lock().take();
        if let Some(running) = running {
            running.close(CLOSE_GRACE);
        }
        // After all writers have ended.
        let logs = self.logs.lock().clone();
        if let Some(logs) = logs {
            logs.finish();
        }
        self.engine.close();
        self.engine.regions().forget_all();
        device::release_pools();
        if !memory::release::finish(UNLOAD_GRACE) {
            log::warn!("models are still being unloaded; the process ends without them");
        }
        self.runners.libraries.close();
        let until = Instant::now() + grace;
        if !backend_python::wait_for_ends(grace) {
            log::warn!("processes of models are still finalizing, and are ended now");
        }
        if !backend_javascript::worker::wait_for_ends(&self.runners.threads, until) {
            log::warn!("workers of JavaScript models are still finalizing, and are ended now");
        }
        drop(self.log_and_claim.lock().take());
    }

    /// The GPUs of this process; `None` after `close`.
    pub fn gpus(&self) -> Option<device::Status> {
        self.gpus.lock().as_ref().map(|(monitor, _)| monitor.status())
    }

    /// All data of a scrape.
    pub fn snapshot(&self) -> Scrape {
        let (mut triton, mut families) = (Families::default(), Families::default());
        let counted = self.engine.snapshot();
        let gpus = self.gpus();
        if let Some(gpus) = &gpus {
            triton.gpus(&gpus.usage);
            families.gpu_available(gpus);
        }
        triton.pinned_pool();
        if let Some(cache) = &counted.cache {
            triton.cache(cache);
        }
        families.resources(&counted.resources);
        families.memory();
        families.device_memory();
        families.each(counted.gauges);
        if let Some(ring) = self.keys() {
            families.keys(ring.access());
        }
        if let Some(logs) = &*self.logs.lock() {
            logs.counts().for_each(|(name, counts)| families.log(name, &counts));
        }
        self.with_running(|running| families.front_end(running));
        families.models(self.services.metrics());
        Scrape {
            versions: counted.versions,
            triton: triton.0,
            families: families.0,
            gpu_uuids: gpus.map(|gpus| gpus.uuids).unwrap_or_default(),
            log_records_dropped: self.log_and_claim.lock().as_ref().map_or(0, |(log, _)| log.dropped()),
            traces_dropped: self.engine.tracer().lost(),
        }
    }

    /// The two families of `snapshot` that routers read many times a second.
    pub fn requests(&self) -> Vec<FamilySnapshot> {
        let mut families = Families::default();
        families.each(self.engine.at_work());
        families.0
    }
}

/// All backends. The frameworks of most are looked for when the first model needs them.
fn backends(options: &CoreOptions, libraries: &Arc<CBackend>, threads: &Arc<dyn Threads>) -> Vec<Arc<dyn Backend>> {
    let library = options.onnxruntime_library.clone();
    let mut backends = backend_test::all();
    backends.extend(backend_vision::all());
    backends.push(Arc::new(OnnxBackend::new(library.clone())));
    backends.push(Arc::new(OnnxBackend::plans(library.clone())));
    backends.push(Arc::new(TextBackend::new(library)));
    backends.push(Arc::new(ForestBackend));
    backends.push(Arc::new(PythonBackend::new(options.python.clone())));
    backends.push(libraries.clone());
    backends.push(Arc::new(JavaScriptBackend::new(options.javascript.clone(), threads.clone())));
    backends
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
