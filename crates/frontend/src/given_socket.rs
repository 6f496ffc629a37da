//! Facts about a socket that this process did not open.

/// Facts about a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenSocket {
    /// `IPv4`, `IPv6`, `unix` or `other`.
    pub family: &'static str,
    /// True for a stream socket, false for datagrams.
    pub is_stream: bool,
    /// `listen` was called on it.
    pub is_listening: bool,
    /// Port; 0 if the family has none.
    pub port: u16,
}
