//! How connections end.

use crate::frame::Reason;

/// How far the end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    No,
    /// The client was asked to leave and has not answered: what it sent meanwhile is served.
    Asked,
    /// Calls up to this one are served.
    After(u32),
    /// Nothing is read or served; what is in the output is the last word.
    Failed,
}

/// Why a connection has to end.
pub struct Fatal(pub Reason, pub &'static str);
