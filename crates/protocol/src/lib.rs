//! The v2 inference protocol, both ways, over HTTP (JSON with binary parts) and protobuf.
//!
//! Pure: bytes in, [`InferRequest`] out; [`InferResponse`] in, bytes out. No sockets, no clocks, no model.
//! Tensors stay slices of the body they came in.

mod infer;
pub mod pb;
mod signature;

pub use infer::*;
pub use signature::*;
