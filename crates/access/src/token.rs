//! The credential in a request, and its hash.

use crate::limits::{KEY_BYTES_MAX, SHOWN_KEPT_BYTES_MAX};
use ring::digest::{SHA256, digest};
use std::cell::RefCell;
use std::fmt;
use subtle::ConstantTimeEq;

/// Names of the headers, and of the gRPC metadata, that may contain a key or a token.
pub const HEADERS: [&str; 2] = ["authorization", "x-api-key"];

/// The key or the token in the headers of a request: the one after `Bearer`, otherwise that of `x-api-key`. Other
/// schemes of `authorization` are for a proxy, and are ignored.
pub fn presented<'a>(header: impl Fn(&str) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
    let [authorization, api_key] = HEADERS;
    header(authorization).and_then(bearer).or_else(|| header(api_key)).map(<[u8]>::trim_ascii)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii_start();
    let (scheme, token) = value.split_at_checked(6)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && token.first().is_none_or(|b| *b == b' ' || *b == b'\t');
    is_bearer.then_some(token)
}

/// SHA-256 of a key.
///
/// A fast hash without salt would be wrong for passwords but is right here: keys are 256 random bits of `nereid key`,
/// so neither a table nor a fast machine can guess them, and no two are equal.
#[derive(Clone, Copy)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of a client's credential; `None` if it is empty or too long for a key.
    pub fn of(token: &[u8]) -> Option<Self> {
        if token.is_empty() || token.len() > KEY_BYTES_MAX {
            return None;
        }
        Some(Self::of_any(token))
    }

    /// The hash of bytes of any length.
    pub(crate) fn of_any(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.iter_mut().zip(digest(&SHA256, bytes).as_ref()).for_each(|(to, from)| *to = *from);
        Self(hash)
    }

    /// Parses 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (to, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let mut value = 0;
            for &digit in pair {
                value = value << 4 | char::from(digit).to_digit(16)?;
            }
            *to = u8::try_from(value).ok()?;
        }
        Some(Self(hash))
    }

    /// Prints 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|n| char::from_digit(u32::from(n), 16))
            .collect()
    }

    /// Index in a table. It is not secret: choosing an index means finding a key with a certain hash, that is breaking
    /// SHA-256; and the time of a look-up only depends on the hash of the wrong key, not on that of a right one.
    pub(crate) fn place(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Compares in constant time: `subtle` combines the differences of all 32 bytes without a branch, and hides from
    /// the compiler that it could stop early.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// The last valid key or token of a connection, with its hash: clients send the same with each request, and comparing
/// costs less than hashing again.
///
/// No decision is kept: the caller and its permissions are looked up for each request, so that a changed keys file, an
/// expired key and a quota apply from the next request on. A rejected credential is not kept: strangers cost no memory.
#[derive(Default)]
pub struct LastShown(RefCell<Option<(Box<[u8]>, Hash)>>);

impl LastShown {
    /// The hash of `shown`, if it equals the kept one.
    pub(crate) fn hash_of(&self, shown: &[u8]) -> Option<Hash> {
        let last = self.0.borrow();
        last.as_ref().filter(|(kept, _)| are_equal(kept, shown)).map(|(_, hash)| *hash)
    }

    /// Keeps a valid credential, unless it is very long.
    pub(crate) fn keep(&self, shown: &[u8], hash: Hash) {
        let kept = (shown.len() <= SHOWN_KEPT_BYTES_MAX).then(|| (shown.into(), hash));
        self.0.replace(kept);
    }
}

impl fmt::Debug for LastShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastShown(..)")
    }
}

/// Compares in a time that only depends on the lengths. A proxy may send requests of several clients over one
/// connection, where a client could otherwise learn the key of another byte by byte. Compares words: `subtle` compares
/// slices byte by byte, which is slower than hashing.
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (words, others) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let pairs = words.0.iter().zip(others.0);
    let words_differ = pairs.fold(0, |all, (a, b)| all | (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)));
    let rest_differs = words.1.iter().zip(others.1).fold(0, |all, (a, b)| all | (a ^ b));
    (words_differ | u64::from(rest_differs)).ct_eq(&0).into()
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_sha256sum() {
        let hash = Hash::of(b"abc").unwrap();
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_hex(), hex);
        assert!(
            Hash::from_hex(hex).unwrap().equals(&hash) && Hash::from_hex(&hex.to_uppercase()).unwrap().equals(&hash)
        );
        assert!(!Hash::of(b"abd").unwrap().equals(&hash));
        for wrong in ["", "zz", &hex[1..], &format!("{hex}0"), &hex.replace('b', "g"), &hex.replace("ba", "é")] {
            assert!(Hash::from_hex(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{hash:?}"), "Hash(..)");
    }

    #[test]
    fn the_last_credential_is_compared_in_all_its_bytes() {
        let last = LastShown::default();
        assert!(last.hash_of(b"").is_none() && last.hash_of(b"abc").is_none());
        for length in [1, 7, 8, 9, 46, SHOWN_KEPT_BYTES_MAX] {
            let shown = vec![b'a'; length];
            let hash = Hash::of_any(&shown);
            last.keep(&shown, hash);
            assert!(last.hash_of(&shown).is_some_and(|found| found.equals(&hash)), "{length}");
            for at in 0..length {
                let mut other = shown.clone();
                other[at] ^= 0x80;
                assert!(last.hash_of(&other).is_none(), "byte {at} of {length}");
            }
            assert!(last.hash_of(&shown[1..]).is_none() && last.hash_of(&[&shown[..], b"a"].concat()).is_none());
        }
        // A token that is too long to keep still replaces the last one.
        let long = [b'a'; SHOWN_KEPT_BYTES_MAX + 1];
        last.keep(&long, Hash::of_any(&long));
        assert!(last.hash_of(&long).is_none() && last.hash_of(b"a").is_none());
        assert_eq!(format!("{last:?}"), "LastShown(..)");
    }

    #[test]
    fn texts_that_cannot_be_keys_are_not_hashed() {
        assert!(Hash::of(b"").is_none() && Hash::of(&[b'a'; KEY_BYTES_MAX + 1]).is_none());
        assert!(Hash::of(&[0; KEY_BYTES_MAX]).is_some());
    }

    #[test]
    fn a_bearer_token_wins_over_an_api_key_and_other_schemes_are_ignored() {
        let of = |authorization: Option<&'static str>, api_key: Option<&'static str>| {
            presented(|name| match name {
                "authorization" => authorization.map(str::as_bytes),
                "x-api-key" => api_key.map(str::as_bytes),
                _ => None,
            })
            .map(|token| std::str::from_utf8(token).unwrap())
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some("Bearer abc"), None), Some("abc"));
        assert_eq!(of(Some(" bEARER\t abc "), Some("k")), Some("abc"));
        assert_eq!(of(Some("Bearer"), None), Some(""));
        assert_eq!(of(Some("Bearerabc"), Some("k")), Some("k"));
        assert_eq!(of(Some("Basic eDp5"), Some(" k ")), Some("k"));
        assert_eq!(of(Some("Basic eDp5"), None), None);
        assert_eq!(of(Some(""), Some("")), Some(""));
    }
}
