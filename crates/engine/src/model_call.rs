//! Calls of models by models (BLS in Triton's words, B-PY-10 to B-PY-13): requests like those of clients, by the same door.
//!
//! A call is part of the request that it is made for: it is not refused because the server stops. What it waits for is its `timeout`: in a
//! queue, however that is configured, it waits no longer. A model that is called by way of itself, while its only instance is busy with the
//! caller, would wait for ever: such a call waits for [`MODEL_CYCLE_WAIT_NS_MAX`] at most, and then fails.

use crate::answer::{Answer, Sink};
use crate::registry::Engine;
use crate::ticket::Ticket;
use crate::timer::{Timed, Timer};
use crate::version::Started;
use backend::{Call, CallAnswers, ModelCall, now_ns};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// Models that may call one another for one request.
pub const MODEL_CALLS_DEPTH_MAX: u32 = 32;
/// Nanoseconds that a call waits in the queue of a model that waits for its answer itself. All instances of that model may do so, and then none
/// comes free.
pub const MODEL_CYCLE_WAIT_NS_MAX: u64 = 10_000_000_000;

impl Engine {
    /// Starts an inference of one model for another. `answers` may get all of them before this returns.
    ///
    /// # Errors
    /// It was refused, `answers` gets nothing: there is no such model, it is decoupled and the caller takes one answer only, too many models
    /// call one another, or as [`crate::ModelVersion::call`].
    pub fn call_from_model(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>> {
        let ModelCall { model, version, mut request, decoupled, parent_trace } = call;
        if request.depth > MODEL_CALLS_DEPTH_MAX {
            return Err(Error::unavailable(format!(
                "more than {MODEL_CALLS_DEPTH_MAX} models call one another for one request"
            )));
        }
        let target = self.model_at(&model, (version != -1).then_some(version))?;
        if target.signature.decoupled && !decoupled {
            // Triton's text, quotation mark included.
            return Err(Error::unsupported(format!(
                "Model {model} is using the decoupled. The current BLS request call doesn't support models using the decoupled \
                 transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
            )));
        }
        request.trace = parent_trace.and_then(|parent| parent.child());
        let timeout_ns = match request.timeout_us {
            0 => u64::MAX,
            timeout_us => timeout_us.saturating_mul(1000),
        };
        let is_cycle = request.callers.has(&target.signature.model);
        let waits_ns = if is_cycle { timeout_ns.min(MODEL_CYCLE_WAIT_NS_MAX) } else { timeout_ns };
        let group = Ticket::group(None)?;
        let mut queued = None;
        let sink = || {
            let sink = Arc::new(Forward { answers: answers.clone(), decoupled, deadline: Mutex::default() });
            queued = Some(sink.clone());
            sink as Arc<dyn Sink>
        };
        match target.call(request, sink, Some(&group))? {
            Started::Answered(result) => answers.answer(Some(result), true),
            Started::Queued(ticket) if waits_ns < u64::MAX => {
                let at = now_ns().saturating_add(waits_ns);
                let error = match waits_ns < timeout_ns {
                    true => waits_for_itself(&model),
                    false => Error::unavailable("Request timeout expired"),
                };
                if let Some(sink) = queued {
                    sink.waits_until(&self.deadlines(), at, (ticket, error));
                }
            }
            Started::Queued(_) => {}
        }
        Ok(Box::new(Made(group)))
    }

    /// A step of an ensemble that was called by way of the step's own model: it waits no longer than another call of that kind.
    pub(crate) fn bound_cycle(&self, model: &str, ticket: Ticket) {
        let at = now_ns().saturating_add(MODEL_CYCLE_WAIT_NS_MAX);
        self.deadlines().add(at, (ticket, waits_for_itself(model)));
    }
}

#[cold]
fn waits_for_itself(model: &str) -> Error {
    let seconds = MODEL_CYCLE_WAIT_NS_MAX / 1_000_000_000;
    Error::unavailable(format!(
        "a call waited for {seconds} s for an instance of model '{model}', which waits for the answer of that call itself"
    ))
}

/// A call that was not refused.
struct Made(Ticket);

impl Call for Made {
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// Hands answers on.
struct Forward {
    answers: Arc<dyn CallAnswers>,
    decoupled: bool,
    deadline: Mutex<Deadline>,
}

#[derive(Default)]
enum Deadline {
    #[default]
    None,
    At(Arc<Deadlines>, (u64, u64)),
    /// The call is over.
    Over,
}

impl Forward {
    fn waits_until(&self, deadlines: &Arc<Deadlines>, at: u64, call: (Ticket, Error)) {
        let mut deadline = self.deadline.lock();
        if !matches!(*deadline, Deadline::Over) {
            *deadline = Deadline::At(deadlines.clone(), deadlines.add(at, call));
        }
    }
}

impl Sink for Forward {
    fn put(&self, Answer { response, is_final }: Answer) {
        if is_final && let Deadline::At(deadlines, key) = std::mem::replace(&mut *self.deadline.lock(), Deadline::Over)
        {
            deadlines.remove(key);
        }
        let response = match response {
            None if !self.decoupled => Some(Err(Error::internal("the model ended the request without a response"))),
            response => response,
        };
        self.answers.answer(response, is_final);
    }
}

/// Calls that wait no longer than their timeout. Holds those that are not over, so its size is bounded as they are; and for ten seconds steps of
/// ensembles that lie in a ring of calls.
pub(crate) struct Deadlines {
    timer: Arc<Timer>,
    state: Mutex<Waiting>,
    me: Weak<Self>,
}

#[derive(Default)]
struct Waiting {
    /// By time, and a number that tells those of one time apart; with what their callers are told.
    tickets: BTreeMap<(u64, u64), (Ticket, Error)>,
    numbers: u64,
    /// When the timer wakes next, 0 = not.
    armed: u64,
}

impl Deadlines {
    pub(crate) fn new(timer: Arc<Timer>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { timer, state: Mutex::default(), me: me.clone() })
    }

    fn add(&self, at: u64, call: (Ticket, Error)) -> (u64, u64) {
        let mut state = self.state.lock();
        state.numbers += 1;
        let key = (at, state.numbers);
        state.tickets.insert(key, call);
        self.arm(&mut state);
        key
    }

    fn remove(&self, key: (u64, u64)) {
        self.state.lock().tickets.remove(&key);
    }

    fn arm(&self, state: &mut Waiting) {
        let Some((&(at, _), _)) = state.tickets.first_key_value() else { return };
        if (state.armed == 0 || at < state.armed) && self.timer.arm(at, self.me.clone()) {
            state.armed = at;
        }
    }
}

impl Timed for Deadlines {
    fn wake(&self, at: u64) {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        if state.armed == at {
            state.armed = 0;
        }
        let now = now_ns();
        while let Some(first) = state.tickets.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        self.arm(&mut state);
        drop(state);
        for (ticket, error) in due {
            ticket.expire(error);
        }
    }
}
