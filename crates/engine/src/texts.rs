//! Requests that are divided into texts ([`backend::TextModel`]).
//!
//! A text is an ordinary entry in the queue of the same version, with the request's ticket as its parent: so queues,
//! priorities, cancellation, instances and hang checks are those of any model, and texts of different requests run
//! together. What differs is counted in `statistics`: texts count as executions, and their request once, at its end.
//!
//! Tokenising runs on the pool, in jobs of at most [`TEXT_JOB_NS_MAX`], each of which is queued behind the jobs of
//! others; the caller does it for short requests, which saves a wake. A request has at most [`TEXTS_AHEAD_MAX`] texts
//! that are prepared and not answered, so its memory does not grow with their number.
//!
//! Invariant: a request ends exactly once: when its last text is answered, or one fails. A failure cancels the others.

use crate::answer::{EngineResponse, Sink};
use crate::call::{Caller, Started, TextPart};
use crate::limits::{TEXT_JOB_NS_MAX, TEXTS_AHEAD_MAX, TEXTS_AHEAD_MIN, TEXTS_PER_BATCH_MAX, TEXTS_WAITING_MAX};
use crate::statistics::FailureReason;
use crate::ticket::{Ticket, TicketState};
use crate::times::Timings;
use crate::traced;
use crate::version::{ModelVersion, Work};
use backend::{BatchEntry, Division, Marks, OpenSpec, PreparedText, TextModel, now_ns};
use parking_lot::Mutex;
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_config::SchedulingChoice;
use protocol::{Checked, InferRequest, InferResponse};
use scheduler::Dynamic;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{Code, Error, Name, Result};
use trace::Trace;

/// Requests of at most this many bytes and texts are tokenised by their caller, which may be a reactor: some 0.1 ms.
const CALLER_BYTES_MAX: usize = 512;
const CALLER_TEXTS_MAX: u32 = 4;

/// Instance number for the statistics of a request, whose texts ran on any.
const NO_INSTANCE: u32 = u32::MAX;

/// A request on its way.
struct TextRequest {
    version: Arc<ModelVersion>,
    division: Box<dyn Division>,
    /// The parent of the tickets of all texts.
    ticket: Ticket,
    trace: Option<Trace>,
    id: Name,
    priority: u64,
    timeout_us: u64,
    accepted: u64,
    rows: u32,
    /// Time that the preparation of all texts took so far, on any thread.
    tokenizing_ns: AtomicU64,
    progress: Mutex<TextProgress>,
}

struct TextProgress {
    /// The next text to prepare.
    next: u32,
    /// Number of answered texts.
    done: u32,
    /// Number of jobs that prepare texts.
    jobs: u32,
    /// `None` once the request is over.
    sink: Option<Arc<dyn Sink>>,
}

struct TextSink {
    request: Arc<TextRequest>,
    text: u32,
}

impl Sink for TextSink {
    fn put(&self, EngineResponse { response, .. }: EngineResponse) {
        let none = || Err(Error::internal("the model ended a text without a response"));
        self.request.answered(self.text, response.unwrap_or_else(none));
    }
}

/// Checks that the scheduling of a text model is one that texts have.
pub(crate) fn check(open: &OpenSpec, config: &ModelConfig) -> Result<()> {
    let what = match &config.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(_)) => "sequence_batching",
        Some(SchedulingChoice::DynamicBatching(batching)) if batching.preserve_ordering => {
            "dynamic_batching { preserve_ordering: true }"
        }
        _ if config.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled) => {
            "model_transaction_policy { decoupled: true }"
        }
        _ if open.batching.is_some() => "a batching library",
        _ => return Ok(()),
    };
    let model = &open.model;
    Err(Error::invalid(format!(
        "model '{model}' of backend 'text' has {what}, which text models do not have: remove it"
    )))
}

/// Sets the scheduling of texts: batches by tokens, whether `dynamic_batching` is configured or not.
pub(crate) fn schedule(schedule: &mut scheduler::Config, tokens_max: u32) {
    schedule.dynamic.get_or_insert_with(Dynamic::default);
    schedule.tokens_max = Some(tokens_max);
    if schedule.max_batch_size == 0 {
        schedule.max_batch_size = TEXTS_PER_BATCH_MAX;
    }
}

/// All texts of a request, for a run without the scheduler.
///
/// # Errors
/// INVALID_ARG for a text that is too long or malformed, or for parameters that the model does not take.
pub(crate) fn prepared(
    model: &dyn TextModel,
    request: &InferRequest,
    checked: &Checked,
) -> Result<Vec<(BatchEntry, Option<TextPart>)>> {
    let division = model.divide(request, checked)?;
    let entry = |place| {
        let PreparedText { inputs, tokens } = division.prepare(place)?;
        let (request, checked) = entry_of(InferRequest { inputs, ..InferRequest::default() });
        Ok((BatchEntry::new(request, checked), Some(TextPart { tokens, place })))
    };
    (0..division.texts()).map(entry).collect()
}

/// A prepared text as the version's queue takes it, without a check: it is none of its signature.
fn entry_of(request: InferRequest) -> (Box<InferRequest>, Checked) {
    let inputs = (0..).take(request.inputs.len()).collect();
    (Box::new(request), Checked { rows: 1, inputs, ..Checked::default() })
}

/// Starts an accepted request.
#[inline(never)]
pub(crate) fn start(
    version: &ModelVersion,
    request: Box<InferRequest>,
    (checked, accepted): (&Checked, u64),
    sink: impl FnOnce() -> Arc<dyn Sink>,
    parent: Option<&Ticket>,
) -> Result<Started> {
    let Some(model) = version.text_model() else { return Err(version.defect()) };
    let Some(version) = version.me.upgrade() else { return Err(Error::unavailable("Server exiting")) };
    // The tokenizer is not ours: a panic must cost only this request.
    let division =
        catch_unwind(AssertUnwindSafe(|| model.divide(&request, checked))).unwrap_or_else(|_| Err(version.defect()))?;
    let texts = division.texts();
    let state = TicketState::new(Some(version.me.clone()), parent.map(|p| &p.state))?;
    let ticket = Ticket::new(state);
    let is_short = texts <= CALLER_TEXTS_MAX && division.bytes() <= CALLER_BYTES_MAX;
    let jobs = if is_short { 1 } else { texts.min(jobs_max()) };
    version.joined(1);
    let running = Arc::new(TextRequest {
        division,
        ticket: ticket.clone(),
        trace: request.trace.clone(),
        id: request.id.clone(),
        priority: request.priority,
        timeout_us: request.timeout_us,
        accepted,
        rows: texts.max(1),
        tokenizing_ns: AtomicU64::new(0),
        progress: Mutex::new(TextProgress { next: 0, done: 0, jobs, sink: Some(sink()) }),
        version,
    });
    if texts == 0 {
        running.end(Ok(()));
    } else if is_short {
        running.prepare_some(u64::MAX);
    } else {
        (0..jobs).for_each(|_| running.submit());
    }
    Ok(Started::Queued(ticket))
}

/// Jobs of one request that run at once.
fn jobs_max() -> u32 {
    u32::try_from(memory::machine::cpus()).unwrap_or(u32::MAX)
}

impl TextRequest {
    fn submit(self: &Arc<Self>) {
        self.version.shared.pool.submit(self.job());
    }

    fn job(self: &Arc<Self>) -> Work {
        let request = self.clone();
        Work::of(move || request.prepare_some(now_ns().saturating_add(TEXT_JOB_NS_MAX)))
    }

    /// Prepares and queues texts until the time is over, and then continues in another job.
    fn prepare_some(self: &Arc<Self>, until: u64) {
        while let Some(text) = self.take() {
            let from = now_ns();
            let prepared = catch_unwind(AssertUnwindSafe(|| self.division.prepare(text)));
            self.tokenizing_ns.fetch_add(now_ns().saturating_sub(from), Ordering::Relaxed);
            let queued = prepared.unwrap_or_else(|_| Err(self.version.defect())).and_then(|p| self.queue(text, p));
            if let Err(error) = queued {
                self.answered(text, Err(error));
            }
            if until != u64::MAX && now_ns() >= until {
                return self.version.shared.pool.requeue(self.job());
            }
        }
    }

    /// The next text to prepare; `None` ends the job.
    fn take(&self) -> Option<u32> {
        let mut progress = self.progress.lock();
        let text = progress.next;
        let is_ahead = text - progress.done >= self.ahead_max();
        if text >= self.division.texts() || is_ahead || progress.sink.is_none() {
            progress.jobs -= 1;
            return None;
        }
        progress.next += 1;
        Some(text)
    }

    /// Number of texts that may be prepared and not answered. Small while many wait, so that the memory of prepared
    /// texts does not grow with the number of requests either.
    fn ahead_max(&self) -> u32 {
        let waiting = self.version.serving.pending.load(Ordering::Relaxed);
        let most = if waiting > TEXTS_WAITING_MAX { TEXTS_AHEAD_MIN } else { TEXTS_AHEAD_MAX };
        self.version.scheduling.texts.map_or(most, |texts| most.min(texts.ahead_max))
    }

    fn queue(self: &Arc<Self>, text: u32, PreparedText { inputs, tokens }: PreparedText) -> Result<()> {
        if self.ticket.is_cancelled() {
            return Err(Error::cancelled(""));
        }
        let now = now_ns();
        // The timeout is the request's, and 0 is none.
        let passed_us = now.saturating_sub(self.accepted) / 1000;
        let timeout_us = self.timeout_us.saturating_sub(passed_us).max(u64::from(self.timeout_us > 0));
        let (request, checked) = entry_of(InferRequest {
            id: self.id.clone(),
            inputs,
            priority: self.priority,
            timeout_us,
            // It records why the first text started.
            trace: self.trace.clone().filter(|_| text == 0),
            ..InferRequest::default()
        });
        let part = Some(TextPart { tokens, place: text });
        let caller = Caller { parent: Some(&self.ticket), inline_until: 0, depth: 0, text: part };
        let sink = || Arc::new(TextSink { request: self.clone(), text }) as Arc<dyn Sink>;
        match self.version.admit(request, checked, now, None, sink, caller)? {
            Started::Queued(_) => {}
            Started::Answered(result) => self.answered(text, result),
        }
        Ok(())
    }

    /// Takes the result of a text. The last one ends the request, and so does a failure.
    fn answered(self: &Arc<Self>, text: u32, result: Result<Box<InferResponse>>) {
        let put = result.and_then(|response| {
            catch_unwind(AssertUnwindSafe(|| self.division.put(text, &response)))
                .unwrap_or_else(|_| Err(self.version.defect()))
        });
        if let Err(error) = put {
            return self.end(Err(error));
        }
        let mut progress = self.progress.lock();
        progress.done += 1;
        let is_last = progress.done == self.division.texts();
        // A job ended because too many texts were ahead.
        let is_next = progress.next < self.division.texts() && progress.jobs < jobs_max();
        let continues = is_next && progress.next - progress.done <= self.ahead_max() / 2;
        progress.jobs += u32::from(continues);
        drop(progress);
        if continues {
            self.submit();
        }
        if is_last {
            self.end(Ok(()));
        }
    }

    /// Counts the request and responds.
    fn end(&self, ended: Result<()>) {
        let Some(sink) = self.progress.lock().sink.take() else { return };
        let result = ended.and_then(|()| {
            let joined = catch_unwind(AssertUnwindSafe(|| self.division.join()));
            joined.unwrap_or_else(|_| Err(self.version.defect()))
        });
        let state = &self.ticket.state;
        let result = state.settle().map_or(result, Err);
        let now = now_ns();
        let [input, infer, output] = state.spent();
        // Each text has its share of the time of its batch; the rest of the request's time is waiting.
        let start = now.saturating_sub(input + infer + output).max(self.accepted);
        let inputs_ready = (start + input).min(now);
        let inference_end = (inputs_ready + infer).min(now);
        let marks = Marks { inputs_ready, inference_end, outputs_ready: now };
        let timings = Timings { start, marks, end: now };
        let statistics = &self.version.statistics;
        let result = match result {
            Ok(outcome) => {
                statistics.first_response(self.accepted, now, None);
                statistics.ended(NO_INSTANCE, &timings, self.accepted, self.rows, None);
                statistics.tokenized(self.tokenizing_ns.load(Ordering::Relaxed));
                self.trace.iter().for_each(|trace| statistics.exemplify(trace, &timings));
                let signature = &self.version.signature;
                Ok(Box::new(InferResponse {
                    model_name: signature.model.clone(),
                    model_version: signature.version.clone(),
                    id: self.id.clone(),
                    parameters: outcome.parameters,
                    outputs: outcome.outputs,
                }))
            }
            Err(error) => {
                let reason = match error.code() {
                    Code::Cancelled => FailureReason::Cancelled,
                    // Its queue was full, or it waited for too long.
                    Code::Unavailable => FailureReason::Rejected,
                    Code::InvalidArg => FailureReason::Other,
                    _ => FailureReason::Backend,
                };
                statistics.failed(self.accepted, now, reason);
                Err(error)
            }
        };
        state.add_to_parent([input, infer, output]);
        if let Some(trace) = &self.trace {
            traced::ran(trace, &timings);
            traced::answered(trace, &result, now);
        }
        let has_failed = result.is_err();
        self.version.put(sink, EngineResponse::only(result));
        if has_failed {
            // The request is settled, so this cancels its texts only.
            self.ticket.cancel();
        }
    }
}
