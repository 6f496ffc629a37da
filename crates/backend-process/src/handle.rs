//! A process of the system behind one or more connections: one that the server started, or the program that embeds it.

use crate::guardian::Guarded;
use crate::sys::{Alarm, Child, Ended};
use parking_lot::Mutex;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// A process. One that the server started is killed with its group when the last reference is dropped.
pub(crate) struct ProcessHandle {
    pid: i32,
    of: Kind,
    /// Until the process has ended.
    guarded: Mutex<Option<Guarded>>,
    is_killed: AtomicBool,
    connections: AtomicU32,
}

enum Kind {
    Started(Mutex<Child>),
    /// The program that started this server, which is never killed. The alarm never rings: the end of the program is
    /// that of its connection.
    Embedder(Alarm),
}

impl ProcessHandle {
    /// The program that embeds the server.
    pub(crate) fn embedder() -> io::Result<Self> {
        Ok(Self {
            pid: parent_id().cast_signed(),
            of: Kind::Embedder(Alarm::new()?),
            guarded: Mutex::default(),
            is_killed: AtomicBool::new(false),
            connections: AtomicU32::new(0),
        })
    }

    pub(crate) fn new(child: Child, guarded: Guarded) -> Self {
        Self {
            pid: child.pid,
            of: Kind::Started(Mutex::new(child)),
            guarded: Mutex::new(Some(guarded)),
            is_killed: AtomicBool::new(false),
            connections: AtomicU32::new(0),
        }
    }

    /// A descriptor that becomes readable when the process has ended. Each connection needs one of its own.
    pub(crate) fn pidfd(&self) -> io::Result<OwnedFd> {
        match &self.of {
            Kind::Started(child) => child.lock().pidfd().try_clone_to_owned(),
            Kind::Embedder(alarm) => alarm.fd().try_clone_to_owned(),
        }
    }

    /// True for the program that embeds the server.
    pub(crate) fn is_embedder(&self) -> bool {
        matches!(self.of, Kind::Embedder(_))
    }

    pub(crate) fn signal(&self, signal: i32) {
        if let Kind::Started(child) = &self.of {
            child.lock().signal(signal);
        }
    }

    pub(crate) fn kill(&self) {
        self.is_killed.store(true, SeqCst);
        if let Kind::Started(child) = &self.of {
            child.lock().kill();
        }
    }

    /// True if the process runs and was not killed. Never waits: the end of a killed one may take long in the kernel.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_killed.load(SeqCst) && self.ended().is_none()
    }

    /// How the process ended, if it has. What it left behind is ended then.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let Kind::Started(child) = &self.of else { return None };
        let ended = child.lock().reap(false)?;
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
