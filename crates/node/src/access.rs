//! Keys files, for commands.

use crate::failure::{Result, thrown};
use napi_derive::napi;
use tensor::Error;

/// Reads a keys file as a server does; throws its first mistake and where it is.
#[napi]
pub fn check_keys(text: String) -> Result<()> {
    access::Keys::parse(text.as_bytes(), None).map(drop).map_err(|e| thrown(&Error::invalid(e.to_string())))
}
