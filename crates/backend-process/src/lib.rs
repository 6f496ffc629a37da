//! Models in processes of their own: starts them, and carries the frames of the protocol in `shm/` to and from them for `backend_remote`, which keeps their batches.
//!
//! One process per instance. Control goes over two socket pairs, tensors lie in anonymous shared memory. Nothing here knows what language a runner is written in: who
//! starts one says which program, and what to tell it first.
//!
//! One thread, `hub`, listens to all runners; a reactor of the front ends takes the work socket of a model whose answers it waits for.

mod spec;

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod hub;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod output;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod watched;

pub use backend_remote::{Failure, Further, Source, Spec};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{ask, guard_with, hosted, start, wait_for_ends};
#[cfg(target_os = "linux")]
pub use guardian::guard_with;
pub use spec::{Command, Instance, Limits, Output};
#[cfg(target_os = "linux")]
pub use start::{ask, hosted, start, wait_for_ends};
