//! Delivers responses in the order in which their requests were accepted (`preserve_ordering`, S-13), across threads.
//!
//! One thread at a time delivers, one response at a time and outside the lock; other threads leave their responses to
//! it. So sinks see the order of the positions.
//!
//! Invariant: `held` never contains `next`; every position gets a final response, or is withdrawn, exactly once.

use crate::answer::Delivery;
use crate::limits::{ANSWERS_HELD_BYTES_MAX, ANSWERS_HELD_MAX};
use crate::sequence::Sequencing;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// The response order of one version.
#[derive(Default)]
pub(crate) struct ResponseOrder(Mutex<OrderState>);

#[derive(Default)]
struct OrderState {
    order: Order,
    /// Responses that may be delivered, in order.
    ready: VecDeque<Delivery>,
    /// True while a thread delivers.
    is_leaving: bool,
}

#[derive(Default)]
struct Order {
    handed_out: u64,
    next: u64,
    held: BTreeMap<u64, Vec<Delivery>>,
    /// Number and bytes of non-final responses in `held`.
    early: (usize, usize),
}

impl ResponseOrder {
    /// The response order of a version whose configuration preserves the order of requests.
    pub(crate) fn of(config: &scheduler::Config, sequencing: Option<&Sequencing>) -> Option<Self> {
        let is_kept = config.dynamic.as_ref().is_some_and(|d| d.preserve_ordering)
            || sequencing.is_some_and(|s| s.preserves_ordering);
        is_kept.then(Self::default)
    }

    /// Takes the next position.
    pub(crate) fn place(&self) -> u64 {
        let order = &mut self.0.lock().order;
        let place = order.handed_out;
        order.handed_out += 1;
        place
    }

    /// Withdraws the newest position, whose request was rejected.
    pub(crate) fn withdraw(&self, place: u64) {
        let order = &mut self.0.lock().order;
        debug_assert_eq!(place + 1, order.handed_out, "only the newest place can be withdrawn");
        order.handed_out = place;
    }

    /// Accepts a response of the request at `place`, and calls `put`, which must not panic, for everything that may be
    /// delivered now. Returns false if too much is held.
    pub(crate) fn give(&self, place: u64, delivery: Delivery, put: impl Fn(Delivery)) -> bool {
        let mut state = self.0.lock();
        let OrderState { order, ready, .. } = &mut *state;
        let fits = order.give(place, delivery, ready);
        if state.is_leaving {
            return fits;
        }
        state.is_leaving = true;
        while let Some(delivery) = state.ready.pop_front() {
            drop(state);
            put(delivery);
            state = self.0.lock();
        }
        state.is_leaving = false;
        fits
    }
}

impl Order {
    fn give(&mut self, place: u64, delivery: Delivery, ready: &mut VecDeque<Delivery>) -> bool {
        if place != self.next {
            if delivery.answer.is_final {
                self.held.entry(place).or_default().push(delivery);
                return true;
            }
            self.early.0 += 1;
            self.early.1 += delivery.bytes();
            self.held.entry(place).or_default().push(delivery);
            return self.early.0 <= ANSWERS_HELD_MAX && self.early.1 <= ANSWERS_HELD_BYTES_MAX;
        }
        let mut is_over = delivery.answer.is_final;
        ready.push_back(delivery);
        while is_over {
            self.next += 1;
            // The next request is over, has responded, or has not responded yet.
            let held = self.held.remove(&self.next).unwrap_or_default();
            is_over = held.last().is_some_and(|d| d.answer.is_final);
            for delivery in held.iter().filter(|d| !d.answer.is_final) {
                self.early.0 -= 1;
                self.early.1 -= delivery.bytes();
            }
            ready.extend(held);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::EngineResponse;
    use std::sync::Arc;

    fn delivery(is_final: bool) -> Delivery {
        Delivery { sink: Arc::new(|_| ()), answer: EngineResponse { response: None, is_final } }
    }

    /// Accepts responses (position, is final); returns which ones each of them delivered.
    fn check(given: &[(u64, bool)], expected: &[&[bool]]) {
        let line = ResponseOrder::default();
        (0..4).for_each(|place| assert_eq!(line.place(), place));
        for (&(place, is_final), expected) in given.iter().zip(expected) {
            let left = std::cell::RefCell::new(Vec::new());
            line.give(place, delivery(is_final), |d| left.borrow_mut().push(d.answer.is_final));
            assert_eq!(left.into_inner(), *expected, "after place {place}");
        }
    }

    #[test]
    fn responses_have_the_order_of_their_requests() {
        check(&[(0, true), (1, true)], &[&[true], &[true]]);
        check(&[(1, true), (2, true), (0, true), (3, true)], &[&[], &[], &[true, true, true], &[true]]);
    }

    #[test]
    fn later_requests_wait_for_the_last_response_of_a_request() {
        check(
            &[(1, false), (0, false), (1, false), (0, true), (2, true), (1, false), (1, true)],
            &[&[], &[false], &[], &[true, false, false], &[], &[false], &[true, true]],
        );
    }

    #[test]
    fn a_response_put_during_a_delivery_follows_it() {
        let line = ResponseOrder::default();
        (0..2).for_each(|_| _ = line.place());
        let seen = std::cell::RefCell::new(Vec::new());
        line.give(0, delivery(false), |d| {
            if seen.borrow().is_empty() {
                line.give(0, delivery(true), |_| unreachable!("another is being handed out"));
            }
            seen.borrow_mut().push(d.answer.is_final);
        });
        assert_eq!(seen.into_inner(), [false, true]);
    }

    #[test]
    fn early_responses_are_limited() {
        let line = ResponseOrder::default();
        (0..2).for_each(|_| _ = line.place());
        let left = std::cell::Cell::new(0);
        let give = |place, is_final| line.give(place, delivery(is_final), |_| left.set(left.get() + 1));
        assert!((0..ANSWERS_HELD_MAX).all(|_| give(1, false)));
        assert!(!give(1, false), "one more than may be held");
        assert!(give(1, true), "the last one is, always");
        assert!(give(0, true));
        assert_eq!(left.get(), ANSWERS_HELD_MAX + 3);
        (0..2).for_each(|_| _ = line.place());
        assert!(give(3, false), "what left is not counted any more");
    }

    #[test]
    fn a_withdrawn_position_is_reused() {
        let line = ResponseOrder::default();
        assert_eq!((line.place(), line.place()), (0, 1));
        line.withdraw(1);
        assert_eq!(line.place(), 1);
    }
}
