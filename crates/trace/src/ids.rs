//! Ids of spans that models receive during a request. Other spans get their ids when they are exported.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Random lower-case hexadecimal digits, a multiple of 16, not all 0.
pub(crate) fn random_hex(digits: usize) -> String {
    static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut hex = String::with_capacity(digits);
    while hex.len() < digits {
        // A keyed hash of a counter: ids must differ from those of other processes, but need not be secret.
        let part = KEYED.hash_one(NEXT.fetch_add(1, Ordering::Relaxed));
        hex.push_str(&format!("{:016x}", part.max(1)));
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hexadecimal_and_differ() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| random_hex(16)).collect();
        assert_eq!(ids.len(), 1000);
        let trace = random_hex(32);
        assert!(trace.len() == 32 && trace.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{trace}");
    }
}
