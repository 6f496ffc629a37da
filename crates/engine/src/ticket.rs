//! Cancellation of one request, wherever it is: queued, about to run, running, answered.
//!
//! The flag is set before the slot is looked at, and a dispatcher looks at the flag after it filled the slot, each under the
//! slot's lock; so whichever comes second sees the other, and a running batch loses each wanted request at most once.

use crate::version::ModelVersion;
use backend::RunControl;
use backend::sync::{AtomicBool, Mutex, Ordering};
use std::sync::{Arc, Weak};

/// Handle to an accepted request. Dropping it does nothing.
pub struct Ticket {
    pub(crate) state: Arc<TicketState>,
    pub(crate) version: Weak<ModelVersion>,
}

/// The state behind a ticket. Public for the model test only.
#[doc(hidden)]
#[derive(Default)]
pub struct TicketState {
    cancelled: AtomicBool,
    slot: Mutex<Slot>,
}

#[derive(Default)]
enum Slot {
    /// Waiting, or running where stopping it is not worth the trouble.
    #[default]
    Queued,
    Running(Arc<RunControl>),
    /// Its batch was told, or it was answered.
    Settled,
}

/// Where a request was when its client gave it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Was {
    /// In a queue, or in a batch that is not told: the queue has to be swept.
    Queued,
    /// In a batch, which was told.
    Running,
}

impl TicketState {
    /// Gives the request up. `None` when there is nothing left to give up.
    #[doc(hidden)]
    pub fn cancel(&self) -> Option<Was> {
        if self.cancelled.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut slot = self.slot.lock();
        match &*slot {
            Slot::Queued => Some(Was::Queued),
            Slot::Running(run) => {
                run.cancel_one();
                *slot = Slot::Settled;
                Some(Was::Running)
            }
            Slot::Settled => None,
        }
    }

    #[doc(hidden)]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The request joins a batch that `run` can stop.
    #[doc(hidden)]
    pub fn running(&self, run: &Arc<RunControl>) {
        let mut slot = self.slot.lock();
        if self.is_cancelled() {
            *slot = Slot::Settled;
            run.cancel_one();
        } else {
            *slot = Slot::Running(run.clone());
        }
    }

    /// The request is answered; cancelling it does nothing any more.
    #[doc(hidden)]
    pub fn settle(&self) {
        *self.slot.lock() = Slot::Settled;
    }
}

impl Ticket {
    /// Whether the request is answered, or about to be by the thread that settled it.
    pub fn is_settled(&self) -> bool {
        matches!(*self.state.slot.lock(), Slot::Settled)
    }

    /// Nobody wants the answer any more. A queued request leaves its queue at once and is answered CANCELLED; a batch that only
    /// cancelled requests are left in is told to stop. Does nothing once the request is answered.
    pub fn cancel(&self) {
        let Some(was) = self.state.cancel() else { return };
        if let Some(version) = self.version.upgrade() {
            version.count_cancelled();
            if was == Was::Queued {
                version.sweep_cancelled();
            }
        }
    }
}
