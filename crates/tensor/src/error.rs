//! The one error type that reaches clients. Code decides status and behaviour; the text is for people,
//! and is Triton's text wherever Triton has one, because clients match on it (P 0.1).

use std::borrow::Cow;
use std::fmt;

/// Result of anything a client can cause to fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Class of a failure: the only thing code and clients may branch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Code {
    Unknown = 0,
    Internal = 1,
    NotFound = 2,
    InvalidArg = 3,
    Unavailable = 4,
    Unsupported = 5,
    AlreadyExists = 6,
    Cancelled = 7,
}

impl Code {
    /// Every class, in the order of its number across the TypeScript boundary.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Internal,
        Self::NotFound,
        Self::InvalidArg,
        Self::Unavailable,
        Self::Unsupported,
        Self::AlreadyExists,
        Self::Cancelled,
    ];

    /// HTTP status of the class.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Unknown | Self::InvalidArg | Self::AlreadyExists | Self::Cancelled => 400,
            Self::Internal => 500,
            Self::NotFound => 404,
            Self::Unavailable => 503,
            Self::Unsupported => 501,
        }
    }

    /// gRPC status number of the class.
    pub fn grpc_status(self) -> u8 {
        match self {
            Self::Unknown => 2,
            Self::Internal => 13,
            Self::NotFound => 5,
            Self::InvalidArg => 3,
            Self::Unavailable => 14,
            Self::Unsupported => 12,
            Self::AlreadyExists => 6,
            Self::Cancelled => 1,
        }
    }

    /// The class as it stands in state reasons, `Invalid argument: …`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Internal => "Internal",
            Self::NotFound => "Not found",
            Self::InvalidArg => "Invalid argument",
            Self::Unavailable => "Unavailable",
            Self::Unsupported => "Unsupported",
            Self::AlreadyExists => "Already exists",
            Self::Cancelled => "<invalid code>",
        }
    }
}

/// A failure with its class and the text the client sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    code: Code,
    message: Cow<'static, str>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident),* $(,)?) => {
        $( $(#[$doc])* pub fn $name(message: impl Into<Cow<'static, str>>) -> Self { Self::new(Code::$code, message) } )*
    };
}

impl Error {
    /// An error of the given class.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    constructors! {
        /// Class UNKNOWN.
        unknown => Unknown,
        /// Class INTERNAL: our fault, a backend's fault, or broken JSON.
        internal => Internal,
        /// Class NOT_FOUND.
        not_found => NotFound,
        /// Class INVALID_ARG: the request cannot be right.
        invalid => InvalidArg,
        /// Class UNAVAILABLE: the same request may succeed later.
        unavailable => Unavailable,
        /// Class UNSUPPORTED.
        unsupported => Unsupported,
        /// Class ALREADY_EXISTS.
        already_exists => AlreadyExists,
        /// Class CANCELLED.
        cancelled => Cancelled,
    }

    /// The class.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The text for the client.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same class with `prefix` put before the text.
    pub fn prefixed(self, prefix: impl fmt::Display) -> Self {
        Self { code: self.code, message: format!("{prefix}{}", self.message).into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
