//! Inferences that a runner wants of other models (B-PY-10 to B-PY-13): from its CALL to the last CALL_RESPONSE.
//!
//! An inference that is refused is answered with the text that Triton's models know, `Model <m> - Error when running inference: <reason>`, and
//! always INTERNAL; one that fails keeps its own text and code. What a process has called ends with it, and what was called for a
//! request is cancelled with that.
//!
//! Invariant: a call is in the table from its CALL until its final answer was sent, or would have been. No lock is held while the server is
//! called, which may answer at once and on the same thread.

use super::peer::Peer;
use crate::frames::{CallRef, InstanceId, Lie, RequestRef, write};
use crate::generated::{
    ANSWER_FLAG_FINAL, Answer, AnswerHead, INLINE_BYTES_MAX, REQUEST_FLAG_SEQUENCE_END, REQUEST_FLAG_SEQUENCE_START,
};
use crate::memory::{Refused, Room};
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

/// Inferences that one process may have in progress (B-SEC-07).
pub(crate) const CALLS_MAX: usize = 1024;

/// Outputs are handed on as they are.
const AS_IT_IS: OutputForm = OutputForm { binary: true, classification: 0, anywhere: false };

/// Those of one process.
#[derive(Default)]
pub(crate) struct Calls {
    open: Mutex<HashMap<u64, Open>>,
}

struct Open {
    /// The socket it came on: its answers go there.
    way: Way,
    /// The request it is made for, if that is known.
    parent: Option<Key>,
    /// The batch that waits for it.
    batch: Option<u64>,
    /// When it was made.
    since: u64,
    is_decoupled: bool,
    /// Absent until the server has it.
    handle: Option<Arc<dyn Call>>,
    is_cancelled: bool,
    /// Its answers are not sent any more.
    is_closed: bool,
}

/// A call in progress.
pub(crate) struct Made {
    pub(crate) call: Arc<dyn Call>,
    /// The request it is made for, if that is known.
    pub(crate) parent: Option<Key>,
    /// The batch that waits for it.
    pub(crate) batch: Option<u64>,
    pub(crate) since: u64,
}

impl Calls {
    /// How many are in progress.
    pub(crate) fn open(&self) -> usize {
        self.open.lock().len()
    }

    /// Those that the server has and that were made before a time.
    pub(crate) fn made_before(&self, at: u64) -> Vec<Made> {
        let open = self.open.lock();
        let old = open.values().filter(|open| open.since < at);
        let made = |open: &Open| {
            let Open { parent, batch, since, .. } = *open;
            Some(Made { call: open.handle.clone()?, parent, batch, since })
        };
        old.filter_map(made).collect()
    }

    /// Starts one.
    ///
    /// # Errors
    /// It breaks a rule; the runner is killed.
    pub(crate) fn start(self: &Arc<Self>, peer: &Arc<dyn Peer>, way: Way, call: &CallRef<'_>) -> Result<(), Lie> {
        let form = OutputForm { anywhere: call.takes_devices && peer.takes_devices(), ..AS_IT_IS };
        let request = match request(&**peer, &call.request, form)? {
            Ok(request) => request,
            Err(error) => {
                refuse(&**peer, way, call, &error);
                return Ok(());
            }
        };
        let Some(host) = peer.host() else {
            refuse(&**peer, way, call, &Error::unavailable("there is no server to ask"));
            return Ok(());
        };
        let caller = peer.parent(call.parent);
        let mut open = self.open.lock();
        if open.contains_key(&call.call) {
            return Err(Lie("two calls have one number"));
        }
        if open.len() >= CALLS_MAX {
            drop(open);
            let error =
                Error::unavailable(format!("this instance has {CALLS_MAX} inferences of other models in progress"));
            refuse(&**peer, way, call, &error);
            return Ok(());
        }
        let is_decoupled = call.is_decoupled;
        let new = Open {
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
        let request = Box::new(InferRequest { depth, ..request });
        let model_call = ModelCall {
            model: call.model.to_owned(),
            version: call.version,
            request,
            decoupled: is_decoupled,
            parent_trace,
        };
        let answers = Answers { calls: self.clone(), peer: peer.clone(), call: call.call };
        match host.call(model_call, Arc::new(answers)) {
            Ok(handle) => self.began(call.call, handle.into()),
            Err(error) => {
                let was = self.open.lock().remove(&call.call);
                if was.is_some_and(|open| !open.is_closed) {
                    refuse(&**peer, way, call, &error);
                }
            }
        }
        Ok(())
    }

    fn began(&self, call: u64, handle: Arc<dyn Call>) {
        let mut open = self.open.lock();
        let is_wanted = match open.get_mut(&call) {
            Some(open) => {
                open.handle = Some(handle.clone());
                !open.is_cancelled
            }
            // It is over; or the process is, and then this does something.
            None => false,
        };
        drop(open);
        if !is_wanted {
            handle.cancel();
        }
    }

    /// The model does not want further answers of it; its last one is still sent.
    pub(crate) fn cancel(&self, call: u64) {
        self.stop(|number, _| number == call, false);
    }

    /// No answer of it is wanted any more.
    pub(crate) fn close(&self, call: u64) {
        self.stop(|number, _| number == call, true);
    }

    /// A request is cancelled, and with it what was called for it.
    pub(crate) fn parent_cancelled(&self, parent: Key) {
        self.stop(|_, open| open.parent == Some(parent), false);
    }

    /// The process is gone.
    pub(crate) fn closed(&self) {
        let all = std::mem::take(&mut *self.open.lock());
        all.into_values().filter_map(|open| open.handle).for_each(|handle| handle.cancel());
    }

    fn stop(&self, is_meant: impl Fn(u64, &Open) -> bool, closes: bool) {
        let mut handles: SmallVec<[Arc<dyn Call>; 4]> = SmallVec::new();
        let mut open = self.open.lock();
        for (number, open) in open.iter_mut() {
            if is_meant(*number, open) {
                open.is_closed |= closes;
                open.is_cancelled = true;
                handles.extend(open.handle.clone());
            }
        }
        drop(open);
        handles.iter().for_each(|handle| handle.cancel());
    }
}

/// Brings the answers of one call to the runner.
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
        // One response is all that such a caller waits for.
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
            // There is no room for it: the reader is too far behind, or it is larger than all there may be.
            self.calls.close(self.call);
            out.clear();
            write_error(&mut out, self.call, &error);
        }
        self.peer.send(way, &out);
    }
}

/// An inference that was never one.
#[cold]
fn refuse(peer: &dyn Peer, way: Way, call: &CallRef<'_>, why: &Error) {
    let text = format!("Model {} - Error when running inference: {}", call.model, why.message());
    let mut out = Vec::new();
    write_error(&mut out, call.call, &Error::internal(text));
    peer.send(way, &out);
}

fn write_error(out: &mut Vec<u8>, call: u64, error: &Error) {
    let head = AnswerHead {
        kind: Answer::Error as u8,
        flags: ANSWER_FLAG_FINAL,
        code: error.code() as u32,
        ..AnswerHead::default()
    };
    // Texts of errors are bounded far below a frame.
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

/// The request, its tensors copied out of the runner's segments, whose blocks are given back whatever happens.
fn request(peer: &dyn Peer, from: &RequestRef<'_>, form: OutputForm) -> Result<Result<InferRequest>, Lie> {
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
            Err(Refused::Lie(lie)) => return Err(lie),
            Err(Refused::Short(error)) => failed = Some(error),
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
    let wanted = |name: &&str| RequestedOutput { name: (*name).into(), form, region: None };
    Ok(Ok(InferRequest {
        id: from.id.into(),
        inputs,
        // None named are all.
        outputs: from.outputs.iter().flatten().map(wanted).collect(),
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
