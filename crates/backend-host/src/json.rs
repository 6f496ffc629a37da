//! JSON that goes to the server and comes from it.

use serde::{Deserialize, Serialize};
use tensor::{Code, Error, Result};

/// Reads a text.
///
/// # Errors
/// INVALID_ARG with the place and the reason.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::invalid(format!("invalid JSON: {error}")))
}

/// Writes a value, whose maps have keys that are texts.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// An error as JSON: the constant of its code, and its text.
#[derive(Serialize, Deserialize)]
pub(crate) struct JsonError {
    code: String,
    message: String,
}

impl From<&Error> for JsonError {
    fn from(error: &Error) -> Self {
        Self { code: error.code().constant().to_owned(), message: error.message().to_owned() }
    }
}

impl From<JsonError> for Error {
    fn from(error: JsonError) -> Self {
        let code = Code::ALL.into_iter().find(|known| known.constant() == error.code).unwrap_or(Code::Internal);
        Self::new(code, error.message)
    }
}
