//! Loads ONNX Runtime on a thread of its own while JavaScript reads its modules. Only saves time: errors occur again,
//! and are reported, when the first model is opened. Also exits the process safely while the library runs.

use crate::objects::Setting;
use napi_derive::napi;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread::JoinHandle;

static LOADING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Starts loading the library, with the settings of the backend `onnxruntime`.
#[napi]
pub fn preload_onnxruntime(library: String, settings: Vec<Setting>) {
    let settings: Vec<_> = settings.into_iter().map(|s| (s.key, s.value)).collect();
    let load = move || {
        let preloaded = catch_unwind(AssertUnwindSafe(|| backend_onnx::preload(&PathBuf::from(library), &settings)));
        if let Ok(Err(e)) = preloaded {
            log::debug!("onnx runtime was not loaded ahead of the first model: {}", e.message());
        }
    };
    let mut loading = LOADING.lock();
    if loading.is_none() {
        // The threads of the library's pool inherit the name.
        *loading = std::thread::Builder::new().name("onnxruntime".into()).spawn(load).ok();
    }
}

/// Waits for `preload_onnxruntime`. Call it before the process exits: a library whose static objects are destroyed
/// while it initialises may crash, which would replace the exit code.
#[napi]
pub fn await_preload() {
    let loading = LOADING.lock().take();
    if let Some(thread) = loading {
        // The thread has caught any panic.
        let _ = thread.join();
    }
}

/// Ends the process at once. A regular exit would first destroy the static objects of the libraries, and a thread that
/// loads or runs a model would crash in them, which would replace the exit code.
#[napi]
pub fn exit_now(code: i32) {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}
