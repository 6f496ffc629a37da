//! Values that libraries pass and get.

#![allow(unsafe_code)] // pointers of a C API

use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function without an error; a panic gives the default.
pub(crate) fn value<T: Default>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_default()
}

/// A text that the caller passed; "" for null. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// `text` is null or NUL-terminated.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A text for the caller. It ends at its first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(text.get(..end).unwrap_or_default()).unwrap_or_default()
}

/// A shape that the caller passed.
///
/// # Safety
/// `shape` has `count` elements, or is null.
pub(crate) unsafe fn dims(shape: *const i64, count: u32) -> Vec<i64> {
    if shape.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(shape, count as usize) }.to_vec()
}
