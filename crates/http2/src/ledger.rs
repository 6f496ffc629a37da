//! Accounts for the decoded heads of one connection. A client that refers to long fields of its table makes a head of
//! 64 KiB with 15 bytes and may have thousands of streams open, so only the sum bounds the cost.
//!
//! Beyond the free bytes of a connection, room is reserved from the server, a step at a time, and released again.
//!
//! Invariant: `bytes` is the sum of all live [`HeadCharge`]. `reserved` is a whole number of steps; with the free part
//! it covers `bytes`, unless a single head that came to an empty ledger found no room.

use crate::limits::{FREED_BYTES_STEP, HELD_HEAD_BYTES_FREE, HELD_HEAD_BYTES_MAX, HELD_HEAD_BYTES_STEP};
use std::cell::Cell;
use std::rc::Rc;

/// HeadLedger of one connection's heads.
#[derive(Debug)]
pub struct HeadLedger(Rc<Sum>);

#[derive(Debug)]
struct Sum {
    bytes: Cell<usize>,
    /// Bytes that the server has reserved for them.
    reserved: Cell<usize>,
    /// Bytes released since the last call of `on_freed`.
    freed: Cell<usize>,
    on_freed: fn(usize),
    room: Room,
}

/// The server's account of the heads of all connections.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Reserves bytes; returns false if there is no room.
    pub reserve: fn(usize) -> bool,
    /// Releases reserved bytes.
    pub release: fn(usize),
}

impl Default for Room {
    /// No limit.
    fn default() -> Self {
        Self { reserve: |_| true, release: |_| {} }
    }
}

/// The charge of one head; dropping it releases the bytes.
#[derive(Debug)]
pub struct HeadCharge {
    bytes: usize,
    sum: Rc<Sum>,
}

impl HeadLedger {
    /// An empty ledger. `on_freed` is called, now and then, with the number of bytes released since the last call.
    pub fn new(on_freed: fn(usize), room: Room) -> Self {
        Self(Rc::new(Sum { bytes: Cell::new(0), reserved: Cell::new(0), freed: Cell::new(0), on_freed, room }))
    }

    /// Charges `bytes`; `None` if they exceed the limit together with the others. A single head is always accepted.
    pub fn take(&self, bytes: usize) -> Option<HeadCharge> {
        let before = self.0.bytes.get();
        let after = before.saturating_add(bytes);
        if before > 0 && (after > HELD_HEAD_BYTES_MAX || !self.0.cover(after)) {
            return None;
        }
        self.0.bytes.set(after);
        Some(HeadCharge { bytes, sum: self.0.clone() })
    }

    /// Bytes charged now.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.bytes.get()
    }
}

impl Sum {
    /// Reserves room for `bytes` beyond the free ones; returns false if there is none.
    fn cover(&self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(HELD_HEAD_BYTES_FREE).saturating_sub(self.reserved.get());
        let more = missing.next_multiple_of(HELD_HEAD_BYTES_STEP);
        if more == 0 {
            return true;
        }
        let has_room = (self.room.reserve)(more);
        if has_room {
            self.reserved.set(self.reserved.get() + more);
        }
        has_room
    }

    /// Releases unused room except for one step, which is likely to be used soon.
    fn uncover(&self) {
        let wanted = self.bytes.get().saturating_sub(HELD_HEAD_BYTES_FREE).next_multiple_of(HELD_HEAD_BYTES_STEP);
        let more = self.reserved.get().saturating_sub(wanted + HELD_HEAD_BYTES_STEP);
        if more > 0 {
            self.reserved.set(self.reserved.get() - more);
            (self.room.release)(more);
        }
    }
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        let sum = &self.sum;
        sum.bytes.set(sum.bytes.get().saturating_sub(self.bytes));
        sum.uncover();
        sum.freed.set(sum.freed.get() + self.bytes);
        if sum.freed.get() >= FREED_BYTES_STEP {
            (sum.on_freed)(sum.freed.take());
        }
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        (self.on_freed)(self.freed.get());
        (self.room.release)(self.reserved.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! { static TOLD: Cell<usize> = const { Cell::new(0) }; }

    #[test]
    fn charges_are_bounded_except_for_a_single_head_and_all_releases_are_reported() {
        let ledger = HeadLedger::new(|n| TOLD.set(TOLD.get() + n), Room::default());
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

    #[test]
    fn room_beyond_the_free_bytes_is_reserved_and_released() {
        thread_local! {
            static LEFT: Cell<usize> = const { Cell::new(0) };
            static ASKED: Cell<usize> = const { Cell::new(0) };
        }
        let room = Room {
            reserve: |n| {
                ASKED.set(ASKED.get() + 1);
                let left = LEFT.get().checked_sub(n);
                LEFT.set(left.unwrap_or(LEFT.get()));
                left.is_some()
            },
            release: |n| LEFT.set(LEFT.get() + n),
        };
        let all = 3 * HELD_HEAD_BYTES_STEP;
        LEFT.set(all);
        let ledger = HeadLedger::new(|_| {}, room);
        let first = ledger.take(HELD_HEAD_BYTES_FREE);
        assert_eq!((first.is_some(), ASKED.get(), LEFT.get()), (true, 0, all), "who holds little asks nobody");
        let mut held: Vec<_> = (0..all / 1000).map(|_| ledger.take(1000)).collect();
        assert!(held.iter().all(Option::is_some));
        assert_eq!((ASKED.get(), LEFT.get()), (3, 0), "a step at a time");
        assert!(ledger.take(1000).is_none(), "there is no room");
        // Another connection, while there is no room.
        let other = HeadLedger::new(|_| {}, room);
        let one = other.take(2 * HELD_HEAD_BYTES_FREE);
        assert!(one.is_some() && other.take(1).is_none(), "a single head has room, and nothing beside it");
        held.truncate(held.len() / 3);
        assert_eq!(LEFT.get(), HELD_HEAD_BYTES_STEP, "one step is kept for the next");
        drop((first, held, one, ledger, other));
        assert_eq!(LEFT.get(), all);
    }
}
