//! `libtritonserver.so` of Nereid: Triton's C API for libraries that were built for Triton, in a process of their own.
//!
//! The process serves connections of one server (shm/README.md): one per model, which makes the model, and one per
//! instance. Requests come as frames and are handed to the library as objects of the C API; what it makes of them goes
//! back as frames. `abi` has the functions that libraries call.

#![allow(dead_code)] // until the connection is served

mod abi;
mod generated {
    mod stubs;
}
mod link;
mod segments;

use std::ffi::c_int;

/// Serves the connections that come on descriptor 3, until it is closed. Returns the exit status of the process.
#[unsafe(no_mangle)]
#[allow(unsafe_code)] // an exported name
pub extern "C" fn nereid_backend_host_main() -> c_int {
    0
}
