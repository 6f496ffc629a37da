//! Basics of all calls into the library: statuses, strings, and handles that are released once.

use ort::sys;
use std::ffi::{CStr, CString, c_int};
use std::ptr::NonNull;
use tensor::{Error, Result};

pub(super) fn non_null<T>(p: *mut T) -> Result<NonNull<T>> {
    NonNull::new(p).ok_or_else(|| Error::internal("onnx runtime returned no object and no error"))
}

/// Converts a status to an error with Triton's text, and frees it.
pub(super) fn check(api: &sys::OrtApi, status: sys::OrtStatusPtr) -> Result<()> {
    if status.0.is_null() { Ok(()) } else { Err(failure(api, status)) }
}

/// Calls a function of the table, and converts its status.
macro_rules! call {
    ($api:ident.$function:ident($($argument:expr),* $(,)?)) => {
        crate::ffi::base::check($api, ($api.$function)($($argument),*))
    };
}

#[cold]
fn failure(api: &sys::OrtApi, status: sys::OrtStatusPtr) -> Error {
    // SAFETY: a non-null status that we own: read, copied, released once. The code is fetched as an integer, because
    // newer libraries have codes that the bindings' enum lacks, and such an enum value would be undefined behaviour.
    unsafe {
        let code: unsafe extern "system" fn(*const sys::OrtStatus) -> c_int = std::mem::transmute(api.GetErrorCode);
        let code = code(status.0);
        let text = CStr::from_ptr((api.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
        (api.ReleaseStatus)(status.0);
        Error::internal(format!("onnx runtime error {code}: {text}"))
    }
}

pub(super) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(format!("'{}' contains a NUL character", text.escape_default())))
}

/// Defines a handle that is released when dropped.
macro_rules! handle {
    ($name:ident, $sys:ident, $release:ident) => {
        pub(super) struct $name(pub(super) NonNull<sys::$sys>, pub(super) &'static sys::OrtApi);
        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by the library, owned by this value alone, released once.
                unsafe { (self.1.$release)(self.0.as_ptr()) }
            }
        }
    };
}
handle!(RawOptions, OrtSessionOptions, ReleaseSessionOptions);
handle!(TypeInfo, OrtTypeInfo, ReleaseTypeInfo);
handle!(ShapeInfo, OrtTensorTypeAndShapeInfo, ReleaseTensorTypeAndShapeInfo);
handle!(RawSession, OrtSession, ReleaseSession);
handle!(RawRunOptions, OrtRunOptions, ReleaseRunOptions);
handle!(RawBinding, OrtIoBinding, ReleaseIoBinding);
handle!(RawMemoryInfo, OrtMemoryInfo, ReleaseMemoryInfo);

// SAFETY: OrtSession may be released by any thread, once no other thread uses it.
unsafe impl Send for RawSession {}
