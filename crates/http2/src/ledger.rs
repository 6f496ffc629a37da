//! What the decoded heads of one connection take together. A client that refers to long fields of its table makes a head of 64 KiB
//! with 15 bytes, and may have thousands of streams open: only the sum says what that costs us.
//!
//! Many connections are more than one: beyond what every connection may hold for nothing, the server is asked for room, a step at a
//! time, and is given it back.
//!
//! Invariant: `bytes` is the sum of all [`Held`] that live. `reserved` is a whole number of steps; with the free part it covers
//! `bytes`, unless a single head that came to an empty ledger found no room.

use crate::limits::{FREED_BYTES_TOLD, HELD_HEAD_BYTES_FREE, HELD_HEAD_BYTES_MAX, HELD_HEAD_BYTES_STEP};
use std::cell::Cell;
use std::rc::Rc;

/// The heads of one connection.
#[derive(Debug)]
pub struct Ledger(Rc<Sum>);

#[derive(Debug)]
struct Sum {
    bytes: Cell<usize>,
    /// What the server has set aside for them.
    reserved: Cell<usize>,
    /// Given back since `told` was last called.
    freed: Cell<usize>,
    told: fn(usize),
    room: Room,
}

/// How the server keeps account of what the heads of all connections take.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Sets so many bytes aside; false when there is no room for them.
    pub reserve: fn(usize) -> bool,
    /// Gives so many of them back.
    pub release: fn(usize),
}

impl Default for Room {
    /// As much as is asked for.
    fn default() -> Self {
        Self { reserve: |_| true, release: |_| {} }
    }
}

/// A head's part of the sum.
#[derive(Debug)]
pub struct Held {
    bytes: usize,
    sum: Rc<Sum>,
}

impl Ledger {
    /// An empty one. `told` learns, now and then, how many bytes were given back.
    pub fn new(told: fn(usize), room: Room) -> Self {
        Self(Rc::new(Sum { bytes: Cell::new(0), reserved: Cell::new(0), freed: Cell::new(0), told, room }))
    }

    /// Takes in so many bytes. `None` when that is too much beside what is there: a single head always has room.
    pub fn take(&self, bytes: usize) -> Option<Held> {
        let before = self.0.bytes.get();
        let after = before.saturating_add(bytes);
        if before > 0 && (after > HELD_HEAD_BYTES_MAX || !self.0.cover(after)) {
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

impl Sum {
    /// Has so many bytes set aside, but for the free ones; false when there is no room.
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

    /// Gives back what is set aside for nothing, but for a step: it is soon wanted again.
    fn uncover(&self) {
        let wanted = self.bytes.get().saturating_sub(HELD_HEAD_BYTES_FREE).next_multiple_of(HELD_HEAD_BYTES_STEP);
        let more = self.reserved.get().saturating_sub(wanted + HELD_HEAD_BYTES_STEP);
        if more > 0 {
            self.reserved.set(self.reserved.get() - more);
            (self.room.release)(more);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let sum = &self.sum;
        sum.bytes.set(sum.bytes.get().saturating_sub(self.bytes));
        sum.uncover();
        sum.freed.set(sum.freed.get() + self.bytes);
        if sum.freed.get() >= FREED_BYTES_TOLD {
            (sum.told)(sum.freed.take());
        }
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        (self.told)(self.freed.get());
        (self.room.release)(self.reserved.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! { static TOLD: Cell<usize> = const { Cell::new(0) }; }

    #[test]
    fn holds_so_much_and_one_head_however_large_and_tells_of_all_that_goes() {
        let ledger = Ledger::new(|n| TOLD.set(TOLD.get() + n), Room::default());
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
    fn beyond_what_is_free_it_asks_for_room_and_gives_all_of_it_back() {
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
        let ledger = Ledger::new(|_| {}, room);
        let first = ledger.take(HELD_HEAD_BYTES_FREE);
        assert_eq!((first.is_some(), ASKED.get(), LEFT.get()), (true, 0, all), "who holds little asks nobody");
        let mut held: Vec<_> = (0..all / 1000).map(|_| ledger.take(1000)).collect();
        assert!(held.iter().all(Option::is_some));
        assert_eq!((ASKED.get(), LEFT.get()), (3, 0), "a step at a time");
        assert!(ledger.take(1000).is_none(), "there is no room");
        // Another connection, while there is none.
        let other = Ledger::new(|_| {}, room);
        let one = other.take(2 * HELD_HEAD_BYTES_FREE);
        assert!(one.is_some() && other.take(1).is_none(), "a single head has room, and nothing beside it");
        held.truncate(held.len() / 3);
        assert_eq!(LEFT.get(), HELD_HEAD_BYTES_STEP, "one step is kept for the next");
        drop((first, held, one, ledger, other));
        assert_eq!(LEFT.get(), all);
    }
}
