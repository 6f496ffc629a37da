//! What calls, control and metrics need of the runner that asks: its sockets, its segments, its requests, and the server.

use crate::frames::TensorRef;
use crate::memory::{Refused, Room};
use crate::slots::Key;
use crate::transport::{Job, Way};
use backend::Host;
use std::sync::Arc;
use tensor::{Data, DataType, Error, Name};
use trace::Trace;

/// A runner, as what it asks for sees it.
pub(crate) trait Peer: Send + Sync {
    /// The server; `None` where there is none to ask: while a configuration is completed, and at the very end.
    fn host(&self) -> Option<Arc<dyn Host>>;
    /// The model that it runs.
    fn model(&self) -> Name;
    /// The request that a call is made for: the one it names, else the only one that the runner has.
    fn parent(&self, named: Key) -> Parent;
    /// Sends frames, in the order of the calls for one socket. Does not block.
    fn send(&self, way: Way, frames: &[u8]);
    /// Writes a tensor into a frame; blocks that it takes for that are noted in `room`.
    ///
    /// # Errors
    /// There is no room for it.
    fn put(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        head: (&str, DataType, &[i64]),
        data: &Data,
    ) -> Result<(), Error>;
    /// Whether tensors on a device can be written into a frame as they lie.
    fn takes_devices(&self) -> bool;
    /// Blocks of a frame that is not sent.
    fn forget(&self, blocks: &[u64]);
    /// A tensor's bytes, copied out and checked; its block is given back.
    ///
    /// # Errors
    /// It lies nowhere, or there is no memory for the copy.
    fn take(&self, tensor: &TensorRef<'_>) -> Result<Data, Refused>;
    /// A tensor that is not looked at: its block is given back.
    fn done_with(&self, tensor: &TensorRef<'_>);
    /// Does what takes too long for the thread that serves all runners on another.
    fn later(&self, job: Job);
    /// Kills it for what it said.
    fn condemn(&self, why: &str);
}

/// The request that a call is made for.
#[derive(Default)]
pub(crate) struct Parent {
    /// Which that is; `None` where it could be any of several, or there is none.
    pub(crate) key: Option<Key>,
    /// Models that called one another for it.
    pub(crate) depth: u32,
    /// The batch that waits for the call: that of the request, or where the request is not known that which runs. `None` where its request goes
    /// on without an instance.
    pub(crate) batch: Option<u64>,
    /// Where it is traced.
    pub(crate) trace: Option<Trace>,
}
