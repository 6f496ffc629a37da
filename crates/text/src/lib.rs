//! Text to tokens and token states to rows: tokenizers, the folder of a text model as hubs have it, pooling.
//!
//! No threads: the caller decides where a text is tokenised, one at a time. No I/O but the reading of a folder at a load.

pub mod folder;
pub mod pooling;
pub mod ranks;
pub mod tokenizer;
