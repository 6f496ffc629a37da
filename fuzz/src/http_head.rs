//! HTTP/1 as it comes off the socket: the head, then a body framed by it.

use crate::encoding::Encoding;
use crate::http::chunked::{ChunkError, Chunks, Progress};
use crate::http::method::{Method, OtherMethod};
use crate::http::request::{Framing, RequestHead, head_length};
use crate::limits::{CHUNK_LINE_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX};
use crate::paths::Pattern;
use bytes::{Bytes, BytesMut};
use std::sync::LazyLock;

const BODY_BYTES_MAX: u64 = 1 << 16;

/// Paths with each name that a path of the table of routes may have.
static PATTERNS: LazyLock<[Pattern; 3]> = LazyLock::new(|| {
    [
        "/v2/models/{model}[/versions/{version}]/infer",
        "/v2/repository/{repository}/models/{model}/load",
        "/v2/systemsharedmemory/region/{region}/register",
    ]
    .map(Pattern::new)
});

/// The first byte is the size of the pieces the rest arrives in.
pub fn http_head(data: &[u8]) -> bool {
    let Some((&step, text)) = data.split_first() else { return false };
    let step = usize::from(step) + 1;
    let whole = read(text, text.len().max(1));
    let pieces = read(text, step);
    match (whole, pieces) {
        (None, None) => false,
        (Some((head, used)), Some((other, used_too))) => {
            assert_eq!((print(&head), used), (print(&other), used_too), "in pieces of {step}");
            check(&head);
            if head.framing == Framing::Chunked {
                chunks(&text[used..], step);
            }
            true
        }
        (whole, _) => panic!("accepted in one piece: {}, in pieces of {step}: the opposite", whole.is_some()),
    }
}

/// Reads a head as the connection does, without the socket.
fn read(text: &[u8], step: usize) -> Option<(RequestHead, usize)> {
    let (mut seen, mut end) = (0, 0);
    while end < text.len() {
        end = text.len().min(end + step);
        if let Some(length) = head_length(&text[..end], seen).ok()? {
            assert!(length <= end && length <= HEAD_BYTES_MAX);
            assert!(text[..length].ends_with(b"\r\n\r\n"));
            let mut head = RequestHead::default();
            head.read(Bytes::copy_from_slice(&text[..length])).ok()?;
            return Some((head, length));
        }
        seen = end;
    }
    None
}

/// Everything a head says.
fn print(head: &RequestHead) -> String {
    let fields: Vec<_> = head.headers.iter().collect();
    let RequestHead { method, is_head, http11, keep_alive, expect, framing, .. } = head;
    let path = head.path().escape_ascii();
    format!("{method:?} {path} {is_head} {http11} {keep_alive} {expect} {framing:?} {fields:?}")
}

/// Checks the invariants of an accepted head.
fn check(head: &RequestHead) {
    let path = head.path();
    let hosts = head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"host")).count();
    assert!(hosts == 1 || (hosts == 0 && !head.http11), "{hosts} hosts");
    assert!(!path.iter().any(|&b| b <= b' ' || b == b'?' || b == 0x7f), "path {:?}", path.escape_ascii().to_string());
    assert_eq!(head.headers.iter().count(), head.headers.iter().take(HEADERS_MAX).count());
    let mut length = None;
    for (name, value) in head.headers.iter() {
        assert!(!name.is_empty() && name.iter().all(|b| b.is_ascii_graphic() && !b":()<>@,;\\\"/[]?={}".contains(b)));
        assert!(!value.iter().any(|&b| matches!(b, b'\r' | b'\n' | 0)));
        assert_eq!(value, value.trim_ascii());
        let text = std::str::from_utf8(&name).expect("tokens are ASCII");
        // The first of that name is what `get` finds, whatever the case.
        assert!(head.headers.get(&text.to_ascii_uppercase()).is_some());
        if text.eq_ignore_ascii_case("content-length") {
            length = Some(value.clone());
        }
        // Any header value may be negotiated; there are only three results.
        let _ = Encoding::negotiate(&value);
    }
    // A proxy in front of us that goes by Content-Length must find the same end of the body.
    match (&head.framing, &length) {
        // Beside chunked a length means nothing, but a proxy may have used it, so the connection is not kept.
        (Framing::Chunked, length) => assert!(head.http11 && (length.is_none() || !head.keep_alive)),
        (Framing::Length(n), Some(text)) => {
            assert_eq!(std::str::from_utf8(text).unwrap().parse().unwrap_or(u64::MAX), *n);
        }
        (Framing::Length(n), None) => assert_eq!(*n, 0),
    }
    if let Ok(path) = std::str::from_utf8(path)
        && let Some(names) = PATTERNS.iter().find_map(|pattern| pattern.names(path))
    {
        assert!(names.version.bytes().all(|b| b.is_ascii_digit()));
        for name in [names.model, names.region, names.repository] {
            assert!(!name.contains('/') && path.contains(name), "{name}");
        }
    }
    again(head);
}

/// Printed plainly and read again, a head says the same.
fn again(head: &RequestHead) {
    let method: &[u8] = match (head.method, head.is_head) {
        (Method::Get, _) => b"GET",
        (Method::Post, _) => b"POST",
        (Method::Other(_), true) => b"HEAD",
        (Method::Other(OtherMethod(3)), _) => b"PUT",
        // Its number stands for it, and several may have the same.
        (Method::Other(_), false) => return,
    };
    if head.path().is_empty() || head.path().get(..7).is_some_and(|p| p.eq_ignore_ascii_case(b"http://")) {
        return;
    }
    let version: &[u8] = if head.http11 { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" };
    let mut text = [method, b" ", head.path(), version].concat();
    for (name, value) in head.headers.iter() {
        text.extend([&name[..], b": ", &value[..], b"\r\n"].concat());
    }
    text.extend(b"\r\n");
    // A blank that was missing may push it over the limit.
    if text.len() <= HEAD_BYTES_MAX {
        let (second, used) = read(&text, text.len()).expect("what was accepted is accepted again");
        assert_eq!((print(&second), used), (print(head), text.len()));
    }
}

/// A chunked body means the same in any pieces, and what follows is left alone.
fn chunks(text: &[u8], step: usize) {
    let (whole, pieces) = (decode(text, text.len().max(1)), decode(text, step));
    match (&whole, &pieces) {
        // Which of the two complaints about an endless line depends on how much of it was seen.
        (Err(ChunkError::Malformed(_)), Err(ChunkError::Malformed(_))) => {}
        _ => assert_eq!(whole, pieces, "in pieces of {step}"),
    }
    if let Ok(Some((body, left))) = whole {
        assert!(body.len() as u64 <= BODY_BYTES_MAX && body.len() + left <= text.len());
    }
}

fn decode(text: &[u8], step: usize) -> Result<Option<(Bytes, usize)>, ChunkError> {
    let (mut chunks, mut buffer, mut body) = (Chunks::new(BODY_BYTES_MAX), BytesMut::new(), BytesMut::new());
    let mut given = 0;
    for piece in text.chunks(step) {
        buffer.extend_from_slice(piece);
        given += piece.len();
        loop {
            match chunks.next(&mut buffer)? {
                Progress::Data(data) => {
                    assert!(!data.is_empty() && (body.len() + data.len()) as u64 <= BODY_BYTES_MAX);
                    body.extend_from_slice(&data);
                }
                Progress::More => break,
                Progress::Done => return Ok(Some((body.freeze(), text.len() - given + buffer.len()))),
            }
        }
        // Unused bytes have a bound: a line, or the two bytes behind a chunk.
        assert!(buffer.len() <= CHUNK_LINE_BYTES_MAX);
    }
    Ok(None)
}
