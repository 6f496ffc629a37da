//! The core as JavaScript holds it.

use crate::control::Bridge;
use crate::services::Services;
use crate::settle::{Settled, Settler};
use crate::stream::Pull;
use crate::{convert, device_memory, embed, gpu, infer, logging, objects as js, traces};
use backend::Host;
use backend_onnx::OnnxBackend;
use backend_python::PythonBackend;
use bytes::Bytes;
use cache_redis::RedisCache;
use device::Monitor;
use device::failure::Listening;
use engine::{Engine, ServerState, Started, Ticket, VersionState};
use frontend::embed::Embedded;
use frontend::{Bound, Failure, Held, Running};
use napi::bindgen_prelude::{BigInt, Buffer, FnArgs, Function};
use napi_derive::napi;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, Error};

/// How long connections may take to finish after the last request was answered.
const CLOSE_GRACE: Duration = Duration::from_millis(500);
/// How long giving back the memory of models may take at the end.
const UNLOAD_GRACE: Duration = Duration::from_secs(2);

/// The core. Methods with a `ticket` report through `on_settled`, exactly once; the others answer at once.
#[napi]
pub struct NativeCore {
    engine: Arc<Engine>,
    control: Arc<Bridge>,
    services: Arc<Services>,
    /// Whom the front ends let in; `None` = everyone.
    keys: Mutex<Option<Arc<frontend::Keyring>>>,
    /// Of requests and control calls, wherever they come from; ends with `close`.
    logs: Mutex<Option<Arc<frontend::Logs>>>,
    settler: Mutex<Option<Settler>>,
    running: Arc<Mutex<Option<Running>>>,
    /// Front ends that do not listen yet.
    bound: Mutex<Option<Bound>>,
    /// Where metrics are served, by JavaScript, until it takes the socket.
    metrics: Mutex<Option<Held>>,
    tickets: Arc<Mutex<HashMap<u32, Ticket>>>,
    streams: Mutex<HashMap<u32, Arc<Pull>>>,
    /// Requests that other servers of this process received; ends with `close`.
    embedded: Arc<Mutex<Option<Embedded>>>,
    embedded_bodies: embed::Bodies,
    /// Ends with `close`.
    gpus: Mutex<Option<(Monitor, Listening)>>,
}

/// Errors of calls that answer at once carry their class in front of the text, `NOT_FOUND: …`; the TypeScript side takes it off.
pub(crate) fn thrown(e: &Error) -> napi::Error {
    napi::Error::from_reason(format!("{}: {}", e.code() as u8, e.message()))
}

fn failure(Failure { service, error }: Failure) -> js::BindFailure {
    js::BindFailure { service: service.into(), code: error.code() as u32, message: error.message().into() }
}

fn text(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}

#[napi]
impl NativeCore {
    #[napi(constructor)]
    pub fn new(
        options: js::CoreOptions,
        on_control: Function<'_, FnArgs<(js::ControlCall,)>, ()>,
        on_log: Function<'_, FnArgs<(js::LogRecord,)>, ()>,
        on_settled: Function<'_, FnArgs<(js::Settlement,)>, ()>,
        on_traces: Function<'_, (), ()>,
        on_device_failure: Function<'_, FnArgs<(String,)>, ()>,
    ) -> napi::Result<Self> {
        logging::install(&on_log)?;
        convert::limit_memory(options.memory_limit_bytes);
        device_memory::limit(&options.device_memory);
        let library = options.onnxruntime_library.clone().map(PathBuf::from);
        let mut backends = backend_test::all();
        backends.push(Arc::new(OnnxBackend::new(library.clone())));
        backends.push(Arc::new(OnnxBackend::plans(library.clone())));
        backends.push(Arc::new(OnnxBackend::forests(library)));
        backends.push(Arc::new(PythonBackend::new(convert::python_options(&options))));
        let attached = backends.clone();
        let engine_options = convert::engine_options(&options);
        let engine = match &options.response_cache_redis {
            Some(redis) => RedisCache::start(convert::redis_settings(redis))
                .and_then(|cache| Engine::with_cache(engine_options, backends, Some(Arc::new(cache)))),
            None => Engine::new(engine_options, backends),
        };
        let engine = engine.map_err(|e| thrown(&e))?;
        traces::tell(engine.tracer(), &on_traces)?;
        let control = Arc::new(Bridge::new(&on_control)?);
        let services = Services::new(engine.clone(), control.clone(), options.custom_metrics, &attached);
        Ok(Self {
            engine,
            control,
            services,
            keys: Mutex::default(),
            logs: Mutex::default(),
            settler: Mutex::new(Some(Settler::new(&on_settled)?)),
            running: Arc::default(),
            bound: Mutex::default(),
            metrics: Mutex::default(),
            tickets: Arc::default(),
            streams: Mutex::default(),
            embedded: Arc::default(),
            embedded_bodies: embed::Bodies::default(),
            gpus: Mutex::new(Some((gpu::monitor(&options), gpu::tell_failures(&on_device_failure)?))),
        })
    }

    fn settler(&self) -> napi::Result<Settler> {
        self.settler.lock().clone().ok_or_else(|| thrown(&Error::unavailable("Server exiting")))
    }

    #[napi]
    pub fn open_model(&self, ticket: u32, spec: js::OpenSpec) -> napi::Result<()> {
        let (engine, backend, spec) = (self.engine.clone(), spec.backend.clone(), convert::open_spec(&spec));
        self.settler()?
            .run_behind(ticket, move || engine.open(&backend, spec).map(|o| Settled::Opened(convert::opened(o))));
        Ok(())
    }

    #[napi]
    pub fn publish_model(&self, ticket: u32, handle: u32, spec: js::PublishSpec) -> napi::Result<()> {
        let (engine, spec) = (self.engine.clone(), convert::publish_spec(spec));
        self.settler()?.run_behind(ticket, move || engine.publish(handle, spec).map(|()| Settled::Nothing));
        Ok(())
    }

    #[napi]
    pub fn discard_model(&self, handle: u32) {
        self.engine.discard(handle);
    }

    #[napi]
    pub fn update_model(
        &self,
        ticket: u32,
        name: String,
        version: i64,
        config: Buffer,
        config_json: String,
    ) -> napi::Result<()> {
        let (engine, config) = (self.engine.clone(), Bytes::copy_from_slice(&config));
        self.settler()?.run_behind(ticket, move || {
            engine.update(&name, version, config, config_json).map(|updated| Settled::Count(updated.into()))
        });
        Ok(())
    }

    #[napi]
    pub fn set_version_state(&self, name: String, version: i64, state: String, reason: String) {
        if let Some(state) = VersionState::from_name(&state) {
            self.engine.set_version_state(&name, version, state, &reason);
        }
    }

    #[napi]
    pub fn set_model_known(&self, name: String, known: bool) {
        self.engine.set_model_known(&name, known);
    }

    #[napi]
    pub fn retire_model(&self, ticket: u32, name: String, version: i64, reason: String) -> napi::Result<()> {
        let settler = self.settler()?;
        // UNLOADING at once, before this call returns; only the waiting needs a thread.
        let retiring = self.engine.retire(&name, version);
        let engine = self.engine.clone();
        settler.run_behind(ticket, move || {
            if let Some(version) = &retiring {
                wait_until(|| version.inflight() == 0);
            }
            drop(retiring);
            engine.retired(&name, version, &reason);
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    #[napi]
    pub fn set_server_state(&self, state: String) {
        self.engine.set_server_state(match state.as_str() {
            "ready" => ServerState::Ready,
            "exiting" => ServerState::Exiting,
            "failed" => ServerState::Failed,
            "loading" => ServerState::Loading,
            _ => ServerState::Initializing,
        });
    }

    #[napi]
    pub fn is_ready(&self) -> bool {
        self.engine.is_ready()
    }

    #[napi]
    pub fn ask_ready(&self, ticket: u32, name: String, version: String) -> napi::Result<()> {
        let settler = self.settler()?;
        let ready = match name.as_str() {
            "" => self.engine.readiness(),
            name => self.engine.model_ready(name, &version).map_err(|e| thrown(&e))?,
        };
        ready.tell(move |ready| settler.settle(ticket, Ok(Settled::Count(ready.into()))));
        Ok(())
    }

    #[napi]
    pub fn unready(&self) -> Vec<js::Unready> {
        let of = |(model, version, reason)| js::Unready { model, version, reason };
        self.engine.unready().into_iter().map(of).collect()
    }

    /// Opens the logs of requests and of control calls, before there are any.
    #[napi]
    pub fn open_logs(&self, options: js::RequestLogOptions) -> napi::Result<()> {
        let reactors = frontend::reactors(options.reactor_threads as usize);
        let logs = frontend::Logs::open(&convert::log_options(options), reactors).map_err(|e| thrown(&e))?;
        *self.logs.lock() = logs.map(Arc::new);
        Ok(())
    }

    /// Takes the ports and reads the certificates of the front ends, and takes the port of metrics; clients are refused as yet. What cannot be
    /// started is among the failures, and then nothing is taken.
    #[napi]
    pub fn bind(&self, options: js::ListenOptions, metrics: Option<js::MetricsAddress>) -> js::BoundPorts {
        let options = convert::frontend_options(options, self.keys.lock().clone(), self.logs.lock().clone());
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
        ports
    }

    /// Gives up ports and files of sockets at once, for a process that ends while its models load.
    #[napi]
    pub fn unbind(&self) {
        self.release_bound();
        drop(self.running.lock().take());
    }

    /// Gives up what does not listen.
    fn release_bound(&self) {
        self.bound.lock().take();
        self.metrics.lock().take();
    }

    /// The socket of metrics, which is JavaScript's from now on; none where it has to bind its own.
    #[napi]
    pub fn take_metrics_socket(&self) -> Option<i32> {
        self.metrics.lock().take()?.into_descriptor()
    }

    /// Listens where `bind` has bound.
    #[napi]
    pub fn listen(&self, ticket: u32) -> napi::Result<()> {
        let (bound, running) = (self.bound.lock().take(), self.running.clone());
        self.settler()?.run(ticket, move || {
            *running.lock() = bound.map(Bound::serve).transpose()?;
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    /// Reads keys and certificates again, and opens logs of requests again that were moved away; returns the files. What cannot be used is
    /// logged, and what was there before stays.
    #[napi]
    pub fn reread(&self) -> Vec<String> {
        let mut files = self.keys.lock().as_ref().map(|ring| ring.reread()).unwrap_or_default();
        files.extend(self.running.lock().as_ref().map(Running::reread).unwrap_or_default());
        files.extend(self.logs.lock().as_ref().map(|logs| logs.reopen()).unwrap_or_default());
        files
    }

    /// Takes requests that another server of this process received. The options are those of the listeners; nothing is bound.
    #[napi]
    pub fn open_embedded(&self, options: js::ListenOptions) -> napi::Result<()> {
        let settle = embed::settle(self.settler()?, self.embedded_bodies.clone());
        let options = convert::frontend_options(options, self.keys.lock().clone(), self.logs.lock().clone());
        let started = Embedded::start(self.engine.clone(), self.control.clone(), options, settle);
        *self.embedded.lock() = Some(started.map_err(|e| thrown(&e))?);
        Ok(())
    }

    fn with_embedded(&self, work: impl FnOnce(&Embedded)) -> napi::Result<()> {
        let embedded = self.embedded.lock();
        embedded.as_ref().map(work).ok_or_else(|| thrown(&Error::unavailable("Server exiting")))
    }

    /// Begins a request; `ticket` is its number as well as that of its first call.
    #[napi]
    pub fn embed(&self, ticket: u32, request: js::EmbeddedRequest) -> napi::Result<()> {
        self.with_embedded(|embedded| embedded.begin(ticket, embed::request(request)))
    }

    /// Likewise for a call of gRPC.
    #[napi]
    pub fn embed_call(&self, ticket: u32, request: js::EmbeddedCall) -> napi::Result<()> {
        self.with_embedded(|embedded| embedded.call(ticket, embed::call(request)))
    }

    /// What follows of the messages of call `request`; `length` is that of the message which the piece begins.
    #[napi]
    pub fn embed_piece(
        &self,
        ticket: u32,
        request: u32,
        piece: Option<Buffer>,
        length: Option<f64>,
        ends: bool,
    ) -> napi::Result<()> {
        self.with_embedded(|embedded| embedded.piece(request, ticket, embed::piece(piece, length), ends))
    }

    /// The body that was wanted of `request`, in pieces; without one, `bytes` says how many it has.
    #[napi]
    pub fn embed_body(&self, ticket: u32, request: u32, body: Option<Vec<Buffer>>, bytes: f64) -> napi::Result<()> {
        // Copied: JavaScript may write into its buffers as soon as the call returns.
        let gathered = body.map(|pieces| embed::gathered(&pieces)).transpose().map_err(|e| thrown(&e))?;
        self.with_embedded(|embedded| embedded.body(request, ticket, gathered.ok_or(bytes as u64)))
    }

    /// Writes the large body that call `ticket` was told of into `to`, which is exactly as long. Without `to` it is dropped.
    #[napi]
    pub fn embed_take(&self, ticket: u32, to: Option<Buffer>) -> napi::Result<()> {
        let parts = self.embedded_bodies.lock().remove(&ticket).unwrap_or_default();
        embed::take(&parts, to).map_err(|e| thrown(&e))
    }

    /// The next events of `request`.
    #[napi]
    pub fn embed_next(&self, ticket: u32, request: u32) -> napi::Result<()> {
        self.with_embedded(|embedded| embedded.next(request, ticket))
    }

    /// Nobody waits for `request` any more.
    #[napi]
    pub fn embed_give_up(&self, request: u32) {
        if let Some(embedded) = &*self.embedded.lock() {
            embedded.give_up(request);
        }
    }

    /// Reads the keys file, and the keys of an issuer of tokens; both are read again when they change.
    #[napi]
    pub fn open_keys(&self, file: String, issuer: Option<js::IssuerOptions>) -> napi::Result<()> {
        let ring = frontend::Keyring::open(file.as_ref(), issuer.map(convert::issuer_options));
        *self.keys.lock() = Some(ring.map_err(|e| thrown(&e))?);
        Ok(())
    }

    /// Whether requests with this method and path need a key.
    #[napi]
    pub fn needs_key(&self, method: String, path: String) -> bool {
        self.keys.lock().as_ref().is_some_and(|ring| !ring.is_open(&method, &path))
    }

    /// Takes the keys of the issuer; returns how many of them tokens can be signed with.
    #[napi]
    pub fn set_issuer_keys(&self, text: String) -> napi::Result<u32> {
        let Some(ring) = self.keys.lock().clone() else { return Ok(0) };
        let count = ring.replace_issuer_keys(text.as_bytes()).map_err(|why| thrown(&Error::invalid(why)))?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Whether a token named a key of the issuer that is not here, since this was asked last.
    #[napi]
    pub fn misses_issuer_key(&self) -> bool {
        self.keys.lock().as_ref().is_some_and(|ring| ring.access().take_misses_key())
    }

    #[napi]
    pub fn hand_over(&self) {
        if let Some(running) = &*self.running.lock() {
            running.hand_over();
        }
    }

    /// Connections that are open.
    #[napi]
    pub fn connections(&self) -> i64 {
        self.running.lock().as_ref().map_or(0, |running| i64::try_from(running.connections()).unwrap_or(i64::MAX))
    }

    /// Whether all reactors answered the last pulse; asks for the next one.
    #[napi]
    pub fn pulse(&self) -> bool {
        self.running.lock().as_ref().is_none_or(Running::pulse)
    }

    #[napi]
    pub fn leave(&self) -> bool {
        self.engine.set_server_state(ServerState::Exiting);
        if let Some(embedded) = &*self.embedded.lock() {
            embedded.leave();
        }
        self.running.lock().as_ref().is_some_and(Running::leave)
    }

    #[napi]
    pub fn sequences(&self) -> i64 {
        i64::try_from(self.engine.sequences()).unwrap_or(i64::MAX)
    }

    #[napi]
    pub fn drain(&self, ticket: u32, timeout_ms: i64) -> napi::Result<()> {
        let settler = self.settler()?;
        self.engine.set_server_state(ServerState::Exiting);
        if let Some(embedded) = &*self.embedded.lock() {
            embedded.leave();
        }
        if let Some(running) = &*self.running.lock() {
            running.stop_accepting();
        }
        let engine = self.engine.clone();
        let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        settler.run(ticket, move || Ok(Settled::Count(engine.drain(limit) as i64)));
        Ok(())
    }

    /// The last call: afterwards nothing keeps the event loop alive any more.
    #[napi]
    pub fn close(&self, ticket: u32, grace_ms: i64) -> napi::Result<()> {
        let settler = self.settler.lock().take().ok_or_else(|| thrown(&Error::unavailable("Server exiting")))?;
        self.release_bound();
        let (engine, running, gpus) = (self.engine.clone(), self.running.lock().take(), self.gpus.lock().take());
        let embedded = self.embedded.lock().take();
        let logs = self.logs.lock().clone();
        let streams = std::mem::take(&mut *self.streams.lock());
        streams.values().for_each(|pull| pull.cancel());
        settler.clone().run(ticket, move || {
            drop(gpus);
            drop(embedded);
            if let Some(running) = running {
                running.close(CLOSE_GRACE);
            }
            // After whatever writes there.
            if let Some(logs) = logs {
                logs.finish();
            }
            engine.close();
            engine.regions().forget_all();
            device::release_pools();
            if !memory::behind::finish(UNLOAD_GRACE) {
                log::warn!("models are still being unloaded; the process ends without them");
            }
            let grace = Duration::from_millis(u64::try_from(grace_ms).unwrap_or(0));
            if !backend_python::wait_for_ends(grace) {
                log::warn!("processes of Python models are still finalizing, and are ended now");
            }
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    #[napi]
    pub fn snapshot(&self) -> js::Snapshot {
        let mut snapshot = convert::snapshot(self.engine.snapshot());
        convert::add_custom_metrics(&mut snapshot, self.services.metrics());
        snapshot.log_records_dropped = logging::DROPPED.load(std::sync::atomic::Ordering::Relaxed) as f64;
        snapshot.trace_records_dropped = self.engine.tracer().lost() as f64;
        snapshot.gpu = self.gpus.lock().as_ref().map(|(monitor, _)| gpu::status(monitor));
        if let Some(ring) = &*self.keys.lock() {
            convert::add_keys(&mut snapshot, ring.access());
        }
        if let Some(logs) = &*self.logs.lock() {
            for (name, counts) in logs.counts() {
                convert::add_log(&mut snapshot, name, counts);
            }
        }
        if let Some(running) = &*self.running.lock() {
            convert::add_holds(&mut snapshot, &running.holds());
            convert::add_offload(&mut snapshot, frontend::offload_status());
            if running.speaks_tls() {
                convert::add_handshakes(&mut snapshot, frontend::tls::failed_handshakes());
            }
            snapshot.gauges.extend(running.gauges().map(|(name, help, value)| js::Gauge {
                name: name.into(),
                help: help.into(),
                value: value as f64,
            }));
        }
        snapshot
    }

    #[napi]
    pub fn control_reply(&self, id: u32, json: Option<String>, error_code: i32, message: String) {
        let code = usize::try_from(error_code).ok().and_then(|i| Code::ALL.get(i)).copied();
        self.control.reply(
            id,
            match (json, code) {
                (Some(json), None) => Ok(json),
                (_, code) => Err(Error::new(code.unwrap_or(Code::Internal), message)),
            },
        );
    }

    #[napi]
    pub fn set_verbose_level(&self, level: u32) {
        logging::set_verbose_level(level);
    }

    #[napi]
    pub fn set_trace_setting(&self, model: String, setting: Option<js::TraceSetting>) -> napi::Result<()> {
        let setting = setting.as_ref().map(traces::setting);
        self.engine.tracer().set(&model, setting).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn trace_count_left(&self, model: String) -> i32 {
        self.engine.tracer().left(&model)
    }

    #[napi]
    pub fn take_traces(&self, max: u32, clock_ns: BigInt) -> js::TakenTraces {
        traces::take(self.engine.tracer(), max, clock_ns.get_u64().1)
    }

    #[napi]
    pub fn close_traces(&self) {
        self.engine.tracer().close();
    }

    #[napi]
    pub fn infer(&self, ticket: u32, request: js::NativeInferRequest) -> napi::Result<()> {
        let settler = self.settler()?;
        let (name, version) = (request.model.clone(), request.version.clone());
        let started = self.engine.model(&name, &version).and_then(|model| {
            protocol::grpc::refuse_decoupled(&model.signature)?;
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
                // The lock is taken before the look: an answer either came already, or will find the handle to remove.
                let mut tickets = self.tickets.lock();
                if !handle.is_settled() {
                    tickets.insert(ticket, handle);
                }
            }
            Err(e) => settler.settle(ticket, Err(e)),
        }
        Ok(())
    }

    /// Starts a request that may have any number of responses. Nothing is reported before `next_responses` asks.
    #[napi]
    pub fn infer_stream(&self, ticket: u32, request: js::NativeInferRequest) -> napi::Result<()> {
        let settler = self.settler()?;
        let model = self.engine.model(&request.model, &request.version).map_err(|e| thrown(&e))?;
        let pull = infer::request(request).and_then(|request| Pull::start(settler, &model, request));
        self.streams.lock().insert(ticket, pull.map_err(|e| thrown(&e))?);
        Ok(())
    }

    /// Reports the next responses of the request `stream`, as soon as there is one. It is forgotten when it is cancelled, also after
    /// its end.
    #[napi]
    pub fn next_responses(&self, ticket: u32, stream: u32) -> napi::Result<()> {
        let settler = self.settler()?;
        let pull = self.streams.lock().get(&stream).cloned();
        match pull {
            Some(pull) => pull.next(ticket),
            None => settler.settle(ticket, Err(Error::cancelled(""))),
        }
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

    #[napi]
    pub fn server_metadata(&self) -> String {
        let m = self.engine.server_metadata();
        text(&protocol::http::server_metadata_json(&m.name, &m.version, &m.extensions))
    }

    #[napi]
    pub fn model_metadata(&self, name: String, version: String) -> napi::Result<String> {
        let model = self.engine.model(&name, &version).map_err(|e| thrown(&e))?;
        let versions = if version.is_empty() { self.engine.ready_versions(&name) } else { vec![model.identity.number] };
        Ok(text(&protocol::http::model_metadata_json(&model.signature, &versions, &model.identity.platform)))
    }

    #[napi]
    pub fn model_config(&self, name: String, version: String) -> napi::Result<String> {
        let model = self.engine.model(&name, &version).map_err(|e| thrown(&e))?;
        Ok(text(&model.identity.config_json()))
    }

    #[napi]
    pub fn model_statistics(&self, name: String, version: String) -> napi::Result<String> {
        self.engine.statistics(&name, &version).map(|s| engine::statistics_json(&s)).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn model_ready(&self, name: String, version: String) -> napi::Result<bool> {
        self.engine.is_model_ready(&name, &version).map_err(|e| thrown(&e))
    }
}

#[expect(clippy::disallowed_methods, reason = "an event would cost each request")]
fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
