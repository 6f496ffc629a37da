//! Chooses the successful requests that are logged.

use std::sync::atomic::{AtomicU64, Ordering};

/// The rate 1.
const WHOLE: u64 = 1 << 32;

/// Chooses requests evenly: at a rate of 0.25, 25 of 100 requests, and never two in a row.
#[derive(Debug)]
pub struct Sampler {
    /// Rate in units of 1 / `WHOLE`.
    rate: u64,
    seen: AtomicU64,
}

impl Sampler {
    /// Makes a sampler for a rate from 0 to 1. Other values are clamped, and NaN is 0.
    pub fn new(rate: f64) -> Self {
        Self { rate: (rate.clamp(0.0, 1.0) * WHOLE as f64) as u64, seen: AtomicU64::new(0) }
    }

    /// Whether the next request is logged.
    #[inline]
    pub fn takes(&self) -> bool {
        if self.rate >= WHOLE {
            return true;
        }
        // Wraps at a multiple of WHOLE.
        let before = self.seen.fetch_add(self.rate, Ordering::Relaxed);
        before.wrapping_add(self.rate) / WHOLE != before / WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_evenly() {
        for (rate, of, expected) in
            [(1.0, 10, 10), (0.0, 10, 0), (0.25, 100, 25), (0.5, 7, 3), (f64::NAN, 9, 0), (7.0, 3, 3)]
        {
            let sampler = Sampler::new(rate);
            assert_eq!((0..of).filter(|_| sampler.takes()).count(), expected, "{rate}");
        }
        let third = Sampler::new(1.0 / 3.0);
        let taken: Vec<bool> = (0..3000).map(|_| third.takes()).collect();
        assert!(taken.windows(2).all(|w| !(w[0] && w[1])));
        assert!((999..=1000).contains(&taken.iter().filter(|t| **t).count()));
    }
}
