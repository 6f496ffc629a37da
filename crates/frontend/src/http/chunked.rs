//! Decodes a chunked body. Pure: bytes in, progress out; chunks are counted because their number is limited (P 1.1).

use crate::limits::{CHUNK_LINE_BYTES_MAX, CHUNKS_MAX};
use bytes::{Buf, Bytes, BytesMut};

/// A body being decoded.
pub struct Chunks {
    body: BytesMut,
    bytes_max: u64,
    chunks: u32,
    /// Bytes of trailer fields so far.
    trailer: usize,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Size,
    Data(usize),
    DataEnd,
    Trailer,
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything given was used and the body goes on.
    More,
    /// The body is complete; what follows belongs to the next request.
    Done,
}

/// Why a body cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// It has become longer than allowed.
    TooLarge(u64),
    /// It breaks the rules; the text is for the client.
    Malformed(&'static str),
}

impl Chunks {
    /// A body of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { body: BytesMut::new(), bytes_max, chunks: 0, trailer: 0, state: State::Size }
    }

    /// Takes what it can from `input`.
    pub fn advance(&mut self, input: &mut BytesMut) -> Result<Progress, Broken> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = take_line(input)? else { return Ok(Progress::More) };
                    let size = parse_size(&line)?;
                    if size == 0 {
                        self.state = State::Trailer;
                        continue;
                    }
                    self.chunks += 1;
                    if self.chunks > CHUNKS_MAX {
                        return Err(Broken::Malformed(
                            "Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks.",
                        ));
                    }
                    let total = size.saturating_add(self.body.len() as u64);
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    if total > self.bytes_max {
                        return Err(Broken::TooLarge(total));
                    }
                    self.state = State::Data(size);
                }
                State::Data(left) => {
                    let n = left.min(input.len());
                    self.body.extend_from_slice(&input.split_to(n));
                    if n < left {
                        self.state = State::Data(left - n);
                        return Ok(Progress::More);
                    }
                    self.state = State::DataEnd;
                }
                State::DataEnd => match input.get(..2) {
                    None => return Ok(Progress::More),
                    Some(b"\r\n") => {
                        input.advance(2);
                        self.state = State::Size;
                    }
                    Some(_) => return Err(Broken::Malformed("malformed chunk")),
                },
                State::Trailer => {
                    let Some(line) = take_line(input)? else { return Ok(Progress::More) };
                    if line.is_empty() {
                        return Ok(Progress::Done);
                    }
                    self.trailer += line.len();
                    if self.trailer > CHUNK_LINE_BYTES_MAX {
                        return Err(Broken::Malformed("trailer fields too large"));
                    }
                }
            }
        }
    }

    /// What was decoded.
    pub fn into_body(self) -> Bytes {
        self.body.freeze()
    }
}

/// A line without its end; `None` while it is incomplete.
fn take_line(input: &mut BytesMut) -> Result<Option<BytesMut>, Broken> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return if input.len() > CHUNK_LINE_BYTES_MAX {
            Err(Broken::Malformed("chunk line too long"))
        } else {
            Ok(None)
        };
    };
    let mut line = input.split_to(end + 1);
    if end == 0 || line.get(end - 1) != Some(&b'\r') || end > CHUNK_LINE_BYTES_MAX {
        return Err(Broken::Malformed("malformed chunk line"));
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

fn parse_size(line: &[u8]) -> Result<u64, Broken> {
    // An extension means nothing to us, and may not hide a second size.
    let digits = line.split(|&b| b == b';').next().unwrap_or_default().trim_ascii_end();
    let valid = !digits.is_empty() && digits.len() <= 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let size = valid.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten();
    size.ok_or(Broken::Malformed("malformed chunk size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &[u8], step: usize, bytes_max: u64) -> Result<(Bytes, usize), Broken> {
        let (mut chunks, mut buffer) = (Chunks::new(bytes_max), BytesMut::new());
        for (i, piece) in text.chunks(step).enumerate() {
            buffer.extend_from_slice(piece);
            if chunks.advance(&mut buffer)? == Progress::Done {
                let left = buffer.len() + text.len().saturating_sub((i + 1) * step);
                return Ok((chunks.into_body(), left));
            }
        }
        Err(Broken::Malformed("incomplete"))
    }

    #[test]
    fn decodes_in_any_pieces_and_leaves_the_next_request_alone() {
        let text = b"3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET /";
        for step in 1..=text.len() {
            assert_eq!(decode(text, step, 100), Ok((Bytes::from_static(b"abc0123456789"), 5)), "step {step}");
        }
        assert_eq!(decode(b"0\r\n\r\n", 1, 0), Ok((Bytes::new(), 0)));
    }

    #[test]
    fn refuses_what_breaks_the_rules() {
        for text in
            [&b"x\r\n"[..], b"-1\r\n", b"\r\n", b"3\nabc\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"11111111111111111\r\n"]
        {
            assert!(matches!(decode(text, 64, 100), Err(Broken::Malformed(_))), "{text:?}");
        }
        assert_eq!(decode(b"3\r\nabc\r\n3\r\nabc\r\n", 64, 5), Err(Broken::TooLarge(6)));
        assert_eq!(decode(b"ffffffffffffffff\r\n", 64, 5), Err(Broken::TooLarge(u64::MAX)));
    }

    #[test]
    fn p1_1_more_than_65536_chunks_are_refused() {
        let body = |n: usize| [b"1\r\n \r\n".repeat(n), b"0\r\n\r\n".to_vec()].concat();
        assert_eq!(decode(&body(65_536), 1 << 20, 1 << 20).map(|(b, _)| b.len()), Ok(65_536));
        let refused = decode(&body(65_537), 1 << 20, 1 << 20);
        assert!(
            matches!(refused, Err(Broken::Malformed(m)) if m.starts_with("Chunked request body exceeds maximum of 65536"))
        );
    }
}
