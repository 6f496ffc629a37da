//! Decodes a chunked body. Pure: bytes in, pieces of the body out. The number of chunks is limited (P 1.1).
//!
//! Invariant: once `next` has failed, the end of the body is unknown, so no further request may be read from the
//! connection. It is closed after the response.

use crate::limits::{CHUNK_LINE_BYTES_MAX, CHUNKS_MAX};
use bytes::{Buf, BytesMut};

/// Decoder of one body.
pub struct Chunks {
    bytes_max: u64,
    /// Bytes of the body that the chunks so far announced.
    total: u64,
    chunks: u32,
    /// Bytes of trailer fields so far.
    trailer: usize,
    state: ChunkState,
}

#[derive(Clone, Copy)]
enum ChunkState {
    Size,
    Data(usize),
    DataEnd,
    Trailer,
}

/// Result of a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next bytes of the body; the input may contain more.
    Data(BytesMut),
    /// The input was used up and the body continues.
    More,
    /// The body is complete; the rest of the input belongs to the next request.
    Done,
}

/// Reason why a body cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// The body is longer than allowed: its length so far.
    TooLarge(u64),
    /// The framing is invalid; the text is for the client.
    Malformed(&'static str),
}

impl Chunks {
    /// Decoder of a body of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, total: 0, chunks: 0, trailer: 0, state: ChunkState::Size }
    }

    /// Takes the next step of the body from `input`.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Progress, ChunkError> {
        loop {
            match self.state {
                ChunkState::Size => {
                    let Some(line) = take_line(input)? else { return Ok(Progress::More) };
                    let size = parse_size(&line)?;
                    if size == 0 {
                        self.state = ChunkState::Trailer;
                        continue;
                    }
                    self.chunks += 1;
                    if self.chunks > CHUNKS_MAX {
                        return Err(ChunkError::Malformed(
                            "Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger \
                             HTTP chunks.",
                        ));
                    }
                    self.total = self.total.saturating_add(size);
                    if self.total > self.bytes_max {
                        return Err(ChunkError::TooLarge(self.total));
                    }
                    self.state = ChunkState::Data(usize::try_from(size).unwrap_or(usize::MAX));
                }
                ChunkState::Data(left) => {
                    let piece = input.split_to(left.min(input.len()));
                    self.state =
                        if piece.len() < left { ChunkState::Data(left - piece.len()) } else { ChunkState::DataEnd };
                    return Ok(if piece.is_empty() { Progress::More } else { Progress::Data(piece) });
                }
                ChunkState::DataEnd => match input.get(..2) {
                    None => return Ok(Progress::More),
                    Some(b"\r\n") => {
                        input.advance(2);
                        self.state = ChunkState::Size;
                    }
                    Some(_) => return Err(ChunkError::Malformed("malformed chunk")),
                },
                ChunkState::Trailer => {
                    let Some(line) = take_line(input)? else { return Ok(Progress::More) };
                    if line.is_empty() {
                        return Ok(Progress::Done);
                    }
                    self.trailer += line.len();
                    if self.trailer > CHUNK_LINE_BYTES_MAX {
                        return Err(ChunkError::Malformed("trailer fields too large"));
                    }
                }
            }
        }
    }
}

/// A line without its end; `None` while it is incomplete.
fn take_line(input: &mut BytesMut) -> Result<Option<BytesMut>, ChunkError> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return if input.len() > CHUNK_LINE_BYTES_MAX {
            Err(ChunkError::Malformed("chunk line too long"))
        } else {
            Ok(None)
        };
    };
    let mut line = input.split_to(end + 1);
    if end == 0 || line.get(end - 1) != Some(&b'\r') || end > CHUNK_LINE_BYTES_MAX {
        return Err(ChunkError::Malformed("malformed chunk line"));
    }
    line.truncate(end - 1);
    // Some servers end a line at a bare CR: the bytes after it could be a second size, or a request.
    if line.iter().any(|&b| (b < b' ' && b != b'\t') || b == 0x7f) {
        return Err(ChunkError::Malformed("malformed chunk line"));
    }
    Ok(Some(line))
}

fn parse_size(line: &[u8]) -> Result<u64, ChunkError> {
    // Extensions are ignored. `take_line` has rejected those that could hide a second size.
    let digits = line.split(|&b| b == b';').next().unwrap_or_default().trim_ascii_end();
    let valid = !digits.is_empty() && digits.len() <= 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let size = valid.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten();
    size.ok_or(ChunkError::Malformed("malformed chunk size"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn decode(text: &[u8], step: usize, bytes_max: u64) -> Result<(Bytes, usize), ChunkError> {
        let (mut chunks, mut buffer, mut body) = (Chunks::new(bytes_max), BytesMut::new(), BytesMut::new());
        for (i, piece) in text.chunks(step).enumerate() {
            buffer.extend_from_slice(piece);
            loop {
                match chunks.next(&mut buffer)? {
                    Progress::Data(data) => body.extend_from_slice(&data),
                    Progress::More => break,
                    Progress::Done => {
                        let left = buffer.len() + text.len().saturating_sub((i + 1) * step);
                        return Ok((body.freeze(), left));
                    }
                }
            }
        }
        Err(ChunkError::Malformed("incomplete"))
    }

    #[test]
    fn a_body_is_decoded_from_any_pieces_up_to_the_next_request() {
        let text = b"3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET /";
        for step in 1..=text.len() {
            assert_eq!(decode(text, step, 100), Ok((Bytes::from_static(b"abc0123456789"), 5)), "step {step}");
        }
        assert_eq!(decode(b"0\r\n\r\n", 1, 0), Ok((Bytes::new(), 0)));
    }

    #[test]
    fn invalid_framing_is_rejected() {
        for text in [
            &b"x\r\n"[..],
            b"-1\r\n",
            b"\r\n",
            b"3\nabc\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"11111111111111111\r\n",
            b"0x3\r\nabc\r\n",
            b" 3\r\nabc\r\n",
            b"3;a\rb\r\nabc\r\n",
            b"3;a=\"\r\r\n5\r\n",
            b"3\r;a\r\nabc\r\n",
            b"3;\0\r\nabc\r\n",
            b"0\r\nX: a\rb\r\n\r\n",
            b"0\r\nX: a\n\r\n",
        ] {
            assert!(matches!(decode(text, 64, 100), Err(ChunkError::Malformed(_))), "{text:?}");
        }
        assert_eq!(decode(b"3\r\nabc\r\n3\r\nabc\r\n", 64, 5), Err(ChunkError::TooLarge(6)));
        assert_eq!(decode(b"ffffffffffffffff\r\n", 64, 5), Err(ChunkError::TooLarge(u64::MAX)));
    }

    #[test]
    fn p1_1_more_than_65536_chunks_are_rejected() {
        let body = |n: usize| [b"1\r\n \r\n".repeat(n), b"0\r\n\r\n".to_vec()].concat();
        assert_eq!(decode(&body(65_536), 1 << 20, 1 << 20).map(|(b, _)| b.len()), Ok(65_536));
        let refused = decode(&body(65_537), 1 << 20, 1 << 20);
        assert!(
            matches!(refused, Err(ChunkError::Malformed(m)) if m.starts_with("Chunked request body exceeds maximum of"))
        );
    }
}
