//! Serves ONNX models with ONNX Runtime, found at run time; and tree models (`forest`), which need no runtime.
//!
//! Each model version has one session, shared by its instances (`Run` is thread-safe), so an additional instance costs
//! no memory. All sessions share one pool of threads that sleep when idle, unless a model configures its own counts.
//!
//! Does not complete configurations (TypeScript does, from `Opened::io`). Instances on devices have a session on each
//! device, with the providers that are installed (`provider`). `unsafe` is confined to `ffi`.
//!
//! Invariant: nothing that the runtime reads or writes during a run is freed or moved before the run returns.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod accelerators;
mod arena;
mod batch_input;
mod cache;
mod captured;
mod check;
mod cost;
mod execute;
mod failed;
mod ffi;
mod file;
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
mod text;

pub use forest::{ForestBackend, check as check_forest};
pub use text::{TextBackend, read_text_folder};

use backend::{Backend, ModelIo, OpenSpec, Opened};
use std::path::{Path, PathBuf};
use tensor::Result;

/// A backend whose models ONNX Runtime runs, directly or wrapped in an ONNX model.
pub struct OnnxBackend {
    library: Option<PathBuf>,
    name: &'static str,
    open: fn(Option<&Path>, &OpenSpec) -> Result<open::OpenedOnnx>,
}

/// Each constructor takes the path of ONNX Runtime's shared library, which the first model loads; without a library,
/// only loading a model fails, with UNAVAILABLE. All of these backends read the settings of `onnxruntime`.
impl OnnxBackend {
    /// Backend `onnxruntime`.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library, name: "onnxruntime", open: open::open }
    }

    /// Backend `tensorrt`: engine plans, run by ONNX Runtime's TensorRT provider.
    pub fn plans(library: Option<PathBuf>) -> Self {
        Self { library, name: "tensorrt", open: open::open_plan }
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

/// Loads the library and creates its environment in advance, which takes about 20 ms. `settings` are those of every
/// later `OpenSpec`; they size the thread pool.
///
/// # Errors
/// UNAVAILABLE without ONNX Runtime; a later attempt may succeed.
pub fn preload(library: &Path, settings: &[(String, String)]) -> Result<()> {
    runtime(library, settings).map(|_| ())
}

/// Inputs and outputs of an ONNX file, as a load finds them. Reads the weights, too.
///
/// # Errors
/// UNAVAILABLE without ONNX Runtime; INVALID_ARG or INTERNAL for a file that cannot be read.
pub fn read_graph(library: &Path, file: &Path, settings: &[(String, String)]) -> Result<ModelIo> {
    open::look(runtime(library, settings)?, file, &ffi::SessionOptions::default()).map(|graph| graph.io())
}

fn runtime(library: &Path, settings: &[(String, String)]) -> Result<&'static ffi::Runtime> {
    let (chosen, _) = ffi::devices::choose(Some(library), settings)?;
    ffi::Runtime::get(chosen.as_deref().unwrap_or(library), options::pool_threads(settings)?)
}

/// The runtime alone, to measure the overhead of this crate. Not part of the interface.
#[doc(hidden)]
pub mod bench {
    pub use crate::ffi::bench_bare_run;
}
