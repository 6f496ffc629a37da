//! Serves ONNX models with ONNX Runtime, found at run time.
//!
//! One session per model version, shared by its instances (`Run` is thread-safe): another instance costs no memory. All
//! sessions share one pool of threads that sleep when idle, unless a model asks for its own counts.
//!
//! Does not complete configurations (TypeScript does, from `Opened::io`). Instances on devices have a session on each, through the providers that
//! are found on the machine (`provider`).
//! `unsafe` is confined to `ffi`.
//!
//! Invariant: nothing the runtime reads or writes during a run is freed or moved before the run returns.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod accelerators;
mod batch_input;
mod cache;
mod captured;
mod check;
mod cost;
mod execute;
mod failed;
mod ffi;
mod forest;
mod graph;
mod inputs;
mod model;
mod on_device;
mod open;
mod options;
mod outputs;
mod placed;
mod plan;
mod proto;
pub mod provider;
mod recipe;

use backend::{Backend, OpenSpec, Opened};
use std::path::{Path, PathBuf};
use tensor::Result;

/// A backend whose models ONNX Runtime runs, as they are or converted to ONNX when they are opened.
pub struct OnnxBackend {
    library: Option<PathBuf>,
    name: &'static str,
    open: fn(Option<&Path>, &OpenSpec) -> Result<open::OpenedOnnx>,
}

/// Each constructor makes a backend over the shared library at `library`. Nothing is loaded before the first model; without a library only models fail to
/// load, with UNAVAILABLE. All of them have the settings of the backend `onnxruntime`.
impl OnnxBackend {
    /// Backend `onnxruntime`.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library, name: "onnxruntime", open: open::open }
    }

    /// Backend `tensorrt`: plans, which ONNX Runtime's TensorRT provider runs.
    pub fn plans(library: Option<PathBuf>) -> Self {
        Self { library, name: "tensorrt", open: open::open_plan }
    }

    /// Backend `fil`: trees of XGBoost, LightGBM and treelite, as an ONNX model that is made of them.
    pub fn forests(library: Option<PathBuf>) -> Self {
        Self { library, name: "fil", open: open::open_forest }
    }
}

impl Backend for OnnxBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new((self.open)(self.library.as_deref(), spec)?))
    }
}

/// Loads the library and makes its environment, some 20 ms that the first model need not wait for then. `settings` are those
/// of every later `OpenSpec`; the thread pool is made from them.
///
/// # Errors
/// As the first model would see them; trying again is harmless.
pub fn preload(library: &Path, settings: &[(String, String)]) -> Result<()> {
    let (chosen, _) = ffi::devices::choose(Some(library), settings)?;
    ffi::Runtime::get(chosen.as_deref().unwrap_or(library), options::pool_threads(settings)?).map(|_| ())
}

/// The bare runtime, for measuring what this crate adds to it. Not part of the interface.
#[doc(hidden)]
pub mod bench {
    pub use crate::ffi::bench_bare_run;
}
