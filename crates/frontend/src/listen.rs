//! Sockets that listen: one per reactor, all on one port, shared out by the kernel; or on one Unix socket, whose queue they share.

use crate::limits::ACCEPT_BACKLOG;
use crate::place::refused;
pub use crate::place::unix_path;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use tensor::Result;

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
    /// One for each reactor.
    pub listeners: Vec<Listener>,
    /// The file, which is removed with this.
    pub file: Option<SocketFile>,
}

/// A place that is taken, and where nothing listens yet: clients are refused.
#[derive(Debug)]
pub struct Held {
    /// 0 for a Unix socket.
    pub port: u16,
    sockets: Sockets,
}

#[derive(Debug)]
enum Sockets {
    /// One for each reactor, and what they are bound to.
    Tcp(Vec<Socket>, String),
    /// What the service manager gave listens already.
    Given(Vec<TcpListener>),
    #[cfg(unix)]
    Unix(crate::unix::Held, usize),
}

impl Held {
    /// Listens.
    ///
    /// # Errors
    /// As [`hold`], where another process came first.
    pub fn listen(self) -> Result<Listening> {
        let tcp = |listeners: Vec<TcpListener>| listeners.into_iter().map(Listener::Tcp).collect();
        Ok(match self.sockets {
            Sockets::Given(listeners) => Listening { listeners: tcp(listeners), file: None },
            Sockets::Tcp(sockets, place) => {
                let listening = sockets.into_iter().map(listen).collect::<io::Result<_>>();
                Listening { listeners: tcp(listening.map_err(|e| refused(&place, &e))?), file: None }
            }
            #[cfg(unix)]
            Sockets::Unix(held, count) => {
                let (file, listeners) = held.listen(count)?;
                Listening { listeners: listeners.into_iter().map(Listener::Unix).collect(), file: Some(file) }
            }
        })
    }

    /// The descriptor of the socket at a port, for a server of this process that listens there itself and owns it from now on.
    #[cfg(unix)]
    pub fn into_descriptor(self) -> Option<i32> {
        let Sockets::Tcp(mut sockets, _) = self.sockets else { return None };
        let socket = sockets.pop()?;
        // As in `listen`.
        socket.set_reuse_address(true).ok()?;
        Some(std::os::fd::IntoRawFd::into_raw_fd(socket))
    }

    /// There are none here: that server binds its own socket.
    #[cfg(not(unix))]
    pub fn into_descriptor(self) -> Option<i32> {
        None
    }
}

/// Takes the socket that was given, or binds what the address says, for `count` listeners.
///
/// # Errors
/// As [`bind`], `unix::bind` and `given::take`.
pub fn hold(wanted: Wanted<'_>, count: usize) -> Result<Held> {
    let count = count.max(1);
    if let Some(fd) = wanted.given_fd {
        let (port, listeners) = crate::given::take(fd, count)?;
        return Ok(Held { port, sockets: Sockets::Given(listeners) });
    }
    if let Some(path) = unix_path(wanted.address) {
        return hold_file(path, if wanted.mode == 0 { SOCKET_MODE } else { wanted.mode }, count);
    }
    let (port, sockets) = bind(wanted.address, wanted.port, wanted.reuse_port, count)?;
    Ok(Held { port, sockets: Sockets::Tcp(sockets, format!("{}:{port}", wanted.address)) })
}

#[cfg(unix)]
fn hold_file(path: &str, mode: u32, count: usize) -> Result<Held> {
    Ok(Held { port: 0, sockets: Sockets::Unix(crate::unix::bind(path, mode)?, count) })
}

#[cfg(not(unix))]
fn hold_file(path: &str, _: u32, _: usize) -> Result<Held> {
    Err(tensor::Error::unsupported(format!("Unix sockets ('{path}') are not served on this system")))
}

/// Binds `count` sockets to one port and returns the port; 0 picks a free one.
///
/// # Errors
/// As [`refused`].
fn bind(address: &str, port: u16, reuse_port: bool, count: usize) -> Result<(u16, Vec<Socket>)> {
    let failed = |e: io::Error| refused(&format!("{address}:{port}"), &e);
    let resolved = (address, port).to_socket_addrs().map_err(failed)?.next();
    let mut target = resolved.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
    let share = reuse_port || count > 1;
    // Our own sockets share the port, which would also let us share a stranger's; asking for it alone first finds him.
    let alone = !reuse_port && port != 0;
    let mut reuse_address = reuse_port;
    let mut first = socket(target, reuse_address, share && !alone);
    if alone && first.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) {
        // Needed where connections of a server that ended a moment ago are still being waited for. Not longer than that: with it two servers that
        // start at the same time could have the same port until one of them listens.
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
        // It counts when something binds: a server that starts meanwhile, and asks for it as well, is refused.
        for socket in &sockets {
            socket.set_reuse_address(false).map_err(failed)?;
        }
    }
    Ok((target.port(), sockets))
}

/// A socket that is bound.
fn socket(address: SocketAddr, reuse_address: bool, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(reuse_address)?;
    #[cfg(unix)]
    if share {
        socket.set_reuse_port(true)?;
    }
    #[cfg(not(unix))]
    let _ = share;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    // Its connections inherit it. Where they are still being waited for, the next server binds with it, too.
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
        let wanted = |port, reuse_port| Wanted { given_fd: None, address: "127.0.0.1", port, reuse_port, mode: 0 };
        let first = hold(wanted(0, false), 2).unwrap();
        let port = first.port;
        let refused = || {
            for count in [1, 2] {
                let error = hold(wanted(port, false), count).unwrap_err();
                assert_eq!(error.message(), format!("Socket '127.0.0.1:{port}' already in use "));
                assert_eq!(error.code(), tensor::Code::Unavailable);
            }
        };
        // Bound is enough, also for a server that starts at the same time; clients are refused until it listens.
        refused();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        let first = first.listen().unwrap();
        assert_eq!(first.listeners.len(), 2);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        refused();
        assert!(hold(wanted(port, true), 1).is_ok(), "sharing on request");
    }

    #[test]
    fn an_address_that_can_not_be_had_is_not_said_to_be_in_use() {
        for (address, told) in [
            ("192.0.2.1", "; no interface of this machine has this address"),
            ("no host", "can not be listened to: failed to lookup address information"),
            ("localhost:80", "can not be listened to: failed to lookup address information"),
            ("unix:/no/such/directory", "can not be listened to: No such file or directory"),
        ] {
            let error = hold(Wanted { given_fd: None, address, port: 0, reuse_port: false, mode: 0 }, 1).unwrap_err();
            assert_eq!(error.code(), tensor::Code::InvalidArg, "{error:?}");
            assert!(error.message().contains(told) && !error.message().contains("in use"), "{error:?}");
        }
        let closed = refused("0.0.0.0:80", &io::ErrorKind::PermissionDenied.into());
        assert!(closed.message().ends_with("; ports below 1024 are for root and those with CAP_NET_BIND_SERVICE"));
    }

    #[test]
    fn the_port_of_a_server_that_ended_with_connections_is_bound_again() {
        for count in [1, 2] {
            let wanted = |port| Wanted { given_fd: None, address: "127.0.0.1", port, reuse_port: false, mode: 0 };
            let held = hold(wanted(0), count).unwrap();
            let port = held.port;
            let listening = held.listen().unwrap();
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let accepted = listening.listeners.iter().cycle().find_map(|listener| match listener {
                Listener::Tcp(listener) => listener.accept().ok(),
                Listener::Unix(_) => None,
            });
            // The server's end is closed first: it is the one that waits.
            drop((accepted, listening));
            drop(client);
            let again = hold(wanted(port), count).unwrap();
            assert!(hold(wanted(port), count).is_err(), "the next one that starts meanwhile");
            assert!(again.listen().is_ok());
        }
    }
}
