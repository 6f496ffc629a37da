//! `TRITONSERVER_Error`.

#![allow(unsafe_code)] // pointers of a C API

use super::values::{c_text, text, value};
use std::ffi::{CString, c_char};
use tensor::{Code, Error};

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

    /// Takes the error that a library returned; `None` for null.
    ///
    /// # Safety
    /// `error` is null or owned by the caller, who does not use it again.
    pub(crate) unsafe fn take(error: Err) -> Option<Error> {
        // SAFETY: made by `raw`; the caller's promise.
        (!error.is_null()).then(|| unsafe { Box::from_raw(error) }.error())
    }

    pub(crate) fn error(&self) -> Error {
        let code = Code::ALL.get(self.code as usize).copied().unwrap_or(Code::Unknown);
        Error::new(code, self.message.to_string_lossy().into_owned())
    }
}

/// A new error; the caller deletes it.
///
/// # Safety
/// `msg` is null or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorNew(code: u32, msg: *const c_char) -> Err {
    // SAFETY: the caller's promise.
    let message = unsafe { text(msg) };
    Box::into_raw(Box::new(ServerError { code, message: c_text(&message) }))
}

/// Deletes an error.
///
/// # Safety
/// `error` is null or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorDelete(error: Err) {
    // SAFETY: the caller's promise.
    value(|| drop(unsafe { ServerError::take(error) }));
}

/// The code of an error.
///
/// # Safety
/// `error` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorCode(error: *const ServerError) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(0, |error| error.code)
}

/// The name of the code of an error, as Triton has it: CANCELLED has none.
///
/// # Safety
/// `error` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorCodeString(error: *const ServerError) -> *const c_char {
    // SAFETY: the caller's promise.
    let name = match unsafe { TRITONSERVER_ErrorCode(error) } {
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

/// The message of an error, which owns it.
///
/// # Safety
/// `error` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ErrorMessage(error: *const ServerError) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}
