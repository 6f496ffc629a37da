//! Header compression (RFC 7541): decoding in full, encoding only with the features that pay.

mod decode;
mod encode;
mod huffman;
mod table;

pub use decode::Decoder;
pub use encode::{Encoder, Field};

/// Initial size of the dynamic table.
pub const TABLE_BYTES_DEFAULT: usize = 4096;
/// Bytes an entry counts in addition to its name and value.
pub const ENTRY_BYTES: usize = 32;
