//! `given` for systems without socket activation: both functions fail.

pub use crate::given_socket::GivenSocket;
use std::net::TcpListener;
use tensor::{Error, Result};

const NOT_HERE: &str = "passing sockets to a process works on Linux only";

/// Fails.
pub fn describe(_: i32) -> Result<GivenSocket> {
    Err(Error::unsupported(NOT_HERE))
}

/// Fails.
pub fn take(_: i32, _: usize) -> Result<(u16, Vec<TcpListener>)> {
    Err(Error::unsupported(NOT_HERE))
}
