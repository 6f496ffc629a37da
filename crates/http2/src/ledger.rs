//! What the decoded heads of one connection take together. A client that refers to long fields of its table makes a head of 64 KiB
//! with 15 bytes, and may have thousands of streams open: only the sum says what that costs us.
//!
//! This is the one place that knows of each head when it is taken in and when it goes: what else is to be charged for them, is
//! charged here.
//!
//! Invariant: `bytes` is the sum of all [`Held`] that live.

use crate::limits::{FREED_BYTES_TOLD, HELD_HEAD_BYTES_MAX};
use std::cell::Cell;
use std::rc::Rc;

/// The heads of one connection.
#[derive(Debug)]
pub struct Ledger(Rc<Sum>);

#[derive(Debug)]
struct Sum {
    bytes: Cell<usize>,
    /// Given back since `told` was last called.
    freed: Cell<usize>,
    told: fn(usize),
}

/// A head's part of the sum.
#[derive(Debug)]
pub struct Held {
    bytes: usize,
    sum: Rc<Sum>,
}

impl Ledger {
    /// An empty one. `told` learns, now and then, how many bytes were given back.
    pub fn new(told: fn(usize)) -> Self {
        Self(Rc::new(Sum { bytes: Cell::new(0), freed: Cell::new(0), told }))
    }

    /// Takes in so many bytes. `None` when that is too much beside what is there: a single head always has room.
    pub fn take(&self, bytes: usize) -> Option<Held> {
        let before = self.0.bytes.get();
        let after = before.saturating_add(bytes);
        if before > 0 && after > HELD_HEAD_BYTES_MAX {
            return None;
        }
        self.0.bytes.set(after);
        Some(Held { bytes, sum: self.0.clone() })
    }

    /// Bytes held now.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.bytes.get()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let sum = &self.sum;
        sum.bytes.set(sum.bytes.get().saturating_sub(self.bytes));
        sum.freed.set(sum.freed.get() + self.bytes);
        if sum.freed.get() >= FREED_BYTES_TOLD {
            (sum.told)(sum.freed.take());
        }
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        (self.told)(self.freed.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! { static TOLD: Cell<usize> = const { Cell::new(0) }; }

    #[test]
    fn holds_so_much_and_one_head_however_large_and_tells_of_all_that_goes() {
        let ledger = Ledger::new(|n| TOLD.set(TOLD.get() + n));
        let large = ledger.take(2 * HELD_HEAD_BYTES_MAX);
        assert!(large.is_some() && ledger.take(1).is_none());
        drop(large);
        assert_eq!((ledger.bytes(), TOLD.get()), (0, 2 * HELD_HEAD_BYTES_MAX));
        let all: Vec<_> = (0..8).map(|_| ledger.take(HELD_HEAD_BYTES_MAX / 8)).collect();
        assert!(all.iter().all(Option::is_some) && ledger.take(1).is_none());
        drop(all);
        let small = ledger.take(1000);
        drop(ledger);
        assert_eq!(TOLD.get(), 3 * HELD_HEAD_BYTES_MAX);
        drop(small);
        assert_eq!(TOLD.get(), 3 * HELD_HEAD_BYTES_MAX + 1000, "the rest, with the connection");
    }
}
