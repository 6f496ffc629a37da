//! The threads and processes that serve requests, by the ids that the kernel has for them.
#![allow(unsafe_code)] // gettid

use parking_lot::Mutex;
use std::cell::OnceCell;

/// Threads that serve, by their ids.
static SERVING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// A thread that serves is known as such until this is dropped.
#[derive(Debug)]
pub struct Entry(i32);

impl Drop for Entry {
    fn drop(&mut self) {
        SERVING.lock().retain(|&id| id != self.0);
    }
}

thread_local! {
    static ENTRY: OnceCell<Entry> = const { OnceCell::new() };
}

/// Requests wait for the first thread of that process, such as one that runs a model.
pub fn process_serves(id: i32) -> Entry {
    SERVING.lock().push(id);
    Entry(id)
}

/// Requests wait for this thread: until it ends, loads step behind when it waits for a core.
pub(crate) fn serve() {
    let Some(id) = id() else { return };
    let enter = |entry: &OnceCell<Entry>| _ = entry.get_or_init(|| process_serves(id));
    // A thread that ends serves nothing any more.
    let _ = ENTRY.try_with(enter);
}

/// Those that are known now.
pub(crate) fn all() -> Vec<i32> {
    SERVING.lock().clone()
}

/// Id of this thread, as the kernel has it; `None` where threads have no niceness of their own.
pub(crate) fn id() -> Option<i32> {
    #[cfg(target_os = "linux")]
    // glibc has `gettid` since 2.30, and the packages run with 2.28.
    // SAFETY: no pointers, and no way to fail. Miri has no such thread.
    let id = (!cfg!(miri)).then(|| unsafe { libc::syscall(libc::SYS_gettid) } as i32);
    #[cfg(not(target_os = "linux"))]
    let id = None;
    id
}
