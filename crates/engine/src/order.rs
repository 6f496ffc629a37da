//! Delivers responses in the order in which their requests were accepted (`preserve_ordering`, S-13), across threads.
//!
//! One thread at a time delivers, one response at a time and outside the lock; other threads leave their responses to
//! it. So sinks see the order of the positions.
//!
//! Invariant: `held` never contains `next`; every position gets a final response, or is withdrawn, exactly once.

use crate::answer::{EngineResponse, Sink};
use crate::limits::{ANSWERS_HELD_BYTES_MAX, ANSWERS_HELD_MAX};
use crate::sequence::Sequencing;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A response and its receiver.
type Waiting = (Arc<dyn Sink>, EngineResponse);

/// The response order of one version.
#[derive(Default)]
pub(crate) struct ResponseOrder(Mutex<Order>);

#[derive(Default)]
struct Order {
    /// Responses that may be delivered, in order.
    ready: VecDeque<Waiting>,
    /// True while a thread delivers.
    is_leaving: bool,
    handed_out: u64,
    next: u64,
    held: BTreeMap<u64, Vec<Waiting>>,
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
        let mut order = self.0.lock();
        let place = order.handed_out;
        order.handed_out += 1;
        place
    }

    /// Withdraws the newest position, whose request was rejected.
    pub(crate) fn withdraw(&self, place: u64) {
        let mut order = self.0.lock();
        debug_assert_eq!(place + 1, order.handed_out, "only the newest place can be withdrawn");
        order.handed_out = place;
    }

    /// Accepts a response of the request at its place, and calls `put`, which must not panic, for all that may be
    /// delivered now. Returns false if too much is held.
    pub(crate) fn give(
        &self,
        sink: Arc<dyn Sink>,
        answer: EngineResponse,
        put: impl Fn(Arc<dyn Sink>, EngineResponse),
    ) -> bool {
        let mut order = self.0.lock();
        let fits = order.give(sink, answer);
        if order.is_leaving {
            return fits;
        }
        order.is_leaving = true;
        while let Some((sink, answer)) = order.ready.pop_front() {
            drop(order);
            put(sink, answer);
            order = self.0.lock();
        }
        order.is_leaving = false;
        fits
    }
}

impl Order {
    fn give(&mut self, sink: Arc<dyn Sink>, mut answer: EngineResponse) -> bool {
        let (place, mut is_over) = (answer.place, answer.is_final);
        if place != self.next {
            let mut fits = true;
            if !is_over {
                answer.bytes = answer.content_bytes();
                self.early.0 += 1;
                self.early.1 += answer.bytes;
                fits = self.early.0 <= ANSWERS_HELD_MAX && self.early.1 <= ANSWERS_HELD_BYTES_MAX;
            }
            self.held.entry(place).or_default().push((sink, answer));
            return fits;
        }
        self.ready.push_back((sink, answer));
        while is_over {
            self.next += 1;
            // The next request is over, has responded, or has not responded yet.
            let held = self.held.remove(&self.next).unwrap_or_default();
            is_over = held.last().is_some_and(|(_, answer)| answer.is_final);
            for (_, answer) in held.iter().filter(|(_, answer)| !answer.is_final) {
                self.early.0 -= 1;
                self.early.1 -= answer.bytes;
            }
            self.ready.extend(held);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn give(line: &ResponseOrder, place: u64, is_final: bool, put: impl Fn(Arc<dyn Sink>, EngineResponse)) -> bool {
        line.give(Arc::new(|_| ()), EngineResponse { is_final, ..EngineResponse::last(None).at(place) }, put)
    }

    /// Accepts responses (position, is final); returns which ones each of them delivered.
    fn check(given: &[(u64, bool)], expected: &[&[bool]]) {
        let line = ResponseOrder::default();
        (0..4).for_each(|place| assert_eq!(line.place(), place));
        for (&(place, is_final), expected) in given.iter().zip(expected) {
            let left = std::cell::RefCell::new(Vec::new());
            give(&line, place, is_final, |_, answer| left.borrow_mut().push(answer.is_final));
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
        give(&line, 0, false, |_, answer| {
            if seen.borrow().is_empty() {
                give(&line, 0, true, |_, _| unreachable!("another is being handed out"));
            }
            seen.borrow_mut().push(answer.is_final);
        });
        assert_eq!(seen.into_inner(), [false, true]);
    }

    #[test]
    fn early_responses_are_limited() {
        let line = ResponseOrder::default();
        (0..2).for_each(|_| _ = line.place());
        let left = std::cell::Cell::new(0);
        let give = |place, is_final| give(&line, place, is_final, |_, _| left.set(left.get() + 1));
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
