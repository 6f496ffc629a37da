//! Batching libraries: they decide which requests are executed together.
//!
//! Triton asks while it forms a batch. Here the server has formed one, and a library may divide it: requests are asked
//! in their order, and one that is refused begins the next batch.

use crate::abi::exports::Object;
use crate::library::{Address, Loan, Opened, entry_points};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use tensor::{Error, Result};

entry_points! {
    /// The functions of a batching library. Their other pointers are its own.
    struct BatchingLibrary {
        Required TRITONBACKEND_ModelBatcherInitialize initialize(batcher: &mut *mut c_void, model: Loan<'_>);
        Required TRITONBACKEND_ModelBatchIncludeRequest include(
            request: Loan<'_>,
            batch: *mut c_void,
            should_include: &mut bool,
        );
        Required TRITONBACKEND_ModelBatchInitialize begin(batcher: *const c_void, batch: &mut *mut c_void);
        Required TRITONBACKEND_ModelBatchFinalize end(batch: *mut c_void);
        Required TRITONBACKEND_ModelBatcherFinalize finalize(batcher: *mut c_void);
    }
}

/// A batching library with the state that it has for one model.
pub(crate) struct Strategy {
    library: BatchingLibrary,
    /// Name of the model.
    model: String,
    batcher: Address<c_void>,
    is_dynamic: bool,
    /// State of the batch that is being formed; locked while it is.
    batch: Mutex<Address<c_void>>,
}

impl Strategy {
    /// Opens a library for a model that batches dynamically, or not.
    ///
    /// # Errors
    /// NOT_FOUND if it cannot be opened, INVALID_ARG if it lacks a function, or the library's.
    pub(crate) fn open(path: &Path, model: Loan<'_>, name: &str, is_dynamic: bool) -> Result<Self> {
        let library = BatchingLibrary::of(&Opened::new(path)?).map_err(|_| {
            let path = path.display();
            Error::invalid(format!("{path} does not define all required custom batching functions for model {name}"))
        })?;
        let mut batcher = null_mut();
        let initialized = library.initialize(&mut batcher, model);
        // Its drop finalizes the batcher, as Triton does also after an error.
        let batch = Mutex::new(Address(null_mut()));
        let strategy = Self { library, model: name.to_owned(), is_dynamic, batcher: Address(batcher), batch };
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

    fn begin(&self, batch: &mut Address<c_void>) {
        self.logged("initialization", self.library.begin(self.batcher.0, &mut batch.0));
    }

    fn end(&self, batch: &mut Address<c_void>) {
        let Address(state) = std::mem::replace(batch, Address(null_mut()));
        if !state.is_null() {
            self.logged("finalization", self.library.end(state));
        }
    }

    fn includes(&self, batch: &Address<c_void>, request: Loan<'_>) -> bool {
        let mut includes = false;
        self.logged("include", self.library.include(request, batch.0, &mut includes));
        includes
    }

    /// True if it is asked: without dynamic batching it is only told of the model.
    pub(crate) fn divides(&self) -> bool {
        self.is_dynamic
    }

    /// Divides a batch; the lengths of its parts.
    pub(crate) fn divide<'a, T: Object + 'a>(&self, requests: impl Iterator<Item = &'a T>) -> Vec<usize> {
        let mut batch = self.batch.lock();
        let mut parts: Vec<usize> = Vec::new();
        let renew = |batch: &mut Address<c_void>| {
            self.end(batch);
            self.begin(batch);
        };
        renew(&mut batch);
        for request in requests {
            let joins = self.includes(&batch, request.into());
            match parts.last_mut() {
                Some(part) if joins => *part += 1,
                Some(_) => {
                    renew(&mut batch);
                    // A request that does not even fit alone is executed alone.
                    self.includes(&batch, request.into());
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
        let mut batch = *self.batch.get_mut();
        self.end(&mut batch);
        self.logged("batcher finalization", self.library.finalize(self.batcher.0));
    }
}
