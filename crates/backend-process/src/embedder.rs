//! The program that embeds this server: the parent process, which has a socket whose other end the server inherited.
//!
//! It gets one connection over that socket, as the process of a library does, and sends requests over it like the code
//! of a model. The connection ends with the program, or with the value that [`serve_embedder`] returns. The server
//! never kills the program.
//!
//! A program that runs models itself gets a connection for each of their instances ([`ParentProgram`]).

use crate::handle::ProcessHandle;
use crate::library::{connect, hand};
use crate::spec::RunnerLimits;
use crate::start::{ask_and_keep, load_of};
use crate::sys;
use backend::Host;
use backend_remote::{Connection, InstanceSpec, RunnerGuard, RunnerKind, Start};
use parking_lot::Mutex;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Name, Result};

/// Time for the program to close its connection. A process that it forked may keep the connection open.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// Time for the library in the program to answer, which waits for nothing.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Name in the log.
const NAME: &str = "the embedding program";

/// Gives the program that embeds the server a connection, over the socket that the server inherited as descriptor
/// `control`, which stays open. Blocks until the program has answered.
///
/// # Errors
/// There is no such descriptor, or the program has ended or does not speak the protocol.
pub fn serve_embedder(control: RawFd, host: Weak<dyn Host>) -> Result<RunnerGuard> {
    let control = ParentProgram::new(control)?.0;
    let limits = RunnerLimits {
        restart: false,
        start_timeout: START_TIMEOUT,
        exit_grace: EXIT_GRACE,
        ..RunnerLimits::default()
    };
    let start = Arc::new(Attach { control, limits: limits.clone() });
    let load = load_of("{}", &limits);
    let program = InstanceSpec { name: Name::from(NAME), kind: RunnerKind::Instance, start, load };
    // No model asks.
    let kept = ask_and_keep(&program, &limits, host, Name::default());
    kept.map(|(_, kept)| kept).map_err(|failure| failure.error)
}

/// The socket to the program that started the server. Models load at the same time: under the lock, the descriptors of
/// one connection follow one another.
#[derive(Clone)]
pub struct ParentProgram(Arc<Mutex<UnixStream>>);

impl ParentProgram {
    /// The socket that the server inherited as descriptor `control`, which stays open.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn new(control: RawFd) -> Result<Self> {
        let no_socket = |e| Error::invalid(format!("descriptor {control} is not a socket to a program: {e}"));
        let socket = sys::duplicate(control).map_err(no_socket)?;
        Ok(Self(Arc::new(Mutex::new(socket.into()))))
    }

    /// An instance of a model that runs in the program. `load` is the JSON object of LOAD, without `mode`, `segments`
    /// and `devices`.
    pub fn instance(&self, name: Name, load: &str, limits: &RunnerLimits) -> InstanceSpec {
        let load = load_of(load, limits);
        let start = Arc::new(Attach { control: self.0.clone(), limits: limits.clone() });
        InstanceSpec { name, kind: RunnerKind::Instance, start, load }
    }
}

struct Attach {
    control: Arc<Mutex<UnixStream>>,
    limits: RunnerLimits,
}

impl Start for Attach {
    fn start(&self) -> io::Result<Connection> {
        connect(&self.limits, |descriptors| {
            hand(&self.control.lock(), descriptors).map_err(|handed| handed.error)?;
            ProcessHandle::embedder().map(Arc::new)
        })
    }
}
