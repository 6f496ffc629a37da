//! The napi binding: converts, calls the core, converts back. The only crate that knows Node; makes no decisions.
//!
//! Long calls run on a thread of their own and report through one queue ([`settle`]); JavaScript turns reports into
//! promises. No panic crosses: napi catches them at the boundary, and every thread started here reports its own.

// The napi macros expand to FFI glue. The crate's own unsafe blocks are the exit, and `json`, which reads a value.
#![allow(unsafe_code)]
#![allow(missing_docs)]
// `objects` and the methods of `core` document the JavaScript API.

// A test build leaves out the registration of free functions, which are then unused.
#![cfg_attr(test, allow(dead_code))]

mod access;
mod beneath;
mod control;
mod convert;
mod core;
mod embed;
mod failure;
mod gpu;
mod infer;
mod json;
mod logging;
mod metrics;
mod model_files;
mod models;
mod objects;
mod preload;
mod process;
mod providers;
mod routes;
mod service;
mod settle;
mod stream;
mod traces;
mod vision;
mod workers;
