//! Keys files, for commands.

use napi_derive::napi;

/// Reads a keys file as a server does; throws what is wrong with it, and where.
#[napi]
pub fn check_keys(text: String) -> napi::Result<()> {
    access::Keys::parse(text.as_bytes(), None).map(drop).map_err(|e| napi::Error::from_reason(e.to_string()))
}
