//! How functions are exported: `exports!` gives a function its C ABI, and the types of its arguments say what a library
//! promises to pass. Each promise is written and used once, here; the bodies of most functions need no `unsafe`.

#![allow(unsafe_code)] // pointers of a C API

use super::{c_text, object, put, text};
use std::ffi::{CString, c_char};
use tensor::{Error, Result};

/// An argument of an exported function.
///
/// # Safety
/// The functions get what a library passed, and read and write no more than the type says that it promises.
pub(crate) unsafe trait Argument: Sized {
    /// The type that crosses the C ABI.
    type Raw: Copy;

    /// Runs for all arguments before the first is taken.
    ///
    /// # Safety
    /// `raw` is what the type says.
    unsafe fn prepare(_raw: Self::Raw) {}

    /// The argument as the body of the function gets it.
    ///
    /// # Errors
    /// An object that must be passed was not.
    ///
    /// # Safety
    /// `raw` is what the type says, until the function returns.
    unsafe fn take(raw: Self::Raw) -> Result<Self>;
}

/// Objects that libraries hold, and their names in errors.
pub(crate) trait Object {
    const NAME: &str;
}

/// Names objects in errors.
macro_rules! objects {
    ($($type:ty: $name:literal;)*) => { $(
        impl $crate::abi::exports::Object for $type {
            const NAME: &str = $name;
        }
    )* };
}
pub(crate) use objects;

objects! {
    super::error::ServerError: "error";
}

/// Takes numbers, functions, and pointers whose meaning the function knows as they are, which promises nothing.
macro_rules! plain {
    ($([$($generic:tt)*] $type:ty;)*) => { $(
        // SAFETY: nothing is read or written.
        unsafe impl<$($generic)*> $crate::abi::exports::Argument for $type {
            type Raw = Self;

            #[inline]
            unsafe fn take(raw: Self) -> tensor::Result<Self> {
                Ok(raw)
            }
        }
    )* };
}
pub(crate) use plain;

plain! {
    [] bool;
    [] i32;
    [] i64;
    [] u32;
    [] u64;
    [] usize;
    [] f64;
    [T] *const T;
    [T] *mut T;
}

// SAFETY: an object is null, or one that this crate gave away and that nothing changes meanwhile.
unsafe impl<T: Object> Argument for &T {
    type Raw = *const T;

    unsafe fn take(raw: *const T) -> Result<Self> {
        // SAFETY: the promise of the type.
        unsafe { object(raw, T::NAME) }
    }
}

// SAFETY: an object is null, or one that this crate gave away and that nothing changes meanwhile.
unsafe impl<T: Object> Argument for Option<&T> {
    type Raw = *const T;

    unsafe fn take(raw: *const T) -> Result<Self> {
        // SAFETY: the promise of the type.
        Ok(unsafe { raw.as_ref() })
    }
}

// SAFETY: an object is null, or one that this crate gave away and that nothing else uses meanwhile.
unsafe impl<T: Object> Argument for Option<&mut T> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Result<Self> {
        // SAFETY: the promise of the type.
        Ok(unsafe { raw.as_mut() })
    }
}

// SAFETY: as for the one that may be null.
unsafe impl<T: Object> Argument for &mut T {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Result<Self> {
        // SAFETY: the promise of the type.
        unsafe { <Option<Self> as Argument>::take(raw) }?.ok_or_else(|| was_null(T::NAME))
    }
}

// SAFETY: as for the one that may be null, which is below.
unsafe impl<T: Object> Argument for Box<T> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Result<Self> {
        // SAFETY: the promise of the type.
        unsafe { <Option<Self> as Argument>::take(raw) }?.ok_or_else(|| was_null(T::NAME))
    }
}

// SAFETY: an object is null, or made by `Box::into_raw`, and the library gives it up.
unsafe impl<T> Argument for Option<Box<T>> {
    type Raw = *mut T;

    unsafe fn take(raw: *mut T) -> Result<Self> {
        // SAFETY: the promise of the type.
        Ok((!raw.is_null()).then(|| unsafe { Box::from_raw(raw) }))
    }
}

/// The error of an object that must be passed and was not.
pub(crate) fn was_null(what: &str) -> Error {
    Error::invalid(format!("{what} was nullptr"))
}

// SAFETY: a text is null or NUL-terminated.
unsafe impl Argument for String {
    type Raw = *const c_char;

    unsafe fn take(raw: *const c_char) -> Result<Self> {
        // SAFETY: the promise of the type.
        Ok(unsafe { text(raw) })
    }
}

// SAFETY: a text is null or NUL-terminated.
unsafe impl Argument for CString {
    type Raw = *const c_char;

    unsafe fn take(raw: *const c_char) -> Result<Self> {
        // SAFETY: the promise of the type.
        Ok(c_text(&unsafe { text(raw) }))
    }
}

/// Where a result goes. If `IS_CLEARED`, it is zeroed before the arguments are checked.
pub(crate) struct Out<T, const IS_CLEARED: bool = false>(*mut T);

/// Where a pointer, a number or a truth value goes, which is zero after an error.
pub(crate) type Cleared<T> = Out<T, true>;

impl<T, const IS_CLEARED: bool> Out<T, IS_CLEARED> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the result; nowhere if the library passed null.
    pub(crate) fn put(&self, value: T) {
        // SAFETY: the promise of the type, which only `Argument::take` makes.
        unsafe { put(self.0, value) };
    }
}

impl<T, const IS_CLEARED: bool> Out<*mut T, IS_CLEARED> {
    /// Gives a new object to the library.
    pub(crate) fn give(&self, object: T) {
        self.put(Box::into_raw(Box::new(object)));
    }
}

// SAFETY: the place is null or valid for a write.
unsafe impl<T, const IS_CLEARED: bool> Argument for Out<T, IS_CLEARED> {
    type Raw = *mut T;

    unsafe fn prepare(raw: *mut T) {
        if IS_CLEARED && !raw.is_null() {
            // SAFETY: the promise of the type.
            unsafe { raw.write_bytes(0, 1) };
        }
    }

    unsafe fn take(raw: *mut T) -> Result<Self> {
        Ok(Self(raw))
    }
}

/// Lets the body of an exported function return a result, or nothing if it cannot fail.
pub(crate) trait Outcome {
    fn result(self) -> Result<()>;
}

impl Outcome for () {
    #[inline]
    fn result(self) -> Result<()> {
        Ok(())
    }
}

impl Outcome for Result<()> {
    #[inline]
    fn result(self) -> Result<()> {
        self
    }
}

/// Declares functions that return a `TRITONSERVER_Error*`. Arguments are checked in their order, then the body runs.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments are what the types of their declaration say.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($argument: <$type as $crate::abi::exports::Argument>::Raw),*
        ) -> $crate::abi::Err {
            use $crate::abi::exports::{Argument, Outcome};
            $crate::abi::guard(move || {
                // SAFETY: the caller's promise is that of the types, here and below.
                $(unsafe { <$type as Argument>::prepare($argument) };)*
                // SAFETY: as above.
                $(let $argument = unsafe { <$type as Argument>::take($argument) }?;)*
                Outcome::result($body)
            })
        }
    )* };
}
pub(crate) use exports;
