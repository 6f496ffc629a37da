//! `libtritonserver.so` of Nereid: Triton's C API for libraries that were built for Triton, in a process of their own.
//!
//! The process serves connections of one server (shm/README.md): one per model, which makes the model, and one per
//! instance. Requests come as frames and are handed to the library as objects of the C API; what it makes of them goes
//! back as frames. `abi` has the functions that libraries call.

mod abi;
mod agents;
mod generated {
    mod stubs;
}
mod bytes;
mod calls;
mod configuration;
mod connection;
mod library;
mod link;
mod models;
mod outgoing;
mod receive;
mod segments;
mod strategy;
#[cfg(test)]
mod testing;

use connection::Descriptors;
use frames::generated::FD_WORK;
use receive::Incoming;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Serves the connections that come on descriptor 3, until it is closed. Returns the exit status of the process.
#[unsafe(no_mangle)]
#[allow(unsafe_code)] // an exported name, and an inherited descriptor
pub extern "C" fn nereid_backend_host_main() -> c_int {
    // SAFETY: the server starts this process with this descriptor, and nothing else takes it.
    let control = unsafe { OwnedFd::from_raw_fd(FD_WORK as RawFd) };
    // The second argument says what else than a backend the process runs.
    let mut arguments = std::env::args_os().skip(2);
    if let (Some(what), Some(library)) = (arguments.next(), arguments.next())
        && what == "agent"
    {
        let served = agents::serve(std::path::Path::new(&library), UnixStream::from(control));
        return c_int::from(served.is_err());
    }
    let mut control = Incoming::new(UnixStream::from(control));
    let status = loop {
        match next(&mut control).and_then(|of| of.map(connection::serve).transpose()) {
            Ok(Some(())) => {}
            Ok(None) => break 0,
            Err(error) => {
                eprintln!("the host of a backend ends: {error}");
                break 1;
            }
        }
    };
    models::finalize();
    status
}

/// The next connection; `None` when the server has closed the socket.
fn next(control: &mut Incoming) -> std::io::Result<Option<Descriptors>> {
    let Some(work) = control.handed()? else { return Ok(None) };
    let mut more = || control.handed()?.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
    Ok(Some(Descriptors { work, side: more()?, requests: more()?, responses: more()?, flags: more()? }))
}
