//! The static table, and the dynamic one that the client fills.

use super::{ENTRY_BYTES, TABLE_BYTES_DEFAULT};
use std::collections::VecDeque;

/// RFC 7541, appendix A; the first entry has index 1.
pub const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// A name and a value in one allocation.
struct HeaderField {
    text: Box<[u8]>,
    name_length: usize,
}

impl HeaderField {
    fn size(&self) -> usize {
        self.text.len() + ENTRY_BYTES
    }
}

/// The dynamic table. Invariant: `size <= size_max <= TABLE_BYTES_DEFAULT`, the size we offered.
pub struct Table {
    /// Newest first.
    entries: VecDeque<HeaderField>,
    size: usize,
    size_max: usize,
    generation: u64,
}

impl Table {
    pub fn new() -> Self {
        Self { entries: VecDeque::new(), size: 0, size_max: TABLE_BYTES_DEFAULT, generation: 0 }
    }

    /// Changes whenever an index may have changed its meaning.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The field at an index of either table.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let at = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(at) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(at - STATIC.len())?;
        entry.text.split_at_checked(entry.name_length)
    }

    /// Adds a field and evicts the oldest ones; a field larger than the table only empties it.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.generation += 1;
        let size = name.len() + value.len() + ENTRY_BYTES;
        self.evict(self.size_max.saturating_sub(size));
        if size <= self.size_max {
            self.entries.push_front(HeaderField { text: [name, value].concat().into(), name_length: name.len() });
            self.size += size;
        }
    }

    /// Sets the size that the client chose; returns false if it exceeds the size we offered.
    pub fn resize(&mut self, size_max: usize) -> bool {
        if size_max > TABLE_BYTES_DEFAULT {
            return false;
        }
        if size_max < self.size {
            self.generation += 1;
        }
        self.size_max = size_max;
        self.evict(size_max);
        true
    }

    fn evict(&mut self, size_max: usize) {
        while self.size > size_max {
            let Some(entry) = self.entries.pop_back() else { break };
            self.size -= entry.size();
        }
    }

    /// Bytes as the protocol counts them.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }
}
