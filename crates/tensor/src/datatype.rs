//! The fourteen datatypes of the protocol, with their numbers, protocol names and configuration names (C-04, P 1.12.3).

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

/// Every type in the order of its number: name in the protocol, name in config.pbtxt, bytes per element.
const ROWS: [(DataType, &str, &str, Option<usize>); 14] = [
    (DataType::Bool, "BOOL", "TYPE_BOOL", Some(1)),
    (DataType::Uint8, "UINT8", "TYPE_UINT8", Some(1)),
    (DataType::Uint16, "UINT16", "TYPE_UINT16", Some(2)),
    (DataType::Uint32, "UINT32", "TYPE_UINT32", Some(4)),
    (DataType::Uint64, "UINT64", "TYPE_UINT64", Some(8)),
    (DataType::Int8, "INT8", "TYPE_INT8", Some(1)),
    (DataType::Int16, "INT16", "TYPE_INT16", Some(2)),
    (DataType::Int32, "INT32", "TYPE_INT32", Some(4)),
    (DataType::Int64, "INT64", "TYPE_INT64", Some(8)),
    (DataType::Fp16, "FP16", "TYPE_FP16", Some(2)),
    (DataType::Fp32, "FP32", "TYPE_FP32", Some(4)),
    (DataType::Fp64, "FP64", "TYPE_FP64", Some(8)),
    (DataType::Bytes, "BYTES", "TYPE_STRING", None),
    (DataType::Bf16, "BF16", "TYPE_BF16", Some(2)),
];

impl DataType {
    /// Every type, in the order of its number.
    pub const ALL: [Self; 14] = {
        let mut all = [Self::Bool; 14];
        let mut i = 0;
        while i < all.len() {
            all[i] = ROWS[i].0;
            i += 1;
        }
        all
    };

    /// Name in the protocol: `FP32`, `BYTES`, ….
    pub fn name(self) -> &'static str {
        ROWS[self as usize - 1].1
    }

    /// Reads a name of the protocol; case matters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::from_bytes(name.as_bytes())
    }

    /// Reads a name of the protocol from bytes that need not be UTF-8.
    pub fn from_bytes(name: &[u8]) -> Option<Self> {
        // Repeats `ROWS`, because a search there would cost more than the rest of a small input.
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

    /// Reads a number of `inference.DataType`; `None` for 0 and unknown numbers.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// Name in config.pbtxt: `TYPE_FP32`, `TYPE_STRING`, ….
    pub fn config_name(self) -> &'static str {
        ROWS[self as usize - 1].2
    }

    /// Bytes per element; `None` for BYTES, whose elements vary.
    pub fn byte_size(self) -> Option<usize> {
        ROWS[self as usize - 1].3
    }
}

/// A number of 16 bits. Its fraction is exact in 32 bits, so that a product moves the exponent, also of small ones.
pub fn f32_of_half(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
    // 2^112: from the exponents of 16 bits to those of 32.
    let magnitude = f32::from_bits(rest) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(sign | magnitude.to_bits() | special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for (i, t) in DataType::ALL.into_iter().enumerate() {
            assert_eq!(t as usize, i + 1);
            assert_eq!(DataType::from_number(t as i32), Some(t));
            assert_eq!(DataType::from_name(t.name()), Some(t));
        }
        assert_eq!(DataType::from_number(0), None);
        assert_eq!(DataType::from_number(15), None);
        assert_eq!(DataType::from_number(-1), None);
        assert_eq!(DataType::from_name("fp32"), None);
    }
}
