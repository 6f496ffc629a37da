//! `ModelInferRequest`, `ModelInferResponse` and `ModelStreamInferResponse`, read and written by hand over
//! [`bytes::Bytes`] so that tensors stay slices of the message. Every other message uses [`crate::pb`].
//!
//! [`peek`] reads a message once, notes the ranges of its fields and returns the model's name; the caller finds the
//! model's signature, and [`InferHead::into_request`] makes the request. Not part of this module: finding the model,
//! the check against the signature ([`crate::Signature`]), compression and transport.
//!
//! The rules are those of Triton's protobuf library: fields come in any order, the last of a singular field wins, a
//! repeated message is merged, lists may be packed or not, and unknown fields and unexpected wire types are skipped.

mod contents;
mod decode;
mod encode;
mod parameters;
#[cfg(test)]
mod tests;
mod wire;

pub use decode::{InferHead, TENSORS_MAX, peek};
pub use encode::{Encoded, RESPONSE_BYTES_MAX, StreamFailure, encode, encode_stream_error, encode_stream_response};

use crate::Signature;
use tensor::{Error, Result};

/// True if decoding a `ModelInferRequest` costs more than decoding `bytes_max` bytes. Raw contents are not decoded and
/// do not count.
pub fn is_long(message: &[u8], bytes_max: usize) -> bool {
    wire::is_long(message, RAW_INPUT_CONTENTS, bytes_max)
}

/// Offset of the first `raw_input_contents` in a `ModelInferRequest` that starts with `beginning`. `None` if they are
/// not in `beginning`, or the message is invalid.
pub fn raw_offset(beginning: &[u8]) -> Option<usize> {
    wire::offset_of(beginning, RAW_INPUT_CONTENTS)
}

/// Model and version of a `ModelInferRequest` that starts with `beginning`, if they come first, where clients write
/// them, and are complete. Only a hint until the whole message is decoded.
pub fn model_of(beginning: &[u8]) -> Option<(&str, &str)> {
    wire::first_texts(beginning)
}

/// Field number of `raw_input_contents`.
const RAW_INPUT_CONTENTS: u32 = 7;

/// Refuses a decoupled model on the call that has exactly one response (P 2.3).
///
/// # Errors
/// UNSUPPORTED, Triton's text.
pub fn reject_decoupled(signature: &Signature) -> Result<()> {
    if signature.decoupled {
        return Err(Error::unsupported("ModelInfer RPC doesn't support models with decoupled transaction policy"));
    }
    Ok(())
}

/// gRPC fuzz target: no input may cause a panic.
#[doc(hidden)]
pub fn fuzz_grpc(data: &[u8]) {
    struct NoRegions;
    impl crate::Regions for NoRegions {
        fn resolve(&self, name: &str, _: u64, _: u64) -> Result<tensor::RegionRef> {
            Err(Error::not_found(format!("Unable to find shared memory region: '{name}'")))
        }
    }
    let _ = (model_of(data), raw_offset(data));
    if let Ok(head) = peek(&bytes::Bytes::copy_from_slice(data)) {
        let _ = head.wants_empty_final_response();
        let _ = head.into_request(&Signature::default(), &NoRegions);
    }
}
