//! Sends batches to a runner.

use super::{BatchInFlight, BatchState, Successor};
use crate::frames::InstanceId;
use crate::frames::write::{self, RequestHeadOf};
use crate::generated::{
    EXECUTE_FLAG_FOLLOWED, EXECUTE_FLAG_WAITED, ExecuteHead, Frame, INLINE_BYTES_MAX, REQUEST_FLAG_SEQUENCE_END,
    REQUEST_FLAG_SEQUENCE_START, REQUEST_FLAG_TRACED, REQUESTS_MAX,
};
use crate::lifecycle::Lifecycle;
use crate::memory::{Responses, Room};
use crate::runner::{Runner, RunnerState};
use crate::slots::{Key, RunnerRequest};
use crate::spec::Prefetch;
use crate::transport::Way;
use backend::{BatchEntry, Marks, Occupied, now_ns, shape};
use protocol::CorrelationId;
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{Data, DataType, Error};

/// Maximum bytes of a buffer that is kept for the next batch.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Why a runner takes no batch.
enum Refusal {
    /// The instance is out of service or busy: the requests fail.
    NotHealthy,
    /// The runner ended: the requests are queued again.
    Ended,
    /// The model calls others. Its requests wait in the queue, where circles of calls are found (engine::cycles), and
    /// their instance waits for the batch with this number, which runs.
    CallsOthers(u64),
}

/// A batch whose frame is written.
struct Draft {
    id: u64,
    began: u64,
    prefetch: Prefetch,
    /// Slots of its requests; `None` if all are taken.
    keys: SmallVec<[Option<Key>; 4]>,
    buffer: Vec<u8>,
    /// Another batch runs.
    is_prefetched: bool,
    /// All tensors of the last result were in its frame.
    was_small: bool,
    successor: Successor,
    /// The frame has a request, and is not too long.
    is_complete: bool,
    /// Blocks of its inputs.
    blocks: SmallVec<[u64; 4]>,
    /// Blocks of responses that it returns to the runner.
    releases: Responses,
}

impl Runner {
    /// Sends a batch. Requests that cannot be sent fail here. When the runner responds, the others end and the instance
    /// is freed. `runs_again`: a result may have requests run again.
    pub(crate) fn execute(
        self: &Arc<Self>,
        requests: &mut [BatchEntry],
        occupied: Option<Occupied>,
        slots_max: u32,
        runs_again: bool,
    ) {
        match self.admit(requests, slots_max) {
            Ok(mut draft) => {
                self.write(&mut draft, requests, runs_again);
                self.send(draft, requests, occupied);
            }
            Err(refusal) => self.refuse(refusal, requests, occupied),
        }
    }

    /// Takes slots for the requests of a batch.
    fn admit(&self, requests: &[BatchEntry], slots_max: u32) -> Result<Draft, Refusal> {
        let began = now_ns();
        let mut state = self.state.lock();
        let RunnerState { lifecycle, slots, in_flight, buffer, .. } = &mut *state;
        let requeues = in_flight.requeues();
        if !lifecycle.is_in_service() || !in_flight.has_room() {
            let is_ended = requeues && *lifecycle == Lifecycle::Ended;
            return Err(if is_ended { Refusal::Ended } else { Refusal::NotHealthy });
        }
        let running = in_flight.running().map(|batch| batch.id);
        if let Some(running) = running.filter(|_| requeues && self.asks.has_called()) {
            return Err(Refusal::CallsOthers(running));
        }
        in_flight.last_id += 1;
        let keys = requests.iter().take(REQUESTS_MAX as usize).map(|entry| {
            let key = entry.responder.as_ref().and_then(|_| slots.take(slots_max))?;
            self.memory.flag(key, false);
            Some(key)
        });
        Ok(Draft {
            id: in_flight.last_id,
            began,
            prefetch: in_flight.prefetch,
            keys: keys.collect(),
            buffer: std::mem::take(buffer),
            is_prefetched: running.is_some(),
            was_small: in_flight.was_small,
            successor: Successor::AfterResult,
            is_complete: false,
            blocks: SmallVec::new(),
            releases: Responses::default(),
        })
    }

    /// Writes the frame of a batch. Ends requests that cannot be written.
    fn write(self: &Arc<Self>, draft: &mut Draft, requests: &mut [BatchEntry], runs_again: bool) {
        let Draft { buffer, blocks, .. } = draft;
        buffer.clear();
        let frame = write::begin(buffer, InstanceId::ONLY, Frame::Execute);
        draft.releases = self.memory.free_blocks();
        let free = &draft.releases.free;
        ExecuteHead { batch: draft.id, releases: free.len() as u32, flags: 0 }.write(buffer);
        let flags_at = buffer.len();
        buffer.extend(free.iter().flat_map(|id| id.to_le_bytes()));
        let mut inline_left = INLINE_BYTES_MAX as usize;
        let mut count = 0;
        for (entry, key) in requests.iter_mut().zip(&draft.keys) {
            let (start, own_from) = (buffer.len(), blocks.len());
            let mut room = Room { inline_left: &mut inline_left, blocks };
            let keeps = (runs_again || draft.is_prefetched, runs_again);
            let written = match *key {
                Some(key) => self.write_request(buffer, &mut room, key, entry, keeps),
                None => Err(Error::unavailable("too many requests of this model are in progress")),
            };
            if let Err(error) = written {
                // Frees the blocks of the inputs that were already written.
                self.memory.forget(blocks.drain(own_from..));
                buffer.truncate(start);
                entry.responder.take().into_iter().for_each(|responder| responder.finish(Some(Err(error.clone()))));
                continue;
            }
            count += 1;
            if let (Some(responder), Some(key)) = (&entry.responder, *key) {
                let this = Arc::downgrade(self);
                responder.on_cancel(move || this.upgrade().into_iter().for_each(|runner| runner.cancelled(key)));
            }
        }
        let is_followed = match draft.prefetch {
            Prefetch::Never => false,
            Prefetch::Always(_) => true,
            Prefetch::BehindSmall(_) => {
                let is_small = draft.was_small && blocks.is_empty() && self.memory.has_segments();
                is_small && !self.limits.device_inputs && !self.asks.has_called()
            }
        };
        draft.successor = if is_followed { Successor::AfterFrame } else { Successor::AfterResult };
        let flags = [(is_followed, EXECUTE_FLAG_FOLLOWED), (draft.is_prefetched, EXECUTE_FLAG_WAITED)];
        let flags: u32 = flags.iter().filter(|(is_set, _)| *is_set).map(|&(_, flag)| u32::from(flag)).sum();
        if let Some(place) = buffer.get_mut(..flags_at).and_then(|head| head.last_chunk_mut()) {
            *place = flags.to_le_bytes();
        }
        frame.count(buffer, count);
        // Too long for a frame only with texts that all front ends reject.
        draft.is_complete = frame.end(buffer).is_ok() && count > 0;
    }

    fn write_request(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        key: Key,
        entry: &mut BatchEntry,
        (keeps_inputs, runs_again): (bool, bool),
    ) -> Result<(), Error> {
        let owner = self.owner.upgrade();
        let signature = owner.as_ref().map(|owner| &**owner.signature());
        if let Some(signature) = signature {
            // Copies strings that a client could change after the check.
            backend::gather::stage_strings(entry, signature)?;
        }
        let request = &mut *entry.request;
        let sequence = &request.sequence;
        let (correlation, correlation_text) = match &sequence.id {
            CorrelationId::Number(number) => (*number, ""),
            CorrelationId::String(text) => (0, text.as_str()),
        };
        let start = if sequence.start { u32::from(REQUEST_FLAG_SEQUENCE_START) } else { 0 };
        let end = if sequence.end { u32::from(REQUEST_FLAG_SEQUENCE_END) } else { 0 };
        let context = request.trace.as_ref().and_then(trace::Trace::context).unwrap_or_default();
        let is_recorded = request.trace.as_ref().is_some_and(trace::Trace::is_recorded);
        let traced = if is_recorded && self.reports_statistics() { u32::from(REQUEST_FLAG_TRACED) } else { 0 };
        let head = RequestHeadOf {
            slot: key.0,
            generation: key.1,
            correlation,
            correlation_text,
            timeout_us: request.timeout_us,
            flags: start | end | traced,
            id: &request.id,
            trace: &context,
            inputs: request.inputs.len() as u16,
        };
        let names = request.outputs.iter().map(|o| o.name.as_str());
        write::request(to, &head, &request.parameters, (!request.outputs.is_empty()).then_some(names));
        let mut copied = 0;
        for (at, input) in request.inputs.iter_mut().enumerate() {
            let datatype = input.datatype.unwrap_or(DataType::Uint8);
            let reshaped = signature.and_then(|signature| {
                let spec = signature.inputs.get(usize::from(*entry.checked.inputs.get(at)?))?;
                let reshape = spec.reshape.as_ref()?;
                Some(shape::to_model(&spec.dims, Some(reshape), &input.shape, signature.batches()))
            });
            let dims = reshaped.as_ref().unwrap_or(&input.shape);
            copied += self.memory.put(to, room, (&input.name, datatype, dims), &input.data, runs_again)?;
            if !keeps_inputs {
                // The input was copied, so the body of the request can be freed before the model runs.
                input.data = Data::empty();
            }
        }
        if copied > 0 {
            entry.copied_in(copied);
        }
        Ok(())
    }

    fn send(&self, mut draft: Draft, requests: &mut [BatchEntry], occupied: Option<Occupied>) {
        let mut state = self.state.lock();
        let RunnerState { lifecycle, slots, in_flight, .. } = &mut *state;
        let sends = draft.is_complete && lifecycle.is_in_service();
        let mut members = SmallVec::new();
        for (entry, key) in requests.iter_mut().zip(&draft.keys) {
            let Some(key) = *key else { continue };
            match entry.responder.take_if(|_| sends) {
                Some(responder) => {
                    slots.put(key, RunnerRequest { responder, entry: std::mem::take(entry), since: draft.began });
                    members.push(key);
                }
                None => slots.free(key),
            }
        }
        if !sends {
            drop(state);
            return self.discard(draft, requests, occupied);
        }
        self.memory.batch_begins();
        let Draft { id, successor, .. } = draft;
        let (since, state_of) = (now_ns(), BatchState::Running);
        in_flight.add(BatchInFlight { id, members, occupied, since, state: state_of, successor, requeued: None });
        self.watch(&mut state);
        drop(state);
        // Last: the response may arrive before this returns.
        if draft.is_prefetched {
            self.transport.send_soon(&draft.buffer);
        } else {
            self.transport.send(Way::Work, &draft.buffer);
        }
        let mut state = self.state.lock();
        if draft.buffer.capacity() <= BUFFER_BYTES_MAX {
            state.buffer = std::mem::take(&mut draft.buffer);
        }
        state.in_flight.frame_sent(id);
        let offer = state.in_flight.offer(|| self.has_one_instance());
        drop(state);
        drop(offer);
    }

    /// Ends a batch that is not sent.
    fn discard(&self, draft: Draft, requests: &mut [BatchEntry], occupied: Option<Occupied>) {
        self.memory.keep_blocks(draft.releases);
        self.memory.forget(draft.blocks.into_iter());
        if let Some(occupied) = occupied {
            let at = draft.began;
            occupied.free(Marks { inputs_ready: at, inference_end: at, outputs_ready: at });
        }
        if draft.is_prefetched && matches!(draft.prefetch, Prefetch::BehindSmall(_)) {
            put_back(requests);
        } else {
            self.fail(requests);
        }
    }

    fn refuse(&self, refusal: Refusal, requests: &mut [BatchEntry], mut occupied: Option<Occupied>) {
        match refusal {
            Refusal::NotHealthy => {
                self.fail(requests);
                let at = now_ns();
                if let Some(occupied) = occupied {
                    occupied.free(Marks { inputs_ready: at, inference_end: at, outputs_ready: at });
                }
            }
            Refusal::Ended => put_back(requests),
            Refusal::CallsOthers(running) => {
                put_back(requests);
                let mut state = self.state.lock();
                if let Some(batch) = state.in_flight.batches.front_mut().filter(|batch| batch.id == running) {
                    batch.requeued = occupied.take();
                }
                drop(state);
            }
        }
    }

    fn fail(&self, requests: &mut [BatchEntry]) {
        for responder in requests.iter_mut().filter_map(|entry| entry.responder.take()) {
            responder.finish(Some(Err(self.not_healthy())));
        }
    }
}

/// Has the requests queued again.
fn put_back(requests: &mut [BatchEntry]) {
    // Each goes before all others.
    for entry in requests.iter_mut().rev() {
        if let Some(responder) = entry.responder.take() {
            responder.put_back(std::mem::take(entry));
        }
    }
}
