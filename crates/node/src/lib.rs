//! The napi binding: convert, call, convert back. Nothing else in the workspace knows Node, and nothing here decides.
//!
//! Calls that take time run on a thread of their own and report through one queue ([`settle`]); the JavaScript side turns
//! reports into promises. No panic crosses: napi catches them at the boundary, and every thread started here reports its own.

// The napi macros expand to FFI glue. This crate is the named binding module; its own unsafe block is the exit.
#![allow(unsafe_code)]
#![allow(missing_docs)]
// what JavaScript sees is documented in `objects` and at the methods of `core`

// A test build leaves out the registration of free functions, which are then used by nobody.
#![cfg_attr(test, allow(dead_code))]

mod access;
mod control;
mod convert;
mod core;
mod device_memory;
mod embed;
mod failure;
mod gpu;
mod infer;
mod logging;
mod objects;
mod preload;
mod process;
mod providers;
mod routes;
mod service;
mod services;
mod settle;
mod stream;
mod traces;
