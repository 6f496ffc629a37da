//! The handles that record a request, and its incomplete record.

use crate::activity::Activity;
use crate::context::Context;
use crate::ids::random_hex;
use crate::limits::{
    TRACE_ACTIVITIES_MAX, TRACE_CALLS_MAX, TRACE_RECORD_BYTES_MAX, TRACE_TENSOR_BYTES_MAX, TRACE_TEXT_BYTES_MAX,
};
use crate::phases::Phases;
use crate::record::{Call, Record, RecordedTensor, Stamp, TensorSide};
use crate::sampler::Sampler;
use crate::text::quoted;
use options::TraceMode;
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Data, DataType, Error};

/// Handle of a traced request, or of a call made for one. Clones write to the same call; dropping the request's last
/// handle completes the record. A handle that only [measures](Self::measured) makes no record.
#[derive(Clone)]
pub struct Trace(Arc<Handle>);

struct Handle {
    /// `None` if the request is only measured.
    open: Option<Arc<OpenRecord>>,
    /// Index of the call.
    at: usize,
    phases: Phases,
}

/// A record that is not complete.
struct OpenRecord {
    sampler: Arc<Sampler>,
    context: Option<Context>,
    id: u64,
    state: Mutex<RecordState>,
}

#[derive(Default)]
struct RecordState {
    activities: Vec<Stamp>,
    calls: Vec<Call>,
    bytes: usize,
    /// Trace id that was asked for, if the caller has none.
    trace_id: String,
    /// Bytes of tensors that are reserved at the outlet.
    reserved: usize,
    /// True if a record is made even without an accepted call.
    is_kept: bool,
}

impl RecordState {
    /// The trace id of a request whose caller has none.
    fn own_id(&mut self) -> &str {
        if self.trace_id.is_empty() {
            self.trace_id = random_hex(32);
        }
        &self.trace_id
    }
}

impl Trace {
    pub(crate) fn begin(sampler: Arc<Sampler>, context: Option<Context>) -> Self {
        let id = sampler.outlet.id();
        let calls = vec![Call { id, ..Call::default() }];
        let state = Mutex::new(RecordState { calls, ..RecordState::default() });
        Self::of(Some(Arc::new(OpenRecord { sampler, context, id, state })), 0)
    }

    fn of(open: Option<Arc<OpenRecord>>, at: usize) -> Self {
        Self(Arc::new(Handle { open, at, phases: Phases::default() }))
    }

    /// A handle for a request that is not traced, but whose [phases](Self::phases) are measured.
    pub fn measured() -> Self {
        Self::of(None, 0)
    }

    /// A copy of the measurements, for an owner that outlives the record: that is complete with its last handle.
    pub fn detached(&self) -> Self {
        if !self.is_recorded() {
            return self.clone();
        }
        let phases = self.0.phases.copied_at_end();
        if let Some(id) = self.id() {
            _ = phases.trace_id.set(id);
        }
        Self(Arc::new(Handle { open: None, at: 0, phases }))
    }

    /// True if a record is made.
    pub fn is_recorded(&self) -> bool {
        self.0.open.is_some()
    }

    /// Times of the call so far.
    pub fn phases(&self) -> &Phases {
        &self.0.phases
    }

    /// Id of the trace as it is exported: the caller's, or a new one, in mode Triton the number of the request.
    pub fn id(&self) -> Option<String> {
        let Some(open) = self.0.open.as_ref() else { return self.0.phases.trace_id.get().cloned() };
        Some(match &open.context {
            Some(caller) => caller.trace_id().to_owned(),
            None if open.sampler.setting.mode == TraceMode::OpenTelemetry => open.state.lock().own_id().to_owned(),
            None => open.id.to_string(),
        })
    }

    /// A handle for a call that is made for this one; `None` if the record is full or there is none.
    pub fn child(&self) -> Option<Self> {
        let open = self.0.open.as_ref()?;
        let mut state = open.state.lock();
        let at = state.calls.len();
        let parent = state.calls.get(self.0.at).filter(|_| at < TRACE_CALLS_MAX)?.id;
        state.calls.push(Call { id: open.sampler.outlet.id(), parent, ..Call::default() });
        drop(state);
        Some(Self::of(Some(open.clone()), at))
    }

    /// Records an activity of the front end.
    pub fn front(&self, activity: Activity, ns: u64) {
        if let Some(open) = self.0.open.as_ref().filter(|open| open.sampler.setting.timestamps) {
            let mut state = open.state.lock();
            if state.activities.len() < TRACE_ACTIVITIES_MAX {
                state.activities.push(Stamp { activity, ns });
            }
        }
    }

    /// Makes a record even if no model accepts the request, because its body is malformed.
    pub fn keep(&self) {
        if let Some(open) = &self.0.open {
            open.state.lock().is_kept = true;
        }
    }

    /// Records that the model accepted the call. A call that is not accepted is not part of the record.
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

    /// Records an activity that the backend reports during the execution. The backend limits their number.
    pub fn custom(&self, activity: Activity, ns: u64) {
        self.mark(activity, ns);
    }

    /// Records the execution: when it began, its inputs were ready, inference ended, and its outputs were ready.
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

    /// Records the rows of the call's batch.
    pub fn batched(&self, rows: u32) {
        self.0.phases.batched(rows);
    }

    /// Records the end of the call.
    pub fn ended(&self, ns: u64, error: Option<&Error>) {
        self.0.phases.ended(ns);
        self.mark(Activity::RequestEnd, ns);
        if let Some(error) = error {
            let error = (error.code(), cut(error.message()).to_owned());
            self.call(|call| call.error = Some(error));
        }
    }

    /// W3C context of this call as a JSON object, as Triton passes it to backends: a model's own spans become children
    /// of the call's span. `None` in mode Triton, which has no spans (O-47).
    pub fn context(&self) -> Option<String> {
        let open = self.0.open.as_ref()?;
        if open.sampler.setting.mode != TraceMode::OpenTelemetry {
            return None;
        }
        let mut state = open.state.lock();
        let call = state.calls.get_mut(self.0.at)?;
        if call.span_id.is_empty() {
            call.span_id = random_hex(16);
        }
        let span = call.span_id.clone();
        let (trace, tracestate) = match &open.context {
            Some(caller) => (caller.trace_id(), &*caller.tracestate),
            None => (state.own_id(), ""),
        };
        let mut json = format!(r#"{{"traceparent":"00-{trace}-{span}-01""#);
        if !tracestate.is_empty() {
            json.push_str(r#","tracestate":"#);
            quoted(&mut json, tracestate);
        }
        json.push('}');
        Some(json)
    }

    /// True if tensors are recorded.
    pub fn wants_tensors(&self) -> bool {
        self.0.open.as_ref().is_some_and(|open| open.sampler.setting.tensors)
    }

    /// Records a tensor: copies its first bytes.
    pub fn tensor(&self, kind: TensorSide, name: &str, datatype: DataType, shape: &[i64], data: &Data) {
        let Some(open) = self.0.open.as_ref().filter(|_| self.wants_tensors()) else { return };
        let mut state = open.state.lock();
        let room = TRACE_RECORD_BYTES_MAX.saturating_sub(state.bytes).min(TRACE_TENSOR_BYTES_MAX);
        let room = open.sampler.outlet.reserve(data.len().min(room));
        state.reserved += room;
        let mut begin = vec![0; room];
        // Not longer than the tensor, so only a device can fail; then the record has no contents instead of zeros.
        let failed = data.copy_to(0, &mut begin).is_err();
        let is_cut = failed || begin.len() < data.len();
        if failed {
            begin.clear();
        }
        let (name, shape) = (cut(name).to_owned(), shape.to_vec());
        state.bytes += size_of::<RecordedTensor>() + begin.len() + name.len() + size_of_val(&shape[..]);
        if let Some(call) = state.calls.get_mut(self.0.at) {
            call.tensors.push(RecordedTensor { kind, name, datatype, shape, data: begin, is_cut });
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

/// Cuts a client's text to the limit, between characters.
fn cut(text: &str) -> &str {
    // A character has at most four bytes.
    let longest = text.len().min(TRACE_TEXT_BYTES_MAX);
    (0..4).find_map(|less| text.get(..longest.checked_sub(less)?)).unwrap_or_default()
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let RecordState { activities, mut calls, mut bytes, trace_id, reserved, is_kept } =
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
