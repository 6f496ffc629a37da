//! `TRITONSERVER_Error`.

#![allow(unsafe_code)] // errors of libraries

use super::exports::{Lent, exports, objects};
use super::values::c_text;
use std::ffi::{CString, c_char};
use tensor::{Code, Error, Result};

/// `TRITONSERVER_Error*`: null, or an error that the receiver deletes.
pub(crate) type Err = *mut ServerError;

/// An error, as libraries see it.
pub(crate) struct ServerError {
    code: u32,
    message: CString,
}

impl ServerError {
    /// A new error for a library, which deletes it.
    pub(crate) fn raw(error: &Error) -> Err {
        let code = match error.code() {
            // The C API has no such code.
            Code::ResourceExhausted => Code::Unavailable,
            code => code,
        };
        Box::into_raw(Box::new(Self { code: code as u32, message: c_text(error.message()) }))
    }

    /// The result of a function of a library.
    ///
    /// # Errors
    /// The error that the library returned.
    ///
    /// # Safety
    /// `error` is null or owned by the caller, who does not use it again.
    pub(crate) unsafe fn result(error: Err) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: made by `raw` or `TRITONSERVER_ErrorNew`, and given up by the caller.
        Err(unsafe { Box::from_raw(error) }.error())
    }

    pub(crate) fn error(&self) -> Error {
        let code = Code::ALL.get(self.code as usize).copied().unwrap_or(Code::Unknown);
        Error::new(code, self.message.to_string_lossy().into_owned())
    }
}

objects! {
    ServerError: "error";
}

exports! {
    "probe.h" fn TRITONSERVER_ErrorNew(code: u32, msg: CString) -> Err {
        Box::into_raw(Box::new(ServerError { code, message: msg }))
    }

    "probe.h" fn TRITONSERVER_ErrorDelete(error: Option<Box<ServerError>>) -> () { drop(error) }

    "attr" fn TRITONSERVER_ErrorCode(error: Option<&ServerError>) -> u32 { error.map_or(0, |error| error.code) }

    /// Name of the error's code. In Triton, too, CANCELLED has none.
    "probe.h" fn TRITONSERVER_ErrorCodeString(error: Option<&ServerError>) -> Lent<c_char> {
        let name = match error.map_or(0, |error| error.code) {
            0 => c"Unknown",
            1 => c"Internal",
            2 => c"Not found",
            3 => c"Invalid argument",
            4 => c"Unavailable",
            5 => c"Unsupported",
            6 => c"Already exists",
            _ => c"<invalid code>",
        };
        name.as_ptr()
    }

    "probe.h" fn TRITONSERVER_ErrorMessage(error: Option<&ServerError>) -> Lent<c_char> {
        error.map_or(c"".as_ptr(), |error| error.message.as_ptr())
    }
}
