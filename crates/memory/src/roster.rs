//! Threads and processes that serve requests, by kernel id.
#![allow(unsafe_code)] // gettid

use parking_lot::Mutex;
use std::cell::OnceCell;

static SERVING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Registers a serving thread until this is dropped.
#[derive(Debug)]
pub struct ServingThread(i32);

impl Drop for ServingThread {
    fn drop(&mut self) {
        SERVING.lock().retain(|&id| id != self.0);
    }
}

thread_local! {
    static SERVING_THREAD: OnceCell<ServingThread> = const { OnceCell::new() };
}

/// Registers a process, such as one that runs a model: requests wait for its first thread.
pub fn register_process(id: i32) -> ServingThread {
    SERVING.lock().push(id);
    ServingThread(id)
}

/// Registers this thread: until it ends, loads yield when it waits for a core.
pub(crate) fn serve() {
    let Some(id) = id() else { return };
    let enter = |entry: &OnceCell<ServingThread>| _ = entry.get_or_init(|| register_process(id));
    // Fails only while the thread ends.
    let _ = SERVING_THREAD.try_with(enter);
}

/// The registered ids.
pub(crate) fn all() -> Vec<i32> {
    SERVING.lock().clone()
}

/// Kernel id of this thread; `None` where threads have no niceness of their own.
pub(crate) fn id() -> Option<i32> {
    #[cfg(target_os = "linux")]
    // glibc has `gettid` since 2.30, but the packages support 2.28.
    // SAFETY: no pointers, and no way to fail. Miri has no thread ids.
    let id = (!cfg!(miri)).then(|| unsafe { libc::syscall(libc::SYS_gettid) } as i32);
    #[cfg(not(target_os = "linux"))]
    let id = None;
    id
}
