//! Python models: `model.py` files run unchanged (spec: backends-python.md, ids B-PY, B-PYR, B-PYB).
//!
//! Finds what a model needs (file, interpreter, environment, settings) and reports what is missing. The result is a
//! `backend_process::Spec`; that crate starts the processes. `runtime/` contains the Python code inside them.

mod backend;
mod child;
mod code;
mod environment;
#[doc(hidden)]
pub mod extract;
mod failure;
mod launch;
mod load;
mod options;
mod probe;
mod search;

pub use backend::PythonBackend;
pub use backend_process::wait_for_ends;
pub use environment::{Allowed, Environment, Environments};
pub use probe::{Interpreter, NUMPY_MIN, PYTHON_MIN, Prober, Unusable};
pub use search::INTERPRETER_VARIABLE;
