//! A process that runs a library for many instances of many models: one connection for each.
//!
//! The process is started by the first connection, again by the first one after it died, and stays until it is closed.
//! Its descriptor 3 is a socket, *control*: each connection comes through it as five descriptors, in the order in which
//! other runners inherit them, each beside one byte, its number. The end of that socket asks the process to finalize
//! and to end.

use crate::handle::ProcessHandle;
use crate::hub::{Hub, Watched};
use crate::link::Link;
use crate::process::Process;
use crate::spec::{Command, OutputTarget, RunnerLimits};
use crate::start::{Inherited, Shared, Starter, load_of};
use crate::sys;
use backend_remote::{Connection, Executor, InstanceSpec, RunnerKind, Start, Way};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tensor::Name;

/// Time for a process to take the descriptors of a connection.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of checks whether all instances have ended.
const FINALIZE_LOOK: Duration = Duration::from_millis(5);

/// A process for a library. Ends when this and all instances are dropped, or with [`close`](Self::close).
#[derive(Clone)]
pub struct HostedLibrary(Arc<LibraryProcess>);

struct LibraryProcess {
    starter: Starter,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    process: Option<Attachable>,
    /// The server ends: no process is started any more.
    is_closed: bool,
}

/// A process that takes connections.
struct Attachable {
    control: UnixStream,
    handle: Arc<ProcessHandle>,
    is_closing: Arc<AtomicBool>,
}

impl HostedLibrary {
    /// Starts nothing yet. `name` precedes each line that the process prints.
    pub fn new(name: Name, command: Command, limits: RunnerLimits, output: OutputTarget) -> Self {
        let starter = Starter { name, command, limits, output };
        Self(Arc::new(LibraryProcess { starter, running: Mutex::default() }))
    }

    /// An instance of a model that the process serves. `load` is the JSON object of LOAD, without `mode`, `segments`
    /// and `devices`, which are added. Limits of the process itself, such as its memory, are those given to `new`.
    pub fn instance(&self, name: Name, load: &str, limits: &RunnerLimits) -> InstanceSpec {
        let load = load_of(load, limits);
        let start = Arc::new(Attach { library: Arc::clone(&self.0), limits: limits.clone() });
        InstanceSpec { name, kind: RunnerKind::Instance, start, load }
    }

    /// Asks the process to finalize and to end, and kills it after the exit grace. No other one is started.
    pub fn close(&self) {
        self.0.close();
    }
}

impl LibraryProcess {
    /// Hands descriptors of a connection to the process, which is started if there is none that runs.
    fn attach(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<Arc<ProcessHandle>> {
        let mut running = self.running.lock();
        if running.is_closed {
            return Err(io::Error::other("the server ends"));
        }
        let process = match running.process.take().filter(|process| process.handle.is_alive()) {
            Some(process) => process,
            None => self.start()?,
        };
        let Attachable { control, handle, .. } = running.process.insert(process);
        if let Err(HandOverError { error, is_partial }) = hand(control, descriptors) {
            // The process would wait for the rest of this connection, and take that of the next one for it.
            if is_partial {
                log::error!(
                    "{}: the process of the library is killed: it received only a part of a connection",
                    self.starter.name
                );
                handle.kill();
            }
            return Err(error);
        }
        Ok(Arc::clone(handle))
    }

    fn start(&self) -> io::Result<Attachable> {
        let hub = Hub::get()?;
        let id = hub.name();
        let (control, theirs) = UnixStream::pair()?;
        let handle = self.starter.process(id, &[theirs.as_fd()])?;
        let is_closing = Arc::new(AtomicBool::new(false));
        let watch = Arc::new(ProcessEnd {
            id,
            hub,
            name: self.starter.name.clone(),
            pidfd: handle.pidfd()?,
            handle: Arc::clone(&handle),
            is_closing: Arc::clone(&is_closing),
        });
        hub.add(id, Arc::clone(&watch) as _);
        if let Err(e) = hub.await_end(id, watch.pidfd.as_fd()) {
            hub.remove(id, watch.pidfd.as_fd());
            return Err(e);
        }
        Ok(Attachable { control, handle, is_closing })
    }

    fn close(&self) {
        let mut running = self.running.lock();
        running.is_closed = true;
        let Some(Attachable { control, handle, is_closing }) = running.process.take() else { return };
        is_closing.store(true, SeqCst);
        // A stopped process could not end.
        handle.signal(libc::SIGCONT);
        let Ok(hub) = Hub::get() else { return };
        let grace = self.starter.limits.exit_grace;
        let ending = Arc::downgrade(&handle);
        let kill = move || ending.upgrade().into_iter().for_each(|handle| handle.kill());
        hub.after(grace, Box::new(kill));
        finalize(hub, control, handle, grace / 2);
    }
}

/// A connection that could not be handed over.
pub(crate) struct HandOverError {
    pub(crate) error: io::Error,
    /// Some of its descriptors were sent.
    is_partial: bool,
}

/// Sends the descriptors of a connection, each beside one byte, its number.
pub(crate) fn hand(control: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> Result<(), HandOverError> {
    for (number, descriptor) in (0..).zip(descriptors) {
        sys::send_waiting(control.as_fd(), &[number], *descriptor, SEND_TIMEOUT)
            .map_err(|error| HandOverError { error, is_partial: number > 0 })?;
    }
    Ok(())
}

/// Closes a process's control once its instances have ended, as models end before their library, or after `longest`.
fn finalize(hub: &'static Hub, control: UnixStream, handle: Arc<ProcessHandle>, longest: Duration) {
    if longest.is_zero() || !handle.has_connections() || !handle.is_alive() {
        return drop(control);
    }
    let again = move || finalize(hub, control, handle, longest.saturating_sub(FINALIZE_LOOK));
    hub.after(FINALIZE_LOOK, Box::new(again));
}

impl Drop for LibraryProcess {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens a connection for an instance.
struct Attach {
    library: Arc<LibraryProcess>,
    limits: RunnerLimits,
}

impl Start for Attach {
    fn start(&self) -> io::Result<Connection> {
        connect(&self.limits, |descriptors| self.library.attach(descriptors))
    }
}

/// Opens a connection to a process that takes its descriptors from `hand`.
pub(crate) fn connect(
    limits: &RunnerLimits,
    hand: impl FnOnce(&[BorrowedFd<'_>]) -> io::Result<Arc<ProcessHandle>>,
) -> io::Result<Connection> {
    let hub = Hub::get()?;
    let (work, their_work) = UnixStream::pair()?;
    let (side, their_side) = UnixStream::pair()?;
    let id = hub.name();
    let link = Link::new(id, work, side)?;
    let memory = Inherited::new(limits)?;
    let nothing = File::open("/dev/null")?;
    let [requests, responses, flags] = memory.descriptors(&nothing).unwrap_or([nothing.as_fd(); 3]);
    let handle = hand(&[their_work.as_fd(), their_side.as_fd(), requests, responses, flags])?;
    let has_others = !handle.is_embedder();
    let transport = Process::new(id, hub, link, handle, has_others)?;
    let Shared { segments, flags } = memory.shared();
    Ok(Connection { transport, segments, flags })
}

/// Waits for the end of a process, which may have no connection.
struct ProcessEnd {
    id: u64,
    hub: &'static Hub,
    name: Name,
    pidfd: OwnedFd,
    handle: Arc<ProcessHandle>,
    is_closing: Arc<AtomicBool>,
}

impl Watched for ProcessEnd {
    fn ended(self: Arc<Self>) {
        let Some(ended) = self.handle.ended() else { return };
        self.hub.remove(self.id, self.pidfd.as_fd());
        if self.is_closing.load(SeqCst) {
            log::debug!("{}: the process of the library {ended}", self.name);
        } else {
            log::error!("{}: the process of the library {ended}; the next instance starts another one", self.name);
        }
    }

    fn writable(&self, _: Way) {}
    fn readable(self: Arc<Self>, _: Way, _: &mut [u8]) {}
    fn check(self: Arc<Self>) {}
    fn offer_to_reactor(self: Arc<Self>, _: Way) {}
    fn fail(&self, _: &str) {}
}
