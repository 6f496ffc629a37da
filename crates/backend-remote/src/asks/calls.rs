//! Inference by other models on behalf of a runner (B-PY-10 to B-PY-13): from its CALL to the last CALL_RESPONSE.
//!
//! A rejected call gets the error text of Triton, `Model <m> - Error when running inference: <reason>`, and always code
//! INTERNAL; a call that fails keeps its own text and code. Calls end with their process, and are cancelled with the
//! request they were made for.
//!
//! Invariant: a call is in the table from its CALL until its final response is sent, or would be sent if it were not
//! closed. No lock is held while the server is called, because it may respond at once on the same thread.

use super::peer::Peer;
use crate::frames::{CallRef, InstanceId, ProtocolError, RequestRef, write};
use crate::generated::{
    ANSWER_FLAG_FAILED, ANSWER_FLAG_FINAL, Answer, AnswerHead, INLINE_BYTES_MAX, REQUEST_FLAG_SEQUENCE_END,
    REQUEST_FLAG_SEQUENCE_START,
};
use crate::memory::{Room, SegmentError};
use crate::parameters::parameters;
use crate::slots::Key;
use crate::transport::Way;
use backend::{Call, CallAnswers, ModelCall, now_ns};
use parking_lot::Mutex;
use protocol::{CorrelationId, InferRequest, InferResponse, InputTensor, OutputForm, RequestedOutput, Sequence};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Error, Result};

/// Maximum number of calls that one process has in progress (B-SEC-07).
pub(crate) const CALLS_MAX: usize = 1024;
/// Maximum number of requests that a program which embeds the server has in progress: it is the server's only client.
const PROGRAM_CALLS_MAX: usize = 16_384;

/// Form of outputs that are passed on unchanged.
const UNCHANGED: OutputForm = OutputForm { binary: true, classification: 0, anywhere: false };

/// Calls of one process.
#[derive(Default)]
pub(crate) struct Calls {
    open: Mutex<HashMap<u64, RunnerCall>>,
}

struct RunnerCall {
    /// Socket that the call came on; its responses go there.
    way: Way,
    /// Request that the call is made for, if known.
    parent: Option<Key>,
    /// Batch that waits for the call.
    batch: Option<u64>,
    /// Time of the CALL, in ns.
    since: u64,
    is_decoupled: bool,
    /// Absent until the server has accepted the call.
    handle: Option<Arc<dyn Call>>,
    is_cancelled: bool,
    /// No more responses are sent to the runner.
    is_closed: bool,
}

/// A call that the server has accepted.
pub(crate) struct CallInProgress {
    pub(crate) call: Arc<dyn Call>,
    /// Request that the call is made for, if known.
    pub(crate) parent: Option<Key>,
    /// Batch that waits for the call.
    pub(crate) batch: Option<u64>,
    pub(crate) since: u64,
}

impl Calls {
    pub(crate) fn open(&self) -> usize {
        self.open.lock().len()
    }

    /// Accepted calls that were made before time `at`.
    pub(crate) fn made_before(&self, at: u64) -> Vec<CallInProgress> {
        let open = self.open.lock();
        let old = open.values().filter(|open| open.since < at);
        let in_progress = |open: &RunnerCall| {
            let RunnerCall { parent, batch, since, .. } = *open;
            Some(CallInProgress { call: open.handle.clone()?, parent, batch, since })
        };
        old.filter_map(in_progress).collect()
    }

    /// Starts a call.
    ///
    /// # Errors
    /// If the call breaks the protocol: the runner is killed.
    pub(crate) fn start(
        self: &Arc<Self>,
        peer: &Arc<dyn Peer>,
        way: Way,
        call: &CallRef<'_>,
    ) -> Result<(), ProtocolError> {
        let form = OutputForm { anywhere: call.takes_devices && peer.takes_devices(), ..UNCHANGED };
        let request = match request(&**peer, &call.request, form)? {
            Ok(request) => request,
            Err(error) => {
                reject(&**peer, way, call, &error);
                return Ok(());
            }
        };
        let Some(host) = peer.host() else {
            reject(&**peer, way, call, &Error::unavailable("there is no server for this call"));
            return Ok(());
        };
        let caller = peer.parent(call.parent);
        let mut open = self.open.lock();
        if open.contains_key(&call.call) {
            return Err(ProtocolError("two calls have the same number"));
        }
        let (most, what) = match peer.model().is_empty() {
            true => (PROGRAM_CALLS_MAX, "this program has {} inferences in progress"),
            false => (CALLS_MAX, "this instance has {} inferences of other models in progress"),
        };
        if open.len() >= most {
            drop(open);
            reject(&**peer, way, call, &Error::unavailable(what.replace("{}", &most.to_string())));
            return Ok(());
        }
        let is_decoupled = call.is_decoupled;
        let new = RunnerCall {
            way,
            parent: caller.key,
            batch: caller.batch,
            since: now_ns(),
            is_decoupled,
            handle: None,
            is_cancelled: false,
            is_closed: false,
        };
        open.insert(call.call, new);
        drop(open);

        let depth = caller.depth.saturating_add(1);
        let parent_trace = caller.trace.filter(|_| call.is_traced);
        let request = Box::new(InferRequest { depth, priority: call.priority.into(), ..request });
        let model_call = ModelCall {
            model: call.model.to_owned(),
            version: call.version,
            request,
            decoupled: is_decoupled,
            parent_trace,
            is_only_checked: call.is_only_checked,
        };
        let answers = Answers { calls: self.clone(), peer: peer.clone(), call: call.call };
        match host.call(model_call, Arc::new(answers)) {
            Ok(handle) => {
                if call.is_acknowledged && !call.is_only_checked {
                    let mut out = Vec::new();
                    let head = AnswerHead::default();
                    // It has a fixed length.
                    let _ = write::call_response(&mut out, InstanceId::ONLY, call.call, head, "", "").end(&mut out);
                    peer.send(way, &out);
                }
                self.set_handle(call.call, handle.into());
            }
            Err(error) => {
                let was = self.open.lock().remove(&call.call);
                if was.is_some_and(|open| !open.is_closed) {
                    reject(&**peer, way, call, &error);
                }
            }
        }
        Ok(())
    }

    fn set_handle(&self, call: u64, handle: Arc<dyn Call>) {
        let mut open = self.open.lock();
        let is_wanted = match open.get_mut(&call) {
            Some(open) => {
                open.handle = Some(handle.clone());
                !open.is_cancelled
            }
            // The call has ended, so cancelling does nothing; or its process has, and the call must be cancelled.
            None => false,
        };
        drop(open);
        if !is_wanted {
            handle.cancel();
        }
    }

    /// Cancels a call; its final response is still sent.
    pub(crate) fn cancel(&self, call: u64) {
        self.stop(|number, _| number == call, false);
    }

    /// Cancels a call; none of its responses is sent any more.
    pub(crate) fn close(&self, call: u64) {
        self.stop(|number, _| number == call, true);
    }

    /// Cancels the calls made for a request.
    pub(crate) fn parent_cancelled(&self, parent: Key) {
        self.stop(|_, open| open.parent == Some(parent), false);
    }

    /// Cancels all calls because the process has ended.
    pub(crate) fn closed(&self) {
        let all = std::mem::take(&mut *self.open.lock());
        all.into_values().filter_map(|open| open.handle).for_each(|handle| handle.cancel());
    }

    fn stop(&self, is_selected: impl Fn(u64, &RunnerCall) -> bool, closes: bool) {
        let mut handles: SmallVec<[Arc<dyn Call>; 4]> = SmallVec::new();
        let mut open = self.open.lock();
        for (number, open) in open.iter_mut() {
            if is_selected(*number, open) {
                open.is_closed |= closes;
                open.is_cancelled = true;
                handles.extend(open.handle.clone());
            }
        }
        drop(open);
        handles.iter().for_each(|handle| handle.cancel());
    }
}

/// Sends the responses of one call to the runner.
struct Answers {
    calls: Arc<Calls>,
    peer: Arc<dyn Peer>,
    call: u64,
}

impl CallAnswers for Answers {
    fn answer(&self, response: Option<Result<Box<InferResponse>>>, is_final: bool) {
        let mut open = self.calls.open.lock();
        let Some(it) = open.get_mut(&self.call) else { return };
        let (way, is_closed, is_decoupled) = (it.way, it.is_closed, it.is_decoupled);
        // The caller waits for one response only.
        it.is_closed |= !is_decoupled;
        if is_final {
            open.remove(&self.call);
        }
        drop(open);
        if is_closed {
            return;
        }
        let flags = if is_final || !is_decoupled { ANSWER_FLAG_FINAL } else { 0 };
        let mut out = Vec::new();
        if let Err(error) = write_answer(&*self.peer, &mut out, self.call, flags, response) {
            // No space: the runner reads too slowly, or the response is larger than the limit.
            self.calls.close(self.call);
            out.clear();
            write_error(&mut out, self.call, &error);
        }
        self.peer.send(way, &out);
    }
}

/// Answers a call that the server did not accept.
#[cold]
fn reject(peer: &dyn Peer, way: Way, call: &CallRef<'_>, why: &Error) {
    let mut out = Vec::new();
    if call.is_acknowledged {
        write_failure(&mut out, call.call, ANSWER_FLAG_FINAL | ANSWER_FLAG_FAILED, why);
    } else {
        let text = format!("Model {} - Error when running inference: {}", call.model, why.message());
        write_error(&mut out, call.call, &Error::internal(text));
    }
    peer.send(way, &out);
}

fn write_error(out: &mut Vec<u8>, call: u64, error: &Error) {
    write_failure(out, call, ANSWER_FLAG_FINAL, error);
}

fn write_failure(out: &mut Vec<u8>, call: u64, flags: u8, error: &Error) {
    let head = AnswerHead { kind: Answer::Error as u8, flags, code: error.code() as u32, ..AnswerHead::default() };
    // Error texts are much shorter than a frame, so this cannot fail.
    let _ = write::call_response(out, InstanceId::ONLY, call, head, "", error.message()).end(out);
}

fn write_answer(
    peer: &dyn Peer,
    out: &mut Vec<u8>,
    call: u64,
    flags: u8,
    response: Option<Result<Box<InferResponse>>>,
) -> Result<()> {
    let head = AnswerHead { flags, ..AnswerHead::default() };
    let (kind, response) = match response {
        None => (Answer::None, None),
        Some(Ok(response)) => (Answer::Response, Some(response)),
        Some(Err(error)) => {
            let head = AnswerHead { kind: Answer::Error as u8, code: error.code() as u32, ..head };
            let _ = write::call_response(out, InstanceId::ONLY, call, head, "", error.message()).end(out);
            return Ok(());
        }
    };
    let InferResponse { outputs, parameters, .. } = response.map(|r| *r).unwrap_or_default();
    let mut json = Vec::new();
    write::parameters(&mut json, &parameters);
    let json = String::from_utf8_lossy(&json);
    let count = u16::try_from(outputs.len()).map_err(|_| Error::internal("a response has too many outputs"))?;
    let head = AnswerHead { kind: kind as u8, outputs: count, ..head };
    let frame = write::call_response(out, InstanceId::ONLY, call, head, &json, "");
    let mut inline_left = INLINE_BYTES_MAX as usize;
    let mut blocks = SmallVec::new();
    let mut room = Room { inline_left: &mut inline_left, blocks: &mut blocks };
    for output in &outputs {
        if let Err(error) = peer.put(out, &mut room, (&output.name, output.datatype, &output.shape), &output.data) {
            peer.forget(&blocks);
            return Err(error);
        }
    }
    frame.end(out).map_err(|_| {
        peer.forget(&blocks);
        Error::internal("a response is longer than a frame may be")
    })
}

/// The request, with its tensors copied out of the runner's segments. Their blocks are returned in any case.
fn request(peer: &dyn Peer, from: &RequestRef<'_>, form: OutputForm) -> Result<Result<InferRequest>, ProtocolError> {
    let parameters = parameters(from.parameters)?;
    let mut failed = None;
    let mut inputs = SmallVec::with_capacity(from.inputs.len());
    for tensor in &from.inputs {
        if failed.is_some() {
            peer.done_with(tensor);
            continue;
        }
        match peer.take(tensor) {
            Ok(data) => inputs.push(InputTensor {
                name: tensor.name.into(),
                datatype: Some(tensor.datatype),
                shape: tensor.shape.clone(),
                data,
            }),
            Err(SegmentError::ProtocolError(breach)) => return Err(breach),
            Err(SegmentError::Short(error)) => failed = Some(error),
        }
    }
    if let Some(error) = failed {
        return Ok(Err(error));
    }
    let head = &from.head;
    let id = if from.correlation.is_empty() {
        CorrelationId::Number(head.correlation)
    } else {
        CorrelationId::String(from.correlation.into())
    };
    let requested = |name: &&str| RequestedOutput { name: (*name).into(), form, region: None };
    Ok(Ok(InferRequest {
        id: from.id.into(),
        inputs,
        // No names mean all outputs.
        outputs: from.outputs.iter().flatten().map(requested).collect(),
        default_form: form,
        parameters,
        sequence: Sequence {
            id,
            start: head.flags & u32::from(REQUEST_FLAG_SEQUENCE_START) != 0,
            end: head.flags & u32::from(REQUEST_FLAG_SEQUENCE_END) != 0,
        },
        timeout_us: head.timeout_us,
        ..InferRequest::default()
    }))
}
