//! Memory for the tensors of one runner: segments that both sides map, frames, and leased device memory.
//!
//! All functions may be called from any thread, and none blocks. Bytes of segments are copied in and out, never read in
//! place, because the runner can change them at any time.

use crate::frames::arena::Arena;
use crate::frames::write::{self, Put};
use crate::frames::{Block, Contents, Lent, ProtocolError, TensorRef, check_strings, lease_of};
use crate::generated::{FRAME_BYTES_MAX, Place, SEGMENTS_MAX, Segment};
use crate::lease::Leases;
use crate::lent_inputs::LentInputs;
use crate::slots::Key;
use crate::spec::Limits;
use crate::transport::{Segments, Transport, Way};
use crate::window::{DevicePart, Lender, Window};
use ::memory::budget::SMALL_BYTES_MAX;
use ::memory::{Account, Budget, Charge, Kind, Short};
use bytes::Bytes;
use device::{Handle, Imported};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tensor::{Base, Data, DataType, Error, RegionRef, element_count};

/// Why a tensor of a runner cannot be read.
#[derive(Debug)]
pub(crate) enum SegmentError {
    ProtocolError(ProtocolError),
    /// There is no memory for a copy.
    Short(Error),
}

impl From<ProtocolError> for SegmentError {
    fn from(breach: ProtocolError) -> Self {
        Self::ProtocolError(breach)
    }
}

/// Space left in a frame for bytes of tensors, and the blocks taken for tensors that did not fit.
pub(crate) struct Room<'a> {
    /// Starts at `INLINE_BYTES_MAX`.
    pub(crate) inline_left: &'a mut usize,
    /// Blocks to free if the frame is not sent.
    pub(crate) blocks: &'a mut SmallVec<[u64; 4]>,
}

pub(crate) struct TensorMemory {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) requests: Mutex<Requests>,
    pub(crate) request_segments: RwLock<Vec<RegionRef>>,
    pub(crate) response_segments: RwLock<Vec<RegionRef>>,
    pub(crate) responses: Mutex<Responses>,
    /// The runner has segments; otherwise all tensors go inline.
    has_segments: bool,
    /// One byte per slot, if the model sees cancels.
    flags: Option<RegionRef>,
    pub(crate) limits: Limits,
    /// Bytes of outputs that front ends send from their blocks.
    pub(crate) lent_output_bytes: AtomicU64,
    /// Their ids and lengths. One block may be there several times.
    pub(crate) lent_outputs: Mutex<Vec<(u64, u64)>>,
    /// Device memory that the runner was lent.
    pub(crate) leases: Leases,
    /// Device inputs are leased to the runner, because the model accepts them and the runner can open them.
    lends: AtomicBool,
    /// A batch was sent, and its result has not been handled.
    batch_is_out: AtomicBool,
    model: String,
    bytes: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) arena: Arena,
    pub(crate) lent: LentInputs,
    /// Charges to the budget, by block, for blocks above `SMALL_BYTES_MAX`.
    pub(crate) charges: HashMap<u64, Charge>,
}

/// Blocks of responses that were copied and not returned yet.
#[derive(Default)]
pub(crate) struct Responses {
    pub(crate) free: Vec<u64>,
    free_bytes: u64,
    /// Blocks whose pages are returned to the system before the runner gets them.
    large: Vec<Block>,
    /// Charges for segments that were added, until a response was read that may need them.
    grown: Vec<Charge>,
}

/// Number of blocks that may wait to be returned with the next batch.
const FREE_MAX: usize = 1024;

impl TensorMemory {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        segments: Option<Segments>,
        flags: Option<RegionRef>,
        model: String,
        limits: Limits,
    ) -> Self {
        let mut arena = Arena::default();
        let has_segments = segments.is_some();
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        if let Some(segments) = segments {
            arena.add(0, segments.requests.len() as u64);
            requests.push(segments.requests);
            responses.push(segments.responses);
        }
        let bytes = [&requests, &responses].into_iter().flatten().map(|s| s.len() as u64).sum();
        Self {
            transport,
            requests: Mutex::new(Requests { arena, ..Requests::default() }),
            request_segments: RwLock::new(requests),
            response_segments: RwLock::new(responses),
            responses: Mutex::default(),
            has_segments,
            flags,
            limits,
            lent_output_bytes: AtomicU64::new(0),
            lent_outputs: Mutex::default(),
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

    /// Sets whether the runner can open device memory.
    pub(crate) fn set_lends(&self, can: bool) {
        self.lends.store(can && self.limits.device_inputs, Relaxed);
    }

    /// Notes that a batch is about to be sent.
    pub(crate) fn batch_begins(&self) {
        self.batch_is_out.store(true, Relaxed);
    }

    /// Notes that the result of a batch and all memory that it names were handled.
    pub(crate) fn batch_ended(&self) {
        if self.limits.device_inputs {
            self.batch_is_out.store(false, Relaxed);
            self.leases.batch_ended();
        }
    }

    /// Sets or clears the cancellation flag of a request.
    pub(crate) fn flag(&self, (slot, generation): Key, is_cancelled: bool) {
        let byte = ((generation & 127) << 1) as u8 | u8::from(is_cancelled);
        if let Some(flags) = &self.flags {
            // There is one byte per slot, so this cannot fail.
            let _ = flags.fill(slot as usize, 1, byte);
        }
    }

    /// Writes a tensor into a frame: inline while `room` allows, else into a request block, which the runner returns. A
    /// block that the tensor lies in is sent itself, unless the input `is_kept` for another run: the model may write to
    /// it. Returns the bytes that were copied: none of memory that the runner can read where it is.
    ///
    /// # Errors
    /// UNAVAILABLE when the segments are full; RESOURCE_EXHAUSTED when the server is short of memory.
    pub(crate) fn put(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        (name, datatype, shape): (&str, DataType, &[i64]),
        data: &Data,
        is_kept: bool,
    ) -> Result<usize, Error> {
        let bytes = data.len();
        if let Data::Region(region) = data
            && self.lends()
            && self.lend(to, room, (name, datatype, shape), region)
        {
            return Ok(0);
        }
        if bytes <= *room.inline_left || !self.has_segments {
            if to.len().saturating_add(bytes) > FRAME_BYTES_MAX as usize - FRAME_BYTES_LEFT {
                return Err(self.no_room());
            }
            *room.inline_left = room.inline_left.saturating_sub(bytes);
            match data {
                Data::Bytes(bytes) => write::tensor(to, name, datatype, shape, Put::Inline(bytes)),
                Data::Region(_) => write::tensor(to, name, datatype, shape, Put::Inline(&data.to_vec()?)),
            }
            return Ok(bytes);
        }
        if !is_kept
            && let Data::Region(region) = data
            && let Some(block) = self.send_lent(region)
        {
            room.blocks.push(block.id());
            let charge = charge_of(block.bytes)?;
            self.requests.lock().charges.extend(charge.map(|charge| (block.id(), charge)));
            write::tensor(to, name, datatype, shape, Put::Block(block));
            return Ok(0);
        }
        let (block, segment) = self.allocate(bytes as u64)?;
        room.blocks.push(block.id());
        let at = block.offset as usize;
        match data {
            Data::Bytes(bytes) => segment.copy_from(at, bytes)?,
            Data::Region(region) => segment.copy_from_region(at, &**region, 0, bytes)?,
        }
        write::tensor(to, name, datatype, shape, Put::Block(block));
        Ok(bytes)
    }

    pub(crate) fn has_segments(&self) -> bool {
        self.has_segments
    }

    pub(crate) fn lends(&self) -> bool {
        self.lends.load(Relaxed)
    }

    /// Writes a device tensor into a frame as a lease of its memory. False if it must be copied instead.
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

    /// Allocates a block for a tensor of a request.
    fn allocate(&self, bytes: u64) -> Result<(Block, RegionRef), Error> {
        let charge = charge_of(bytes)?;
        let mut requests = self.requests.lock();
        let (segment, offset) =
            self.take_block(&mut requests, bytes, self.limits.arena_bytes_max).ok_or_else(|| self.no_room())?;
        let block = Block { of_requests: true, segment, offset, bytes };
        requests.charges.extend(charge.map(|charge| (block.id(), charge)));
        drop(requests);
        let segment = self.segment(true, segment).ok_or_else(|| self.no_room())?;
        Ok((block, segment))
    }

    /// Takes a block from the arena, which grows if need be, up to `bytes_max` bytes.
    pub(crate) fn take_block(&self, requests: &mut Requests, bytes: u64, bytes_max: u64) -> Option<(u16, u64)> {
        requests.arena.take(bytes).or_else(|| {
            let (segment, length) = self.grow(Place::Request, bytes, bytes_max)?;
            requests.arena.add(segment, length);
            requests.arena.take(bytes)
        })
    }

    fn no_room(&self) -> Error {
        Error::environment(format!("Failed to allocate memory for the request of model '{}'", self.model))
    }

    fn segments(&self, of_requests: bool) -> &RwLock<Vec<RegionRef>> {
        if of_requests { &self.request_segments } else { &self.response_segments }
    }

    fn segment(&self, of_requests: bool, number: u16) -> Option<RegionRef> {
        self.segments(of_requests).read().get(usize::from(number)).cloned()
    }

    /// Adds a segment and announces it to the runner. `None` if the limit is reached or the system has no memory.
    fn grow(&self, place: Place, bytes: u64, bytes_max: u64) -> Option<(u16, u64)> {
        if !self.has_segments {
            return None;
        }
        let mut segments = self.segments(place == Place::Request).write();
        let have: u64 = segments.iter().map(|s| s.len() as u64).sum();
        let room = bytes_max.saturating_sub(have);
        // At least doubles the memory, so a few segments are enough for any size.
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

    /// Adds a segment for responses, or tells the runner that there is none. False if the server is short of memory now
    /// and `may_wait`.
    pub(crate) fn need_responses(&self, bytes: u64, may_wait: bool) -> bool {
        let charge = charge(bytes);
        match &charge {
            Err(Short::Now { .. }) if may_wait => return false,
            Err(_) => account().count_refusal(),
            Ok(_) => {}
        }
        let is_grown = charge.is_ok() && self.grow(Place::Response, bytes, self.limits.arena_bytes_max).is_some();
        self.responses.lock().grown.extend(charge.ok().flatten());
        if !is_grown {
            let mut frame = Vec::new();
            write::segment(&mut frame, Segment { bytes: 0, segment: 0, place: Place::Response as u8, refused: 1 });
            self.transport.send(Way::Side, &frame);
        }
        true
    }

    /// Frees request blocks and leases that the runner returned.
    pub(crate) fn released(self: &Arc<Self>, ids: impl Iterator<Item = u64>) -> Result<(), ProtocolError> {
        let mut requests = self.requests.lock();
        let mut ended: SmallVec<[_; 4]> = SmallVec::new();
        let mut leases: SmallVec<[RegionRef; 4]> = SmallVec::new();
        for id in ids {
            if let Some(lease) = lease_of(id) {
                let ended = self.leases.give_back(lease, self.batch_is_out.load(Relaxed));
                leases.extend(ended.ok_or(ProtocolError("it returns a lease that it does not have"))?);
                continue;
            }
            const NOT_HAD: ProtocolError = ProtocolError("it returns a block that it does not have");
            let freed = match requests.lent.give_back(id) {
                // Its front end still has it.
                Some(true) => None,
                Some(false) => return Err(NOT_HAD),
                None => self.free(&mut requests.arena, id).ok_or(NOT_HAD)?,
            };
            let charge = requests.charges.remove(&id);
            if freed.is_some() || charge.is_some() {
                ended.push((freed, charge));
            }
        }
        // A charge that ends may wake other threads.
        drop(requests);
        ended.into_iter().for_each(|(freed, charge)| self.discard_freed(freed, charge));
        // The last reference to a region closes it.
        drop(leases);
        Ok(())
    }

    /// Frees blocks of a frame that was not sent.
    pub(crate) fn forget(self: &Arc<Self>, blocks: impl Iterator<Item = u64>) {
        let _ = self.released(blocks);
    }

    /// Frees leases and charges because the process has ended; the segments live until the next process replaces it.
    pub(crate) fn closed(&self) {
        self.leases.clear();
        let charges = std::mem::take(&mut self.requests.lock().charges);
        // A charge that ends may wake other threads.
        drop(charges);
    }

    /// The segment that is this object, and its first byte there.
    pub(crate) fn segment_of(&self, place: Place, object: (u64, u64)) -> Option<(u16, u64)> {
        let segments = self.segments(place == Place::Request).read();
        let (number, extent) =
            segments.iter().map(|segment| segment.extent()).enumerate().find(|(_, extent)| extent.object == object)?;
        Some((u16::try_from(number).ok()?, extent.start))
    }

    /// The range of a segment that contains a tensor of the runner.
    pub(crate) fn window(&self, block: Block) -> Result<(RegionRef, usize, usize), ProtocolError> {
        let memory = self
            .segment(block.of_requests, block.segment)
            .ok_or(ProtocolError("a tensor is in a segment that does not exist"))?;
        let end = block.offset.checked_add(block.bytes);
        if end.is_none_or(|end| end > memory.len() as u64) {
            return Err(ProtocolError("a tensor is outside of its segment"));
        }
        Ok((memory, block.offset as usize, block.bytes as usize))
    }

    /// The device memory that contains a tensor of the runner. Opens an exported handle: too slow for a reactor.
    pub(crate) fn part(&self, lent: Lent<'_>) -> Result<RegionRef, SegmentError> {
        let lender = if lent.by_host {
            Lender::Host(
                self.leases.find(lent.lease).ok_or(ProtocolError("a tensor is in memory that was not lent to it"))?,
            )
        } else {
            let opened = Imported::open(lent.device, Handle(*lent.handle)).map_err(|refused| {
                SegmentError::Short(match refused {
                    device::OpenError::Lost(why) => why,
                    device::OpenError::NoDevice(why) => Error::environment(format!("an output is on a GPU: {why}")),
                    device::OpenError::Failed(why) => {
                        Error::internal(format!("an output on a GPU cannot be read: {}", why.message()))
                    }
                })
            })?;
            Lender::Runner(opened)
        };
        let part = DevicePart::new(lender, lent.offset, lent.bytes);
        Ok(Arc::new(part.ok_or(ProtocolError("a tensor is outside of the memory of the device that it names"))?))
    }

    /// A block of the runner, as the source of a copy.
    pub(crate) fn block(&self, block: Block) -> Result<RegionRef, ProtocolError> {
        Ok(Arc::new(Window::new(self.window(block)?)))
    }

    /// Checks the location of a tensor that is not read.
    pub(crate) fn check(&self, contents: Contents<'_>) -> Result<(), ProtocolError> {
        match contents {
            Contents::Inline(_) => Ok(()),
            Contents::Block(block) => self.window(block).map(drop),
            // Memory that the runner lends is not opened only to check it.
            Contents::Device(lent) if !lent.by_host => Ok(()),
            Contents::Device(lent) => match self.part(lent) {
                Err(SegmentError::ProtocolError(breach)) => Err(breach),
                _ => Ok(()),
            },
        }
    }

    /// Copies a tensor's bytes out and checks them. Its block is returned even if there is no memory for the copy; its
    /// request fails then.
    pub(crate) fn take(&self, tensor: &TensorRef<'_>) -> Result<Data, SegmentError> {
        let taken = self.copied(tensor);
        if !matches!(taken, Err(SegmentError::ProtocolError(_))) {
            self.done_with(tensor);
        }
        taken
    }

    fn copied(&self, tensor: &TensorRef<'_>) -> Result<Data, SegmentError> {
        let block = match tensor.contents {
            Contents::Inline(bytes) => return Ok(Data::Bytes(Bytes::copy_from_slice(bytes))),
            Contents::Block(block) => block,
            Contents::Device(lent) => {
                let part = self.part(lent)?;
                let (mut slab, charge) = backend::gather::batch_slab(part.len()).map_err(SegmentError::Short)?;
                part.copy_to(0, &mut slab).map_err(SegmentError::Short)?;
                return Ok(Data::Bytes(backend::gather::frozen(slab, charge)));
            }
        };
        let (memory, at, bytes) = self.window(block)?;
        let (mut slab, charge) = backend::gather::batch_slab(bytes).map_err(SegmentError::Short)?;
        memory.copy_to(at, &mut slab).map_err(SegmentError::Short)?;
        if tensor.datatype == DataType::Bytes {
            check_strings(&slab, element_count(&tensor.shape).unwrap_or(0))?;
        }
        Ok(Data::Bytes(backend::gather::frozen(slab, charge)))
    }

    /// Frees the block of a tensor that was copied or is not needed.
    pub(crate) fn done_with(&self, tensor: &TensorRef<'_>) {
        match tensor.contents {
            Contents::Block(block) if !block.of_requests => self.block_read(block),
            // Device memory is scarce: it is returned at once, not with the next batch.
            Contents::Device(lent) if !lent.by_host => self.free_later(lent.id(), u64::MAX),
            _ => {}
        }
    }

    /// Frees a block of a response.
    pub(crate) fn block_read(&self, block: Block) {
        if Self::is_discarded(block.bytes) {
            self.responses.lock().large.push(block);
        } else {
            self.free_later(block.id(), block.bytes);
        }
    }

    fn free_later(&self, id: u64, bytes: u64) {
        let mut responses = self.responses.lock();
        responses.free.push(id);
        responses.free_bytes = responses.free_bytes.saturating_add(bytes);
    }

    /// Bytes of the first response segment.
    fn first_bytes(&self) -> u64 {
        self.response_segments.read().first().map_or(0, |first| first.len() as u64)
    }

    /// Returns blocks at once if many wait. A few blocks go back with the next batch instead, to the thread that needs
    /// them, so that no other thread of the runner wakes up for them.
    pub(crate) fn give_back_many(self: &Arc<Self>) {
        let mut responses = self.responses.lock();
        responses.grown.clear();
        self.discard_later(std::mem::take(&mut responses.large));
        if responses.free_bytes > self.first_bytes() / 4 || responses.free.len() > FREE_MAX {
            responses.free_bytes = 0;
            let free = std::mem::take(&mut responses.free);
            drop(responses);
            self.give_back(free);
        }
    }

    /// Returns blocks of responses to the runner.
    pub(crate) fn give_back(&self, mut free: Vec<u64>) {
        let mut frames = Vec::new();
        while !free.is_empty() {
            write::release(&mut frames, &mut free);
        }
        self.transport.send(Way::Side, &frames);
    }

    /// Takes the response blocks that go back with the next batch.
    pub(crate) fn free_blocks(&self) -> Responses {
        let mut responses = self.responses.lock();
        let Responses { free, free_bytes, .. } = &mut *responses;
        Responses { free: std::mem::take(free), free_bytes: std::mem::take(free_bytes), ..Responses::default() }
    }

    /// Puts blocks back whose batch was not sent: they go with another one.
    pub(crate) fn keep_blocks(&self, Responses { free, free_bytes, .. }: Responses) {
        let mut responses = self.responses.lock();
        responses.free.extend(free);
        responses.free_bytes = responses.free_bytes.saturating_add(free_bytes);
    }
}

/// The account of tensors in segments.
fn account() -> &'static Account {
    Budget::global().common()
}

/// Charges a block of a request to the budget, until the runner gives it back. `None` if it is small.
fn charge_of(bytes: u64) -> Result<Option<Charge>, Error> {
    Ok(charge(bytes).inspect_err(|_| account().count_refusal())?)
}

fn charge(bytes: u64) -> Result<Option<Charge>, Short> {
    if bytes <= SMALL_BYTES_MAX as u64 {
        return Ok(None);
    }
    account().charge(Kind::Batch, false, usize::try_from(bytes).unwrap_or(usize::MAX)).map(Some)
}

const PAGE_BYTES: u64 = 4096;
/// Bytes of a frame that are reserved for everything except the bytes of tensors.
const FRAME_BYTES_LEFT: usize = 16 << 20;
