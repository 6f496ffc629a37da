//! The handles by which a request is noted, and its record while it is being made.

use crate::activity::Activity;
use crate::context::Context;
use crate::ids::random_hex;
use crate::limits::{
    TRACE_ACTIVITIES_MAX, TRACE_CALLS_MAX, TRACE_RECORD_BYTES_MAX, TRACE_TENSOR_BYTES_MAX, TRACE_TEXT_BYTES_MAX,
};
use crate::phases::Phases;
use crate::record::{Call, Kind, Record, Stamp, Tensor};
use crate::sampler::Sampler;
use crate::setting::Mode;
use crate::text::quoted;
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Data, DataType, Error};

/// A request that is traced, or a call that is made for one. Clones note into the same call; the record is complete when the last
/// handle of the request is gone. One that is only [measured](Self::measured) makes no record.
#[derive(Clone)]
pub struct Trace(Arc<Handle>);

struct Handle {
    /// None of a request that is only measured.
    open: Option<Arc<Open>>,
    /// Which of its calls.
    at: usize,
    phases: Phases,
}

/// A record that is being made.
struct Open {
    sampler: Arc<Sampler>,
    context: Option<Context>,
    id: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    activities: Vec<Stamp>,
    calls: Vec<Call>,
    bytes: usize,
    /// What models were told, without a caller's.
    trace_id: String,
    /// Contents of tensors, of those that all open records may have.
    reserved: usize,
    /// A record also without an accepted call.
    is_kept: bool,
}

impl Trace {
    pub(crate) fn begin(sampler: Arc<Sampler>, context: Option<Context>) -> Self {
        let id = sampler.outlet.id();
        let calls = vec![Call { id, ..Call::default() }];
        let state = Mutex::new(State { calls, ..State::default() });
        Self::of(Some(Arc::new(Open { sampler, context, id, state })), 0)
    }

    fn of(open: Option<Arc<Open>>, at: usize) -> Self {
        Self(Arc::new(Handle { open, at, phases: Phases::default() }))
    }

    /// For a request that is not traced, and of which only the [phases](Self::phases) are wanted.
    pub fn measured() -> Self {
        Self::of(None, 0)
    }

    /// Whether a record is made.
    pub fn is_recorded(&self) -> bool {
        self.0.open.is_some()
    }

    /// When what happened, as far as it has.
    pub fn phases(&self) -> &Phases {
        &self.0.phases
    }

    /// The id of the trace as far as it is known: the caller's, or the one that models were told, or the number of the request.
    pub fn id(&self) -> Option<String> {
        let open = self.0.open.as_ref()?;
        if let Some(caller) = &open.context {
            return Some(caller.trace_id().to_owned());
        }
        let told = open.state.lock().trace_id.clone();
        Some(if told.is_empty() { open.id.to_string() } else { told })
    }

    /// A trace of a call that is made for this one; `None` when there are too many, or nothing is recorded.
    pub fn child(&self) -> Option<Self> {
        let open = self.0.open.as_ref()?;
        let mut state = open.state.lock();
        let at = state.calls.len();
        let parent = state.calls.get(self.0.at).filter(|_| at < TRACE_CALLS_MAX)?.id;
        state.calls.push(Call { id: open.sampler.outlet.id(), parent, ..Call::default() });
        drop(state);
        Some(Self::of(Some(open.clone()), at))
    }

    /// Notes what the front end does with the request.
    pub fn front(&self, activity: Activity, ns: u64) {
        if let Some(open) = self.0.open.as_ref().filter(|open| open.sampler.setting.timestamps) {
            let mut state = open.state.lock();
            if state.activities.len() < TRACE_ACTIVITIES_MAX {
                state.activities.push(Stamp { activity, ns });
            }
        }
    }

    /// The request is no request at all, and traced as that.
    pub fn keep(&self) {
        if let Some(open) = &self.0.open {
            open.state.lock().is_kept = true;
        }
    }

    /// The call was accepted by its model. A call that never is, is not part of the record.
    pub fn accepted(&self, model: &str, version: i64, request_id: &str, ns: u64) {
        self.0.phases.accepted(ns);
        if !self.is_recorded() {
            return;
        }
        self.call(|call| {
            call.is_accepted = true;
            model.clone_into(&mut call.model);
            call.version = version;
            cut(request_id).clone_into(&mut call.request_id);
        });
        self.mark(Activity::RequestStart, ns);
        self.mark(Activity::QueueStart, ns);
    }

    /// Notes an activity that the backend reports while it runs the call. The backend bounds how many those are.
    pub fn custom(&self, activity: Activity, ns: u64) {
        self.mark(activity, ns);
    }

    /// The call ran: when that began, when its inputs were ready, when inference ended, and when its outputs were ready.
    pub fn computed(&self, marks: [u64; 4]) {
        self.0.phases.computed(marks);
        if !self.is_recorded() {
            return;
        }
        let [start, inputs_ready, inference_end, outputs_ready] = marks;
        self.mark(Activity::ComputeStart, start);
        self.mark(Activity::ComputeInputEnd, inputs_ready);
        self.mark(Activity::ComputeOutputStart, inference_end);
        self.mark(Activity::ComputeEnd, outputs_ready);
    }

    /// The call ran in a batch with so many rows.
    pub fn batched(&self, rows: u32) {
        self.0.phases.batched(rows);
    }

    /// The call is over.
    pub fn ended(&self, ns: u64, error: Option<&Error>) {
        self.0.phases.ended(ns);
        self.mark(Activity::RequestEnd, ns);
        if let Some(error) = error {
            let error = (error.code(), cut(error.message()).to_owned());
            self.call(|call| call.error = Some(error));
        }
    }

    /// The W3C context of this call as Triton gives it to backends, a JSON object: what a model does for it are children of its span.
    /// `None` in mode Triton, which has no spans (O-47).
    pub fn context(&self) -> Option<String> {
        let open = self.0.open.as_ref()?;
        if open.sampler.setting.mode != Mode::OpenTelemetry {
            return None;
        }
        let mut state = open.state.lock();
        let State { calls, trace_id, .. } = &mut *state;
        let call = calls.get_mut(self.0.at)?;
        if call.span_id.is_empty() {
            call.span_id = random_hex(16);
        }
        let (trace, tracestate) = match &open.context {
            Some(caller) => (caller.trace_id(), &*caller.tracestate),
            None => {
                if trace_id.is_empty() {
                    *trace_id = random_hex(32);
                }
                (&**trace_id, "")
            }
        };
        let span = &call.span_id;
        let mut json = format!(r#"{{"traceparent":"00-{trace}-{span}-01""#);
        if !tracestate.is_empty() {
            json.push_str(r#","tracestate":"#);
            quoted(&mut json, tracestate);
        }
        json.push('}');
        Some(json)
    }

    /// Whether tensors are noted.
    pub fn wants_tensors(&self) -> bool {
        self.0.open.as_ref().is_some_and(|open| open.sampler.setting.tensors)
    }

    /// Notes a tensor: copies its beginning.
    pub fn tensor(&self, kind: Kind, name: &str, datatype: DataType, shape: &[i64], data: &Data) {
        let Some(open) = self.0.open.as_ref().filter(|_| self.wants_tensors()) else { return };
        let mut state = open.state.lock();
        let room = TRACE_RECORD_BYTES_MAX.saturating_sub(state.bytes).min(TRACE_TENSOR_BYTES_MAX);
        let room = open.sampler.outlet.reserve(data.len().min(room));
        state.reserved += room;
        let mut begin = vec![0; room];
        // It is no longer than the tensor: what fails is a device, and zeros would be a lie.
        let failed = data.copy_to(0, &mut begin).is_err();
        let is_cut = failed || begin.len() < data.len();
        if failed {
            begin.clear();
        }
        let (name, shape) = (cut(name).to_owned(), shape.to_vec());
        state.bytes += size_of::<Tensor>() + begin.len() + name.len() + size_of_val(&shape[..]);
        if let Some(call) = state.calls.get_mut(self.0.at) {
            call.tensors.push(Tensor { kind, name, datatype, shape, data: begin, is_cut });
        }
    }

    fn mark(&self, activity: Activity, ns: u64) {
        if self.0.open.as_ref().is_some_and(|open| open.sampler.setting.timestamps) {
            self.call(|call| call.activities.push(Stamp { activity, ns }));
        }
    }

    fn call(&self, change: impl FnOnce(&mut Call)) {
        let Some(open) = &self.0.open else { return };
        let mut state = open.state.lock();
        if let Some(call) = state.calls.get_mut(self.0.at) {
            change(call);
        }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("id", &self.0.open.as_ref().map(|open| open.id))
            .field("call", &self.0.at)
            .finish()
    }
}

/// Of a text that clients send, as much as is kept.
fn cut(text: &str) -> &str {
    // A character has at most four bytes.
    let longest = text.len().min(TRACE_TEXT_BYTES_MAX);
    (0..4).find_map(|less| text.get(..longest.checked_sub(less)?)).unwrap_or_default()
}

impl Drop for Open {
    fn drop(&mut self) {
        let State { activities, mut calls, mut bytes, trace_id, reserved, is_kept } =
            std::mem::take(self.state.get_mut());
        self.sampler.outlet.release(reserved);
        calls.retain(|call| call.is_accepted);
        if calls.is_empty() && !is_kept {
            return;
        }
        for call in &calls {
            bytes += call.request_id.len()
                + call.model.len()
                + call.span_id.len()
                + call.error.as_ref().map_or(0, |(_, text)| text.len());
        }
        let setting = self.sampler.setting;
        let context = self.context.take();
        bytes += context.as_ref().map_or(0, |c| c.traceparent.len() + c.tracestate.len());
        self.sampler.outlet.put(Record {
            mode: setting.mode,
            setting: setting.number,
            id: self.id,
            context,
            trace_id,
            activities,
            calls,
            bytes,
        });
    }
}
