//! When a request reached which part of its way, for a line of the access log. Noted by any thread without a lock; read once the
//! request is answered, by the thread that was given the answer.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Times on the engine's clock; 0 is not (yet).
#[derive(Debug, Default)]
pub struct Phases {
    accepted: AtomicU64,
    marks: [AtomicU64; 4],
    ended: AtomicU64,
    rows: AtomicU32,
}

/// What is known of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// The model accepted the request.
    pub accepted: u64,
    /// It ran: the batch began, its inputs were ready, inference ended, outputs were ready. All 0 of one that did not run here: a hit of
    /// the response cache, an ensemble.
    pub marks: [u64; 4],
    /// Its last answer was there.
    pub ended: u64,
    /// Rows of its batch; 0 where that is not known.
    pub rows: u32,
}

// Relaxed: the answer is handed over with an order of its own, behind all of this.
impl Phases {
    pub(crate) fn accepted(&self, ns: u64) {
        self.accepted.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn computed(&self, marks: [u64; 4]) {
        self.marks.iter().zip(marks).for_each(|(mark, ns)| mark.store(ns, Ordering::Relaxed));
    }

    pub(crate) fn ended(&self, ns: u64) {
        self.ended.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn batched(&self, rows: u32) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    /// What is known by now.
    pub fn measured(&self) -> Measured {
        Measured {
            accepted: self.accepted.load(Ordering::Relaxed),
            marks: self.marks.each_ref().map(|mark| mark.load(Ordering::Relaxed)),
            ended: self.ended.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}
