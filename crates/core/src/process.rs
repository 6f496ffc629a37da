//! Settings that all servers of a process share because the core has them once. The first server sets them; a second
//! one that wants them otherwise is rejected while the first runs.

use options::{CoreOptions, DeviceMemoryOptions};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Error, Result};

/// A setting that all servers of a process share.
#[derive(Debug, Clone)]
pub struct SharedSetting {
    /// Name; settings with the same name are compared.
    pub name: String,
    /// Equal for equal settings.
    pub value: String,
    /// How a server with this setting is described in an error.
    pub has: String,
    /// Addition to that error by a server that wants this setting; may be empty.
    pub instead: String,
}

/// Settings of the running servers.
static CLAIMED: Mutex<Vec<Arc<[SharedSetting]>>> = Mutex::new(Vec::new());

/// Claim of a server on the settings of the process, until it is dropped.
#[derive(Debug)]
pub struct Claim(Arc<[SharedSetting]>);

impl Claim {
    /// Claims the process for a server that is about to start.
    ///
    /// # Errors
    /// INVALID_ARG if a running server has other settings, with the first of them.
    pub fn new(settings: Vec<SharedSetting>) -> Result<Self> {
        let mut claimed = CLAIMED.lock();
        let theirs = || claimed.iter().flat_map(|theirs| theirs.iter());
        let differs = |ours: &SharedSetting| theirs().find(|one| one.name == ours.name && one.value != ours.value);
        if let Some((ours, theirs)) = settings.iter().find_map(|ours| Some((ours, differs(ours)?))) {
            return Err(Error::invalid(format!(
                "another server of this process has {}{}, which all servers of a process share: stop it first, or \
                 start this one with the same",
                theirs.has, ours.instead
            )));
        }
        let own: Arc<[SharedSetting]> = settings.into();
        claimed.push(own.clone());
        Ok(Self(own))
    }

    /// Claims the memory limits of `options`, and sets them.
    pub(crate) fn memory(options: &CoreOptions) -> Result<Self> {
        memory::pressure::check_container()?;
        let (bytes, devices) = (options.memory_limit_bytes, &options.device_memory);
        let setting = |name: &str, value: String, has: String, instead: String| SharedSetting {
            name: name.to_owned(),
            value,
            has,
            instead,
        };
        let claim = Self::new(vec![
            setting("memory", bytes.to_string(), format!("a memory limit of {bytes} bytes"), format!(", not {bytes}")),
            setting(
                "device memory",
                format!("{devices:?}"),
                "other limits for the memory of devices".to_owned(),
                String::new(),
            ),
        ])?;
        limit_memory(bytes);
        limit_device_memory(devices);
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().retain(|one| !Arc::ptr_eq(one, &self.0));
    }
}

/// Sets the memory limit of requests; 0 = that of the machine or container, also after a server with another limit.
fn limit_memory(limit: usize) {
    let budget = memory::Budget::global();
    budget.set_limit(if limit > 0 { limit } else { memory::budget::limit_of_machine() });
    // Free buffers are not counted as in use and should not outweigh it.
    memory::SlabPool::global().retain_at_most(budget.limit() / 4);
}

/// Sets the limits of pools, locked regions and models. Allocates nothing and looks for no device.
fn limit_device_memory(options: &DeviceMemoryOptions) {
    let devices = options.device_pools.iter().map(|pool| (pool.device, pool.bytes)).collect();
    device::set_pool_sizes(device::PoolSizes { pinned: options.pinned_pool_bytes, devices });
    device::lock_at_most(options.locked_region_bytes_max);
    device::allow_peers(options.peer_access);
    let limits: Vec<(u32, f64)> = options.load_limits.iter().map(|limit| (limit.device, limit.fraction)).collect();
    memory::Ledger::global().limit_devices(&limits);
}
