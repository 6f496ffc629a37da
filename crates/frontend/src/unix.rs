//! Unix sockets: files that processes of this machine connect to, if the mode of the file permits it.
//!
//! An existing file is replaced only if it is a socket that no process listens on, left by a server that was killed. A
//! server that ends removes its file, unless another server has replaced it.

use crate::limits::{ACCEPT_BACKLOG, SOCKET_PATH_BYTES_MAX};
use crate::place::bind_error;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tensor::{Error, Result};

/// A file that is removed with its owner.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: another server may have replaced the file.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let (path, found) = (std::path::absolute(path)?, std::fs::symlink_metadata(path)?);
        Ok(Self { path, identity: (found.dev(), found.ino()) })
    }

    /// Whether the path still leads to this file.
    fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok_and(|f| (f.dev(), f.ino()) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there()
            && let Ok(address) = SockAddr::unix(&self.path)
        {
            // Inodes are reused: it may be the file of another server, which listens on it. If the removal fails, the
            // next server removes the file as stale.
            let _ = remove_stale(&self.path, &address);
        }
    }
}

/// A Unix socket that is bound and does not listen yet: connections are rejected.
#[derive(Debug)]
pub struct BoundSocketFile {
    path: String,
    /// Dropped before `file`, which is removed only if no process has the socket.
    socket: Socket,
    file: SocketFile,
}

impl BoundSocketFile {
    /// Listens, with `count` listeners that share one queue.
    ///
    /// # Errors
    /// UNAVAILABLE if another process replaced the file meanwhile.
    pub fn listen(self, count: usize) -> Result<(SocketFile, Vec<UnixListener>)> {
        let Self { path, socket, file } = self;
        let listening = || -> io::Result<Vec<UnixListener>> {
            if !file.is_there() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            socket.listen(ACCEPT_BACKLOG)?;
            socket.set_nonblocking(true)?;
            let listener = UnixListener::from(socket);
            let mut all = (1..count).map(|_| listener.try_clone()).collect::<io::Result<Vec<_>>>()?;
            all.push(listener);
            Ok(all)
        };
        let listeners = listening().map_err(|e| failed(&path, &e))?;
        Ok((file, listeners))
    }
}

fn failed(path: &str, error: &io::Error) -> Error {
    bind_error(&format!("unix:{path}"), error)
}

/// Binds a socket to `path`. `mode` is the mode of the file.
///
/// # Errors
/// UNAVAILABLE if another process listens there; INVALID_ARG if the path is too long or cannot be bound.
pub fn bind(path: &str, mode: u32) -> Result<BoundSocketFile> {
    let bytes = path.len();
    if bytes == 0 || bytes > SOCKET_PATH_BYTES_MAX || path.contains('\0') {
        return Err(Error::invalid(format!(
            "the path of a Unix socket has 1 to {SOCKET_PATH_BYTES_MAX} bytes, '{path}' has {bytes}: use a shorter \
             path, or one relative to the directory in which the server starts"
        )));
    }
    let text = path;
    let failed = |e: io::Error| failed(text, &e);
    let path = Path::new(path);
    let address = SockAddr::unix(path).map_err(failed)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    let bound = match socket.bind(&address) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path, &address).map_err(failed)?;
            socket.bind(&address)
        }
        bound => bound,
    };
    bound.map_err(failed)?;
    let file = SocketFile::of(path).map_err(failed)?;
    // Before it listens: until then no connection is accepted, whatever the mode is.
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    Ok(BoundSocketFile { path: text.to_owned(), socket, file })
}

/// Whether a process has a socket bound to this path, also one that does not listen yet because its models are loading.
fn is_bound(path: &Path) -> bool {
    let end = format!(" {}", path.display());
    // Columns: number, references, protocol, flags, type, state, inode, path. Connections have the path in state 03.
    let is_it = |line: &str| line.ends_with(&end) && line.split_ascii_whitespace().nth(5) == Some("01");
    std::fs::read_to_string("/proc/net/unix").is_ok_and(|sockets| sockets.lines().any(is_it))
}

/// Removes the file of a socket that no process has.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other("a file of this name exists and is not a socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A blocking connect would wait for a server whose queue is full.
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && !is_bound(path) => std::fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(e),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("nereid_{name}_{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        fn path(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_socket_has_its_mode_ends_with_its_server_and_is_not_replaced_while_served() {
        let directory = Directory::new("unix");
        let path = directory.path("s");
        let held = bind(&path, 0o640).unwrap();
        assert!(UnixStream::connect(&path).is_err(), "it does not listen yet");
        let refused = bind(&path, 0o660).unwrap_err();
        assert_eq!(
            refused.message(),
            format!("Socket 'unix:{path}' already in use "),
            "a server that starts is not replaced"
        );
        let (file, listeners) = held.listen(2).unwrap();
        assert_eq!(listeners.len(), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let refused = bind(&path, 0o660).unwrap_err();
        assert_eq!(refused.message(), format!("Socket 'unix:{path}' already in use "));
        assert!(UnixStream::connect(&path).is_ok());
        // Closed listeners with a file are what a killed server leaves.
        drop(listeners);
        let (second, listeners) = bind(&path, 0o660).unwrap().listen(1).unwrap();
        // The first server does not remove the file of the second.
        drop(file);
        assert!(UnixStream::connect(&path).is_ok());
        // A server that ends closes its listeners first.
        drop(listeners);
        drop(second);
        assert!(!Path::new(&path).exists());
        let held = bind(&path, 0o660).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(held.listen(1).is_err(), "nobody could connect");
    }

    #[test]
    fn other_files_stay_and_paths_have_a_limit() {
        let directory = Directory::new("unix_files");
        let path = directory.path("file");
        std::fs::write(&path, "mine").unwrap();
        let refused = bind(&path, 0o660).unwrap_err();
        assert!(refused.message().contains("is not a socket"), "{}", refused.message());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let long = bind(&"x".repeat(SOCKET_PATH_BYTES_MAX + 1), 0o660).unwrap_err();
        assert_eq!(long.code(), tensor::Code::InvalidArg);
        assert!(long.message().contains(&format!("has {}", SOCKET_PATH_BYTES_MAX + 1)), "{}", long.message());
        assert!(bind("", 0o660).is_err() && bind("a\0b", 0o660).is_err());
        assert!(bind(&directory.path("no/such/directory"), 0o660).unwrap_err().message().contains("No such file"));
    }
}
