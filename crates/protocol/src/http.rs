//! The v2 protocol over HTTP: request body to [`InferRequest`](crate::InferRequest), response to body parts, and the JSON of metadata.
//!
//! No sockets and no headers beyond the two lengths whose text decides how a body is cut. Compression and framing are the front end's.

mod encode;
mod heads;
mod input;
mod length;
mod metadata;
mod parse;
mod plain;
mod raw;

pub use encode::{HttpInferBody, encode_infer};
pub(crate) use encode::{classified, write_parameter};
pub use heads::HeadCache;
pub(crate) use input::refuse_half;
pub use length::{parse_content_length, parse_header_length};
pub use metadata::{model_metadata_json, server_metadata_json};
pub use parse::parse_infer;
pub(crate) use parse::{push_parameter, request_id};

use tensor::{Error, Result};

/// Bounds of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `--http-max-input-size`: JSON text, one JSON input expanded, a raw binary body, the sum of generate inputs.
    pub input_bytes_max: usize,
    /// Inputs, outputs and parameters one request may name, each. Far above any model; bounds what a body of `[1,1,1,…` can allocate.
    pub entries_max: usize,
    /// Dimensions of one input, far above any model too.
    pub dims_max: usize,
}

/// `string correlation ID cannot be longer than …`.
const CORRELATION_ID_BYTES_MAX: usize = 128;

/// How the names of parameters begin that are not for clients.
const RESERVED: &str = "triton_";

/// Dimensions of one input over either transport: error texts print them all. A dimension costs a client two bytes and us eight.
pub const DIMS_MAX: usize = 1024;

impl Default for Limits {
    fn default() -> Self {
        Self { input_bytes_max: 64 << 20, entries_max: 16_384, dims_max: DIMS_MAX }
    }
}

impl Limits {
    /// Refuses JSON text that is too long (P-104).
    ///
    /// # Errors
    /// INVALID_ARG `request JSON size of …`.
    pub fn check_json(&self, bytes: usize) -> Result<()> {
        if bytes <= self.input_bytes_max {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "request JSON size of {bytes} bytes exceeds the maximum allowed input size of {} bytes. Use --http-max-input-size to \
             increase the limit.",
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
