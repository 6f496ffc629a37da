//! As `given`, where no service manager gives sockets.

pub use crate::given_socket::GivenSocket;
use std::net::TcpListener;
use tensor::{Error, Result};

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
