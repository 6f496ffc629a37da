//! Runs models in processes of their own. Starts these and carries frames (`shm/`) between them and `backend_remote`.
//!
//! One process per instance, or one per library with a connection for each instance. Frames pass through two socket
//! pairs, tensors lie in anonymous shared memory. Independent of the runner's language: the caller provides the program
//! and its first message.
//!
//! One thread, `hub`, watches all runners; a reactor reads the work socket of a model whose responses it waits for.

mod load;
mod settings;
mod spec;

#[cfg(target_os = "linux")]
mod embedder;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod handle;
#[cfg(target_os = "linux")]
mod hub;
#[cfg(target_os = "linux")]
mod library;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod output;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod side_rate;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(target_os = "linux")]
mod watched;

pub use backend_remote::{Completed, Failure, Further, Prefetch, RunnerGuard, RunnerKind, Source, Spec};
#[cfg(target_os = "linux")]
pub use embedder::{ParentProgram, serve_embedder};
#[cfg(target_os = "linux")]
pub use guardian::guard_with;
#[cfg(target_os = "linux")]
pub use library::HostedLibrary;
pub use load::{JsonObject, PlacedInstance, instances};
#[cfg(target_os = "linux")]
pub use output::{NOTE_DELAY, Printer};
pub use settings::{Setting, UnknownKeys, at_least, is_inside, read_settings, seconds, stol, switch};
pub use spec::{Command, Instance, OutputTarget, RunnerLimits, SharedMemory};
#[cfg(target_os = "linux")]
pub use start::{
    Shared, after, ask, ask_and_keep, complete_config, hosted, load_of, segment, shared, start, wait_for_ends,
};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{
    HostedLibrary, NOTE_DELAY, ParentProgram, Printer, Shared, after, ask, ask_and_keep, complete_config, guard_with,
    hosted, load_of, segment, serve_embedder, shared, start, wait_for_ends,
};
