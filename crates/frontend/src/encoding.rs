//! Compression of bodies (P 1.12.8): what the client accepts, unpacking within a limit, packing.
//!
//! Deliberately without a thread of its own: which thread does the work is for the caller to say. The fuzz targets include this file.

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

/// Why nothing came out of a packed body.
#[derive(Debug)]
pub enum Unpacking {
    /// Nothing there, or a broken stream.
    Broken(Error),
    /// Larger than it may be, altogether or for what was sent.
    TooLarge(Error),
    /// There is no memory for what comes out.
    NoRoom(Error),
}

impl From<Unpacking> for Error {
    fn from(why: Unpacking) -> Self {
        match why {
            Unpacking::Broken(error) | Unpacking::TooLarge(error) | Unpacking::NoRoom(error) => error,
        }
    }
}

/// How a gzip member begins: two bytes that say gzip, one that says deflate, which is all there is.
const GZIP_DEFLATE: &[u8] = &[0x1f, 0x8b, 8];

/// What is made of a body between two looks at the limits, at the memory there is, and at whether anybody still wants it.
const INFLATE_STEP_BYTES: usize = 256 * 1024;

/// Unpacks a whole body of at most `bytes_max` bytes; gzip and zlib are told apart by their first bytes, whatever the header said.
///
/// Between steps it asks whether the result is still wanted, and for room for the next one (`tensor::allowance`).
///
/// # Errors
/// INVALID_ARG; CANCELLED when the result is no longer wanted, RESOURCE_EXHAUSTED when there is no room.
pub fn decompress(packed: &[u8], bytes_max: usize, is_abandoned: impl Fn() -> bool) -> Result<Bytes, Unpacking> {
    let by_ratio = packed.len().saturating_mul(INFLATE_RATIO_MAX).max(INFLATE_RATIO_FREE_BYTES);
    let limit = bytes_max.min(by_ratio);
    if has_more_members_than(INFLATE_MEMBERS_MAX, packed) {
        return Err(Unpacking::TooLarge(Error::invalid(format!(
            "the body has more than {INFLATE_MEMBERS_MAX} gzip members, which is the maximum. Send the data as one member."
        ))));
    }
    let Some(out) = inflate(packed, limit, is_abandoned)? else {
        return Err(Unpacking::TooLarge(Error::invalid(if limit == bytes_max {
            format!(
                "Decompressed data size exceeds the maximum allowed value of {bytes_max} bytes. \
                 Use --http-max-input-size to increase the limit."
            )
        } else {
            format!(
                "Decompressed data size exceeds {INFLATE_RATIO_MAX} times the {} bytes received, the maximum for more than \
                 {INFLATE_RATIO_FREE_BYTES} bytes. Send the data uncompressed.",
                packed.len()
            )
        })));
    };
    Ok(out)
}

/// As `decompress`, for a reactor; `None` when it would take too long there.
pub fn decompress_small(packed: &[u8], bytes_max: usize) -> Option<Result<Bytes, Unpacking>> {
    if packed.len() > INFLATE_BYTES_ON_REACTOR_MAX
        || bytes_max < INFLATE_BYTES_ON_REACTOR_MAX
        || has_more_members_than(INFLATE_MEMBERS_ON_REACTOR_MAX, packed)
    {
        return None;
    }
    inflate(packed, INFLATE_BYTES_ON_REACTOR_MAX, || false).transpose()
}

/// Whether a body may have more gzip members than `max`: each begins anew, whatever is in it, which takes as long as 1 KiB of data. Their
/// first bytes are counted, so data that look like them count as well: one in 16 MiB of packed data.
fn has_more_members_than(max: usize, packed: &[u8]) -> bool {
    memchr::memmem::find_iter(packed, GZIP_DEFLATE).nth(max).is_some()
}

/// What is packed; `None` when that is more than `limit` bytes.
fn inflate(packed: &[u8], limit: usize, is_abandoned: impl Fn() -> bool) -> Result<Option<Bytes>, Unpacking> {
    if packed.is_empty() {
        return Err(Unpacking::Broken(Error::invalid("nothing to be decompressed")));
    }
    let (mut gzip, mut zlib);
    let stream: &mut dyn Read = if packed.starts_with(&[0x1f, 0x8b]) {
        gzip = MultiGzDecoder::new(packed);
        &mut gzip
    } else {
        zlib = ZlibDecoder::new(packed);
        &mut zlib
    };
    // A guess that saves most of the growing and cannot be used to make us reserve much more than the client sent.
    let mut out = Vec::new();
    let mut more = packed.len().saturating_mul(2).min(limit).min(INFLATE_STEP_BYTES);
    loop {
        // A little more than is read: `read_to_end` never grows it.
        if out.capacity() - out.len() < more + 64 {
            let room = more.max(out.len() / 4) + 64;
            allowance::grow_by(&mut out, room).map_err(Unpacking::NoRoom)?;
        }
        // Triton goes on with whatever came out of a broken stream; an answer computed from half a tensor helps nobody.
        let n = (&mut *stream)
            .take(more as u64)
            .read_to_end(&mut out)
            .map_err(|e| Unpacking::Broken(Error::invalid(format!("failed to decompress the request body: {e}"))))?;
        if out.len() > limit {
            return Ok(None);
        }
        if n == 0 {
            return Ok(Some(out.into()));
        }
        more = INFLATE_STEP_BYTES.min(limit - out.len() + 1);
        if is_abandoned() {
            return Err(Unpacking::Broken(Error::cancelled("")));
        }
    }
}

/// Packs a body given in parts; `None` for identity.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for it.
pub fn compress<'a>(
    parts: impl Iterator<Item = &'a [u8]> + Clone,
    encoding: Encoding,
    level: u32,
) -> Result<Option<Bytes>> {
    // Writing into a Vec does not fail; were it to, the body goes out as it is.
    fn all<'a>(mut to: impl Write, parts: impl Iterator<Item = &'a [u8]>) -> Option<()> {
        for part in parts {
            to.write_all(part).ok()?;
        }
        to.flush().ok()
    }
    if encoding == Encoding::Identity {
        return Ok(None);
    }
    // Room for all it can become, so that it never grows: deflate adds 5 bytes to each 16 KiB that it cannot pack. What is not
    // written takes no memory.
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
    fn unpacks_what_was_packed_whatever_the_label() {
        let body = vec![7u8; 10_000];
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let packed = compress([&body[..5000], &body[5000..]].into_iter(), encoding, 1).unwrap().unwrap();
            assert_eq!(unpack(&packed, 10_000).unwrap(), body);
            assert_eq!(decompress_small(&packed, 1 << 20).unwrap().unwrap(), body);
            assert!(unpack(&packed, 9_999).unwrap_err().message().starts_with("Decompressed data size exceeds"));
            assert!(unpack(&packed[..packed.len() - 6], 10_000).is_err(), "a truncated stream is refused");
        }
        assert_eq!(unpack(b"", 1).unwrap_err().message(), "nothing to be decompressed");
        assert!(unpack(b"not compressed", 1000).is_err());
    }

    fn unpack(packed: &[u8], bytes_max: usize) -> Result<Bytes> {
        decompress(packed, bytes_max, || false).map_err(Error::from)
    }

    #[test]
    fn members_are_few_on_a_reactor_and_not_without_end_elsewhere() {
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
    fn a_body_inflates_to_so_many_times_its_size_and_any_body_to_some() {
        let zeros = |n: usize| compress(std::iter::once(&vec![0; n][..]), Encoding::Gzip, 9).unwrap().unwrap();
        assert_eq!(unpack(&zeros(INFLATE_RATIO_FREE_BYTES), usize::MAX).unwrap().len(), INFLATE_RATIO_FREE_BYTES);
        let packed = zeros(INFLATE_RATIO_FREE_BYTES + 1);
        let refused = unpack(&packed, usize::MAX).unwrap_err();
        let text = format!("Decompressed data size exceeds 256 times the {} bytes received", packed.len());
        assert!(refused.message().starts_with(&text), "{refused}");
        // A reactor gives up where it would be held, without a verdict.
        assert!(decompress_small(&packed, usize::MAX).is_none());
        assert!(decompress_small(&zeros(INFLATE_BYTES_ON_REACTOR_MAX), usize::MAX).unwrap().is_ok());
        assert!(decompress_small(&zeros(100), 10).is_none(), "a smaller limit has its own text");
    }
}
