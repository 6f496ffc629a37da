//! Reads a runner's work socket where its answers are waited for: on a reactor of the front ends, if there is one ([`backend::poll`]).
//!
//! The hub keeps everything else of the runner. It also reads the socket again when the reactor ends, and from when large copies go on elsewhere until something comes.

use crate::hub::READ_BYTES;
use crate::link::Way;
use crate::runner::{FAILED_OVER_IT, Runner};
use backend::poll::{self, Next};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A reactor's turn to read a runner's work socket.
struct Reader {
    runner: Arc<Runner>,
    turn: u64,
    scratch: Vec<u8>,
}

/// Gives the work socket to a reactor, if there is one that may have it.
pub(crate) fn pass_on(runner: &Arc<Runner>) {
    if !runner.is_brief() {
        return;
    }
    let Some(poller) = poll::pick() else { return };
    // Its own descriptor: that of the runner may be closed while the reactor still waits.
    let Ok(socket) = runner.link.work.stream.as_fd().try_clone_to_owned() else { return };
    let Some(turn) = runner.link.pass_on() else { return };
    let mut reader = Reader { runner: Arc::clone(runner), turn, scratch: vec![0; READ_BYTES] };
    poller.watch(socket, Box::new(move || reader.ready()));
}

impl Reader {
    fn ready(&mut self) -> Next {
        if !self.runner.link.is_read_by(self.turn) {
            return Next::Leave;
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.runner.readable(Way::Work, &mut self.scratch)));
        match read {
            // It was closed, or another thread copies.
            _ if !self.runner.link.is_read_by(self.turn) => Next::Leave,
            Ok(true) => Next::Again,
            Ok(false) => Next::Wait,
            Err(_) => {
                log::error!("a panic while a runner was listened to; please report it");
                self.runner.condemn(FAILED_OVER_IT);
                Next::Leave
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.runner.link.take_back(self.turn);
    }
}
