//! What a version notes of its requests that are traced. A request that is not has `trace: None`, and comes here only to be told so.

use crate::statistics::Timings;
use crate::version::ModelVersion;
use protocol::{InferRequest, InferResponse};
use tensor::Result;
use trace::{Kind, Trace};

impl ModelVersion {
    /// A request was accepted.
    #[cold]
    pub(crate) fn trace_accepted(&self, trace: &Trace, request: &InferRequest, now: u64) {
        trace.accepted(&self.signature.model, self.identity.number, &request.id, now);
        // Triton's scheduler of sequences notes none.
        if trace.wants_tensors() && self.scheduling.sequencing.is_none() {
            for input in &request.inputs {
                if let Some(datatype) = input.datatype {
                    trace.tensor(Kind::QueueInput, &input.name, datatype, &input.shape, &input.data);
                }
            }
        }
    }
}

/// Notes that a request ran.
pub(crate) fn ran(trace: &Trace, timings: &Timings) {
    let marks = timings.marks;
    trace.computed([timings.start, marks.inputs_ready, marks.inference_end, marks.outputs_ready]);
}

/// Notes the one answer of a request.
#[cold]
pub(crate) fn answered(trace: &Trace, result: &Result<Box<InferResponse>>, now: u64) {
    match result {
        Ok(response) => {
            if trace.wants_tensors() {
                for output in &response.outputs {
                    trace.tensor(Kind::BackendOutput, &output.name, output.datatype, &output.shape, &output.data);
                }
            }
            trace.ended(now, None);
        }
        Err(error) => trace.ended(now, Some(error)),
    }
}

/// Notes that a request ran, in a batch of so many rows, and its one answer.
#[cold]
pub(crate) fn ran_and_answered(trace: &Trace, timings: &Timings, rows: u32, result: &Result<Box<InferResponse>>) {
    trace.batched(rows);
    ran(trace, timings);
    answered(trace, result, timings.end);
}
