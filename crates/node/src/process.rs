//! Settings that all servers of a process share because the core has them once: memory limits and the log file. Kept
//! here, because in TypeScript each worker thread would only know its own servers.

use crate::objects::SharedSetting;
use napi_derive::napi;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Settings of the running servers, by claim number. Numbers are not reused: a claim may be released twice.
static RUNNING: Mutex<Vec<(u64, Vec<SharedSetting>)>> = Mutex::new(Vec::new());

/// Claim of a running server on the settings of the process. Ends with `release`, or with the thread that made it.
#[napi]
pub struct ProcessClaim {
    number: u64,
    conflict: Option<String>,
}

#[napi]
impl ProcessClaim {
    /// Claims the process for a server that is about to start, unless a running one has other settings. `settings` has
    /// the same entries in the same order for each server.
    #[napi(constructor)]
    pub fn new(settings: Vec<SharedSetting>) -> Self {
        let mut running = RUNNING.lock();
        let conflict = running.iter().find_map(|(_, theirs)| difference(&settings, theirs));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if conflict.is_none() {
            running.push((number, settings));
        }
        Self { number, conflict }
    }

    /// The setting in which another server differs; null if the process is claimed.
    #[napi(getter)]
    pub fn conflict(&self) -> Option<String> {
        self.conflict.clone()
    }

    /// Releases the claim, because the server has ended.
    #[napi]
    pub fn release(&mut self) {
        if self.conflict.is_none() {
            RUNNING.lock().retain(|(number, _)| *number != self.number);
        }
    }
}

impl Drop for ProcessClaim {
    fn drop(&mut self) {
        self.release();
    }
}

fn difference(ours: &[SharedSetting], theirs: &[SharedSetting]) -> Option<String> {
    let (ours, theirs) = ours.iter().zip(theirs).find(|(ours, theirs)| ours.value != theirs.value)?;
    Some(format!("{}{}", theirs.has, ours.instead))
}
