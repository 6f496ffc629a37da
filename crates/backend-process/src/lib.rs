//! Models in processes of their own, *runners*: the host side of the protocol in `shm/`.
//!
//! One process per instance. Control goes over two socket pairs, tensors lie in anonymous shared memory whose request side this crate allocates. Nothing here knows
//! what language a runner is written in: who starts one says which program, and what to tell it first.
//!
//! A batch is written to its runner by the thread that brings it; one thread, `hub`, listens to all runners and ends what they answer.

// Elsewhere nothing reads what runners say.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod failure;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]
mod frames;
// All of the protocol's numbers, whoever uses them.
#[allow(dead_code)]
mod generated;
mod spec;

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod asks;
#[cfg(target_os = "linux")]
mod batch;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod hub;
#[cfg(target_os = "linux")]
mod lease;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod model;
#[cfg(target_os = "linux")]
mod output;
#[cfg(target_os = "linux")]
mod reader;
#[cfg(target_os = "linux")]
mod restart;
#[cfg(target_os = "linux")]
mod runner;
#[cfg(target_os = "linux")]
mod slots;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod window;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{ask, guard_with, start, wait_for_ends};
pub use failure::{Failure, Source};
#[cfg(target_os = "linux")]
pub use guardian::guard_with;
#[cfg(target_os = "linux")]
pub use model::{ask, start, wait_for_ends};
pub use spec::{Command, Further, Instance, Limits, Output, Spec};
