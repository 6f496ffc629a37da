//! The process of a server that a program embeds. The program may reap its children itself, so it is named by a pidfd.

#![allow(unsafe_code)] // pidfd

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// A server's process. Killed and waited for when this is dropped.
pub(super) struct ServerProcess {
    /// Readable once the process has ended.
    pidfd: OwnedFd,
}

impl ServerProcess {
    /// # Errors
    /// The system has no pidfds, or no descriptors left. The process is not waited for.
    pub(super) fn new(child: &Child) -> io::Result<Self> {
        // SAFETY: numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(child.id()), 0) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a descriptor that the kernel just gave us.
        Ok(Self { pidfd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Waits at most `longest` for its end. Returns false if it still runs.
    pub(super) fn wait(&self, longest: Duration) -> bool {
        let mut waits = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let until = std::time::Instant::now() + longest;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: one entry, ours.
            let ready = unsafe { libc::poll(&raw mut waits, 1, ms) };
            if ready > 0 {
                return true;
            }
            // A signal of the program may interrupt the call.
            if ready == 0 && left.is_zero() {
                return false;
            }
        }
    }

    pub(super) fn kill(&self) {
        // SAFETY: numbers, and a null pointer for no details.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                libc::c_long::from(self.pidfd.as_raw_fd()),
                libc::c_long::from(libc::SIGKILL),
                std::ptr::null::<libc::c_void>(),
                0,
            );
        }
    }

    /// Returns how the process ended, which it has; `None` if the program has reaped it.
    pub(super) fn reap(&self) -> Option<ExitStatus> {
        // SAFETY: a structure of numbers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let fd = self.pidfd.as_raw_fd().cast_unsigned();
        loop {
            // SAFETY: a descriptor of ours, and room for the answer.
            if unsafe { libc::waitid(libc::P_PIDFD, fd, &raw mut info, libc::WEXITED) } == 0 {
                break;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
        // SAFETY: the call has filled in the status.
        let status = unsafe { info.si_status() };
        // The form of `wait`: the code of an exit is in the second byte, a signal in the first.
        Some(ExitStatus::from_raw(if info.si_code == libc::CLD_EXITED { status << 8 } else { status }))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
        self.reap();
    }
}
