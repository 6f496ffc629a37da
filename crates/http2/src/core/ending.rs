//! Ends of connections.

use crate::frame::Reason;

/// Progress of closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    No,
    /// We sent GOAWAY and the client has not acknowledged it; calls it sent meanwhile are served.
    Announced,
    /// Calls up to this id are served.
    After(u32),
    /// Nothing is read or served; the output ends with the last frame.
    Failed,
}

/// Error that ends the connection.
pub struct Fatal(pub Reason, pub &'static str);
