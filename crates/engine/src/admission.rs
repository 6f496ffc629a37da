//! Acceptance: requests of all transports come in through [`ModelVersion::call`].
//!
//! A cheap request runs on the calling thread if nothing waits. Otherwise a pool thread takes an instance, runs the
//! batch, and continues with the next one as long as there is one.

use crate::answer::Sink;
use crate::batch_key::{Key, class_of};
use crate::call::{Caller, Started};
use crate::delivery_scope;
use crate::execution_cost::InlineRun;
use crate::flow;
use crate::inline::waits_for_device;
use crate::order::ResponseOrder;
use crate::pending::{Pending, Queued};
use crate::schedule::Schedule;
use crate::scheduling::TextBatches;
use crate::texts;
use crate::ticket::{Ticket, TicketState};
use crate::turn_queue;
use crate::version::{ModelVersion, Served};
use backend::{BatchEntry, now_ns};
use protocol::check::IdPrefix;
use protocol::{Checked, InferRequest};
use scheduler::Cause;
use scheduler::profile::RunClass;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::{Error, Result};
use trace::limits::MEASURED_ID_BYTES_MAX;
use trace::{Behind, TensorSide, Trace};

impl ModelVersion {
    /// Checks a request, and runs it inline if it is cheap and nothing waits, or else queues it.
    ///
    /// `sink` is only called if the request is queued. The sink then receives the responses, perhaps before this
    /// returns: one final response, or any number from a decoupled model, whose requests are always queued. Cancelling
    /// `parent` cancels this request, too.
    ///
    /// # Errors
    /// The request does not fit the signature, the queue is full, the server is stopping, or the parent was cancelled.
    /// These are counted nowhere (S-02), and the sink receives nothing.
    pub fn call(
        &self,
        request: Box<InferRequest>,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        parent: Option<&Ticket>,
    ) -> Result<Started> {
        self.start(request, sink, Caller { parent, inline_until: u64::MAX, depth: 0, text: None })
    }

    /// Checks a request as `call` does, and does not run it.
    pub(crate) fn check(&self, request: &mut InferRequest) -> Result<()> {
        self.signature.check(request)?;
        match &self.scheduling.sequencing {
            Some(sequencing) => sequencing.check(request, &self.signature.model),
            None => Ok(()),
        }
    }

    /// Like `call`, for a step of an ensemble or another call of a request.
    pub(crate) fn start(
        &self,
        mut request: Box<InferRequest>,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let parent = caller.parent;
        // Calls for an accepted request finish. Begun sequences go on: their scheduler rejects new ones.
        let stops = self.is_stopping() && parent.is_none();
        if stops && self.scheduling.sequencing.is_none() {
            return Err(Error::unavailable(format!(
                "{}Server is stopping, scheduler for model has stopped accepting new inference requests",
                IdPrefix(&request.id)
            )));
        }
        if parent.is_some_and(Ticket::is_cancelled) {
            return Err(Error::cancelled(""));
        }
        if self.scheduling.sequencing.is_some()
            && let Some(former) = self.former_of(&request)
        {
            return former.start(request, sink, caller);
        }
        let checked = self.signature.check(&mut request)?;
        if let Some(sequencing) = &self.scheduling.sequencing {
            sequencing.check(&request, &self.signature.model)?;
            if stops {
                self.serving
                    .dispatch
                    .lock()
                    .schedule
                    .sequences_mut()
                    .into_iter()
                    .for_each(|sequences| sequences.stop());
            } else if request.sequence.start {
                self.begins(&request);
            }
        }
        let now = now_ns();
        if let Some(trace) = &request.trace {
            self.trace_accepted(trace, &request, now);
        }
        // Requests that do more than wait and run are measured from their start.
        let does_more = self.cached.is_some() || self.scheduling.texts.is_some() || self.graph().is_some();
        let measured =
            (does_more && request.trace.is_none() && parent.is_none()).then(|| self.measure(&mut request, now));
        let mut started = match &self.cached {
            None => self.admit(request, checked, now, None, sink, caller),
            Some(cached) => self.call_cached(cached, request, checked, now, sink, caller),
        };
        if measured.is_some()
            && let Ok(Started::Queued(ticket)) = &mut started
        {
            ticket.measured = measured;
        }
        started
    }

    /// Gives a request that is not traced what measures it.
    fn measure(&self, request: &mut InferRequest, now: u64) -> Trace {
        let trace = Trace::measured();
        self.trace_accepted(&trace, request, now);
        request.trace = Some(trace.clone());
        trace
    }

    /// Runs or queues a checked request; `place` is its position in the response order if it has one already.
    // Inlined so that `call` moves nothing for models without the response cache.
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        request: Box<InferRequest>,
        checked: Checked,
        now: u64,
        place: Option<u64>,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        if let Served::Graph(ensemble) = &self.served {
            return flow::start(self, ensemble, request, (&checked, now), sink, caller);
        }
        let Caller { parent, inline_until, text, .. } = caller;
        if self.scheduling.texts.is_some() && text.is_none() {
            return texts::start(self, request, (&checked, now), sink, parent);
        }
        let (key, class) = match text {
            None => {
                let key = self.scheduling.shape_rule.key(&request, &checked);
                let class = class_of(&key);
                (key, class)
            }
            Some(text) => {
                let length = i64::from(text.tokens);
                let all_fit = self.scheduling.texts.is_some_and(|texts| texts.batches == TextBatches::ByTokens);
                (if all_fit { Key::new() } else { Key::from_slice(&[length]) }, text.tokens.into())
            }
        };
        let rows = checked.rows.max(1);
        // Built once, then run or queued.
        let mut entry = BatchEntry::new(request, checked);

        let kind = RunClass::new(class, rows, self.scheduling.bytes_of(std::iter::once(&entry)));

        let mut dispatch = self.serving.dispatch.lock();
        let may_inline =
            self.scheduling.may_inline && text.is_none() && now < inline_until && !waits_for_device(&entry.request);
        // An instance is idle beside others that run, and none may run if order is kept.
        let is_free = !self.serving.keeps_order() || dispatch.idle.len() >= dispatch.members.len();
        let cheap = may_inline
            && is_free
            && !dispatch.idle.is_empty()
            && dispatch.schedule.profile().is_cheap(kind, self.inline_limit(1));
        // A model that batches waits for the end of the turn, in which other requests may arrive.
        let in_turn =
            cheap && self.scheduling.batches && delivery_scope::has_turns() && dispatch.turn_policy.expected(now);
        if cheap
            && !in_turn
            && dispatch.schedule.is_empty()
            && let Some(instance) = dispatch.idle.pop()
        {
            let inline =
                InlineRun { limit_ns: self.inline_limit(1), exact: dispatch.schedule.profile().needs_exact_time() };
            drop(dispatch);
            self.joined(1);
            // A panic here is our defect, but must cost only this request.
            let result = catch_unwind(AssertUnwindSafe(|| {
                self.run_here(instance, (class, kind), now, &mut entry, inline, parent)
            }));
            self.left(1);
            return Ok(Started::Answered(result.unwrap_or_else(|_| Err(self.defect()))));
        }
        if let Some(why) = dispatch.refusal() {
            return Err(why);
        }
        // A request that waits costs two wakes, so measuring it is cheap.
        let measured =
            (entry.request.trace.is_none() && parent.is_none()).then(|| self.measure(&mut entry.request, now));
        if dispatch.idle.is_empty()
            && let Some(trace) = &entry.request.trace
        {
            self.trace_wait(trace, dispatch.schedule.ahead(entry.request.priority), dispatch.asking.first().copied());
        }
        let ticket = TicketState::new(Some(self.me.clone()), parent.map(|p| &p.state))?;
        if self.batching.is_some() {
            ticket.undecided.store(true, Ordering::Relaxed);
        }
        let handle = Ticket { state: ticket.clone(), measured };
        let sink = Some(sink());
        let (has_place, place) =
            (place.is_some(), place.or_else(|| self.scheduling.line.as_ref().map(ResponseOrder::place)).unwrap_or(0));
        let pending = Box::new(Pending {
            entry,
            sink,
            streaming: None,
            waits: true,
            ticket,
            key,
            class,
            text,
            accepted: now,
            place,
            row: None,
        });
        // Counted before the push: another thread may take the request at once, and the gauge must not fall below zero.
        self.serving.pending.fetch_add(1, Ordering::Relaxed);
        let counts = u64::from(text.is_none());
        self.joined(counts);
        if let Err((why, mut refused)) = dispatch.schedule.push(now, Queued(pending), &self.signature.model) {
            refused.0.sink = None;
            refused.0.ticket.settle();
            if let Some(line) = self.scheduling.line.as_ref().filter(|_| !has_place) {
                line.withdraw(place);
            }
            self.serving.pending.fetch_sub(1, Ordering::Relaxed);
            self.left(counts);
            return Err(why);
        }
        if in_turn && let Some(me) = self.me.upgrade() {
            if let Schedule::Batcher(batcher) = &mut dispatch.schedule {
                batcher.waits_for(Cause::TurnEnded);
            }
            drop(dispatch);
            turn_queue::join(me);
        } else {
            self.pump(dispatch, now);
        }
        Ok(Started::Queued(handle))
    }

    /// Records what a request waits behind: requests before it, and this version, or the one that has the resources
    /// which the instance `asking` needs.
    pub(crate) fn trace_wait(&self, trace: &Trace, (priority, rows): (u32, u64), asking: Option<u32>) {
        let limited = self.scheduling.limited.as_ref();
        let holder = asking.and_then(|instance| limited?.holder(instance));
        let has_resources = holder.is_some();
        let signature = holder.unwrap_or_else(|| self.signature.clone());
        let (model, version) = (signature.model.clone(), signature.version.clone());
        _ = trace.phases().behind.set(Behind { model, version, has_resources, priority, rows });
    }

    /// Records an accepted request in its trace.
    fn trace_accepted(&self, trace: &Trace, request: &InferRequest, now: u64) {
        trace.accepted(&self.signature.model, self.identity.number, &request.id, now);
        if !request.id.is_empty() {
            // A copy, because the id is a slice of the request's buffer.
            let id = request.id.as_bytes();
            _ = trace.phases().id.set(id.get(..MEASURED_ID_BYTES_MAX).unwrap_or(id).into());
        }
        // Triton's sequence scheduler records no inputs.
        if trace.wants_tensors() && self.scheduling.sequencing.is_none() {
            for input in &request.inputs {
                if let Some(datatype) = input.datatype {
                    trace.tensor(TensorSide::QueueInput, &input.name, datatype, &input.shape, &input.data);
                }
            }
        }
    }
}
