//! Carries frames between the server and a runner, and starts runners.

use crate::frames::ProtocolError;
use crate::generated::{Header, Segment};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tensor::RegionRef;

/// Reason for [`Receiver::condemn`] where the frames of a runner made one of our threads panic.
pub const PANICKED: &str = "the host failed while it handled a frame";

/// One of the two channels to a runner. A reply goes back on the channel of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Batches and their results, one batch at a time.
    Work,
    /// All other frames.
    Side,
}

/// A connection to one runner. Methods may be called from any thread and do not block.
pub trait Transport: Send + Sync {
    /// Sends frames. The frames of one call stay together, and calls for one channel keep their order. Frames for a
    /// runner that has ended are dropped; `Receiver::over` reports its end.
    fn send(&self, way: Way, frames: &[u8]);

    /// Sends frames of the work channel to a runner that has others to work on: perhaps not before this thread has
    /// handled everything that is ready, and then together with those of later calls.
    fn send_soon(&self, frames: &[u8]) {
        self.send(Way::Work, frames);
    }

    /// Registers `receiver`, which is called for each frame, one at a time, and once for the runner's end.
    ///
    /// # Errors
    /// The system has no resources left to wait for frames. The receiver is not called.
    fn on_frame(&self, receiver: Arc<dyn Receiver>) -> io::Result<()>;

    /// Ends the runner.
    fn end(&self, how: End);

    /// Has the runner's stack written to the log, while it goes on. False if that is not possible.
    fn write_stack(&self, is_python: bool) -> bool {
        let _ = is_python;
        false
    }

    /// Adds a segment for tensors and announces it to the runner; `None` if the system has no memory for it.
    fn add_segment(&self, segment: Segment) -> Option<RegionRef>;

    /// Resident bytes of the runner; 0 if it shares the server's memory or the system does not report them.
    fn resident_bytes(&self) -> u64;

    /// True if the process also serves other connections, which a kill would end.
    fn is_shared(&self) -> bool {
        false
    }
}

/// How a runner is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// UNLOAD was sent. A runner that was suspended (SIGSTOP) is continued, so that it can end.
    Requested,
    /// The runner hangs: it may write a stack trace and ends.
    Hung,
    /// At once.
    Killed,
}

/// Conditions under which a frame is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The thread may block for copies of large tensors.
    pub may_copy: bool,
    /// All frames that arrived on the side channel before this one were handled.
    pub side_is_read: bool,
}

/// The next step of the transport after a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Hand over the next frame.
    Go,
    /// Hand over this frame and those behind it again, on a thread that may copy.
    Copy,
    /// Hand over this frame again after the frames of the side channel.
    ReadSide,
}

/// Receives the frames and the end of a runner.
pub trait Receiver: Send + Sync {
    /// Handles one whole frame. Calls do not overlap.
    ///
    /// # Errors
    /// The frame breaks the protocol; the transport then calls `condemn`.
    fn frame(self: Arc<Self>, way: Way, header: &Header, body: &[u8], reading: Reading) -> Result<Next, ProtocolError>;

    /// The runner's first frame has another protocol version.
    fn other_version(&self, version: u64);

    /// Kills the runner. `why` is for the log only.
    fn condemn(&self, why: &str);

    /// Reports that the runner has ended; `how` is for the log (`was ended by signal 9`). Called once, without any lock
    /// of the transport.
    fn over(self: Arc<Self>, how: &str);

    /// True if a thread that serves other connections may read the frames.
    fn is_brief(&self) -> bool;

    /// True if responses come on the side channel.
    fn answers_on_side(&self) -> bool {
        false
    }

    /// True if the runner may close its connection: it was asked to end, or reported that it cannot start.
    fn may_close(&self) -> bool {
        false
    }
}

/// Segments for tensors that a runner has from its start.
#[derive(Clone)]
pub struct Segments {
    /// Inputs of requests; the server allocates.
    pub requests: RegionRef,
    /// Outputs of responses; the runner allocates.
    pub responses: RegionRef,
}

/// A started runner.
pub struct Connection {
    /// The connection to it.
    pub transport: Arc<dyn Transport>,
    /// Shared memory for tensors; `None` if all are sent inline.
    pub segments: Option<Segments>,
    /// One byte per slot: whether its request is cancelled. `None`: the model does not see cancels.
    pub flags: Option<RegionRef>,
}

/// Starts runners of an instance. Each call starts a new one.
pub trait Start: Send + Sync {
    /// Called on the thread that starts runners.
    ///
    /// # Errors
    /// Errors of the system.
    fn start(&self) -> io::Result<Connection>;
}

/// Work for another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs work on other threads.
pub trait Executor: Send + Sync {
    /// Runs a short job after a delay, unless the server has ended.
    fn after(&self, delay: Duration, job: Job);
    /// Runs a long job, such as a copy.
    fn copy(&self, job: Job);
    /// Runs a job on the thread that starts runners.
    fn start(&self, job: Job);
}
