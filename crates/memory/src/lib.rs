//! Memory of tensors: pooled slabs for bodies and batches, shared memory regions of clients. Also thread priorities.
//!
//! Independent of requests and models. `unsafe` is confined to `aligned` (slab memory), `beneath`
//! (files below a directory), `heap` (malloc's own free
//! memory), `map` (mappings of client files), `memfd` (anonymous memory shared with our processes), `sigbus` (clients
//! that truncate a mapped file), `region` (which vouches for the addresses of `map`), `room` (limits of the process),
//! `roster` (ids of threads), `thread` (system calls about the calling thread) and `transfer` (sockets and regions).
//!
//! Invariant: memory stays valid and initialised until its last owner is dropped, whatever other processes do.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod aligned;
pub mod beneath;
pub mod budget;
pub mod heap;
pub mod ledger;
pub mod machine;
mod map;
#[cfg(target_os = "linux")]
mod memfd;
pub mod pressure;
pub mod reclaim;
mod region;
pub mod release;
pub mod room;
mod roster;
pub mod served;
pub mod serving;
mod sigbus;
mod slab;
#[cfg(test)]
mod testing;
pub mod thread;
pub mod transfer;
pub mod yielding;

pub use budget::{Account, Budget, BudgetCounters, Charge, Kind, SMALL_BYTES_MAX, Short};
pub use device::{HANDLE_BYTES, Handle, driver as gpu_driver, has_devices};
pub use ledger::{Ledger, MemoryLocation, MemoryPromise, Need};
#[cfg(target_os = "linux")]
pub use memfd::Memfd;
pub use region::{RegionKind, RegionLimits, RegionRegistry, RegionSource, RegionStatus};
pub use slab::{PoolCounters, SLAB_BYTES_MIN, SlabMut, SlabPool};
