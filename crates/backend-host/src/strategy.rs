//! Batching libraries: they decide which requests are executed together.
//!
//! Triton asks while it forms a batch. Here the server has formed one, and a library may divide it: requests are asked
//! in their order, and one that is refused begins the next batch.

#![allow(unsafe_code)] // calls of the library

use crate::abi::Err;
use crate::abi::error::ServerError;
use crate::library::Opened;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use tensor::{Error, Result};

/// A batching library with the state that it has for one model.
pub(crate) struct Strategy {
    functions: Functions,
    /// Name of the model.
    model: String,
    batcher: AtomicPtr<c_void>,
    is_dynamic: bool,
    /// State of the batch that is being formed; locked while it is.
    batch: Mutex<AtomicPtr<c_void>>,
}

struct Functions {
    include: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut bool) -> Err,
    begin: unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> Err,
    end: unsafe extern "C" fn(*mut c_void) -> Err,
    finalize: unsafe extern "C" fn(*mut c_void) -> Err,
}

/// The error that a library returned.
///
/// # Safety
/// `error` is null, or the caller's.
unsafe fn checked(error: Err) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { ServerError::take(error) }.map_or(Ok(()), Err)
}

impl Strategy {
    /// Opens a library for a model that batches dynamically, or not.
    ///
    /// # Errors
    /// NOT_FOUND if it cannot be opened, INVALID_ARG if it lacks a function, or the library's.
    pub(crate) fn open(path: &Path, model: *const c_void, name: &str, is_dynamic: bool) -> Result<Self> {
        let library = Opened::new(path)?;
        // SAFETY: types of Triton's API.
        let found = (|| unsafe {
            let initialize: unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> Err =
                library.function(c"TRITONBACKEND_ModelBatcherInitialize")?;
            let functions = Functions {
                include: library.function(c"TRITONBACKEND_ModelBatchIncludeRequest")?,
                begin: library.function(c"TRITONBACKEND_ModelBatchInitialize")?,
                end: library.function(c"TRITONBACKEND_ModelBatchFinalize")?,
                finalize: library.function(c"TRITONBACKEND_ModelBatcherFinalize")?,
            };
            Some((initialize, functions))
        })();
        let (initialize, functions) = found.ok_or_else(|| {
            Error::invalid(format!(
                "{} does not define all required custom batching functions for model {name}",
                path.display()
            ))
        })?;
        let mut batcher = null_mut();
        // SAFETY: both objects live for the time of the call; a returned error is ours.
        let initialized = unsafe { checked(initialize(&raw mut batcher, model)) };
        // Its drop finalizes the batcher, as Triton does also after an error.
        let strategy = Self {
            functions,
            model: name.to_owned(),
            is_dynamic,
            batcher: AtomicPtr::new(batcher),
            batch: Mutex::new(AtomicPtr::new(null_mut())),
        };
        initialized?;
        if is_dynamic {
            strategy.begin(&mut strategy.batch.lock());
        }
        Ok(strategy)
    }

    /// Logs an error of the library, as Triton does: it is none of the requests.
    fn logged(&self, what: &str, result: Result<()>) {
        if let Err(error) = result {
            eprintln!("Custom batching {what} function failed for model {}: {}", self.model, error.message());
        }
    }

    fn begin(&self, batch: &mut AtomicPtr<c_void>) {
        // SAFETY: the library's own pointer; a returned error is ours.
        let begun = unsafe { checked((self.functions.begin)(self.batcher.load(SeqCst), batch.get_mut())) };
        self.logged("initialization", begun);
    }

    fn end(&self, batch: &mut AtomicPtr<c_void>) {
        let state = std::mem::replace(batch.get_mut(), null_mut());
        if !state.is_null() {
            // SAFETY: the library's own pointer; a returned error is ours.
            self.logged("finalization", unsafe { checked((self.functions.end)(state)) });
        }
    }

    fn includes(&self, batch: &mut AtomicPtr<c_void>, request: *mut c_void) -> bool {
        let mut includes = false;
        // SAFETY: a live request, the library's own pointer, and our own place for the answer.
        let asked = unsafe { checked((self.functions.include)(request, *batch.get_mut(), &raw mut includes)) };
        self.logged("include", asked);
        includes
    }

    /// True if it is asked: without dynamic batching it is only told of the model.
    pub(crate) fn divides(&self) -> bool {
        self.is_dynamic
    }

    /// Divides a batch; the lengths of its parts.
    pub(crate) fn divide(&self, requests: &[*mut c_void]) -> Vec<usize> {
        let mut batch = self.batch.lock();
        let mut parts: Vec<usize> = Vec::new();
        let renew = |batch: &mut AtomicPtr<c_void>| {
            self.end(batch);
            self.begin(batch);
        };
        renew(&mut batch);
        for request in requests {
            let joins = self.includes(&mut batch, *request);
            match parts.last_mut() {
                Some(part) if joins => *part += 1,
                Some(_) => {
                    renew(&mut batch);
                    // A request that does not even fit alone is executed alone.
                    self.includes(&mut batch, *request);
                    parts.push(1);
                }
                None => parts.push(1),
            }
        }
        parts
    }
}

impl Drop for Strategy {
    fn drop(&mut self) {
        let mut batch = std::mem::take(self.batch.get_mut());
        self.end(&mut batch);
        // SAFETY: the library's own pointer; a returned error is ours.
        let finalized = unsafe { checked((self.functions.finalize)(*self.batcher.get_mut())) };
        self.logged("batcher finalization", finalized);
    }
}
