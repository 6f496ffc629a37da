//! Reasons why the gate rejects a request: the text, and the status numbers of both protocols.

use crate::limits::RETRY_AFTER;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Error, Fault};

/// Reason why the gate rejects a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateError {
    /// The API is restricted as in Triton, and the required header is missing or has another value.
    Restricted {
        /// Noun for a category in the message: `API` over HTTP, `protocol` over gRPC.
        noun: &'static str,
        /// Name of the header, as configured.
        header: Arc<str>,
    },
    /// A header that authenticates the caller occurs twice: a proxy may have checked the other one.
    Repeated { header: Arc<str> },
    /// The server requires a key, and the request has no valid one: the reason.
    Unauthenticated(Cow<'static, str>),
    /// The caller's key or the origin of the request does not permit this: the reason.
    Forbidden(Cow<'static, str>),
    /// Another listener answers this operation.
    NotHere {
        /// `--control-address`.
        address: Arc<str>,
    },
    /// All connections are in use, and this one answers health checks only.
    Crowded,
    /// A quota of the key is used up.
    Exhausted {
        /// The message, which names the quota.
        reason: Cow<'static, str>,
        /// Time after which the client may try again.
        retry_after: Duration,
    },
}

impl GateError {
    /// Message for the client.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Restricted { noun, header } => {
                format!("This {noun} is restricted, expecting header '{header}'").into()
            }
            Self::Repeated { header } => format!("the request has more than one header '{header}': send one").into(),
            Self::Unauthenticated(reason) | Self::Forbidden(reason) | Self::Exhausted { reason, .. } => {
                Cow::Borrowed(reason)
            }
            Self::Crowded => {
                "all connections of this server are in use (nereid_connections_max, from ulimit -n), so this one \
                 serves only health checks; try again later"
                    .into()
            }
            Self::NotHere { address } => {
                format!("only the control address of this server, {address}, serves operations that manage it").into()
            }
        }
    }

    pub fn http_status(&self) -> u16 {
        match self {
            Self::Repeated { .. } => 400,
            Self::Restricted { .. } | Self::Forbidden(_) | Self::NotHere { .. } => 403,
            Self::Unauthenticated(_) => 401,
            Self::Crowded => 503,
            Self::Exhausted { .. } => 429,
        }
    }

    pub fn grpc_status(&self) -> u8 {
        match self {
            // As Triton.
            Self::Restricted { .. } | Self::Crowded => 14,
            Self::Repeated { .. } => 3,
            Self::Forbidden(_) | Self::NotHere { .. } => 7,
            Self::Unauthenticated(_) => 16,
            Self::Exhausted { .. } => 8,
        }
    }

    /// Party at fault.
    pub fn fault(&self) -> Fault {
        if matches!(self, Self::Crowded) { Fault::Environment } else { Fault::Client }
    }

    /// Time after which the client may try again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Exhausted { retry_after, .. } => Some(*retry_after),
            Self::Crowded => Some(RETRY_AFTER),
            _ => None,
        }
    }
}

/// Error in a message of a stream, which carries a text only.
impl From<GateError> for Error {
    fn from(refusal: GateError) -> Self {
        let class = match &refusal {
            GateError::Exhausted { .. } => Self::exhausted,
            GateError::Repeated { .. } => Self::invalid,
            _ => Self::unavailable,
        };
        class(refusal.text().into_owned()).by(refusal.fault()).retry(refusal.retry_after().is_some())
    }
}

/// Reason why an operation has no response: the gate rejected it, or it failed.
#[derive(Debug)]
pub enum OperationError {
    Rejected(GateError),
    Failed(Error),
}

pub type Result<T> = std::result::Result<T, OperationError>;

impl From<GateError> for OperationError {
    fn from(error: GateError) -> Self {
        Self::Rejected(error)
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_status_of_their_kind_and_a_time_to_retry() {
        let exhausted = GateError::Exhausted { reason: "busy".into(), retry_after: Duration::from_millis(1500) };
        assert_eq!((exhausted.http_status(), exhausted.grpc_status()), (429, 8));
        assert_eq!(exhausted.retry_after(), Some(Duration::from_millis(1500)));
        let unknown = GateError::Unauthenticated("no key".into());
        assert_eq!((unknown.http_status(), unknown.grpc_status()), (401, 16));
    }
}
