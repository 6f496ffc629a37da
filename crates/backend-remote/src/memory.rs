//! Where the tensors of one runner lie: segments that both sides map, frames, and memory of devices that one side lends the other.
//!
//! Anything here may be called from any thread, and nothing blocks. Bytes of segments are copied in and out, never looked at in place.

use crate::arena::Arena;
use crate::frames::write::{self, Put};
use crate::frames::{Block, Contents, Lent, Lie, TensorRef, check_strings, lease_of};
use crate::generated::{FRAME_BYTES_MAX, Place, SEGMENTS_MAX, Segment};
use crate::lease::Leases;
use crate::slots::Key;
use crate::spec::Limits;
use crate::transport::{Segments, Transport, Way};
use crate::window::{DevicePart, Lender, Window};
use ::memory::budget::SMALL_BYTES_MAX;
use ::memory::{Account, Budget, Charge, Kind};
use bytes::Bytes;
use device::{Handle, Imported};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tensor::{Base, Data, DataType, Error, RegionRef, element_count};

/// Why a tensor of a runner cannot be had.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The runner broke a rule.
    Lie(Lie),
    /// There is no memory for a copy.
    Short(Error),
}

impl From<Lie> for Refused {
    fn from(lie: Lie) -> Self {
        Self::Lie(lie)
    }
}

/// What is left of a frame for bytes of tensors, and the blocks that were taken for others.
pub(crate) struct Room<'a> {
    /// `INLINE_BYTES_MAX` at first.
    pub(crate) inline_left: &'a mut usize,
    /// To be forgotten when the frame is not sent.
    pub(crate) blocks: &'a mut SmallVec<[u64; 4]>,
}

/// Memory of one runner.
pub(crate) struct TensorMemory {
    transport: Arc<dyn Transport>,
    requests: Mutex<Requests>,
    request_segments: RwLock<Vec<RegionRef>>,
    response_segments: RwLock<Vec<RegionRef>>,
    responses: Mutex<Responses>,
    /// A byte for each slot. None: the runner has no segments, all tensors go inline.
    flags: Option<RegionRef>,
    limits: Limits,
    /// Memory of devices that the runner was lent.
    pub(crate) leases: Leases,
    /// Inputs that lie on a device are handed over as they lie: the model takes them, and the runner can open them.
    lends: AtomicBool,
    /// A batch was handed over, and its end has not been handled.
    batch_is_out: AtomicBool,
    /// Name of the model, for texts.
    model: String,
    /// Bytes of all segments.
    bytes: AtomicU64,
}

#[derive(Default)]
struct Requests {
    arena: Arena,
    /// Of blocks above a size: what they are charged to the budget.
    charges: HashMap<u64, Charge>,
}

/// Blocks of responses that were copied and not given back yet.
#[derive(Default)]
pub(crate) struct Responses {
    pub(crate) free: Vec<u64>,
    free_bytes: u64,
}

/// How many blocks may wait to be given back with the next batch.
const FREE_MAX: usize = 1024;

impl TensorMemory {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        segments: Option<Segments>,
        model: String,
        limits: Limits,
    ) -> Self {
        let mut arena = Arena::default();
        let (mut requests, mut responses, mut flags) = (Vec::new(), Vec::new(), None);
        if let Some(segments) = segments {
            arena.add(0, segments.requests.len() as u64);
            requests.push(segments.requests);
            responses.push(segments.responses);
            flags = Some(segments.flags);
        }
        let bytes = [&requests, &responses].into_iter().flatten().map(|s| s.len() as u64).sum();
        Self {
            transport,
            requests: Mutex::new(Requests { arena, charges: HashMap::new() }),
            request_segments: RwLock::new(requests),
            response_segments: RwLock::new(responses),
            responses: Mutex::default(),
            flags,
            limits,
            leases: Leases::default(),
            lends: AtomicBool::new(false),
            batch_is_out: AtomicBool::new(false),
            model,
            bytes: AtomicU64::new(bytes),
        }
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes of requests that the runner has not given back.
    pub(crate) fn request_bytes_used(&self) -> u64 {
        self.requests.lock().arena.used()
    }

    /// Whether the runner can open memory of devices.
    pub(crate) fn set_lends(&self, can: bool) {
        self.lends.store(can && self.limits.device_inputs, Relaxed);
    }

    /// A batch is about to be handed over.
    pub(crate) fn batch_begins(&self) {
        self.batch_is_out.store(true, Relaxed);
    }

    /// The end of a batch was handled, and what it named.
    pub(crate) fn batch_ended(&self) {
        if self.limits.device_inputs {
            self.batch_is_out.store(false, Relaxed);
            self.leases.batch_ended();
        }
    }

    /// Sets or clears what a request sees of its cancellation.
    pub(crate) fn flag(&self, (slot, generation): Key, is_cancelled: bool) {
        let byte = ((generation & 127) << 1) as u8 | u8::from(is_cancelled);
        if let Some(flags) = &self.flags {
            // As long as there are slots.
            let _ = flags.fill(slot as usize, 1, byte);
        }
    }

    /// Writes a tensor into a frame: inline while `room` of the frame allows, else its bytes go into a segment of requests, which the runner gives back.
    ///
    /// # Errors
    /// UNAVAILABLE when the segments are full; RESOURCE_EXHAUSTED when the server is short of memory.
    pub(crate) fn put(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        (name, datatype, shape): (&str, DataType, &[i64]),
        data: &Data,
    ) -> Result<(), Error> {
        let bytes = data.len();
        if let Data::Region(region) = data
            && self.lends()
            && self.lend(to, room, (name, datatype, shape), region)
        {
            return Ok(());
        }
        if bytes <= *room.inline_left || !self.has_segments() {
            if to.len().saturating_add(bytes) > FRAME_BYTES_MAX as usize - FRAME_BYTES_LEFT {
                return Err(self.no_room());
            }
            *room.inline_left = room.inline_left.saturating_sub(bytes);
            match data {
                Data::Bytes(bytes) => write::tensor(to, name, datatype, shape, Put::Inline(bytes)),
                Data::Region(_) => write::tensor(to, name, datatype, shape, Put::Inline(&data.to_vec()?)),
            }
            return Ok(());
        }
        let (block, segment) = self.allocate(bytes as u64)?;
        room.blocks.push(block.id());
        let at = block.offset as usize;
        match data {
            Data::Bytes(bytes) => segment.copy_from(at, bytes)?,
            Data::Region(region) => segment.copy_from_region(at, &**region, 0, bytes)?,
        }
        write::tensor(to, name, datatype, shape, Put::Block(block));
        Ok(())
    }

    /// Whether memory of devices is lent to the runner.
    pub(crate) fn lends(&self) -> bool {
        self.lends.load(Relaxed)
    }

    /// Writes a tensor that lies on a device into a frame as a lease of its memory. False: it is to be copied.
    fn lend(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        (name, datatype, shape): (&str, DataType, &[i64]),
        region: &RegionRef,
    ) -> bool {
        let Base::Device(memory) = region.base() else { return false };
        if datatype == DataType::Bytes || region.is_empty() {
            return false;
        }
        let Some(exported) = memory.exported() else { return false };
        let device = memory.device();
        let Some(lease) = self.leases.lend(region, device, &exported) else { return false };
        let bytes = region.len() as u64;
        let lent = Lent { by_host: true, lease, device, offset: exported.offset, bytes, handle: &exported.handle };
        room.blocks.push(lent.id());
        write::tensor(to, name, datatype, shape, Put::Device(lent));
        true
    }

    /// Room for a tensor of a request.
    fn allocate(&self, bytes: u64) -> Result<(Block, RegionRef), Error> {
        static ACCOUNT: LazyLock<Account> = LazyLock::new(|| Budget::global().common());
        let charge = if bytes > SMALL_BYTES_MAX as u64 {
            let charged = ACCOUNT.charge(Kind::Batch, false, usize::try_from(bytes).unwrap_or(usize::MAX));
            Some(charged.inspect_err(|_| ACCOUNT.count_refusal())?)
        } else {
            None
        };
        let mut requests = self.requests.lock();
        let (segment, offset) = match requests.arena.take(bytes) {
            Some(found) => found,
            None => {
                let (segment, length) = self.grow(Place::Request, bytes).ok_or_else(|| self.no_room())?;
                requests.arena.add(segment, length);
                requests.arena.take(bytes).ok_or_else(|| self.no_room())?
            }
        };
        let block = Block { of_requests: true, segment, offset, bytes };
        if let Some(charge) = charge {
            requests.charges.insert(block.id(), charge);
        }
        drop(requests);
        let segment = self.segment(true, segment).ok_or_else(|| self.no_room())?;
        Ok((block, segment))
    }

    fn no_room(&self) -> Error {
        Error::unavailable(format!("Failed to allocate memory for the request of model '{}'", self.model))
    }

    fn has_segments(&self) -> bool {
        self.flags.is_some()
    }

    fn segments(&self, of_requests: bool) -> &RwLock<Vec<RegionRef>> {
        if of_requests { &self.request_segments } else { &self.response_segments }
    }

    fn segment(&self, of_requests: bool, number: u16) -> Option<RegionRef> {
        self.segments(of_requests).read().get(usize::from(number)).cloned()
    }

    /// A further segment, of which the runner is told. `None`: the limit is reached, or the system has none.
    fn grow(&self, place: Place, bytes: u64) -> Option<(u16, u64)> {
        if !self.has_segments() {
            return None;
        }
        let mut segments = self.segments(place == Place::Request).write();
        let have: u64 = segments.iter().map(|s| s.len() as u64).sum();
        let room = self.limits.arena_bytes_max.saturating_sub(have);
        // As much again as there is: so a few segments are enough for any size.
        let length = bytes.checked_next_multiple_of(PAGE_BYTES)?.max(self.limits.growth_bytes).max(have).min(room);
        if length < bytes || segments.len() as u64 >= SEGMENTS_MAX {
            return None;
        }
        let number = u16::try_from(segments.len()).ok()?;
        let added = Segment { bytes: length, segment: number, place: place as u8, refused: 0 };
        segments.push(self.transport.add_segment(added)?);
        self.bytes.fetch_add(length, Relaxed);
        Some((number, length))
    }

    /// The runner needs room for responses.
    pub(crate) fn need_responses(&self, bytes: u64) {
        if self.grow(Place::Response, bytes).is_none() {
            let mut frame = Vec::new();
            write::segment(&mut frame, Segment { bytes: 0, segment: 0, place: Place::Response as u8, refused: 1 });
            self.transport.send(Way::Side, &frame);
        }
    }

    /// The runner gives blocks of requests back.
    pub(crate) fn released(&self, ids: impl Iterator<Item = u64>) -> Result<(), Lie> {
        let mut requests = self.requests.lock();
        let mut ended = Vec::new();
        let mut leases: SmallVec<[RegionRef; 4]> = SmallVec::new();
        for id in ids {
            if let Some(lease) = lease_of(id) {
                let ended = self.leases.give_back(lease, self.batch_is_out.load(Relaxed));
                leases.extend(ended.ok_or(Lie("a lease is given back that it does not have"))?);
                continue;
            }
            requests.arena.give(id).ok_or(Lie("a block is given back that it does not have"))?;
            ended.extend(requests.charges.remove(&id));
        }
        // A charge that ends may wake others.
        drop(requests);
        drop(ended);
        // The last of a region closes it.
        drop(leases);
        Ok(())
    }

    /// Blocks of requests that no frame will bring: the frame they were made for was not sent.
    pub(crate) fn forget(&self, blocks: impl Iterator<Item = u64>) {
        let _ = self.released(blocks);
    }

    /// The runner is gone: regions that it borrowed and what its requests were charged for are free, though the segments live until the next
    /// runner takes its place.
    pub(crate) fn closed(&self) {
        self.leases.clear();
        let charges = std::mem::take(&mut self.requests.lock().charges);
        // A charge that ends may wake others.
        drop(charges);
    }

    /// The part of a segment that a tensor of the runner lies in.
    fn window(&self, block: Block) -> Result<(RegionRef, usize, usize), Lie> {
        let memory =
            self.segment(block.of_requests, block.segment).ok_or(Lie("a tensor lies in no segment there is"))?;
        let end = block.offset.checked_add(block.bytes);
        if end.is_none_or(|end| end > memory.len() as u64) {
            return Err(Lie("a tensor lies outside of its segment"));
        }
        Ok((memory, block.offset as usize, block.bytes as usize))
    }

    /// The memory of a device that a tensor of the runner lies in. Opens what the runner exported: not for a reactor.
    pub(crate) fn part(&self, lent: Lent<'_>) -> Result<RegionRef, Refused> {
        let lender = if lent.by_host {
            Lender::Host(self.leases.find(lent.lease).ok_or(Lie("a tensor lies in memory that it was not lent"))?)
        } else {
            let opened = Imported::open(lent.device, Handle(*lent.handle)).map_err(|refused| {
                Refused::Short(match refused {
                    device::Refused::Lost(why) => why,
                    device::Refused::NoDevice(why) => Error::internal(format!("an output lies on a GPU: {why}")),
                    device::Refused::Failed(why) => {
                        Error::internal(format!("an output on a GPU cannot be read: {}", why.message()))
                    }
                })
            })?;
            Lender::Runner(opened)
        };
        let part = DevicePart::new(lender, lent.offset, lent.bytes);
        Ok(Arc::new(part.ok_or(Lie("a tensor lies outside of the memory of a device that it names"))?))
    }

    /// A block of the runner's, to be copied from.
    pub(crate) fn block(&self, block: Block) -> Result<RegionRef, Lie> {
        Ok(Arc::new(Window::new(self.window(block)?)))
    }

    /// Whether a tensor that is not wanted lies where it may.
    pub(crate) fn check(&self, contents: Contents<'_>) -> Result<(), Lie> {
        match contents {
            Contents::Inline(_) => Ok(()),
            Contents::Block(block) => self.window(block).map(drop),
            // What the runner lends is not opened to be looked at.
            Contents::Device(lent) if !lent.by_host => Ok(()),
            Contents::Device(lent) => match self.part(lent) {
                Err(Refused::Lie(lie)) => Err(lie),
                _ => Ok(()),
            },
        }
    }

    /// A tensor's bytes, copied out and checked. Its block is given back, also if there is no memory for the copy: its request fails then.
    pub(crate) fn take(&self, tensor: &TensorRef<'_>) -> Result<Data, Refused> {
        let taken = self.copied(tensor);
        if !matches!(taken, Err(Refused::Lie(_))) {
            self.done_with(tensor);
        }
        taken
    }

    fn copied(&self, tensor: &TensorRef<'_>) -> Result<Data, Refused> {
        let block = match tensor.contents {
            Contents::Inline(bytes) => return Ok(Data::Bytes(Bytes::copy_from_slice(bytes))),
            Contents::Block(block) => block,
            Contents::Device(lent) => {
                let part = self.part(lent)?;
                let (mut slab, charge) = backend::gather::batch_slab(part.len()).map_err(Refused::Short)?;
                part.copy_to(0, &mut slab).map_err(Refused::Short)?;
                return Ok(Data::Bytes(backend::gather::frozen(slab, charge)));
            }
        };
        let (memory, at, bytes) = self.window(block)?;
        let (mut slab, charge) = backend::gather::batch_slab(bytes).map_err(Refused::Short)?;
        memory.copy_to(at, &mut slab).map_err(Refused::Short)?;
        if tensor.datatype == DataType::Bytes {
            check_strings(&slab, element_count(&tensor.shape).unwrap_or(0))?;
        }
        Ok(Data::Bytes(backend::gather::frozen(slab, charge)))
    }

    /// A tensor of the runner was copied, or is not wanted: its block is free.
    pub(crate) fn done_with(&self, tensor: &TensorRef<'_>) {
        let (id, bytes) = match tensor.contents {
            Contents::Block(block) if !block.of_requests => (block.id(), block.bytes),
            // Memory of a device is scarce: it does not wait for the next batch.
            Contents::Device(lent) if !lent.by_host => (lent.id(), u64::MAX),
            _ => return,
        };
        let mut responses = self.responses.lock();
        responses.free.push(id);
        responses.free_bytes = responses.free_bytes.saturating_add(bytes);
    }

    /// Bytes of the first segment of responses.
    fn first_bytes(&self) -> u64 {
        self.response_segments.read().first().map_or(0, |first| first.len() as u64)
    }

    /// Gives blocks back at once when many wait. Not needed for those of a batch that has ended: they go with the next one, to the thread that will want them, and another
    /// thread of the runner does not wake up for them.
    pub(crate) fn give_back_many(&self) {
        let mut responses = self.responses.lock();
        if responses.free_bytes > self.first_bytes() / 4 || responses.free.len() > FREE_MAX {
            let mut frames = Vec::new();
            responses.free_bytes = 0;
            while !responses.free.is_empty() {
                write::release(&mut frames, &mut responses.free);
            }
            drop(responses);
            self.transport.send(Way::Side, &frames);
        }
    }

    /// Blocks of responses that go back with the next batch.
    pub(crate) fn free_blocks(&self) -> Responses {
        std::mem::take(&mut *self.responses.lock())
    }

    /// The batch that was to bring them was not sent: they go with another.
    pub(crate) fn keep_blocks(&self, Responses { free, free_bytes }: Responses) {
        let mut responses = self.responses.lock();
        responses.free.extend(free);
        responses.free_bytes = responses.free_bytes.saturating_add(free_bytes);
    }
}

const PAGE_BYTES: u64 = 4096;
/// Of a frame, for what stands in it besides bytes of tensors.
const FRAME_BYTES_LEFT: usize = 16 << 20;
