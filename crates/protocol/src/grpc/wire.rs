//! The protobuf wire format: a reader that stays inside its message, and the writers that responses need.

use bytes::Bytes;
use tensor::{DataType, Error, Name, Result};

/// Deepest nesting of groups; the protobuf library has the same limit.
const GROUP_DEPTH_MAX: u32 = 100;

/// A range of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// The bytes of the range, shared, not copied.
    pub fn slice(self, message: &Bytes) -> Bytes {
        let (start, end) = (self.start as usize, self.end as usize);
        // A reader only makes spans inside its message; if that were wrong, empty bytes would be safer than a panic.
        if start <= end && end <= message.len() { message.slice(start..end) } else { Bytes::new() }
    }

    /// The bytes of the range, borrowed.
    pub fn of(self, message: &[u8]) -> &[u8] {
        message.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The text of the range; protobuf strings must be UTF-8.
    pub fn name(self, message: &Bytes) -> Result<Name> {
        Name::from_utf8(self.slice(message)).map_err(|_| malformed("a string is not UTF-8", self.start as usize))
    }

    /// The datatype named by the range; `None` for an unknown name, which must still be UTF-8.
    pub fn datatype(self, message: &[u8]) -> Result<Option<DataType>> {
        match DataType::from_bytes(self.of(message)) {
            None => self.text(message).map(|_| None),
            known => Ok(known),
        }
    }

    /// The text of the range, borrowed.
    pub fn text(self, message: &[u8]) -> Result<&str> {
        std::str::from_utf8(self.of(message)).map_err(|_| malformed("a string is not UTF-8", self.start as usize))
    }
}

/// A field as it is on the wire. The contents of a group are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireValue {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
    Length(Span),
    Group,
}

/// True if reading a message costs more than reading `bytes_max` bytes. Data in the field `raw` are not read and do not
/// count. Stops at that limit; a malformed message is not long, because reading ends at the error.
pub fn is_long(message: &[u8], raw: u32, bytes_max: usize) -> bool {
    /// Cost of a field besides its contents, as a number of bytes.
    const FIELD_BYTES: usize = 16;
    let Ok(mut reader) = FieldReader::new(message) else { return false };
    let mut left = bytes_max;
    while !reader.is_done() {
        let Ok((number, wire_type)) = reader.key() else { return false };
        let bytes = match wire_type {
            0 => reader.varint().map(|_| 0),
            1 => reader.array::<8>().map(|_| 0),
            2 => reader.length().map(|place| if number == raw { 0 } else { place.len() }),
            5 => reader.array::<4>().map(|_| 0),
            // A group has no length prefix. Clients do not send groups.
            _ => return true,
        };
        let Ok(bytes) = bytes else { return false };
        match left.checked_sub(bytes + FIELD_BYTES) {
            Some(rest) => left = rest,
            None => return true,
        }
    }
    false
}

/// Offset of the contents of the first length-delimited field `number` in a message that starts with `beginning`;
/// `None` if it is not there. Unlike [`FieldReader`], accepts fields that extend past the end of `beginning`.
pub fn offset_of(beginning: &[u8], number: u32) -> Option<usize> {
    let mut reader = FieldReader::new(beginning).ok()?;
    while !reader.is_done() {
        let (field, wire_type) = reader.key().ok()?;
        match wire_type {
            0 => drop(reader.varint().ok()?),
            1 => reader.at += 8,
            2 => {
                let length = usize::try_from(reader.varint().ok()?).ok()?;
                if field == number {
                    return Some(reader.at);
                }
                reader.at = reader.at.checked_add(length)?;
            }
            5 => reader.at += 4,
            // A group has no length prefix.
            _ => return None,
        }
    }
    None
}

/// The texts of fields 1 and 2 if a message that starts with `beginning` has them first, in this order; the second is
/// "" if another field follows the first. `None` if they are elsewhere, cut off or not UTF-8.
pub fn first_texts(beginning: &[u8]) -> Option<(&str, &str)> {
    let mut reader = FieldReader::new(beginning).ok()?;
    let mut text = |number: u32| -> Option<Option<&str>> {
        let before = reader.at;
        if reader.key().ok()? != (number, 2) {
            reader.at = before;
            return Some(None);
        }
        let place = reader.length().ok()?;
        std::str::from_utf8(place.of(beginning)).ok().map(Some)
    };
    let first = text(1)??;
    Some((first, text(2)?.unwrap_or_default()))
}

/// Reads the fields of one message, or the elements of a packed list. Offsets are those of the outermost message.
pub(super) struct FieldReader<'a> {
    /// The outermost message, cut off at the end of this one.
    bytes: &'a [u8],
    at: usize,
}

impl<'a> FieldReader<'a> {
    /// Starts at the first byte of `message`.
    pub fn new(message: &'a [u8]) -> Result<Self> {
        // Also makes 32 bits enough for offsets.
        if message.len() > i32::MAX as usize {
            return Err(malformed("more than 2147483647 bytes", 0));
        }
        Ok(Self { bytes: message, at: 0 })
    }

    /// Starts at the first byte of a range of `message`.
    pub fn within(message: &'a [u8], span: Span) -> Self {
        Self { bytes: message.get(..span.end as usize).unwrap_or_default(), at: span.start as usize }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Reads the next field; `None` at the end.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(u32, WireValue)>> {
        if self.is_done() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        let value = match wire_type {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(self.array()?),
            2 => WireValue::Length(self.length()?),
            3 => {
                self.skip_group(number)?;
                WireValue::Group
            }
            5 => WireValue::Fixed32(self.array()?),
            4 => return Err(malformed("a group ends that did not begin", self.at)),
            _ => return Err(malformed("an unknown wire type", self.at)),
        };
        Ok(Some((number, value)))
    }

    /// Reads the next base-128 integer.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        // Keys, lengths and dimensions mostly have one byte.
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.bytes.get(self.at..).unwrap_or_default().iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                // The tenth byte has room for one bit.
                if i == 9 && byte > 1 {
                    return Err(malformed("an integer of more than 64 bits", self.at));
                }
                self.at += i + 1;
                return Ok(value);
            }
        }
        let what = if self.bytes.len().saturating_sub(self.at) >= 10 {
            "an integer of more than 64 bits"
        } else {
            "an integer is cut off"
        };
        Err(malformed(what, self.at))
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(array) = rest.first_chunk::<N>() else {
            return Err(malformed("a number is cut off", self.at));
        };
        self.at += N;
        Ok(*array)
    }

    // Without inlining the calls of these two cost a twentieth of a small request.
    #[inline(always)]
    fn key(&mut self) -> Result<(u32, u8)> {
        let start = self.at;
        let key = u32::try_from(self.varint()?).map_err(|_| malformed("a field number is too large", start))?;
        match key >> 3 {
            0 => Err(malformed("a field number is 0", start)),
            number => Ok((number, (key & 7) as u8)),
        }
    }

    #[inline(always)]
    fn length(&mut self) -> Result<Span> {
        let length = self.varint()?;
        let left = self.bytes.len().saturating_sub(self.at);
        match usize::try_from(length) {
            Ok(n) if n <= left => {
                let start = self.at;
                self.at += n;
                // `new` checked that offsets fit.
                Ok(Span { start: start as u32, end: self.at as u32 })
            }
            _ => Err(malformed("a field reaches past the end", self.at)),
        }
    }

    /// Skips to the end of the group that began with `number`, without recursion.
    fn skip_group(&mut self, number: u32) -> Result<()> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let (number, wire_type) = self.key()?;
            match wire_type {
                0 => drop(self.varint()?),
                1 => drop(self.array::<8>()?),
                2 => drop(self.length()?),
                5 => drop(self.array::<4>()?),
                3 if open.len() as u32 >= GROUP_DEPTH_MAX => {
                    return Err(malformed("groups are nested too deep", self.at));
                }
                3 => open.push(number),
                4 if number == innermost => drop(open.pop()),
                4 => return Err(malformed("a group ends that did not begin", self.at)),
                _ => return Err(malformed("an unknown wire type", self.at)),
            }
        }
        Ok(())
    }
}

/// The INTERNAL error for a message that is not protobuf, as gRPC libraries return it, with the offset.
#[cold]
pub(super) fn malformed(what: &str, at: usize) -> Error {
    Error::malformed(format!("failed to parse ModelInferRequest: {what}, at byte {at}"))
}

/// Bytes of `value` as a varint.
pub(super) fn varint_len(value: u64) -> usize {
    // 7 bits per byte, and zero takes one.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the key and the length of a length-delimited field. Field numbers here are below 16: the key is one byte.
#[inline]
pub(super) fn put_length(out: &mut Vec<u8>, number: u8, length: usize) {
    match u8::try_from(length) {
        Ok(length @ ..0x80) => out.extend_from_slice(&[number << 3 | 2, length]),
        _ => {
            out.push(number << 3 | 2);
            put_varint(out, length as u64);
        }
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    put_length(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Bytes of a length-delimited field with `length` bytes of contents.
pub(super) fn field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}
