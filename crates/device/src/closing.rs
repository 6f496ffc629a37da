//! Announces handles that are about to be closed, so that other processes which opened them close them as well.

use crate::driver::Handle;
use parking_lot::Mutex;
use std::sync::Weak;

/// Passes handles on to another process.
pub trait Closing: Send + Sync {
    /// The handle is closed here. Called on any thread, once for each time it was opened; must return soon.
    fn closing(&self, device: u32, handle: &Handle);
}

static ALL: Mutex<Vec<Weak<dyn Closing>>> = Mutex::new(Vec::new());

/// Notifies `one` of each closed handle, as long as it lives.
pub fn watch_closing(one: Weak<dyn Closing>) {
    let mut all = ALL.lock();
    all.retain(|known| known.strong_count() > 0);
    all.push(one);
}

pub(crate) fn notify(device: u32, handle: &Handle) {
    let all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|one| one.closing(device, handle));
}
