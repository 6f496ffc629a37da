//! Loads ONNX Runtime on a thread of its own while JavaScript is still reading its modules. Only saves time: what fails here
//! fails again, and is reported, when the first model is opened. And the other end: leaving the process while the library may be
//! at work.

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

/// Waits for the end of `preload_onnxruntime`. To be called before the process exits: a library whose static objects are
/// destroyed while it initialises may crash, and the crash would replace the exit code.
#[napi]
pub fn await_preload() {
    let loading = LOADING.lock().take();
    if let Some(thread) = loading {
        // A panic was caught on the thread.
        let _ = thread.join();
    }
}

/// Ends the process at once. A regular exit destroys the static objects of the libraries first, and a thread that is loading or
/// running a model then would crash in them; the crash would replace the exit code.
#[napi]
pub fn exit_now(code: i32) {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}
