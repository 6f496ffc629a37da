//! Compression of bodies (P 1.12.8): what the client accepts, unpacking within a limit, packing.

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{Read, Write};
use tensor::{Error, Result};

/// How a body is packed. `Deflate` is the zlib container, as everywhere in HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Encoding {
    Identity,
    Gzip,
    Deflate,
}

impl Encoding {
    /// Reads a `Content-Encoding` or `grpc-encoding` value: exact, lower case.
    pub fn parse(name: &[u8]) -> Option<Self> {
        match name {
            b"identity" => Some(Self::Identity),
            b"gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// The value of `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The encoding an `Accept-Encoding` list prefers: highest weight, first listed on ties. Names we do not know, `*`, weight 0
    /// and weights that are no numbers do not count.
    pub fn negotiate(accept: &[u8]) -> Self {
        let mut best = (Self::Identity, 0.0f32);
        for entry in accept.split(|&b| b == b',') {
            let entry = entry.trim_ascii();
            let (name, weight) = match entry.windows(3).position(|w| w == b";q=") {
                Some(at) => {
                    let (name, rest) = entry.split_at(at);
                    let text = std::str::from_utf8(rest.get(3..).unwrap_or_default()).unwrap_or_default();
                    (name, text.trim().parse::<f32>().unwrap_or(0.0))
                }
                None => (entry, 1.0),
            };
            if let Some(encoding) = Self::parse(name)
                && weight > best.1
            {
                best = (encoding, weight);
            }
        }
        best.0
    }
}

/// Unpacks a whole body; gzip and zlib are told apart by their first bytes, whatever the header said.
///
/// # Errors
/// INVALID_ARG: nothing there, a broken stream, or more than `bytes_max` bytes.
pub fn decompress(packed: &[u8], bytes_max: u64) -> Result<Bytes> {
    if packed.is_empty() {
        return Err(Error::invalid("nothing to be decompressed"));
    }
    let limit = bytes_max.saturating_add(1);
    // A guess that saves most of the growing and cannot be used to make us reserve much more than the client sent.
    let mut out = Vec::with_capacity(packed.len().saturating_mul(2).min(usize::try_from(limit).unwrap_or(usize::MAX)));
    let read = match packed {
        [0x1f, 0x8b, ..] => MultiGzDecoder::new(packed).take(limit).read_to_end(&mut out),
        _ => ZlibDecoder::new(packed).take(limit).read_to_end(&mut out),
    };
    match read {
        // Triton goes on with whatever came out of a broken stream; an answer computed from half a tensor helps nobody.
        Err(e) => Err(Error::invalid(format!("failed to decompress the request body: {e}"))),
        Ok(n) if n as u64 > bytes_max => Err(Error::invalid(format!(
            "Decompressed data size exceeds the maximum allowed value of {bytes_max} bytes. \
             Use --http-max-input-size to increase the limit."
        ))),
        Ok(_) => Ok(Bytes::from(out)),
    }
}

/// Packs a body given in parts; `None` for identity.
pub fn compress<'a>(parts: impl Iterator<Item = &'a [u8]>, encoding: Encoding, level: u32) -> Option<Bytes> {
    // Writing into a Vec does not fail; were it to, the body goes out as it is.
    fn all<'a>(mut to: impl Write, parts: impl Iterator<Item = &'a [u8]>) -> Option<()> {
        for part in parts {
            to.write_all(part).ok()?;
        }
        to.flush().ok()
    }
    let level = Compression::new(level.min(9));
    match encoding {
        Encoding::Identity => None,
        Encoding::Gzip => {
            let mut to = GzEncoder::new(Vec::new(), level);
            all(&mut to, parts)?;
            to.finish().ok().map(Bytes::from)
        }
        Encoding::Deflate => {
            let mut to = ZlibEncoder::new(Vec::new(), level);
            all(&mut to, parts)?;
            to.finish().ok().map(Bytes::from)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_encoding_highest_weight_wins_first_on_ties() {
        use Encoding::{Deflate, Gzip, Identity};
        for (accept, expected) in [
            ("gzip", Gzip),
            ("deflate", Deflate),
            ("identity", Identity),
            ("*", Identity),
            ("br", Identity),
            ("gzip, deflate", Gzip),
            ("deflate, gzip", Deflate),
            ("deflate;q=0.5, gzip;q=0.9", Gzip),
            ("gzip;q=0", Identity),
            ("gzip;q=0,deflate;q=0", Identity),
            ("br;q=1.0, gzip;q=0.8", Gzip),
            ("GZIP", Identity),
            ("identity;q=1, gzip;q=0.5", Identity),
            ("identity;q=0.5, gzip;q=1", Gzip),
            ("gzip;q=2", Gzip),
            (",,gzip,", Gzip),
            ("gzip ;q=0.5", Identity),
            ("", Identity),
        ] {
            assert_eq!(Encoding::negotiate(accept.as_bytes()), expected, "{accept:?}");
        }
    }

    #[test]
    fn unpacks_what_was_packed_whatever_the_label() {
        let body = vec![7u8; 10_000];
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let packed = compress([&body[..5000], &body[5000..]].into_iter(), encoding, 1).unwrap();
            assert_eq!(decompress(&packed, 10_000).unwrap(), body);
            assert!(decompress(&packed, 9_999).unwrap_err().message().starts_with("Decompressed data size exceeds"));
            assert!(decompress(&packed[..packed.len() - 6], 10_000).is_err(), "a truncated stream is refused");
        }
        assert_eq!(decompress(b"", 1).unwrap_err().message(), "nothing to be decompressed");
        assert!(decompress(b"not compressed", 1000).is_err());
    }
}
