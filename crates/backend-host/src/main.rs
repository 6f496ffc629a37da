//! The process that runs libraries written for Triton's C API. All of it is in our `libtritonserver.so`, which the first
//! argument names: libraries that are opened later find that one under the name that they are linked with.

#![allow(unsafe_code)] // dlopen, dlsym

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStringExt;

fn main() {
    let Some(path) = std::env::args_os().nth(1).and_then(|path| CString::new(path.into_vec()).ok()) else {
        eprintln!("nereid-backend-host is started by a Nereid server, with the path of its libtritonserver.so");
        std::process::exit(2);
    };
    // SAFETY: a NUL-terminated path; the library has no constructors but those of Rust's runtime.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    // SAFETY: a NUL-terminated name; the handle is null or open, and a null one finds nothing of this name.
    let found = unsafe { libc::dlsym(library, c"nereid_backend_host_main".as_ptr()) };
    if library.is_null() || found.is_null() {
        // SAFETY: after a failure the text is NUL-terminated, and valid until the next call of this thread.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        eprintln!("nereid-backend-host cannot open {}: {}", path.to_string_lossy(), why.to_string_lossy());
        std::process::exit(2);
    }
    // SAFETY: our library exports this name as a function of this type.
    let run: extern "C" fn() -> c_int = unsafe { std::mem::transmute(found) };
    std::process::exit(run());
}
