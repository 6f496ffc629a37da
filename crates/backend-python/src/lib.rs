//! Python models: `model.py` files run unchanged (spec: backends-python.md, ids B-PY, B-PYR, B-PYB).
//!
//! This crate finds what a model needs: its file, an interpreter, an environment, its settings; and says why when something is missing. What it finds
//! becomes a `backend_process::Spec`, and that crate starts the processes and talks to them. What runs inside them stands in `runtime/`, in Python.

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

pub use backend::{PythonBackend, PythonOptions};
pub use backend_process::wait_for_ends;
pub use environment::{Allowed, Environment, Environments};
pub use probe::{Interpreter, NUMPY_MIN, PYTHON_MIN, Prober, Unusable};
pub use search::INTERPRETER_VARIABLE;
