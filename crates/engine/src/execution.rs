//! Executions: the permit of an instance, the run of a batch, and its responses.

use crate::answer::{EngineResponse, Sink};
use crate::batch_key::Key;
use crate::execution_cost::{ExecutionCost, InlineRun};
use crate::held_instance::{ReturnTo, WarmUp};
use crate::inline;
use crate::mail::together;
use crate::order::ResponseOrder;
use crate::pending::{Pending, Queued, Requests};
use crate::statistics::Executed;
use crate::texts;
use crate::ticket::{Ticket, TicketState};
use crate::times::Timings;
use crate::traced;
use crate::version::{Job, ModelVersion};
use backend::{Batch, BatchEntry, Marks, RunControl, now_ns};
use protocol::{InferRequest, InferResponse, Signature};
use scheduler::cores::Plan;
use scheduler::profile::RunClass;
use scheduler::{Cause, Waiting};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tensor::{Error, Result};

/// An instance in use. It becomes idle when this is dropped, also by a panic.
pub(crate) struct Permit<'v> {
    version: &'v ModelVersion,
    pub(crate) instance: u32,
    pub(crate) held: bool,
}

impl<'v> Permit<'v> {
    pub(crate) fn new(version: &'v ModelVersion, instance: u32) -> Self {
        Self { version, instance, held: true }
    }

    /// Another thread owns the instance from now on.
    pub(crate) fn pass_on(&mut self) {
        self.held = false;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        // Also while a panic unwinds, where another panic would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut dispatch = self.version.serving.dispatch.lock();
            self.version.rests(&mut dispatch, self.instance);
            self.version.pump(dispatch, now_ns());
        }));
    }
}

impl Job {
    /// Runs the batch, then the next ones of the instance until there are none.
    pub(crate) fn run(self) {
        if self.version.serving.remote.is_some() {
            return self.start_here();
        }
        let Job { version, instance, mut requests } = self;
        let mut permit = Permit::new(&version, instance);
        loop {
            let control = Arc::new(RunControl::new(requests.len() as u32));
            for q in &requests {
                q.0.ticket.running(&control);
            }
            let cost = version.execute(instance, requests, &control, None);
            match version.next(&mut permit, cost) {
                Some(more) => requests = more,
                None => return,
            }
        }
    }
}

/// A run on the cores that models share (`scheduler::cores`), until dropped.
struct Computing<'c> {
    runs: &'c AtomicU32,
    /// Number of runs when it began, itself included.
    began: u32,
}

impl<'c> Computing<'c> {
    fn begin(runs: &'c AtomicU32) -> Self {
        Self { runs, began: runs.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    fn now(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Interval at which a warmup with unfinished requests checks whether the server is stopping.
const STOPPING_CHECK: Duration = Duration::from_millis(100);

impl ModelVersion {
    /// Runs one request on this thread. The instance was taken from the idle ones.
    pub(crate) fn run_here(
        &self,
        instance: u32,
        (class, kind): (u64, RunClass),
        accepted: u64,
        entry: &mut BatchEntry,
        inline: InlineRun,
        parent: Option<&Ticket>,
    ) -> Result<Box<InferResponse>> {
        let mut permit = Permit::new(self, instance);
        let rows = entry.checked.rows.max(1);
        inline::hold(accepted, inline.exact);
        let began = self.computes();
        let timings = self.run_entries(instance, std::slice::from_mut(entry), &RunControl::alone(), accepted);
        let plan = self.computed(began);
        let held = inline::held(accepted, timings.end, inline.exact, inline.limit_ns);
        let executed = Executed::of(entry, accepted);
        let duration = if executed.failure.is_none() { timings.end.saturating_sub(timings.start).max(1) } else { 0 };
        self.statistics.executed(&timings, std::iter::once(executed));
        if let Some(parent) = parent {
            parent.state.add_spent(timings.phases());
        }
        let answer = self.answer(entry);
        if let Some(trace) = &entry.request.trace {
            _ = trace.phases().cause.set(Cause::IdleInstance.name());
            traced::ran_and_answered(trace, &self.statistics, &timings, rows, &answer);
        }
        let inline = Some((inline, held));
        let cost = ExecutionCost { class, kind, rows, tokens: 0, duration, plan, inline, end: timings.end };
        if let Some(requests) = self.next(&mut permit, cost) {
            permit.pass_on();
            self.submit(instance, requests);
        }
        answer
    }

    /// Runs requests as one batch on this thread, for warmup before the version serves. Returns the errors of requests.
    ///
    /// # Errors
    /// A request does not fit `signature`, the model as warmup samples see it; then nothing ran.
    pub(crate) fn execute_now(
        &self,
        instance: u32,
        signature: &Signature,
        requests: Vec<InferRequest>,
    ) -> Result<Vec<Error>> {
        let warm_up = Arc::new(WarmUp::default());
        let now = now_ns();
        let mut checked = Vec::with_capacity(requests.len());
        for mut request in requests {
            let found = signature.check(&mut request)?;
            match self.text_model() {
                Some(model) => checked.extend(texts::prepared(model, &request, &found)?),
                None => checked.push((BatchEntry::new(Box::new(request), found), None)),
            }
        }
        let mut batch = Requests::new();
        for (entry, text) in checked {
            batch.push(Queued(Box::new(Pending {
                entry,
                sink: Some(warm_up.clone()),
                streaming: None,
                waits: true,
                ticket: TicketState::new(Some(self.me.clone()), None)?,
                key: Key::new(),
                class: 0,
                text,
                accepted: now,
                place: self.scheduling.line.as_ref().map_or(0, ResponseOrder::place),
                row: None,
            })));
        }
        let n = batch.len() as u64;
        self.serving.pending.fetch_add(n, Ordering::Relaxed);
        self.joined(if self.scheduling.texts.is_some() { 0 } else { n });
        let occupied = u64::from(self.serving.remote.is_some());
        match self.me.upgrade().filter(|_| self.serving.remote.is_some()) {
            None => _ = self.execute(instance, batch, &RunControl::alone(), None),
            Some(me) => {
                // The instance is not among the idle ones, and must not be added to them.
                let mut permit = Permit { version: self, instance, held: false };
                me.execute_remotely(
                    &mut permit,
                    batch,
                    &Arc::new(RunControl::alone()),
                    ReturnTo::WarmUp(warm_up.clone()),
                );
            }
        }
        let mut ended = warm_up.ended.lock();
        // Requests of a decoupled model may end later.
        while ended.requests < n || ended.instances < occupied {
            if self.is_stopping() {
                return Err(Error::unavailable("Server exiting"));
            }
            warm_up.more.wait_for(&mut ended, STOPPING_CHECK);
        }
        Ok(std::mem::take(&mut ended.errors))
    }

    /// Runs a batch and responds to its requests; `inline` is set on the thread of the requests.
    pub(crate) fn execute(
        &self,
        instance: u32,
        mut requests: Requests,
        control: &RunControl,
        inline: Option<InlineRun>,
    ) -> ExecutionCost {
        if self.scheduling.answers_later
            && let Some(me) = self.me.upgrade()
        {
            return me.execute_streaming(instance, requests, control);
        }
        if let Some(sequencing) = &self.scheduling.sequencing {
            return self.execute_sequences(sequencing, instance, requests, control);
        }
        let class = self.scheduling.class_of(&requests);
        let rows = requests.iter().map(Waiting::rows).fold(0, u32::saturating_add);
        let longest = requests.iter().map(Waiting::tokens).max().unwrap_or(0);
        let tokens = u64::from(longest) * requests.len() as u64;
        // Computed before the backend takes the contents of the requests.
        let kind = self.scheduling.kind_of(&requests);
        let start = now_ns();
        if let Some(inline) = inline {
            inline::hold(start, inline.exact);
        }
        self.serving.pending.fetch_sub(requests.len() as u64, Ordering::Relaxed);
        requests.iter_mut().for_each(|q| q.0.waits = false);
        // Several entries are moved into one slice for the backend, and their responses are sent from there. An entry
        // is most of a kilobyte, so that of a single request is not moved.
        let mut several = Vec::new();
        let began = self.computes();
        let timings = match &mut requests[..] {
            [alone] => self.run_entries(instance, std::slice::from_mut(&mut alone.0.entry), control, start),
            all => {
                several.extend(all.iter_mut().map(|q| std::mem::take(&mut q.0.entry)));
                self.run_entries(instance, &mut several, control, start)
            }
        };
        let plan = self.computed(began);
        let inline = inline.map(|i| (i, inline::held(start, timings.end, i.exact, i.limit_ns)));
        let mut any = false;
        self.statistics.executed_by(
            instance,
            (0, tokens),
            &timings,
            requests.iter().enumerate().map(|(i, Queued(p))| {
                let entry = several.get(i).unwrap_or(&p.entry);
                any |= matches!(entry.result, Some(Ok(_)));
                Executed { is_text: p.text.is_some(), ..Executed::of(entry, p.accepted) }
            }),
        );
        let mut several = several.iter_mut();
        together(|| {
            for Queued(mut p) in requests {
                let entry = several.next().unwrap_or(&mut p.entry);
                if p.text.is_some() {
                    self.respond_to_text(entry, &p.ticket, &mut p.sink, &timings, rows);
                } else {
                    self.respond(entry, &p.ticket, &mut p.sink, p.place, &timings, rows);
                }
            }
        });
        let duration = if any { timings.end.saturating_sub(start).max(1) } else { 0 };
        ExecutionCost { class, kind, rows, tokens, plan, inline, end: timings.end, duration }
    }

    /// Counts a run on the shared cores, if the model divides them. Returns the number of runs with it.
    fn computes(&self) -> Option<Computing<'_>> {
        self.scheduling.capabilities.cores.map(|_| Computing::begin(&self.shared.computing))
    }

    fn computed(&self, began: Option<Computing<'_>>) -> Plan {
        let (Some(cores), Some(computing)) = (self.scheduling.capabilities.cores, began) else { return Plan::None };
        Plan::of(cores, computing.began, computing.now())
    }

    /// Responds to a request of a batch with the result in its entry.
    pub(crate) fn respond(
        &self,
        entry: &mut BatchEntry,
        ticket: &TicketState,
        sink: &mut Option<Arc<dyn Sink>>,
        place: u64,
        timings: &Timings,
        rows: u32,
    ) {
        let result = self.answer(entry);
        ticket.add_to_parent(timings.phases());
        let result = ticket.settle().map_or(result, Err);
        if let Some(trace) = entry.request.trace.take() {
            traced::ran_and_answered(&trace, &self.statistics, timings, rows, &result);
        }
        if let Some(sink) = sink.take() {
            self.deliver(sink, EngineResponse::only(result).at(place));
        }
    }

    /// Like `respond`, for a text. Its request gets its share of the time, and ends its trace.
    fn respond_to_text(
        &self,
        entry: &mut BatchEntry,
        ticket: &TicketState,
        sink: &mut Option<Arc<dyn Sink>>,
        timings: &Timings,
        rows: u32,
    ) {
        let result = self.answer(entry);
        ticket.add_to_parent(timings.phases().map(|phase| phase / u64::from(rows.max(1))));
        let result = ticket.settle().map_or(result, Err);
        if let Some(trace) = entry.request.trace.take() {
            trace.batched(rows);
        }
        if let Some(sink) = sink.take() {
            sink.put(EngineResponse::only(result));
        }
    }

    /// Runs the entries on the backend, and gives each of them a result.
    pub(crate) fn run_entries(
        &self,
        instance: u32,
        entries: &mut [BatchEntry],
        control: &RunControl,
        start: u64,
    ) -> Timings {
        let marks = self.hand_over(instance, &mut Batch::new(entries), control).unwrap_or_else(|| {
            let end = now_ns();
            Marks { inputs_ready: end, inference_end: end, outputs_ready: end }
        });
        for entry in entries {
            match &mut entry.result {
                Some(Ok(_)) => {}
                Some(Err(error)) => *error = error.clone().by_model(),
                none => *none = Some(Err(self.no_answer())),
            }
        }
        Timings { start, marks, end: marks.outputs_ready.max(start) }
    }

    /// The error of a request that the backend neither answered nor kept.
    pub(crate) fn no_answer(&self) -> Error {
        Error::internal(format!(
            "the backend of model '{}' stopped without a response; this is a defect of the server, please report it",
            self.signature.model
        ))
    }

    /// The response made from an entry's result, which `run` has set.
    #[inline]
    pub(crate) fn answer(&self, entry: &mut BatchEntry) -> Result<Box<InferResponse>> {
        let outcome = entry.result.take().unwrap_or_else(|| Err(Error::internal("answered twice")))?;
        Ok(Box::new(InferResponse {
            model_name: self.signature.model.clone(),
            model_version: self.signature.version.clone(),
            id: std::mem::take(&mut entry.request.id),
            parameters: outcome.parameters,
            outputs: outcome.outputs,
        }))
    }
}
