//! Calls of the operating system without a safe wrapper: a fine timer, the CPU time of this process, and signals that
//! end it.

#![allow(unsafe_code)] // timerfd, getrusage and sigaction have no safe wrapper in std; each call with its reason

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use timer::Timer;

/// Waits until a point in time to some tens of microseconds. tokio's timers count whole milliseconds, which is more
/// than most of the latencies that an open loop is there to see.
#[cfg(target_os = "linux")]
mod timer {
    use std::io::{Error, ErrorKind, Result};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::task::{Context, Poll, ready};
    use std::time::{Duration, Instant};
    use tokio::io::unix::AsyncFd;

    /// One waiter at a time.
    pub struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        /// A timer that is not set.
        pub fn new() -> Result<Self> {
            // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
            let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
            if raw < 0 {
                return Err(Error::last_os_error());
            }
            // SAFETY: `raw` was just made and belongs to nobody else.
            let owned = unsafe { OwnedFd::from_raw_fd(raw) };
            // SAFETY: `OwnedFd` names the same descriptor until it is dropped, and is dropped by the `AsyncFd` alone.
            Ok(Self(unsafe { AsyncFd::register(owned) }?))
        }

        /// Sets the time that is waited for; an earlier one is forgotten.
        pub fn arm(&mut self, at: Instant) -> Result<()> {
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
        pub fn poll_until(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<Result<()>> {
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
}

/// Elsewhere with tokio's timers, to a millisecond.
#[cfg(not(target_os = "linux"))]
mod timer {
    use std::io::Result;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Instant;
    use tokio::time::{Sleep, sleep_until};

    /// One waiter at a time.
    pub struct Timer(Pin<Box<Sleep>>);

    impl Timer {
        /// A timer that is not set.
        pub fn new() -> Result<Self> {
            Ok(Self(Box::pin(sleep_until(Instant::now().into()))))
        }

        /// Sets the time that is waited for; an earlier one is forgotten.
        pub fn arm(&mut self, at: Instant) -> Result<()> {
            self.0.as_mut().reset(at.into());
            Ok(())
        }

        /// Ready once `at`, the time that was set, has come.
        pub fn poll_until(&mut self, _: Instant, cx: &mut Context<'_>) -> Poll<Result<()>> {
            self.0.as_mut().poll(cx).map(Ok)
        }
    }
}

/// CPU time that this process used.
pub fn cpu_time() -> Duration {
    // SAFETY: all bytes of it may be zero.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and as large as the call expects.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

static ENDED: AtomicBool = AtomicBool::new(false);

/// Ends the measurement early.
pub fn end() {
    ENDED.store(true, Ordering::Relaxed);
}

/// Whether the measurement is to end.
pub fn is_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// From now on SIGINT and SIGTERM end the measurement, and not the process.
pub fn end_on_signals() {
    extern "C" fn on_signal(_: libc::c_int) {
        end();
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a handler.
        unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn timers_are_finer_than_a_millisecond() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let late = runtime.block_on(async {
            let mut timer = Timer::new().expect("timer");
            let mut late: Vec<_> = Vec::new();
            for _ in 0..51 {
                let at = Instant::now() + Duration::from_micros(300);
                timer.arm(at).expect("arms");
                std::future::poll_fn(|cx| timer.poll_until(at, cx)).await.expect("waits");
                late.push(at.elapsed());
            }
            late.sort();
            late[25]
        });
        assert!(late < Duration::from_micros(700), "median lateness {late:?}");
    }
}
