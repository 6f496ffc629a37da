//! A request head, parsed in place: one counted buffer with spans, no allocation for up to sixteen header fields.
//! `httparse` splits it into request line and fields; this module decides their meaning and the framing.
//!
//! Not an HTTP library, because libraries hide three rules of the protocol: header names keep the client's capitals
//! (forwarded headers, P 1.15), any `Expect` is answered (P 1.1), and chunks are counted (P 1.1).
//!
//! Deliberately strict where two servers could disagree about the end of a request: rejects bare line feeds, folded
//! fields, blanks before the colon, differing lengths, codings other than `chunked`, and missing or repeated hosts. A
//! length beside `Transfer-Encoding: chunked` is ignored, as RFC 9112 requires, and the connection is closed after the
//! response: a proxy that used the length would expect the next request elsewhere.

use super::method::Method;
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX};
use bytes::Bytes;
use memchr::memmem::Finder;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::sync::LazyLock;

/// Name of the field by which a client asks for the record of its request, and of the one that has it.
pub const WHY: &str = "nereid-why";

/// Whether a value of that field asks for the record.
pub fn asks_why(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0" | b"false")
}

#[derive(Debug, Clone, Copy, Default)]
struct HeadSpan {
    start: u32,
    end: u32,
}

/// Header fields in the order of the request, names as the client wrote them.
#[derive(Debug, Default)]
pub struct Headers {
    bytes: Bytes,
    fields: SmallVec<[(HeadSpan, HeadSpan); 16]>,
}

impl Headers {
    fn at(&self, span: HeadSpan) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// The first field of that name, whatever its case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Fields of that name, whatever its case, in the order of the request.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // The length alone tells most fields apart.
        let is_it = move |n: &HeadSpan| {
            (n.end - n.start) as usize == name.len() && self.at(*n).eq_ignore_ascii_case(name.as_bytes())
        };
        self.fields.iter().filter(move |(n, _)| is_it(n)).map(|(_, value)| self.at(*value))
    }

    /// All fields, as counted slices of the head.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, Bytes)> + '_ {
        let cut = |s: HeadSpan| self.bytes.slice_ref(self.at(s));
        self.fields.iter().map(move |(n, v)| (cut(*n), cut(*v)))
    }

    /// All fields, as slices.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (self.at(*name), self.at(*value)))
    }

    /// Fields of an HTTP/2 request, written into one buffer.
    pub fn from_pairs<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let (mut bytes, mut fields) = (Vec::new(), SmallVec::new());
        let put = |b: &mut Vec<u8>, part: &[u8]| {
            let start = b.len() as u32;
            b.extend_from_slice(part);
            HeadSpan { start, end: b.len() as u32 }
        };
        for (name, value) in pairs {
            let name = put(&mut bytes, name);
            fields.push((name, put(&mut bytes, value)));
        }
        Self { bytes: bytes.into(), fields }
    }
}

/// Framing of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A number of bytes.
    Length(u64),
    /// Chunks, the last of size zero.
    Chunked,
}

impl Default for Framing {
    fn default() -> Self {
        Self::Length(0)
    }
}

/// A request without its body.
#[derive(Debug, Default)]
pub struct RequestHead {
    pub method: Method,
    /// HEAD: the reply carries no body.
    pub is_head: bool,
    path: HeadSpan,
    /// End of the target in the buffer for HTTP/2; 0 for a request line.
    target_end: u32,
    /// HTTP/1.1 rather than 1.0.
    pub http11: bool,
    /// Whether the client lets the connection stay open after the response.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue`.
    pub expect: bool,
    /// Whether the client asks for the record of the request.
    pub asks_why: bool,
    pub framing: Framing,
    pub headers: Headers,
}

/// Reason why a head is rejected; the connection is closed after the response.
#[derive(Debug, PartialEq, Eq)]
pub struct BadRequest(pub String);

impl RequestHead {
    /// Replaces this head by a complete one, of the length of [`head_length`]. Empty after an error.
    ///
    /// # Errors
    /// The mistake in the head.
    pub fn read(&mut self, bytes: Bytes) -> Result<(), BadRequest> {
        self.clear();
        let read = self.parse(&bytes);
        match read {
            Ok(()) => self.headers.bytes = bytes,
            Err(_) => self.clear(),
        }
        read
    }

    /// Drops the bytes of the head, so that their buffer can be reused.
    pub fn clear(&mut self) {
        self.headers.bytes = Bytes::new();
        self.headers.fields.clear();
    }

    /// `Inference-Header-Content-Length` as a number.
    pub fn json_length(&self) -> Option<usize> {
        std::str::from_utf8(self.headers.get("inference-header-content-length")?).ok()?.parse().ok()
    }

    /// The path as sent: not decoded, without query, without the scheme and host of an absolute target.
    pub fn path(&self) -> &[u8] {
        self.headers.at(self.path)
    }

    /// Whether `Accept` names this media type. `*/*`, which most clients send, names none.
    pub fn accepts(&self, media: &[u8]) -> bool {
        let accept = self.headers.get("accept").unwrap_or_default();
        let range =
            |entry: &[u8]| entry.split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        accept.split(|b| *b == b',').any(|entry| range(entry) == media)
    }

    /// The query behind `?`, as sent; empty if there is none. Searched on each call: few routes read it.
    pub fn query(&self) -> &[u8] {
        let rest = self.headers.bytes.get(self.path.end as usize..).unwrap_or_default();
        let Some(query) = rest.strip_prefix(b"?") else { return &[] };
        // In a request line a blank ends the query. An HTTP/2 target is followed by the next field in the buffer.
        let end = match self.target_end {
            0 => query.iter().position(|&b| b == b' ').unwrap_or(query.len()),
            end => (end as usize).saturating_sub(self.path.end as usize + 1),
        };
        let query = query.get(..end).unwrap_or_default();
        query.split(|&b| b == b'#').next().unwrap_or_default()
    }

    /// The path, as a counted slice of the head.
    pub fn path_bytes(&self) -> Bytes {
        self.headers.bytes.slice_ref(self.path())
    }

    /// Head of an HTTP/2 request. `target` may have a query.
    pub fn from_parts<'a>(
        method: Method,
        is_head: bool,
        target: &'a [u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Self {
        let headers = Headers::from_pairs(std::iter::once((&b":path"[..], target)).chain(fields));
        let whole = headers.fields.first().map_or(HeadSpan { start: 0, end: 0 }, |f| f.1);
        // As in a request line, a `#` and the text after it are part of the path.
        let path = memchr::memchr(b'?', target).unwrap_or(target.len());
        let path = HeadSpan { start: whole.start, end: whole.start + path as u32 };
        Self {
            method,
            is_head,
            path,
            target_end: whole.end,
            http11: true,
            keep_alive: true,
            expect: false,
            asks_why: headers.get(WHY).is_some_and(asks_why),
            framing: Framing::Length(0),
            headers,
        }
    }
}

/// Searches for the end of a head. Built once: building it costs as much as the search.
static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));

/// Length of the head at the start of `buffer`, blank line included; `None` while it is incomplete. An earlier call has
/// searched the first `seen` bytes.
pub fn head_length(buffer: &[u8], seen: usize) -> Result<Option<usize>, BadRequest> {
    let from = seen.saturating_sub(3).min(buffer.len());
    let found = END.find(buffer.get(from..).unwrap_or_default());
    match found.map(|at| from + at + 4) {
        Some(length) if length <= HEAD_BYTES_MAX => Ok(Some(length)),
        None if buffer.len() < HEAD_BYTES_MAX => {
            // Without this, a client that ends lines with a bare line feed would wait until the timeout.
            if memchr::memmem::find(buffer.get(from..).unwrap_or_default(), b"\n\n").is_some() {
                Err(bad("bare line feed in the request head"))
            } else {
                Ok(None)
            }
        }
        _ => Err(bad("request head too large")),
    }
}

fn bad(why: &str) -> BadRequest {
    BadRequest(why.to_owned())
}

#[cfg(test)]
fn parse_head(bytes: Bytes) -> Result<RequestHead, BadRequest> {
    let mut head = RequestHead::default();
    head.read(bytes).map(|()| head)
}

impl RequestHead {
    fn parse(&mut self, text: &[u8]) -> Result<(), BadRequest> {
        // httparse accepts lines that end with a bare line feed, and empty lines at the start.
        if has_bare_line_feed(text) {
            return Err(bad("bare line feed in the request head"));
        }
        if text.starts_with(b"\r") {
            return Err(bad("malformed request line"));
        }
        let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(text, &mut room) {
            Ok(httparse::Status::Complete(length)) if length == text.len() => {}
            Ok(_) => return Err(bad("malformed header")),
            Err(error) => return Err(bad(fault(error, text))),
        }
        let (Some(name), Some(target)) = (request.method, request.path) else {
            return Err(bad("malformed request line"));
        };
        let (name, target) = (name.as_bytes(), target.as_bytes());
        // Position of a part of `text`; any for an empty part.
        let span = |part: &[u8]| {
            let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            HeadSpan { start: start as u32, end: (start + part.len()) as u32 }
        };
        let http11 = request.version == Some(1);
        let method = Method::parse(name);
        let is_head = name == b"HEAD";
        let (skip, length) = path_of(target)?;
        let path = span(target.get(skip..skip + length).unwrap_or_default());

        (self.method, self.is_head, self.path, self.http11) = (method, is_head, path, http11);
        (self.keep_alive, self.expect, self.asks_why) = (http11, false, false);
        let head = self;
        let mut length: Option<u64> = None;
        let (mut chunked, mut closes, mut has_host) = (false, false, false);
        for field in request.headers.iter() {
            let name = field.name.as_bytes();
            // httparse keeps the blanks of a value that has nothing else.
            let value = field.value.trim_ascii();
            head.headers.fields.push((span(name), span(value)));
            // Compares the length first: most fields are none of these.
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => {
                    if std::mem::replace(&mut has_host, true) {
                        return Err(bad("more than one Host header field"));
                    }
                    if !value.is_empty() && !is_host(value) {
                        return Err(BadRequest(format!(
                            "invalid Host header field: '{}'",
                            String::from_utf8_lossy(value)
                        )));
                    }
                }
                6 if name.eq_ignore_ascii_case(b"expect") => head.expect = http11,
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                        if option.eq_ignore_ascii_case(b"close") {
                            closes = true;
                        } else if option.eq_ignore_ascii_case(b"keep-alive") && !http11 {
                            head.keep_alive = true;
                        }
                    }
                }
                10 if name.eq_ignore_ascii_case(WHY.as_bytes()) => head.asks_why = asks_why(value),
                14 if name.eq_ignore_ascii_case(b"content-length") => {
                    let n = parse_length(value)?;
                    if length.is_some_and(|l| l != n) {
                        return Err(bad("differing Content-Length header fields"));
                    }
                    length = Some(n);
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    if chunked || !http11 || !value.eq_ignore_ascii_case(b"chunked") {
                        return Err(bad("unsupported Transfer-Encoding"));
                    }
                    chunked = true;
                }
                _ => {}
            }
        }
        if http11 && !has_host {
            return Err(bad("missing Host header field"));
        }
        if closes || (chunked && length.is_some()) {
            head.keep_alive = false;
        }
        head.framing = if chunked { Framing::Chunked } else { Framing::Length(length.unwrap_or(0)) };
        Ok(())
    }
}

/// Branchless, so that the compiler compares 16 bytes at a time. Heads have a line feed about every 20 bytes, and a
/// search that stops at each takes three times as long.
fn has_bare_line_feed(text: &[u8]) -> bool {
    let behind = text.get(1..).unwrap_or_default();
    let is_bare = |(&before, &byte): (&u8, &u8)| u8::from(byte == b'\n') & u8::from(before != b'\r');
    text.first() == Some(&b'\n') || text.iter().zip(behind).fold(0, |found, pair| found | is_bare(pair)) != 0
}

/// Error text for a head that httparse rejected.
#[cold]
fn fault(error: httparse::Error, text: &[u8]) -> &'static str {
    use httparse::Error::{HeaderName, HeaderValue, TooManyHeaders};
    match error {
        HeaderName => return "malformed header name",
        HeaderValue => return "malformed header value",
        TooManyHeaders => return "too many header fields",
        _ => {}
    }
    // The request line is wrong; httparse does not report which of its three parts.
    let line = text.split(|&b| b == b'\r').next().unwrap_or_default();
    let (Some(first), Some(last)) = (memchr::memchr(b' ', line), memchr::memrchr(b' ', line)) else {
        return "malformed request line";
    };
    if first == last {
        "malformed request line"
    } else if !matches!(line.get(last + 1..), Some(b"HTTP/1.1" | b"HTTP/1.0")) {
        "unsupported HTTP version"
    } else if line.get(..first).is_none_or(|name| name.is_empty() || !name.iter().all(|&b| is_token(b))) {
        "malformed method"
    } else {
        "malformed request target"
    }
}

/// Parses a length: digits only. A number beyond 64 bits counts as the largest.
fn parse_length(value: &[u8]) -> Result<u64, BadRequest> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(BadRequest(format!("Unable to parse Content-Length, got: {}", String::from_utf8_lossy(value))));
    }
    Ok(std::str::from_utf8(value).unwrap_or_default().parse().unwrap_or(u64::MAX))
}

/// The target without the scheme and host of an absolute one.
pub fn origin_form(target: &[u8]) -> Result<&[u8], BadRequest> {
    Ok(target.get(path_of(target)?.0..).unwrap_or_default())
}

/// Position and length of the path in a target: after the authority of an absolute one, before the query.
fn path_of(target: &[u8]) -> Result<(usize, usize), BadRequest> {
    let skip = match target.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"http://") => {
            let rest = target.get(7..).unwrap_or_default();
            let authority = rest.split(|&b| matches!(b, b'/' | b'?' | b'#')).next().unwrap_or_default();
            if !is_host(authority) {
                return Err(bad("malformed request target"));
            }
            7 + authority.len()
        }
        _ => 0,
    };
    let path = target.get(skip..).unwrap_or_default();
    Ok((skip, memchr::memchr(b'?', path).unwrap_or(path.len())))
}

/// Whether this is `host` or `host:port` of RFC 3986, the host not empty.
fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = memchr::memchr(b']', rest) else { return false };
            let (address, port) = rest.split_at(end);
            if !address.iter().all(|&b| b.is_ascii_alphanumeric() || b".:%-_~".contains(&b)) {
                return false;
            }
            (address, port.get(1..).unwrap_or_default())
        }
        None => {
            let (name, port) = value.split_at(memchr::memchr(b':', value).unwrap_or(value.len()));
            if !name.iter().all(|&b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&b)) {
                return false;
            }
            (name, port)
        }
    };
    let is_port =
        |port: &[u8]| matches!(port.split_first(), Some((b':', digits)) if digits.iter().all(u8::is_ascii_digit));
    !host.is_empty() && (port.is_empty() || is_port(port))
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<RequestHead, BadRequest> {
        let length = head_length(text.as_bytes(), 0)?.ok_or_else(|| bad("incomplete"))?;
        parse_head(Bytes::from_static(text.as_bytes()).slice(..length))
    }

    #[test]
    fn the_query_follows_the_path_over_http1_and_http2() {
        for (target, path, query) in [
            ("/v2", "/v2", ""),
            ("/v2?", "/v2", ""),
            ("/v2?a=b", "/v2", "a=b"),
            ("/v2?a=b?c#d", "/v2", "a=b?c"),
            ("/v2#a?b", "/v2#a", "b"),
            ("http://host:1/v2?x", "/v2", "x"),
            ("http://host:1", "", ""),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n");
            let head = parse_head(Bytes::from(text)).unwrap();
            assert_eq!((head.path(), head.query()), (path.as_bytes(), query.as_bytes()), "{target}");
            let fields = [(&b"name"[..], &b"value"[..])].into_iter();
            let origin = origin_form(target.as_bytes()).unwrap();
            let head = RequestHead::from_parts(Method::Get, false, origin, fields);
            assert_eq!((head.path(), head.query()), (path.as_bytes(), query.as_bytes()), "{target}");
        }
    }

    #[test]
    fn a_head_is_parsed_and_names_keep_their_capitals() {
        let h = parse(
            "POST http://x/v2/models/m/infer?a=b HTTP/1.1\r\nHost: x\r\nX-Foo:  bar \r\ncontent-LENGTH: 5\r\n\
             Expect: yes\r\n\r\n",
        )
        .unwrap();
        assert_eq!((h.path(), h.method, h.framing), (&b"/v2/models/m/infer"[..], Method::Post, Framing::Length(5)));
        assert!(h.http11 && h.keep_alive && h.expect);
        assert_eq!(h.headers.get("x-foo"), Some(&b"bar"[..]));
        let names: Vec<_> = h.headers.iter().map(|(n, _)| n).collect();
        assert_eq!(names[1], "X-Foo", "names keep their capitals");
    }

    #[test]
    fn connection_header_and_version_decide_about_keep_alive() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: x\r\nConnection: x, close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(parse(text).unwrap().keep_alive, expected, "{text:?}");
        }
    }

    #[test]
    fn heads_that_two_servers_could_read_differently_are_rejected() {
        for text in [
            "GET / HTTP/1.1\nHost: x\n\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA: b\0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /\t HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: x\r\n\r\n",
            "GET / http/1.1\r\nHost: x\r\n\r\n",
            "GET /\r\nHost: x\r\n\r\n",
            "GE(T / HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\u{16}\u{3}\u{1}\r\n\r\n",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            parse("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n").unwrap_err().0,
            "Unable to parse Content-Length, got: -5"
        );
    }

    #[test]
    fn the_error_names_the_wrong_part_of_the_head() {
        let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX));
        for (text, why) in [
            ("GET / HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n", "bare line feed in the request head"),
            ("GET / HTTP/1.1\nHost: x\r\n\r\n", "bare line feed in the request head"),
            ("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "bare line feed in the request head"),
            ("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request line"),
            ("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request line"),
            ("GET\r\n\r\n", "malformed request line"),
            ("GET /\r\nHost: x\r\n\r\n", "malformed request line"),
            ("GET / HTTP/1.2\r\nHost: x\r\n\r\n", "unsupported HTTP version"),
            ("GET / HTTP/1.1 \r\nHost: x\r\n\r\n", "unsupported HTTP version"),
            ("GE(T / HTTP/1.1\r\nHost: x\r\n\r\n", "malformed method"),
            (" / HTTP/1.1\r\nHost: x\r\n\r\n", "malformed method"),
            ("GET  HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request target"),
            ("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request target"),
            ("GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request target"),
            ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c: d\r\n\r\n", "malformed header name"),
            ("GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "malformed header name"),
            ("GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", "malformed header name"),
            ("GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", "malformed header name"),
            ("GET / HTTP/1.1\r\nHost: x\r\nA: b\0\r\n\r\n", "malformed header value"),
            ("GET / HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n", "malformed header value"),
            (&many[..], "too many header fields"),
        ] {
            assert_eq!(parse_head(Bytes::copy_from_slice(text.as_bytes())).unwrap_err().0, why, "{text:?}");
        }
        let latin1 = Bytes::from_static(b"GET /caf\xe9 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(parse_head(latin1).unwrap_err().0, "malformed request target", "not UTF-8");
        let all = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A:\r\n".repeat(HEADERS_MAX - 1));
        let head = parse_head(Bytes::from(all)).unwrap();
        assert_eq!(head.headers.iter().count(), HEADERS_MAX);
        assert!(head.headers.iter().skip(1).all(|(name, value)| name == "A" && value.is_empty()));
    }

    #[test]
    fn a_length_beside_chunked_is_ignored_and_ends_the_connection() {
        for text in [
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5\r\n\
             Content-Length: 5\r\n\r\n",
        ] {
            let head = parse(text).unwrap();
            assert_eq!((head.framing, head.keep_alive), (Framing::Chunked, false), "{text:?}");
        }
    }

    #[test]
    fn a_request_has_exactly_one_valid_host() {
        for (text, why) in [
            ("GET / HTTP/1.1\r\n\r\n", "missing Host header field"),
            ("GET http://x/ HTTP/1.1\r\n\r\n", "missing Host header field"),
            ("GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", "more than one Host header field"),
            ("GET / HTTP/1.0\r\nHost: x\r\nHost: \r\n\r\n", "more than one Host header field"),
            ("GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", "invalid Host header field: 'x/y'"),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "invalid Host header field: 'a b'"),
            ("GET / HTTP/1.1\r\nHost: x:80:80\r\n\r\n", "invalid Host header field: 'x:80:80'"),
            ("GET / HTTP/1.1\r\nHost: x:8o\r\n\r\n", "invalid Host header field: 'x:8o'"),
            ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", "invalid Host header field: ':80'"),
            ("GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", "invalid Host header field: 'u@x'"),
            ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "invalid Host header field: '[::1'"),
            ("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", "invalid Host header field: '[::1]x'"),
            ("GET http:///path HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request target"),
            ("GET http://?/path HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request target"),
            ("GET http://u:p@x/path HTTP/1.1\r\nHost: x\r\n\r\n", "malformed request target"),
        ] {
            assert_eq!(parse(text).unwrap_err().0, why, "{text:?}");
        }
        for (text, path) in [
            ("GET /p HTTP/1.0\r\n\r\n", "/p"),
            ("GET /p HTTP/1.1\r\nHost:\r\n\r\n", "/p"),
            ("GET /p HTTP/1.1\r\nHost: my_server.default.svc:8000\r\n\r\n", "/p"),
            ("GET /p HTTP/1.1\r\nHost: [fe80::1%25eth0]:8000\r\n\r\n", "/p"),
            ("GET /p HTTP/1.1\r\nHost: 127.0.0.1:\r\n\r\n", "/p"),
            ("GET http://other:8000/p?q HTTP/1.1\r\nHost: x\r\n\r\n", "/p"),
            ("GET HTTP://h HTTP/1.1\r\nHost: x\r\n\r\n", ""),
            ("GET http://h?/path HTTP/1.1\r\nHost: x\r\n\r\n", ""),
            ("GET http://h#/path HTTP/1.1\r\nHost: x\r\n\r\n", "#/path"),
            ("GET /p?http://u@h/ HTTP/1.1\r\nHost: x\r\n\r\n", "/p"),
        ] {
            assert_eq!(parse(text).unwrap().path(), path.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn a_head_may_arrive_in_any_pieces_up_to_a_limit() {
        let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest";
        for cut in 0..text.len() {
            let first = head_length(&text[..cut], 0).unwrap();
            assert_eq!(first.is_some(), cut >= 27, "{cut}");
            assert_eq!(head_length(text, cut.min(26)).unwrap(), Some(27));
        }
        assert!(head_length(&vec![b'a'; HEAD_BYTES_MAX], 0).is_err());
    }
}
