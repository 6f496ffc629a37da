//! The process that runs libraries written for Triton's C API. All of it is in our `libtritonserver.so`: the first
//! argument names it, and libraries that are opened later find that one under the name that they are linked with.

#![allow(unsafe_code)] // a library, and actions of signals

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::c_int;
use std::io;
use std::os::unix::process::parent_id;

#[cfg(target_os = "linux")]
mod guardian;

fn main() {
    #[cfg(target_os = "linux")]
    if let (Some(first), Some(server)) = (std::env::args_os().nth(1), std::env::args_os().nth(2))
        && first == "--guardian"
    {
        // These signals are for the server, which takes its time to end.
        on_signals(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM], libc::SIG_IGN);
        return guardian::run(&server.to_string_lossy());
    }
    // Any argument but the first is a word, or the path of a library.
    let words: Vec<_> = std::env::args_os().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
    let Some(path) = std::env::args_os().nth(1) else {
        return fail("nereid-backend-host is started by a Nereid server, with the path of its libtritonserver.so");
    };
    // SAFETY: the library is ours: it has no constructors but those of Rust's runtime, and exports a function of this
    // type. It is never closed.
    let run = unsafe {
        Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL).and_then(|library| {
            let library = Box::leak(Box::new(library));
            library.get::<extern "C" fn() -> c_int>("nereid_backend_host_main")
        })
    };
    let run = match run {
        Ok(run) => run,
        Err(error) => {
            return fail(&format!("nereid-backend-host cannot open {}: {error}", path.to_string_lossy()));
        }
    };
    if let Some(user) = words.iter().find_map(|word| word.strip_prefix("--user="))
        && let Err(error) = become_user(user)
    {
        return fail(&format!("nereid-backend-host cannot become the user {user}: {error}"));
    }
    if let Some(what @ ("agent" | "cache")) = words.first().map(String::as_str) {
        restrain(what);
    }
    // Rust's handlers are for overflows of its stacks, and outlive a signal that a library raises.
    on_signals(&[libc::SIGSEGV, libc::SIGBUS], libc::SIG_DFL);
    std::process::exit(run());
}

fn fail(text: &str) {
    eprintln!("{text}");
    std::process::exit(2);
}

fn on_signals(signals: &[c_int], action: libc::sighandler_t) {
    for signal in signals {
        // SAFETY: the action is the default or to ignore: no handler.
        unsafe { libc::signal(*signal, action) };
    }
}

/// Gives the process of an agent or a cache what that of a backend has from its start: programs that it starts win no
/// rights. That of an agent also ends with the server, even if it hangs; a cache's is started by a thread that may end.
fn restrain(what: &str) {
    let _ = set_no_new_privs(true);
    if what == "agent" {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

/// Takes a user and a group, `<uid>:<gid>`, for good. The process has one thread and has run no code of others.
fn become_user(user: &str) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number != u32::MAX).ok_or_else(invalid);
    let (uid, gid) = user.split_once(':').ok_or_else(invalid)?;
    let (uid, gid) = (Uid::from_raw(number(uid)?), Gid::from_raw(number(gid)?));
    let parent = parent_id();
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    // The kernel has cleared both with the change: the process ends with the server, and may read itself.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    if parent_id() != parent {
        std::process::exit(2);
    }
    Ok(())
}
