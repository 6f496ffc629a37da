//! Limit of connections, from the descriptors of this process.

use crate::limits::{CONNECTIONS_PER_REACTOR_MAX, DESCRIPTORS_RESERVED};

/// Descriptors that this process may have open. Node raises the soft limit to the hard one before this is read.
fn limit() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Connections that all reactors together may have open.
pub fn connections_max(reactors: usize) -> usize {
    allowed(limit().unwrap_or(u64::MAX), reactors)
}

fn allowed(descriptors: u64, reactors: usize) -> usize {
    // With very few descriptors the reserve takes half of them.
    let left = descriptors - DESCRIPTORS_RESERVED.min(descriptors / 2);
    usize::try_from(left).unwrap_or(usize::MAX).min(CONNECTIONS_PER_REACTOR_MAX * reactors.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_kept_for_metrics_and_models() {
        for (descriptors, expected) in [(u64::MAX, 16_384), (1024, 640), (256, 128), (1, 1)] {
            assert_eq!(allowed(descriptors, 1), expected, "{descriptors}");
        }
        #[cfg(target_os = "linux")]
        assert!(limit().is_some_and(|n| n > 0));
    }
}
