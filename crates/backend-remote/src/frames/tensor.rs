//! One tensor in a frame: what it is, and its bytes or where they lie.

use super::reader::{Lie, Reader};
use crate::generated::{BLOCK_OFFSET_BITS, DEVICE_SEGMENT, DeviceTensor, HANDLE_BYTES, Place, RANK_MAX, TensorHead};
use tensor::strings::Strings;
use tensor::{DataType, Shape, element_count};

/// A part of a segment, copied out of a frame. That it lies inside is checked where the segment is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Whether it lies in a segment of requests; else in one of responses.
    pub of_requests: bool,
    /// Number of the segment.
    pub segment: u16,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

impl Block {
    /// What it is called when it is given back.
    pub fn id(&self) -> u64 {
        (u64::from(self.segment) << BLOCK_OFFSET_BITS) | self.offset
    }
}

/// Memory of a device that one side lends the other for a tensor, copied out of a frame. That it is lent is checked where loans are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent<'a> {
    /// Whether the host lends it, with an input; else the runner does, with an output.
    pub by_host: bool,
    /// Number of the lease, of the side that lends.
    pub lease: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// First byte: in the allocation of the handle; in what was lent, where a runner names memory of the host.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// What the other side opens. Means nothing where a runner names memory of the host.
    pub handle: &'a [u8; HANDLE_BYTES as usize],
}

impl Lent<'_> {
    /// What the lease is called when it is given back.
    pub fn id(&self) -> u64 {
        lease_id(self.lease)
    }
}

/// What a lease is called when it is given back: a number that no block has.
pub fn lease_id(lease: u64) -> u64 {
    (DEVICE_SEGMENT << BLOCK_OFFSET_BITS) | lease
}

/// The lease that is given back under this name, if it is one.
pub fn lease_of(id: u64) -> Option<u64> {
    (id >> BLOCK_OFFSET_BITS == DEVICE_SEGMENT).then_some(id & ((1 << BLOCK_OFFSET_BITS) - 1))
}

/// The bytes of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents<'a> {
    /// They came with the frame.
    Inline(&'a [u8]),
    /// They lie there.
    Block(Block),
    /// They lie on a device.
    Device(Lent<'a>),
}

impl Contents<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Block(block) => block.bytes,
            Self::Device(lent) => lent.bytes,
        }
    }
}

/// A tensor as a runner described it. Its shape and its length agree; strings are checked if they came inline, else in the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorRef<'a> {
    /// Name.
    pub name: &'a str,
    /// Element type.
    pub datatype: DataType,
    /// All dims.
    pub shape: Shape,
    /// Where its bytes are.
    pub contents: Contents<'a>,
}

impl<'a> TensorRef<'a> {
    pub(crate) fn read(from: &mut Reader<'a>) -> Result<Self, Lie> {
        let head = TensorHead::read(from.head()?);
        let datatype = DataType::from_number(head.datatype.into()).ok_or(Lie("a tensor has no datatype there is"))?;
        let name = from.text(head.name_bytes.into())?;
        if u64::from(head.rank) > RANK_MAX {
            return Err(Lie("a tensor has too many dims"));
        }
        let dims = from.take(usize::from(head.rank) * 8)?;
        let shape: Shape =
            dims.chunks_exact(8).filter_map(|dim| Some(i64::from_le_bytes(*dim.first_chunk()?))).collect();
        let elements = element_count(&shape).ok_or(Lie("a tensor has dims that are no size"))?;
        let fits = match datatype.byte_size() {
            Some(size) => (elements as u64).checked_mul(size as u64) == Some(head.bytes),
            // Each has at least its length.
            None => (elements as u64).checked_mul(4).is_some_and(|least| least <= head.bytes),
        };
        if !fits {
            return Err(Lie("a tensor has another number of bytes than its shape says"));
        }
        let contents = match Place::from_number(head.place.into()).ok_or(Lie("a tensor lies in no place there is"))? {
            Place::Inline => {
                let bytes = usize::try_from(head.bytes).map_err(|_| Lie("a tensor is too large"))?;
                let bytes = from.take(bytes)?;
                if datatype == DataType::Bytes {
                    check_strings(bytes, elements)?;
                }
                Contents::Inline(bytes)
            }
            place @ (Place::DeviceRequest | Place::DeviceResponse) => {
                let lent = DeviceTensor::read(from.head()?);
                let handle = from.head()?;
                if u64::from(head.segment) != DEVICE_SEGMENT || head.offset >> BLOCK_OFFSET_BITS != 0 {
                    return Err(Lie("a tensor on a device has no lease there can be"));
                }
                if datatype == DataType::Bytes {
                    return Err(Lie("strings lie on a device"));
                }
                if lent.offset.checked_add(head.bytes).is_none() {
                    return Err(Lie("a tensor lies outside of any memory of a device"));
                }
                Contents::Device(Lent {
                    by_host: place == Place::DeviceRequest,
                    lease: head.offset,
                    device: lent.device,
                    offset: lent.offset,
                    bytes: head.bytes,
                    handle,
                })
            }
            place => {
                let end = head.offset.checked_add(head.bytes);
                if end.is_none_or(|end| end > 1 << BLOCK_OFFSET_BITS) {
                    return Err(Lie("a tensor lies outside of any segment"));
                }
                Contents::Block(Block {
                    of_requests: place == Place::Request,
                    segment: head.segment,
                    offset: head.offset,
                    bytes: head.bytes,
                })
            }
        };
        Ok(Self { name, datatype, shape, contents })
    }
}

/// Strings in their raw form, as many as there should be.
pub(crate) fn check_strings(raw: &[u8], elements: i64) -> Result<(), Lie> {
    let mut count = 0;
    for string in Strings::new(raw) {
        string.map_err(|_| Lie("a tensor of strings is broken"))?;
        count += 1;
    }
    if count == elements { Ok(()) } else { Err(Lie("a tensor has another number of strings than its shape says")) }
}
