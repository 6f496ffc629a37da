//! Reactors: threads that accept, read, answer and write. Each has its own listeners and connections; per request they
//! write to two shared counters only.

use crate::access_log::Logs;
use crate::control::Control;
use crate::descriptors;
use crate::gate::GateOptions;
use crate::grpc::connection as grpc;
use crate::grpc::context::GrpcContext;
use crate::hold::{self, HoldTotals, Holds};
use crate::http::connection as http;
use crate::http::context::HttpContext;
use crate::idle::{Idle, IdleHandle};
use crate::keys::Keyring;
use crate::limits::{
    CONNECTIONS_SHARE, CONTROL_CONNECTIONS_MAX, DESERTED_TIME, HEALTH_SEATS_MAX, IDLE_SWEEP_INTERVAL, IDLE_TIME_MAX,
    SHORTAGE_PERCENT,
};
use crate::listen::{self, BoundListener, ListenAddress, Listener, Listening, SocketFile, unix_path};
use crate::origin::{Caller, Face, Origin};
use crate::shared::{Phase, Shared};
use crate::stray::{self, Places};
use crate::tls::{Encrypted, Expiry, Tls, TlsFiles, Watcher};
use crate::transfer::Shortage;
use crate::watch;
use engine::Engine;
use memory::Budget;
use options::{HttpOptions, ListenOptions, TlsOptions};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tensor::{Error, Result};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::{JoinHandle as JoinTask, LocalSet};
use tokio::time::{Instant, sleep};

/// Interval in which a closing reactor checks whether it can end.
const CLOSE_POLL: Duration = Duration::from_millis(2);
/// Pause after an accept failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Numbers of the front ends.
const HTTP: usize = 0;
const GRPC: usize = 1;
const CONTROL: usize = 2;

/// The running HTTP, gRPC and control listeners with their reactors.
pub struct FrontEnd {
    /// Port of the HTTP listener; 0 if it is off or a Unix socket.
    pub http_port: u16,
    /// Port of the gRPC listener; 0 if it is off or a Unix socket.
    pub grpc_port: u16,
    /// Port of the listener of `--openai-port`; 0 if it is off or a Unix socket.
    pub openai_port: u16,
    /// Port of the control address; 0 if it is off or a Unix socket.
    pub control_port: u16,
    /// Files of Unix sockets, removed once nothing listens on them.
    files: Vec<SocketFile>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    holds: Vec<Arc<Holds>>,
    /// The last pulse that each reactor answered.
    pulses: Vec<Arc<AtomicU64>>,
    /// Reads changed certificates.
    watcher: Option<Watcher>,
}

/// Context, TLS and socket of a listener that is bound and does not listen yet.
type BoundFrontEnd<C> = (Arc<C>, Option<Arc<Tls>>, BoundListener);

/// Listeners whose ports, certificates and options were checked. Connections are rejected until [`Bound::serve`].
pub struct Bound {
    /// Port of the HTTP listener; 0 if it is off or a Unix socket.
    pub http_port: u16,
    /// Port of the gRPC listener; 0 if it is off or a Unix socket.
    pub grpc_port: u16,
    /// Port of the listener of `--openai-port`; 0 if it is off or a Unix socket.
    pub openai_port: u16,
    /// Port of the control address; 0 if it is off or a Unix socket.
    pub control_port: u16,
    control: Option<BoundFrontEnd<HttpContext>>,
    grpc: Option<BoundFrontEnd<GrpcContext>>,
    http: Option<BoundFrontEnd<HttpContext>>,
    openai: Option<BoundFrontEnd<HttpContext>>,
    watched: Vec<(Arc<Tls>, TlsFiles)>,
    shared: Arc<Shared>,
    count: usize,
    connections_max: usize,
    /// Smallest rate of a client in bytes per second; 0 = none.
    rate_min: u64,
}

/// A service that cannot be started.
#[derive(Debug)]
pub struct StartFailure {
    /// `control`, `GRPC`, `HTTP` or `Metrics`.
    pub service: &'static str,
    /// `failed to start HTTP service: …`: UNAVAILABLE `Socket '<address>:<port>' already in use `, or INVALID_ARG for
    /// wrong options or files.
    pub error: Error,
}

/// All listeners, and what they share with others.
#[derive(Debug, Clone, Default)]
pub struct FrontendOptions {
    /// The listeners.
    pub listen: ListenOptions,
    /// Accepted keys. `None`: no key is required.
    pub keys: Option<Arc<Keyring>>,
    /// Logs of requests and of control calls; the caller closes them.
    pub logs: Option<Arc<Logs>>,
    /// Connections of all reactors together; 0 = as many as the descriptors of the process allow.
    pub connections_max: usize,
    /// Memory budget of inflight requests and responses; `None` = the budget of the process.
    pub budget: Option<Budget>,
}

impl FrontendOptions {
    /// The budget of the front ends.
    pub(crate) fn budget(&self) -> Budget {
        self.budget.clone().unwrap_or_else(|| Budget::global().clone())
    }

    /// Checks of all front ends.
    pub(crate) fn gate(&self) -> GateOptions {
        let allow_remote_settings = self.listen.gate.allow_remote_settings;
        GateOptions { allow_remote_settings, keys: self.keys.clone(), ..GateOptions::default() }
    }
}

/// The number of reactor threads to run for a configured number; 0 = as many as suit the machine.
pub fn reactors(configured: usize) -> usize {
    match configured {
        0 => (memory::machine::cpus() / 4).max(1),
        n => n,
    }
}

/// Binds and serves.
///
/// # Errors
/// The error of the first [`StartFailure`]; INTERNAL if no thread can be started.
pub fn serve(engine: Arc<Engine>, control: Arc<dyn Control>, options: FrontendOptions) -> Result<FrontEnd> {
    match bind(engine, control, &options) {
        Ok(bound) => bound.serve(),
        Err(failures) => Err(failures.into_iter().map(|failure| failure.error).next().unwrap_or_else(no_reason)),
    }
}

fn no_reason() -> Error {
    Error::internal("cannot start, for no reason")
}

/// Binds, and reads certificates.
///
/// # Errors
/// One failure per service that cannot be started.
pub fn bind(
    engine: Arc<Engine>,
    control: Arc<dyn Control>,
    options: &FrontendOptions,
) -> std::result::Result<Bound, Vec<StartFailure>> {
    let listen = &options.listen;
    let count = reactors(listen.reactor_threads);
    let as_triton = listen.openai_errors_as_triton;
    let connections_max = match options.connections_max {
        0 => descriptors::connections_max(count),
        n => n,
    };
    let shared = Arc::new(Shared::new(connections_max, options.budget()).with_logs(options.logs.clone()));
    let changed = shared.clone();
    engine.on_change(move |engine| changed.set_ready(|| engine.is_ready()));
    let mut watched = Vec::new();
    let mut failures = Vec::new();
    let mut gate = options.gate();
    let mode = listen.unix_socket_mode;
    let control_face = listen.control.as_ref().map(|o| {
        let at = ListenAddress { given_fd: None, address: &o.address, port: o.port, reuse_port: false, mode };
        let listener = listen::bind(at, count)?;
        let tls = open_tls(o.tls.as_ref(), at, &[b"h2", b"http/1.1"], "control", &mut watched)?;
        let is_file = unix_path(&o.address).is_some();
        gate.control =
            Some(if is_file { o.address.as_str().into() } else { format!("{}:{}", o.address, listener.port).into() });
        // The control address checks callers as the other listeners do, whether these serve or not.
        let http = HttpOptions { cors_origins: Vec::new(), ..listen.http.clone().unwrap_or_default() };
        let mut context =
            HttpContext::new(engine.clone(), control.clone(), shared.clone(), &http, gate.clone(), as_triton)?;
        let grpc = listen.grpc.clone().unwrap_or_default();
        let calls = GrpcContext::new(engine.clone(), control.clone(), shared.clone(), &grpc, gate.clone());
        context.grpc = Some(Arc::new(calls?));
        Ok((Arc::new(context), tls, listener))
    });
    let control_face = started("control", control_face, &mut failures);
    // gRPC first, as in Triton: if both ports are taken, the first error names the same service.
    let grpc = listen.grpc.as_ref().map(|o| {
        let context = GrpcContext::new(engine.clone(), control.clone(), shared.clone(), o, gate.clone())?;
        let at =
            ListenAddress { given_fd: o.given_fd, address: &o.address, port: o.port, reuse_port: o.reuse_port, mode };
        let listener = listen::bind(at, count)?;
        let tls = open_tls(o.tls.as_ref(), at, &[b"h2"], "grpc", &mut watched)?;
        Ok((Arc::new(context), tls, listener))
    });
    let grpc = started("GRPC", grpc, &mut failures);
    let mut serve_http = |o: &HttpOptions, is_openai| {
        let context = HttpContext::new(engine.clone(), control.clone(), shared.clone(), o, gate.clone(), as_triton)?;
        let context = HttpContext { is_openai, ..context };
        let at =
            ListenAddress { given_fd: o.given_fd, address: &o.address, port: o.port, reuse_port: o.reuse_port, mode };
        let listener = listen::bind(at, count)?;
        let tls = open_tls(o.tls.as_ref(), at, &[b"h2", b"http/1.1"], "http", &mut watched)?;
        Ok((Arc::new(context), tls, listener))
    };
    let http = listen.http.as_ref().map(|o| serve_http(o, false));
    let openai = listen.openai.as_ref().map(|o| serve_http(o, true));
    let http = started("HTTP", http, &mut failures);
    let openai = started("OpenAI", openai, &mut failures);
    if !failures.is_empty() {
        return Err(failures);
    }
    let (http_port, grpc_port) = (port_of(http.as_ref()), port_of(grpc.as_ref()));
    shared.strays().set_places(Places {
        http: listen.http.as_ref().map(|o| stray::place(&o.address, http_port)),
        grpc: listen.grpc.as_ref().map(|o| stray::place(&o.address, grpc_port)),
    });
    Ok(Bound {
        http_port,
        grpc_port,
        openai_port: port_of(openai.as_ref()),
        control_port: port_of(control_face.as_ref()),
        control: control_face,
        grpc,
        http,
        openai,
        watched,
        shared,
        count,
        connections_max,
        rate_min: listen.slow_client_bytes_per_sec,
    })
}

/// Binds the port of the metrics server, which another part of this process runs.
///
/// # Errors
/// The failure of the service `Metrics`.
pub fn bind_metrics(address: &str, port: u16) -> std::result::Result<BoundListener, StartFailure> {
    let at = ListenAddress { given_fd: None, address, port, reuse_port: false, mode: 0 };
    listen::bind(at, 1).map_err(|error| StartFailure { service: "Metrics", error: not_started("Metrics", &error) })
}

fn port_of<C>(front: Option<&BoundFrontEnd<C>>) -> u16 {
    front.map_or(0, |(_, _, listener)| listener.port)
}

/// Returns the service, or records its failure.
fn started<C>(service: &'static str, made: Option<Result<C>>, failures: &mut Vec<StartFailure>) -> Option<C> {
    match made? {
        Ok(front) => Some(front),
        Err(error) => {
            failures.push(StartFailure { service, error: not_started(service, &error) });
            None
        }
    }
}

/// Context, TLS, and a listener per reactor.
type Listens<C> = (Arc<C>, Option<Arc<Tls>>, Vec<Listener>);

impl Bound {
    /// Listens and serves.
    ///
    /// # Errors
    /// UNAVAILABLE as [`StartFailure`] if another process listened first; INTERNAL if no thread can be started.
    pub fn serve(self) -> Result<FrontEnd> {
        let Self { count, shared, connections_max, rate_min, .. } = self;
        let mut running = FrontEnd {
            http_port: self.http_port,
            grpc_port: self.grpc_port,
            openai_port: self.openai_port,
            control_port: self.control_port,
            files: Vec::new(),
            shared: shared.clone(),
            threads: Vec::new(),
            holds: Vec::new(),
            pulses: Vec::new(),
            watcher: None,
        };
        let mut control = open(self.control, "control", &mut running.files)?;
        let mut grpc = open(self.grpc, "GRPC", &mut running.files)?;
        let mut http = open(self.http, "HTTP", &mut running.files)?;
        let mut openai = open(self.openai, "OpenAI", &mut running.files)?;
        running.watcher = Watcher::start(self.watched)?;
        let failed = |e: std::io::Error| Error::internal(format!("cannot start a reactor: {e}"));
        for i in 0..count {
            let http = http.as_mut().and_then(|(c, tls, l)| Some((c.clone(), tls.clone(), l.pop()?)));
            let openai = openai.as_mut().and_then(|(c, tls, l)| Some((c.clone(), tls.clone(), l.pop()?)));
            let grpc = grpc.as_mut().and_then(|(c, tls, l)| Some((c.clone(), tls.clone(), l.pop()?)));
            let control = control.as_mut().and_then(|(c, tls, l)| Some((c.clone(), tls.clone(), l.pop()?)));
            let shared = shared.clone();
            let runtime =
                Builder::new_current_thread().enable_all().on_thread_unpark(hold::woke).build().map_err(failed)?;
            let holds = Arc::new(Holds::default());
            running.holds.push(holds.clone());
            let pulse = Arc::new(AtomicU64::new(0));
            running.pulses.push(pulse.clone());
            let body = move || {
                memory::thread::request_short_slices();
                hold::begin(holds);
                reactor(
                    &runtime,
                    ([http, openai], grpc, control),
                    &shared,
                    pulse,
                    (connections_max.div_ceil(count), rate_min),
                );
            };
            let thread = std::thread::Builder::new().name(format!("reactor-{i}")).spawn(body);
            // Dropping `running` ends the threads that were started.
            running.threads.push(thread.map_err(failed)?);
        }
        Ok(running)
    }
}

fn open<C>(front: Option<BoundFrontEnd<C>>, service: &str, files: &mut Vec<SocketFile>) -> Result<Option<Listens<C>>> {
    let Some((context, tls, listener)) = front else { return Ok(None) };
    let Listening { listeners, file } = listener.listen().map_err(|e| not_started(service, &e))?;
    files.extend(file);
    Ok(Some((context, tls, listeners)))
}

/// Opens the TLS of a listener and adds its files to `watched`.
fn open_tls(
    options: Option<&TlsOptions>,
    at: ListenAddress<'_>,
    protocols: &[&[u8]],
    listener: &'static str,
    watched: &mut Vec<(Arc<Tls>, TlsFiles)>,
) -> Result<Option<Arc<Tls>>> {
    let Some(options) = options else { return Ok(None) };
    if at.given_fd.is_none() && unix_path(at.address).is_some() {
        return Err(Error::invalid(format!(
            "TLS is not supported over a Unix socket ({}): its data stay on this machine, and the mode of its file \
             decides who may connect",
            at.address
        )));
    }
    let (tls, files) = Tls::open(options, protocols, listener)?;
    watched.push((tls.clone(), files));
    Ok(Some(tls))
}

/// Error of a service that cannot start, in Triton's words.
fn not_started(service: &str, error: &Error) -> Error {
    let (code, text) = (error.code(), error.message());
    Error::new(code, format!("failed to start {service} service: {} - {text}", code.name()))
}

impl FrontEnd {
    /// Closes connections after their next response; the listeners stay open, and requests are answered. False if there
    /// is no connection and was none recently: the caller need not wait before it closes the listeners.
    pub fn leave(&self) -> bool {
        self.shared.advance(Phase::Leaving);
        !self.shared.is_deserted(DESERTED_TIME)
    }

    /// Closes the listeners, for a process that continues with their sockets. Requests on open connections are
    /// answered, then the connections end.
    pub fn hand_over(&self) {
        self.shared.advance(Phase::HandingOver);
    }

    /// Rejects new inferences; the listeners stay open for sequences in progress.
    pub fn refuse(&self) {
        self.shared.advance(Phase::Refusing);
    }

    /// Sends a pulse to every reactor. True if all of them answered the last one, which a blocked reactor does not.
    pub fn pulse(&self) -> bool {
        let last = self.shared.pulse();
        // An idle reactor may have answered the new pulse already.
        self.pulses.iter().all(|answered| answered.load(Ordering::Acquire) >= last)
    }

    /// Closes the listeners and rejects new inferences; connections stay.
    pub fn stop_accepting(&self) {
        self.shared.advance(Phase::Draining);
    }

    /// Requests whose response is not written to the last byte.
    pub fn inflight(&self) -> u64 {
        self.shared.requests()
    }

    /// Limits and their current values: name, help, value.
    pub fn gauges(&self) -> [(&'static str, &'static str, u64); 7] {
        self.shared.gauges()
    }

    /// Consequences of shortages for connections: reason and number.
    pub fn shortages(&self) -> [(&'static str, u64); 3] {
        self.shared.shortages()
    }

    /// Reads certificates, keys and roots again now; returns the files of the certificates. Wrong files are logged, and
    /// the previous contents stay in use.
    pub fn reread(&self) -> Vec<String> {
        self.watcher.as_ref().map(Watcher::reread).unwrap_or_default()
    }

    /// When certificates expire; `None` if no listener speaks TLS.
    pub fn expiries(&self) -> Option<Vec<Expiry>> {
        self.watcher.as_ref().map(Watcher::expiries)
    }

    /// Failed TLS handshakes by reason; none if no listener speaks TLS.
    pub fn failed_handshakes(&self) -> Vec<(&'static str, u64)> {
        self.watcher.as_ref().map(Watcher::failed_handshakes).unwrap_or_default()
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// Times for which reactors worked for one client without a pause.
    pub fn holds(&self) -> HoldTotals {
        let mut totals = HoldTotals::default();
        self.holds.iter().for_each(|holds| totals.add(holds));
        totals
    }

    /// Ends everything: inflight requests have `grace` to finish. Blocks until all threads have ended.
    pub fn close(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.shared.advance(Phase::Closing(grace));
        for thread in self.threads.drain(..) {
            // A reactor that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Context, TLS and the listener of one reactor.
type Front<C> = (Arc<C>, Option<Arc<Tls>>, Listener);
/// HTTP with the port of OpenAI's form, gRPC and the control address.
type Fronts = ([Option<Front<HttpContext>>; 2], Option<Front<GrpcContext>>, Option<Front<HttpContext>>);

fn reactor(
    runtime: &Runtime,
    (https, grpc, control): Fronts,
    shared: &Arc<Shared>,
    pulse: Arc<AtomicU64>,
    (connections_max, rate_min): (usize, u64),
) {
    let local = LocalSet::new();
    local.block_on(runtime, async {
        let _turns = begin_reactor();
        let mut beats = shared.pulses();
        hold::spawn(async move {
            while beats.changed().await.is_ok() {
                pulse.store(*beats.borrow_and_update(), Ordering::Release);
            }
        });
        let grpc_open = Rc::new(Cell::new(0));
        let room = Capacity::new(connections_max, rate_min, shared);
        // Counted separately: clients that exhaust the connections, or have idle ones closed, do not affect operators.
        let aside = Capacity::new(CONTROL_CONNECTIONS_MAX, rate_min, shared);
        let swept = [room.clone(), aside.clone()];
        hold::spawn(async move {
            loop {
                sleep(IDLE_SWEEP_INTERVAL).await;
                swept.iter().for_each(Capacity::sweep);
            }
        });
        let mut accepting = Vec::new();
        if let Some(front) = control {
            let info = ListenerInfo { room: aside, kind: CONTROL, open: Rc::default(), face: Face::Control };
            accepting.push(listening(
                front,
                info,
                http::run::<TcpStream>,
                http::run::<Encrypted>,
                http::run::<UnixStream>,
            ));
        }
        for front in https.into_iter().flatten() {
            let info = ListenerInfo { room: room.clone(), kind: HTTP, open: Rc::default(), face: Face::Public };
            accepting.push(listening(
                front,
                info,
                http::run::<TcpStream>,
                http::run::<Encrypted>,
                http::run::<UnixStream>,
            ));
        }
        if let Some(front) = grpc {
            let info = ListenerInfo { room, kind: GRPC, open: grpc_open.clone(), face: Face::Public };
            accepting.push(listening(
                front,
                info,
                grpc::run::<TcpStream>,
                grpc::run::<Encrypted>,
                grpc::run::<UnixStream>,
            ));
        }
        let mut phase = shared.watch();
        // `shared` owns the sender: neither wait can fail.
        let _ = phase.wait_for(|p| *p == Phase::HandingOver || *p >= Phase::Draining).await;
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        let grace = match phase.wait_for(|p| matches!(p, Phase::Closing(_))).await.map(|p| *p) {
            Ok(Phase::Closing(grace)) => grace,
            _ => Duration::ZERO,
        };
        let end = Instant::now() + grace;
        // gRPC connections end once they have written everything; HTTP connections are idle between requests.
        while (shared.requests() > 0 || grpc_open.get() > 0) && Instant::now() < end {
            sleep(CLOSE_POLL).await;
        }
    });
    // Dropping the set drops the remaining connections.
}

/// Kind, face and connection counts of one listener.
struct ListenerInfo {
    room: Capacity,
    kind: usize,
    /// Open connections of this listener.
    open: Rc<Cell<usize>>,
    face: Face,
}

/// Serves one connection.
type Serve<S, C, F> = fn(S, Arc<C>, Caller, IdleHandle) -> F;

/// Accepts connections of a front end and serves them, after their handshake if they use TLS.
fn listening<C: 'static, P, E, U>(
    (context, tls, listener): Front<C>,
    info: ListenerInfo,
    plain: Serve<TcpStream, C, P>,
    encrypted: Serve<Encrypted, C, E>,
    local: Serve<UnixStream, C, U>,
) -> JoinTask<()>
where
    P: Future<Output = ()> + 'static,
    E: Future<Output = ()> + 'static,
    U: Future<Output = ()> + 'static,
{
    let listener = match listener {
        Listener::Tcp(listener) => TcpListener::from_std(listener),
        Listener::Unix(listener) => {
            let serve = move |io, caller, place| local(io, context.clone(), caller, place);
            return hold::spawn(accept(UnixListener::from_std(listener), info, serve));
        }
    };
    let Some(tls) = tls else {
        let serve = move |io, caller, place| plain(io, context.clone(), caller, place);
        return hold::spawn(accept(listener, info, serve));
    };
    let shared = info.room.shared.clone();
    let serve = move |io, caller, place: IdleHandle| {
        let (context, tls, shared) = (context.clone(), tls.clone(), shared.clone());
        async move {
            // Idle during the handshake: the connection may be closed to make room for another one.
            place.wait();
            // Boxed: the future of the handshake is larger than the rest.
            if let Some(io) = Box::pin(tls.accept(io, shared.strays())).await {
                encrypted(io, context, caller, place).await;
            }
        }
    };
    hold::spawn(accept(listener, info, serve))
}

/// A socket that accepts connections.
trait Accept: 'static {
    type Io: 'static;

    /// The next connection, its origin and the address of the peer.
    async fn accept(&self) -> io::Result<(Self::Io, Origin, Option<SocketAddr>)>;

    /// Sets options of a connection; false if it cannot be served.
    fn prepare(_: &Self::Io) -> bool {
        true
    }
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Origin, Option<SocketAddr>)> {
        let (io, peer) = Self::accept(self).await?;
        let origin = Origin::of(peer, || io.local_addr().ok());
        Ok((io, origin, Some(peer)))
    }

    fn prepare(io: &TcpStream) -> bool {
        io.set_nodelay(true).is_ok()
    }
}

impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Origin, Option<SocketAddr>)> {
        Self::accept(self).await.map(|(io, _)| (io, Origin::Unix, None))
    }
}

/// Starts turns, mail and the sockets of backends, with which a thread runs inferences and is woken by others. They end
/// when the result is dropped. Called inside the `LocalSet` of the thread.
pub(crate) fn begin_reactor() -> Arc<dyn backend::poll::Poller> {
    // The first request of a turn wakes this task, which runs after all tasks that were ready: at the end of the turn.
    let turn = Arc::new(Notify::new());
    let wake = turn.clone();
    engine::begin_turns(move || wake.notify_one());
    on_notify(turn, engine::end_turn);
    // All responses in the mailbox wake their tasks before one of these runs, and are written together.
    let mail = Arc::new(Notify::new());
    let wake = mail.clone();
    let mailbox = engine::begin_mail(move || wake.notify_one());
    on_notify(mail, move || mailbox.open());
    let backends = Arc::new(Notify::new());
    let wake = backends.clone();
    backend::poll::begin_turns(move || wake.notify_one());
    on_notify(backends, backend::poll::end_turn);
    watch::begin()
}

/// Spawns a task that calls `work` after each notification.
fn on_notify(notified: Arc<Notify>, work: impl Fn() + 'static) {
    hold::spawn(async move {
        loop {
            notified.notified().await;
            work();
        }
    });
}

/// Counts one connection of this reactor until it is dropped.
struct ConnectionCount(Rc<Cell<usize>>);

impl ConnectionCount {
    fn new(cell: &Rc<Cell<usize>>) -> Self {
        cell.set(cell.get() + 1);
        Self(cell.clone())
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Connections that one reactor may have.
#[derive(Clone)]
struct Capacity {
    /// Open connections of both front ends, without those for health checks.
    open: Rc<Cell<usize>>,
    max: usize,
    /// Further connections, for health checks.
    seats: usize,
    /// Smallest rate of a client in bytes per second; 0 = none.
    rate_min: u64,
    idle: Rc<Idle>,
    shared: Arc<Shared>,
}

impl Capacity {
    fn new(connections_max: usize, rate_min: u64, shared: &Arc<Shared>) -> Self {
        let seats = HEALTH_SEATS_MAX.min(connections_max / 16);
        let (max, shared) = (connections_max - seats, shared.clone());
        Self { open: Rc::default(), max, seats, rate_min, idle: Idle::new(), shared }
    }

    fn sweep(&self) {
        self.shared.count_closed_idle(self.idle.sweep(Instant::now(), IDLE_TIME_MAX));
        let is_above = |used: usize, max: usize| used as u64 * 100 >= max as u64 * SHORTAGE_PERCENT;
        let is_shortage = self.rate_min > 0
            && (is_above(self.open.get(), self.max) || {
                let budget = self.shared.budget().counters();
                is_above(budget.used_bytes.iter().sum(), budget.limit_bytes)
            });
        let closed = |delayed| self.shared.count_shortage(delayed);
        self.idle.sweep_slow(IDLE_SWEEP_INTERVAL, self.rate_min, is_shortage, closed);
    }

    /// Whether a front end with `of_kind` connections has reached its limit, which leaves a share to the other.
    fn is_out_of_share(&self, of_kind: usize) -> bool {
        of_kind >= self.max - self.max / CONNECTIONS_SHARE
    }

    fn close_oldest(&self, kind: Option<usize>) -> bool {
        let closed = self.idle.close_oldest(kind, self.rate_min);
        self.shared.count_closed_idle(usize::from(closed));
        closed
    }
}

async fn accept<L: Accept, F: Future<Output = ()> + 'static>(
    listener: io::Result<L>,
    ListenerInfo { room, kind, open: of_kind, face }: ListenerInfo,
    serve: impl Fn(L::Io, Caller, IdleHandle) -> F,
) {
    let Ok(listener) = listener else { return };
    loop {
        let Ok((io, origin, peer)) = listener.accept().await else {
            // Usually for lack of descriptors, which an idle connection frees.
            room.close_oldest(None);
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A front end beyond its share closes an idle connection of its own, not one of the other front end.
        let is_out_of_share = room.is_out_of_share(of_kind.get());
        let is_full = is_out_of_share || room.open.get() >= room.max;
        let of = is_out_of_share.then_some(kind);
        let is_crowded = is_full && !room.close_oldest(of);
        let place = match is_crowded {
            false => Some(room.idle.register(kind)),
            true => room.idle.register_seat(kind, room.seats),
        };
        // Without a seat the connection is closed, as an overloaded kernel would do.
        let Some(place) = place.filter(|_| L::prepare(&io)) else { continue };
        let (face, counts) = match is_crowded {
            false => (face, Some((ConnectionCount::new(&room.open), ConnectionCount::new(&of_kind)))),
            true => {
                room.shared.count_shortage(Shortage::Crowded);
                (Face::Crowded, None)
            }
        };
        let task_setter = place.task_setter();
        let served = serve(io, Caller { origin, face, peer }, place);
        let shared = room.shared.clone();
        let task = hold::spawn(async move {
            let _counted = shared.connection();
            served.await;
            drop(counts);
        });
        task_setter(task.abort_handle());
        if is_full {
            // A closed connection frees its descriptor when its task runs next.
            tokio::task::yield_now().await;
        }
    }
}
