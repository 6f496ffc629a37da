//! Memory for tensors that one connection shares with the server: request segments, which the server writes, and
//! response segments, in which this side allocates.
//!
//! A segment stays mapped until the connection and everything that points into it are gone: whoever holds a pointer
//! also holds the `Segments`.

#![allow(unsafe_code)] // mmap, munmap

use crate::library::Address;
use frames::arena::Arena;
use frames::generated::{Frame, Place, Segment};
use frames::{Block, InstanceId, write};
use parking_lot::{Condvar, Mutex};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tensor::{Error, Result};

/// Time for a segment to arrive that the server has announced.
const SEGMENT_TIME: Duration = Duration::from_secs(10);
/// Blocks that are returned at the latest when so many wait.
const RETURNED_MAX: usize = 256;
/// The same, in bytes.
const RETURNED_BYTES_MAX: u64 = 4 << 20;

/// A mapped segment.
struct Mapping {
    base: Address<u8>,
    bytes: u64,
}

impl Mapping {
    fn new(of: &OwnedFd, writable: bool) -> io::Result<Self> {
        let bytes = u64::try_from(rustix::fs::fstat(of)?.st_size).unwrap_or(0).max(1);
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice, of an object that is sealed against shrinking.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes as usize, access, MapFlags::SHARED, of, 0) }?;
        Ok(Self { base: Address(base.cast()), bytes })
    }

    /// The address of a range; `None` if it is not inside.
    fn at(&self, offset: u64, bytes: u64) -> Option<Address<u8>> {
        let is_inside = offset.checked_add(bytes)? <= self.bytes;
        is_inside.then(|| Address(self.base.0.wrapping_add(offset as usize)))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; its users hold the `Segments` that owns it.
        let _ = unsafe { munmap(self.base.0.cast(), self.bytes as usize) };
    }
}

/// The flags of cancelled requests.
pub(crate) struct Flags(Mapping);

impl Flags {
    pub(crate) fn new(of: &OwnedFd) -> io::Result<Self> {
        Mapping::new(of, false).map(Self)
    }

    /// Whether the request of a slot is cancelled.
    pub(crate) fn is_cancelled(&self, slot: u32, generation: u32) -> bool {
        let Some(at) = self.0.at(slot.into(), 1) else { return false };
        // SAFETY: inside of the mapping; the server may write it at any time, so it is read as volatile.
        let byte = unsafe { at.0.read_volatile() };
        // A byte of another generation says nothing about this request.
        u32::from(byte >> 1) == generation & 127 && byte & 1 == 1
    }
}

type Sender = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The segments of a connection.
pub(crate) struct Segments {
    me: Weak<Self>,
    /// Sends frames on the side socket of the connection.
    sender: OnceLock<Sender>,
    requests: Mutex<Vec<Option<Mapping>>>,
    responses: Mutex<Responses>,
    grown: Condvar,
    returned: Mutex<(Vec<u64>, u64)>,
}

#[derive(Default)]
struct Responses {
    arena: Arena,
    segments: Vec<Option<Mapping>>,
    growth: Growth,
}

/// Whether the server adds a segment.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Growth {
    #[default]
    Possible,
    Requested,
    /// For the next thread that needs memory.
    Refused,
    /// The connection has ended.
    Closed,
}

impl Segments {
    pub(crate) fn new(requests: &OwnedFd, responses: &OwnedFd) -> io::Result<Arc<Self>> {
        let (requests, responses) = (Mapping::new(requests, true)?, Mapping::new(responses, true)?);
        let mut arena = Arena::default();
        arena.add(0, responses.bytes);
        let responses = Responses { arena, segments: vec![Some(responses)], ..Responses::default() };
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            sender: OnceLock::new(),
            requests: Mutex::new(vec![Some(requests)]),
            responses: Mutex::new(responses),
            grown: Condvar::new(),
            returned: Mutex::default(),
        }))
    }

    /// Sets the sender of frames about them.
    pub(crate) fn send_with(&self, sender: impl Fn(&[u8]) + Send + Sync + 'static) {
        let _ = self.sender.set(Box::new(sender));
    }

    fn send(&self, frame: &[u8]) {
        if let Some(sender) = self.sender.get() {
            sender(frame);
        }
    }

    /// Handles SEGMENT.
    pub(crate) fn add(&self, segment: &Segment, descriptor: Option<OwnedFd>) {
        let mut responses = self.responses.lock();
        let mapping = descriptor.and_then(|descriptor| Mapping::new(&descriptor, true).ok());
        if Place::from_number(segment.place.into()) == Some(Place::Request) {
            put(&mut self.requests.lock(), segment.segment, mapping);
        } else {
            if responses.growth != Growth::Closed {
                responses.growth = if mapping.is_some() { Growth::Possible } else { Growth::Refused };
            }
            if let Some(mapping) = mapping {
                responses.arena.add(segment.segment, mapping.bytes.min(segment.bytes));
                put(&mut responses.segments, segment.segment, Some(mapping));
            }
        }
        drop(responses);
        self.grown.notify_all();
    }

    /// The connection has ended: nobody waits for memory any more.
    pub(crate) fn close(&self) {
        self.responses.lock().growth = Growth::Closed;
        self.grown.notify_all();
    }

    /// Handles blocks of responses that the server returned.
    pub(crate) fn freed(&self, blocks: impl Iterator<Item = u64>) {
        let mut responses = self.responses.lock();
        for block in blocks {
            let _ = responses.arena.give(block);
        }
        if responses.growth == Growth::Refused {
            responses.growth = Growth::Possible;
        }
        drop(responses);
        self.grown.notify_all();
    }

    /// Allocates memory for a response. Waits for the server if it has to add a segment.
    ///
    /// # Errors
    /// UNAVAILABLE if the server gives no more memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Allocated> {
        let segments = self.me.upgrade().ok_or_else(gone)?;
        let mut responses = self.responses.lock();
        loop {
            if let Some((segment, offset)) = responses.arena.take(bytes as u64) {
                let block = Block { of_requests: false, segment, offset, bytes: bytes as u64 };
                let mapping = responses.segments.get(usize::from(segment)).and_then(Option::as_ref);
                let pointer = mapping.and_then(|mapping| mapping.at(offset, bytes as u64)).ok_or_else(gone)?;
                return Ok(Allocated { segments, pointer, block, is_sent: false });
            }
            match responses.growth {
                Growth::Closed => return Err(gone()),
                Growth::Refused => {
                    responses.growth = Growth::Possible;
                    return Err(Error::unavailable(format!(
                        "there is no memory for {bytes} bytes of an output: they are more than shm-max-byte-size or \
                         --memory-limit leaves"
                    )));
                }
                Growth::Possible => {
                    responses.growth = Growth::Requested;
                    let mut frame = Vec::new();
                    let head = frames::generated::NeedSegment { bytes: bytes as u64 };
                    let writing = write::begin(&mut frame, InstanceId::PROCESS, Frame::NeedSegment);
                    head.write(&mut frame);
                    let _ = writing.end(&mut frame);
                    self.send(&frame);
                }
                Growth::Requested => {}
            }
            self.grown.wait(&mut responses);
        }
    }

    /// Bytes of a request segment; the block is returned when the view is dropped.
    ///
    /// # Errors
    /// INTERNAL if the server names memory that does not exist.
    pub(crate) fn read(&self, block: &Block) -> Result<View> {
        let segments = self.me.upgrade().ok_or_else(gone)?;
        let mut responses = self.responses.lock();
        loop {
            let requests = self.requests.lock();
            if let Some(known) = requests.get(usize::from(block.segment)) {
                let mapping = known.as_ref().ok_or_else(|| Error::unavailable("there is no memory for an input"))?;
                let pointer = mapping.at(block.offset, block.bytes);
                let pointer = pointer.ok_or_else(|| Error::internal("a tensor reaches past its segment"))?;
                return Ok(View { segments, pointer, block: *block });
            }
            drop(requests);
            if responses.growth == Growth::Closed || self.grown.wait_for(&mut responses, SEGMENT_TIME).timed_out() {
                return Err(Error::internal("a tensor is in a segment that the server did not send"));
            }
        }
    }

    fn give_back(&self, block: &Block) {
        let mut returned = self.returned.lock();
        returned.0.push(block.id());
        returned.1 += block.bytes;
        if returned.0.len() < RETURNED_MAX && returned.1 < RETURNED_BYTES_MAX {
            return;
        }
        let mut ids = std::mem::take(&mut *returned).0;
        drop(returned);
        let mut frame = Vec::new();
        while !ids.is_empty() {
            write::release(&mut frame, &mut ids);
        }
        self.send(&frame);
    }

    /// Keeps blocks that could not be returned for the next frame.
    pub(crate) fn keep(&self, blocks: Vec<u64>) {
        self.returned.lock().0.extend(blocks);
    }

    /// Request blocks to be returned with the next frame.
    pub(crate) fn returned(&self) -> Vec<u64> {
        std::mem::take(&mut *self.returned.lock()).0
    }
}

/// Keeps a segment under its number; `None` if it could not be mapped.
fn put(segments: &mut Vec<Option<Mapping>>, number: u16, mapping: Option<Mapping>) {
    let at = usize::from(number);
    if segments.len() <= at {
        segments.resize_with(at + 1, || None);
    }
    if let Some(place) = segments.get_mut(at) {
        *place = mapping;
    }
}

fn gone() -> Error {
    Error::unavailable("the server has ended the connection")
}

/// The bytes of a block, whose owner keeps its segment mapped and which nothing changes meanwhile.
fn bytes_of<'a>(pointer: &'a Address<u8>, block: &Block) -> &'a [u8] {
    // SAFETY: `Mapping::at` has checked the range when `pointer` was made; both are private to `Allocated` and `View`,
    // which have the `Segments`.
    unsafe { std::slice::from_raw_parts(pointer.0, block.bytes as usize) }
}

/// Memory for an output. Goes back to the arena when it is dropped, unless it was sent.
pub(crate) struct Allocated {
    segments: Arc<Segments>,
    pointer: Address<u8>,
    block: Block,
    is_sent: bool,
}

impl Allocated {
    /// The first byte.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer.0
    }

    /// Where it is, for a frame.
    pub(crate) fn block(&self) -> Block {
        self.block
    }

    /// A frame with the block was sent: the server returns it.
    pub(crate) fn sent(mut self) {
        self.is_sent = true;
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytes_of(&self.pointer, &self.block)
    }

    /// The bytes. The library writes them through `pointer`, and not while this is used.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `Mapping::at` has checked the range, `segments` keeps it mapped, and the arena gave it to this value
        // alone: the server reads it once it is sent.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.0, self.block.bytes as usize) }
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        if !self.is_sent {
            self.segments.freed(std::iter::once(self.block.id()));
        }
    }
}

/// Bytes of a request, which the server does not change while the view exists.
pub(crate) struct View {
    segments: Arc<Segments>,
    pointer: Address<u8>,
    block: Block,
}

impl View {
    /// The first byte.
    pub(crate) fn pointer(&self) -> *const u8 {
        self.pointer.0
    }

    /// The bytes, which nothing changes: the server writes them again after they are returned.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytes_of(&self.pointer, &self.block)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.segments.give_back(&self.block);
    }
}
