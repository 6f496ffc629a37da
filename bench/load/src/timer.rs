//! Waits until a point in time to some tens of microseconds. tokio's timers count whole milliseconds, which is more than most of
//! the latencies that an open loop is there to see.

#![allow(unsafe_code)] // timerfd has no safe wrapper in std; three calls, each with its reason

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;
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

    pub async fn until(&self, at: Instant) -> Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let when = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is open, `when` lives over the call, and the old value is not asked for.
        if unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &when, std::ptr::null_mut()) } < 0 {
            return Err(Error::last_os_error());
        }
        loop {
            let mut guard = self.0.readable().await?;
            let mut expirations = 0u64;
            // SAFETY: the descriptor is open and eight writable bytes are given.
            let n = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut expirations).cast(), 8) };
            if n == 8 {
                return Ok(());
            }
            let error = Error::last_os_error();
            if error.kind() != ErrorKind::WouldBlock {
                return Err(error);
            }
            guard.clear_ready();
        }
    }
}
