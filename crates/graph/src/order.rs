//! The order of the iterations of a scope, for models that keep state and for the responses of the ensemble.

use std::collections::VecDeque;

/// Iterations that have not been processed, oldest first. An iteration that ends unprocessed is removed.
#[derive(Debug, Default)]
pub(crate) struct Order(VecDeque<u64>);

impl Order {
    /// Adds an iteration. Numbers ascend.
    pub fn push(&mut self, number: u64) {
        self.0.push_back(number);
    }

    pub fn is_next(&self, number: u64) -> bool {
        self.0.front() == Some(&number)
    }

    /// Removes an iteration that is processed or has ended; returns the next iteration if it changed.
    pub fn leave(&mut self, number: u64) -> Option<u64> {
        let at = self.0.binary_search(&number).ok()?;
        self.0.remove(at);
        if at == 0 { self.0.front().copied() } else { None }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_left_is_next() {
        let mut order = Order::default();
        (0..5).for_each(|n| order.push(n));
        assert!(order.is_next(0) && !order.is_next(1));
        assert_eq!(order.leave(2), None, "it was not its turn");
        assert_eq!(order.leave(1), None);
        assert_eq!(order.leave(0), Some(3));
        assert_eq!(order.leave(0), None, "it left before");
        assert_eq!((order.leave(3), order.leave(4)), (Some(4), None));
        assert!(order.is_empty());
    }
}
