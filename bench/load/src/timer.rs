//! Waits until a point in time to some tens of microseconds. tokio's timers count whole milliseconds, which is more
//! than most of the latencies that an open loop is there to see.

#![allow(unsafe_code)] // timerfd has no safe wrapper in std; three calls, each with its reason

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// One waiter at a time.
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    pub fn new() -> Result<Self> {
        // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
        let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if raw < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: `raw` was just made and belongs to nobody else.
        let owned = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: `OwnedFd` names the same open descriptor until it is dropped, and is dropped by the `AsyncFd` alone.
        Ok(Self(unsafe { AsyncFd::register(owned) }?))
    }

    /// Sets the time that is waited for; an earlier one is forgotten.
    pub fn arm(&self, at: Instant) -> Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        // Zero would disarm it.
        let left = left.max(Duration::from_nanos(1));
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let when = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is open, `when` lives over the call, and the old value is not asked for.
        if unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &when, std::ptr::null_mut()) } < 0 {
            return Err(Error::last_os_error());
        }
        Ok(())
    }

    /// Ready once `at`, the time that was set, has come.
    pub fn poll_until(&self, at: Instant, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while Instant::now() < at {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let mut expirations = 0u64;
            // SAFETY: the descriptor is open and eight writable bytes are given.
            let n = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut expirations).cast(), 8) };
            if n == 8 {
                break;
            }
            let error = Error::last_os_error();
            if error.kind() != ErrorKind::WouldBlock {
                return Poll::Ready(Err(error));
            }
            guard.clear_ready();
        }
        Poll::Ready(Ok(()))
    }
}
