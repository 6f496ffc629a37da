//! Executes copy plans (`plan`), with streams of devices and page-locked staging blocks.
//!
//! Blocks the calling thread until all bytes are in place. Batches that are entirely in host memory do not need it.

use crate::plan::{CopyEnd, CopyKind, CopyPlan, CopyStep, Endpoint, MemoryKind, Position};
use device::{DeviceRead, Pinned, Stream};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tensor::{Base, Data, Error, RegionRef, Result, part};

/// Maximum bytes of one staging block. The driver stages larger pieces itself.
const STAGING_BYTES_MAX: usize = 64 << 20;

static STAGED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes that the processor copied from or to staging blocks; page-locked sources and the driver's staging excluded.
#[must_use]
pub fn staged_bytes() -> u64 {
    STAGED_BYTES.load(Relaxed)
}

/// Destination of a copy.
pub enum Target<'a> {
    /// Memory of this process that is not shared yet.
    Host(&'a mut [u8]),
    /// A region on the host or a device.
    Region(RegionRef),
}

impl Target<'_> {
    fn endpoint(&self) -> Endpoint {
        Endpoint::alone(match self {
            Self::Host(bytes) if device::is_pinned(bytes) => MemoryKind::Pinned,
            Self::Host(_) => MemoryKind::Pageable,
            Self::Region(region) => memory_of_region(region),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Host(bytes) => bytes.len(),
            Self::Region(region) => region.len(),
        }
    }
}

/// Concatenates sources in a target, which has room for exactly them.
///
/// # Errors
/// INTERNAL with the error of the driver; the contents of the target are undefined then.
pub fn gather(sources: &[Data], target: Target<'_>) -> Result<()> {
    if sources.iter().map(Data::len).sum::<usize>() > target.len() {
        return Err(misplaced());
    }
    let endpoints: SmallVec<[(Endpoint, usize); 8]> = sources.iter().map(|data| (endpoint(data), data.len())).collect();
    let memory = target.endpoint().memory;
    let make = |staging| CopyPlan::gather(&endpoints, memory, staging);
    run_plan(make, sources, &mut [target])
}

/// The concatenated sources in memory of a device: in place if contiguous there, otherwise in new memory of the server.
/// With `shared`, bytes that others may still write are used in place, too. `None` without sources.
///
/// # Errors
/// RESOURCE_EXHAUSTED or UNAVAILABLE without device memory; otherwise as `gather`.
pub fn on_device(sources: &[Data], device: u32, shared: bool) -> Result<Option<RegionRef>> {
    if sources.is_empty() {
        return Ok(None);
    }
    let regions: Option<SmallVec<[&RegionRef; 8]>> = sources.iter().filter(|s| !s.is_empty()).map(region_of).collect();
    let there = regions.and_then(part::joined).filter(|row| {
        matches!(row.base(), Base::Device(memory) if memory.device() == device) && (shared || !row.is_shared())
    });
    if there.is_some() {
        return Ok(there);
    }
    let made = device::allocate(device, sources.iter().map(Data::len).sum())?;
    gather(sources, Target::Region(made.clone()))?;
    Ok(Some(made))
}

/// Copies a source into new memory of the server on a device.
///
/// # Errors
/// RESOURCE_EXHAUSTED or UNAVAILABLE without device memory; INTERNAL with the error of the driver.
pub fn to_device(source: &Data, device: u32) -> Result<RegionRef> {
    let made = device::allocate(device, source.len())?;
    gather(std::slice::from_ref(source), Target::Region(made.clone()))?;
    Ok(made)
}

fn region_of(data: &Data) -> Option<&RegionRef> {
    if let Data::Region(region) = data { Some(region) } else { None }
}

/// Copies a source to the beginning of a region. The two may overlap.
///
/// # Errors
/// INTERNAL with the error of the driver; the contents of the target are undefined then.
pub fn whole(source: &Data, region: &RegionRef) -> Result<()> {
    let len = source.len();
    if let Data::Region(from) = source
        && from.overlaps(&**region)
    {
        // Equal ranges need no copy; for other overlaps, a device's copy order would be undefined.
        let is_same = from.extent() == region.extent();
        return if is_same { Ok(()) } else { region.copy_from_region(0, &**from, 0, len) };
    }
    let make = |staging| CopyPlan::whole(endpoint(source), memory_of_region(region), len, staging);
    run_plan(make, std::slice::from_ref(source), &mut [Target::Region(region.clone())])
}

/// Executes a plan with staging blocks of the pinned pool, or without staging if the pool has no room for them.
fn run_plan(make: impl Fn(usize) -> CopyPlan, sources: &[Data], targets: &mut [Target<'_>]) -> Result<()> {
    let plan = make(STAGING_BYTES_MAX);
    match plan.staging().iter().map(|&len| device::pinned(len)).collect::<Result<SmallVec<[Pinned; 2]>, _>>() {
        Ok(blocks) => execute(&plan, sources, targets, blocks),
        Err(_) => execute(&make(0), sources, targets, SmallVec::new()),
    }
}

/// The memory of a tensor's contents.
pub fn endpoint(data: &Data) -> Endpoint {
    match data {
        Data::Bytes(bytes) if device::is_pinned(bytes) => Endpoint::alone(MemoryKind::Pinned),
        Data::Bytes(_) => Endpoint::alone(MemoryKind::Pageable),
        Data::Region(region) => {
            let memory = memory_of_region(region);
            // Host regions of one object are mapped separately, so copies must not cross them.
            let extent = matches!(memory, MemoryKind::Device(_)).then(|| region.extent());
            Endpoint { memory, extent }
        }
    }
}

fn memory_of_region(region: &RegionRef) -> MemoryKind {
    match region.base() {
        Base::Device(memory) => MemoryKind::Device(memory.device()),
        Base::Host(_) if region.is_page_locked() => MemoryKind::Pinned,
        Base::Host(_) => MemoryKind::Pageable,
    }
}

thread_local! {
    /// Streams by device. Each thread has its own, because waiting for a stream waits for everything in it.
    static STREAMS: RefCell<Vec<Option<Stream>>> = const { RefCell::new(Vec::new()) };
}

/// This thread's stream on a device.
fn stream(device: u32) -> Result<Stream> {
    // A thread that is ending has lost its thread-locals.
    let found = STREAMS.try_with(|streams| {
        let mut streams = streams.borrow_mut();
        let at = device as usize;
        if streams.len() <= at {
            streams.resize_with(at + 1, || None);
        }
        let Some(place) = streams.get_mut(at) else { return Stream::new(device, 0) };
        match place {
            Some(stream) => Ok(stream.clone()),
            None => Ok(place.insert(Stream::new(device, 0)?).clone()),
        }
    });
    found.unwrap_or_else(|_| Stream::new(device, 0))
}

/// State of a staging block.
enum StagingBlock {
    /// The host is filling it.
    Open(Pinned),
    /// Filled by the host; the device reads it.
    Full(Data),
    /// The device is writing it.
    Pending(DeviceRead<Pinned>),
    /// Filled by the device.
    Done(Pinned),
    Gone,
}

impl StagingBlock {
    fn open(&mut self) -> Result<&mut Pinned> {
        if let Self::Open(block) = self { Ok(block) } else { Err(misplaced()) }
    }

    /// The filled block, for a device to read.
    fn full(&mut self) -> Result<&Data> {
        if matches!(self, Self::Open(_))
            && let Self::Open(block) = std::mem::replace(self, Self::Gone)
        {
            *self = Self::Full(Data::Bytes(block.freeze()));
        }
        if let Self::Full(data) = self { Ok(data) } else { Err(misplaced()) }
    }

    /// The block, after waiting for the device's write.
    fn done(&mut self) -> Result<&Pinned> {
        if matches!(self, Self::Pending(_))
            && let Self::Pending(pending) = std::mem::replace(self, Self::Gone)
        {
            *self = Self::Done(pending.wait()?);
        }
        if let Self::Done(block) = self { Ok(block) } else { Err(misplaced()) }
    }
}

fn execute(plan: &CopyPlan, sources: &[Data], targets: &mut [Target<'_>], blocks: SmallVec<[Pinned; 2]>) -> Result<()> {
    let mut blocks: SmallVec<[StagingBlock; 2]> = blocks.into_iter().map(StagingBlock::Open).collect();
    for step in plan.steps() {
        match *step {
            CopyStep::Synchronize(device) => stream(device)?.synchronize()?,
            CopyStep::Copy { how: CopyKind::Memcpy, from, to, len } => {
                if matches!(from.end, CopyEnd::Staging(_)) || matches!(to.end, CopyEnd::Staging(_)) {
                    STAGED_BYTES.fetch_add(len as u64, Relaxed);
                }
                memcpy((from, to, len), sources, targets, &mut blocks)?;
            }
            CopyStep::Copy { how, from, to, len } => transfer(how, (from, to, len), sources, targets, &mut blocks)?,
        }
    }
    Ok(())
}

/// Makes a copy of the processor.
fn memcpy(
    (from, to, len): (Position, Position, usize),
    sources: &[Data],
    targets: &mut [Target<'_>],
    blocks: &mut [StagingBlock],
) -> Result<()> {
    match (from.end, to.end) {
        (CopyEnd::Source(n), CopyEnd::Staging(k)) => {
            let block = blocks.get_mut(k).ok_or_else(misplaced)?.open()?;
            sources.get(n).ok_or_else(misplaced)?.copy_to(from.offset, range(block, to.offset, len)?)
        }
        (CopyEnd::Source(n), CopyEnd::Target(m)) => {
            let source = sources.get(n).ok_or_else(misplaced)?;
            match (targets.get_mut(m).ok_or_else(misplaced)?, source) {
                (Target::Host(bytes), source) => source.copy_to(from.offset, range(bytes, to.offset, len)?),
                (Target::Region(region), Data::Bytes(bytes)) => {
                    let end = from.offset.saturating_add(len);
                    region.copy_from(to.offset, bytes.get(from.offset..end).ok_or_else(misplaced)?)
                }
                (Target::Region(region), Data::Region(source)) => {
                    region.copy_from_region(to.offset, &**source, from.offset, len)
                }
            }
        }
        (CopyEnd::Staging(k), CopyEnd::Target(m)) => {
            let block = blocks.get_mut(k).ok_or_else(misplaced)?.done()?;
            let end = from.offset.saturating_add(len);
            let bytes = block.get(from.offset..end).ok_or_else(misplaced)?;
            match targets.get_mut(m).ok_or_else(misplaced)? {
                Target::Host(target) => range(target, to.offset, len)?.copy_from_slice(bytes),
                Target::Region(region) => region.copy_from(to.offset, bytes)?,
            }
            Ok(())
        }
        _ => Err(misplaced()),
    }
}

/// Starts a copy of a device.
fn transfer(
    how: CopyKind,
    (from, to, len): (Position, Position, usize),
    sources: &[Data],
    targets: &mut [Target<'_>],
    blocks: &mut [StagingBlock],
) -> Result<()> {
    let stream = stream(how.device().ok_or_else(misplaced)?)?;
    if let CopyEnd::Staging(k) = from.end {
        let (Some(block), CopyEnd::Target(m)) = (blocks.get_mut(k), to.end) else { return Err(misplaced()) };
        let Some(Target::Region(region)) = targets.get(m) else { return Err(misplaced()) };
        return stream.copy(region, to.offset, block.full()?, from.offset, len);
    }
    let CopyEnd::Source(n) = from.end else { return Err(misplaced()) };
    let source = span(sources, n, from.offset.saturating_add(len))?;
    match (to.end, &source) {
        (CopyEnd::Staging(k), Data::Region(region)) => {
            let place = blocks.get_mut(k).ok_or_else(misplaced)?;
            let StagingBlock::Open(block) = std::mem::replace(place, StagingBlock::Gone) else {
                return Err(misplaced());
            };
            *place = StagingBlock::Pending(stream.download(region, from.offset, block)?);
            Ok(())
        }
        (CopyEnd::Target(m), source) => match targets.get_mut(m).ok_or_else(misplaced)? {
            Target::Region(region) => stream.copy(region, to.offset, source, from.offset, len),
            // The slice is borrowed only for this call, so an asynchronous copy must not write it.
            Target::Host(bytes) => source.copy_to(from.offset, range(bytes, to.offset, len)?),
        },
        _ => Err(misplaced()),
    }
}

/// The source at index `at`, extended to `len` bytes by the adjacent sources that the plan merged with it.
fn span(sources: &[Data], at: usize, len: usize) -> Result<Data> {
    let first = sources.get(at).ok_or_else(misplaced)?;
    if first.len() >= len {
        return Ok(first.clone());
    }
    let Data::Region(region) = first else { return Err(misplaced()) };
    let mut next = region.extent();
    let mut there = 0;
    let mut regions: SmallVec<[&RegionRef; 8]> = SmallVec::new();
    for region in sources.iter().skip(at).filter_map(region_of) {
        // Sources that are not adjacent may be in between.
        if there < len && region.extent() == next {
            next.start = next.start.saturating_add(region.len() as u64);
            there += region.len();
            regions.push(region);
        }
    }
    part::joined(regions).filter(|row| row.len() >= len).map(Data::Region).ok_or_else(misplaced)
}

fn range(bytes: &mut [u8], offset: usize, len: usize) -> Result<&mut [u8]> {
    bytes.get_mut(offset..offset.saturating_add(len)).ok_or_else(misplaced)
}

#[cold]
fn misplaced() -> Error {
    Error::internal(
        "a copy was planned between locations that do not exist; this is a defect of the server, please report it",
    )
}
