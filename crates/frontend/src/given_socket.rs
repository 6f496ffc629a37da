//! What is known of a socket that somebody else opened.

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
