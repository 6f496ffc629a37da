//! Text to tokens and token states to rows: tokenizers, the folder of a text model as hubs have it, pooling.
//!
//! No threads: the caller decides where a text is tokenised, one at a time. No I/O but the reading of a folder at a
//! load.

mod files;
pub mod folder;
pub mod pooling;
pub mod ranks;
mod sentences;
pub mod tokenizer;

pub use files::{CONFIG_BYTES_MAX, TOKENIZER_BYTES_MAX};
