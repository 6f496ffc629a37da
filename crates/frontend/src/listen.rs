//! Sockets that listen: one per reactor, all on one port, shared out by the kernel.

use crate::limits::ACCEPT_BACKLOG;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use tensor::{Error, Result};

/// Listeners of the socket that was given, or of the address.
///
/// # Errors
/// As [`bind`] and `given::take`.
pub fn listeners(
    given_fd: Option<i32>,
    address: &str,
    port: u16,
    reuse_port: bool,
    count: usize,
) -> Result<(u16, Vec<TcpListener>)> {
    match given_fd {
        None => bind(address, port, reuse_port, count),
        Some(fd) => crate::given::take(fd, count.max(1)),
    }
}

/// Binds `count` listeners to one port and returns the port; 0 picks a free one.
///
/// # Errors
/// UNAVAILABLE `Socket '<address>:<port>' already in use ` whatever the reason, as Triton does; the system's words follow in
/// brackets when the reason is another.
pub fn bind(address: &str, port: u16, reuse_port: bool, count: usize) -> Result<(u16, Vec<TcpListener>)> {
    let failed = |e: io::Error| {
        let used = format!("Socket '{address}:{port}' already in use ");
        Error::unavailable(match e.kind() {
            io::ErrorKind::AddrInUse => used,
            _ => format!("{used}({e})"),
        })
    };
    let resolved = (address, port).to_socket_addrs().map_err(failed)?.next();
    let mut target = resolved.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
    let share = reuse_port || count > 1;
    if share && !reuse_port && port != 0 {
        // Our own listeners share the port, which would also let us share a stranger's; asking for it alone first finds him.
        drop(listener(target, false).map_err(failed)?);
    }
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count.max(1) {
        let socket = listener(target, share).map_err(failed)?;
        target.set_port(socket.local_addr().map_err(failed)?.port());
        listeners.push(socket);
    }
    Ok((target.port(), listeners))
}

fn listener(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Only skips the wait for connections of a server that ended a moment ago; a listening one still holds its port.
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    if share {
        socket.set_reuse_port(true)?;
    }
    #[cfg(not(unix))]
    let _ = share;
    socket.bind(&address.into())?;
    socket.listen(ACCEPT_BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_an_error_with_a_trailing_blank_for_one_listener_and_for_many() {
        let (port, first) = bind("127.0.0.1", 0, false, 2).unwrap();
        assert_eq!(first.len(), 2);
        for count in [1, 2] {
            let error = bind("127.0.0.1", port, false, count).unwrap_err();
            assert_eq!(error.message(), format!("Socket '127.0.0.1:{port}' already in use "));
            assert_eq!(error.code(), tensor::Code::Unavailable);
        }
        assert!(bind("127.0.0.1", port, true, 1).is_ok(), "sharing on request");
    }
}
