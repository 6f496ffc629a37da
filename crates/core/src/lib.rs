//! A whole server out of its parts: backends, response cache, engine, services of models, front ends. No Node here:
//! the binding (`crates/node`) passes what JavaScript owns as [`Outside`], and so does a test.
//!
//! It assembles and ends; it decides nothing about a request. What models to load and when is the caller's decision.
//!
//! Invariants:
//! - What belongs to a server ends with [`Server::close`]: threads, sockets, its log sink, its claim on the process.
//! - What a process has only once, such as limits of memory, is set by the first server; one that wants it otherwise
//!   is rejected ([`process`]).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod control;
pub mod logging;
mod metrics;
pub mod process;
mod server;
mod services;

pub use control::Controller;
pub use server::{Address, DeviceFailed, Outside, Ports, Scrape, Server};
