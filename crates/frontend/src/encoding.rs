//! Compression of bodies (P 1.12.8): negotiation, decompression within a limit, compression.
//!
//! The caller chooses the thread. The fuzz targets include this file.

use crate::limits::{
    INFLATE_BYTES_ON_REACTOR_MAX, INFLATE_MEMBERS_MAX, INFLATE_MEMBERS_ON_REACTOR_MAX, INFLATE_RATIO_FREE_BYTES,
    INFLATE_RATIO_MAX,
};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{Read, Write};
use tensor::{Error, Result, allowance};

/// Compression of a body. `Deflate` is the zlib container, as everywhere in HTTP.
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

    /// The encoding that an `Accept-Encoding` list prefers: highest weight, first listed on ties. Unknown names, `*`,
    /// weight 0 and weights that are not numbers are ignored.
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

/// Reason why a body cannot be decompressed.
#[derive(Debug)]
pub enum DecompressError {
    /// The body is empty or the stream is broken.
    Broken(Error),
    /// The contents exceed the limit, or the limit for the bytes that were sent.
    TooLarge(Error),
    /// There is no memory for the contents.
    NoRoom(Error),
}

impl From<DecompressError> for Error {
    fn from(why: DecompressError) -> Self {
        match why {
            DecompressError::Broken(error) | DecompressError::TooLarge(error) | DecompressError::NoRoom(error) => error,
        }
    }
}

/// First bytes of a gzip member: two for gzip, one for deflate, the only method.
const GZIP_DEFLATE: &[u8] = &[0x1f, 0x8b, 8];

/// Bytes that are inflated between two checks of the limits, of free memory and of cancellation.
const INFLATE_STEP_BYTES: usize = 256 * 1024;

/// Decompresses a body to at most `bytes_max` bytes. The first bytes tell gzip from zlib, whatever the header says.
///
/// Between steps it checks for cancellation and takes memory for the next step (`tensor::allowance`).
///
/// # Errors
/// INVALID_ARG; CANCELLED if the request was cancelled, RESOURCE_EXHAUSTED if there is no memory.
pub fn decompress(packed: &[u8], bytes_max: usize, is_abandoned: impl Fn() -> bool) -> Result<Bytes, DecompressError> {
    let by_ratio = packed.len().saturating_mul(INFLATE_RATIO_MAX).max(INFLATE_RATIO_FREE_BYTES);
    let limit = bytes_max.min(by_ratio);
    if has_more_members_than(INFLATE_MEMBERS_MAX, packed) {
        return Err(DecompressError::TooLarge(Error::invalid(format!(
            "the body has more than {INFLATE_MEMBERS_MAX} gzip members, which is the maximum. Send the data as one \
             member."
        ))));
    }
    let Some(out) = inflate(packed, limit, is_abandoned)? else {
        return Err(DecompressError::TooLarge(Error::invalid(if limit == bytes_max {
            format!(
                "Decompressed data size exceeds the maximum allowed value of {bytes_max} bytes. \
                 Use --http-max-input-size to increase the limit."
            )
        } else {
            format!(
                "Decompressed data size exceeds {INFLATE_RATIO_MAX} times the {} bytes received, the maximum for more \
                 than {INFLATE_RATIO_FREE_BYTES} bytes. Send the data uncompressed.",
                packed.len()
            )
        })));
    };
    Ok(out)
}

/// `decompress` on a reactor; `None` if it would take too long there.
pub fn decompress_small(packed: &[u8], bytes_max: usize) -> Option<Result<Bytes, DecompressError>> {
    if packed.len() > INFLATE_BYTES_ON_REACTOR_MAX
        || bytes_max < INFLATE_BYTES_ON_REACTOR_MAX
        || has_more_members_than(INFLATE_MEMBERS_ON_REACTOR_MAX, packed)
    {
        return None;
    }
    inflate(packed, INFLATE_BYTES_ON_REACTOR_MAX, || false).transpose()
}

/// Whether a body may have more gzip members than `max`: starting one takes as long as 1 KiB of data. Counts their
/// first bytes, so data that look like them count as well: one in 16 MiB of packed data.
fn has_more_members_than(max: usize, packed: &[u8]) -> bool {
    memchr::memmem::find_iter(packed, GZIP_DEFLATE).nth(max).is_some()
}

/// Decompressed contents; `None` if they exceed `limit` bytes.
fn inflate(packed: &[u8], limit: usize, is_abandoned: impl Fn() -> bool) -> Result<Option<Bytes>, DecompressError> {
    if packed.is_empty() {
        return Err(DecompressError::Broken(Error::invalid("nothing to be decompressed")));
    }
    let (mut gzip, mut zlib);
    let stream: &mut dyn Read = if packed.starts_with(&[0x1f, 0x8b]) {
        gzip = MultiGzDecoder::new(packed);
        &mut gzip
    } else {
        zlib = ZlibDecoder::new(packed);
        &mut zlib
    };
    // Saves most reallocations, and a client cannot use it to reserve much more memory than it sent.
    let mut out = Vec::new();
    let mut more = packed.len().saturating_mul(2).min(limit).min(INFLATE_STEP_BYTES);
    loop {
        // Slightly more than is read, so that `read_to_end` never grows it.
        if out.capacity() - out.len() < more + 64 {
            let room = more.max(out.len() / 4) + 64;
            allowance::grow_by(&mut out, room).map_err(DecompressError::NoRoom)?;
        }
        // Triton runs inference with the part before the break; a response computed from half a tensor is useless.
        let n = (&mut *stream).take(more as u64).read_to_end(&mut out).map_err(|e| {
            DecompressError::Broken(Error::invalid(format!("failed to decompress the request body: {e}")))
        })?;
        if out.len() > limit {
            return Ok(None);
        }
        if n == 0 {
            return Ok(Some(out.into()));
        }
        more = INFLATE_STEP_BYTES.min(limit - out.len() + 1);
        if is_abandoned() {
            return Err(DecompressError::Broken(Error::cancelled("")));
        }
    }
}

/// Compresses a body given in parts; `None` for identity.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory for it.
pub fn compress<'a>(
    parts: impl Iterator<Item = &'a [u8]> + Clone,
    encoding: Encoding,
    level: u32,
) -> Result<Option<Bytes>> {
    // Writing into a Vec does not fail; if it did, the body would be sent uncompressed.
    fn all<'a>(mut to: impl Write, parts: impl Iterator<Item = &'a [u8]>) -> Option<()> {
        for part in parts {
            to.write_all(part).ok()?;
        }
        to.flush().ok()
    }
    if encoding == Encoding::Identity {
        return Ok(None);
    }
    // The largest possible result, so that it never grows: deflate adds 5 bytes to each 16 KiB that it cannot compress.
    // Unwritten pages take no memory.
    let length: usize = parts.clone().map(<[u8]>::len).sum();
    let mut out = Vec::new();
    allowance::grow_by(&mut out, length + length / 1024 + 128)?;
    let level = Compression::new(level.min(9));
    Ok(match encoding {
        Encoding::Identity => None,
        Encoding::Gzip => {
            let mut to = GzEncoder::new(out, level);
            all(&mut to, parts).and_then(|()| to.finish().ok()).map(Bytes::from)
        }
        Encoding::Deflate => {
            let mut to = ZlibEncoder::new(out, level);
            all(&mut to, parts).and_then(|()| to.finish().ok()).map(Bytes::from)
        }
    })
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
    fn compressed_bodies_are_decompressed_whatever_the_header_says() {
        let body = vec![7u8; 10_000];
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let packed = compress([&body[..5000], &body[5000..]].into_iter(), encoding, 1).unwrap().unwrap();
            assert_eq!(unpack(&packed, 10_000).unwrap(), body);
            assert_eq!(decompress_small(&packed, 1 << 20).unwrap().unwrap(), body);
            assert!(unpack(&packed, 9_999).unwrap_err().message().starts_with("Decompressed data size exceeds"));
            assert!(unpack(&packed[..packed.len() - 6], 10_000).is_err(), "a truncated stream is rejected");
        }
        assert_eq!(unpack(b"", 1).unwrap_err().message(), "nothing to be decompressed");
        assert!(unpack(b"not compressed", 1000).is_err());
    }

    fn unpack(packed: &[u8], bytes_max: usize) -> Result<Bytes> {
        decompress(packed, bytes_max, || false).map_err(Error::from)
    }

    #[test]
    fn gzip_members_are_limited_and_more_so_on_a_reactor() {
        let members = |n: usize| {
            let one = compress(std::iter::once(&b"x"[..]), Encoding::Gzip, 1).unwrap().unwrap();
            one.repeat(n)
        };
        let few = members(INFLATE_MEMBERS_ON_REACTOR_MAX);
        assert_eq!(decompress_small(&few, 1 << 20).unwrap().unwrap().len(), INFLATE_MEMBERS_ON_REACTOR_MAX);
        assert!(decompress_small(&members(INFLATE_MEMBERS_ON_REACTOR_MAX + 1), 1 << 20).is_none());
        assert_eq!(unpack(&members(INFLATE_MEMBERS_MAX), 1 << 20).unwrap().len(), INFLATE_MEMBERS_MAX);
        let refused = unpack(&members(INFLATE_MEMBERS_MAX + 1), 1 << 20).unwrap_err();
        assert!(refused.message().contains("65536 gzip members"), "{refused}");
    }

    #[test]
    fn the_inflate_ratio_is_limited_beyond_a_free_size() {
        let zeros = |n: usize| compress(std::iter::once(&vec![0; n][..]), Encoding::Gzip, 9).unwrap().unwrap();
        assert_eq!(unpack(&zeros(INFLATE_RATIO_FREE_BYTES), usize::MAX).unwrap().len(), INFLATE_RATIO_FREE_BYTES);
        let packed = zeros(INFLATE_RATIO_FREE_BYTES + 1);
        let refused = unpack(&packed, usize::MAX).unwrap_err();
        let text = format!("Decompressed data size exceeds 256 times the {} bytes received", packed.len());
        assert!(refused.message().starts_with(&text), "{refused}");
        // A reactor stops without a result if it would take too long.
        assert!(decompress_small(&packed, usize::MAX).is_none());
        assert!(decompress_small(&zeros(INFLATE_BYTES_ON_REACTOR_MAX), usize::MAX).unwrap().is_ok());
        assert!(decompress_small(&zeros(100), 10).is_none(), "a smaller limit has its own text");
    }
}
