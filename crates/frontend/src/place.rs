//! Addresses of listeners, and errors of binding them.

use std::io;
use tensor::Error;

/// The path of an address that is a Unix socket: `unix:PATH`, or as a URI `unix:///PATH`.
pub fn unix_path(address: &str) -> Option<&str> {
    let path = address.strip_prefix("unix:")?;
    Some(path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path))
}

/// UNAVAILABLE `Socket '<address>' already in use `, Triton's text, if another process has it; INVALID_ARG with the
/// text of the system otherwise.
pub fn bind_error(place: &str, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => return Error::unavailable(format!("Socket '{place}' already in use ")),
        io::ErrorKind::AddrNotAvailable => "; this machine has no interface with this address",
        io::ErrorKind::PermissionDenied if unix_path(place).is_none() => {
            "; ports below 1024 are for root and those with CAP_NET_BIND_SERVICE"
        }
        _ => "",
    };
    Error::invalid(format!("Socket '{place}' can not be listened to: {error}{advice}"))
}
