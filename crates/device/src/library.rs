//! Libraries of the driver, opened when they are needed, each function optional.

#![allow(unsafe_code)] // opens libraries

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::fmt;

/// Why there is no device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What functions of both libraries answer; 0 is success.
pub(crate) type Code = std::ffi::c_int;

/// A table of functions, each where the library has it: an old driver lacks some, and only what needs them is refused then.
macro_rules! functions {
    ($($name:ident as $symbol:literal: fn($($argument:ty),*);)*) => {
        pub(crate) struct Functions { $(pub(crate) $name: Option<unsafe extern "C" fn($($argument),*) -> $crate::library::Code>,)* }

        impl Functions {
            fn of(library: &libloading::os::unix::Library) -> Self {
                // SAFETY: the prototypes are those of the library's header for these names, whose suffix tells the version of the interface.
                unsafe { Self { $($name: library.get($symbol).ok().map(|found| *found),)* } }
            }
        }
    };
}
pub(crate) use functions;

/// Where a library is looked for. The variable's path comes alone: for tests, and for drivers in unusual places.
pub(crate) fn candidates(variable: &str, usual: &[&str]) -> Vec<OsString> {
    match std::env::var_os(variable) {
        Some(path) => vec![path],
        None => usual.iter().map(OsString::from).collect(),
    }
}

/// Opens the first of the places that has the library. If none has, what the loader said of the first, or of one that is there.
pub(crate) fn open_first(candidates: &[OsString]) -> Result<Library, Unavailable> {
    let mut why = String::from("no place to look for the library");
    for (i, path) in candidates.iter().enumerate() {
        // SAFETY: the driver's initialisers are as harmless as those of any other library a server is told to load.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library),
            // What the loader said is behind the error.
            Err(e) if i == 0 || std::path::Path::new(path).is_file() => {
                why = std::error::Error::source(&e).unwrap_or(&e).to_string();
            }
            Err(_) => {}
        }
    }
    Err(Unavailable(why))
}
