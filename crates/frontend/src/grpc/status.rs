//! How a call ends: a number and a message, carried in trailers.

use http::{HeaderMap, HeaderName, HeaderValue};
use tensor::Error;

/// Numbers used here by name; the others come from `tensor::Code`.
pub mod code {
    #![allow(missing_docs)]
    pub const OK: u8 = 0;
    pub const CANCELLED: u8 = 1;
    pub const DEADLINE_EXCEEDED: u8 = 4;
    pub const RESOURCE_EXHAUSTED: u8 = 8;
    pub const UNIMPLEMENTED: u8 = 12;
    pub const INTERNAL: u8 = 13;
    pub const UNAVAILABLE: u8 = 14;
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Number on the wire.
    pub code: u8,
    /// Text for people.
    pub message: String,
}

impl Status {
    /// Any status.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Success.
    pub fn ok() -> Self {
        Self::new(code::OK, "")
    }

    /// Adds the status to trailers, or to the headers of a response that has nothing else.
    pub fn write(&self, headers: &mut HeaderMap) {
        const STATUS: HeaderName = HeaderName::from_static("grpc-status");
        const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
        let number = match self.code {
            0 => HeaderValue::from_static("0"),
            n => HeaderValue::from(u16::from(n)),
        };
        headers.insert(STATUS, number);
        if !self.message.is_empty()
            && let Ok(value) = HeaderValue::from_str(&percent_encode(&self.message))
        {
            headers.insert(MESSAGE, value);
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code().grpc_status(), error.message())
    }
}

/// Printable ASCII as it is, everything else and `%` as `%XX`.
fn percent_encode(text: &str) -> String {
    let plain = |b: u8| (b' '..=b'~').contains(&b) && b != b'%';
    let mut out = String::with_capacity(text.len());
    for &b in text.as_bytes() {
        if plain(b) {
            out.push(char::from(b));
        } else {
            out.push('%');
            out.push(hex(b >> 4));
            out.push(hex(b & 15));
        }
    }
    out
}

fn hex(nibble: u8) -> char {
    char::from(b"0123456789ABCDEF".get(usize::from(nibble)).copied().unwrap_or(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        for (text, expected) in [
            ("plain 'text', 1 < 2", "plain 'text', 1 < 2"),
            ("100%", "100%25"),
            ("a\nb", "a%0Ab"),
            ("中", "%E4%B8%AD"),
            ("%%", "%25%25"),
        ] {
            assert_eq!(percent_encode(text), expected);
        }
    }

    #[test]
    fn a_status_without_message_writes_only_its_number() {
        let mut headers = HeaderMap::new();
        Status::ok().write(&mut headers);
        assert_eq!((headers.get("grpc-status").unwrap().as_bytes(), headers.len()), (&b"0"[..], 1));
        let mut headers = HeaderMap::new();
        Status::from(Error::unavailable("x")).write(&mut headers);
        assert_eq!(headers.get("grpc-status").unwrap().as_bytes(), b"14");
        assert_eq!(headers.get("grpc-message").unwrap().as_bytes(), b"x");
    }
}
