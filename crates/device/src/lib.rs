//! Devices of this machine: the CUDA driver, found at run time, and memory of a device that another process shares with us.
//!
//! One binary serves machines with and without a GPU. `libcuda.so.1` is opened when something first asks for a device; where it is
//! missing, too old or finds nothing, that is "no GPU", with the reason as a text. Only the driver API is used, through the primary
//! context of each device, so that addresses mean the same to libraries in this process that use the runtime API.
//!
//! Knows nothing of requests, tensors or names of regions. `unsafe` is confined to `driver` (the library's functions), `library` and `shared`.
//!
//! Invariant: a call that the library refuses is an error with its name and number; no missing library, symbol or device panics.

mod closing;
mod devices;
mod driver;
pub mod failure;
mod library;
mod shared;

pub use closing::{Closing, watch_closing};
pub use devices::{Device, PciAddress, Uuid, devices};
pub use driver::{Driver, HANDLE_BYTES, Handle, Unavailable, driver};
pub use shared::{Imported, Refused};
