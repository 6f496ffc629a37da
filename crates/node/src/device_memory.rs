//! Limits of device memory and pinned memory.

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
