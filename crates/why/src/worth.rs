//! Whether a change is worth it.

use crate::Speed;

/// Factor of rate or latency from which a change is worth it.
pub const WORTH: f64 = 1.15;
/// Factor of the other one that may be lost.
const LOSS: f64 = 0.95;
/// Factor of the 99th percentile that is worth a change if the median stays.
const ALONE: f64 = 2.0;
/// Shorter gains of latency are not worth a change, in µs.
const GAIN_US_MIN: f64 = 200.0;

/// Sum of what is gained in rate and in latency, as logarithms.
pub(crate) fn gain(now: &Speed, then: &Speed) -> f64 {
    let (rate, latency) = (then.rate / now.rate.max(1e-9), now.p99_us / then.p99_us.max(1e-9));
    rate.max(1e-9).ln() + latency.max(1e-9).ln()
}

/// True if a change from `now` to `then` is worth it. The slowest of a hundred requests of a healthy server wait a
/// little, too; so a gain of theirs alone has to be large.
pub(crate) fn is_worth(now: &Speed, then: &Speed) -> bool {
    let (rate, slowest) = (then.rate / now.rate.max(1e-9), now.p99_us / then.p99_us.max(1e-9));
    let is_large = slowest >= ALONE || now.p50_us / then.p50_us.max(1e-9) >= WORTH;
    let is_faster = slowest >= WORTH && is_large && now.p99_us - then.p99_us >= GAIN_US_MIN;
    (rate >= WORTH && slowest >= LOSS) || (is_faster && rate >= LOSS)
}
