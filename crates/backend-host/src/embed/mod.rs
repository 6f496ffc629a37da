//! Servers that are embedded in the program which loaded this library: each is a process `nereid`, which has one
//! connection to this one and ends with it.
//!
//! The two processes share a socket, *control*. The server sends the descriptors of its connection over it, or a text
//! that says why there is none; this library sends the line that asks for its end. The end of the socket ends the
//! server, also if the program is killed. No network port is opened.

mod options;
mod process;
mod program;

pub(crate) use options::ServerOptions;

use crate::connection::{self, Descriptors, Received};
use crate::described::Descriptions;
use crate::json::{self, JsonError};
use crate::link::Link;
use crate::models::Role;
use crate::receive::{self, Incoming};
use parking_lot::Mutex;
use process::ServerProcess;
use serde_json::json;
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;
use tensor::{Error, Result};

/// Time for code of models to finalize, and for the process to end, after the exit timeout.
const END_TIME: Duration = Duration::from_secs(15);

/// A server that the program embeds. `TRITONSERVER_Server` points at it.
pub(crate) struct EmbeddedServer {
    link: Arc<Link>,
    control: UnixStream,
    /// Absent once the process has ended and was reaped.
    process: Mutex<Option<ServerProcess>>,
    /// Models that requests were made for lately.
    pub(crate) descriptions: Descriptions,
    exit_timeout_secs: AtomicU32,
    is_stopping: AtomicBool,
}

/// All servers that were not deleted.
static SERVERS: Mutex<Vec<Arc<EmbeddedServer>>> = Mutex::new(Vec::new());
/// True once a server is started: this process is no host of backends, whose functions get pointers of other objects.
static IS_EMBEDDING: AtomicBool = AtomicBool::new(false);

/// The server that a pointer names; `None` in a host of backends.
///
/// # Errors
/// INVALID_ARG if the server was deleted, or the pointer was never that of a server.
pub(crate) fn server(pointer: *const c_void) -> Result<Option<Arc<EmbeddedServer>>> {
    if !IS_EMBEDDING.load(SeqCst) {
        return Ok(None);
    }
    let servers = SERVERS.lock();
    let found = servers.iter().find(|server| Arc::as_ptr(server).cast() == pointer).cloned();
    found.map(Some).ok_or_else(|| Error::invalid("the pointer must be that of a server that was not deleted"))
}

/// Forgets a server.
pub(crate) fn forget(server: &Arc<EmbeddedServer>) {
    SERVERS.lock().retain(|other| !Arc::ptr_eq(other, server));
}

impl EmbeddedServer {
    /// Starts a server, and waits until its models are loaded. It stays until it is forgotten.
    ///
    /// # Errors
    /// The process cannot be started, or its server fails to start; UNSUPPORTED in a host of backends.
    pub(crate) fn start(options: &ServerOptions) -> Result<Arc<Self>> {
        // Before the flag: servers of this program have connections, too, which are made after it was set.
        let is_connected = Link::current().is_some();
        if is_connected && !IS_EMBEDDING.load(SeqCst) {
            return Err(Error::unsupported("the code of a model cannot start a server"));
        }
        IS_EMBEDDING.store(true, SeqCst);
        let failed = |e: std::io::Error| Error::internal(format!("no server can be started: {e}"));
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let process = ServerProcess::new(&program::start(&options.arguments(), theirs.as_fd())?).map_err(failed)?;
        drop(theirs);
        let mut incoming = Incoming::new(control.try_clone().map_err(failed)?);
        let descriptors = match Descriptors::receive(&mut incoming) {
            Ok(Received::Connection(descriptors)) => descriptors,
            Ok(Received::Text(text)) => {
                process.wait(END_TIME);
                return Err(failure(&text));
            }
            Ok(Received::End) | Err(_) => {
                process.kill();
                let ended = process.reap().map_or_else(String::new, |how| format!(" ({how})"));
                let text = "the server ended before it was ready; its log has the reason";
                return Err(Error::internal(format!("{text}{ended}")));
            }
        };
        let link = connection::serve(descriptors, |_, _| Ok((Role::Program, json!({})))).map_err(failed)?;
        let server = Arc::new(Self {
            link,
            control,
            process: Mutex::new(Some(process)),
            descriptions: Descriptions::default(),
            exit_timeout_secs: AtomicU32::new(options.exit_timeout_secs()),
            is_stopping: AtomicBool::new(false),
        });
        SERVERS.lock().push(Arc::clone(&server));
        Ok(server)
    }

    /// The connection to the server.
    ///
    /// # Errors
    /// UNAVAILABLE: the server was stopped, or its process has ended.
    pub(crate) fn link(&self) -> Result<Arc<Link>> {
        if self.is_stopping.load(SeqCst) {
            return Err(Error::unavailable("Server exiting"));
        }
        if !self.link.is_open() {
            return Err(Error::unavailable("the process of the server has ended"));
        }
        Ok(Arc::clone(&self.link))
    }

    pub(crate) fn set_exit_timeout(&self, seconds: u32) {
        self.exit_timeout_secs.store(seconds, Relaxed);
    }

    /// Stops the server: it takes no more requests, answers those that it has, and ends. A second stop does nothing.
    ///
    /// # Errors
    /// INTERNAL if requests were left when the exit timeout had passed.
    pub(crate) fn stop(&self) -> Result<()> {
        self.is_stopping.store(true, SeqCst);
        let mut process = self.process.lock();
        let Some(running) = process.take() else { return Ok(()) };
        let seconds = self.exit_timeout_secs.load(Relaxed);
        // A server that has ended does not read it.
        let _ = receive::send(&self.control, format!("stop {seconds}\n").as_bytes());
        let timeout = Duration::from_secs(seconds.into());
        let has_ended = running.wait(timeout + END_TIME);
        if !has_ended {
            running.kill();
        }
        let status = running.reap();
        // Its last responses were sent before its end.
        self.link.await_close(END_TIME);
        self.link.close();
        // Callbacks use what the program frees after this. They need nothing of the server.
        self.link.callers.await_none(timeout.max(END_TIME));
        if has_ended && status.is_none_or(|status| status.code() != Some(1)) {
            return Ok(());
        }
        Err(Error::internal("Exit timeout expired. Exiting immediately."))
    }
}

/// The error of a server that did not start.
fn failure(json: &str) -> Error {
    let none = |_| Error::internal("the server ended before it was ready; its log has the reason");
    json::read::<JsonError>(json).map_or_else(none, Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_failed_start_is_that_of_the_server() {
        let error = failure(r#"{"code":"NOT_FOUND","message":"no model"}"#);
        assert_eq!(error, Error::not_found("no model"));
        assert!(failure("x").message().starts_with("the server ended"));
    }
}
