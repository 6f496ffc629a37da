//! Reads responses of a runner: checks them, and copies their outputs.

use crate::frames::{AnswerRef, Contents, ProtocolError, TensorRef};
use crate::generated::Answer;
use crate::memory::SegmentError;
use crate::parameters::parameters;
use crate::runner::{Runner, large};
use crate::selection::selected_output;
use crate::slots::{Key, RunnerRequest};
use backend::{BatchEntry, Counted, Outcome, now_ns, scatter, shape};
use protocol::OutputTensor;
use tensor::{Data, DataType, Error};

/// How the requests of a model count.
pub(super) struct Counts {
    /// The model reports its own statistics.
    reports: bool,
    /// How a request counts in which the model failed.
    pub(super) failed: Counted,
}

impl Counts {
    /// How the request of a last answer counts. As in Triton, an error that the model responds with is a success, and
    /// an exception is a failure. A model that reports its own statistics is counted by its reports, unless it failed.
    pub(super) fn of(&self, answer: &AnswerRef<'_>) -> Counted {
        match answer.kind {
            _ if answer.is_failed => self.failed,
            _ if self.reports => Counted::Nothing,
            Answer::Error => Counted::Success,
            _ => Counted::ByLastAnswer,
        }
    }
}

impl Runner {
    /// Handles a response outside of a result.
    pub(crate) fn respond(&self, key: Key, answer: &AnswerRef<'_>) -> Result<(), ProtocolError> {
        match answer.kind {
            Answer::Reschedule => return Err(ProtocolError("a request is rescheduled outside of its batch")),
            Answer::None if !answer.is_final => return Err(ProtocolError("an empty response that is not final")),
            _ => {}
        }
        let mut state = self.state.lock();
        if let Some(batch) = state.in_flight.prefetched_with(key) {
            // The result of the batch before it has not been read yet.
            batch.occupied.iter().for_each(|occupied| occupied.begins(now_ns()));
        }
        state.answered = now_ns();
        let request = state.slots.lift(key);
        drop(state);
        let Some(request) = request else {
            // The request has ended, but the model kept its sender.
            answer.outputs.iter().for_each(|t| self.memory.done_with(t));
            return Ok(());
        };
        let last = match self.read(&request, answer) {
            Ok(last) => last,
            Err(breach) => {
                // The request ends with the runner.
                self.state.lock().slots.put(key, request);
                return Err(breach);
            }
        };
        if !answer.is_final {
            match last {
                Some(Ok(outcome)) => drop(request.responder.send(outcome)),
                Some(Err(error)) => request.responder.fail(error),
                None => {}
            }
            self.state.lock().slots.put(key, request);
            return Ok(());
        }
        self.state.lock().slots.free(key);
        request.responder.count_as(self.counts().of(answer));
        request.responder.finish(last);
        Ok(())
    }

    /// The client's part of a response, if it has one.
    pub(super) fn read(
        &self,
        request: &RunnerRequest,
        answer: &AnswerRef<'_>,
    ) -> Result<Option<Result<Outcome, Error>>, ProtocolError> {
        match answer.kind {
            Answer::None => Ok(None),
            Answer::Error => Ok(Some(Err(Error::new(answer.code, answer.error.to_owned()).by_model()))),
            Answer::Reschedule if answer.outputs.is_empty() => Ok(None),
            Answer::Response | Answer::Reschedule => {
                request.responder.output_begins();
                self.outcome(&request.entry, answer).map(Some)
            }
        }
    }

    pub(super) fn reports_statistics(&self) -> bool {
        self.owner.upgrade().is_some_and(|owner| owner.spec().reports_statistics)
    }

    pub(super) fn counts(&self) -> Counts {
        let owner = self.owner.upgrade();
        let (reports, counts_failed) = owner.map_or((false, false), |owner| {
            let spec = owner.spec();
            (spec.reports_statistics, spec.counts_failed)
        });
        Counts { reports, failed: if counts_failed { Counted::Failure } else { Counted::ByLastAnswer } }
    }

    /// The client's part of a response: the requested outputs in the order of the response, in the requested locations.
    /// Nothing else about them is checked (B-PY-14).
    fn outcome(&self, entry: &BatchEntry, answer: &AnswerRef<'_>) -> Result<Result<Outcome, Error>, ProtocolError> {
        let Some(owner) = self.owner.upgrade() else { return Ok(Err(self.not_healthy())) };
        let signature = owner.signature();
        let mut outcome = Outcome { parameters: parameters(answer.parameters)?, ..Outcome::default() };
        let mut failed = None;
        for tensor in &answer.outputs {
            let Some((index, slot, name)) = selected_output(&*owner, entry, tensor.name).filter(|_| failed.is_none())
            else {
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
            let lent = match tensor.contents {
                Contents::Device(lent) if scatter::form_of(entry, slot).anywhere => lent,
                _ => {
                    entry.copied_out(bytes);
                    return self.memory.take(tensor);
                }
            };
            // Copied on the device, because the runner can still write to its own memory.
            let left =
                self.memory.part(lent).and_then(|part| scatter::kept_on_device(part).map_err(SegmentError::Short));
            self.memory.done_with(tensor);
            return left;
        };
        entry.copied_out(bytes);
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
