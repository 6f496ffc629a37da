//! Models of libraries that were written for Triton's backend C API.
//!
//! The library runs in a process of its own, `nereid-backend-host`, with all its models or with one. Each instance is a
//! connection to that process, a *runner* of `backend_remote`; a further connection is the model's own and stays open
//! while the model is loaded. TypeScript finds the library.

mod backend;
mod hosts;
mod links;
mod load;
mod settings;

pub use backend::CBackend;
pub use backend_process::wait_for_ends;
