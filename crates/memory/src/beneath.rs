//! Files below a directory. The kernel decides whether a path leads out of it, while it follows the path (`openat2`),
//! and not the texts of canonical paths: such a text can name another directory, or none. KServe mounts a repository as
//! `/proc/PID/root/models`, whose canonical path `/models` is one of another mount namespace.

#![allow(unsafe_code)] // openat2, mmap

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
const LOOK: i32 = libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const LOOK: i32 = libc::O_RDONLY | libc::O_NONBLOCK;

/// Opens the regular file at `path`, which is relative to `root` or begins with it. Links are followed as long as they
/// stay below `root`. Never waits for the writer of a FIFO, and opens no device.
///
/// # Errors
/// `CrossesDevices` if the path leads out of `root`, `IsADirectory`, `InvalidInput` if it is another kind of file.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    // Looked at before it is opened, because opening a device may have effects, and after, because it may be replaced.
    regular(&resolve(root, path, LOOK)?)?;
    let file = resolve(root, path, libc::O_RDONLY | libc::O_NONBLOCK)?;
    regular(&file).map(|()| file)
}

/// Succeeds if `path`, which is relative to `root` or begins with it, exists and stays below `root`.
///
/// # Errors
/// `CrossesDevices` if it leads out of it.
pub fn contains(root: &Path, path: &Path) -> io::Result<()> {
    resolve(root, path, LOOK).map(drop)
}

/// The canonical path if it leads to the same file, else the given path, made absolute.
///
/// # Errors
/// There is no such file.
pub fn usable(path: &Path) -> io::Result<PathBuf> {
    let found = path.metadata()?;
    match path.canonicalize() {
        Ok(real) if real.metadata().is_ok_and(|m| is_same(&m, &found)) => Ok(real),
        _ => std::path::absolute(path),
    }
}

/// Whether programs that make paths canonical, such as Node and ONNX Runtime, find this file.
pub fn has_canonical(path: &Path) -> bool {
    usable(path).is_ok_and(|path| path.canonicalize().is_ok_and(|real| real == path))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn regular(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, "Not a regular file")),
    }
}

fn resolve(root: &Path, path: &Path, flags: i32) -> io::Result<File> {
    let outside = || io::Error::from(ErrorKind::CrossesDevices);
    let directory = OpenOptions::new().read(true).custom_flags(LOOK | libc::O_DIRECTORY).open(root)?;
    let refused = match open_beneath(&directory, path.strip_prefix(root).unwrap_or(path), flags) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EXDEV | libc::EAGAIN | libc::ENOSYS | libc::EPERM)) => e,
        result => return result,
    };
    // An absolute link may lead back into the directory; the others stand for a kernel or a sandbox without the call.
    let has_call = refused.raw_os_error() == Some(libc::EXDEV);
    let canonical = |path: &Path| path.canonicalize().map_err(|e| if has_call { outside() } else { e });
    let (real_root, real) = (canonical(root)?, canonical(&root.join(path))?);
    let rest = real.strip_prefix(&real_root).map_err(|_| outside())?;
    if !is_same(&real_root.metadata()?, &directory.metadata()?) {
        return Err(outside());
    }
    if has_call {
        return open_beneath(&directory, rest, flags);
    }
    OpenOptions::new().read(true).custom_flags(flags | libc::O_NOFOLLOW).open(&real)
}

/// Opens a path below a directory by `openat2`.
#[cfg(target_os = "linux")]
fn open_beneath(directory: &File, rest: &Path, flags: i32) -> io::Result<File> {
    let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
    // No file has a NUL in its name, below the directory or elsewhere.
    let rest = CString::new(rest.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EXDEV))?;
    // SAFETY: zero is a value of every field.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH;
    let size = size_of::<libc::open_how>();
    // SAFETY: an open directory, a NUL-terminated path, and the structure with its size.
    let fd = unsafe { libc::syscall(libc::SYS_openat2, directory.as_raw_fd(), rest.as_ptr(), &raw const how, size) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened has no other owner.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_: &File, _: &Path, _: i32) -> io::Result<File> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// A file, mapped for a library that reads it.
pub struct FileMap {
    base: NonNull<u8>,
    len: usize,
}

impl FileMap {
    /// Maps a whole file; `None` for an empty one.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn of(file: &File) -> io::Result<Option<Self>> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: a new private mapping of an open file, which nothing writes.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(NonNull::new(base.cast()).map(|base| Self { base, len }))
    }

    /// Address and length, valid as long as the map. The file may change meanwhile.
    pub fn parts(&self) -> (NonNull<u8>, usize) {
        (self.base, self.len)
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the mapping of `of`, which nothing refers to any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// `<root>/model/deep/file` has a text; `<root>/model` has links of every kind.
    fn tree(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("nereid_beneath_{}_{name}", std::process::id()));
        let model = root.join("model");
        std::fs::create_dir_all(model.join("deep")).unwrap();
        std::fs::write(model.join("deep/file"), "inside").unwrap();
        std::fs::write(root.join("secret"), "secret").unwrap();
        for (target, link) in [
            ("deep/file", "relative"),
            ("../secret", "up"),
            ("../model/deep/file", "around"),
            ("/dev/zero", "device"),
            ("loop", "loop"),
        ] {
            symlink(target, model.join(link)).unwrap();
        }
        symlink(model.join("deep/file"), model.join("absolute")).unwrap();
        symlink(root.join("secret"), model.join("secret")).unwrap();
        symlink(&root, model.join("parent")).unwrap();
        symlink(&model, root.join("alias")).unwrap();
        root
    }

    #[test]
    fn links_stay_below_the_directory_however_they_are_written() {
        let root = tree("links");
        let model = root.join("model");
        let kind = |path: &str| open(&model, Path::new(path)).map_err(|e| e.kind()).err();
        for path in ["deep/file", "relative", "absolute", "around", "deep/../relative"] {
            assert_eq!(kind(path), None, "{path}");
            assert_eq!(open(&root.join("alias"), Path::new(path)).map(|_| ()).map_err(|e| e.kind()), Ok(()), "{path}");
        }
        for path in ["up", "secret", "parent/secret", "../secret", "device", "/etc/passwd"] {
            assert_eq!(kind(path), Some(ErrorKind::CrossesDevices), "{path}");
        }
        assert_eq!(kind("absent"), Some(ErrorKind::NotFound));
        assert_eq!(kind("deep"), Some(ErrorKind::IsADirectory));
        assert_eq!(open(&model, &model.join("deep/file")).map(|_| ()).map_err(|e| e.kind()), Ok(()), "absolute path");
        assert!(contains(&model, &model).is_ok() && contains(&model, &root).is_err());
        assert!(std::process::Command::new("mkfifo").arg(model.join("fifo")).status().unwrap().success());
        assert_eq!(kind("fifo"), Some(ErrorKind::InvalidInput));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_path_is_made_canonical_where_that_leads_to_the_same_file() {
        let root = tree("usable");
        let file = root.join("model/deep/file").canonicalize().unwrap();
        assert_eq!(usable(&root.join("alias/relative")).unwrap(), file);
        assert!(has_canonical(&root.join("alias/relative")) && !has_canonical(&root.join("model/absent")));
        assert_eq!(usable(&root.join("model/absent")).unwrap_err().kind(), ErrorKind::NotFound);
        let map = FileMap::of(&File::open(&file).unwrap()).unwrap().unwrap();
        assert_eq!(map.parts().1, 6);
        std::fs::remove_dir_all(root).unwrap();
    }
}
