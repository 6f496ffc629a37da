//! Follows the memory of the container for which nothing is charged: heaps of Node and of models, arenas of ONNX
//! Runtime, outputs of a run, memory that is kept for reuse, other processes. It counts against the budget, which would
//! promise memory that is not there otherwise.
//!
//! The thread of [`crate::reclaim`] calls [`sample`], more often while requests hold memory.

use crate::budget::Budget;
use crate::machine::{self, Group};
use crate::reclaim;
use std::sync::OnceLock;
use std::time::Duration;

/// Divisor of the memory of a machine without a container's limit: other programs and models have the other half.
const MACHINE_SHARE: u64 = 2;
/// Divisor of what a container leaves after the process's own need. So much is left for what grows between two samples:
/// an output is charged when its run is over.
const GROWTH_SHARE: u64 = 4;
/// Interval of samples while requests hold memory or wait for it.
const INTERVAL_BUSY: Duration = Duration::from_millis(50);
/// Part of a peak, as a divisor, that a sample forgets. A model that needed memory will need it again.
const DECAY: usize = 32;

/// A container and what the process used of it when it started.
struct Container {
    group: &'static Group,
    own_bytes: u64,
}

fn container() -> Option<&'static Container> {
    static CONTAINER: OnceLock<Option<Container>> = OnceLock::new();
    let make = || {
        let group = machine::group()?;
        Some(Container { group, own_bytes: group.used_bytes()?.min(group.limit_bytes()) })
    };
    CONTAINER.get_or_init(make).as_ref()
}

/// Bytes that requests may hold by default: of a container what it leaves after the process's own need, less a part
/// for growth; half of a machine.
pub(crate) fn limit_default() -> usize {
    let bytes = match container() {
        Some(Container { group, own_bytes }) => {
            let rest = group.limit_bytes() - own_bytes;
            rest - rest / GROWTH_SHARE
        }
        None => machine::memory_bytes() / MACHINE_SHARE,
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Compares the use of the container with the charges. Returns when to do so again; `None` if that has
/// time, or there is no container.
pub(crate) fn sample(budget: &Budget) -> Option<Duration> {
    let Container { group, own_bytes } = container()?;
    let counters = budget.counters();
    let charged: usize = counters.used_bytes.iter().sum();
    let rest = group.limit_bytes() - own_bytes;
    // What is beside the limit and its reserve: the process's own need, or more if the user has set a lower limit.
    let free = (group.limit_bytes() - rest / GROWTH_SHARE).saturating_sub(counters.limit_bytes as u64);
    let other = usize::try_from(group.used_bytes()?.saturating_sub(free)).unwrap_or(usize::MAX);
    let peak = counters.other_bytes - counters.other_bytes.div_ceil(DECAY);
    budget.set_other(other.saturating_sub(charged).max(peak));
    if charged > 0 || budget.is_short() {
        return Some(INTERVAL_BUSY);
    }
    budget.unwatch();
    None
}

/// Has a sample taken soon.
pub(crate) fn wake() {
    if container().is_some() {
        reclaim::sample_soon();
    }
}
