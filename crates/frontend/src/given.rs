//! Sockets that a service manager opened before it started this process. It keeps them open, so a connection that
//! arrives while no server runs waits for the next one.
//!
//! The caller assigns sockets to front ends, by [`describe`]. [`take`] owns the descriptor from then on.
#![allow(unsafe_code)]

pub use crate::given_socket::GivenSocket;
use socket2::{Domain, SockRef, Socket, Type};
use std::io;
use std::mem::ManuallyDrop;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, RawFd};
use std::sync::Mutex;
use tensor::{Error, Result};

/// Descriptors that belong to a listener of this process.
static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Describes a descriptor, and makes it close-on-exec.
///
/// # Errors
/// INVALID_ARG if it is not an open socket.
pub fn describe(fd: RawFd) -> Result<GivenSocket> {
    let socket = borrow(fd)?;
    let failed = |e: io::Error| Error::invalid(format!("descriptor {fd} cannot be inspected: {e}"));
    socket.set_cloexec(true).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    let family = match address.domain() {
        Domain::IPV4 => "IPv4",
        Domain::IPV6 => "IPv6",
        Domain::UNIX => "unix",
        _ => "other",
    };
    Ok(GivenSocket {
        family,
        is_stream: socket.r#type().map_err(failed)? == Type::STREAM,
        is_listening: SockRef::from(&*socket).is_listener().map_err(failed)?,
        port: address.as_socket().map_or(0, |a| a.port()),
    })
}

/// Makes `count` listeners of a descriptor, which share its queue of connections, and returns them with its port.
///
/// # Errors
/// INVALID_ARG if it is not a listening TCP socket, or was taken before.
pub fn take(fd: RawFd, count: usize) -> Result<(u16, Vec<TcpListener>)> {
    let socket = describe(fd)?;
    if !socket.is_stream || !socket.is_listening || socket.port == 0 {
        return Err(Error::invalid(format!("descriptor {fd} is not a listening TCP socket")));
    }
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if taken.contains(&fd) {
        return Err(Error::invalid(format!("descriptor {fd} was taken before")));
    }
    taken.push(fd);
    drop(taken);
    // SAFETY: `describe` found an open socket. Nothing else in this process owns it: the service manager passed it to
    // this process at start, the caller names such descriptors only, and `TAKEN` lets each through once.
    let listener = unsafe { TcpListener::from_raw_fd(fd) };
    let failed = |e: io::Error| Error::unavailable(format!("descriptor {fd} can not be listened to: {e}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let mut listeners = Vec::with_capacity(count);
    for _ in 1..count {
        listeners.push(listener.try_clone().map_err(failed)?);
    }
    listeners.push(listener);
    Ok((socket.port, listeners))
}

/// The socket at a descriptor, which stays open.
fn borrow(fd: RawFd) -> Result<ManuallyDrop<Socket>> {
    // Systems without /proc have no service managers of this kind.
    let is_socket = fd >= 0
        && std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
    if !is_socket {
        return Err(Error::invalid(format!("descriptor {fd} is not an open socket")));
    }
    // SAFETY: the descriptor is an open socket according to /proc, and dropping this value does not close it.
    Ok(ManuallyDrop::new(unsafe { Socket::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpStream, UdpSocket};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_listening_socket_is_taken_once_and_its_listeners_share_the_queue() {
        let given = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = given.local_addr().unwrap().port();
        let ours = given.try_clone().unwrap().into_raw_fd();
        let found = GivenSocket { family: "IPv4", is_stream: true, is_listening: true, port };
        assert_eq!(describe(ours).unwrap(), found);
        let (taken_port, listeners) = take(ours, 2).unwrap();
        assert_eq!((taken_port, listeners.len()), (port, 2));
        assert!(take(ours, 1).unwrap_err().message().ends_with("was taken before"));
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"x").unwrap();
        let mut accepted = listeners[1].accept().unwrap().0;
        accepted.set_nonblocking(false).unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        drop(listeners);
        // The other owner's descriptor is still open: a connection waits there.
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    #[test]
    fn a_descriptor_that_is_no_listening_tcp_socket_is_described_and_rejected() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!describe(udp.as_raw_fd()).unwrap().is_stream);
        let stream = socket2::Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        let found = describe(stream.as_raw_fd()).unwrap();
        assert_eq!((found.family, found.is_stream, found.is_listening), ("IPv6", true, false));
        let directory = std::env::temp_dir().join(format!("nereid_given_{}", std::process::id()));
        let unix = UnixListener::bind(&directory).unwrap();
        std::fs::remove_file(&directory).unwrap();
        assert_eq!(describe(unix.as_raw_fd()).unwrap().family, "unix");
        for fd in [udp.as_raw_fd(), stream.as_raw_fd(), unix.as_raw_fd()] {
            assert!(take(fd, 1).unwrap_err().message().ends_with("is not a listening TCP socket"));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        for fd in [file.as_raw_fd(), -1, 1_000_000] {
            assert!(describe(fd).unwrap_err().message().ends_with("is not an open socket"), "{fd}");
        }
    }
}
