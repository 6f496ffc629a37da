//! Transfers between sockets and regions, by the kernel alone.

#![allow(unsafe_code)] // readv and writev with addresses in regions

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use tensor::RegionMemory;

/// Reads what has arrived, at most the bytes of `range`, into that part of a region in host memory.
///
/// # Errors
/// The error of the system call; `InvalidInput` for a range outside of the region or on a device.
pub fn receive(socket: BorrowedFd<'_>, region: &dyn RegionMemory, range: Range<usize>) -> io::Result<usize> {
    let part = vector(region, &range)?;
    // SAFETY: the range was checked, and the region is mapped for writes while it is borrowed. Only the kernel writes
    // to it: no reference is made.
    let n = unsafe { libc::readv(socket.as_raw_fd(), &raw const part, 1) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes `front` and then the bytes of `range` of a region in host memory, as many as the socket takes.
///
/// # Errors
/// The error of the system call; `InvalidInput` for a range outside of the region or on a device.
pub fn send(socket: BorrowedFd<'_>, front: &[u8], region: &dyn RegionMemory, range: Range<usize>) -> io::Result<usize> {
    let parts =
        [libc::iovec { iov_base: front.as_ptr().cast_mut().cast(), iov_len: front.len() }, vector(region, &range)?];
    // SAFETY: `front` is borrowed; the range was checked, and the region is mapped while it is borrowed. The kernel
    // only reads both.
    let n = unsafe { libc::writev(socket.as_raw_fd(), parts.as_ptr(), 2) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn vector(region: &dyn RegionMemory, range: &Range<usize>) -> io::Result<libc::iovec> {
    let is_inside = range.start <= range.end && range.end <= region.len();
    let first = region.host().filter(|_| is_inside).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: inside the region, at most one past its end.
    let base = unsafe { first.add(range.start) };
    Ok(libc::iovec { iov_base: base.cast(), iov_len: range.end - range.start })
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::Memfd;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_pass_between_a_socket_and_a_region() {
        let region = Memfd::new(16).expect("memory");
        let (mut here, there) = UnixStream::pair().expect("a pair");
        here.write_all(b"0123456789").expect("room");
        assert_eq!(receive(there.as_fd(), &region, 2..6).ok(), Some(4));
        assert_eq!(receive(there.as_fd(), &region, 6..16).ok(), Some(6), "what is there");
        assert_eq!(send(there.as_fd(), b"front ", &region, 4..12).ok(), Some(14));
        let mut seen = [0; 14];
        here.read_exact(&mut seen).expect("sent");
        assert_eq!(&seen, b"front 23456789");
        let end = region.len();
        for range in [end..end + 1, 5..usize::MAX] {
            let refused = [receive(there.as_fd(), &region, range.clone()), send(there.as_fd(), b"", &region, range)];
            assert!(refused.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput)));
        }
    }
}
