//! Sends batches to a runner and delivers the responses.

use crate::frames::write::{self, RequestHeadOf};
use crate::frames::{AnswerRef, Contents, InstanceId, ProtocolError, ResultRef, TensorRef};
use crate::generated::{
    Answer, EXECUTE_FLAG_FOLLOWED, EXECUTE_FLAG_WAITED, ExecuteHead, Frame, INLINE_BYTES_MAX,
    REQUEST_FLAG_SEQUENCE_END, REQUEST_FLAG_SEQUENCE_START, REQUEST_FLAG_TRACED, REQUESTS_MAX,
};
use crate::lifecycle::Lifecycle;
use crate::memory::{Room, SegmentError};
use crate::parameters::parameters;
use crate::runner::Owner;
use crate::runner::{BatchInFlight, Runner, RunnerState, large};
use crate::slots::{Key, RunnerRequest};
use crate::spec::Ahead;
use crate::transport::Way;
use crate::wanted::wanted;
use backend::{BatchEntry, Counted, LetGo, Marks, Occupied, Outcome, Responder, now_ns, scatter, shape};
use protocol::{CorrelationId, OutputTensor};
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{Data, DataType, Error};

/// End of a request in a batch.
#[allow(clippy::large_enum_variant)] // almost all are the large variant
enum End {
    Answered(Responder, Result<Outcome, Error>, Counted),
    Again(Box<(Responder, BatchEntry, Option<Outcome>)>, Counted),
}

impl End {
    fn happen(self) {
        match self {
            Self::Answered(responder, last, counted) => {
                responder.count_as(counted);
                responder.finish(Some(last));
            }
            Self::Again(again, counted) => {
                let (responder, entry, outcome) = *again;
                responder.count_as(counted);
                responder.again(entry, outcome);
            }
        }
    }
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
        let began = now_ns();
        let mut members: SmallVec<[Key; 4]> = SmallVec::new();
        let mut pendings: SmallVec<[RunnerRequest; 4]> = SmallVec::new();
        let mut state = self.state.lock();
        let is_free = match &state.batch {
            None => true,
            Some(batch) => batch.is_followed && state.ready.len() < self.ahead.ready_max(),
        };
        if !state.lifecycle.is_in_service() || !is_free {
            let is_down = self.ahead == Ahead::BehindSmall && state.lifecycle == Lifecycle::Ended;
            drop(state);
            if is_down {
                return put_back(requests);
            }
            return self.refuse(requests, occupied, began);
        }
        // Requests of models that call others wait in the queue, where circles of calls are found (engine::cycles).
        if self.ahead == Ahead::BehindSmall && self.asks.has_called() && state.batch.is_some() {
            let running = state.batches;
            drop(state);
            put_back(requests);
            // Their instance waits for the batch that runs, if it still does.
            let mut state = self.state.lock();
            let mut left = occupied;
            if let Some(batch) = state.batch.as_mut().filter(|batch| batch.id == running) {
                batch.holds = left.take();
            }
            drop(state);
            drop(left);
            return;
        }
        let mut buffer = std::mem::take(&mut state.buffer);
        let mut refused: SmallVec<[(Responder, Error); 1]> = SmallVec::new();
        let id = state.batches + 1;
        state.batches = id;
        // Queued again if the runner ends first.
        let waits = state.batch.is_some();
        let keeps_inputs = runs_again || waits;
        let was_small = state.was_small;
        for entry in requests.iter_mut().take(REQUESTS_MAX as usize) {
            let Some(responder) = entry.responder.take() else { continue };
            let Some(key) = state.slots.take(slots_max) else {
                let error = Error::unavailable("too many requests of this model have not been answered");
                refused.push((responder, error));
                continue;
            };
            self.memory.flag(key, false);
            members.push(key);
            pendings.push(RunnerRequest { responder, entry: std::mem::take(entry), since: began });
        }
        drop(state);

        buffer.clear();
        let frame = write::begin(&mut buffer, InstanceId::ONLY, Frame::Execute);
        let releases = self.memory.free_blocks();
        ExecuteHead { batch: id, releases: releases.free.len() as u32, flags: 0 }.write(&mut buffer);
        let flags_at = buffer.len();
        buffer.extend(releases.free.iter().flat_map(|id| id.to_le_bytes()));
        let mut inline_left = INLINE_BYTES_MAX as usize;
        let mut blocks: SmallVec<[u64; 4]> = SmallVec::new();
        let mut failed: SmallVec<[(usize, Error); 1]> = SmallVec::new();
        for (at, (key, pending)) in members.iter().zip(&mut pendings).enumerate() {
            let start = buffer.len();
            let own_from = blocks.len();
            let mut room = Room { inline_left: &mut inline_left, blocks: &mut blocks };
            let keeps = (keeps_inputs, runs_again);
            if let Err(error) = self.write_request(&mut buffer, &mut room, *key, &mut pending.entry, keeps) {
                // Frees the blocks of the inputs that were already written.
                self.memory.forget(blocks.drain(own_from..));
                buffer.truncate(start);
                failed.push((at, error));
                continue;
            }
            let (this, key) = (Arc::downgrade(self), *key);
            pending.responder.on_cancel(move || {
                if let Some(runner) = this.upgrade() {
                    runner.cancelled(key);
                }
            });
        }
        for (at, error) in failed.into_iter().rev() {
            let key = members.remove(at);
            refused.push((pendings.remove(at).responder, error));
            self.state.lock().slots.free(key);
        }
        let is_followed = match self.ahead {
            Ahead::Never => false,
            Ahead::Always(_) => true,
            Ahead::BehindSmall => {
                was_small
                    && blocks.is_empty()
                    && self.memory.has_segments()
                    && !self.limits.device_inputs
                    && !self.asks.has_called()
            }
        };
        let flags = [(is_followed, EXECUTE_FLAG_FOLLOWED), (waits, EXECUTE_FLAG_WAITED)];
        let flags: u32 = flags.iter().filter(|(is_set, _)| *is_set).map(|&(_, flag)| u32::from(flag)).sum();
        if let Some(place) = buffer.get_mut(..flags_at).and_then(|head| head.last_chunk_mut()) {
            *place = flags.to_le_bytes();
        }
        frame.count(&mut buffer, members.len() as u16);
        // Too long for a frame only with texts that all front ends reject.
        let sends = frame.end(&mut buffer).is_ok() && !members.is_empty();

        let mut state = self.state.lock();
        if sends && state.lifecycle.is_in_service() {
            for (key, pending) in members.iter().zip(pendings.drain(..)) {
                state.slots.put(*key, pending);
            }
            self.memory.batch_begins();
            let batch =
                BatchInFlight { id, members, occupied, since: now_ns(), holds: None, is_followed, is_sent: false };
            if state.batch.is_none() {
                state.batch = Some(batch);
            } else {
                batch.occupied.iter().for_each(Occupied::waits);
                state.ready.push_back(batch);
            }
            self.watch(&mut state);
            drop(state);
            // Last: the response may arrive before this returns.
            self.transport.send(Way::Work, &buffer);
            let mut state = self.state.lock();
            if buffer.capacity() <= BUFFER_BYTES_MAX {
                state.buffer = buffer;
            }
            if let Some(batch) = state.in_flight(id) {
                batch.is_sent = true;
            }
            let let_go = self.let_go(&mut state);
            drop(state);
            drop(let_go);
        } else {
            for key in &members {
                state.slots.free(*key);
            }
            drop(state);
            self.memory.keep_blocks(releases);
            self.memory.forget(blocks.into_iter());
            if let Some(occupied) = occupied {
                occupied.free(Marks { inputs_ready: began, inference_end: began, outputs_ready: began });
            }
        }
        for (responder, error) in refused {
            responder.finish(Some(Err(error)));
        }
        for RunnerRequest { responder, entry, .. } in pendings.into_iter().rev() {
            if waits && self.ahead == Ahead::BehindSmall {
                responder.put_back(entry);
            } else {
                responder.finish(Some(Err(self.not_healthy())));
            }
        }
    }

    /// Lets the instance of the last batch go if another one may lie ready behind it.
    fn let_go(&self, state: &mut RunnerState) -> Option<LetGo> {
        let RunnerState { batch, ready, .. } = state;
        let is_followed = batch.as_ref().is_some_and(|batch| batch.is_followed);
        if !is_followed || ready.len() >= self.ahead.ready_max() {
            return None;
        }
        // With several instances, one of the others would run it sooner.
        if !self.owner.upgrade().is_some_and(|owner| owner.has_one_instance()) {
            return None;
        }
        ready.back_mut().or(batch.as_mut()).filter(|last| last.is_sent)?.occupied.as_mut()?.let_go()
    }

    fn refuse(&self, requests: &mut [BatchEntry], occupied: Option<Occupied>, at: u64) {
        for entry in requests {
            match entry.responder.take() {
                Some(responder) => responder.finish(Some(Err(self.not_healthy()))),
                None => entry.result = Some(Err(self.not_healthy())),
            }
        }
        if let Some(occupied) = occupied {
            occupied.free(Marks { inputs_ready: at, inference_end: at, outputs_ready: at });
        }
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
        for (at, input) in request.inputs.iter_mut().enumerate() {
            let datatype = input.datatype.unwrap_or(DataType::Uint8);
            let reshaped = signature.and_then(|signature| {
                let spec = signature.inputs.get(usize::from(*entry.checked.inputs.get(at)?))?;
                let reshape = spec.reshape.as_ref()?;
                Some(shape::to_model(&spec.dims, Some(reshape), &input.shape, signature.batches()))
            });
            let dims = reshaped.as_ref().unwrap_or(&input.shape);
            self.memory.put(to, room, (&input.name, datatype, dims), &input.data, runs_again)?;
            if !keeps_inputs {
                // The input was copied, so the body of the request can be freed before the model runs.
                input.data = Data::empty();
            }
        }
        Ok(())
    }

    /// Handles the result of a batch.
    pub(crate) fn result(&self, result: &ResultRef<'_>) -> Result<(), ProtocolError> {
        let inference_end = now_ns();
        let mut state = self.state.lock();
        let is_it = state.batch.as_ref().is_some_and(|b| b.id == result.batch);
        let Some(batch) = state.batch.take_if(|_| is_it) else { return Err(ProtocolError("the result of no batch")) };
        state.batch = state.ready.pop_front().map(|next| BatchInFlight { since: inference_end, ..next });
        let RunnerState { batch: next, slots, .. } = &mut *state;
        let mut bodies: SmallVec<[Data; 4]> = SmallVec::new();
        if let Some(next) = next {
            next.occupied.iter().for_each(|occupied| occupied.begins(inference_end));
            // It cannot be put back any more, and belongs to no sequence, whose steps keep their inputs.
            for key in &next.members {
                let inputs = slots.pending(*key).into_iter().flat_map(|pending| &mut pending.entry.request.inputs);
                bodies.extend(inputs.map(|input| std::mem::take(&mut input.data)));
            }
        }
        let is_inline = |tensor: &TensorRef<'_>| matches!(tensor.contents, Contents::Inline(_));
        if result.failed.is_some() || result.answers.iter().any(|answer| answer.kind != Answer::None) {
            state.answered = inference_end;
        }
        state.was_small = result.answers.iter().all(|answer| answer.outputs.iter().all(is_inline));
        drop(state);
        drop(bodies);
        if result.failed.is_none() && result.answers.len() != batch.members.len() {
            // The requests end with the runner.
            self.runs_again(batch);
            return Err(ProtocolError("a result has another number of answers than its batch has requests"));
        }
        let mut ends: SmallVec<[End; 4]> = SmallVec::new();
        let mut broken = None;
        let counts = self.counts();
        for (at, key) in batch.members.iter().enumerate() {
            let answer = result.answers.get(at);
            let Some(pending) = self.state.lock().slots.lift(*key) else {
                // The request ended on the side channel, or while it lay ready.
                self.state.lock().slots.free(*key);
                answer.into_iter().flat_map(|a| &a.outputs).for_each(|t| self.memory.done_with(t));
                continue;
            };
            let outcome = match answer.map_or(Ok(None), |answer| self.outcome_of(&pending, answer)) {
                Ok(outcome) => outcome,
                Err(breach) => {
                    // This request and the following ones end with the runner.
                    self.state.lock().slots.put(*key, pending);
                    broken = Some(breach);
                    break;
                }
            };
            let mut state = self.state.lock();
            match end_of(pending, result.failed, answer, outcome, &counts) {
                Ok(end) => {
                    state.slots.free(*key);
                    ends.push(end);
                }
                Err(stays) => state.slots.put(*key, *stays),
            }
        }
        if broken.is_none() {
            broken = self.memory.released(result.releases.iter()).err();
        }
        self.memory.batch_ended();
        let marks = Marks { inputs_ready: batch.since, inference_end, outputs_ready: now_ns() };
        // Rescheduled requests first, so that the next batch can include them; responses after it has begun.
        let (again, answered): (SmallVec<[End; 4]>, SmallVec<[End; 4]>) =
            ends.into_iter().partition(|end| matches!(end, End::Again(..)));
        again.into_iter().for_each(End::happen);
        match broken {
            // The instance is not freed, because its runner is killed.
            Some(_) => self.runs_again(batch),
            None => {
                batch.occupied.into_iter().for_each(|occupied| occupied.free(marks));
                drop(batch.holds);
                // Another may lie ready now.
                let let_go = if self.ahead == Ahead::Never { None } else { self.let_go(&mut self.state.lock()) };
                drop(let_go);
            }
        }
        answered.into_iter().for_each(End::happen);
        broken.map_or(Ok(()), Err)
    }

    /// Puts back a batch whose result breaks the protocol: it ends with the runner.
    fn runs_again(&self, batch: BatchInFlight) {
        let mut state = self.state.lock();
        // The runner may have begun the next one.
        state.may_have_begun = true;
        if let Some(next) = state.batch.replace(batch) {
            state.ready.push_front(next);
        }
    }

    /// The client's part of a response in a result, if it has outputs.
    fn outcome_of(
        &self,
        pending: &RunnerRequest,
        answer: &AnswerRef<'_>,
    ) -> Result<Option<Result<Outcome, Error>>, ProtocolError> {
        match answer.kind {
            Answer::Reschedule if answer.outputs.is_empty() => Ok(None),
            Answer::Response | Answer::Reschedule => {
                pending.responder.output_begins();
                self.outcome(&pending.entry, answer).map(Some)
            }
            Answer::None | Answer::Error => Ok(None),
        }
    }

    fn reports_statistics(&self) -> bool {
        self.owner.upgrade().is_some_and(|owner| owner.reports_statistics())
    }

    fn counts(&self) -> Counts {
        let of_failed = |owner: &Arc<dyn Owner>| owner.counts_failed();
        let failed =
            if self.owner.upgrade().as_ref().is_some_and(of_failed) { Counted::Failure } else { Counted::ByLastAnswer };
        Counts { reports: self.reports_statistics(), failed }
    }

    /// Handles a response outside of a result.
    pub(crate) fn respond(&self, key: Key, answer: &AnswerRef<'_>) -> Result<(), ProtocolError> {
        match answer.kind {
            Answer::Reschedule => return Err(ProtocolError("a request is rescheduled on the side")),
            Answer::None if !answer.is_final => return Err(ProtocolError("an answer that is none")),
            _ => {}
        }
        let mut state = self.state.lock();
        if let Some(batch) = state.ready.iter().find(|batch| batch.members.contains(&key)) {
            // The result of the batch before it has not been read yet.
            batch.occupied.iter().for_each(|occupied| occupied.begins(now_ns()));
        }
        state.answered = now_ns();
        let pending = state.slots.lift(key);
        drop(state);
        let Some(pending) = pending else {
            // The request has ended, but the model kept its sender.
            answer.outputs.iter().for_each(|t| self.memory.done_with(t));
            return Ok(());
        };
        let last = match answer.kind {
            Answer::None | Answer::Reschedule => None,
            Answer::Error => Some(Err(Error::new(answer.code, answer.error.to_owned()).by_model())),
            Answer::Response => {
                pending.responder.output_begins();
                match self.outcome(&pending.entry, answer) {
                    Ok(outcome) => Some(outcome),
                    Err(breach) => {
                        // The request ends with the runner.
                        self.state.lock().slots.put(key, pending);
                        return Err(breach);
                    }
                }
            }
        };
        if !answer.is_final {
            match last {
                Some(Ok(outcome)) => drop(pending.responder.send(outcome)),
                Some(Err(error)) => pending.responder.fail(error),
                None => {}
            }
            self.state.lock().slots.put(key, pending);
            return Ok(());
        }
        self.state.lock().slots.free(key);
        pending.responder.count_as(counted(answer, &self.counts()));
        pending.responder.finish(last);
        Ok(())
    }

    /// The client's part of a response: the requested outputs in the order of the response, in the requested locations.
    /// Nothing else about them is checked (B-PY-14).
    fn outcome(&self, entry: &BatchEntry, answer: &AnswerRef<'_>) -> Result<Result<Outcome, Error>, ProtocolError> {
        let Some(owner) = self.owner.upgrade() else { return Ok(Err(self.not_healthy())) };
        let signature = owner.signature();
        let mut outcome = Outcome { parameters: parameters(answer.parameters)?, ..Outcome::default() };
        let mut failed = None;
        for tensor in &answer.outputs {
            let Some((index, slot, name)) = wanted(&*owner, entry, tensor.name).filter(|_| failed.is_none()) else {
                // The location is checked even if the output is not requested.
                self.memory.check(tensor.contents)?;
                self.memory.done_with(tensor);
                continue;
            };
            let spec = signature.outputs.get(usize::from(index));
            // A shape that does not match is passed to the client unchanged.
            let reshaped = spec.filter(|spec| spec.reshape.is_some()).and_then(|spec| {
                shape::to_client(&spec.dims, spec.reshape.as_ref(), &tensor.shape, signature.batches())
            });
            match self.locate(tensor, entry, slot) {
                Ok(data) => outcome.outputs.push(OutputTensor {
                    name,
                    index,
                    datatype: tensor.datatype,
                    shape: reshaped.unwrap_or_else(|| tensor.shape.clone()),
                    data,
                    form: scatter::form_of(entry, slot),
                }),
                Err(SegmentError::ProtocolError(breach)) => return Err(breach),
                Err(SegmentError::Short(error)) => failed = Some(error),
            }
        }
        Ok(failed.map_or(Ok(outcome), Err))
    }

    /// Puts one output into the location that the client requested.
    fn locate(&self, tensor: &TensorRef<'_>, entry: &BatchEntry, slot: Option<u16>) -> Result<Data, SegmentError> {
        let bytes = usize::try_from(tensor.contents.count()).unwrap_or(usize::MAX);
        let Some(region) = scatter::region_for(entry, slot, bytes) else {
            if let Some(region) =
                large::block_that_stays(tensor, entry, slot).and_then(|block| self.memory.lend_output(block))
            {
                return Ok(Data::Region(region));
            }
            let Contents::Device(lent) = tensor.contents else { return self.memory.take(tensor) };
            if !scatter::form_of(entry, slot).anywhere {
                return self.memory.take(tensor);
            }
            // Copied on the device, because the runner can still write to its own memory.
            let left =
                self.memory.part(lent).and_then(|part| scatter::kept_on_device(part).map_err(SegmentError::Short));
            self.memory.done_with(tensor);
            return left;
        };
        let data = match tensor.contents {
            // Copied directly; strings are checked in a private copy.
            Contents::Block(block) if tensor.datatype != DataType::Bytes => Data::Region(self.memory.block(block)?),
            Contents::Device(lent) => {
                Data::Region(self.memory.part(lent).inspect_err(|_| self.memory.done_with(tensor))?)
            }
            _ => self.memory.take(tensor)?,
        };
        let placed = scatter::place(tensor.name, data, Some(region)).map_err(SegmentError::Short);
        if tensor.datatype != DataType::Bytes {
            self.memory.done_with(tensor);
        }
        placed
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

/// End of a request after a result. `Err` if the request stays open.
fn end_of(
    pending: RunnerRequest,
    failed: Option<&str>,
    answer: Option<&AnswerRef<'_>>,
    outcome: Option<Result<Outcome, Error>>,
    counts: &Counts,
) -> Result<End, Box<RunnerRequest>> {
    let RunnerRequest { responder, entry, since } = pending;
    if let Some(text) = failed {
        return Ok(End::Answered(responder, Err(Error::internal(text.to_owned()).by_model()), counts.failed));
    }
    Ok(match (answer.map(|answer| (answer.kind, answer)), outcome) {
        (Some((Answer::Error, answer)), _) => {
            let error = Error::new(answer.code, answer.error.to_owned()).by_model();
            End::Answered(responder, Err(error), counted(answer, counts))
        }
        (Some((Answer::Response, answer)), Some(outcome)) => End::Answered(responder, outcome, counted(answer, counts)),
        (Some((Answer::Reschedule, answer)), outcome) => {
            End::Again(Box::new((responder, entry, outcome.and_then(Result::ok))), counted(answer, counts))
        }
        _ => return Err(Box::new(RunnerRequest { responder, entry, since })),
    })
}

/// How the requests of a model count.
struct Counts {
    /// The model reports its own statistics.
    reports: bool,
    /// How a request counts in which the model failed.
    failed: Counted,
}

/// How the request of a last answer counts. As in Triton, an error that the model responds with is a success, and an
/// exception is a failure. A model that reports its own statistics is counted by its reports, unless it failed.
fn counted(answer: &AnswerRef<'_>, counts: &Counts) -> Counted {
    match answer.kind {
        _ if answer.is_failed => counts.failed,
        _ if counts.reports => Counted::Nothing,
        Answer::Error => Counted::Success,
        _ => Counted::ByLastAnswer,
    }
}

/// Maximum bytes of a buffer that is kept for the next batch.
const BUFFER_BYTES_MAX: usize = 64 << 10;
