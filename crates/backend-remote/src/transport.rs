//! What carries frames to a runner and back, and what starts one.

use crate::frames::Lie;
use crate::generated::{Header, Segment};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tensor::RegionRef;

/// Which of the two ways a frame came on, and so where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One batch at a time.
    Work,
    /// Everything else.
    Side,
}

/// The way to one runner. Anything may be called from any thread, and nothing blocks.
pub trait Transport: Send + Sync {
    /// Sends frames. Those of one call stay together, and calls for one way in their order. What cannot be sent any more is dropped: the runner's end follows.
    fn send(&self, way: Way, frames: &[u8]);

    /// Has `receiver` called for each frame that comes, for one at a time, and once for the runner's end.
    ///
    /// # Errors
    /// The system has nothing left to wait with. The receiver is not called then.
    fn on_frame(&self, receiver: Arc<dyn Receiver>) -> io::Result<()>;

    /// Ends the runner.
    fn end(&self, how: End);

    /// A further segment of tensors, of which the runner is told. `None`: the system has none.
    fn add_segment(&self, segment: Segment) -> Option<RegionRef>;

    /// Memory of the runner; 0 where it has none of its own, or the system does not say.
    fn resident_bytes(&self) -> u64;
}

/// How a runner is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was told to, by UNLOAD. One that somebody stopped goes on, so that it can.
    Told,
    /// It hangs: it may write down where, and ends.
    Hung,
    /// At once.
    Killed,
}

/// How a frame is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// On a thread that may take its time: for copies of large tensors.
    pub may_copy: bool,
    /// What had come on the side before this frame was handled.
    pub side_is_read: bool,
}

/// What is to be done after a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next frame.
    Go,
    /// This frame again, and what is behind it, on a thread that may copy.
    Copy,
    /// This frame again, once what came on the side was handled.
    ReadSide,
}

/// What hears of a runner.
pub trait Receiver: Send + Sync {
    /// A whole frame came. Called for one at a time.
    ///
    /// # Errors
    /// It breaks a rule: the runner is to be condemned.
    fn frame(self: Arc<Self>, way: Way, header: &Header, body: &[u8], reading: Reading) -> Result<Next, Lie>;

    /// Its first frame is of another version of the protocol.
    fn other_version(&self, version: u64);

    /// Ends it. Why is for the log only.
    fn condemn(&self, why: &str);

    /// It is over, in the words of the log (`was ended by signal 9`). Called once, under no lock of the transport.
    fn over(self: Arc<Self>, how: &str);

    /// Whether its frames may be read by a thread that serves others.
    fn is_brief(&self) -> bool;
}

/// Segments of tensors that a runner has from its start.
pub struct Segments {
    /// For requests: the host allocates.
    pub requests: RegionRef,
    /// For responses: the runner allocates.
    pub responses: RegionRef,
    /// A byte for each slot, which says whether its request is cancelled.
    pub flags: RegionRef,
}

/// A runner that was started.
pub struct Connection {
    /// The way to it.
    pub transport: Arc<dyn Transport>,
    /// None: all tensors go inline.
    pub segments: Option<Segments>,
}

/// Starts runners of an instance. Each call starts another.
pub trait Start: Send + Sync {
    /// On the thread that starts runners.
    ///
    /// # Errors
    /// Those of the system.
    fn start(&self) -> io::Result<Connection>;
}

/// Something to be done on another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads for what is done later.
pub trait Executor: Send + Sync {
    /// Does something later, if the server is still there; it must not take long.
    fn after(&self, delay: Duration, job: Job);
    /// Does something that takes long: copies.
    fn copy(&self, job: Job);
    /// Does something on the thread that starts runners.
    fn start(&self, job: Job);
}
