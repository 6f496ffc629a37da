//! Devices of this machine: the CUDA driver, found at run time, and device memory that another process shares.
//!
//! One binary serves machines with and without a GPU. `libcuda.so.1` is opened when a device is first needed; if it is
//! missing, too old or finds no device, there is "no GPU", with a reason. Only the driver API is used, through primary
//! contexts, so that addresses are also valid for libraries in this process that use the runtime API.
//!
//! Knows nothing of requests, tensors or names of regions. `unsafe` is confined to `driver`, `library` and `raw`
//! (functions of the library), `shared` (ranges of device memory), `pool` (pieces of blocks), `locked` (pages of
//! mappings) and `stream` (lifetimes of copies).
//!
//! Invariant: a rejected call is an error with its name and number; no missing library, symbol or device panics.

pub mod arena;
mod closing;
mod devices;
mod driver;
pub mod failure;
mod foreign;
mod library;
mod locked;
mod nvml;
mod pool;
mod raw;
mod shared;
mod stream;
mod usage;
mod visible;

pub use closing::{Closing, watch_closing};
pub use devices::{Device, PciAddress, Uuid, devices};
pub use driver::{Driver, HANDLE_BYTES, Handle, allow_peers, driver, has_devices, stand_apart, suspect};
pub use foreign::Adopted;
pub use library::Unavailable;
pub use locked::{LOCKED_BYTES_DEFAULT, Locked, lock_at_most, locked_bytes};
pub use nvml::{Nvml, NvmlDevice, NvmlError, nvml};
pub use pool::{
    BODIES_PINNED_SHARE, BODY_PINNED_SHARE, DEVICE_BYTES_DEFAULT, NoRoom, PINNED_BYTES_DEFAULT, Pinned, PoolSizes,
    PoolUse, allocate, is_pinned, pinned, pinned_bodies, pinned_for_body, pinned_pool_size, pool_uses, prepare_pinned,
    release_pools, set_pool_sizes,
};
pub use raw::MemoryInfo;
pub use shared::{Imported, OpenError};
pub use stream::{DeviceRead, Stream};
pub use usage::{Monitor, Status, Usage};
pub use visible::{Ignored, first_ignored};
