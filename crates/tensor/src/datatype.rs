//! The fourteen element types of the protocol and their names in its three vocabularies (C-04, P 1.12.3).

/// Element type of a tensor. The discriminant is the number in `inference.DataType`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum DataType {
    Bool = 1,
    Uint8 = 2,
    Uint16 = 3,
    Uint32 = 4,
    Uint64 = 5,
    Int8 = 6,
    Int16 = 7,
    Int32 = 8,
    Int64 = 9,
    Fp16 = 10,
    Fp32 = 11,
    Fp64 = 12,
    /// `BYTES` on the wire, `TYPE_STRING` in a configuration.
    Bytes = 13,
    Bf16 = 14,
}

impl DataType {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
        Self::Bf16,
    ];

    /// The name clients use, `FP32`, `BYTES`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bytes => "BYTES",
            Self::Bf16 => "BF16",
        }
    }

    /// Reads a protocol name; case matters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::from_bytes(name.as_bytes())
    }

    /// As [`Self::from_name`], of text that was not looked at: no name is anything but ASCII.
    pub fn from_bytes(name: &[u8]) -> Option<Self> {
        // What `name` says, the other way round; a search through all names would cost more than the rest of a small input.
        Some(match name {
            b"BOOL" => Self::Bool,
            b"UINT8" => Self::Uint8,
            b"UINT16" => Self::Uint16,
            b"UINT32" => Self::Uint32,
            b"UINT64" => Self::Uint64,
            b"INT8" => Self::Int8,
            b"INT16" => Self::Int16,
            b"INT32" => Self::Int32,
            b"INT64" => Self::Int64,
            b"FP16" => Self::Fp16,
            b"FP32" => Self::Fp32,
            b"FP64" => Self::Fp64,
            b"BYTES" => Self::Bytes,
            b"BF16" => Self::Bf16,
            _ => return None,
        })
    }

    /// Reads the number used in `inference.DataType`; 0 and unknown numbers are no type.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// The name used in config.pbtxt, `TYPE_FP32`, `TYPE_STRING`, ….
    pub fn config_name(self) -> &'static str {
        match self {
            Self::Bool => "TYPE_BOOL",
            Self::Uint8 => "TYPE_UINT8",
            Self::Uint16 => "TYPE_UINT16",
            Self::Uint32 => "TYPE_UINT32",
            Self::Uint64 => "TYPE_UINT64",
            Self::Int8 => "TYPE_INT8",
            Self::Int16 => "TYPE_INT16",
            Self::Int32 => "TYPE_INT32",
            Self::Int64 => "TYPE_INT64",
            Self::Fp16 => "TYPE_FP16",
            Self::Fp32 => "TYPE_FP32",
            Self::Fp64 => "TYPE_FP64",
            Self::Bytes => "TYPE_STRING",
            Self::Bf16 => "TYPE_BF16",
        }
    }

    /// Bytes per element; `None` for BYTES, whose elements differ.
    pub fn byte_size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for t in DataType::ALL {
            assert_eq!(DataType::from_number(t as i32), Some(t));
            assert_eq!(DataType::from_name(t.name()), Some(t));
        }
        assert_eq!(DataType::from_number(0), None);
        assert_eq!(DataType::from_number(15), None);
        assert_eq!(DataType::from_number(-1), None);
        assert_eq!(DataType::from_name("fp32"), None);
    }
}
