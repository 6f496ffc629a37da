//! Where a connection comes from, as far as the kernel knows it. What a request says of itself (`X-Forwarded-For`) can only take
//! trust away: see [`Caller::origin_of`].

use ::access::LastShown;
use std::net::{IpAddr, SocketAddr};

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Both ends are loopback addresses: a process of this machine.
    Loopback,
    /// A Unix socket: a process of this machine that the mode of the file lets in.
    Unix,
    /// Anything else, also this machine by an address that others can reach.
    Network,
}

/// Which listener took a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// One for everybody.
    Public,
    /// That of `--control-address`.
    Control,
    /// None of ours: another server of this process received it.
    Embedded,
}

/// Who is connected. Made once, when the connection is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Where from.
    pub origin: Origin,
    /// By which listener.
    pub face: Face,
    /// The address of the other end; a Unix socket has none, and another server may not say it.
    pub peer: Option<SocketAddr>,
}

/// A connection: who is at its other end, and the key that was shown over it last.
#[derive(Debug)]
pub struct Client {
    /// Who is connected.
    pub caller: Caller,
    /// What need not be hashed again.
    pub last: LastShown,
}

impl From<Caller> for Client {
    fn from(caller: Caller) -> Self {
        Self { caller, last: LastShown::default() }
    }
}

/// What a proxy adds to the requests that it passes on.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

impl Origin {
    /// Of a TCP connection. `local` is asked only where it decides.
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
    /// Where a request of this connection comes from. One that a proxy passed on comes from the network, whoever the proxy is: such a
    /// header can only cost a caller what it would have had without.
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
    fn a_connection_is_of_this_machine_when_both_ends_are_loopback_addresses() {
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
    fn headers_of_proxies_take_trust_away_and_never_give_any() {
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
