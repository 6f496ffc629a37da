//! The two sockets and the shared memory of one runner: how frames go to it, and tensors both ways.
//!
//! Anything here may be called from any thread, and nothing blocks: what a socket does not take at once waits in its buffer, and the hub's thread writes it when it can.
//! Bytes of segments are copied in and out, never looked at in place.

use crate::arena::Arena;
use crate::frames::write::{self, Put};
use crate::frames::{Block, Contents, Lent, Lie, TensorRef, check_strings, lease_of};
use crate::generated::{FRAME_BYTES_MAX, Header, Place, SEGMENTS_MAX, Segment};
use crate::hub::Hub;
use crate::lease::Leases;
use crate::spec::Limits;
use crate::sys::{self, Interest};
use crate::window::{DevicePart, Lender};
use bytes::Bytes;
use device::{Handle, Imported};
use memory::budget::SMALL_BYTES_MAX;
use memory::{Account, Budget, Charge, Kind, Memfd};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tensor::{Base, Data, DataType, Error, RegionMemory, RegionRef, element_count};

/// Which socket a frame came on, and so where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// One batch at a time.
    Work,
    /// Everything else.
    Side,
}

/// Bytes that may wait for a runner that does not read, besides the frame that is being sent.
const WAITING_BYTES_MAX: usize = 64 << 20;

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

/// One runner's sockets and segments.
pub(crate) struct Link {
    /// Which runner, for the hub.
    id: u64,
    hub: &'static Hub,
    pub(crate) work: Socket,
    pub(crate) side: Socket,
    requests: Mutex<Requests>,
    request_segments: RwLock<Vec<Arc<Memfd>>>,
    response_segments: RwLock<Vec<Arc<Memfd>>>,
    responses: Mutex<Responses>,
    limits: Limits,
    /// Memory of devices that the runner was lent.
    pub(crate) leases: Leases,
    /// Inputs that lie on a device are handed over as they lie: the model takes them, and the runner can open them.
    lends: AtomicBool,
    /// A batch was handed over, and its end has not been handled.
    pub(crate) batch_is_out: AtomicBool,
    /// Name of the model, for texts.
    model: String,
    /// Bytes of all segments.
    bytes: AtomicU64,
    /// It does not read what it is sent, or is gone.
    is_broken: AtomicBool,
}

/// A socket and what it has not taken yet.
pub(crate) struct Socket {
    pub(crate) stream: UnixStream,
    waiting: Mutex<Waiting>,
    /// Who reads it: raised with each change, odd while a [`backend::poll::Poller`] does. Changed under the lock of `waiting`.
    reader: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    parts: VecDeque<(Vec<u8>, Option<Arc<Memfd>>)>,
    /// Bytes of the first part that were sent.
    sent: usize,
    bytes: usize,
}

#[derive(Default)]
struct Requests {
    arena: Arena,
    /// Of blocks above a size: what they are charged to the budget.
    charges: HashMap<u64, Charge>,
}

impl Socket {
    fn is_watched(&self) -> bool {
        self.reader.load(Relaxed) % 2 == 1
    }
}

/// Blocks of responses that were copied and not given back yet.
#[derive(Default)]
pub(crate) struct Responses {
    pub(crate) free: Vec<u64>,
    free_bytes: u64,
}

/// How many blocks may wait to be given back with the next batch.
const FREE_MAX: usize = 1024;

impl Link {
    pub(crate) fn new(id: u64, work: UnixStream, side: UnixStream, model: &str, limits: &Limits) -> io::Result<Self> {
        work.set_nonblocking(true)?;
        side.set_nonblocking(true)?;
        let mut arena = Arena::default();
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        if limits.shared_memory {
            for segments in [&mut requests, &mut responses] {
                let first = Memfd::new(usize::try_from(limits.segment_bytes).unwrap_or(usize::MAX))?;
                first.populate(POPULATED_BYTES);
                segments.push(Arc::new(first));
            }
            arena.add(0, limits.segment_bytes);
        }
        let bytes = [&requests, &responses].into_iter().flatten().map(|s| s.len() as u64).sum();
        let socket = |stream| Socket { stream, waiting: Mutex::default(), reader: AtomicU64::new(0) };
        Ok(Self {
            id,
            hub: Hub::get()?,
            work: socket(work),
            side: socket(side),
            requests: Mutex::new(Requests { arena, charges: HashMap::new() }),
            request_segments: RwLock::new(requests),
            response_segments: RwLock::new(responses),
            responses: Mutex::default(),
            limits: limits.clone(),
            leases: Leases::default(),
            lends: AtomicBool::new(false),
            batch_is_out: AtomicBool::new(false),
            model: model.to_owned(),
            bytes: AtomicU64::new(bytes),
            is_broken: AtomicBool::new(false),
        })
    }

    /// The first segments, which the process inherits, if it gets any.
    pub(crate) fn first_segments(&self) -> Option<(Arc<Memfd>, Arc<Memfd>)> {
        let first = |segments: &RwLock<Vec<Arc<Memfd>>>| segments.read().first().cloned();
        Some((first(&self.request_segments)?, first(&self.response_segments)?))
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

    /// The end of a batch was handled, and what it named.
    pub(crate) fn batch_ended(&self) {
        if self.limits.device_inputs {
            self.batch_is_out.store(false, Relaxed);
            self.leases.batch_ended();
        }
    }

    /// Whether the runner is to be killed, since it does not read.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    fn socket(&self, way: Way) -> &Socket {
        match way {
            Way::Work => &self.work,
            Way::Side => &self.side,
        }
    }

    /// Sends frames. Those of one call stay together, and calls for one socket in their order.
    pub(crate) fn send(&self, way: Way, frames: &[u8]) {
        self.send_with(way, frames, None);
    }

    fn send_with(&self, way: Way, frames: &[u8], segment: Option<Arc<Memfd>>) {
        let socket = self.socket(way);
        let mut waiting = socket.waiting.lock();
        let mut sent = 0;
        if waiting.parts.is_empty() {
            match sys::send(socket.stream.as_fd(), frames, segment.as_ref().map(|s| s.as_fd())) {
                Ok(n) if n == frames.len() => return,
                Ok(n) => sent = n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // It is gone, and the hub hears of that.
                Err(_) => return,
            }
        } else if waiting.bytes > WAITING_BYTES_MAX {
            self.is_broken.store(true, Relaxed);
            self.hub.look_at(self.id);
            return;
        }
        let is_first = waiting.parts.is_empty();
        if is_first {
            waiting.sent = sent;
        }
        waiting.bytes += frames.len();
        // A descriptor that went with the first byte is not sent again.
        waiting.parts.push_back((frames.to_vec(), segment.filter(|_| sent == 0)));
        if is_first {
            if socket.is_watched() {
                let _ = self.hub.listen(self.id, way, socket.stream.as_fd(), Interest::Write);
            } else {
                self.hub.interest(self.id, way, socket.stream.as_fd(), Interest::ReadWrite);
            }
        }
    }

    /// Writes what waits; called by the hub when the socket takes more.
    pub(crate) fn flush(&self, way: Way) {
        let socket = self.socket(way);
        let mut waiting = socket.waiting.lock();
        while let Some((part, segment)) = waiting.parts.front() {
            let rest = part.get(waiting.sent..).unwrap_or_default();
            let segment = segment.as_ref().filter(|_| waiting.sent == 0);
            match sys::send(socket.stream.as_fd(), rest, segment.map(|s| s.as_fd())) {
                Ok(n) if n == rest.len() => {
                    waiting.bytes -= part.len();
                    waiting.parts.pop_front();
                    waiting.sent = 0;
                }
                Ok(n) => waiting.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    *waiting = Waiting::default();
                    break;
                }
            }
        }
        if socket.is_watched() {
            self.hub.ignore(socket.stream.as_fd());
        } else {
            self.hub.interest(self.id, way, socket.stream.as_fd(), Interest::Read);
        }
    }

    /// Has a poller read the work socket in the place of the hub, which only writes what waits. The turn it has: it is its own as long as
    /// [`is_read_by`](Self::is_read_by) says so. `None`: one has it already.
    pub(crate) fn pass_on(&self) -> Option<u64> {
        let socket = &self.work;
        let waiting = socket.waiting.lock();
        if socket.is_watched() {
            return None;
        }
        let turn = socket.reader.fetch_add(1, Relaxed) + 1;
        if waiting.parts.is_empty() {
            self.hub.ignore(socket.stream.as_fd());
        } else {
            self.hub.interest(self.id, Way::Work, socket.stream.as_fd(), Interest::Write);
        }
        Some(turn)
    }

    /// Whether the poller with this turn reads the work socket.
    pub(crate) fn is_read_by(&self, turn: u64) -> bool {
        self.work.reader.load(Relaxed) == turn
    }

    /// Has the hub read the work socket again, if the poller with this turn still does.
    pub(crate) fn take_back(&self, turn: u64) {
        if self.is_read_by(turn) {
            // Whatever it fails for: the end of the process is seen all the same.
            let _ = self.listen(Way::Work);
        }
    }

    /// Has the hub listen to a socket.
    pub(crate) fn listen(&self, way: Way) -> io::Result<()> {
        let socket = self.socket(way);
        // Under the lock: what begins to wait later finds the socket there.
        let waiting = socket.waiting.lock();
        if socket.is_watched() {
            socket.reader.fetch_add(1, Relaxed);
            self.hub.ignore(socket.stream.as_fd());
        }
        let interest = if waiting.parts.is_empty() { Interest::Read } else { Interest::ReadWrite };
        self.hub.listen(self.id, way, socket.stream.as_fd(), interest)
    }

    /// Has the hub look away, and a poller.
    pub(crate) fn ignore(&self, way: Way) {
        let socket = self.socket(way);
        let _waiting = socket.waiting.lock();
        if socket.is_watched() {
            socket.reader.fetch_add(1, Relaxed);
        }
        self.hub.ignore(socket.stream.as_fd());
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
        if bytes <= *room.inline_left || !self.limits.shared_memory {
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
        let segment: &dyn RegionMemory = &*segment;
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
    fn allocate(&self, bytes: u64) -> Result<(Block, Arc<Memfd>), Error> {
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

    fn segments(&self, of_requests: bool) -> &RwLock<Vec<Arc<Memfd>>> {
        if of_requests { &self.request_segments } else { &self.response_segments }
    }

    fn segment(&self, of_requests: bool, number: u16) -> Option<Arc<Memfd>> {
        self.segments(of_requests).read().get(usize::from(number)).cloned()
    }

    /// A further segment, of which the runner is told. `None`: the limit is reached, or the system has none.
    fn grow(&self, place: Place, bytes: u64) -> Option<(u16, u64)> {
        if !self.limits.shared_memory {
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
        let memory = Arc::new(Memfd::new(usize::try_from(length).ok()?).ok()?);
        let number = u16::try_from(segments.len()).ok()?;
        segments.push(Arc::clone(&memory));
        self.bytes.fetch_add(length, Relaxed);
        drop(segments);
        let mut frame = Vec::with_capacity(Header::BYTES + Segment::BYTES);
        write::segment(&mut frame, Segment { bytes: length, segment: number, place: place as u8, refused: 0 });
        self.send_with(Way::Side, &frame, Some(memory));
        Some((number, length))
    }

    /// The runner needs room for responses.
    pub(crate) fn need_responses(&self, bytes: u64) {
        if self.grow(Place::Response, bytes).is_none() {
            let mut frame = Vec::new();
            write::segment(&mut frame, Segment { bytes: 0, segment: 0, place: Place::Response as u8, refused: 1 });
            self.send(Way::Side, &frame);
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

    /// The part of a segment that a tensor of the runner lies in.
    pub(crate) fn window(&self, block: Block) -> Result<(Arc<Memfd>, usize, usize), Lie> {
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

    /// A tensor's bytes, copied out and checked; its block is given back.
    pub(crate) fn take(&self, tensor: &TensorRef<'_>) -> Result<Data, Refused> {
        let block = match tensor.contents {
            Contents::Inline(bytes) => return Ok(Data::Bytes(Bytes::copy_from_slice(bytes))),
            Contents::Block(block) => block,
            Contents::Device(lent) => {
                let part = self.part(lent)?;
                let (mut slab, charge) = backend::gather::batch_slab(part.len()).map_err(Refused::Short)?;
                part.copy_to(0, &mut slab).map_err(Refused::Short)?;
                self.done_with(tensor);
                return Ok(Data::Bytes(backend::gather::frozen(slab, charge)));
            }
        };
        let (memory, at, bytes) = self.window(block)?;
        let (mut slab, charge) = backend::gather::batch_slab(bytes).map_err(Refused::Short)?;
        let region: &dyn RegionMemory = &*memory;
        region.copy_to(at, &mut slab).map_err(Refused::Short)?;
        if tensor.datatype == DataType::Bytes {
            check_strings(&slab, element_count(&tensor.shape).unwrap_or(0))?;
        }
        self.done_with(tensor);
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

    /// Gives blocks back at once when many wait. Not needed for those of a batch that has ended: they go with the next one, to the thread that will want them, and another
    /// thread of the runner does not wake up for them.
    pub(crate) fn give_back_many(&self) {
        let mut responses = self.responses.lock();
        if responses.free_bytes > self.limits.segment_bytes / 4 || responses.free.len() > FREE_MAX {
            let mut frames = Vec::new();
            responses.free_bytes = 0;
            while !responses.free.is_empty() {
                write::release(&mut frames, &mut responses.free);
            }
            drop(responses);
            self.send(Way::Side, &frames);
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

/// Bytes at the beginning of each first segment whose pages are made at once.
const POPULATED_BYTES: usize = 256 << 10;
const PAGE_BYTES: u64 = 4096;
/// Of a frame, for what stands in it besides bytes of tensors.
const FRAME_BYTES_LEFT: usize = 16 << 20;
