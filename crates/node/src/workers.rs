//! Worker threads that run models: the main thread makes and ends them, each exchanges frames with the core directly.
//!
//! The memory of a segment is shared with the JavaScript of its worker by external array buffers. Rust only copies from
//! and to it (`tensor::RegionMemory`), and each buffer keeps its segment mapped until it is finalized.

use crate::failure::{Result, thrown, unbound};
use crate::objects as js;
use backend_javascript::worker::{attach, ended};
use backend_javascript::{Inbox, Threads, Worker, WorkerSpec};
use backend_remote::Way;
use napi::Env;
use napi::bindgen_prelude::{ArrayBuffer, BufferSlice, FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode::NonBlocking};
use napi_derive::napi;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tensor::{Base, Error, RegionRef};

/// Arguments of the callback of the main thread: a worker's number; its start, or null for one that runs; whether it
/// ends, and whether its stack is written to the log before.
pub type WorkerCall = FnArgs<(u32, Option<js::WorkerStart>, bool, bool)>;

type HostCall = (u32, Option<WorkerSpec>, bool, bool);

type HostCalls = ThreadsafeFunction<HostCall, (), WorkerCall, napi::Status, false, true>;

/// Makes and ends workers on the main thread. Its queue holds at most three calls per instance, and one for each
/// warning of a hang.
pub struct NodeThreads(HostCalls);

impl NodeThreads {
    pub fn new(f: &Function<'_, WorkerCall, ()>) -> napi::Result<Self> {
        let calls = f.build_threadsafe_function::<HostCall>().weak::<true>();
        Ok(Self(calls.build_callback(|ctx| {
            let (id, spec, ends, explains) = ctx.value;
            Ok(FnArgs::from((id, spec.map(start), ends, explains)))
        })?))
    }
}

fn start(spec: WorkerSpec) -> js::WorkerStart {
    js::WorkerStart {
        name: spec.name,
        heap_bytes_max: spec.heap_bytes_max.map(|bytes| bytes as f64),
        preserves_links: spec.preserves_links,
    }
}

impl Threads for NodeThreads {
    fn start(&self, spec: WorkerSpec) -> io::Result<()> {
        match self.0.call((spec.id, Some(spec), false, false), NonBlocking) {
            napi::Status::Ok => Ok(()),
            status => Err(io::Error::other(format!("no worker thread can be started: {status:?}"))),
        }
    }

    fn terminate(&self, id: u32) {
        // It fails when the main thread is ending, and all workers with it.
        let _ = self.0.call((id, None, true, false), NonBlocking);
    }

    fn write_stack(&self, id: u32, ends: bool) {
        let _ = self.0.call((id, None, ends, true), NonBlocking);
    }
}

/// Reports that a worker's thread has ended; `how` is a predicate for the log (`exited with code 1`).
#[napi]
pub fn worker_ended(id: u32, how: String) {
    ended(id, &how);
}

/// Wakes a worker's event loop.
type Wake = ThreadsafeFunction<(), (), (), napi::Status, false>;

/// Frames for one worker, which the sender bounds. They are dropped with it: the queue of a thread-safe function leaks
/// what is left in it when its thread ends.
#[derive(Default)]
struct Waiting {
    queue: Mutex<Queue>,
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    /// The worker was woken, or will look by itself: it takes everything that waits then.
    is_awake: bool,
}

struct WorkerInbox {
    wake: Wake,
    waiting: Arc<Waiting>,
}

impl Inbox for WorkerInbox {
    fn deliver(&self, frames: Vec<u8>) {
        self.waiting.bytes.fetch_add(frames.len(), Relaxed);
        let mut queue = self.waiting.queue.lock();
        queue.frames.push_back(frames);
        let was_awake = std::mem::replace(&mut queue.is_awake, true);
        drop(queue);
        if !was_awake {
            // It fails when the worker is ending.
            let _ = self.wake.call((), NonBlocking);
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting.bytes.load(Relaxed)
    }
}

/// A worker's connection to the core. Its methods are called on the worker's thread only.
#[napi]
pub struct NativeRunner {
    worker: Arc<Worker>,
    waiting: Arc<Waiting>,
}

/// Connects the worker with this number: `wake` is called when frames wait. Throws UNAVAILABLE if the worker has been
/// ended.
#[napi]
pub fn attach_runner(id: u32, wake: Function<'_, (), ()>) -> Result<NativeRunner> {
    let waiting = Arc::new(Waiting::default());
    let wake = wake.build_threadsafe_function::<()>().build_callback(|_| Ok(())).map_err(unbound)?;
    let worker = attach(id, Arc::new(WorkerInbox { wake, waiting: Arc::clone(&waiting) }));
    let worker = worker.ok_or_else(|| thrown(&Error::unavailable("the worker has been ended")))?;
    Ok(NativeRunner { worker, waiting })
}

#[napi]
impl NativeRunner {
    /// Copies the frames that wait into `into`, from `at` on, as many as fit, and returns their bytes. 0: none waits,
    /// and the next one wakes this thread. Below 0: the bytes that the next one needs.
    #[napi]
    pub fn take(&self, mut into: BufferSlice<'_>, at: u32) -> i32 {
        let mut queue = self.waiting.queue.lock();
        let mut room = into.get_mut(at as usize..).unwrap_or_default();
        let mut bytes = 0;
        while let Some(next) = queue.frames.front() {
            let Some((place, rest)) = std::mem::take(&mut room).split_at_mut_checked(next.len()) else { break };
            place.copy_from_slice(next);
            bytes += place.len();
            room = rest;
            queue.frames.pop_front();
        }
        self.waiting.bytes.fetch_sub(bytes, Relaxed);
        let needed = queue.frames.front().map_or(0, Vec::len);
        queue.is_awake = bytes + needed > 0;
        if bytes > 0 { bytes as i32 } else { -(needed as i32) }
    }

    /// Sends whole frames on a channel (0 work, 1 side). They are handled, and all their memory is copied, before it
    /// returns. True if frames wait that do not wake this thread, because it `looks` for them by itself.
    #[napi]
    pub fn send(&self, way: u32, frames: &[u8], looks: bool) -> bool {
        if looks {
            // The next batch is sent meanwhile, on this thread.
            self.waiting.queue.lock().is_awake = true;
        }
        self.worker.receive(if way == 0 { Way::Work } else { Way::Side }, frames);
        let mut queue = self.waiting.queue.lock();
        if looks {
            queue.is_awake = !queue.frames.is_empty();
        }
        looks && queue.is_awake
    }

    /// Logs what the model prints to its standard output, or to its error output.
    #[napi]
    pub fn print(&self, is_error: bool, text: String) {
        self.worker.print(is_error, text.as_bytes());
    }

    /// A segment of responses.
    #[napi]
    pub fn responses<'env>(&self, env: &'env Env, segment: u32) -> Result<ArrayBuffer<'env>> {
        let region = self.worker.response_segment(segment as usize);
        let bytes = region.as_ref().map_or(0, |region| region.len());
        shared(env, region, 0, bytes)
    }

    /// A block of a segment of requests.
    #[napi]
    pub fn request<'env>(&self, env: &'env Env, segment: u32, offset: f64, bytes: f64) -> Result<ArrayBuffer<'env>> {
        let (offset, bytes) = (offset as usize, bytes as usize);
        shared(env, self.worker.request_block(segment as usize, offset, bytes), offset, bytes)
    }

    /// One byte per request slot: whether the request in it is cancelled.
    #[napi]
    pub fn flags<'env>(&self, env: &'env Env) -> Result<ArrayBuffer<'env>> {
        let region = self.worker.flags();
        let bytes = region.as_ref().map_or(0, |region| region.len());
        shared(env, region, 0, bytes)
    }

    /// Ends all views of a buffer: they have no elements afterwards.
    #[napi]
    pub fn detach(&self, buffer: ArrayBuffer<'_>) -> Result<()> {
        buffer.detach().map_err(unbound)
    }
}

/// An array buffer over a part of a segment, which keeps the segment.
fn shared(env: &Env, region: Option<RegionRef>, offset: usize, bytes: usize) -> Result<ArrayBuffer<'_>> {
    let region = region.filter(|region| bytes > 0 && offset + bytes <= region.len());
    let missing = || thrown(&Error::internal("a frame names memory that does not exist"));
    let region = region.ok_or_else(missing)?;
    let Base::Host(base) = region.base() else { return Err(missing()) };
    // SAFETY: `offset + bytes` lies in the region, whose memory stays valid for reads and writes while the value lives;
    // the finalizer drops it when JavaScript has no view any more. Rust has no reference to these bytes.
    let buffer = unsafe { ArrayBuffer::from_external(env, base.add(offset), bytes, region, |_, region| drop(region)) };
    buffer.map_err(unbound)
}
