//! The head of a request, checked: what HTTP/2 calls malformed never gets to a caller.

use crate::ledger::{Held, Ledger};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::OnceCell;

/// What a field counts besides its name and value.
const FIELD_BYTES: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// Against the rules of HTTP/2.
    Malformed,
    /// Larger than allowed.
    TooLarge,
    /// Those of the connection take too much together.
    NoRoom,
}

/// Method, path and fields of a request. Shared by all requests whose head is known to be the same.
#[derive(Debug)]
pub struct RequestHead {
    text: Vec<u8>,
    method: Span,
    path: Span,
    fields: SmallVec<[(Span, Span); 12]>,
    content_length: Option<u64>,
    derived: OnceCell<Box<dyn Any>>,
    /// Its part of what the heads of its connection may take.
    held: Option<Held>,
}

impl RequestHead {
    /// Has `ledger` count what this takes for as long as it lives; false when that is too much.
    pub(crate) fn hold(&mut self, ledger: &Ledger) -> bool {
        // Text grows to twice its size at most: what is left over is not worth a copy, but counts.
        let fields = if self.fields.spilled() { self.fields.capacity() * size_of::<(Span, Span)>() } else { 0 };
        self.held = ledger.take(size_of::<Self>() + self.text.capacity() + fields);
        self.held.is_some()
    }

    fn at(&self, span: Span) -> &[u8] {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// The method as sent.
    pub fn method(&self) -> &[u8] {
        self.at(self.method)
    }

    /// The path as sent, with its query.
    pub fn path(&self) -> &[u8] {
        self.at(self.path)
    }

    /// Fields in the order they came, names in lower case, without those that begin with a colon.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // Names were checked to be tokens, which are ASCII.
        self.fields.iter().map(|(n, v)| (std::str::from_utf8(self.at(*n)).unwrap_or_default(), self.at(*v)))
    }

    /// The first field of that name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| self.at(*n) == name.as_bytes()).map(|(_, v)| self.at(*v))
    }

    /// The announced length of the body.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// What the caller made of this head, made once for all requests that share it: it must depend on nothing but the head and
    /// things that never change. `None` when something of another type was kept here before: a server has one type.
    pub fn derived<T: 'static>(&self, make: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.derived.get_or_init(|| Box::new(make(self))).downcast_ref()
    }
}

/// Collects the fields of one block.
pub struct Builder {
    text: Vec<u8>,
    method: Option<Span>,
    path: Option<Span>,
    scheme: bool,
    authority: bool,
    fields: SmallVec<[(Span, Span); 12]>,
    content_length: Option<u64>,
    size: usize,
    size_max: usize,
    bad: Option<BadHead>,
}

impl Builder {
    /// For a head of at most `size_max` bytes.
    pub fn new(size_max: usize) -> Self {
        Self {
            text: Vec::with_capacity(256),
            method: None,
            path: None,
            scheme: false,
            authority: false,
            fields: SmallVec::new(),
            content_length: None,
            size: 0,
            size_max,
            bad: None,
        }
    }

    fn put(&mut self, text: &[u8]) -> Span {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        Span { start, end: self.text.len() as u32 }
    }

    /// Takes a field. Whatever it is, the block must be read to its end: later ones depend on what it put into the table.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.bad.is_some() {
            return;
        }
        self.size += name.len() + value.len() + FIELD_BYTES;
        if self.size > self.size_max {
            self.bad = Some(BadHead::TooLarge);
            // A client that sends an index for a long field, over and over, is given no memory for it.
            (self.text, self.fields) = (Vec::new(), SmallVec::new());
        } else if !self.take(name, value) {
            self.bad = Some(BadHead::Malformed);
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !value.iter().all(|&b| b >= 0x20 && b != 0x7f || b == b'\t') {
            return false;
        }
        if name.first() == Some(&b':') {
            return self.take_pseudo(name, value);
        }
        if name.is_empty() || !name.iter().all(|&b| is_name(b)) {
            return false;
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => return false,
            b"te" if value != b"trailers" => return false,
            b"content-length" => match (number(value), self.content_length) {
                (Some(length), None) => self.content_length = Some(length),
                (Some(length), Some(before)) if length == before => {}
                _ => return false,
            },
            _ => {}
        }
        let name = self.put(name);
        let value = self.put(value);
        self.fields.push((name, value));
        true
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !self.fields.is_empty() {
            return false;
        }
        match name {
            b":method" if self.method.is_none() && !value.is_empty() => self.method = Some(self.put(value)),
            b":path" if self.path.is_none() && !value.is_empty() => self.path = Some(self.put(value)),
            b":scheme" if !self.scheme && !value.is_empty() => self.scheme = true,
            b":authority" if !self.authority => self.authority = true,
            _ => return false,
        }
        true
    }

    /// The head of a request.
    pub fn finish(self) -> Result<RequestHead, BadHead> {
        match (self.bad, self.method, self.path, self.scheme) {
            (Some(bad), ..) => Err(bad),
            // A path is one of this server, or `*` where it means the whole of it (RFC 9113, 8.3.1).
            (None, Some(method), Some(path), true) if !is_path(&self.text, method, path) => Err(BadHead::Malformed),
            (None, Some(method), Some(path), true) => Ok(RequestHead {
                text: self.text,
                method,
                path,
                fields: self.fields,
                content_length: self.content_length,
                derived: OnceCell::new(),
                held: None,
            }),
            _ => Err(BadHead::Malformed),
        }
    }

    /// Whether this may stand behind a body.
    pub fn are_trailers(&self) -> bool {
        self.bad.is_none() && self.method.is_none() && self.path.is_none() && !self.scheme && !self.authority
    }
}

/// A byte of a name: a token, without capitals.
fn is_name(b: u8) -> bool {
    matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

fn is_path(text: &[u8], method: Span, path: Span) -> bool {
    let at = |span: Span| text.get(span.start as usize..span.end as usize).unwrap_or_default();
    at(path).first() == Some(&b'/') || (at(path) == b"*" && at(method) == b"OPTIONS")
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/a?b")];

    fn head(fields: &[(&str, &str)], size_max: usize) -> Result<RequestHead, BadHead> {
        let mut builder = Builder::new(size_max);
        fields.iter().for_each(|(n, v)| builder.field(n.as_bytes(), v.as_bytes()));
        builder.finish()
    }

    #[test]
    fn rfc9113_8_1_1_malformed_heads_are_refused() {
        let with = |more: &[(&'static str, &'static str)]| head(&[&GOOD, more].concat(), 10_000).err();
        assert_eq!(with(&[(":authority", "x"), ("te", "trailers"), ("a", "b\tc"), ("a", "")]), None);
        for bad in [
            &[("A", "b")][..],
            &[("", "b")],
            &[("a b", "c")],
            &[("a", "b\r\nc: d")],
            &[("a", "\0")],
            &[("connection", "close")],
            &[("transfer-encoding", "chunked")],
            &[("te", "gzip")],
            &[(":status", "200")],
            &[(":method", "POST")],
            &[(":path", "/")],
            &[("a", "b"), (":authority", "x")],
            &[("content-length", "1"), ("content-length", "2")],
            &[("content-length", "-1")],
            &[("content-length", "")],
        ] {
            assert_eq!(with(bad), Some(BadHead::Malformed), "{bad:?}");
        }
        for left_out in 0..3 {
            let mut fields = GOOD.to_vec();
            fields.remove(left_out);
            assert_eq!(head(&fields, 10_000).err(), Some(BadHead::Malformed));
        }
    }

    #[test]
    fn rfc9113_8_3_1_a_path_begins_with_a_slash_and_a_star_is_for_options() {
        for (method, path, is_good) in [
            ("GET", "/", true),
            ("POST", "/inference.GRPCInferenceService/ModelInfer", true),
            ("GET", "/*", true),
            ("OPTIONS", "*", true),
            ("GET", "", false),
            ("GET", "v2", false),
            ("POST", "inference.GRPCInferenceService/ModelInfer", false),
            ("GET", "http://x/v2", false),
            ("GET", "*", false),
            ("OPTIONS", "**", false),
            ("GET", "?a", false),
        ] {
            let head = head(&[(":method", method), (":scheme", "http"), (":path", path)], 1000);
            assert_eq!(head.err(), (!is_good).then_some(BadHead::Malformed), "{method} {path}");
        }
    }

    #[test]
    fn fields_are_found_and_size_is_what_the_protocol_counts() {
        let all = [&GOOD[..], &[("content-length", "12"), ("k", "1"), ("k", "2")]].concat();
        let size: usize = all.iter().map(|(n, v)| n.len() + v.len() + 32).sum();
        assert_eq!(head(&all, size - 1).err(), Some(BadHead::TooLarge));
        let head = head(&all, size).unwrap();
        assert_eq!((head.method(), head.path(), head.content_length()), (&b"POST"[..], &b"/a?b"[..], Some(12)));
        assert_eq!((head.get("k"), head.get("none")), (Some(&b"1"[..]), None));
        assert_eq!(head.fields().map(|f| f.0).collect::<Vec<_>>(), ["content-length", "k", "k"]);
        let mut made = 0;
        for _ in 0..3 {
            assert_eq!(head.derived(|h| (made += 1, h.path().len()).1), Some(&4));
        }
        assert_eq!((made, head.derived(|_| "another type")), (1, None));
    }
}
