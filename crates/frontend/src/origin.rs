//! Origin of a connection, from the kernel. Headers of a request (`X-Forwarded-For`) can only reduce trust:
//! [`Caller::origin_of`].

use ::access::LastShown;
use std::net::{IpAddr, SocketAddr};

/// Origin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Both ends are loopback addresses: a process of this machine.
    Loopback,
    /// A Unix socket: a process of this machine that the mode of the file permits.
    Unix,
    /// Anything else, including this machine by an address that others can reach.
    Network,
}

/// Listener of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// The HTTP or gRPC listener.
    Public,
    /// Any of these, when all of its connections are in use: only health checks are answered.
    Crowded,
    /// The listener of `--control-address`.
    Control,
    /// No listener of this server: the application that embeds it received the connection.
    Embedded,
}

/// Peer of a connection, determined when the connection is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    pub origin: Origin,
    pub face: Face,
    /// Address of the peer; `None` for a Unix socket, and possibly for an embedded server.
    pub peer: Option<SocketAddr>,
}

/// Peer of a connection, with the last key that it showed.
#[derive(Debug)]
pub struct Client {
    pub caller: Caller,
    /// The last key, which need not be hashed again.
    pub last: LastShown,
}

impl From<Caller> for Client {
    fn from(caller: Caller) -> Self {
        Self { caller, last: LastShown::default() }
    }
}

/// Headers that a proxy adds to requests.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

impl Origin {
    /// Origin of a TCP connection. `local` is called only if it decides.
    pub fn of(peer: SocketAddr, local: impl FnOnce() -> Option<SocketAddr>) -> Self {
        let is_loopback = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            // A socket that takes both families sees `::ffff:127.0.0.1`.
            IpAddr::V6(ip) => ip.to_canonical().is_loopback(),
        };
        match is_loopback(peer) && local().is_some_and(is_loopback) {
            true => Self::Loopback,
            false => Self::Network,
        }
    }
}

impl Caller {
    /// Origin of a request of this connection. A request from a proxy comes from the network, whatever the proxy is:
    /// with these headers a caller can only lose permissions.
    pub fn origin_of<'a>(&self, header: impl Fn(&str) -> Option<&'a [u8]>) -> Origin {
        match self.origin {
            Origin::Network => Origin::Network,
            near if FORWARDED.iter().all(|name| header(name).is_none()) => near,
            _ => Origin::Network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_local_if_both_ends_are_loopback_addresses() {
        for (peer, local, expected) in [
            ("127.0.0.1:9", "127.0.0.1:8000", Origin::Loopback),
            ("127.8.9.1:9", "127.0.0.1:8000", Origin::Loopback),
            ("[::1]:9", "[::1]:8000", Origin::Loopback),
            ("[::ffff:127.0.0.1]:9", "[::ffff:127.0.0.1]:8000", Origin::Loopback),
            // The machine itself, by an address of the network.
            ("192.168.1.7:9", "192.168.1.7:8000", Origin::Network),
            // A packet from outside that claims to come from here, where the kernel does not drop it.
            ("127.0.0.1:9", "192.168.1.7:8000", Origin::Network),
            ("10.0.0.1:9", "127.0.0.1:8000", Origin::Network),
            ("[2001:db8::1]:9", "[2001:db8::2]:8000", Origin::Network),
            ("[::ffff:10.0.0.1]:9", "[::ffff:127.0.0.1]:8000", Origin::Network),
        ] {
            let found = Origin::of(peer.parse().unwrap(), || local.parse().ok());
            assert_eq!(found, expected, "{peer} to {local}");
        }
        assert_eq!(Origin::of("127.0.0.1:9".parse().unwrap(), || None), Origin::Network);
    }

    #[test]
    fn headers_of_proxies_reduce_trust_and_never_add_any() {
        let caller = |origin| Caller { origin, face: Face::Public, peer: None };
        for header in FORWARDED {
            let has = |name: &str| (name == header).then_some(&b"127.0.0.1"[..]);
            for origin in [Origin::Loopback, Origin::Unix, Origin::Network] {
                assert_eq!(caller(origin).origin_of(has), Origin::Network, "{header}");
                assert_eq!(caller(origin).origin_of(|_| None), origin);
            }
        }
    }
}
