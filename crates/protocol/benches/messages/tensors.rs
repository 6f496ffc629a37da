//! Contents of tensors: the same in every run, and similar to real requests.

use bytes::Bytes;
use tensor::{DataType, strings};

/// Letters per string: with its length it takes 16 bytes.
const STRING_BYTES: usize = 12;

/// A multiplicative generator, random enough that no branch predictor learns the digits.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number in -1..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }
}

/// `bytes` bytes of a tensor: floats in -1..1, integers that could be token ids, strings of twelve letters.
pub fn contents(datatype: DataType, bytes: usize) -> Bytes {
    let mut random = Random::new();
    let mut raw = Vec::with_capacity(bytes);
    while raw.len() < bytes {
        match datatype {
            DataType::Fp32 => raw.extend_from_slice(&(random.unit() as f32).to_le_bytes()),
            DataType::Int64 => raw.extend_from_slice(&(random.next() % 30_522).to_le_bytes()),
            DataType::Fp16 => raw.extend_from_slice(&(random.next() as u16).to_le_bytes()),
            DataType::Bool => raw.push((random.next() >> 32) as u8 & 1),
            DataType::Bytes => {
                let letter = |r: &mut Random| b'a' + ((r.next() >> 32) % 26) as u8;
                let text: [u8; STRING_BYTES] = std::array::from_fn(|_| letter(&mut random));
                strings::push(&mut raw, &text);
            }
            other => unimplemented!("{other:?} is not measured"),
        }
    }
    raw.into()
}

pub fn elements(datatype: DataType, raw: &[u8]) -> i64 {
    (raw.len() / datatype.byte_size().unwrap_or(STRING_BYTES + 4)) as i64
}
