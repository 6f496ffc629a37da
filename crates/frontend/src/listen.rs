//! Listening sockets: one per reactor on the same port, among which the kernel distributes connections; or one Unix
//! socket, whose queue all reactors share.

use crate::limits::ACCEPT_BACKLOG;
use crate::place::bind_error;
pub use crate::place::unix_path;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use tensor::Result;

pub use crate::unix::SocketFile;

/// Default mode of a Unix socket: its owner and its group may connect.
const SOCKET_MODE: u32 = 0o660;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

#[derive(Debug, Clone, Copy)]
pub struct ListenAddress<'a> {
    /// A socket to take over instead of binding one.
    pub given_fd: Option<i32>,
    /// A host, or `unix:` and a path.
    pub address: &'a str,
    /// Port; ignored for a Unix socket.
    pub port: u16,
    /// Share the port with other processes.
    pub reuse_port: bool,
    /// Mode of a Unix socket; 0 = the default.
    pub mode: u32,
}

/// Listeners of one front end.
#[derive(Debug)]
pub struct Listening {
    /// One listener per reactor.
    pub listeners: Vec<Listener>,
    /// File of the Unix socket, removed when this is dropped.
    pub file: Option<SocketFile>,
}

/// An address that is bound and does not listen yet: connections are rejected.
#[derive(Debug)]
pub struct BoundListener {
    /// Port; 0 for a Unix socket.
    pub port: u16,
    sockets: Sockets,
}

#[derive(Debug)]
enum Sockets {
    /// One socket per reactor, and their address.
    Tcp(Vec<Socket>, String),
    /// Listening sockets of the service manager.
    Given(Vec<TcpListener>),
    Unix(crate::unix::BoundSocketFile, usize),
}

impl BoundListener {
    /// Listens.
    ///
    /// # Errors
    /// UNAVAILABLE if another process took the port meanwhile.
    pub fn listen(self) -> Result<Listening> {
        let tcp = |listeners: Vec<TcpListener>| listeners.into_iter().map(Listener::Tcp).collect();
        Ok(match self.sockets {
            Sockets::Given(listeners) => Listening { listeners: tcp(listeners), file: None },
            Sockets::Tcp(sockets, address) => {
                let listening = sockets.into_iter().map(listen).collect::<io::Result<_>>();
                Listening { listeners: tcp(listening.map_err(|e| bind_error(&address, &e))?), file: None }
            }
            Sockets::Unix(bound, count) => {
                let (file, listeners) = bound.listen(count)?;
                Listening { listeners: listeners.into_iter().map(Listener::Unix).collect(), file: Some(file) }
            }
        })
    }

    /// The descriptor of the TCP socket, owned by the caller, which listens on it itself.
    pub fn into_descriptor(self) -> Option<i32> {
        let Sockets::Tcp(mut sockets, _) = self.sockets else { return None };
        let socket = sockets.pop()?;
        socket.set_reuse_address(true).ok()?;
        Some(std::os::fd::IntoRawFd::into_raw_fd(socket))
    }
}

/// Takes over the given socket, or binds the address, for `count` listeners.
///
/// # Errors
/// UNAVAILABLE if another process has the address; INVALID_ARG if it, a path or a descriptor cannot be used.
pub fn bind(at: ListenAddress<'_>, count: usize) -> Result<BoundListener> {
    let count = count.max(1);
    if let Some(fd) = at.given_fd {
        let (port, listeners) = crate::given::take(fd, count)?;
        return Ok(BoundListener { port, sockets: Sockets::Given(listeners) });
    }
    if let Some(path) = unix_path(at.address) {
        let mode = if at.mode == 0 { SOCKET_MODE } else { at.mode };
        return Ok(BoundListener { port: 0, sockets: Sockets::Unix(crate::unix::bind(path, mode)?, count) });
    }
    let (port, sockets) = bind_port(at.address, at.port, at.reuse_port, count)?;
    Ok(BoundListener { port, sockets: Sockets::Tcp(sockets, format!("{}:{port}", at.address)) })
}

/// Binds `count` sockets to one port and returns the port; 0 picks a free one.
///
/// # Errors
/// UNAVAILABLE if another process has the address; INVALID_ARG if it cannot be bound.
fn bind_port(address: &str, port: u16, reuse_port: bool, count: usize) -> Result<(u16, Vec<Socket>)> {
    let failed = |e: io::Error| bind_error(&format!("{address}:{port}"), &e);
    let resolved = (address, port).to_socket_addrs().map_err(failed)?.next();
    let mut target = resolved.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
    let share = reuse_port || count > 1;
    // SO_REUSEPORT, which several sockets need, would also share the port of another server. Binds without it first.
    let alone = !reuse_port && port != 0;
    let mut reuse_address = reuse_port;
    let mut first = socket(target, reuse_address, share && !alone);
    if alone && first.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) {
        // Needed while connections of a server that just ended are in TIME_WAIT. Not used otherwise: two servers that
        // start at the same time could bind the same port until one of them listens.
        reuse_address = true;
        first = socket(target, true, false);
    }
    let first = first.map_err(failed)?;
    target.set_port(first.local_addr().map_err(failed)?.as_socket().map_or(0, |at| at.port()));
    let mut sockets = Vec::with_capacity(count);
    if alone && share {
        drop(first)
    } else {
        sockets.push(first)
    }
    while sockets.len() < count {
        sockets.push(socket(target, reuse_address, share).map_err(failed)?);
    }
    if reuse_address && !reuse_port {
        // The option counts when another socket binds: a server that starts meanwhile and sets it as well is rejected.
        for socket in &sockets {
            socket.set_reuse_address(false).map_err(failed)?;
        }
    }
    Ok((target.port(), sockets))
}

/// Creates and binds a socket.
fn socket(address: SocketAddr, reuse_address: bool, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(reuse_address)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    // Connections inherit it. While they are in TIME_WAIT, the next server can bind if it sets the option as well.
    socket.set_reuse_address(true)?;
    socket.listen(ACCEPT_BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn addresses_of_unix_sockets_have_the_forms_of_grpc() {
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
        let at = |port, reuse_port| ListenAddress { given_fd: None, address: "127.0.0.1", port, reuse_port, mode: 0 };
        let first = bind(at(0, false), 2).unwrap();
        let port = first.port;
        let refused = || {
            for count in [1, 2] {
                let error = bind(at(port, false), count).unwrap_err();
                assert_eq!(error.message(), format!("Socket '127.0.0.1:{port}' already in use "));
                assert_eq!(error.code(), tensor::Code::Unavailable);
            }
        };
        // A bound port is taken, also for a server that starts at the same time; connections fail until it listens.
        refused();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        let first = first.listen().unwrap();
        assert_eq!(first.listeners.len(), 2);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        refused();
        assert!(bind(at(port, true), 1).is_ok(), "sharing on request");
    }

    #[test]
    fn an_unavailable_address_is_not_reported_as_in_use() {
        for (address, expected) in [
            ("192.0.2.1", "; this machine has no interface with this address"),
            ("no host", "can not be listened to: failed to lookup address information"),
            ("localhost:80", "can not be listened to: failed to lookup address information"),
            ("unix:/no/such/directory", "can not be listened to: No such file or directory"),
        ] {
            let error =
                bind(ListenAddress { given_fd: None, address, port: 0, reuse_port: false, mode: 0 }, 1).unwrap_err();
            assert_eq!(error.code(), tensor::Code::InvalidArg, "{error:?}");
            assert!(error.message().contains(expected) && !error.message().contains("in use"), "{error:?}");
        }
        let closed = bind_error("0.0.0.0:80", &io::ErrorKind::PermissionDenied.into());
        assert!(closed.message().ends_with("; ports below 1024 are for root and those with CAP_NET_BIND_SERVICE"));
    }

    #[test]
    fn the_port_of_a_server_that_ended_with_connections_is_bound_again() {
        for count in [1, 2] {
            let at = |port| ListenAddress { given_fd: None, address: "127.0.0.1", port, reuse_port: false, mode: 0 };
            let bound = bind(at(0), count).unwrap();
            let port = bound.port;
            let listening = bound.listen().unwrap();
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let accepted = listening.listeners.iter().cycle().find_map(|listener| match listener {
                Listener::Tcp(listener) => listener.accept().ok(),
                Listener::Unix(_) => None,
            });
            // The server closes first, so its end is in TIME_WAIT.
            drop((accepted, listening));
            drop(client);
            let again = bind(at(port), count).unwrap();
            assert!(bind(at(port), count).is_err(), "the next one that starts meanwhile");
            assert!(again.listen().is_ok());
        }
    }
}
