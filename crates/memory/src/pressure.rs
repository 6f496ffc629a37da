//! Follows the memory of the container for which nothing is charged: heaps of Node and of models, arenas of ONNX
//! Runtime, outputs of a run, memory that is kept for reuse, other processes. It counts against the budget, which would
//! promise memory that is not there otherwise.
//!
//! The thread of [`crate::reclaim`] calls [`sample`], more often while requests hold memory.

use crate::budget::Budget;
use crate::machine;
use std::time::Duration;
use tensor::{Error, Result};

/// Least bytes of a container beyond what is in use before the start: the start itself takes some 20 MiB.
const REST_BYTES_MIN: u64 = 40 << 20;
/// Interval of samples while requests hold memory or wait for it.
const INTERVAL_BUSY: Duration = Duration::from_millis(50);
/// Part of a peak, as a divisor, that a sample forgets. A model that needed memory will need it again.
const DECAY: usize = 32;

/// Checks whether the container leaves enough to serve requests of some MiB.
///
/// # Errors
/// INVALID_ARG with the least size of a container.
pub fn check_container() -> Result<()> {
    let Some(group) = machine::group() else { return Ok(()) };
    let own_bytes = group.own_bytes();
    let least = own_bytes + REST_BYTES_MIN;
    if group.limit_bytes() >= least {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the container has {} bytes of memory, of which {own_bytes} are in use before the start: at least {least} are \
         needed to serve",
        group.limit_bytes()
    )))
}

/// Compares the use of the container with the charges. Returns when to do so again; `None` if that has
/// time, or there is no container. `lacks`: a charge found no room lately.
pub(crate) fn sample(budget: &Budget, lacks: bool) -> Option<Duration> {
    let group = machine::group()?;
    let counters = budget.counters();
    let charged: usize = counters.used_bytes.iter().sum();
    // Others may use what remains beside the limit and the part for growth: more if the user has set a lower limit.
    let free = (group.own_bytes() + group.request_bytes()).saturating_sub(counters.limit_bytes as u64);
    let other = usize::try_from(group.used_bytes()?.saturating_sub(free)).unwrap_or(usize::MAX);
    let peak = counters.other_bytes - counters.other_bytes.div_ceil(DECAY);
    budget.set_other(other.saturating_sub(charged).max(peak));
    if charged > 0 || lacks || budget.is_short() {
        return Some(INTERVAL_BUSY);
    }
    budget.unwatch();
    None
}
