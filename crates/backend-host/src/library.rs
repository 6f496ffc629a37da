//! A library of a user: its file, and the functions that it exports.

#![allow(unsafe_code)] // dlopen, dlsym

use crate::abi::Err;
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::null_mut;
use tensor::{Error, Result};

/// An open library. It stays open until the process ends, as in Triton: threads of its own may run in it.
pub(crate) struct Opened(*mut c_void);

/// A function of a library that gets one object.
pub(crate) type Function = unsafe extern "C" fn(*const c_void) -> Err;

/// The functions of a backend. All pointers that they get are valid for the time of the call, or longer where the
/// exported functions say so.
#[derive(Default)]
pub(crate) struct Library {
    pub(crate) initialize: Option<Function>,
    pub(crate) finalize: Option<Function>,
    pub(crate) attributes: Option<unsafe extern "C" fn(*const c_void, *mut c_void) -> Err>,
    pub(crate) model_initialize: Option<Function>,
    pub(crate) model_finalize: Option<Function>,
    pub(crate) instance_initialize: Option<Function>,
    pub(crate) instance_finalize: Option<Function>,
    pub(crate) instance_ready: Option<Function>,
    /// `None` in the process of a batching library: the model has its backend elsewhere.
    pub(crate) execute: Option<unsafe extern "C" fn(*const c_void, *mut *mut c_void, u32) -> Err>,
}

/// The text of the loader's last failure on this thread.
fn why() -> String {
    // SAFETY: null, or a NUL-terminated text that is valid until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Opened {
    /// Opens a library with all symbols bound, as Triton does.
    ///
    /// # Errors
    /// NOT_FOUND with the loader's text.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes());
        let name = name.map_err(|_| Error::invalid("the path of a library has a NUL"))?;
        // SAFETY: a NUL-terminated path. The library's constructors run, which is what the user asks for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(Error::not_found(format!("unable to load shared library: {}", why())));
        }
        Ok(Self(handle))
    }

    /// The address of a function; `None` if the library does not export it.
    fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open handle and a NUL-terminated name.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// A function of the type `F`.
    ///
    /// # Safety
    /// `F` is a function pointer, of the type that the library's function of this name has.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the caller's promise; a function pointer is as large as an address here.
        self.find(name).map(|found| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }

    /// Finds a function that must be there.
    ///
    /// # Safety
    /// As `function`.
    ///
    /// # Errors
    /// NOT_FOUND with the loader's text.
    pub(crate) unsafe fn required<F: Copy>(&self, name: &CStr) -> Result<F> {
        // SAFETY: the caller's promise.
        unsafe { self.function(name) }.ok_or_else(|| {
            let name = name.to_string_lossy();
            Error::not_found(format!("unable to find required entrypoint '{name}' in shared library: {}", why()))
        })
    }

    /// Closes a library that could not be used. None of its functions may be called afterwards.
    pub(crate) fn close(self) {
        // SAFETY: an open handle, which is given up.
        unsafe { libc::dlclose(self.0) };
    }

    /// The functions of a backend.
    ///
    /// # Errors
    /// NOT_FOUND if it cannot execute.
    pub(crate) fn backend(&self) -> Result<Library> {
        // SAFETY: types of Triton's API.
        unsafe {
            Ok(Library {
                execute: Some(self.required(c"TRITONBACKEND_ModelInstanceExecute")?),
                initialize: self.function(c"TRITONBACKEND_Initialize"),
                finalize: self.function(c"TRITONBACKEND_Finalize"),
                attributes: self.function(c"TRITONBACKEND_GetBackendAttribute"),
                model_initialize: self.function(c"TRITONBACKEND_ModelInitialize"),
                model_finalize: self.function(c"TRITONBACKEND_ModelFinalize"),
                instance_initialize: self.function(c"TRITONBACKEND_ModelInstanceInitialize"),
                instance_finalize: self.function(c"TRITONBACKEND_ModelInstanceFinalize"),
                instance_ready: self.function(c"TRITONBACKEND_ModelInstanceReady"),
            })
        }
    }
}

/// Calls a function of a library with one object; success if the library does not have it.
///
/// # Errors
/// The library's.
pub(crate) fn call<T>(function: Option<Function>, object: &T) -> Result<()> {
    // SAFETY: the object is live for the time of the call.
    let error = function.map_or(null_mut(), |function| unsafe { function((&raw const *object).cast()) });
    // SAFETY: a returned error belongs to its receiver.
    unsafe { crate::abi::error::ServerError::take(error) }.map_or(Ok(()), Err)
}
