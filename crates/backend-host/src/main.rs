//! The process that runs libraries written for Triton's C API. All of it is in our `libtritonserver.so`: the first
//! argument names it, and libraries that are opened later find that one under the name that they are linked with.

#![allow(unsafe_code)] // dlopen, dlsym, setuid

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::unix::ffi::OsStringExt;

#[cfg(target_os = "linux")]
mod guardian;

fn main() {
    #[cfg(target_os = "linux")]
    if let (Some(first), Some(server)) = (std::env::args_os().nth(1), std::env::args_os().nth(2))
        && first == "--guardian"
    {
        return guardian::run(&server.to_string_lossy());
    }
    // Any argument but the first is a word, or the path of a library.
    let words: Vec<_> = std::env::args_os().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
    let Some(path) = std::env::args_os().nth(1).and_then(|path| CString::new(path.into_vec()).ok()) else {
        eprintln!("nereid-backend-host is started by a Nereid server, with the path of its libtritonserver.so");
        std::process::exit(2);
    };
    // SAFETY: a NUL-terminated path; the library has no constructors but those of Rust's runtime.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    // SAFETY: a NUL-terminated name; the handle is null or open, and a null one finds nothing of this name.
    let found = unsafe { libc::dlsym(library, c"nereid_backend_host_main".as_ptr()) };
    if library.is_null() || found.is_null() {
        // SAFETY: after a failure the text is NUL-terminated, and valid until the next call of this thread.
        let why = unsafe { CStr::from_ptr(libc::dlerror()) };
        eprintln!("nereid-backend-host cannot open {}: {}", path.to_string_lossy(), why.to_string_lossy());
        std::process::exit(2);
    }
    if let Some(user) = words.iter().find_map(|word| word.strip_prefix("--user="))
        && let Err(e) = become_user(user)
    {
        eprintln!("nereid-backend-host cannot become the user {user}: {e}");
        std::process::exit(2);
    }
    if let Some(what @ ("agent" | "cache")) = words.first().map(String::as_str) {
        restrain(what);
    }
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // Rust's handlers are for overflows of its stacks, and outlive a signal that a library raises.
        // SAFETY: the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: our library exports this name as a function of this type.
    let run: extern "C" fn() -> c_int = unsafe { std::mem::transmute(found) };
    std::process::exit(run());
}

/// Gives the process of an agent or a cache what that of a backend has from its start: programs that it starts win no
/// rights. That of an agent also ends with the server, even if it hangs; a cache's is started by a thread that may end.
fn restrain(what: &str) {
    // SAFETY: numbers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0, 0, 0) };
    if what == "agent" {
        // SAFETY: a number.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) };
    }
}

/// Takes a user and a group, `<uid>:<gid>`, for good. The process has one thread and has run no code of others.
fn become_user(user: &str) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let (uid, gid) = user.split_once(':').ok_or_else(invalid)?;
    let (uid, gid): (libc::uid_t, libc::gid_t) =
        (uid.parse().map_err(|_| invalid())?, gid.parse().map_err(|_| invalid())?);
    // SAFETY: no argument.
    let parent = unsafe { libc::getppid() };
    // SAFETY: numbers, and no groups.
    let changed = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
            // The kernel has cleared both with the change: the process ends with the server, and may read itself.
            && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 1 as libc::c_ulong, 0, 0, 0) == 0
    };
    if !changed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no argument.
    if unsafe { libc::getppid() } != parent {
        std::process::exit(2);
    }
    Ok(())
}
