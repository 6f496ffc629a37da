//! Encodes and decodes the v2 inference protocol over HTTP (JSON with binary parts) and protobuf.
//!
//! Pure: bytes to [`InferRequest`], [`InferResponse`] to bytes; no sockets, clocks or models.
//! Tensors of a request stay slices of its body.

pub mod check;
pub mod classify;
pub mod files;
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod grpc;
pub mod http;
mod infer;
pub mod json;
mod model_config;
pub mod orca;
pub mod pb;
mod signature;
pub mod text;
// The test signatures are shared with the integration tests, which use this crate by its name.
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
