//! Limits and timeouts of the Redis cache.

use std::time::Duration;

/// Limit on pending lookups; others are misses.
pub const LOOKUPS_MAX: usize = 1024;
/// Limit on pending insertions; others are not stored.
pub const INSERTIONS_MAX: usize = 1024;
/// Byte limit of all pending insertions.
pub const INSERTION_BYTES_MAX: usize = 64 << 20;
/// Byte limit of an entry; larger responses are not stored.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;
/// Max. commands in flight per connection.
pub const PIPELINE_MAX: usize = 8;
/// Maximum configurable connections.
pub const POOL_SIZE_MAX: usize = 64;
/// Longest configurable timeout. 0, which means no limit in Triton, is `TIMEOUT_DEFAULT`.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Timeout if none is configured.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Shortest and longest pause before a connection is reopened; it doubles from one to the other.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// A connection that lasted this long is reopened after the shortest pause.
pub const LASTED: Duration = Duration::from_secs(60);
