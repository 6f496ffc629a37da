//! A process of the system behind one or more connections.

use crate::guardian::Guarded;
use crate::sys::{Child, Ended};
use parking_lot::Mutex;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// A process. Killed with its group when the last reference is dropped.
pub(crate) struct ProcessHandle {
    pid: i32,
    child: Mutex<Child>,
    /// Until the process has ended.
    guarded: Mutex<Option<Guarded>>,
    is_killed: AtomicBool,
    connections: AtomicU32,
}

impl ProcessHandle {
    pub(crate) fn new(child: Child, guarded: Guarded) -> Self {
        Self {
            pid: child.pid,
            child: Mutex::new(child),
            guarded: Mutex::new(Some(guarded)),
            is_killed: AtomicBool::new(false),
            connections: AtomicU32::new(0),
        }
    }

    /// A descriptor that becomes readable when the process has ended. Each connection needs one of its own.
    pub(crate) fn pidfd(&self) -> io::Result<OwnedFd> {
        self.child.lock().pidfd().try_clone_to_owned()
    }

    pub(crate) fn signal(&self, signal: i32) {
        self.child.lock().signal(signal);
    }

    pub(crate) fn kill(&self) {
        self.is_killed.store(true, SeqCst);
        self.child.lock().kill();
    }

    /// True if the process runs and was not killed. Never waits: the end of a killed one may take long in the kernel.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_killed.load(SeqCst) && self.ended().is_none()
    }

    /// How the process ended, if it has. What it left behind is ended then.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let ended = self.child.lock().reap(false)?;
        drop(self.guarded.lock().take());
        Some(ended)
    }

    pub(crate) fn connect(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnect(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    pub(crate) fn has_connections(&self) -> bool {
        self.connections.load(Relaxed) > 0
    }

    /// Resident bytes of the process, divided by the number of its connections: so a sum over all of them is right.
    pub(crate) fn resident_bytes_per_connection(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid)).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        pages.saturating_mul(4096) / u64::from(self.connections.load(Relaxed).max(1))
    }
}
