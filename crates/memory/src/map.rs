//! Opens an object of `/dev/shm` by key and maps a window of it.
//!
//! Enforces only what the file system permits; the registry checks names, prefixes and limits first. Invariant: a
//! `Mapping` is guarded by `sigbus` for exactly as long as it exists.

#![allow(unsafe_code)] // open, fstat, mmap, munmap

use crate::room;
use crate::sigbus::Guard;
use device::Locked;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

const DIRECTORY: &std::ffi::CStr = c"/dev/shm";
/// NAME_MAX of tmpfs.
const KEY_BYTES_MAX: usize = 255;
/// The smallest page size: an offset that is not a multiple of it is unaligned everywhere.
const PAGE_BYTES: u64 = 4096;

/// Why a window could not be mapped; the registry turns each into its text.
#[derive(Debug)]
pub(crate) enum MapError {
    /// No object has this key, or the key is not allowed.
    Open,
    /// The path is not a regular file, or the file is empty.
    NotAFile,
    /// The window ends after the end of the object.
    Bounds,
    /// mmap failed.
    Map(io::Error),
    /// Every guard slot is taken.
    Full,
}

/// A window of a client's file, readable and writable in place.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    guard: Guard,
    object: (u64, u64),
    /// Dropped before the mapping.
    locked: Option<Locked>,
}

// SAFETY: the mapping is plain memory without an owning thread; its users treat the contents as volatile plain bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing of ours is kept in it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of the object `key`; leading slashes are dropped (1.3).
    pub(crate) fn open(key: &str, offset: u64, len: u64) -> Result<Self, MapError> {
        let file = open(key)?;
        let meta = file.metadata().map_err(|_| MapError::NotAFile)?;
        if !meta.is_file() {
            return Err(MapError::NotAFile);
        }
        // Triton adds without a check, and mmap rejects a wrapped sum: the same response, without calling mmap.
        let (end, wrapped) = offset.overflowing_add(len);
        if end > meta.len() {
            return Err(MapError::Bounds);
        }
        if wrapped {
            let unaligned = !offset.is_multiple_of(PAGE_BYTES);
            let reason = if unaligned { libc::EINVAL } else { libc::ENOMEM };
            return Err(MapError::Map(io::Error::from_raw_os_error(reason)));
        }
        let (Ok(len), Ok(offset)) = (usize::try_from(len), libc::off_t::try_from(offset)) else {
            return Err(MapError::Bounds);
        };
        let guard = Guard::reserve().ok_or(MapError::Full)?;
        // SAFETY: a new mapping at an address of the kernel's choice; the window was just checked against the file's
        // size. A file that shrinks later raises SIGBUS, which `guard` turns into zero pages.
        let map = || unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        let base =
            room::take(len, || Some(map())).ok_or_else(|| MapError::Map(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        if base == libc::MAP_FAILED {
            return Err(MapError::Map(io::Error::last_os_error()));
        }
        let base =
            NonNull::new(base.cast::<u8>()).ok_or_else(|| MapError::Map(io::Error::from_raw_os_error(libc::EINVAL)))?;
        guard.protect(base.as_ptr() as usize, len);
        Ok(Self { base, len, guard, object: (meta.dev(), meta.ino()), locked: None })
    }

    /// Page-locks the mapping if there is a device and room for it: then devices copy from and to it directly.
    pub(crate) fn lock_pages(&mut self) {
        // SAFETY: mapped until `drop`, which unlocks first.
        self.locked = unsafe { Locked::new(self.base, self.len) };
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.locked.is_some()
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address at `offset`, which is at most the length.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: clamped to one past the end of the mapping, so the result stays inside it.
        unsafe { self.base.as_ptr().add(offset.min(self.len)) }
    }

    /// Device and inode of the file.
    pub(crate) fn object(&self) -> (u64, u64) {
        self.object
    }

    /// False once one of its pages was found missing.
    pub(crate) fn is_intact(&self) -> bool {
        self.guard.is_intact()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.locked = None;
        // Before other code can get these addresses, whose faults must not be repaired.
        self.guard.unprotect();
        // SAFETY: base and length of our own mapping; every pointer into it is held by a pin that keeps `self` alive.
        unsafe { libc::munmap(self.base().as_ptr().cast(), self.len) };
    }
}

fn open(key: &str) -> Result<File, MapError> {
    let name = key.trim_start_matches('/');
    // `sem.` files are POSIX semaphores of other programs. The other names would fail in the system call, too, but must
    // not depend on it (1.13).
    let refused = name.is_empty()
        || name.len() > KEY_BYTES_MAX
        || name.contains('/')
        || name == "."
        || name == ".."
        || name.starts_with("sem.");
    let name = match CString::new(name) {
        Ok(name) if !refused => name,
        _ => return Err(MapError::Open),
    };
    let directory = checked_fd(
        // SAFETY: a constant, NUL-terminated path; the result is checked.
        unsafe { libc::open(DIRECTORY.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) },
    )?;
    // O_NONBLOCK: opening a FIFO or a device must not block before the file type is checked.
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: `directory` is open, `name` is NUL-terminated and has no slash; the result is checked.
    checked_fd(unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags) })
}

fn checked_fd(fd: libc::c_int) -> Result<File, MapError> {
    if fd < 0 {
        return Err(MapError::Open);
    }
    // SAFETY: a descriptor the kernel just gave us and no other code knows.
    Ok(unsafe { File::from_raw_fd(fd) })
}
