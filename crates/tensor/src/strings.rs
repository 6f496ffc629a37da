//! The binary form of a BYTES tensor: each element is a little-endian `u32` length and that many bytes (P 1.12.4).

use crate::Data;

/// Iterates over the elements of a BYTES tensor. Ends after the first `Err`: no element can be found behind it.
pub struct Strings<'a> {
    rest: &'a [u8],
}

/// Malformed contents of a BYTES tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Fewer than the four bytes of a length are left.
    Length {
        /// Bytes left.
        available: usize,
    },
    /// Fewer bytes than the element's length are left.
    Element {
        /// Length of the element.
        expected: usize,
        /// Bytes left.
        available: usize,
    },
}

impl<'a> Strings<'a> {
    /// Starts at the first element of `raw`.
    pub fn new(raw: &'a [u8]) -> Self {
        Self { rest: raw }
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = Result<&'a [u8], Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((head, tail)) = self.rest.split_first_chunk::<4>() else {
            let available = self.rest.len();
            self.rest = &[];
            return Some(Err(Broken::Length { available }));
        };
        let expected = u32::from_le_bytes(*head) as usize;
        if expected > tail.len() {
            self.rest = &[];
            return Some(Err(Broken::Element { expected, available: tail.len() }));
        }
        let (element, rest) = tail.split_at(expected);
        self.rest = rest;
        Some(Ok(element))
    }
}

/// Iterates over the lengths of the elements of a BYTES tensor in any location, and reads each length once. The result
/// may be outdated at once in a shared region: copy the elements before using them, and check the copy.
///
/// Ends after the first `Err`, as [`Strings`] does.
pub struct Lengths<'a> {
    data: &'a Data,
    at: usize,
}

impl<'a> Lengths<'a> {
    /// Starts at the first element of `data`.
    pub fn new(data: &'a Data) -> Self {
        Self { data, at: 0 }
    }
}

impl Iterator for Lengths<'_> {
    type Item = Result<usize, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        let available = self.data.len() - self.at;
        if available == 0 {
            return None;
        }
        let Ok(length) = self.data.read_at(self.at) else {
            self.at = self.data.len();
            return Some(Err(Broken::Length { available }));
        };
        let (expected, available) = (u32::from_le_bytes(length) as usize, available - 4);
        if expected > available {
            self.at = self.data.len();
            return Some(Err(Broken::Element { expected, available }));
        }
        self.at += 4 + expected;
        Some(Ok(expected))
    }
}

/// Appends one element in binary form. Cuts an element of 4 GiB or more: callers limit bodies to 2 GiB.
pub fn push(out: &mut Vec<u8>, element: &[u8]) {
    let length = u32::try_from(element.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&element[..length as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_reads_back_pushed_elements() {
        let mut raw = Vec::new();
        for e in [&b"a"[..], b"", b"bcd"] {
            push(&mut raw, e);
        }
        let back: Vec<_> = Strings::new(&raw).collect();
        assert_eq!(back, [Ok(&b"a"[..]), Ok(&b""[..]), Ok(&b"bcd"[..])]);
    }

    #[test]
    fn lengths_agree_with_strings_in_every_location() {
        let check = |raw: &[u8]| {
            let expected: Vec<_> = Strings::new(raw).map(|s| s.map(<[u8]>::len)).collect();
            let host = Data::Bytes(bytes::Bytes::copy_from_slice(raw));
            let region = Data::Region(std::sync::Arc::new(crate::region::tests::Heap::new(raw)));
            for data in [host, region] {
                assert_eq!(Lengths::new(&data).collect::<Vec<_>>(), expected, "{raw:?} in {data:?}");
            }
        };
        check(&[]);
        check(&[0, 0, 0, 0]);
        check(&[1, 0, 0, 0, b'x', 0, 0, 0, 0]);
        check(&[1, 0, 0, 0, b'x', 2, 0]);
        check(&[0, 0, 0, 0, 2, 0, 0, 0, b'y']);
        check(&[255; 5]);
    }

    #[test]
    fn iteration_ends_after_a_broken_element() {
        let mut s = Strings::new(&[1, 0, 0]);
        assert_eq!(s.next(), Some(Err(Broken::Length { available: 3 })));
        assert_eq!(s.next(), None);
        let mut s = Strings::new(&[9, 0, 0, 0, b'x']);
        assert_eq!(s.next(), Some(Err(Broken::Element { expected: 9, available: 1 })));
        assert_eq!(s.next(), None);
    }
}
