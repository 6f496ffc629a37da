//! `libtritonserver.so` of Nereid: Triton's C API for libraries that were built for Triton, in a process of their own.
//!
//! A program that embeds a server uses the same library (`embed`).
//!
//! The process of a library serves connections of one server (shm/README.md): one per model, which makes the model, and
//! one per instance. Requests come as frames and are handed to the library as objects of the C API; what it makes of
//! them goes back as frames. `abi` has the functions that libraries call.

mod abi;
mod agents;
mod generated {
    mod stubs;
}
mod answer;
mod bytes;
mod caches;
mod calls;
mod configuration;
mod connection;
mod described;
mod embed;
mod json;
mod library;
mod link;
mod load;
mod models;
mod outgoing;
mod receive;
mod segments;
mod strategy;
#[cfg(test)]
mod testing;
mod ticket;

use connection::{Descriptors, Received};
use frames::generated::FD_WORK;
use receive::Incoming;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Standard input, a socket to the server in a process that runs a cache.
const FD_STDIN: u64 = 0;

/// Serves the connections that come on descriptor 3, until it is closed. Returns the exit status of the process.
#[unsafe(no_mangle)]
#[allow(unsafe_code)] // an exported name, and an inherited descriptor
pub extern "C" fn nereid_backend_host_main() -> c_int {
    // The second argument says what else than a backend the process runs.
    let mut arguments = std::env::args_os().skip(2);
    let other = arguments.next().zip(arguments.next());
    // SAFETY: the server starts this process with these descriptors, and nothing else takes them.
    let inherited = |descriptor: u64| UnixStream::from(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) });
    if let Some((what, library)) = other {
        let served = match what.to_str() {
            Some("agent") => agents::serve(Path::new(&library), inherited(FD_WORK)),
            Some("cache") => caches::serve(Path::new(&library), inherited(FD_STDIN)),
            _ => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        return c_int::from(served.is_err());
    }
    let mut control = Incoming::new(inherited(FD_WORK));
    let status = loop {
        let served = Descriptors::receive(&mut control).and_then(|received| match received {
            Received::Connection(of) => connection::serve(of, models::load).map(|_| true),
            Received::Text(_) | Received::End => Ok(false),
        });
        match served {
            Ok(true) => {}
            Ok(false) => break 0,
            Err(error) => {
                eprintln!("the host of a backend ends: {error}");
                break 1;
            }
        }
    };
    models::finalize();
    status
}
