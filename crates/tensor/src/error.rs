//! The only error type that reaches clients. The code decides status and behaviour. The text is for people, and is
//! Triton's text where Triton has one, because clients match on it (P 0.1).

use std::borrow::Cow;
use std::fmt;

/// Result of anything a client can cause to fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Longest text of an error in bytes; a longer one is cut, with a note. Texts repeat names and values from requests and
/// files, which may have any length, and gRPC clients accept 8 KiB of metadata.
pub const ERROR_BYTES_MAX: usize = 4096;

/// Class of a failure: the only part of an error that code and clients may branch on.
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
    ResourceExhausted = 8,
}

impl Code {
    /// Every class, in the order of its number.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Internal,
        Self::NotFound,
        Self::InvalidArg,
        Self::Unavailable,
        Self::Unsupported,
        Self::AlreadyExists,
        Self::Cancelled,
        Self::ResourceExhausted,
    ];

    /// Constant, name, HTTP status, gRPC status, usual fault, and whether a repeat usually helps.
    const fn row(self) -> (&'static str, &'static str, u16, u8, Fault, bool) {
        match self {
            Self::Unknown => ("UNKNOWN", "Unknown", 400, 2, Fault::Server, false),
            Self::Internal => ("INTERNAL", "Internal", 500, 13, Fault::Server, false),
            Self::NotFound => ("NOT_FOUND", "Not found", 404, 5, Fault::Client, false),
            Self::InvalidArg => ("INVALID_ARG", "Invalid argument", 400, 3, Fault::Client, false),
            Self::Unavailable => ("UNAVAILABLE", "Unavailable", 503, 14, Fault::Server, true),
            Self::Unsupported => ("UNSUPPORTED", "Unsupported", 501, 12, Fault::Client, false),
            Self::AlreadyExists => ("ALREADY_EXISTS", "Already exists", 400, 6, Fault::Client, false),
            Self::Cancelled => ("CANCELLED", "<invalid code>", 400, 1, Fault::Client, false),
            Self::ResourceExhausted => ("RESOURCE_EXHAUSTED", "Resource exhausted", 503, 8, Fault::Environment, true),
        }
    }

    /// The class as TypeScript and the in-process API name it: `INVALID_ARG`.
    pub fn constant(self) -> &'static str {
        self.row().0
    }

    /// The class as state reasons spell it, `Invalid argument: …`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// HTTP status of the class.
    pub fn http_status(self) -> u16 {
        self.row().2
    }

    /// gRPC status number of the class.
    pub fn grpc_status(self) -> u8 {
        self.row().3
    }
}

/// Who can prevent a failure from happening again: who is to be told about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fault {
    /// The client: the request is wrong, or its caller may not make it.
    Client,
    /// The author of the model: its code, files or configuration.
    Model,
    /// The server: it is full, not ready or shutting down, or it has a bug.
    Server,
    /// The operator: memory, devices, disks, networks, or what is installed.
    Environment,
}

impl Fault {
    /// Every fault, in the order of its number.
    pub const ALL: [Self; 4] = [Self::Client, Self::Model, Self::Server, Self::Environment];

    /// The fault as logs, metrics and responses name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Model => "model",
            Self::Server => "server",
            Self::Environment => "environment",
        }
    }
}

/// A failure with its class and the text the client sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    code: Code,
    fault: Fault,
    is_retryable: bool,
    is_too_long: bool,
    message: Cow<'static, str>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident),* $(,)?) => {
        $($(#[$doc])* pub fn $name(message: impl Into<Cow<'static, str>>) -> Self { Self::new(Code::$code, message) })*
    };
}

impl Error {
    /// An error of this class. A long text is cut, and the name of the class stands for an empty one; a cancelled
    /// request has none, as in Triton, because nobody waits for it.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        let is_silent = message.is_empty() && code != Code::Cancelled;
        let (.., fault, is_retryable) = code.row();
        let message = if is_silent { code.constant().into() } else { cut(message) };
        Self { code, fault, is_retryable, is_too_long: false, message }
    }

    constructors! {
        /// Class UNKNOWN.
        unknown => Unknown,
        /// Class INTERNAL: a bug of the server or of a backend.
        internal => Internal,
        /// Class NOT_FOUND.
        not_found => NotFound,
        /// Class INVALID_ARG: the request can never succeed.
        invalid => InvalidArg,
        /// Class UNAVAILABLE: the same request may succeed later.
        unavailable => Unavailable,
        /// Class UNSUPPORTED.
        unsupported => Unsupported,
        /// Class ALREADY_EXISTS.
        already_exists => AlreadyExists,
        /// Class CANCELLED.
        cancelled => Cancelled,
        /// Class RESOURCE_EXHAUSTED: there is not enough memory now.
        exhausted => ResourceExhausted,
    }

    /// Class INTERNAL by the client: a request that cannot be read, for which Triton has this class.
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::internal(message).by(Fault::Client)
    }

    /// Class UNAVAILABLE by the environment: something that the machine lacks or that failed.
    pub fn environment(message: impl Into<Cow<'static, str>>) -> Self {
        Self::unavailable(message).by(Fault::Environment)
    }

    /// The class.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The text for the client.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The fault of its class, unless [`by`](Self::by) set another.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    /// The error with this fault.
    pub fn by(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// The error as one of a model: what its class blames on the server is the fault of the model.
    pub fn by_model(self) -> Self {
        if self.fault == Fault::Server { self.by(Fault::Model) } else { self }
    }

    /// The error with or without the advice to try again.
    pub fn retry(self, is_retryable: bool) -> Self {
        Self { is_retryable, ..self }
    }

    /// The error as one of a text that has more tokens than a model takes.
    pub fn too_long(self) -> Self {
        Self { is_too_long: true, ..self }
    }

    /// Whether a text has more tokens than a model takes: text endpoints have a code and a status for that.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// The error with another text.
    pub fn with_text(&self, text: impl Into<Cow<'static, str>>) -> Self {
        let other = Self::new(self.code, text).by(self.fault).retry(self.is_retryable);
        Self { is_too_long: self.is_too_long, ..other }
    }

    /// The error with `prefix` before its text.
    pub fn prefixed(self, prefix: impl fmt::Display) -> Self {
        self.with_text(format!("{prefix}{}", self.message))
    }
}

fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= ERROR_BYTES_MAX {
        return text;
    }
    let note = |more: usize| format!("… ({more} more bytes)");
    let room = ERROR_BYTES_MAX - note(text.len()).len();
    let end = (0..=room).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}{}", &text[..end], note(text.len() - end)).into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_empty() {
        for code in Code::ALL.into_iter().filter(|code| *code != Code::Cancelled) {
            assert_eq!(Error::new(code, "").message(), code.constant());
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters_with_a_note() {
        for long in ["x".repeat(20 << 20), "é".repeat(ERROR_BYTES_MAX), "中".repeat(ERROR_BYTES_MAX)] {
            for error in [
                Error::invalid(long.clone()),
                Error::invalid("short").prefixed(&long),
                Error::new(Code::Internal, long.clone()),
            ] {
                let text = error.message();
                assert!(text.len() <= ERROR_BYTES_MAX, "{} bytes", text.len());
                assert!(
                    text.len() > ERROR_BYTES_MAX - 8 && text.ends_with(" more bytes)"),
                    "{}",
                    &text[text.len() - 40..]
                );
            }
        }
        let whole = "y".repeat(ERROR_BYTES_MAX);
        assert_eq!(Error::invalid(whole.clone()).message(), whole);
    }
}
