//! Finds the program `nereid` and starts it as the server of a program that embeds one.

#![allow(unsafe_code)] // dladdr, and what runs between fork and exec

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tensor::{Error, Result};

/// Names the program, or the script that Node runs.
const PROGRAM: &str = "NEREID_PROGRAM";
/// Tells the server which descriptor its socket is.
const EMBEDDER: &str = "NEREID_EMBEDDER";
/// Descriptor of the socket in the process of the server.
const FD: RawFd = 3;
/// Has `close_range` set the flag of each descriptor instead of closing it: the start itself still uses some.
const CLOSE_RANGE_CLOEXEC: libc::c_long = 4;
/// Variables with which a service manager, or Node, speaks to the program. Its server must not answer for it.
const OF_PROGRAM: [&str; 9] = [
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "NODE_CHANNEL_FD",
    "NODE_CHANNEL_SERIALIZATION_MODE",
    "NODE_UNIQUE_ID",
];
/// Options of the server that open ports, as variables.
const PORTS: [&str; 2] = ["NEREID_ALLOW_HTTP", "NEREID_ALLOW_GRPC"];
/// The script, below the root of the package or of a clone.
const SCRIPT: &str = "dist/cli/main.js";
/// The package, in the directory of packages that also has the one of this library.
const PACKAGE: &str = "nereid";

/// The program that is started, without the options of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    program: OsString,
    script: Option<PathBuf>,
}

impl Found {
    /// A script is run by Node.
    fn of(path: PathBuf) -> Self {
        if path.extension() == Some(OsStr::new("js")) {
            Self { program: "node".into(), script: Some(path) }
        } else {
            Self { program: path.into(), script: None }
        }
    }
}

/// Starts the server with these options. Its end of the socket is `socket`.
///
/// # Errors
/// There is no program, or it cannot be started.
pub(super) fn start(options: &[String], socket: BorrowedFd<'_>) -> Result<Child> {
    let Found { program, script } = find(std::env::var_os(PROGRAM), own_path().as_deref());
    let mut command = Command::new(&program);
    command.args(script).arg("serve").args(options);
    // Standard output may have a format that lines of a log would break.
    let log = std::io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    command.stdin(Stdio::null()).stdout(log);
    command.env_remove(PROGRAM).env(EMBEDDER, FD.to_string());
    for variable in OF_PROGRAM {
        command.env_remove(variable);
    }
    // The program is the only client, unless its environment asks for ports.
    for port in PORTS.into_iter().filter(|port| std::env::var_os(port).is_none()) {
        command.env(port, "false");
    }
    // Above the numbers that the server's own descriptors get, which the program may have closed.
    let above = rustix::io::fcntl_dupfd_cloexec(socket, FD + 1);
    let above = above.map_err(|error| Error::internal(format!("no server can be started: {error}")))?;
    let from = above.as_raw_fd();
    let inherit = move || {
        // SAFETY: system calls only, with descriptors of this process.
        unsafe {
            // The terminal's signals are for the program that embeds the server, which decides when the server ends.
            libc::setsid();
            // Sockets and files of the program close with it. A kernel without the call leaves them to the server.
            let (first, last) = (libc::c_long::from(FD + 1), libc::c_long::from(u32::MAX));
            libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC);
            if libc::dup2(from, FD) < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        }
    };
    // SAFETY: the function allocates nothing and takes no lock.
    unsafe { command.pre_exec(inherit) };
    // If the program reaps its children itself, a failed start panics: the child that reported it is gone.
    let spawned = catch_unwind(AssertUnwindSafe(|| command.spawn()));
    spawned.unwrap_or_else(|_| Err(std::io::ErrorKind::NotFound.into())).map_err(|e| {
        let program = Path::new(&program).display();
        Error::internal(format!(
            "the server '{program}' cannot be started: {e}; {PROGRAM} names the program nereid, or put it on PATH"
        ))
    })
}

/// The program: the one that the environment names, or the one of the same package as this library, or any on PATH.
fn find(named: Option<OsString>, library: Option<&Path>) -> Found {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return Found::of(named.into());
    }
    let beside = library.and_then(|library| script_of(library, &|path| path.is_file()));
    beside.map_or_else(|| Found { program: "nereid".into(), script: None }, Found::of)
}

/// The script of the package that has `library`: of a clone, which has it in `native/`, or of the package `nereid`
/// beside or above the package for the platform, whose scope is a directory or not.
fn script_of(library: &Path, is_file: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let above = library.ancestors().skip(2).take(3);
    let scripts = above.flat_map(|root| [root.join(SCRIPT), root.join(PACKAGE).join(SCRIPT)]);
    scripts.into_iter().find(|script| is_file(script))
}

/// The file that this code was loaded from, without links.
fn own_path() -> Option<PathBuf> {
    let code = own_path as fn() -> Option<PathBuf>;
    // SAFETY: an address of this library, and room for the answer, which may be zero. The loader's text lives as long
    // as the library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(code as *const libc::c_void, &raw mut info);
        info.dli_fname.as_ref().map(|name| CStr::from_ptr(name))
    }?;
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_that_of_the_same_package() {
        let of = |library: &str, there: &'static str| {
            script_of(Path::new(library), &|path: &Path| path == Path::new(there)).is_some()
        };
        assert!(of("/clone/native/libtritonserver.so", "/clone/dist/cli/main.js"));
        assert!(of("/a/node_modules/@nereid/x/libtritonserver.so", "/a/node_modules/nereid/dist/cli/main.js"));
        assert!(of("/a/node_modules/nereid-x/libtritonserver.so", "/a/node_modules/nereid/dist/cli/main.js"));
        assert!(of("/a/node_modules/nereid/node_modules/@nereid/x/lib.so", "/a/node_modules/nereid/dist/cli/main.js"));
        assert!(!of("/a/b/c/d/libtritonserver.so", "/dist/cli/main.js"));
        assert!(!of("/libtritonserver.so", "/x"));
    }

    #[test]
    fn the_environment_names_a_program_or_a_script() {
        let found = |name: &str| find(Some(name.into()), None);
        assert_eq!(found("/opt/nereid"), Found { program: "/opt/nereid".into(), script: None });
        assert_eq!(found("/x/main.js"), Found { program: "node".into(), script: Some("/x/main.js".into()) });
        assert_eq!(found(""), Found { program: "nereid".into(), script: None });
    }
}
