//! Why a request is not served: the text, and the numbers of both protocols.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tensor::Error;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The API is restricted as in Triton, and the required header is missing or has another value.
    Restricted {
        /// What the message calls a category: `API` over HTTP, `protocol` over gRPC.
        noun: &'static str,
        /// Name of the header, as configured.
        header: Arc<str>,
    },
    /// A header that authenticates the caller occurs twice in the request. A proxy in front of the server may have checked the other one.
    Repeated {
        /// Name of the header.
        header: Arc<str>,
    },
    /// The server requires a key, and the request has no valid one: the reason.
    Unauthenticated(Cow<'static, str>),
    /// The caller's key, or the place that the request comes from, does not permit this: the reason.
    Forbidden(Cow<'static, str>),
    /// Another listener answers this operation.
    NotHere {
        /// `--control-address`.
        address: Arc<str>,
    },
    /// A quota of the key is used up.
    Exhausted {
        /// Which quota, as text.
        reason: Cow<'static, str>,
        /// Time after which the client may try again.
        retry_after: Duration,
    },
}

impl Refusal {
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
            Self::NotHere { address } => {
                format!("operations that manage this server are answered at its control address, {address}").into()
            }
        }
    }

    /// Status over HTTP.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Repeated { .. } => 400,
            Self::Restricted { .. } | Self::Forbidden(_) | Self::NotHere { .. } => 403,
            Self::Unauthenticated(_) => 401,
            Self::Exhausted { .. } => 429,
        }
    }

    /// Number over gRPC.
    pub fn grpc_status(&self) -> u8 {
        match self {
            // As Triton.
            Self::Restricted { .. } => 14,
            Self::Repeated { .. } => 3,
            Self::Forbidden(_) | Self::NotHere { .. } => 7,
            Self::Unauthenticated(_) => 16,
            Self::Exhausted { .. } => 8,
        }
    }

    /// When to try again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Exhausted { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

/// In a stream a refusal is a message, which has no place for more than a text.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::Exhausted { .. } => Self::exhausted(refusal.text().into_owned()),
            Refusal::Repeated { .. } => Self::invalid(refusal.text().into_owned()),
            _ => Self::unavailable(refusal.text().into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_again_and_has_the_codes_of_its_kind() {
        let exhausted = Refusal::Exhausted { reason: "busy".into(), retry_after: Duration::from_millis(1500) };
        assert_eq!((exhausted.http_status(), exhausted.grpc_status()), (429, 8));
        assert_eq!(exhausted.retry_after(), Some(Duration::from_millis(1500)));
        let unknown = Refusal::Unauthenticated("no key".into());
        assert_eq!((unknown.http_status(), unknown.grpc_status()), (401, 16));
    }
}
