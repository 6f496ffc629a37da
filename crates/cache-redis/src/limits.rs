//! What is waited for, and how much of it.

use std::time::Duration;

/// Lookups that wait or are under way; further ones are misses.
pub const LOOKUPS_MAX: usize = 1024;
/// Insertions that wait or are under way; further answers are not kept.
pub const INSERTIONS_MAX: usize = 1024;
/// Bytes of insertions.
pub const INSERTION_BYTES_MAX: usize = 64 << 20;
/// Bytes of an entry; larger answers are not kept.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;
/// Commands under way on one connection.
pub const PIPELINE_MAX: usize = 8;
/// Connections that may be asked for.
pub const POOL_SIZE_MAX: usize = 64;
/// Longest time that may be asked for; and the one for 0, which means for ever in Triton, is `TIMEOUT_DEFAULT`.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// How long Redis may take where the configuration does not say.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Shortest and longest pause before a connection is tried again; it doubles from one to the other.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// A connection that lasted so long is tried again after the shortest pause.
pub const LASTED: Duration = Duration::from_secs(60);
