//! Keys files, for commands.

use crate::failure::{Result, thrown};
use napi_derive::napi;
use tensor::Error;

/// Reads a keys file as a server does; throws what is wrong with it, and where.
#[napi]
pub fn check_keys(text: String) -> Result<()> {
    access::Keys::parse(text.as_bytes(), None).map(drop).map_err(|e| thrown(&Error::invalid(e.to_string())))
}
