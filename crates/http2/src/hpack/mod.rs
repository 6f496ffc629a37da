//! Header compression (RFC 7541): reading with everything there is, writing with the little that pays.

mod decode;
mod encode;
mod huffman;
mod table;

pub use decode::Decoder;
pub use encode::{Encoder, Field};

/// Size of the dynamic table of everybody who did not say otherwise.
pub const TABLE_BYTES_DEFAULT: usize = 4096;
/// What an entry counts besides its name and value.
pub const ENTRY_BYTES: usize = 32;
