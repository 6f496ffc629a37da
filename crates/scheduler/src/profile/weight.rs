//! Whether a model's runs are heavy: as long as it takes for the workers of a shared pool to be in each other's way.

/// A run that takes at least this long counts. Every time a client is slow to send its next request, parking and releasing workers
/// costs about half a millisecond of the pool: measured with two clients, runs that take 3 ms alone lose 5 % by it, of 10 ms nothing,
/// and of 19 ms gain 6 %.
const HEAVY_NS: u64 = 8_000_000;
/// Of the last runs so many more have to be heavy than not; a run that was preempted changes nothing.
const SCORE_HEAVY: u8 = 4;
const SCORE_MAX: u8 = 8;

#[derive(Default)]
pub(super) struct Weight {
    score: u8,
}

impl Weight {
    pub fn is_heavy(&self) -> bool {
        self.score >= SCORE_HEAVY
    }

    #[inline]
    pub fn observe(&mut self, ns: u64) {
        self.score = if ns >= HEAVY_NS { (self.score + 1).min(SCORE_MAX) } else { self.score.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_heavy_when_most_of_its_runs_are() {
        let heavy = |runs: &[u64]| {
            let mut weight = Weight::default();
            runs.iter().for_each(|&ns| weight.observe(ns));
            weight.is_heavy()
        };
        const H: u64 = HEAVY_NS;
        assert!(!heavy(&[]), "nothing is known");
        assert!(!heavy(&[9 * H; 3]));
        assert!(heavy(&[H; 4]));
        assert!(!heavy(&[H - 1; 100]));
        assert!(!heavy(&[H, 9, 9, 9].repeat(100)), "a cheap model that is preempted now and then");
        assert!(heavy(&[H, H, H, 9].repeat(100)));
        assert!(!heavy(&[&[H; 100][..], &[9; 8]].concat()), "it became cheap");
    }
}
