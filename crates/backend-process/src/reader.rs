//! Reads a runner's work socket on the reactor that waits for its responses, if there is one ([`backend::poll`]).
//!
//! The hub, the thread that watches all runners, reads it otherwise: without a reactor, when the reactor ends, and
//! after large copies until the next frame. A runner is brief if it is ready and its model is not decoupled.

use crate::hub::READ_BYTES;
use crate::process::Process;
use backend::poll::{self, Next};
use backend_remote::{PANICKED, Way};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A reactor's turn to read a runner's work socket.
struct SocketReader {
    process: Arc<Process>,
    turn: u64,
    scratch: Vec<u8>,
}

/// Passes the work socket to a reactor, if there is one that may read it.
pub(crate) fn pass_to_reactor(process: &Arc<Process>) {
    if !process.is_brief() {
        return;
    }
    let Some(poller) = poll::pick() else { return };
    // A descriptor of its own: the runner's may be closed while the reactor still waits.
    let Ok(socket) = process.link.socket(Way::Work).stream.as_fd().try_clone_to_owned() else { return };
    let Some(turn) = process.link.pass_to_reactor() else { return };
    let mut reader = SocketReader { process: Arc::clone(process), turn, scratch: vec![0; READ_BYTES] };
    poller.watch(socket, Box::new(move || reader.ready()));
}

impl SocketReader {
    fn ready(&mut self) -> Next {
        if !self.process.link.is_read_by(self.turn) {
            return Next::Leave;
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.process.readable(Way::Work, &mut self.scratch)));
        match read {
            // Closed, or another thread copies.
            _ if !self.process.link.is_read_by(self.turn) => Next::Leave,
            Ok(true) => Next::Again,
            Ok(false) => Next::Wait,
            Err(_) => {
                log::error!("a panic while frames of a runner were handled; please report it");
                self.process.fail(PANICKED);
                Next::Leave
            }
        }
    }
}

impl Drop for SocketReader {
    fn drop(&mut self) {
        self.process.link.take_back(self.turn);
    }
}
