//! The process of a server that a program embeds. The program may reap its children itself, so it is named by a pidfd.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// A server's process. Killed and waited for when this is dropped.
pub(super) struct ServerProcess {
    /// Readable once the process has ended.
    pidfd: OwnedFd,
}

impl ServerProcess {
    /// # Errors
    /// The system has no pidfds, or no descriptors left. The process is not waited for.
    pub(super) fn new(child: &Child) -> io::Result<Self> {
        Ok(Self { pidfd: pidfd_open(Pid::from_child(child), PidfdFlags::empty())? })
    }

    /// Waits at most `longest` for its end. Returns false if it still runs.
    pub(super) fn wait(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut waits = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let ready = poll(&mut waits, Timespec::try_from(left).ok().as_ref());
            // A signal of the program may interrupt the call.
            match ready {
                Ok(0) if left.is_zero() => return false,
                Ok(0) | Err(_) => {}
                Ok(_) => return true,
            }
        }
    }

    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Returns how the process ended, which it has; `None` if the program has reaped it.
    pub(super) fn reap(&self) -> Option<ExitStatus> {
        let waits = || waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        let status = retry_on_intr(waits).ok()??;
        // The form of `wait`: the code of an exit is in the second byte, a signal in the first.
        let code = status.exit_status().map(|code| code << 8);
        Some(ExitStatus::from_raw(code.or(status.terminating_signal())?))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
        self.reap();
    }
}
