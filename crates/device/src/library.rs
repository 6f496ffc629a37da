//! Libraries of the driver, opened when needed, with optional functions.

#![allow(unsafe_code)] // opens libraries

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::fmt;

/// Reason why there is no device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Result of the libraries' functions; 0 is success.
pub(crate) type ReturnCode = std::ffi::c_int;

/// A table of optional functions: an old driver lacks some, and only their users fail.
macro_rules! functions {
    ($($name:ident as $symbol:literal: fn($($argument:ty),*);)*) => {
        pub(crate) struct Functions {
            $(pub(crate) $name: Option<unsafe extern "C" fn($($argument),*) -> $crate::library::ReturnCode>,)*
        }

        impl Functions {
            fn of(library: &libloading::os::unix::Library) -> Self {
                // SAFETY: prototypes of the header for these names, whose suffix is the interface version.
                unsafe { Self { $($name: library.get($symbol).ok().map(|found| *found),)* } }
            }
        }
    };
}
pub(crate) use functions;

/// Paths to search for a library. The variable's path replaces all others, for tests and unusual installations.
pub(crate) fn candidates(variable: &str, usual: &[&str]) -> Vec<OsString> {
    match std::env::var_os(variable) {
        Some(path) => vec![path],
        None => usual.iter().map(OsString::from).collect(),
    }
}

/// Opens the first existing library. On failure, returns the loader's error for the first path, or for one that exists.
pub(crate) fn open_first(candidates: &[OsString]) -> Result<Library, Unavailable> {
    let mut why = String::from("there is no directory to search for the library");
    for (i, path) in candidates.iter().enumerate() {
        // SAFETY: the driver's initialisers are as harmless as those of any other library that a server loads.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library),
            // The loader's message is the error's source.
            Err(e) if i == 0 || std::path::Path::new(path).is_file() => {
                why = std::error::Error::source(&e).unwrap_or(&e).to_string();
            }
            Err(_) => {}
        }
    }
    Err(Unavailable(why))
}
