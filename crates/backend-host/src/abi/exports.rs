//! The table of exported functions: one row per function, by `exports!` in the files of this folder.
//!
//! A row has the probe that calls the function, its name, its arguments and its body. The types of the arguments say
//! what may be null and who owns what; README.md of this crate lists them. Only this file reads or writes through a
//! pointer that a library passed, each time with the proof beside it, so bodies need no `unsafe`.

#![allow(unsafe_code)] // pointers of a C API

use super::values::c_text;
use std::ffi::{CStr, CString, c_char};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use tensor::{Error, Result};

/// A pointer that a library passed, for an argument of a row.
///
/// Promise of the library, as in Triton: until the function returns, it is null or
/// - the address of an object that an exported function gave away, or of the type that the header says;
/// - for `&T`: that nothing changes meanwhile; for `&mut T` and `Out`: that nothing else uses meanwhile;
/// - for `Box`: that a function made with `Out::give`, and that the library does not use again;
/// - for texts: NUL-terminated; for `Items`: of as many items as the `Count` of the same row says.
///
/// Nothing but the C ABI makes one, so a function below may rely on the promise of the row that calls it.
#[repr(transparent)]
pub(crate) struct Passed<T>(*mut T);

impl<T> Clone for Passed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Passed<T> {}

impl<T> Passed<T> {
    fn get<'a>(self) -> Option<&'a T> {
        // SAFETY: `Passed`, for `&T`.
        unsafe { self.0.as_ref() }
    }

    fn get_mut<'a>(self) -> Option<&'a mut T> {
        // SAFETY: `Passed`, for `&mut T`.
        unsafe { self.0.as_mut() }
    }

    fn own(self) -> Option<Box<T>> {
        // SAFETY: `Passed`, for `Box`.
        (!self.0.is_null()).then(|| unsafe { Box::from_raw(self.0) })
    }

    fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: `Passed`, for `Out`. What was there is the library's, so it is not dropped.
            unsafe { self.0.write(value) };
        }
    }

    fn clear(self) {
        if !self.0.is_null() {
            // SAFETY: `Passed`, for `Out`; cleared are pointers, numbers and truth values, which may be zero.
            unsafe { self.0.write_bytes(0, 1) };
        }
    }

    fn slice<'a>(self, count: usize) -> &'a [T] {
        if self.0.is_null() {
            return &[];
        }
        // SAFETY: `Passed`, for `Items`.
        unsafe { std::slice::from_raw_parts(self.0, count) }
    }
}

/// An argument of an exported function.
pub(crate) trait Argument: Sized {
    /// The type that crosses the C ABI.
    type Raw: Copy;

    /// Runs for all arguments before the first is taken.
    fn prepare(_raw: Self::Raw) {}

    /// The argument as the body of the function gets it.
    ///
    /// # Errors
    /// An object that must be passed was not.
    fn take(raw: Self::Raw) -> Result<Self>;
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

/// Takes numbers, functions, and pointers of the library's own as they are.
macro_rules! plain {
    ($([$($generic:tt)*] $type:ty;)*) => { $(
        impl<$($generic)*> $crate::abi::exports::Argument for $type {
            type Raw = Self;

            #[inline]
            fn take(raw: Self) -> tensor::Result<Self> {
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

/// Takes pointers: each type with how it is taken, and whether null is an error.
macro_rules! pointers {
    ($($type:ty: $taken:ident;)*) => { $(
        impl<T: Object> Argument for Option<$type> {
            type Raw = Passed<T>;

            fn take(raw: Passed<T>) -> Result<Self> {
                Ok(raw.$taken())
            }
        }

        impl<T: Object> Argument for $type {
            type Raw = Passed<T>;

            fn take(raw: Passed<T>) -> Result<Self> {
                raw.$taken().ok_or_else(|| was_null(T::NAME))
            }
        }
    )* };
}

pointers! {
    &T: get;
    &mut T: get_mut;
    Box<T>: own;
}

/// The error of an object that must be passed and was not.
pub(crate) fn was_null(what: &str) -> Error {
    Error::invalid(format!("{what} was nullptr"))
}

/// An object that must be passed and whose address is needed after the function has returned.
pub(crate) struct Held<T>(Passed<T>);

impl<T: Object> Argument for Held<T> {
    type Raw = Passed<T>;

    fn take(raw: Passed<T>) -> Result<Self> {
        <&T>::take(raw).map(|_| Self(raw))
    }
}

impl<T> Held<T> {
    pub(crate) fn address(&self) -> *mut T {
        self.0.0
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `Passed`, for `&T`; `take` has rejected null.
        unsafe { &*self.0.0 }
    }
}

impl Passed<c_char> {
    /// The text; "" for null. Bytes that are not UTF-8 are replaced.
    pub(crate) fn text(self) -> String {
        if self.0.is_null() {
            return String::new();
        }
        // SAFETY: `Passed`, for texts.
        unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned()
    }
}

impl Argument for String {
    type Raw = Passed<c_char>;

    fn take(raw: Passed<c_char>) -> Result<Self> {
        Ok(raw.text())
    }
}

impl Argument for CString {
    type Raw = Passed<c_char>;

    fn take(raw: Passed<c_char>) -> Result<Self> {
        Ok(c_text(&raw.text()))
    }
}

/// The first of the items whose number the `Count` of the same row says.
pub(crate) struct Items<T>(Passed<T>);

impl<T> Argument for Items<T> {
    type Raw = Passed<T>;

    fn take(raw: Passed<T>) -> Result<Self> {
        Ok(Self(raw))
    }
}

impl<T> Items<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.0.is_null()
    }

    /// The items; none for null.
    pub(crate) fn of<'a, N>(&self, count: Count<N>) -> &'a [T] {
        self.0.slice(count.0)
    }
}

impl<T: Object + 'static> Items<Passed<T>> {
    /// The objects that the items point at; `what` names one that is null.
    pub(crate) fn objects<'a, N>(&self, count: Count<N>, what: &str) -> impl Iterator<Item = Result<&'a T>> {
        self.of(count).iter().map(move |item| item.get().ok_or_else(|| was_null(what)))
    }
}

/// The number of the items of the same row, a `N`.
#[derive(Clone, Copy)]
pub(crate) struct Count<N>(usize, std::marker::PhantomData<N>);

macro_rules! counts {
    ($($type:ty)*) => { $(
        impl Argument for Count<$type> {
            type Raw = $type;

            fn take(raw: $type) -> Result<Self> {
                Ok(Self(raw as usize, std::marker::PhantomData))
            }
        }
    )* };
}
counts! { u32 u64 usize }

impl<N> Count<N> {
    pub(crate) fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

/// Where a result goes. If `IS_CLEARED`, it is zeroed before the arguments are checked.
pub(crate) struct Out<T, const IS_CLEARED: bool = false>(Passed<T>);

/// Where a pointer, a number or a truth value goes, which is zero after an error.
pub(crate) type Cleared<T> = Out<T, true>;

/// The address of what an object owns: the library may use it while the object lives and nothing changes it.
pub(crate) type Lent<T> = *const T;

impl<T, const IS_CLEARED: bool> Out<T, IS_CLEARED> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.0.is_null()
    }

    /// Writes the result; nowhere if the library passed null.
    pub(crate) fn put(&self, value: T) {
        self.0.put(value);
    }
}

impl<T, const IS_CLEARED: bool> Out<*mut T, IS_CLEARED> {
    /// Gives a new object to the library, which deletes it.
    pub(crate) fn give(&self, object: T) {
        self.put(Box::into_raw(Box::new(object)));
    }
}

impl<T, const IS_CLEARED: bool> Argument for Out<T, IS_CLEARED> {
    type Raw = Passed<T>;

    fn prepare(raw: Passed<T>) {
        if IS_CLEARED {
            raw.clear();
        }
    }

    fn take(raw: Passed<T>) -> Result<Self> {
        Ok(Self(raw))
    }
}

/// The value that a function without an error returns after a panic.
pub(crate) trait Returned {
    const NONE: Self;
}

macro_rules! returned {
    ($([$($generic:tt)*] $type:ty = $none:expr;)*) => { $(
        impl<$($generic)*> Returned for $type {
            const NONE: Self = $none;
        }
    )* };
}
returned! {
    [] () = ();
    [] bool = false;
    [] u32 = 0;
    [T] *const T = null();
    [T] *mut T = null_mut();
}

/// Runs the body of an exported function that returns no error.
pub(crate) fn value<T: Returned>(body: impl FnOnce() -> Result<T>) -> T {
    catch_unwind(AssertUnwindSafe(body)).ok().and_then(Result::ok).unwrap_or(T::NONE)
}

/// Declares functions, each by a row that begins with the probe that calls it (test/probes/src, or test/embedding/src
/// after `embedding/`; `rust` names the tests of this crate). Arguments are checked in their order, then the body runs.
///
/// - `fn NAME(arguments) { … }` returns a `TRITONSERVER_Error*`; with `-> T` it returns a `T` and cannot fail.
/// - `fn NAME(arguments) => expression;` is the same, as one expression.
/// - `get NAME(object) -> T = expression;` writes a `T` where the second argument says.
/// - `delete NAME(T);` deletes an object, or nothing.
macro_rules! exports {
    () => {};
    ($(#[$doc:meta])* $probe:literal fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$doc])*
        #[allow(unsafe_code)] // an exported name
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            $($argument: <$type as $crate::abi::exports::Argument>::Raw),*
        ) -> $crate::abi::Err {
            use $crate::abi::exports::Argument;
            $crate::abi::guard(move || {
                $(<$type as Argument>::prepare($argument);)*
                $(let $argument = <$type as Argument>::take($argument)?;)*
                $body
                Ok(())
            })
        }
        $crate::abi::exports::exports! { $($rest)* }
    };
    ($(#[$doc:meta])* $probe:literal fn $name:ident($($argument:ident: $type:ty),* $(,)?) => $body:expr;
        $($rest:tt)*) => {
        $crate::abi::exports::exports! { $(#[$doc])* $probe fn $name($($argument: $type),*) { $body; } $($rest)* }
    };
    ($(#[$doc:meta])* $probe:literal fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block
        $($rest:tt)*) => {
        $(#[$doc])*
        #[allow(unsafe_code)] // an exported name
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            $($argument: <$type as $crate::abi::exports::Argument>::Raw),*
        ) -> $result {
            $crate::abi::exports::value(move || {
                $(let $argument = <$type as $crate::abi::exports::Argument>::take($argument)?;)*
                Ok($body)
            })
        }
        $crate::abi::exports::exports! { $($rest)* }
    };
    ($(#[$doc:meta])* $probe:literal get $name:ident($object:ident: $type:ty) -> $result:ty = $value:expr;
        $($rest:tt)*) => {
        $crate::abi::exports::exports! {
            $(#[$doc])*
            $probe fn $name($object: $type, result: $crate::abi::exports::Out<$result>) { result.put($value); }
            $($rest)*
        }
    };
    ($(#[$doc:meta])* $probe:literal delete $name:ident($type:ty); $($rest:tt)*) => {
        $crate::abi::exports::exports! {
            $(#[$doc])*
            $probe fn $name(object: Option<Box<$type>>) { drop(object); }
            $($rest)*
        }
    };
}
pub(crate) use exports;

/// Stands for a library in tests, which keep the promise of [`Passed`] as libraries do.
#[cfg(test)]
pub(crate) mod library {
    use super::Passed;
    use crate::abi::Err;
    use crate::abi::error::ServerError;
    use std::ffi::c_char;

    // SAFETY: as for every library, what is passed is used on any thread.
    unsafe impl<T> Send for Passed<T> {}

    impl<T> Passed<T> {
        pub(crate) fn address(self) -> *const T {
            self.0
        }
    }

    pub(crate) fn pass<T>(pointer: *const T) -> Passed<T> {
        Passed(pointer.cast_mut())
    }

    /// The place of a result.
    pub(crate) fn to<T>(place: &mut T) -> Passed<T> {
        Passed(place)
    }

    pub(crate) fn nothing<T>() -> Passed<T> {
        Passed(std::ptr::null_mut())
    }

    /// The error that a function gave.
    pub(crate) fn failed(error: Err) -> Option<tensor::Error> {
        Passed(error).own().map(|error| ServerError::error(&error))
    }

    /// The object that a function gave away or lent.
    pub(crate) fn at<T>(pointer: *const T) -> &'static T {
        pass(pointer).get().expect("an object")
    }

    pub(crate) fn bytes_at(pointer: *const u8, count: usize) -> &'static [u8] {
        pass(pointer).slice(count)
    }

    pub(crate) fn text_at(text: *const c_char) -> String {
        pass(text).text()
    }
}
