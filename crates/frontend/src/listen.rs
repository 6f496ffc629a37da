//! Sockets that listen: one per reactor, all on one port, shared out by the kernel; or on one Unix socket, whose queue they share.

use crate::limits::ACCEPT_BACKLOG;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use tensor::{Error, Result};

#[cfg(unix)]
pub use crate::unix::SocketFile;

/// There are none.
#[cfg(not(unix))]
#[derive(Debug)]
pub enum SocketFile {}

/// Who may connect to a Unix socket unless the operator says otherwise: its owner and its group.
const SOCKET_MODE: u32 = 0o660;

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// At a port.
    Tcp(TcpListener),
    /// At a file.
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
}

/// Where to listen.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// A socket to take over instead.
    pub given_fd: Option<i32>,
    /// A host, or `unix:` and a path.
    pub address: &'a str,
    /// Not of a Unix socket.
    pub port: u16,
    /// Share it with other processes.
    pub reuse_port: bool,
    /// Of a Unix socket; 0 = the usual.
    pub mode: u32,
}

/// What listens there.
#[derive(Debug)]
pub struct Listening {
    /// 0 for a Unix socket.
    pub port: u16,
    /// One for each reactor.
    pub listeners: Vec<Listener>,
    /// The file, which is removed with this.
    pub file: Option<SocketFile>,
}

/// The path of an address that is a Unix socket: `unix:PATH`, or as a URI `unix:///PATH`.
pub fn unix_path(address: &str) -> Option<&str> {
    let path = address.strip_prefix("unix:")?;
    Some(path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path))
}

/// Listeners of the socket that was given, or of the address.
///
/// # Errors
/// As [`bind`], `unix::bind` and `given::take`.
pub fn listeners(wanted: Wanted<'_>, count: usize) -> Result<Listening> {
    let count = count.max(1);
    if wanted.given_fd.is_none()
        && let Some(path) = unix_path(wanted.address)
    {
        let mode = if wanted.mode == 0 { SOCKET_MODE } else { wanted.mode };
        return listen_at_file(path, mode, count);
    }
    let (port, listeners) = match wanted.given_fd {
        None => bind(wanted.address, wanted.port, wanted.reuse_port, count)?,
        Some(fd) => crate::given::take(fd, count)?,
    };
    Ok(Listening { port, listeners: listeners.into_iter().map(Listener::Tcp).collect(), file: None })
}

#[cfg(unix)]
fn listen_at_file(path: &str, mode: u32, count: usize) -> Result<Listening> {
    let (file, listeners) = crate::unix::bind(path, mode, count)?;
    let listeners = listeners.into_iter().map(Listener::Unix).collect();
    Ok(Listening { port: 0, listeners, file: Some(file) })
}

#[cfg(not(unix))]
fn listen_at_file(path: &str, _: u32, _: usize) -> Result<Listening> {
    Err(Error::unsupported(format!("Unix sockets ('{path}') are not served on this system")))
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
    fn a_unix_socket_is_named_as_grpc_names_them() {
        for (address, path) in [
            ("unix:/run/a", Some("/run/a")),
            ("unix:///run/a", Some("/run/a")),
            ("unix:a", Some("a")),
            ("unix://a", Some("//a")),
            ("unix:", Some("")),
            ("unix", None),
            ("0.0.0.0", None),
        ] {
            assert_eq!(unix_path(address), path, "{address}");
        }
    }

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
