//! Creates the library's threads so that they count as threads of the server (`memory::serving`).

use ort::environment::ThreadManager;
use ort::sys;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::thread::JoinHandle;
use tensor::Result;

const NAME: &str = "nereid-onnx";

/// Creates the threads of the shared pool.
pub(super) struct Serving;

impl ThreadManager for Serving {
    type Thread = JoinHandle<()>;

    fn create(&self, work: impl FnOnce() + Send + 'static) -> ort::Result<Self::Thread> {
        memory::serving::spawn(NAME, work).map_err(|e| ort::Error::new(e.to_string()))
    }

    fn join(thread: Self::Thread) -> ort::Result<()> {
        thread.join().map_err(|_| ort::Error::new("a thread panicked"))
    }
}

/// Creates the threads of one session's own pool in the same way.
///
/// # Safety
/// `options` are live session options.
pub(super) unsafe fn set_for_session(api: &sys::OrtApi, options: *mut sys::OrtSessionOptions) -> Result<()> {
    // SAFETY: by contract. The functions keep nothing of these options, and the library passes them its own pointers.
    unsafe {
        call!(api.SessionOptionsSetCustomThreadCreationOptions(options, null_mut()))?;
        call!(api.SessionOptionsSetCustomCreateThreadFn(options, Some(create)))?;
        call!(api.SessionOptionsSetCustomJoinThreadFn(options, Some(join)))
    }
}

/// A worker loop of the library and its argument.
struct Loop(sys::OrtThreadWorkerFn, *mut c_void);

// SAFETY: the library passes both for use on the new thread only.
unsafe impl Send for Loop {}

impl Loop {
    fn run(self) {
        // SAFETY: called once, on the thread made for it, with its own argument.
        unsafe { (self.0)(self.1) }
    }
}

/// Returns null, which the library reports as a failure, if no thread can be started.
unsafe extern "system" fn create(
    _: *mut c_void,
    body: sys::OrtThreadWorkerFn,
    argument: *mut c_void,
) -> sys::OrtCustomThreadHandle {
    let body = Loop(body, argument);
    let thread = catch_unwind(AssertUnwindSafe(|| memory::serving::spawn(NAME, move || body.run()).ok()));
    match thread.ok().flatten() {
        Some(thread) => Box::into_raw(Box::new(thread)).cast_const().cast(),
        None => null(),
    }
}

unsafe extern "system" fn join(thread: sys::OrtCustomThreadHandle) {
    // SAFETY: `create` made it from such a box, and the library joins each thread once.
    let thread = unsafe { Box::from_raw(thread.cast_mut().cast::<JoinHandle<()>>()) };
    // A panic of the thread has no further effect.
    let _ = thread.join();
}
