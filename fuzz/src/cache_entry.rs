//! Entries of the response cache as they come from a store that others may write to.

/// Takes an entry, as it is and with the checksum it should have.
///
/// # Panics
/// What was read is not stored as the same bytes.
pub fn cache_entry(data: &[u8]) -> bool {
    cache::fuzz(data)
}
