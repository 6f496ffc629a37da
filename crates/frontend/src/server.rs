//! Reactors: threads that accept, read, answer and write. Each has its own listeners and its own connections; they share nothing
//! that is written per request but two counters.

use crate::control::Control;
use crate::descriptors;
use crate::grpc::connection as grpc;
use crate::grpc::context::GrpcContext;
use crate::hold::{self, HoldTotals, Holds};
use crate::http::connection as http;
use crate::http::context::HttpContext;
use crate::idle::{Idle, IdleHandle};
use crate::limits::{CONNECTIONS_SHARE, CONTROL_CONNECTIONS_MAX, DESERTED_TIME, IDLE_SWEEP_INTERVAL, IDLE_TIME_MAX};
use crate::listen::{self, BoundListener, ListenAddress, Listener, Listening, SocketFile, unix_path};
use crate::options::{FrontendOptions, HttpOptions};
use crate::origin::{Caller, Face, Origin};
use crate::shared::{Phase, Shared};
use crate::stray::{self, Places};
use crate::tls::{Encrypted, Tls, TlsFiles, TlsOptions, Watcher};
use crate::watch;
use engine::Engine;
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
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::{JoinHandle as JoinTask, LocalSet};
use tokio::time::{Instant, sleep};

/// How often a closing reactor looks whether it may go.
const CLOSE_POLL: Duration = Duration::from_millis(2);
/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Numbers of the front ends.
const HTTP: usize = 0;
const GRPC: usize = 1;
const CONTROL: usize = 2;

/// A front end that serves.
pub struct FrontEnd {
    /// Port of the HTTP listener, 0 when it is off or a Unix socket.
    pub http_port: u16,
    /// Port of the gRPC listener, 0 when it is off or a Unix socket.
    pub grpc_port: u16,
    /// Port of the control address, 0 when there is none or it is a Unix socket.
    pub control_port: u16,
    /// Of Unix sockets; removed when nothing listens there any more.
    files: Vec<SocketFile>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Of each reactor.
    holds: Vec<Arc<Holds>>,
    /// The last pulse that each reactor has answered.
    pulses: Vec<Arc<AtomicU64>>,
    /// Looks for new certificates.
    watcher: Option<Watcher>,
}

/// A front end that does not listen yet.
type BoundFrontEnd<C> = (Arc<C>, Option<Arc<Tls>>, BoundListener);

/// Front ends with their ports, certificates and options: all that can be wrong with them is known. Clients are refused until they serve.
pub struct Bound {
    /// Port of the HTTP listener, 0 when it is off or a Unix socket.
    pub http_port: u16,
    /// Port of the gRPC listener, 0 when it is off or a Unix socket.
    pub grpc_port: u16,
    /// Port of the control address, 0 when there is none or it is a Unix socket.
    pub control_port: u16,
    control: Option<BoundFrontEnd<HttpContext>>,
    grpc: Option<BoundFrontEnd<GrpcContext>>,
    http: Option<BoundFrontEnd<HttpContext>>,
    watched: Vec<(Arc<Tls>, TlsFiles)>,
    shared: Arc<Shared>,
    count: usize,
    connections_max: usize,
}

/// A service that cannot be started.
#[derive(Debug)]
pub struct Failure {
    /// `control`, `GRPC`, `HTTP` or `Metrics`.
    pub service: &'static str,
    /// `failed to start HTTP service: …`: UNAVAILABLE `Socket '<address>:<port>' already in use `, or INVALID_ARG for options or files
    /// that cannot be.
    pub error: Error,
}

/// Binds and serves.
///
/// # Errors
/// Of the first [`Failure`]; INTERNAL when the machine refuses a thread.
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
/// One for each service that cannot be started.
pub fn bind(
    engine: Arc<Engine>,
    control: Arc<dyn Control>,
    options: &FrontendOptions,
) -> std::result::Result<Bound, Vec<Failure>> {
    let count = options.reactors();
    let connections_max = match options.connections_max {
        0 => descriptors::connections_max(count),
        n => n,
    };
    let budget = options.budget.clone().unwrap_or_else(|| memory::Budget::global().clone());
    let shared = Arc::new(Shared::new(connections_max, budget).with_logs(options.logs.clone()));
    let changed = shared.clone();
    engine.on_change(move |engine| changed.set_ready(|| engine.is_ready()));
    let mut watched = Vec::new();
    let mut failures = Vec::new();
    let mut gate = options.gate.clone();
    let mode = options.unix_socket_mode;
    let control_face = options.control.as_ref().map(|o| {
        let at = ListenAddress { given_fd: None, address: &o.address, port: o.port, reuse_port: false, mode };
        let listener = listen::bind(at, count)?;
        let tls = open_tls(o.tls.as_ref(), at, &[b"h2", b"http/1.1"], true, &mut watched)?;
        let is_file = unix_path(&o.address).is_some();
        gate.control =
            Some(if is_file { o.address.as_str().into() } else { format!("{}:{}", o.address, listener.port).into() });
        // What it asks of callers is what the others ask, whether these serve or not.
        let http = HttpOptions { cors_origins: Vec::new(), ..options.http.clone().unwrap_or_default() };
        let mut context = HttpContext::new(engine.clone(), control.clone(), shared.clone(), &http, gate.clone())?;
        let grpc = options.grpc.clone().unwrap_or_default();
        let calls = GrpcContext::new(engine.clone(), control.clone(), shared.clone(), &grpc, gate.clone());
        context.grpc = Some(Arc::new(calls?));
        Ok((Arc::new(context), tls, listener))
    });
    let control_face = started("control", control_face, &mut failures);
    // gRPC first, as Triton does: when both ports are taken, the first text names the same service.
    let grpc = options.grpc.as_ref().map(|o| {
        let context = GrpcContext::new(engine.clone(), control.clone(), shared.clone(), o, gate.clone())?;
        let at =
            ListenAddress { given_fd: o.given_fd, address: &o.address, port: o.port, reuse_port: o.reuse_port, mode };
        let listener = listen::bind(at, count)?;
        let tls = open_tls(o.tls.as_ref(), at, &[b"h2"], false, &mut watched)?;
        Ok((Arc::new(context), tls, listener))
    });
    let grpc = started("GRPC", grpc, &mut failures);
    let http = options.http.as_ref().map(|o| {
        let context = HttpContext::new(engine.clone(), control.clone(), shared.clone(), o, gate.clone())?;
        let at =
            ListenAddress { given_fd: o.given_fd, address: &o.address, port: o.port, reuse_port: o.reuse_port, mode };
        let listener = listen::bind(at, count)?;
        let tls = open_tls(o.tls.as_ref(), at, &[b"h2", b"http/1.1"], true, &mut watched)?;
        Ok((Arc::new(context), tls, listener))
    });
    let http = started("HTTP", http, &mut failures);
    if !failures.is_empty() {
        return Err(failures);
    }
    let (http_port, grpc_port) = (port_of(http.as_ref()), port_of(grpc.as_ref()));
    shared.strays().set_places(Places {
        http: options.http.as_ref().map(|o| stray::place(&o.address, http_port)),
        grpc: options.grpc.as_ref().map(|o| stray::place(&o.address, grpc_port)),
    });
    Ok(Bound {
        http_port,
        grpc_port,
        control_port: port_of(control_face.as_ref()),
        control: control_face,
        grpc,
        http,
        watched,
        shared,
        count,
        connections_max,
    })
}

/// Takes the port of a server of metrics, which another part of this process is.
///
/// # Errors
/// As [`bind`].
pub fn bind_metrics(address: &str, port: u16) -> std::result::Result<BoundListener, Failure> {
    let at = ListenAddress { given_fd: None, address, port, reuse_port: false, mode: 0 };
    listen::bind(at, 1).map_err(|error| Failure { service: "Metrics", error: not_started("Metrics", &error) })
}

fn port_of<C>(front: Option<&BoundFrontEnd<C>>) -> u16 {
    front.map_or(0, |(_, _, listener)| listener.port)
}

/// What was started; what could not be is among the failures.
fn started<C>(service: &'static str, made: Option<Result<C>>, failures: &mut Vec<Failure>) -> Option<C> {
    match made? {
        Ok(front) => Some(front),
        Err(error) => {
            failures.push(Failure { service, error: not_started(service, &error) });
            None
        }
    }
}

/// What serves, the TLS in front of it, and a listener for each reactor.
type Listens<C> = (Arc<C>, Option<Arc<Tls>>, Vec<Listener>);

impl Bound {
    /// Listens and serves.
    ///
    /// # Errors
    /// UNAVAILABLE as [`Failure`] where another process came first; INTERNAL when the machine refuses a thread.
    pub fn serve(self) -> Result<FrontEnd> {
        let Self { count, shared, connections_max, .. } = self;
        let mut running = FrontEnd {
            http_port: self.http_port,
            grpc_port: self.grpc_port,
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
        running.watcher = Watcher::start(self.watched)?;
        let failed = |e: std::io::Error| Error::internal(format!("cannot start a reactor: {e}"));
        for i in 0..count {
            let http = http.as_mut().and_then(|(c, tls, l)| Some((c.clone(), tls.clone(), l.pop()?)));
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
                reactor(&runtime, (http, grpc, control), &shared, pulse, connections_max.div_ceil(count));
            };
            let thread = std::thread::Builder::new().name(format!("reactor-{i}")).spawn(body);
            // Dropping `running` ends those that were started.
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

/// The TLS of a listener, whose files are then among those that are watched.
fn open_tls(
    options: Option<&TlsOptions>,
    at: ListenAddress<'_>,
    protocols: &[&[u8]],
    speaks_http: bool,
    watched: &mut Vec<(Arc<Tls>, TlsFiles)>,
) -> Result<Option<Arc<Tls>>> {
    let Some(options) = options else { return Ok(None) };
    if at.given_fd.is_none() && unix_path(at.address).is_some() {
        return Err(Error::invalid(format!(
            "TLS is not spoken over a Unix socket ({}): what goes through it stays on this machine, and the mode of its file says who may connect",
            at.address
        )));
    }
    let (tls, files) = Tls::open(options, protocols, speaks_http)?;
    watched.push((tls.clone(), files));
    Ok(Some(tls))
}

/// Says which service could not start, in Triton's words.
fn not_started(service: &str, error: &Error) -> Error {
    let (code, text) = (error.code(), error.message());
    Error::new(code, format!("failed to start {service} service: {} - {text}", code.name()))
}

impl FrontEnd {
    /// Refuses new inferences and lets connections go with their next answer; the listeners stay open. False when nobody is
    /// connected, and nobody connected lately: there is no need to wait before they are closed.
    pub fn leave(&self) -> bool {
        self.shared.advance(Phase::Leaving);
        !self.shared.is_deserted(DESERTED_TIME)
    }

    /// Closes the listeners, for a process that goes on with their sockets. Requests on connections that are there are answered as
    /// ever, and the connections end with their answers.
    pub fn hand_over(&self) {
        self.shared.advance(Phase::HandingOver);
    }

    /// Asks every reactor for a sign of life. Whether all of them gave theirs since the last call: a thread that is held up by one
    /// task has none left for this.
    pub fn pulse(&self) -> bool {
        let asked = self.shared.pulse();
        // One that is idle may have answered the new one by now.
        self.pulses.iter().all(|answered| answered.load(Ordering::Acquire) >= asked)
    }

    /// Closes the listeners and refuses new inferences; connections stay.
    pub fn stop_accepting(&self) {
        self.shared.advance(Phase::Draining);
    }

    /// Requests that were begun and not yet answered to the last byte.
    pub fn inflight(&self) -> u64 {
        self.shared.requests()
    }

    /// Limits and their current values: name, help, value.
    pub fn gauges(&self) -> [(&'static str, &'static str, u64); 3] {
        self.shared.gauges()
    }

    /// Reads certificates, keys and roots again now; returns the files of the certificates. What cannot be used is logged, and what is
    /// served stays.
    pub fn reread(&self) -> Vec<String> {
        self.watcher.as_ref().map(Watcher::reread).unwrap_or_default()
    }

    /// Whether one of the listeners speaks TLS.
    pub fn speaks_tls(&self) -> bool {
        self.watcher.is_some()
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// How long reactors worked for one client at a stretch.
    pub fn holds(&self) -> HoldTotals {
        let mut totals = HoldTotals::default();
        self.holds.iter().for_each(|holds| totals.add(holds));
        totals
    }

    /// Ends everything: what is being answered has `grace` to finish. Blocks until all threads are gone.
    pub fn close(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.shared.advance(Phase::Closing(grace));
        for thread in self.threads.drain(..) {
            // A reactor that panicked is gone too, which is what is wanted.
            let _ = thread.join();
        }
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// What serves, the TLS in front of it, and the listener.
type Front<C> = (Arc<C>, Option<Arc<Tls>>, Listener);
/// HTTP, gRPC and the control address.
type Fronts = (Option<Front<HttpContext>>, Option<Front<GrpcContext>>, Option<Front<HttpContext>>);

fn reactor(
    runtime: &Runtime,
    (http, grpc, control): Fronts,
    shared: &Arc<Shared>,
    pulse: Arc<AtomicU64>,
    connections_max: usize,
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
        let room = Room { open: Rc::default(), max: connections_max, idle: Idle::new(), shared: shared.clone() };
        // Apart from the others: clients that take all connections, or have all idle ones closed, leave those of the operator.
        let aside =
            Room { open: Rc::default(), max: CONTROL_CONNECTIONS_MAX, idle: Idle::new(), shared: shared.clone() };
        let (idle, idle_aside, swept) = (room.idle.clone(), aside.idle.clone(), shared.clone());
        hold::spawn(async move {
            loop {
                sleep(IDLE_SWEEP_INTERVAL).await;
                let now = Instant::now();
                swept.count_closed_idle(idle.sweep(now, IDLE_TIME_MAX) + idle_aside.sweep(now, IDLE_TIME_MAX));
            }
        });
        let mut accepting = Vec::new();
        if let Some(front) = control {
            let desk = Desk { room: aside, kind: CONTROL, open: Rc::default(), face: Face::Control };
            accepting.push(listening(front, desk, http::run::<TcpStream>, http::run::<Encrypted>, http::run::<Local>));
        }
        if let Some(front) = http {
            let desk = Desk { room: room.clone(), kind: HTTP, open: Rc::default(), face: Face::Public };
            accepting.push(listening(front, desk, http::run::<TcpStream>, http::run::<Encrypted>, http::run::<Local>));
        }
        if let Some(front) = grpc {
            let desk = Desk { room, kind: GRPC, open: grpc_open.clone(), face: Face::Public };
            accepting.push(listening(front, desk, grpc::run::<TcpStream>, grpc::run::<Encrypted>, grpc::run::<Local>));
        }
        let mut phase = shared.watch();
        // The sender lives in `shared`, which we hold: neither wait can fail.
        let _ = phase.wait_for(|p| *p == Phase::HandingOver || *p >= Phase::Draining).await;
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        let grace = match phase.wait_for(|p| matches!(p, Phase::Closing(_))).await.map(|p| *p) {
            Ok(Phase::Closing(grace)) => grace,
            _ => Duration::ZERO,
        };
        let end = Instant::now() + grace;
        // gRPC connections go by themselves once they have written everything; HTTP connections are idle between requests.
        while (shared.requests() > 0 || grpc_open.get() > 0) && Instant::now() < end {
            sleep(CLOSE_POLL).await;
        }
    });
    // Dropping the set drops the connections that are left.
}

/// Where connections of one listener are counted, and as what.
struct Desk {
    room: Room,
    kind: usize,
    /// Those of this listener that are open.
    open: Rc<Cell<usize>>,
    face: Face,
}

/// What a connection to a Unix socket is; where there are none, anything.
#[cfg(unix)]
type Local = UnixStream;
#[cfg(not(unix))]
type Local = TcpStream;

/// Serves the connections that come to a socket.
type Serve<S, C, F> = fn(S, Arc<C>, Caller, IdleHandle) -> F;

/// Accepts connections of a front end, and serves them as they are or once their handshakes are over.
fn listening<C: 'static, P, E, U>(
    (context, tls, listener): Front<C>,
    desk: Desk,
    plain: Serve<TcpStream, C, P>,
    encrypted: Serve<Encrypted, C, E>,
    local: Serve<Local, C, U>,
) -> JoinTask<()>
where
    P: Future<Output = ()> + 'static,
    E: Future<Output = ()> + 'static,
    U: Future<Output = ()> + 'static,
{
    #[cfg(not(unix))]
    let _ = local;
    let listener = match listener {
        Listener::Tcp(listener) => TcpListener::from_std(listener),
        #[cfg(unix)]
        Listener::Unix(listener) => {
            let serve = move |io, caller, place| local(io, context.clone(), caller, place);
            return hold::spawn(accept(UnixListener::from_std(listener), desk, serve));
        }
    };
    let Some(tls) = tls else {
        let serve = move |io, caller, place| plain(io, context.clone(), caller, place);
        return hold::spawn(accept(listener, desk, serve));
    };
    let shared = desk.room.shared.clone();
    let serve = move |io, caller, place: IdleHandle| {
        let (context, tls, shared) = (context.clone(), tls.clone(), shared.clone());
        async move {
            // Until then it is a connection that nobody asked anything on: one that may be closed when there is no room.
            place.wait();
            // In a box: the handshake needs more than what follows it.
            if let Some(io) = Box::pin(tls.accept(io, shared.strays())).await {
                encrypted(io, context, caller, place).await;
            }
        }
    };
    hold::spawn(accept(listener, desk, serve))
}

/// A socket that connections come to.
trait Accept: 'static {
    type Io: 'static;

    /// The next one, where it comes from, and the address of its other end.
    async fn accept(&self) -> io::Result<(Self::Io, Origin, Option<SocketAddr>)>;

    /// Whether it can be served.
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

#[cfg(unix)]
impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Origin, Option<SocketAddr>)> {
        Self::accept(self).await.map(|(io, _)| (io, Origin::Unix, None))
    }
}

/// Begins what a thread needs to run inferences by itself and to be woken by others: turns, mail and the sockets of backends. They end with
/// what comes back. To be called inside the thread's `LocalSet`.
pub(crate) fn begin_reactor() -> Arc<dyn backend::poll::Poller> {
    // Woken by the first request of a turn, this task runs after all that were ready before it: at the end of the turn.
    let turn = Arc::new(Notify::new());
    let wake = turn.clone();
    engine::begin_turns(move || wake.notify_one());
    whenever(turn, engine::end_turn);
    // Answers of other threads: all that lie there wake their tasks before any of these runs, and then write together.
    let mail = Arc::new(Notify::new());
    let wake = mail.clone();
    let mailbox = engine::begin_mail(move || wake.notify_one());
    whenever(mail, move || mailbox.open());
    watch::begin()
}

/// A task of this reactor that does `work` each time it was notified.
fn whenever(notified: Arc<Notify>, work: impl Fn() + 'static) {
    hold::spawn(async move {
        loop {
            notified.notified().await;
            work();
        }
    });
}

/// Counts connections of this reactor.
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

/// Room for connections on one reactor.
#[derive(Clone)]
struct Room {
    /// Open connections of both front ends.
    open: Rc<Cell<usize>>,
    max: usize,
    idle: Rc<Idle>,
    shared: Arc<Shared>,
}

impl Room {
    /// Whether a front end that has `of_kind` connections has all it may: each leaves a share to the other.
    fn is_out_of_share(&self, of_kind: usize) -> bool {
        of_kind >= self.max - self.max / CONNECTIONS_SHARE
    }

    fn close_oldest(&self, kind: Option<usize>) -> bool {
        let closed = self.idle.close_oldest(kind);
        self.shared.count_closed_idle(usize::from(closed));
        closed
    }
}

async fn accept<L: Accept, F: Future<Output = ()> + 'static>(
    listener: io::Result<L>,
    Desk { room, kind, open: of_kind, face }: Desk,
    serve: impl Fn(L::Io, Caller, IdleHandle) -> F,
) {
    let Ok(listener) = listener else { return };
    loop {
        let Ok((io, origin, peer)) = listener.accept().await else {
            // Mostly for lack of descriptors, wherever they went.
            room.close_oldest(None);
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // One that has its share makes room among its own, or its connections at work would drive out the idle ones of the other.
        let is_out_of_share = room.is_out_of_share(of_kind.get());
        let is_full = is_out_of_share || room.open.get() >= room.max;
        let of = is_out_of_share.then_some(kind);
        // No room: the client sees a closed connection, which is what it would see from an overloaded kernel.
        if (is_full && !room.close_oldest(of)) || !L::prepare(&io) {
            continue;
        }
        let caller = Caller { origin, face, peer };
        let place = room.idle.register(kind);
        let task_setter = place.task_setter();
        let (served, counts) = (serve(io, caller, place), (ConnectionCount::new(&room.open), ConnectionCount::new(&of_kind)));
        let shared = room.shared.clone();
        let task = hold::spawn(async move {
            let _counted = shared.connection();
            served.await;
            drop(counts);
        });
        task_setter(task.abort_handle());
        if is_full {
            // A connection that is closed gives its descriptor back in its own next turn.
            tokio::task::yield_now().await;
        }
    }
}
