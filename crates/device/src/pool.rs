//! Memory pools of the server: a block on each device and a page-locked block on the host, divided into pieces.
//!
//! A block is allocated on first use, because that also creates the context of the device, which a server with models
//! on the CPU only must not have. `release` frees it.
//!
//! Invariant: a piece keeps its block and returns to it when its last owner is dropped, even after failures.

#![allow(unsafe_code)] // vouches for pieces of blocks

use crate::arena::{Arena, Piece};
use crate::closing;
use crate::driver::{Address, Driver, Handle, driver, has_devices};
use crate::failure;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tensor::{Base, DeviceMemory, Error, Exported, Extent, RegionMemory, RegionRef, Result};

/// Default of `--pinned-memory-pool-byte-size`.
pub const PINNED_BYTES_DEFAULT: usize = 256 << 20;
/// Default of `--cuda-memory-pool-byte-size` for each device.
pub const DEVICE_BYTES_DEFAULT: usize = 64 << 20;
/// Divisor of the pinned pool for all request bodies together: slow uploads must leave room for staging and outputs.
pub const BODIES_PINNED_SHARE: usize = 2;
/// Divisor of the pinned pool for one request body: each client must leave room for others.
pub const BODY_PINNED_SHARE: usize = 8;
/// The device whose context locks host memory; all others can access it, too.
pub(crate) const HOST_DEVICE: u32 = 0;

/// Configured sizes of the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// Bytes of the pinned pool; 0 = none.
    pub pinned: usize,
    /// Bytes of each device's pool; 0 = none. The last entry of a device counts.
    pub devices: Vec<(u32, usize)>,
}

impl Default for PoolSizes {
    fn default() -> Self {
        Self { pinned: PINNED_BYTES_DEFAULT, devices: Vec::new() }
    }
}

/// Usage of a pool, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// `None` is the pinned pool.
    pub device: Option<u32>,
    /// Size limit.
    pub bytes_max: usize,
    /// Bytes in use.
    pub used_bytes: usize,
    /// Number of requests that found no room.
    pub exhausted: u64,
    /// Size of the device's memory; 0 for the pinned pool or if unknown.
    pub device_bytes: u64,
}

/// Reason why a pool has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// No pool: no device, size 0, or the driver rejected the block.
    NoPool,
    /// No free piece is large enough.
    Exhausted,
}

/// Memory that a pool divides.
trait Block: Copy + Send {
    fn make(device: u32, len: usize) -> Result<Self>;
    fn end(self);
}

#[derive(Clone, Copy)]
struct DeviceBlock {
    driver: &'static Driver,
    device: u32,
    address: Address,
}

/// Pools of the process, made when first needed.
struct ProcessPools {
    sizes: Mutex<PoolSizes>,
    /// `None` without a device.
    pools: OnceLock<Option<Pools>>,
    /// Handles of blocks by device and address; `None` if the driver cannot make one.
    handles: Mutex<BTreeMap<(u32, Address), Option<Handle>>>,
    /// Start and end of the pinned block; an end of 0 means none.
    pinned: (AtomicUsize, AtomicUsize),
    /// Bytes of the pinned pool used by request bodies.
    bodies: AtomicUsize,
    has_warned: AtomicBool,
}

static PROCESS: ProcessPools = ProcessPools {
    sizes: Mutex::new(PoolSizes { pinned: PINNED_BYTES_DEFAULT, devices: Vec::new() }),
    pools: OnceLock::new(),
    handles: Mutex::new(BTreeMap::new()),
    pinned: (AtomicUsize::new(0), AtomicUsize::new(0)),
    bodies: AtomicUsize::new(0),
    has_warned: AtomicBool::new(false),
};

impl DeviceBlock {
    /// Handle with which other processes open the block. Requested from the driver once.
    fn handle(&self) -> Option<Handle> {
        *PROCESS.handles.lock().entry((self.device, self.address)).or_insert_with(|| {
            let made = self.driver.handle_of(self.device, self.address);
            if let Err(e) = &made {
                log::info!(
                    "tensors on device {} reach other processes by way of the host: {}",
                    self.device,
                    e.message()
                );
            }
            made.ok()
        })
    }
}

impl Block for DeviceBlock {
    fn make(device: u32, len: usize) -> Result<Self> {
        let driver = driver().map_err(|why| Error::environment(why.to_string()))?;
        Ok(Self { driver, device, address: driver.allocate(device, len)? })
    }

    fn end(self) {
        if let Some(Some(handle)) = PROCESS.handles.lock().remove(&(self.device, self.address)) {
            closing::notify(self.device, &handle);
        }
        if let Err(e) = self.driver.free(self.device, self.address) {
            log::warn!("the memory pool of device {} was not given back: {}", self.device, e.message());
        }
    }
}

#[derive(Clone, Copy)]
struct HostBlock {
    driver: &'static Driver,
    start: NonNull<u8>,
}

// SAFETY: the block is plain memory; each of its pieces has one owner.
unsafe impl Send for HostBlock {}
// SAFETY: as above.
unsafe impl Sync for HostBlock {}

impl Block for HostBlock {
    fn make(device: u32, len: usize) -> Result<Self> {
        let driver = driver().map_err(|why| Error::environment(why.to_string()))?;
        let start = driver.allocate_host(device, len)?;
        // The contents are undefined, and slices of uninitialised memory are not allowed.
        // SAFETY: `len` bytes that were just allocated.
        unsafe { start.as_ptr().write_bytes(0, len) };
        PROCESS.pinned.0.store(start.as_ptr() as usize, Relaxed);
        PROCESS.pinned.1.store(start.as_ptr() as usize + len, Relaxed);
        Ok(Self { driver, start })
    }

    fn end(self) {
        PROCESS.pinned.1.store(0, Relaxed);
        // SAFETY: a pool frees its block when no piece is in use.
        if let Err(e) = unsafe { self.driver.free_host(HOST_DEVICE, self.start) } {
            log::warn!("the pinned memory pool was not given back: {}", e.message());
        }
    }
}

/// A block, allocated on first use, and its pieces.
struct BlockPool<B> {
    name: String,
    device: u32,
    size: AtomicUsize,
    device_bytes: u64,
    state: Mutex<PoolMemory<B>>,
    exhausted: AtomicU64,
}

enum PoolMemory<B> {
    Unmade,
    Made(B, Arena),
    /// The driver rejected the block; not retried, because each attempt takes long.
    Refused,
}

impl<B: Block> BlockPool<B> {
    fn new(name: String, device: u32, size: usize, device_bytes: u64) -> Self {
        Self {
            device_bytes,
            name,
            device,
            size: size.into(),
            state: Mutex::new(PoolMemory::Unmade),
            exhausted: AtomicU64::new(0),
        }
    }

    fn take(self: &Arc<Self>, len: usize) -> Result<Taken<B>, NoRoom> {
        let mut state = self.state.lock();
        if matches!(*state, PoolMemory::Unmade) {
            let size = self.size.load(Relaxed);
            if size == 0 {
                return Err(NoRoom::NoPool);
            }
            *state = match B::make(self.device, size) {
                Ok(block) => PoolMemory::Made(block, Arena::new(size)),
                Err(e) => {
                    log::warn!("there is no {} of {size} bytes: {}", self.name, e.message());
                    PoolMemory::Refused
                }
            };
        }
        let PoolMemory::Made(block, arena) = &mut *state else { return Err(NoRoom::NoPool) };
        let Some(piece) = arena.take(len) else {
            self.exhausted.fetch_add(1, Relaxed);
            return Err(NoRoom::Exhausted);
        };
        Ok(Taken { pool: Arc::clone(self), block: *block, piece })
    }

    /// Allocates the block, unless the size is 0.
    fn prepare(self: &Arc<Self>) {
        drop(self.take(1));
    }

    fn usage(&self, device: Option<u32>) -> PoolUse {
        let used_bytes = if let PoolMemory::Made(_, arena) = &*self.state.lock() { arena.used() } else { 0 };
        let exhausted = self.exhausted.load(Relaxed);
        PoolUse { device, bytes_max: self.size.load(Relaxed), used_bytes, exhausted, device_bytes: self.device_bytes }
    }

    /// Frees the block, if no piece is in use.
    fn release(&self) {
        let mut state = self.state.lock();
        match &*state {
            PoolMemory::Made(_, arena) if arena.used() > 0 => {}
            PoolMemory::Made(block, _) => {
                block.end();
                *state = PoolMemory::Unmade;
            }
            PoolMemory::Unmade | PoolMemory::Refused => *state = PoolMemory::Unmade,
        }
    }
}

/// A piece of a pool's block.
struct Taken<B: Block> {
    pool: Arc<BlockPool<B>>,
    block: B,
    piece: Piece,
}

impl<B: Block> Drop for Taken<B> {
    fn drop(&mut self) {
        if let PoolMemory::Made(_, arena) = &mut *self.pool.state.lock() {
            arena.give(self.piece);
        }
    }
}

struct Pools {
    pinned: Arc<BlockPool<HostBlock>>,
    devices: Vec<Arc<BlockPool<DeviceBlock>>>,
}

impl PoolSizes {
    fn of(&self, device: u32) -> usize {
        self.devices.iter().rev().find(|(of, _)| *of == device).map_or(DEVICE_BYTES_DEFAULT, |&(_, bytes)| bytes)
    }
}

/// `None` without a device.
fn pools() -> Option<&'static Pools> {
    let made = PROCESS.pools.get_or_init(|| {
        let driver = driver().ok()?;
        let sizes = PROCESS.sizes.lock();
        let of_device = |n| {
            let total = driver.device_memory(n).unwrap_or(0) as u64;
            Arc::new(BlockPool::new(format!("memory pool of device {n}"), n, sizes.of(n), total))
        };
        Some(Pools {
            pinned: Arc::new(BlockPool::new("pinned memory pool".into(), HOST_DEVICE, sizes.pinned, 0)),
            devices: (0..driver.devices()).map(of_device).collect(),
        })
    });
    made.as_ref()
}

/// Sets the sizes of pools. Allocated blocks keep theirs.
pub fn set_pool_sizes(sizes: PoolSizes) {
    if let Some(Some(pools)) = PROCESS.pools.get() {
        pools.pinned.size.store(sizes.pinned, Relaxed);
        for pool in &pools.devices {
            pool.size.store(sizes.of(pool.device), Relaxed);
        }
    }
    *PROCESS.sizes.lock() = sizes;
}

/// The size set for the pinned pool, also without a device.
pub fn pinned_pool_size() -> usize {
    PROCESS.sizes.lock().pinned
}

/// Usage of all pools, the pinned one first. Empty without a known device.
pub fn pool_uses() -> Vec<PoolUse> {
    let Some(pools) = has_devices().then(pools).flatten() else { return Vec::new() };
    let devices = pools.devices.iter().map(|pool| pool.usage(Some(pool.device)));
    std::iter::once(pools.pinned.usage(None)).chain(devices).collect()
}

/// Frees blocks without pieces in use; they are allocated again when needed.
pub fn release_pools() {
    let Some(Some(pools)) = PROCESS.pools.get() else { return };
    pools.pinned.release();
    pools.devices.iter().for_each(|pool| pool.release());
}

/// `len` bytes of the pinned pool. Their contents are unspecified.
///
/// # Errors
/// No room or no pool. The caller chooses an alternative.
pub fn pinned(len: usize) -> Result<Pinned, NoRoom> {
    let taken = pools().ok_or(NoRoom::NoPool)?.pinned.take(len)?;
    Ok(Pinned { taken, len, _of_bodies: None })
}

/// Allocates the pinned pool now. Later users must not wait for the driver, which takes a tenth of a second.
pub fn prepare_pinned() {
    if let Some(pools) = pools() {
        pools.pinned.prepare();
    }
}

/// `len` bytes of the pinned pool for a request body, which its client may send slowly. `None` before `prepare_pinned`,
/// without room, and beyond the share of bodies. Never calls the driver.
pub fn pinned_for_body(len: usize) -> Option<Pinned> {
    let pool = &PROCESS.pools.get()?.as_ref()?.pinned;
    let size = pool.size.load(Relaxed);
    if PROCESS.pinned.1.load(Relaxed) == 0 || len > size / BODY_PINNED_SHARE {
        return None;
    }
    let share = BodyShare::take(len, size / BODIES_PINNED_SHARE)?;
    let taken = pool.take(len).ok()?;
    Some(Pinned { taken, len, _of_bodies: Some(share) })
}

/// Bytes of the pinned pool used by request bodies, and their limit.
pub fn pinned_bodies() -> (usize, usize) {
    let size = pools().map_or(0, |pools| pools.pinned.size.load(Relaxed));
    (PROCESS.bodies.load(Relaxed), size / BODIES_PINNED_SHARE)
}

/// A body's part of the share of bodies, returned on drop.
struct BodyShare(usize);

impl BodyShare {
    fn take(len: usize, most: usize) -> Option<Self> {
        let share = Self(len);
        // Added before the comparison, and subtracted by the drop if too much, so the limit is never exceeded.
        (PROCESS.bodies.fetch_add(len, Relaxed).saturating_add(len) <= most).then_some(share)
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        PROCESS.bodies.fetch_sub(self.0, Relaxed);
    }
}

/// Whether these bytes are in the pinned pool, so that devices access them directly.
pub fn is_pinned(bytes: &[u8]) -> bool {
    let (start, end) = (PROCESS.pinned.0.load(Relaxed), PROCESS.pinned.1.load(Relaxed));
    let at = bytes.as_ptr() as usize;
    !bytes.is_empty() && start <= at && at < end
}

/// `len` bytes of a device's pool, as a region with undefined contents. They return with the last owner, which must
/// wait for pending uses; copies in a `Stream` keep them alive.
///
/// # Errors
/// RESOURCE_EXHAUSTED without room, logged the first time; UNAVAILABLE without such a pool or if the device failed.
pub fn allocate(device: u32, len: usize) -> Result<RegionRef> {
    failure::check(device)?;
    let pool = pools().and_then(|pools| pools.devices.get(device as usize));
    let pool = pool.ok_or_else(|| Error::environment(format!("there is no memory pool of device {device}")))?;
    match pool.take(len) {
        Ok(taken) => Ok(Arc::new(DeviceBuffer { taken, len })),
        Err(NoRoom::NoPool) => Err(Error::environment(format!("there is no memory pool of device {device}"))),
        Err(NoRoom::Exhausted) => {
            let PoolUse { bytes_max, used_bytes, .. } = pool.usage(None);
            let text = format!(
                "the memory pool of device {device} has no room for {len} bytes: {used_bytes} of {bytes_max} bytes are \
                 in use; --cuda-memory-pool-byte-size={device}:BYTES makes it larger"
            );
            if !PROCESS.has_warned.swap(true, Relaxed) {
                log::warn!("{text}");
            }
            Err(Error::exhausted(text))
        }
    }
}

/// Device memory of the server: for outputs, and for tensors between the steps of an ensemble.
struct DeviceBuffer {
    taken: Taken<DeviceBlock>,
    len: usize,
}

impl DeviceBuffer {
    fn start(&self) -> Address {
        self.taken.block.address + self.taken.piece.offset as u64
    }

    fn at(&self, offset: usize, len: usize) -> Result<Address> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let of = self.len;
            return Err(Error::internal(format!(
                "{len} bytes at offset {offset} are not inside the {of} bytes of a device"
            )));
        }
        Ok(self.start() + offset as u64)
    }
}

// SAFETY: the piece has at least `len` bytes, and its pool keeps the block until the piece is dropped with this value.
unsafe impl RegionMemory for DeviceBuffer {
    fn base(&self) -> Base<'_> {
        Base::Device(self)
    }
    fn len(&self) -> usize {
        self.len
    }
    fn region_name(&self) -> &'static str {
        "device memory"
    }
    fn extent(&self) -> Extent {
        // As for memory shared with clients: no file has such a device number.
        let object = (u64::MAX - u64::from(self.taken.block.device), self.taken.block.address);
        Extent { object, start: self.taken.piece.offset as u64 }
    }
    fn is_shared(&self) -> bool {
        false
    }
}

impl DeviceMemory for DeviceBuffer {
    fn device(&self) -> u32 {
        self.taken.block.device
    }
    fn address(&self) -> Address {
        self.start()
    }
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let from = self.at(offset, to.len())?;
        // SAFETY: `at` checked the range, and the block lives as long as `self`.
        unsafe { self.taken.block.driver.read(self.taken.block.device, from, to) }
    }
    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.at(offset, from.len())?;
        // SAFETY: as in `read`.
        unsafe { self.taken.block.driver.write(self.taken.block.device, to, from) }
    }
    /// The opener can access the whole block, as for any part of an allocation.
    fn exported(&self) -> Option<Exported> {
        let handle = self.taken.block.handle()?;
        Some(Exported { handle: handle.0, offset: self.taken.piece.offset as u64 })
    }
}

/// Host memory that devices access directly, with one owner; `freeze` makes it shareable.
pub struct Pinned {
    taken: Taken<HostBlock>,
    len: usize,
    _of_bodies: Option<BodyShare>,
}

impl Pinned {
    /// Makes it immutable and shareable without a copy; dropping the last clone returns it.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Shortens it; a larger length has no effect.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Pinned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: a piece of at least `len` bytes, owned by this value, of a block that was initialised.
        unsafe { std::slice::from_raw_parts(self.taken.block.start.as_ptr().add(self.taken.piece.offset), self.len) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(self.taken.block.start.as_ptr().add(self.taken.piece.offset), self.len)
        }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
