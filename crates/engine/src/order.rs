//! Lets responses leave in the order their requests were accepted (`preserve_ordering`, S-13).
//!
//! Invariant: `held` never contains `next`; every place handed out is given back exactly once.

use crate::version::Delivery;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Order {
    handed_out: u64,
    next: u64,
    held: BTreeMap<u64, Delivery>,
}

impl Order {
    /// A place at the end of the line.
    pub(crate) fn place(&mut self) -> u64 {
        let place = self.handed_out;
        self.handed_out += 1;
        place
    }

    /// Takes a place back: the newest one, whose request was refused.
    pub(crate) fn withdraw(&mut self, place: u64) {
        debug_assert_eq!(place + 1, self.handed_out, "only the newest place can be withdrawn");
        self.handed_out = place;
    }

    /// Gives the answer of a place; appends to `out` everything that may leave now, in order.
    pub(crate) fn give(&mut self, place: u64, delivery: Delivery, out: &mut Vec<Delivery>) {
        self.held.insert(place, delivery);
        while let Some(d) = self.held.remove(&self.next) {
            out.push(d);
            self.next += 1;
        }
    }
}
