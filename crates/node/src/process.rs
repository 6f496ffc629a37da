//! What all servers of a process share because the core has it once: limits of memory, and the place of the log. It is kept here and not in
//! TypeScript, where each worker thread would know its own servers only.

use crate::objects::SharedSetting;
use napi_derive::napi;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Settings of the servers that run, each with the number of its claim. No number is used twice: a claim may be released again when JavaScript
/// collects it.
static RUNNING: Mutex<Vec<(u64, Vec<SharedSetting>)>> = Mutex::new(Vec::new());

/// What a server that runs has of the settings of the process. It ends with `release`, or with the thread that made it.
#[napi]
pub struct ProcessClaim {
    number: u64,
    conflict: Option<String>,
}

#[napi]
impl ProcessClaim {
    /// Claims the process for a server that is about to start, unless one that runs has other settings. `settings` are the same ones in the
    /// same order for each server.
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

    /// What another server has, and this one wants; null when the process is claimed.
    #[napi(getter)]
    pub fn conflict(&self) -> Option<String> {
        self.conflict.clone()
    }

    /// The server has ended.
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
