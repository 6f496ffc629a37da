//! Libraries of users: their files, and the tables of functions that they export or pass.

#![allow(unsafe_code)] // libraries, and their functions

use crate::abi::exports::Object;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::path::Path;
use tensor::{Error, Result};

/// An address of a library. It is no more than a number here: who reads or writes there proves that it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address<T>(pub(crate) *mut T);

impl<T> Clone for Address<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Address<T> {}

// SAFETY: a number; the C API lets a server use what libraries pass on any thread.
unsafe impl<T> Send for Address<T> {}
// SAFETY: shared, it is still a number.
unsafe impl<T> Sync for Address<T> {}

/// An object of ours as an argument of a library's function, whose name in the row says which.
#[repr(transparent)]
pub(crate) struct Loan<'a>(*const c_void, PhantomData<&'a c_void>);

impl<'a, T: Object> From<&'a T> for Loan<'a> {
    fn from(object: &'a T) -> Self {
        Self((&raw const *object).cast(), PhantomData)
    }
}

impl<'a, T: Object> From<&'a mut T> for Loan<'a> {
    fn from(object: &'a mut T) -> Self {
        Self((&raw mut *object).cast_const().cast(), PhantomData)
    }
}

/// A text or an array as an argument of a library's function: the address of its beginning.
#[repr(transparent)]
pub(crate) struct Start<'a, T>(*mut T, PhantomData<&'a mut [T]>);

impl<'a> From<&'a CStr> for Start<'a, c_char> {
    fn from(text: &'a CStr) -> Self {
        Self(text.as_ptr().cast_mut(), PhantomData)
    }
}

impl<'a, T> From<&'a mut [T]> for Start<'a, T> {
    fn from(items: &'a mut [T]) -> Self {
        Self(items.as_mut_ptr(), PhantomData)
    }
}

/// Declares functions of a library: a row has the type, the name here, and the arguments of Triton's header.
/// References, `Loan` and `Start` are valid for the time of the call, and objects longer where README.md of this crate
/// says so; other pointers are the library's own. Each function is a method, which succeeds if the library does not
/// have it.
macro_rules! functions {
    ($(#[$doc:meta])* struct $library:ident {
        $($type:ident $name:ident($($argument:ident: $kind:ty),* $(,)?);)*
    }) => {
        $(#[allow(non_camel_case_types)] // some are names of Triton
        pub(crate) type $type = unsafe extern "C" fn($($kind),*) -> $crate::abi::Err;)*

        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub(crate) struct $library {
            $(pub(crate) $name: Option<$type>,)*
        }

        #[allow(unsafe_code, clippy::too_many_arguments)] // as in the header
        impl $library { $(
            pub(crate) fn $name(&self, $($argument: $kind),*) -> tensor::Result<()> {
                let Some(function) = self.$name else { return Ok(()) };
                // SAFETY: the row has the arguments of the header, which this signature asks for. What a library
                // returns is null or an error that it gives away.
                unsafe { $crate::abi::error::ServerError::result(function($($argument),*)) }
            }
        )* }
    };
}
pub(crate) use functions;

/// Declares functions that a library exports. Those that are `Required` must be there.
macro_rules! entry_points {
    ($(#[$doc:meta])* struct $library:ident { $($need:ident $symbol:ident $name:ident($($arguments:tt)*);)* }) => {
        $crate::library::functions! {
            $(#[$doc])*
            struct $library { $($symbol $name($($arguments)*);)* }
        }

        #[allow(unsafe_code)] // types of the header
        impl $library {
            /// Finds the functions.
            ///
            /// # Errors
            /// NOT_FOUND with the loader's text for one that must be there.
            pub(crate) fn of(library: &$crate::library::Opened) -> tensor::Result<Self> {
                // SAFETY: the type of a row is that of the header's function of the same name.
                Ok(unsafe { Self { $($name: library.find($crate::library::Need::$need, stringify!($symbol))?),* } })
            }
        }
    };
}
pub(crate) use entry_points;

entry_points! {
    /// The functions of a backend. `execute` is missing in the process of a batching library: the model has its backend
    /// elsewhere.
    struct BackendLibrary {
        Optional TRITONBACKEND_Initialize initialize(backend: Loan<'_>);
        Optional TRITONBACKEND_Finalize finalize(backend: Loan<'_>);
        Optional TRITONBACKEND_GetBackendAttribute attributes(backend: Loan<'_>, attributes: Loan<'_>);
        Optional TRITONBACKEND_ModelInitialize model_initialize(model: Loan<'_>);
        Optional TRITONBACKEND_ModelFinalize model_finalize(model: Loan<'_>);
        Optional TRITONBACKEND_ModelInstanceInitialize instance_initialize(instance: Loan<'_>);
        Optional TRITONBACKEND_ModelInstanceFinalize instance_finalize(instance: Loan<'_>);
        Optional TRITONBACKEND_ModelInstanceReady instance_ready(instance: Loan<'_>);
        // The requests belong to the library if it returns success.
        Required TRITONBACKEND_ModelInstanceExecute execute(
            instance: Loan<'_>,
            requests: Start<'_, *mut c_void>,
            request_count: u32,
        );
    }
}

/// An open library. It stays open until the process ends, as in Triton: threads of its own may run in it.
pub(crate) struct Opened(ManuallyDrop<Library>);

/// The loader's text.
fn why(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } | libloading::Error::DlSym { source } => source.to_string(),
        _ => "unknown error".to_owned(),
    }
}

impl Opened {
    /// Opens a library with all symbols bound, as Triton does.
    ///
    /// # Errors
    /// NOT_FOUND with the loader's text.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        // SAFETY: the library's constructors run, which is what the user asks for.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let failed = |error| Error::not_found(format!("unable to load shared library: {}", why(&error)));
        library.map(|library| Self(ManuallyDrop::new(library))).map_err(failed)
    }

    /// A function of the type `F`; `None` if the library may lack it and does.
    ///
    /// # Errors
    /// NOT_FOUND with the loader's text.
    ///
    /// # Safety
    /// `F` is a function pointer, of the type that the library's function of this name has.
    pub(crate) unsafe fn find<F: Copy>(&self, need: Need, name: &str) -> Result<Option<F>> {
        // SAFETY: `F` is the function's type. It is used while the library is open.
        match unsafe { self.0.get::<F>(name) } {
            Ok(found) => Ok(Some(*found)),
            Err(_) if need == Need::Optional => Ok(None),
            Err(error) => {
                let why = why(&error);
                let text = format!("unable to find required entrypoint '{name}' in shared library: {why}");
                Err(Error::not_found(text))
            }
        }
    }

    /// Closes a library that could not be used: it drops the functions that were found with it.
    pub(crate) fn close(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

/// Whether a library must export a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Optional,
    Required,
}

#[cfg(test)]
mod tests {
    impl<T> super::Start<'_, T> {
        pub(crate) fn address(&self) -> *const T {
            self.0
        }
    }
}
