//! Responses of HTTP/1.1 as they come: the head, and a body in any framing. Pure; memory is bounded by the caller.

use crate::plan::AnyError;
use std::mem::MaybeUninit;

/// Bytes of the longest head of a response, and of the longest line of a chunk.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Fields of a head.
const FIELDS_MAX: usize = 100;

/// The head of a response.
#[derive(Debug, PartialEq)]
pub struct Head {
    /// Bytes of the head.
    pub bytes: usize,
    /// Status code.
    pub status: u16,
    /// The text behind a status other than 200.
    pub reason: String,
    /// The connection takes no further request.
    pub closes: bool,
    /// Framing of the body.
    pub body: Body,
}

impl Head {
    /// Reads a head, behind those of interim responses; `None` while it is incomplete.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, AnyError> {
        let mut at = 0;
        loop {
            let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
            let mut response = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
                &mut response,
                &bytes[at..],
                &mut fields,
            );
            let parsed = parsed.map_err(|e| format!("a response that is not HTTP/1.1: {e}"))?;
            let httparse::Status::Complete(length) = parsed else {
                return if bytes.len() < HEAD_BYTES_MAX {
                    Ok(None)
                } else {
                    Err(format!("a response whose head is longer than {HEAD_BYTES_MAX} bytes").into())
                };
            };
            at += length;
            let status = response.code.unwrap_or_default();
            if (100..200).contains(&status) {
                continue;
            }
            let (mut closes, mut length, mut is_chunked) = (response.version == Some(0), None, false);
            for field in response.headers.iter() {
                let is = |name: &str| field.name.eq_ignore_ascii_case(name);
                let has = |word: &str| {
                    let words = field.value.split(|&b| b == b',');
                    words.map(<[u8]>::trim_ascii).any(|w| w.eq_ignore_ascii_case(word.as_bytes()))
                };
                if is("content-length") {
                    let text = std::str::from_utf8(field.value).unwrap_or_default().trim();
                    let number = text.parse::<u64>().map_err(|_| format!("a response with Content-Length: {text}"))?;
                    if length.replace(number).is_some_and(|other| other != number) {
                        return Err("a response with two lengths".into());
                    }
                } else if is("transfer-encoding") {
                    is_chunked = has("chunked");
                } else if is("connection") {
                    closes = !has("keep-alive") && (closes || has("close"));
                }
            }
            let body = match length {
                _ if status == 204 || status == 304 => Body::Length(0),
                _ if is_chunked => Body::Chunks(Chunk::Size { length: 0, digits: 0 }),
                Some(length) => Body::Length(length),
                None => Body::UntilClosed,
            };
            closes |= body == Body::UntilClosed;
            let reason = if status == 200 { String::new() } else { response.reason.unwrap_or_default().to_owned() };
            return Ok(Some(Self { bytes: at, status, reason, closes, body }));
        }
    }
}

/// The rest of a body.
#[allow(missing_docs)]
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunks(Chunk),
    /// Everything until the server closes the connection.
    UntilClosed,
    /// Nothing.
    Over,
}

/// Where in the chunks a body is.
#[allow(missing_docs)]
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Chunk {
    /// In a size.
    Size { length: u64, digits: u8 },
    /// Behind a size, to the end of the line.
    Extension { length: u64, skipped: usize },
    /// In the data.
    Data(u64),
    /// At the end of a line behind data.
    DataEnd,
    /// Behind the last chunk: in a line, of which so many bytes came, of all lines so many.
    Trailer { line: usize, all: usize },
}

impl Body {
    /// Whether everything came.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Over | Self::Length(0))
    }

    /// Takes what came, hands payload to `each`, and returns how much of it belongs to the body.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<usize, AnyError> {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            let rest = &bytes[at..];
            let chunk = match self {
                Self::Chunks(chunk) => chunk,
                Self::Length(left) => {
                    let n = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *left -= n as u64;
                    at += n;
                    each(&rest[..n]);
                    continue;
                }
                _ => {
                    each(rest);
                    return Ok(bytes.len());
                }
            };
            if let Chunk::Data(left) = chunk {
                let n = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                *left -= n as u64;
                at += n;
                each(&rest[..n]);
                if *left == 0 {
                    *chunk = Chunk::DataEnd;
                }
                continue;
            }
            at += 1;
            match chunk.next(rest[0])? {
                Some(next) => *chunk = next,
                None => *self = Self::Over,
            }
        }
        Ok(at)
    }
}

impl Chunk {
    /// The state behind a byte that is not data; `None` at the end of the body.
    fn next(self, byte: u8) -> Result<Option<Self>, AnyError> {
        Ok(Some(match (self, byte) {
            (Self::Size { length, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Self::Size { length: length << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { length, digits: 1.. }, b'\r' | b';' | b' ' | b'\t') => Self::Extension { length, skipped: 0 },
            (Self::Extension { length: 0, .. }, b'\n') => Self::Trailer { line: 0, all: 0 },
            (Self::Extension { length, .. }, b'\n') => Self::Data(length),
            (Self::Extension { length, skipped }, _) if skipped < HEAD_BYTES_MAX => {
                Self::Extension { length, skipped: skipped + 1 }
            }
            (Self::DataEnd, b'\r') => self,
            (Self::DataEnd, b'\n') => Self::Size { length: 0, digits: 0 },
            (Self::Trailer { line: 0, .. }, b'\n') => return Ok(None),
            (Self::Trailer { all, .. }, b'\n') => Self::Trailer { line: 0, all },
            (Self::Trailer { .. }, b'\r') => self,
            (Self::Trailer { line, all }, _) if all < HEAD_BYTES_MAX => Self::Trailer { line: line + 1, all: all + 1 },
            _ => return Err(format!("a response whose chunks cannot be read: {self:?}, then byte {byte}").into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response that comes in pieces of every size has this status and body, or this error.
    fn check(text: &str, expected: Result<(u16, &str), &str>) {
        for size in [1, 3, 1000] {
            assert_eq!(read(text, size), expected.map(|(s, b)| (s, b.to_owned())).map_err(str::to_owned), "{text:?}");
        }
    }

    fn read(text: &str, size: usize) -> Result<(u16, String), String> {
        let (mut head, mut body): (Option<Head>, Vec<u8>) = (None, Vec::new());
        let mut all: Vec<u8> = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            all.extend_from_slice(piece);
            if head.is_none() {
                head = Head::read(&all).map_err(|e| e.to_string())?;
                if let Some(head) = &head {
                    all.drain(..head.bytes);
                }
            }
            if let Some(head) = &mut head {
                let n = head.body.take(&all, |part| body.extend_from_slice(part)).map_err(|e| e.to_string())?;
                all.drain(..n);
            }
        }
        let head = head.ok_or("incomplete")?;
        if !all.is_empty() {
            return Err(format!("{} bytes behind it", all.len()));
        }
        if !head.body.is_over() && head.body != Body::UntilClosed {
            return Err("incomplete".into());
        }
        Ok((head.status, String::from_utf8_lossy(&body).into_owned()))
    }

    #[test]
    fn bodies_of_every_framing_are_read() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Ok((200, "hello")));
        check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok((200, "")));
        check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "")));
        check("HTTP/1.0 200 OK\r\n\r\nuntil the end", Ok((200, "until the end")));
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", Ok((400, "no")));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{chunked}5\r\nhello\r\nA;x=y\r\n, chunks!!\r\n0\r\n\r\n"), Ok((200, "hello, chunks!!")));
        check(&format!("{chunked}0\r\nTrailer: a\r\nOther: b\r\n\r\n"), Ok((200, "")));
        check(&format!("{chunked}2\r\nhi\r\n"), Err("incomplete"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!", Err("1 bytes behind it"));
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        let error = |text: &str| read(text, 1000).expect_err(text);
        assert!(error("hello\r\n\r\n").contains("not HTTP/1.1"));
        assert!(error("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").contains("Content-Length: x"));
        let two = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(error(two), "a response with two lengths");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(error(&format!("{chunked}hello")).contains("chunks cannot be read"));
        assert!(error(&format!("{chunked}2\r\nhiho")).contains("chunks cannot be read"));
        // Longer than any length, an endless head, an endless line, endless trailers.
        assert!(error(&format!("{chunked}{}", "f".repeat(17))).contains("chunks cannot be read"));
        assert!(error(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX))).contains("longer than 65536"));
        assert!(error(&format!("{chunked}1;{}", "x".repeat(2 * HEAD_BYTES_MAX))).contains("chunks cannot be read"));
        assert!(error(&format!("{chunked}0\r\n{}", "a: b\r\n".repeat(20_000))).contains("chunks cannot be read"));
    }

    #[test]
    fn connections_that_end_are_told_from_those_that_stay() {
        let closes = |head: &str| {
            let head = Head::read(format!("{head}\r\nContent-Length: 0\r\n\r\n").as_bytes());
            head.expect("reads").expect("is whole").closes
        };
        assert!(!closes("HTTP/1.1 200 OK"));
        assert!(closes("HTTP/1.1 200 OK\r\nConnection: Close"));
        assert!(closes("HTTP/1.0 200 OK"));
        assert!(!closes("HTTP/1.0 200 OK\r\nConnection: keep-alive"));
    }
}
