//! As `given`, where no service manager gives sockets.

use std::net::TcpListener;
use tensor::{Error, Result};

/// What a descriptor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenSocket {
    /// `IPv4`, `IPv6`, `unix` or `other`.
    pub family: &'static str,
    /// A stream socket, not of datagrams.
    pub is_stream: bool,
    /// `listen` was called on it.
    pub is_listening: bool,
    /// 0 where the family has none.
    pub port: u16,
}

const NOT_HERE: &str = "sockets can be given to a process on Linux only";

/// Looks at no descriptor.
///
/// # Errors
/// UNSUPPORTED, always.
pub fn describe(_: i32) -> Result<GivenSocket> {
    Err(Error::unsupported(NOT_HERE))
}

/// Takes no descriptor.
///
/// # Errors
/// UNSUPPORTED, always.
pub fn take(_: i32, _: usize) -> Result<(u16, Vec<TcpListener>)> {
    Err(Error::unsupported(NOT_HERE))
}
