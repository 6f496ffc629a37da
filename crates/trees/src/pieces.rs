//! Splits that are not a single comparison: category sets, and LightGBM's zeros that count as missing. A chain of
//! comparisons of ranges that go left and right alternately reproduces the framework exactly, for every float.

use crate::compare::Compare;
use std::cell::Cell;
use tensor::{Error, Result};

/// Number of unused items in a list of a tree. Nodes must not share items, or a small file takes very long.
pub(crate) struct Unused {
    what: &'static str,
    left: Cell<usize>,
}

impl Unused {
    pub(crate) fn of(what: &'static str, list: usize) -> Self {
        Self { what, left: Cell::new(list) }
    }

    /// Assigns this number of items to a node.
    pub(crate) fn take(&self, count: usize) -> Result<()> {
        let left = self.left.get().checked_sub(count);
        let shared = || Error::invalid(format!("its {} also belong to another node", self.what));
        self.left.set(left.ok_or_else(shared)?);
        Ok(())
    }
}

/// Side of each range of values. Ranges end below a bound; the side changes at every bound.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pieces {
    /// Side of values below the first bound.
    first_left: bool,
    /// Ascending.
    bounds: Vec<f32>,
}

/// A comparison of a chain.
pub(crate) struct Comparison {
    pub(crate) compare: Compare,
    pub(crate) threshold: f32,
    /// Side of values for which it is true.
    pub(crate) left: bool,
    /// Side of all other values, after the last comparison.
    pub(crate) otherwise_left: bool,
    pub(crate) missing_yes: bool,
}

impl Pieces {
    /// Values of `categories` go left if `members_left`, all others to the other side. Frameworks first truncate a
    /// value to an integer. With `cuts_negative`, values between -1 and 0 are category 0, otherwise they are none.
    pub(crate) fn categories(mut categories: Vec<u32>, members_left: bool, cuts_negative: bool) -> Self {
        categories.sort_unstable();
        categories.dedup();
        let mut bounds: Vec<f32> = Vec::new();
        // Two equal bounds enclose no float.
        let mut bound = |at: f32| {
            if bounds.last() == Some(&at) {
                bounds.pop();
            } else {
                bounds.push(at);
            }
        };
        let mut rest = categories.into_iter().map(u64::from).peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            bound(if first == 0 && cuts_negative { (-1.0f32).next_up() } else { not_below(first as f64) });
            bound(not_below((last + 1) as f64));
        }
        Self { first_left: !members_left, bounds }
    }

    /// Values up to `threshold` go left and others right, except those within `zero` of 0, which go to `zero_left`.
    pub(crate) fn around_zero(threshold: f64, zero: f32, zero_left: bool) -> Self {
        let end_of_left = not_above(threshold).next_up();
        let (begin, end) = (-zero, zero.next_up());
        let mut candidates = [end_of_left, begin, end];
        candidates.sort_unstable_by(f32::total_cmp);
        let side = |x: f32| if (begin..end).contains(&x) { zero_left } else { x < end_of_left };
        let first_left = side(f32::NEG_INFINITY);
        let (mut before, mut bounds) = (first_left, Vec::new());
        for at in candidates {
            if side(at) != before {
                before = !before;
                bounds.push(at);
            }
        }
        Self { first_left, bounds }
    }

    pub(crate) fn tests(&self) -> usize {
        self.bounds.len().max(1)
    }

    /// The comparisons; each applies to values for which all previous ones were false. The side alternates, so a
    /// missing value leaves the chain at the first comparison with its side.
    pub(crate) fn chain(&self, compare: Compare, missing_left: bool) -> Vec<Comparison> {
        if self.bounds.is_empty() {
            // All values go one way: `x <= infinity` is false only for a missing value.
            let (left, otherwise_left) = (self.first_left, !self.first_left);
            let missing_yes = missing_left == left;
            let (compare, threshold) = (Compare::LessOrEqual, f32::INFINITY);
            return vec![Comparison { compare, threshold, left, otherwise_left, missing_yes }];
        }
        let mut left = self.first_left;
        let comparisons = self.bounds.iter().map(|&bound| {
            let threshold = match compare {
                Compare::Less => bound,
                Compare::LessOrEqual => bound.next_down(),
            };
            let comparison =
                Comparison { compare, threshold, left, otherwise_left: !left, missing_yes: missing_left == left };
            left = !left;
            comparison
        });
        comparisons.collect()
    }
}

/// The largest float not above `value`: for every float `x`, `x <= not_above(value)` equals `x <= value`.
pub(crate) fn not_above(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) > value { near.next_down() } else { near }
}

/// The smallest float not below `value`: for every float `x`, `x < not_below(value)` equals `x < value`.
pub(crate) fn not_below(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) < value { near.next_up() } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Side of a value in a chain.
    fn goes_left(chain: &[Comparison], x: f32) -> bool {
        for comparison in chain {
            let yes = match comparison.compare {
                _ if x.is_nan() => comparison.missing_yes,
                Compare::Less => x < comparison.threshold,
                Compare::LessOrEqual => x <= comparison.threshold,
            };
            if yes {
                return comparison.left;
            }
        }
        chain.last().expect("a comparison").otherwise_left
    }

    fn floats() -> Vec<f32> {
        let near = [0.0f32, 1e-35, 1.0, 2.0, 3.0, 5.0, 31.0, 32.0, 16_777_216.0, 16_777_218.0, 4_294_967_295.0];
        let mut all = vec![f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 0.5, 1.5, 40.0, f32::from_bits(1)];
        all.extend(near.iter().flat_map(|x| [x.next_down(), *x, x.next_up()]));
        all.extend(all.clone().iter().map(|x| -x));
        all
    }

    #[test]
    fn category_sets_are_exact_for_every_float() {
        let sets: [&[u32]; 7] =
            [&[], &[0], &[1], &[0, 1, 2, 5], &[2, 31, 32], &[16_777_216, 16_777_217, 16_777_219], &[u32::MAX]];
        for set in sets {
            for (members_left, cuts_negative, compare, missing_left) in [
                (true, true, Compare::LessOrEqual, false),
                (true, true, Compare::Less, true),
                (false, false, Compare::Less, true),
                (false, false, Compare::LessOrEqual, false),
            ] {
                let chain = Pieces::categories(set.to_vec(), members_left, cuts_negative).chain(compare, missing_left);
                for x in floats() {
                    // The rule of LightGBM and XGBoost.
                    let refused = if cuts_negative { x <= -1.0 } else { x < 0.0 };
                    let is_member = !refused && set.iter().any(|&c| f64::from(x).trunc() == f64::from(c));
                    assert_eq!(goes_left(&chain, x), is_member == members_left, "{x} of {set:?}, {compare:?}");
                }
                assert_eq!(goes_left(&chain, f32::NAN), missing_left, "{set:?}");
            }
        }
    }

    #[test]
    fn zeros_that_count_as_missing_are_exact_for_every_float() {
        for threshold in [-3.0, -1e-35, -1e-36, 0.0, 1e-36, f64::from(1e-35f32), 0.5, 2.000_000_000_1, 1e300] {
            for zero_left in [false, true] {
                let chain = Pieces::around_zero(threshold, 1e-35, zero_left).chain(Compare::LessOrEqual, zero_left);
                for x in floats() {
                    let expected = if (-1e-35f32..=1e-35).contains(&x) { zero_left } else { f64::from(x) <= threshold };
                    assert_eq!(goes_left(&chain, x), expected, "{x} of {threshold}");
                }
            }
        }
    }

    #[test]
    fn rounded_thresholds_compare_as_the_doubles_do() {
        for t in [0.1, 1.0 / 3.0, -0.1, 1e-50, -1e-50, 1e300, -1e300, 16_777_217.0, 0.0, 2.5] {
            for x in floats().into_iter().chain([not_above(t), not_below(t), t as f32]) {
                assert_eq!(x <= not_above(t), f64::from(x) <= t, "{x} <= {t}");
                assert_eq!(x < not_below(t), f64::from(x) < t, "{x} < {t}");
            }
        }
    }
}
