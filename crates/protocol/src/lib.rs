//! The v2 inference protocol, both ways, over HTTP (JSON with binary parts) and protobuf.
//!
//! Pure: bytes in, [`InferRequest`] out; [`InferResponse`] in, bytes out. No sockets, no clocks, no model.
//! Tensors stay slices of the body they came in.

pub mod check;
pub mod classify;
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod grpc;
pub mod http;
mod infer;
pub mod json;
pub mod orca;
pub mod pb;
mod signature;
// Signatures for tests, shared with the integration tests, which know this crate by its name.
#[cfg(test)]
extern crate self as protocol;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
pub(crate) mod testing;

pub use infer::*;
pub use signature::*;

/// Entry of the HTTP fuzz target.
#[doc(hidden)]
pub fn fuzz_http(data: &[u8]) {
    fuzz::http(data);
}
