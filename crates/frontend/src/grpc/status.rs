//! The status of a gRPC call: a code and a message, sent in trailers.

use crate::failure::{FAULT, RequestFailure};
use crate::gate_error::GateError;
use crate::gate_error::OperationError;
use crate::text::cut;
use http2::Field;
use memory::Short;
use smallvec::SmallVec;
use std::fmt::Write;
use std::time::Duration;
use tensor::{Error, Fault};

/// Status codes that are used by name; the others come from `tensor::Code`.
pub mod code {
    #![allow(missing_docs)]
    pub const OK: u8 = 0;
    pub const CANCELLED: u8 = 1;
    pub const DEADLINE_EXCEEDED: u8 = 4;
    pub const RESOURCE_EXHAUSTED: u8 = 8;
    pub const UNIMPLEMENTED: u8 = 12;
    pub const INTERNAL: u8 = 13;
}

/// Trailer by which a client learns when to repeat a call.
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// How a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub code: u8,
    pub message: String,
    /// Party at fault, if it is an error.
    pub fault: Fault,
    /// Value of `grpc-retry-pushback-ms`, which clients with a retry policy obey.
    pub retry_after: Option<Duration>,
}

impl Status {
    /// A status by the client, if it is an error.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fault: Fault::Client, retry_after: None }
    }

    fn failed(message: impl Into<String>, code: u8, RequestFailure { fault, retry_after, .. }: RequestFailure) -> Self {
        Self { code, message: message.into(), fault, retry_after }
    }

    pub fn failure(&self) -> RequestFailure {
        RequestFailure { retry_after: self.retry_after, ..RequestFailure::new(Some(self.code), self.fault) }
    }

    pub fn ok() -> Self {
        Self::new(code::OK, "")
    }

    pub fn deadline_exceeded() -> Self {
        Self::new(code::DEADLINE_EXCEEDED, "Deadline Exceeded")
    }

    pub fn shutting_down() -> Self {
        Error::unavailable("GRPC server is shutting down and has stopped accepting new requests.").into()
    }

    pub fn is_ok(&self) -> bool {
        self.code == code::OK
    }

    /// Calls `then` with the status as header fields.
    pub fn with_fields<T>(&self, then: impl FnOnce(&[Field<'_>]) -> T) -> T {
        let mut buffer = itoa::Buffer::new();
        let number = Field::Literal("grpc-status", buffer.format(self.code).as_bytes());
        if self.is_ok() {
            return then(&[number]);
        }
        let message = percent_encode(&self.message);
        let mut buffer = itoa::Buffer::new();
        let mut fields = SmallVec::<[Field<'_>; 4]>::from_slice(&[number]);
        if !message.is_empty() {
            fields.push(Field::Literal("grpc-message", message.as_bytes()));
        }
        if let Some(after) = self.retry_after {
            fields.push(Field::Literal(PUSHBACK, buffer.format(after.as_millis()).as_bytes()));
        }
        fields.push(Field::Literal(FAULT, self.failure().count().as_bytes()));
        then(&fields)
    }
}

impl From<Short> for Status {
    fn from(short: Short) -> Self {
        Self::failed(short.to_string(), code::RESOURCE_EXHAUSTED, (&short).into())
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::failed(cut(error.message()), error.code().grpc_status(), (&error).into())
    }
}

impl From<GateError> for Status {
    fn from(refusal: GateError) -> Self {
        Self::failed(refusal.text(), refusal.grpc_status(), (&refusal).into())
    }
}

impl From<OperationError> for Status {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Rejected(refusal) => refusal.into(),
            OperationError::Failed(error) => error.into(),
        }
    }
}

/// Maximum bytes of `grpc-message` after encoding. Clients accept 8 KiB of metadata and fail the call beyond that.
const MESSAGE_BYTES_MAX: usize = 7 * 1024;

/// Writes `%` and all bytes except printable ASCII as `%XX`. A text that is too long is cut after a whole character.
pub fn percent_encode(text: &str) -> String {
    let plain = |b: u8| (b' '..=b'~').contains(&b) && b != b'%';
    let mut out = String::with_capacity(text.len());
    for (at, &b) in text.as_bytes().iter().enumerate() {
        // The longest encoded character has twelve bytes.
        if text.is_char_boundary(at) && out.len() + 12 > MESSAGE_BYTES_MAX {
            break;
        }
        if plain(b) {
            out.push(char::from(b));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        for (text, expected) in [
            ("plain 'text', 1 < 2", "plain 'text', 1 < 2"),
            ("100%", "100%25"),
            ("a\nb", "a%0Ab"),
            ("中", "%E4%B8%AD"),
            ("%%", "%25%25"),
        ] {
            assert_eq!(percent_encode(text), expected);
        }
        let long = percent_encode(&"中".repeat(MESSAGE_BYTES_MAX));
        assert!(long.len() <= MESSAGE_BYTES_MAX && long.len().is_multiple_of("%E4%B8%AD".len()), "{}", long.len());
    }

    fn written(status: &Status) -> Vec<String> {
        status.with_fields(|fields| {
            let text = |f: &Field<'_>| match f {
                Field::Literal(name, value) => format!("{name}: {}", String::from_utf8_lossy(value)),
                Field::Fixed(n) => format!("fixed {n}"),
            };
            fields.iter().map(text).collect()
        })
    }

    #[test]
    fn a_status_without_message_writes_its_number_and_the_fault() {
        assert_eq!(written(&Status::new(code::UNIMPLEMENTED, "")), ["grpc-status: 12", "nereid-fault: client"]);
        assert_eq!(
            written(&Status::from(Error::unavailable("x\n"))),
            ["grpc-status: 14", "grpc-message: x%0A", "grpc-retry-pushback-ms: 1000", "nereid-fault: server"]
        );
    }
}
