//! Models in processes of their own, *runners*: the host side of the protocol in `shm/`.
//!
//! One process per instance. Control goes over two socket pairs, tensors lie in anonymous shared memory whose request side this crate allocates. Nothing here knows
//! what language a runner is written in: who starts one says which program, and what to tell it first.
//!
//! A batch is written to its runner by the thread that brings it; one thread, `hub`, listens to all runners and ends what they answer.

#![cfg(target_os = "linux")]

mod arena;
mod asks;
mod batch;
mod failure;
// Some of it waits for its users.
#[allow(dead_code, unused_imports)]
mod frames;
// All of the protocol's numbers, whoever uses them.
#[allow(dead_code)]
mod generated;
mod hub;
mod link;
mod model;
mod output;
mod reader;
mod restart;
mod runner;
mod slots;
mod spec;
mod sys;
mod window;

pub use failure::{Failure, Source};
pub use model::{ask, start, wait_for_ends};
pub use spec::{Command, Instance, Limits, Output, Spec};
