//! Interface of calls, control and metrics to their runner: its sockets, segments and requests, and the server.

use crate::frames::TensorRef;
use crate::memory::{Room, SegmentError};
use crate::slots::Key;
use crate::transport::{Job, Way};
use backend::Host;
use std::sync::Arc;
use tensor::{Data, DataType, Error, Name};
use trace::Trace;

/// The runner that sent a request to the server.
pub(crate) trait Peer: Send + Sync {
    /// The server. `None` while a configuration is completed, and after the server has ended.
    fn host(&self) -> Option<Arc<dyn Host>>;
    fn model(&self) -> Name;
    /// The request that a call is made for: the one it names, otherwise the only one that the runner has.
    fn parent(&self, named: Key) -> Parent;
    /// Sends frames without blocking, in the order of the calls for each socket.
    fn send(&self, way: Way, frames: &[u8]);
    /// Writes a tensor into a frame; the blocks that it takes are recorded in `room`.
    ///
    /// # Errors
    /// If there is no memory for the tensor.
    fn put(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        head: (&str, DataType, &[i64]),
        data: &Data,
    ) -> Result<(), Error>;
    /// True if device tensors can be leased to the runner without a copy.
    fn takes_devices(&self) -> bool;
    /// Frees blocks of a frame that is not sent.
    fn forget(&self, blocks: &[u64]);
    /// Copies a tensor's bytes out and checks them; its block is returned.
    ///
    /// # Errors
    /// If its location is invalid, or there is no memory for the copy.
    fn take(&self, tensor: &TensorRef<'_>) -> Result<Data, SegmentError>;
    /// Returns the block of a tensor that is not read.
    fn done_with(&self, tensor: &TensorRef<'_>);
    /// Runs a job on another thread, because it takes too long for the one that serves all runners.
    fn later(&self, job: Job);
    /// Kills the runner because it broke the protocol.
    fn condemn(&self, why: &str);
}

/// The request that a call is made for.
#[derive(Default)]
pub(crate) struct Parent {
    /// Slot of the request. `None` if it could be any of several, or there is none.
    pub(crate) key: Option<Key>,
    /// Number of nested calls above the request.
    pub(crate) depth: u32,
    /// Batch that waits for the call: that of the request, or the running one if the request is unknown. `None` if the
    /// request continues without an instance.
    pub(crate) batch: Option<u64>,
    /// Trace of the request, if it is sampled.
    pub(crate) trace: Option<Trace>,
}
