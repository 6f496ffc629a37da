//! Limits and usage of device memory and pinned memory.

use crate::objects as js;
use device::PoolSizes;
use memory::Ledger;
use options::DeviceMemoryOptions;

/// Sets the limits of pools, locked regions and models. Allocates nothing and looks for no device.
pub fn limit(options: &DeviceMemoryOptions) {
    let devices = options.device_pools.iter().map(|pool| (pool.device, pool.bytes)).collect();
    device::set_pool_sizes(PoolSizes { pinned: options.pinned_pool_bytes, devices });
    device::lock_at_most(options.locked_region_bytes_max);
    device::allow_peers(options.peer_access);
    let limits: Vec<(u32, f64)> = options.load_limits.iter().map(|limit| (limit.device, limit.fraction)).collect();
    Ledger::global().limit_devices(&limits);
}

/// `None` without a device, and before one was looked for.
pub fn usage() -> Option<js::DeviceMemoryUse> {
    let uses = device::pool_uses();
    let (pinned, devices) = uses.split_first()?;
    let (locked, locked_max) = device::locked_bytes();
    let (bodies, bodies_max) = device::pinned_bodies();
    let of_device = |of: &device::PoolUse| {
        let number = of.device.unwrap_or(0);
        let row = Ledger::global().device(number, of.device_bytes);
        js::OneDeviceMemoryUse {
            device: number,
            pool: pool(of),
            promised_bytes: row.promised_bytes as f64,
            promised_bytes_max: row.limit_bytes as f64,
        }
    };
    Some(js::DeviceMemoryUse {
        pinned: pool(pinned),
        devices: devices.iter().map(of_device).collect(),
        locked_region_bytes: locked as f64,
        locked_region_bytes_max: locked_max as f64,
        pinned_body_bytes: bodies as f64,
        pinned_body_bytes_max: bodies_max as f64,
        staged_bytes: backend::copy::staged_bytes(),
    })
}

fn pool(of: &device::PoolUse) -> js::PoolUse {
    js::PoolUse { bytes_max: of.bytes_max as f64, used_bytes: of.used_bytes as f64, exhausted: of.exhausted }
}
