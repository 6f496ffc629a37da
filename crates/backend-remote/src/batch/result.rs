//! Ends batches with their results.

use super::response::Counts;
use super::{BRIEF_NS, BatchInFlight};
use crate::frames::{AnswerRef, Contents, ProtocolError, ResultRef, TensorRef};
use crate::generated::Answer;
use crate::runner::{Runner, RunnerState};
use crate::slots::{Key, RunnerRequest};
use backend::{BatchEntry, Counted, Marks, Outcome, Responder, now_ns};
use smallvec::SmallVec;
use tensor::{Data, Error};

/// The requests of a batch, in its order; `None` for one that has ended.
type Requests = SmallVec<[Option<RunnerRequest>; 4]>;

/// A request whose last response was read.
struct Answered {
    responder: Responder,
    last: Result<Outcome, Error>,
    counted: Counted,
}

/// A request that is to run again, and its response.
struct Rescheduled {
    responder: Responder,
    entry: BatchEntry,
    outcome: Option<Outcome>,
    counted: Counted,
}

/// Ends of the requests of a batch.
#[derive(Default)]
struct Ends {
    answered: SmallVec<[Answered; 4]>,
    rescheduled: Vec<Rescheduled>,
    /// Their last responses come outside of results, or they end with the runner.
    open: Vec<(Key, RunnerRequest)>,
    /// How a response broke the protocol.
    breach: Option<ProtocolError>,
}

impl Runner {
    /// Handles the result of a batch.
    pub(crate) fn result(&self, result: &ResultRef<'_>) -> Result<(), ProtocolError> {
        let inference_end = now_ns();
        let (batch, requests) = self.end_batch(result, inference_end)?;
        let mut ends = Ends::default();
        let counts = self.counts();
        for (at, (key, request)) in batch.members.iter().zip(requests).enumerate() {
            let answer = result.answers.get(at);
            match request {
                Some(request) => self.end_request((*key, request), (result.failed, answer), &counts, &mut ends),
                // It ended outside of the result, or while it was prefetched.
                None => answer.into_iter().flat_map(|a| &a.outputs).for_each(|t| self.memory.done_with(t)),
            }
        }
        let Ends { answered, rescheduled, open, breach } = ends;
        let breach = breach.or_else(|| self.memory.released(result.releases.iter()).err());
        self.memory.batch_ended();
        let marks = Marks { inputs_ready: batch.since, inference_end, outputs_ready: now_ns() };
        let mut state = self.state.lock();
        let RunnerState { slots, in_flight, .. } = &mut *state;
        open.into_iter().for_each(|(key, request)| slots.put(key, request));
        batch.members.iter().for_each(|key| slots.free_answered(*key));
        let ended = match breach {
            // Its instance is not freed, because the runner is killed.
            Some(_) => {
                in_flight.restore(batch);
                None
            }
            None => Some((batch, in_flight.offer(|| self.has_one_instance()))),
        };
        drop(state);
        // Before the instance is freed, so that the next batch can include them.
        for Rescheduled { responder, entry, outcome, counted } in rescheduled {
            responder.count_as(counted);
            responder.again(entry, outcome);
        }
        if let Some((batch, offer)) = ended {
            batch.occupied.into_iter().for_each(|occupied| occupied.free(marks));
            drop((batch.requeued, offer));
        }
        // After the next batch has begun.
        for Answered { responder, last, counted } in answered {
            responder.count_as(counted);
            responder.finish(Some(last));
        }
        breach.map_or(Ok(()), Err)
    }

    /// Takes the batch of a result and its requests, which keep their slots.
    fn end_batch(&self, result: &ResultRef<'_>, at: u64) -> Result<(BatchInFlight, Requests), ProtocolError> {
        let mut state = self.state.lock();
        let RunnerState { slots, in_flight, answered, .. } = &mut *state;
        let running = in_flight.running().filter(|batch| batch.id == result.batch);
        let members = running.map(|batch| batch.members.len()).ok_or(ProtocolError("a result without a batch"))?;
        if result.failed.is_none() && result.answers.len() != members {
            // The requests end with the runner.
            in_flight.unread();
            return Err(ProtocolError(
                "the number of responses in a result differs from the number of requests in its batch",
            ));
        }
        let batch = in_flight.end(at).ok_or(ProtocolError("a result without a batch"))?;
        let requests = batch.members.iter().map(|key| slots.lift(*key)).collect();
        if result.failed.is_some() || result.answers.iter().any(|answer| answer.kind != Answer::None) {
            *answered = at;
        }
        in_flight.was_brief = at.saturating_sub(batch.since) < BRIEF_NS;
        let is_inline = |tensor: &TensorRef<'_>| matches!(tensor.contents, Contents::Inline(_));
        in_flight.was_small = result.answers.iter().all(|answer| answer.outputs.iter().all(is_inline));
        let mut bodies: SmallVec<[Data; 4]> = SmallVec::new();
        // The next batch cannot be queued again any more, and belongs to no sequence, whose steps keep their inputs.
        for key in in_flight.running().into_iter().flat_map(|next| &next.members) {
            let inputs = slots.pending(*key).into_iter().flat_map(|request| &mut request.entry.request.inputs);
            bodies.extend(inputs.map(|input| std::mem::take(&mut input.data)));
        }
        drop(state);
        drop(bodies);
        Ok((batch, requests))
    }

    /// Adds the end of a request of a batch to `ends`.
    fn end_request(
        &self,
        (key, request): (Key, RunnerRequest),
        (failed, answer): (Option<&str>, Option<&AnswerRef<'_>>),
        counts: &Counts,
        ends: &mut Ends,
    ) {
        let read = match (failed, answer) {
            // This request and the following ones end with the runner.
            _ if ends.breach.is_some() => Ok(None),
            (Some(text), _) => Ok(Some(Err(Error::internal(text.to_owned()).by_model()))),
            (None, Some(answer)) => self.read(&request, answer),
            (None, None) => Ok(None),
        };
        let outcome = read.unwrap_or_else(|breach| {
            ends.breach = Some(breach);
            None
        });
        let is_rescheduled = ends.breach.is_none() && answer.is_some_and(|answer| answer.kind == Answer::Reschedule);
        let counted = answer.map_or(counts.failed, |answer| counts.of(answer));
        match outcome {
            outcome if is_rescheduled => {
                let RunnerRequest { responder, entry, .. } = request;
                ends.rescheduled.push(Rescheduled { responder, entry, outcome: outcome.and_then(Result::ok), counted });
            }
            Some(last) => ends.answered.push(Answered { responder: request.responder, last, counted }),
            None => ends.open.push((key, request)),
        }
    }
}
