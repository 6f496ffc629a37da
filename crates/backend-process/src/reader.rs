//! Reads a runner's work socket where its answers are waited for: on a reactor of the front ends, if there is one ([`backend::poll`]).
//!
//! The hub keeps everything else of the runner. It also reads the socket again when the reactor ends, and from when large copies go on elsewhere until something comes.

use crate::hub::{FAILED_OVER_IT, READ_BYTES};
use crate::process::Process;
use backend::poll::{self, Next};
use backend_remote::Way;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A reactor's turn to read a runner's work socket.
struct Reader {
    process: Arc<Process>,
    turn: u64,
    scratch: Vec<u8>,
}

/// Gives the work socket to a reactor, if there is one that may have it.
pub(crate) fn pass_on(process: &Arc<Process>) {
    if !process.is_brief() {
        return;
    }
    let Some(poller) = poll::pick() else { return };
    // Its own descriptor: that of the runner may be closed while the reactor still waits.
    let Ok(socket) = process.link.socket(Way::Work).stream.as_fd().try_clone_to_owned() else { return };
    let Some(turn) = process.link.pass_on() else { return };
    let mut reader = Reader { process: Arc::clone(process), turn, scratch: vec![0; READ_BYTES] };
    poller.watch(socket, Box::new(move || reader.ready()));
}

impl Reader {
    fn ready(&mut self) -> Next {
        if !self.process.link.is_read_by(self.turn) {
            return Next::Leave;
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.process.readable(Way::Work, &mut self.scratch)));
        match read {
            // It was closed, or another thread copies.
            _ if !self.process.link.is_read_by(self.turn) => Next::Leave,
            Ok(true) => Next::Again,
            Ok(false) => Next::Wait,
            Err(_) => {
                log::error!("a panic while a runner was listened to; please report it");
                self.process.condemn(FAILED_OVER_IT);
                Next::Leave
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.process.link.take_back(self.turn);
    }
}
