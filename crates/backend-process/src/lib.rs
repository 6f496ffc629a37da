//! Models in processes of their own, *runners*: the host side of the protocol in `shm/`.
//!
//! One process per instance. Control goes over two socket pairs, tensors lie in anonymous shared memory whose request side this crate allocates. Nothing here knows
//! what language a runner is written in: who starts one says which program, and what to tell it first.

// Its users follow the codec.
#[allow(dead_code, unused_imports)]
mod frames;
// All of the protocol's numbers, whoever uses them.
#[allow(dead_code)]
mod generated;
mod spec;

pub use spec::{Command, Instance, Limits, Output, Spec};
