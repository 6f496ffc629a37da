//! Anonymous memory shared with our own processes: no other process can open it by name, and it cannot shrink.
//!
//! Invariant: the object of a `Memfd` is sealed against shrinking before its descriptor is shared, so no page of the
//! mapping is ever lost (no SIGBUS), whatever the other process does.

#![allow(unsafe_code)] // memfd_create, mmap, munmap, fallocate

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use tensor::{Base, Extent, RegionMemory};

/// Mapped shared memory. Its bytes may change at any moment: they are copied in and out through [`RegionMemory`].
pub struct Memfd {
    base: NonNull<u8>,
    len: usize,
    file: File,
    object: (u64, u64),
}

// SAFETY: plain memory without an owning thread; its users treat the contents as volatile bytes.
unsafe impl Send for Memfd {}
// SAFETY: as above.
unsafe impl Sync for Memfd {}

impl Memfd {
    /// `len` bytes of zeros, which take memory as they are written.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(len: usize) -> io::Result<Self> {
        let size = libc::off_t::try_from(len.max(1)).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: a constant, NUL-terminated name, which only /proc shows.
        let fd = unsafe { libc::memfd_create(c"nereid".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that the kernel just gave us.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: our own descriptor; the argument is an int, as this command requires.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (access, len) = (libc::PROT_READ | libc::PROT_WRITE, size as usize);
        // SAFETY: a new mapping of our own object at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let meta = file.metadata()?;
        Ok(Self { base, len, object: (meta.dev(), meta.ino()), file })
    }

    /// Faults in the pages of the first `len` bytes, so that the first writer does not fault for each. Only a hint.
    pub fn populate(&self, len: usize) {
        // Linux 5.14; older kernels reject it, and pages come as they are touched.
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        // SAFETY: a part of our own mapping; contents stay what they are.
        let _ = unsafe { libc::madvise(self.base.as_ptr().cast(), len.min(self.len), MADV_POPULATE_WRITE) };
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        // SAFETY: base and length of our own mapping; parts of it are reached through `self` only.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: mapped readable and writable as long as the value lives, sealed against shrinking; only raw pointers lead
// into it.
unsafe impl RegionMemory for Memfd {
    fn base(&self) -> Base<'_> {
        Base::Host(self.base.as_ptr())
    }
    fn len(&self) -> usize {
        self.len
    }
    fn extent(&self) -> Extent {
        Extent { object: self.object, start: 0 }
    }
    fn discard(&self, range: Range<usize>) {
        let end = range.end.min(self.len);
        let (Ok(start), Ok(len)) = (range.start.try_into(), end.saturating_sub(range.start).try_into()) else { return };
        if len > 0 {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: our own object, whose length stays; its bytes change under the mapping as another process could
            // change them. Pages that the range covers in part stay, with zeros there.
            let _ = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, start, len) };
        }
    }
}

// Miri has no memfd.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_memfd_is_shared_by_descriptor_and_cannot_shrink_b_sec_01() {
        let memory = Memfd::new(10_000).expect("memfd");
        memory.populate(10_000);
        let region: &dyn RegionMemory = &memory;
        region.copy_from(9_990, b"0123456789").expect("inside");
        assert!(region.copy_from(9_991, b"0123456789").is_err());
        let other = File::from(memory.as_fd().try_clone_to_owned().expect("a copy"));
        let mut seen = [0; 10];
        std::os::unix::fs::FileExt::read_exact_at(&other, &mut seen, 9_990).expect("the same bytes");
        assert_eq!(&seen, b"0123456789");
        assert!(other.set_len(5_000).is_err() && other.set_len(20_000).is_err(), "sealed");
    }
    #[test]
    fn discarded_memory_is_zero_and_takes_none() {
        let memory = Memfd::new(1 << 20).expect("memfd");
        memory.populate(1 << 20);
        let region: &dyn RegionMemory = &memory;
        region.copy_from(0, &[7; 1 << 20]).expect("inside");
        let blocks = || memory.file.metadata().expect("an object").blocks() * 512;
        assert_eq!(blocks(), 1 << 20);
        region.discard(100..1 << 19);
        region.discard(1 << 30..usize::MAX);
        assert!(blocks() <= (1 << 19) + (64 << 10), "{}", blocks());
        assert_eq!(region.read_at::<2>(99), Ok([7, 0]));
        assert_eq!(region.read_at::<2>((1 << 19) - 1), Ok([0, 7]));
        assert_eq!(region.len(), 1 << 20);
    }
}
