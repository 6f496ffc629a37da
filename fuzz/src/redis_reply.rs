//! Replies of the Redis server of the response cache, which is not trusted.

use cache_redis::{ENTRY_BYTES_MAX, replies_in};

/// Reads replies.
///
/// # Panics
/// Replies in small pieces are other replies, or a value is longer than an entry may be.
pub fn redis_reply(data: &[u8]) -> bool {
    let whole = replies_in(data, 8192);
    assert_eq!(whole, replies_in(data, 1));
    assert_ne!(whole.1, "memory is always ready");
    let (values, _) = whole;
    assert!(values.iter().flatten().all(|value| value.len() <= ENTRY_BYTES_MAX + 1));
    !values.is_empty()
}
