//! Events in the traces of requests.

use crate::pending::Requests;
use crate::statistics::Statistics;
use crate::times::Timings;
use protocol::InferResponse;
use scheduler::Cause;
use tensor::Result;
use trace::{TensorSide, Trace};

/// Records that a request ran.
pub(crate) fn ran(trace: &Trace, timings: &Timings) {
    let marks = timings.marks;
    trace.computed([timings.start, marks.inputs_ready, marks.inference_end, marks.outputs_ready]);
}

/// Records why a batch begins.
#[inline]
pub(crate) fn begin(requests: &Requests, why: Cause) {
    for trace in requests.iter().filter_map(|q| q.0.entry.request.trace.as_ref()) {
        _ = trace.phases().cause.set(why.name());
    }
}

/// Records the only response of a request.
pub(crate) fn answered(trace: &Trace, result: &Result<Box<InferResponse>>, now: u64) {
    match result {
        Ok(response) => {
            if trace.wants_tensors() {
                for output in &response.outputs {
                    trace.tensor(TensorSide::BackendOutput, &output.name, output.datatype, &output.shape, &output.data);
                }
            }
            trace.ended(now, None);
        }
        Err(error) => trace.ended(now, Some(error)),
    }
}

/// Records that a request ran, in a batch of this many rows, and its only response.
pub(crate) fn ran_and_answered(
    trace: &Trace,
    statistics: &Statistics,
    timings: &Timings,
    rows: u32,
    result: &Result<Box<InferResponse>>,
) {
    trace.batched(rows);
    if result.is_ok() {
        statistics.exemplify(trace, timings);
    }
    ran(trace, timings);
    answered(trace, result, timings.end);
}
