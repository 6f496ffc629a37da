//! Carries plans out (`plan`): over memory of the host as it is, over devices with streams and page-locked blocks.
//!
//! Called by threads that run batches and place outputs. Waits until everything is where it belongs. Batches that lie in the host's memory
//! altogether do not come here.

use crate::plan::{At, End, How, Lies, Memory, Plan, Step};
use device::{Pending, Pinned, Stream};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tensor::{Base, Data, Error, RegionRef, Result, part};

/// Most bytes of one staging block: what is larger, the driver stages itself, in blocks of its own.
const STAGING_BYTES_MAX: usize = 64 << 20;

static STAGED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes that the processor copied from or to page-locked blocks, so that a device could copy them: none for bytes that lie in page-locked
/// memory. What the driver stages itself, where there is none, is not counted.
#[must_use]
pub fn staged_bytes() -> u64 {
    STAGED_BYTES.load(Relaxed)
}

/// Where a plan writes.
pub enum Target<'a> {
    /// Memory of this process that nobody else sees yet.
    Host(&'a mut [u8]),
    /// A region, of whatever place.
    Region(RegionRef),
}

impl Target<'_> {
    fn lies(&self) -> Lies {
        Lies::alone(match self {
            Self::Host(bytes) if device::is_pinned(bytes) => Memory::Pinned,
            Self::Host(_) => Memory::Pageable,
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

/// Puts sources in a row in a target, which has room for exactly them.
///
/// # Errors
/// INTERNAL with what the driver said; nothing is known of the target's contents then.
pub fn gather(sources: &[Data], target: Target<'_>) -> Result<()> {
    if sources.iter().map(Data::len).sum::<usize>() > target.len() {
        return Err(misplaced());
    }
    let lies: SmallVec<[(Lies, usize); 8]> = sources.iter().map(|data| (lies(data), data.len())).collect();
    let memory = target.lies().memory;
    let make = |staging| Plan::gather(&lies, memory, staging);
    carried(make, sources, &mut [target])
}

/// The sources in a row in memory of a device: where they lie, if they are in a row there already, else in memory that the server has. `shared`
/// says whether bytes that others may write at any moment may stay. `None` of no sources.
///
/// # Errors
/// RESOURCE_EXHAUSTED or UNAVAILABLE without memory of the device; otherwise as `gather`.
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

/// A copy of a source in memory of a device that the server has.
///
/// # Errors
/// As `on_device`.
pub fn copied_on(source: &Data, device: u32) -> Result<RegionRef> {
    let made = device::allocate(device, source.len())?;
    gather(std::slice::from_ref(source), Target::Region(made.clone()))?;
    Ok(made)
}

fn region_of(data: &Data) -> Option<&RegionRef> {
    if let Data::Region(region) = data { Some(region) } else { None }
}

/// Copies all of a source to the beginning of a region. The two may share bytes.
///
/// # Errors
/// As `gather`.
pub fn whole(source: &Data, region: &RegionRef) -> Result<()> {
    let len = source.len();
    if let Data::Region(from) = source
        && from.overlaps(&**region)
    {
        // Perhaps nothing is to be done; if they overlap otherwise a device would copy in any order.
        let is_same = from.extent() == region.extent();
        return if is_same { Ok(()) } else { region.copy_from_region(0, &**from, 0, len) };
    }
    let make = |staging| Plan::whole(lies(source), memory_of_region(region), len, staging);
    carried(make, std::slice::from_ref(source), &mut [Target::Region(region.clone())])
}

/// The plan with staging blocks of the pinned pool; without any where that has no room for them.
fn carried(make: impl Fn(usize) -> Plan, sources: &[Data], targets: &mut [Target<'_>]) -> Result<()> {
    let plan = make(STAGING_BYTES_MAX);
    match plan.staging().iter().map(|&len| device::pinned(len)).collect::<Result<SmallVec<[Pinned; 2]>, _>>() {
        Ok(blocks) => carry(&plan, sources, targets, blocks),
        Err(_) => carry(&make(0), sources, targets, SmallVec::new()),
    }
}

/// What kind of memory bytes lie in.
pub fn lies(data: &Data) -> Lies {
    match data {
        Data::Bytes(bytes) if device::is_pinned(bytes) => Lies::alone(Memory::Pinned),
        Data::Bytes(_) => Lies::alone(Memory::Pageable),
        Data::Region(region) => {
            let memory = memory_of_region(region);
            // Pages of the host's regions come and go one by one.
            let extent = matches!(memory, Memory::Device(_)).then(|| region.extent());
            Lies { memory, extent }
        }
    }
}

fn memory_of_region(region: &RegionRef) -> Memory {
    match region.base() {
        Base::Device(memory) => Memory::Device(memory.device()),
        Base::Host(_) if region.is_page_locked() => Memory::Pinned,
        Base::Host(_) => Memory::Pageable,
    }
}

thread_local! {
    /// By device. Of each thread its own: to wait for a stream is to wait for everything in it.
    static STREAMS: RefCell<Vec<Option<Stream>>> = const { RefCell::new(Vec::new()) };
}

/// This thread's stream of a device.
fn stream(device: u32) -> Result<Stream> {
    // A thread that ends has none any more.
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

/// A staging block on its way.
enum Block {
    /// Being filled by the host.
    Open(Pinned),
    /// Filled; the device reads it.
    Full(Data),
    /// The device writes it.
    Pending(Pending<Pinned>),
    /// Written by the device.
    Done(Pinned),
    Gone,
}

impl Block {
    fn open(&mut self) -> Result<&mut Pinned> {
        if let Self::Open(block) = self { Ok(block) } else { Err(misplaced()) }
    }

    /// The block for a device to read.
    fn full(&mut self) -> Result<&Data> {
        if matches!(self, Self::Open(_))
            && let Self::Open(block) = std::mem::replace(self, Self::Gone)
        {
            *self = Self::Full(Data::Bytes(block.freeze()));
        }
        if let Self::Full(data) = self { Ok(data) } else { Err(misplaced()) }
    }

    /// The block behind the device's writing.
    fn done(&mut self) -> Result<&Pinned> {
        if matches!(self, Self::Pending(_))
            && let Self::Pending(pending) = std::mem::replace(self, Self::Gone)
        {
            *self = Self::Done(pending.wait()?);
        }
        if let Self::Done(block) = self { Ok(block) } else { Err(misplaced()) }
    }
}

fn carry(plan: &Plan, sources: &[Data], targets: &mut [Target<'_>], blocks: SmallVec<[Pinned; 2]>) -> Result<()> {
    let mut blocks: SmallVec<[Block; 2]> = blocks.into_iter().map(Block::Open).collect();
    for step in plan.steps() {
        match *step {
            Step::Synchronize(device) => stream(device)?.synchronize()?,
            Step::Copy { how: How::Memcpy, from, to, len } => {
                if matches!(from.end, End::Staging(_)) || matches!(to.end, End::Staging(_)) {
                    STAGED_BYTES.fetch_add(len as u64, Relaxed);
                }
                memcpy((from, to, len), sources, targets, &mut blocks)?;
            }
            Step::Copy { how, from, to, len } => transfer(how, (from, to, len), sources, targets, &mut blocks)?,
        }
    }
    Ok(())
}

/// A copy of the processor.
fn memcpy(
    (from, to, len): (At, At, usize),
    sources: &[Data],
    targets: &mut [Target<'_>],
    blocks: &mut [Block],
) -> Result<()> {
    match (from.end, to.end) {
        (End::Source(n), End::Staging(k)) => {
            let block = blocks.get_mut(k).ok_or_else(misplaced)?.open()?;
            sources.get(n).ok_or_else(misplaced)?.copy_to(from.offset, range(block, to.offset, len)?)
        }
        (End::Source(n), End::Target(m)) => {
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
        (End::Staging(k), End::Target(m)) => {
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

/// A copy of a device, started.
fn transfer(
    how: How,
    (from, to, len): (At, At, usize),
    sources: &[Data],
    targets: &mut [Target<'_>],
    blocks: &mut [Block],
) -> Result<()> {
    let stream = stream(how.device().ok_or_else(misplaced)?)?;
    if let End::Staging(k) = from.end {
        let (Some(block), End::Target(m)) = (blocks.get_mut(k), to.end) else { return Err(misplaced()) };
        let Some(Target::Region(region)) = targets.get(m) else { return Err(misplaced()) };
        return stream.copy(region, to.offset, block.full()?, from.offset, len);
    }
    let End::Source(n) = from.end else { return Err(misplaced()) };
    let source = spanned(sources, n, from.offset.saturating_add(len))?;
    match (to.end, &source) {
        (End::Staging(k), Data::Region(region)) => {
            let place = blocks.get_mut(k).ok_or_else(misplaced)?;
            let Block::Open(block) = std::mem::replace(place, Block::Gone) else { return Err(misplaced()) };
            *place = Block::Pending(stream.download(region, from.offset, block)?);
            Ok(())
        }
        (End::Target(m), source) => match targets.get_mut(m).ok_or_else(misplaced)? {
            Target::Region(region) => stream.copy(region, to.offset, source, from.offset, len),
            // Lent for as long as this call lasts, so it cannot be written later.
            Target::Host(bytes) => source.copy_to(from.offset, range(bytes, to.offset, len)?),
        },
        _ => Err(misplaced()),
    }
}

/// The source from which so many bytes are wanted; with those behind it, where a plan found that they abut.
fn spanned(sources: &[Data], at: usize, len: usize) -> Result<Data> {
    let first = sources.get(at).ok_or_else(misplaced)?;
    if first.len() >= len {
        return Ok(first.clone());
    }
    let Data::Region(region) = first else { return Err(misplaced()) };
    let mut next = region.extent();
    let mut there = 0;
    let mut regions: SmallVec<[&RegionRef; 8]> = SmallVec::new();
    for region in sources.iter().skip(at).filter_map(region_of) {
        // Others may stand between those that abut.
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
        "a copy was planned between places that there are not; this is a defect of the server, please report it",
    )
}
