//! How long executions take, as they were seen: for a size that was seen often one of its durations, for another size
//! the line through the means, times the deviation of one of the next size. A mean would hide the slow ones.

use crate::history::{History, Ran};
use std::collections::BTreeMap;

/// Durations of a size that are drawn from without those of others.
const SEEN_MIN: usize = 24;
/// Executions of a size from which its mean is a point of the line.
const LINE_MIN: usize = 3;
/// Largest size that the line is trusted for, as a multiple of the largest that was seen.
const BEYOND: u32 = 8;

/// Durations of executions by size.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// Sorted durations in ns, and their mean.
    sizes: BTreeMap<u32, (Vec<u64>, f64)>,
    /// Fixed cost and cost of a row or token, in ns.
    line: Option<(f64, f64)>,
}

/// A small generator of random numbers, the same for each replay.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number below `most`.
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }
}

/// Mean of durations; 0 if there are none.
pub(crate) fn mean(all: &[u64]) -> f64 {
    all.iter().map(|ns| *ns as f64).sum::<f64>() / all.len().max(1) as f64
}

impl Service {
    /// The durations of the executions of a history.
    ///
    /// `learned` is the line of an older time, if theirs have one size.
    pub fn of(history: &History, learned: Option<(f64, f64)>) -> Self {
        let mut sizes = BTreeMap::<u32, Vec<u64>>::new();
        for Ran { execution, size, .. } in history.runs.iter().filter(|ran| !ran.execution.failed) {
            sizes.entry(*size).or_default().push(execution.ns);
        }
        Self::from(sizes, learned)
    }

    fn from(sizes: BTreeMap<u32, Vec<u64>>, learned: Option<(f64, f64)>) -> Self {
        let sorted = |mut all: Vec<u64>| {
            all.sort_unstable();
            let mean = mean(&all);
            (all, mean)
        };
        let sizes = sizes.into_iter().map(|(size, all)| (size, sorted(all))).collect();
        let line = line(&sizes).or(learned);
        Self { sizes, line }
    }

    /// The same with other durations of each size.
    #[must_use]
    pub fn map(&self, change: impl Fn(u32, &[u64]) -> Vec<u64>) -> Self {
        let changed = self.sizes.iter().map(|(size, (all, _))| (*size, change(*size, all)));
        Self::from(changed.filter(|(_, all)| !all.is_empty()).collect(), self.line)
    }

    /// True if no execution was seen.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// True if a batch of this size can be predicted.
    pub fn knows(&self, size: u32) -> bool {
        let largest = self.sizes.keys().next_back().copied().unwrap_or(0);
        size <= largest || (self.line.is_some() && size <= largest.saturating_mul(BEYOND))
    }

    /// Durations by size.
    pub fn sizes(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.sizes.iter().map(|(size, (all, _))| (*size, &all[..]))
    }

    /// Mean over all executions, in ns.
    pub fn mean(&self) -> f64 {
        let (sum, count) = self
            .sizes
            .values()
            .fold((0.0, 0), |(sum, count), (all, mean)| (sum + mean * all.len() as f64, count + all.len()));
        sum / count.max(1) as f64
    }

    /// Duration of an execution of this size, in ns.
    pub fn draw(&self, size: u32, random: &mut Random) -> u64 {
        if let Some((all, _)) = self.sizes.get(&size).filter(|(all, _)| all.len() >= SEEN_MIN || self.sizes.len() == 1)
        {
            return all[random.below(all.len())];
        }
        // The next size that was seen often; without one, the size that was seen most.
        let often = self.sizes.iter().filter(|(_, (all, _))| all.len() >= SEEN_MIN);
        let near = often.min_by_key(|(known, _)| known.abs_diff(size));
        let near = near.or_else(|| self.sizes.iter().max_by_key(|(_, (all, _))| all.len()));
        let Some((&known, (all, mean))) = near else { return 1 };
        let drawn = all[random.below(all.len())] as f64;
        let expected = match self.line {
            Some((fixed, each)) => (fixed + each * f64::from(size)) / (fixed + each * f64::from(known)).max(1.0) * mean,
            // A smaller batch takes no longer, a larger one at most in proportion.
            None => mean * f64::from(size.max(known)) / f64::from(known.max(1)),
        };
        (drawn / mean.max(1.0) * expected).max(1.0) as u64
    }
}

/// Least squares through the means, which weigh the same: under steady load nearly all executions have one size. `None`
/// if the sizes are too close.
fn line(sizes: &BTreeMap<u32, (Vec<u64>, f64)>) -> Option<(f64, f64)> {
    let mut sums = [0.0; 5];
    for (size, (_, mean)) in sizes.iter().filter(|(_, (all, _))| all.len() >= LINE_MIN) {
        let size = f64::from(*size);
        for (sum, value) in sums.iter_mut().zip([1.0, size, *mean, size * size, size * mean]) {
            *sum += value;
        }
    }
    let [weight, size, ns, squares, products] = sums;
    let (size, ns) = (size / weight, ns / weight);
    let variance = squares / weight - size * size;
    if weight < 2.0 || variance < 0.02 * size * size {
        return None;
    }
    let each = ((products / weight - size * ns) / variance).max(0.0);
    Some(((ns - each * size).max(0.0), each))
}

/// The longest beginning of sorted durations with at most this mean; if that has too few, all of them, scaled.
pub(crate) fn quickest(all: &[u64], mean: f64) -> Vec<u64> {
    const FEW: usize = 8;
    let mut sum = 0.0;
    let kept = all.iter().enumerate().take_while(|(at, ns)| {
        sum += **ns as f64;
        sum <= mean * (*at + 1) as f64
    });
    let kept = kept.count();
    if kept >= FEW {
        return all[..kept].to_vec();
    }
    let now = self::mean(all).max(1.0);
    all.iter().map(|ns| (*ns as f64 * mean / now).max(1.0) as u64).collect()
}

/// Mean number of executions beside a run, itself included.
pub(crate) fn at_once(runs: &[Ran]) -> f64 {
    let mut times: Vec<(u64, i32)> =
        runs.iter().flat_map(|ran| [(ran.execution.start, 1), (ran.execution.start + ran.execution.ns, -1)]).collect();
    times.sort_unstable();
    let (mut running, mut before, mut area, mut squares) = (0i32, 0, 0.0, 0.0);
    for (at, change) in times {
        let (length, runs) = ((at - before) as f64, f64::from(running));
        area += length * runs;
        squares += length * runs * runs;
        (running, before) = (running + change, at);
    }
    if area > 0.0 { squares / area } else { 1.0 }
}
