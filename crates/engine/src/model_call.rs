//! Calls between models (BLS in Triton's words, B-PY-10 to B-PY-13), accepted like requests of clients.
//!
//! A call is part of the request that it is made for, so a stopping server does not reject it. It waits for its
//! `timeout` at most, however the queue is configured. If the instances of models wait for one another, one of their
//! calls fails after [`MODEL_CYCLE_WAIT_NS_MAX`](crate::limits::MODEL_CYCLE_WAIT_NS_MAX) (`cycles`).

use crate::answer::{EngineResponse, Sink};
use crate::call::Started;
use crate::deadlines::Deadlines;
use crate::limits::MODEL_CALLS_DEPTH_MAX;
use crate::registry::Engine;
use crate::ticket::Ticket;
use backend::{Call, CallAnswers, CallableModel, ModelCall, now_ns};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use tensor::{Error, Result};

impl Engine {
    /// Starts an inference of one model for another. `answers` may receive all responses before this returns.
    ///
    /// # Errors
    /// The model is unknown, it is decoupled and the caller takes only one response, too many models call one another,
    /// or [`crate::ModelVersion::call`] fails. Then `answers` receives nothing.
    pub fn call_from_model(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>> {
        let ModelCall { model, version, mut request, decoupled, parent_trace, is_only_checked } = call;
        if request.depth > MODEL_CALLS_DEPTH_MAX {
            return Err(Error::unavailable(format!(
                "more than {MODEL_CALLS_DEPTH_MAX} models call one another for one request"
            ))
            .by_model()
            .retry(false));
        }
        let target = self.model_at(&model, (version != -1).then_some(version))?;
        if target.signature.decoupled && !decoupled {
            // Triton's text, quotation mark included.
            return Err(Error::unsupported(format!(
                "Model {model} is using the decoupled. The current BLS request call doesn't support models using the \
                 decoupled \
                 transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for \
                 decoupled models.'"
            )));
        }
        if is_only_checked {
            target.check(&mut request)?;
            answers.answer(None, true);
            return Ok(Box::new(Made(Ticket::group(None)?)));
        }
        request.trace = parent_trace.and_then(|parent| parent.child());
        let timeout_us = request.timeout_us;
        let group = Ticket::group(None)?;
        let mut queued = None;
        let sink = || {
            let sink = Arc::new(Forward { answers: answers.clone(), decoupled, deadline: Mutex::default() });
            queued = Some(sink.clone());
            sink as Arc<dyn Sink>
        };
        match target.call(request, sink, Some(&group))? {
            Started::Answered(result) => answers.answer(Some(result), true),
            Started::Queued(ticket) => {
                self.cycles().called();
                if timeout_us > 0
                    && let Some(sink) = queued
                {
                    let at = now_ns().saturating_add(timeout_us.saturating_mul(1000));
                    sink.waits_until(&self.deadlines(), at, ticket);
                }
            }
        }
        Ok(Box::new(Made(group)))
    }
}

impl Engine {
    /// Describes the version that a call would reach; -1 lets the version policy decide.
    ///
    /// # Errors
    /// The model is unknown, or the version is not ready.
    pub fn describe_for_call(&self, model: &str, version: i64) -> Result<CallableModel> {
        let target = self.model_at(model, (version != -1).then_some(version))?;
        let (priority_levels, default_priority) = target.scheduling.priorities;
        Ok(CallableModel {
            version: target.signature.version.parse().unwrap_or(version),
            is_decoupled: target.signature.decoupled,
            batches: target.signature.max_batch_size > 0,
            priority_levels,
            default_priority,
        })
    }
}

/// An accepted call.
struct Made(Ticket);

impl Call for Made {
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// Forwards responses.
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
    Over,
}

impl Ticket {
    /// The ticket of a call, parent of all requests made for it.
    pub(crate) fn of_call(call: &dyn Call) -> Option<&Self> {
        let call: &dyn Any = call;
        call.downcast_ref::<Made>().map(|made| &made.0)
    }
}

impl Forward {
    fn waits_until(&self, deadlines: &Arc<Deadlines>, at: u64, ticket: Ticket) {
        let mut deadline = self.deadline.lock();
        if !matches!(*deadline, Deadline::Over) {
            *deadline = Deadline::At(deadlines.clone(), deadlines.add(at, ticket));
        }
    }
}

impl Sink for Forward {
    fn put(&self, EngineResponse { response, is_final, .. }: EngineResponse) {
        if is_final && let Deadline::At(deadlines, key) = std::mem::replace(&mut *self.deadline.lock(), Deadline::Over)
        {
            deadlines.remove(key);
        }
        let response = match response {
            None if !self.decoupled => {
                Some(Err(Error::internal("the model ended the request without a response").by_model()))
            }
            response => response,
        };
        self.answers.answer(response, is_final);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::timer::Timer;
    use protocol::InferResponse;

    struct Nobody;

    impl CallAnswers for Nobody {
        fn answer(&self, _: Option<Result<Box<InferResponse>>>, _: bool) {}
    }

    #[test]
    fn b_sec_07_a_finished_call_has_no_timeout() {
        let deadlines = Deadlines::new(Timer::new());
        let waiting = || deadlines.state.lock().tickets.len();
        let far = now_ns().saturating_add(3_600_000_000_000);
        let call = || Forward { answers: Arc::new(Nobody), decoupled: true, deadline: Mutex::default() };
        for round in 0..1000 {
            let calls = [call(), call()];
            for call in &calls {
                call.waits_until(&deadlines, far, Ticket::group(None).expect("new"));
            }
            assert_eq!(waiting(), 2, "round {round}: only those that are not over");
            calls.iter().for_each(|call| call.put(EngineResponse::last(None)));
            // A call whose response came before its ticket was there.
            let early = call();
            early.put(EngineResponse::last(None));
            early.waits_until(&deadlines, far, Ticket::group(None).expect("new"));
            assert_eq!(waiting(), 0, "round {round}");
        }
    }
}
