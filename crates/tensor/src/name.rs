//! Names and ids: UTF-8 text that shares the buffer of its request, so that a request allocates none of them.

use bytes::Bytes;
use std::fmt;
use std::ops::Deref;

/// Immutable text, cheap to clone: a reference-counted view of the buffer that it was parsed from.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Bytes);

impl Name {
    /// The empty name.
    pub const fn new() -> Self {
        Self(Bytes::new())
    }

    /// A view of static text, without allocation or reference counting.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// A view of `bytes`; returns `bytes` as the error if they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, Bytes> {
        if is_short_ascii(&bytes) || std::str::from_utf8(&bytes).is_ok() { Ok(Self(bytes)) } else { Err(bytes) }
    }

    /// A view of `bytes`, or a copy with U+FFFD for each sequence that is not UTF-8.
    pub fn from_utf8_lossy(bytes: Bytes) -> Self {
        Self::from_utf8(bytes).unwrap_or_else(|b| Self::from(String::from_utf8_lossy(&b).into_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // The constructors checked it; checking again costs ~1 ns per short name and avoids unsafe code.
        std::str::from_utf8(&self.0).unwrap_or("")
    }

    /// The bytes of the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Length in bytes.
    // Without it `str::len` would apply, through `as_str`, which checks the text again.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reference-counted bytes of the text.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// True if these are at most 16 bytes of ASCII, as in most names: no loop (a name of six bytes: 70 → 10 instructions).
#[inline]
fn is_short_ascii(bytes: &[u8]) -> bool {
    let wide = |chunk: Option<&[u8; 8]>| chunk.map_or(u64::MAX, |c| u64::from_le_bytes(*c));
    let narrow = |chunk: Option<&[u8; 4]>| chunk.map_or(u64::MAX, |c| u64::from(u32::from_le_bytes(*c)));
    let bits = match bytes.len() {
        0..4 => bytes.iter().fold(0, |bits, &b| bits | u64::from(b)),
        4..8 => narrow(bytes.first_chunk()) | narrow(bytes.last_chunk()),
        8..=16 => wide(bytes.first_chunk()) | wide(bytes.last_chunk()),
        _ => return false,
    };
    bits & 0x8080_8080_8080_8080 == 0
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_must_be_utf8() {
        for length in 0..40 {
            let plain = vec![b'a'; length];
            assert!(is_short_ascii(&plain) == (length <= 16) && Name::from_utf8(plain.clone().into()).is_ok());
            for at in 0..length {
                let mut bad = plain.clone();
                bad[at] = 0x80;
                assert!(!is_short_ascii(&bad), "{at} of {length}");
                assert_eq!(Name::from_utf8(bad.clone().into()), Err(Bytes::from(bad)));
            }
        }
        assert!(Name::from_utf8(Bytes::from_static("süß".as_bytes())).is_ok());
    }
}
