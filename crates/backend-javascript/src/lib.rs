//! Models in JavaScript and TypeScript (spec: backends.md §4, ids B-JS).
//!
//! Each instance is a *runner* of `backend_remote`: a worker thread of Node in the server's process, to which this
//! crate is the [`worker`] transport, or with `isolation: "process"` a process of its own. The code that runs in either
//! is `src/javascript`. This crate does not know Node: the binding implements [`Threads`] and [`Inbox`].

mod backend;
mod settings;
pub mod worker;

pub use backend::JavaScriptBackend;
pub use worker::{Inbox, Threads, Worker, WorkerSpec};
