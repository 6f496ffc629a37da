//! Reads a runner's sockets on the reactor that waits for its responses, if there is one ([`backend::poll`]).
//!
//! The hub, the thread that watches all runners, reads them otherwise: without a reactor, when the reactor ends, and
//! after large copies until the next frame. A reactor reads the work socket. If the responses of a model come on the
//! side socket, it reads both while they come one by one ([`SideRate`]), because each of a burst would wake it.

use crate::hub::READ_BYTES;
use crate::process::Process;
use crate::side_rate::SideRate;
use backend::now_ns;
use backend::poll::{self, Next, Poller};
use backend_remote::{PANICKED, Way};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A reactor's turn to read a runner's socket.
struct SocketReader {
    process: Arc<Process>,
    way: Way,
    turn: u64,
    rate: SideRate,
    scratch: Vec<u8>,
}

/// Passes the sockets to a reactor, if there is one.
pub(crate) fn pass_to_reactor(process: &Arc<Process>) {
    let Some(poller) = poll::pick() else { return };
    pass(process, Way::Work, &*poller);
    if process.answers_on_side() {
        pass(process, Way::Side, &*poller);
    }
}

fn pass(process: &Arc<Process>, way: Way, poller: &dyn Poller) {
    // A descriptor of its own: the runner's may be closed while the reactor still waits.
    let Ok(socket) = process.link.socket(way).stream.as_fd().try_clone_to_owned() else { return };
    let Some(turn) = process.link.pass_to_reactor(way) else { return };
    let (process, scratch) = (Arc::clone(process), vec![0; READ_BYTES]);
    let mut reader = SocketReader { process, way, turn, rate: SideRate::default(), scratch };
    poller.watch(socket, Box::new(move || reader.ready()));
}

impl SocketReader {
    fn is_mine(&self) -> bool {
        self.process.link.is_read_by(self.way, self.turn)
    }

    fn ready(&mut self) -> Next {
        if !self.is_mine() {
            return Next::Leave;
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.process.readable(self.way, &mut self.scratch)));
        if self.way == Way::Side && self.rate.is_burst(now_ns()) {
            // Results, too: they would be read together with the responses before them.
            self.process.link.take_back(Way::Work, None);
            self.process.link.take_back(Way::Side, Some(self.turn));
        }
        match read {
            // Closed, or another thread copies.
            _ if !self.is_mine() => Next::Leave,
            Ok(true) => Next::Again,
            Ok(false) => Next::Wait,
            Err(_) => {
                log::error!("a panic while handling frames of a runner; please report it");
                self.process.fail(PANICKED);
                Next::Leave
            }
        }
    }
}

impl Drop for SocketReader {
    fn drop(&mut self) {
        self.process.link.take_back(self.way, Some(self.turn));
    }
}
