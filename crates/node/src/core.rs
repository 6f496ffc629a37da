//! The core as a JavaScript object: its life, its front ends and its log. Further methods are in its modules, and
//! in `access`, `metrics` and `models`.

mod embed;
mod infer;
mod traces;

use crate::control::Bridge;
use crate::failure::{Result, thrown, unbound};
use crate::json::Json;
use crate::settle::{Report, Settled, Settler};
use crate::stream::Pull;
use crate::workers::{NodeThreads, WorkerCall};
use crate::{gpu, logging, objects as js};
use engine::{ServerState, Ticket};
use frontend::{FrontEnd, StartFailure};
use napi::bindgen_prelude::{FnArgs, Function};
use napi_derive::napi;
use nereid_core::{Address, Outside, Server};
use options::{CoreOptions, ListenOptions, RequestLogOptions};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tensor::{Code, Error, Fault};

/// The core, one per server. Methods with a `ticket` report through `onSettled` exactly once; the others return
/// directly. Errors are thrown with an `ErrorCode` as `code`.
#[napi]
pub struct NativeCore {
    pub(crate) server: Arc<Server>,
    control: Arc<Bridge>,
    settler: Mutex<Option<Settler>>,
    pub(crate) tickets: Arc<Mutex<HashMap<u32, Ticket>>>,
    pub(crate) streams: Mutex<HashMap<u32, Arc<Pull>>>,
    pub(crate) embedded_bodies: crate::embed::Bodies,
    /// Start of the core's clock, by JavaScript's.
    pub(crate) clock_start_ns: OnceLock<u64>,
}

fn failure(StartFailure { service, error }: StartFailure) -> js::BindFailure {
    js::BindFailure { service: service.into(), code: error.code().constant(), message: error.message().into() }
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
        let control = Arc::new(Bridge::new(&on_control).map_err(unbound)?);
        let outside = Outside {
            control: control.clone(),
            log: logging::sink(&on_log).map_err(unbound)?,
            threads: Arc::new(NodeThreads::new(&on_worker).map_err(unbound)?),
            on_traces: crate::traces::notify(&on_traces).map_err(unbound)?,
            on_device_failure: gpu::notify_failures(&on_device_failure).map_err(unbound)?,
        };
        let settler = Settler::new(&on_settled).map_err(unbound)?;
        let server = Server::start(options.0, outside).map_err(|e| thrown(&e))?;
        Ok(Self {
            server: Arc::new(server),
            control,
            settler: Mutex::new(Some(settler)),
            tickets: Arc::default(),
            streams: Mutex::default(),
            embedded_bodies: crate::embed::Bodies::default(),
            clock_start_ns: OnceLock::new(),
        })
    }

    pub(crate) fn settler(&self) -> Result<Settler> {
        self.settler.lock().clone().ok_or_else(|| thrown(&Error::unavailable("Server exiting")))
    }

    #[napi]
    pub fn set_server_state(&self, #[napi(ts_arg_type = "ServerState")] state: String) {
        self.server.set_state(match state.as_str() {
            "ready" => ServerState::Ready,
            "exiting" => ServerState::Exiting,
            "failed" => ServerState::Failed,
            "loading" => ServerState::Loading,
            _ => ServerState::Initializing,
        });
    }

    /// Does not query models.
    #[napi]
    pub fn is_ready(&self) -> bool {
        self.server.engine().is_ready()
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
            "" => self.server.engine().readiness(),
            name => self.server.engine().model_ready(name, &version).map_err(|e| thrown(&e))?,
        };
        ready.notify(move |ready| settler.settle(ticket, Ok(Settled::Flag(ready))));
        Ok(())
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
        self.server.open_logs(&options.0, reactor_threads as usize).map_err(|e| thrown(&e))
    }

    /// Binds the ports of front ends and metrics and reads certificates; clients are not accepted yet. If anything
    /// fails, `failures` lists it and nothing is bound. Call it after `openKeys` and `openLogs`.
    #[napi]
    pub fn bind(
        &self,
        #[napi(ts_arg_type = "ListenOptions")] options: Json<ListenOptions>,
        metrics: Option<js::MetricsAddress>,
    ) -> Result<js::BoundPorts> {
        let metrics = metrics.map(|at| Address { address: at.address, port: at.port });
        Ok(match self.server.bind(options.0, metrics) {
            Ok(ports) => js::BoundPorts {
                http_port: ports.http,
                grpc_port: ports.grpc,
                openai_port: ports.openai,
                control_port: ports.control,
                metrics_port: ports.metrics,
                failures: Vec::new(),
            },
            Err(failures) => {
                js::BoundPorts { failures: failures.into_iter().map(failure).collect(), ..Default::default() }
            }
        })
    }

    /// Closes ports and socket files at once, for a process that ends while its models load.
    #[napi]
    pub fn unbind(&self) {
        self.server.unbind();
    }

    /// Descriptor of the metrics socket, now owned by the caller; null if the caller has to bind its own.
    #[napi]
    pub fn take_metrics_socket(&self) -> Option<i32> {
        self.server.take_metrics_socket()
    }

    /// Serves on the sockets of `bind`. Rejects with UNAVAILABLE, as a `BindFailure`, if another process was first.
    #[napi]
    pub fn listen(&self, #[napi(ts_arg_type = "Ticket<void>")] ticket: u32) -> Result<()> {
        let server = self.server.clone();
        self.settler()?.run(ticket, move || server.listen().map(|()| Settled::Nothing));
        Ok(())
    }

    /// Gives a connection to the program that embeds this server, whose socket is descriptor `fd`; it stays open for
    /// the caller. Resolves when the program has answered.
    #[napi]
    pub fn serve_embedder(&self, #[napi(ts_arg_type = "Ticket<void>")] ticket: u32, fd: i32) -> Result<()> {
        let server = self.server.clone();
        self.settler()?.run(ticket, move || server.serve_embedder(fd).map(|()| Settled::Nothing));
        Ok(())
    }

    /// Reads keys and certificates again and reopens request logs that were moved; returns the files. Invalid files are
    /// logged and the previous contents stay in use.
    #[napi]
    pub fn reread(&self) -> Vec<String> {
        self.server.reread()
    }

    /// Closes the listeners for a process that continues with their sockets. Open connections end with their responses.
    #[napi]
    pub fn hand_over(&self) {
        self.server.with_running(FrontEnd::hand_over);
    }

    /// Open connections.
    #[napi]
    pub fn connections(&self) -> i64 {
        let open = self.server.with_running(FrontEnd::connections).unwrap_or(0);
        i64::try_from(open).unwrap_or(i64::MAX)
    }

    /// True if all reactors have shown activity since the last call, and before they are started.
    #[napi]
    pub fn pulse(&self) -> bool {
        self.server.with_running(FrontEnd::pulse).unwrap_or(true)
    }

    /// Makes the server not ready, and closes connections with their next response; the listeners stay open, and
    /// requests are answered. False if no client is connected and none was lately, so that none is affected.
    #[napi]
    pub fn leave(&self) -> bool {
        self.server.leave()
    }

    /// Sequences in progress, including those of replaced versions.
    #[napi]
    pub fn sequences(&self) -> i64 {
        i64::try_from(self.server.engine().sequences()).unwrap_or(i64::MAX)
    }

    /// Closes the listeners and rejects new inferences; resolves after at most `timeoutMs` with the number of requests
    /// and sequences still in progress.
    #[napi]
    pub fn drain(&self, #[napi(ts_arg_type = "Ticket<number>")] ticket: u32, timeout_ms: i64) -> Result<()> {
        let settler = self.settler()?;
        self.server.stop_accepting();
        let engine = self.server.engine().clone();
        let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        settler.run(ticket, move || Ok(Settled::Count(engine.drain(limit) as i64)));
        Ok(())
    }

    /// Ends connections and threads, unmaps regions, waits for processes of models that finalize. The last call:
    /// afterwards nothing keeps the event loop alive.
    #[napi]
    pub fn close(&self, #[napi(ts_arg_type = "Ticket<void>")] ticket: u32, grace_ms: i64) -> Result<()> {
        let settler = self.settler.lock().take().ok_or_else(|| thrown(&Error::unavailable("Server exiting")))?;
        let streams = std::mem::take(&mut *self.streams.lock());
        streams.values().for_each(|pull| pull.cancel());
        let server = self.server.clone();
        let grace = Duration::from_millis(u64::try_from(grace_ms).unwrap_or(0));
        settler.clone().run(ticket, move || {
            server.close(grace);
            Ok(Settled::Nothing)
        });
        Ok(())
    }

    /// Ends the worker threads that import or initialize a JavaScript model, or null = any: their loads fail.
    #[napi]
    pub fn end_starting_workers(&self, model: Option<String>) {
        self.server.end_starting_workers(model.as_deref());
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
        self.server.set_verbose_level(level);
    }
}
