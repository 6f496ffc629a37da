//! Runs models in processes of their own. Starts these and carries frames (`shm/`) between them and `backend_remote`.
//!
//! One process per instance. Frames pass through two socket pairs, tensors lie in anonymous shared memory. Independent
//! of the runner's language: the caller provides the program and its first message.
//!
//! One thread, `hub`, watches all runners; a reactor reads the work socket of a model whose responses it waits for.

mod spec;

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
#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(target_os = "linux")]
mod watched;

pub use backend_remote::{Failure, Further, Source, Spec};
#[cfg(target_os = "linux")]
pub use guardian::guard_with;
pub use spec::{Command, Instance, OutputTarget, RunnerLimits};
#[cfg(target_os = "linux")]
pub use start::{complete_config, hosted, start, wait_for_ends};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{complete_config, guard_with, hosted, start, wait_for_ends};
