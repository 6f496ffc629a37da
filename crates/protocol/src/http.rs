//! The v2 protocol over HTTP: request body to [`InferRequest`](crate::InferRequest), response to body parts, metadata.
//!
//! No sockets, and no headers but the two lengths that divide a body. The front end does compression and framing.

mod encode;
mod heads;
mod input;
mod length;
mod metadata;
mod parse;
mod plain;
mod raw;
mod replies;

pub use encode::{HttpInferBody, encode_infer};
pub(crate) use encode::{classified, write_parameter};
pub use heads::HeadCache;
pub(crate) use input::reject_half;
pub use length::{parse_content_length, parse_header_length};
pub use metadata::{model_metadata_json, server_metadata_json};
pub use parse::{parse_infer, parse_infer_apart};
pub(crate) use parse::{push_parameter, read_parameter, request_id};
pub(crate) use raw::raw_shape;

use tensor::{Error, Result};

/// Limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `--http-max-input-size`: JSON text, one JSON input expanded, a raw binary body, the sum of generate inputs.
    pub input_bytes_max: usize,
    /// Most inputs, outputs and parameters of one request, each: far above any model, but limits the memory for a body
    /// of `[1,1,1,…`.
    pub entries_max: usize,
    /// Most dimensions of one input, far above any model too.
    pub dims_max: usize,
}

/// `string correlation ID cannot be longer than …`.
const CORRELATION_ID_BYTES_MAX: usize = 128;

/// Prefix of the parameters that clients may not set.
const RESERVED: &str = "triton_";

/// Most dimensions of one input, over HTTP and gRPC: error texts print them all, and two bytes of a body take eight
/// here.
pub const DIMS_MAX: usize = 1024;

impl Default for Limits {
    fn default() -> Self {
        Self { input_bytes_max: 64 << 20, entries_max: 16_384, dims_max: DIMS_MAX }
    }
}

impl Limits {
    /// Rejects JSON text that is too long (P-104).
    ///
    /// # Errors
    /// INVALID_ARG `request JSON size of …`.
    pub fn check_json(&self, bytes: usize) -> Result<()> {
        if bytes <= self.input_bytes_max {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "request JSON size of {bytes} bytes exceeds the maximum allowed input size of {} bytes. Use \
             --http-max-input-size to increase the limit.",
            self.input_bytes_max
        )))
    }

    pub(crate) fn check_entries(&self, count: usize, what: &str) -> Result<()> {
        if count <= self.entries_max {
            return Ok(());
        }
        Err(Error::invalid(format!("request names {count} {what}, more than the maximum of {}", self.entries_max)))
    }
}
