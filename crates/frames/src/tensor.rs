//! Decodes one tensor of a frame: its description, and its bytes or their location.

use super::reader::{ProtocolError, Reader};
use crate::generated::{BLOCK_OFFSET_BITS, DEVICE_SEGMENT, DeviceTensor, HANDLE_BYTES, Place, RANK_MAX, TensorHead};
use tensor::strings::Strings;
use tensor::{DataType, Shape, element_count};

/// A range of a segment, as a frame describes it. `TensorMemory` checks that it is inside the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// True for a request segment, false for a response segment.
    pub of_requests: bool,
    /// Number of the segment.
    pub segment: u16,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Block {
    /// Id under which the block is returned.
    pub fn id(&self) -> u64 {
        (u64::from(self.segment) << BLOCK_OFFSET_BITS) | self.offset
    }
}

/// Device memory that one side lends the other for a tensor, as a frame describes it. `TensorMemory` checks the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent<'a> {
    /// True if the server lends it with an input, false if the runner lends it with an output.
    pub by_host: bool,
    /// Number of the lease on the lending side.
    pub lease: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Offset in the allocation of the handle, or in the lease if a runner names memory of the server.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Handle that the other side opens. Meaningless if a runner names memory of the server.
    pub handle: &'a [u8; HANDLE_BYTES as usize],
}

impl Lent<'_> {
    /// Id under which the lease is returned.
    pub fn id(&self) -> u64 {
        lease_id(self.lease)
    }
}

/// Id under which a lease is returned. No block has it.
pub fn lease_id(lease: u64) -> u64 {
    (DEVICE_SEGMENT << BLOCK_OFFSET_BITS) | lease
}

/// The lease with this id. `None` if the id is that of a block.
pub fn lease_of(id: u64) -> Option<u64> {
    (id >> BLOCK_OFFSET_BITS == DEVICE_SEGMENT).then_some(id & ((1 << BLOCK_OFFSET_BITS) - 1))
}

/// The bytes of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents<'a> {
    /// The bytes are in the frame.
    Inline(&'a [u8]),
    /// The bytes are in a segment.
    Block(Block),
    /// The bytes are on a device.
    Device(Lent<'a>),
}

impl Contents<'_> {
    /// Number of bytes.
    pub fn count(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Block(block) => block.bytes,
            Self::Device(lent) => lent.bytes,
        }
    }
}

/// A tensor as a runner describes it. Its shape and length agree. Inline strings are checked, others when copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorRef<'a> {
    /// Name.
    pub name: &'a str,
    /// Element type.
    pub datatype: DataType,
    /// All dims.
    pub shape: Shape,
    /// The bytes of the tensor.
    pub contents: Contents<'a>,
}

impl<'a> TensorRef<'a> {
    pub(crate) fn read(from: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        let head = TensorHead::read(from.head()?);
        let datatype =
            DataType::from_number(head.datatype.into()).ok_or(ProtocolError("a tensor has an unknown datatype"))?;
        let name = from.text(head.name_bytes.into())?;
        if u64::from(head.rank) > RANK_MAX {
            return Err(ProtocolError("a tensor has too many dims"));
        }
        let dims = from.take(usize::from(head.rank) * 8)?;
        let shape: Shape =
            dims.chunks_exact(8).filter_map(|dim| Some(i64::from_le_bytes(*dim.first_chunk()?))).collect();
        let elements = element_count(&shape).ok_or(ProtocolError("a tensor has invalid dims"))?;
        let fits = match datatype.byte_size() {
            Some(size) => (elements as u64).checked_mul(size as u64) == Some(head.bytes),
            // Each string has at least its four length bytes.
            None => (elements as u64).checked_mul(4).is_some_and(|least| least <= head.bytes),
        };
        if !fits {
            return Err(ProtocolError("the bytes of a tensor do not match its shape"));
        }
        let place = Place::from_number(head.place.into()).ok_or(ProtocolError("a tensor has an unknown location"))?;
        let contents = match place {
            Place::Inline => {
                let bytes = usize::try_from(head.bytes).map_err(|_| ProtocolError("a tensor is too large"))?;
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
                    return Err(ProtocolError("a tensor on a device has an impossible lease"));
                }
                if datatype == DataType::Bytes {
                    return Err(ProtocolError("strings are on a device"));
                }
                if lent.offset.checked_add(head.bytes).is_none() {
                    return Err(ProtocolError("a tensor is outside of any memory of a device"));
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
                    return Err(ProtocolError("a tensor is outside of any segment"));
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

/// Checks that raw contents are exactly `elements` valid strings.
pub fn check_strings(raw: &[u8], elements: i64) -> Result<(), ProtocolError> {
    let mut count = 0;
    for string in Strings::new(raw) {
        string.map_err(|_| ProtocolError("a tensor of strings is broken"))?;
        count += 1;
    }
    let is_whole = (count == elements).then_some(());
    is_whole.ok_or(ProtocolError("the strings of a tensor do not match its shape"))
}
