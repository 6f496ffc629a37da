//! Reports how calls ended. Calls are started from JavaScript only, so the queue is never longer than what JavaScript asked for.

use crate::objects::{EmbeddedAnswer, EmbeddedCallAnswer, NativeInferResponse, Opened, Settlement};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor::{Error, Result};

type Report = ThreadsafeFunction<Settlement, (), FnArgs<(Settlement,)>, napi::Status, false>;

/// Where threads report. Keeps Node's event loop alive, so that a process with an open call does not end under it.
#[derive(Clone)]
pub struct Settler(Arc<Report>);

/// What a call came back with.
pub enum Settled {
    Nothing,
    Opened(Opened),
    Count(i64),
    Response(Box<NativeInferResponse>),
    /// Responses of one request, and whether they are the last.
    Responses(Vec<NativeInferResponse>, bool),
    /// Of a request that another server received.
    Embedded(Box<EmbeddedAnswer>),
    /// Of a gRPC call that another server received.
    EmbeddedCall(Box<EmbeddedCallAnswer>),
}

impl Settler {
    pub fn new(f: &Function<'_, FnArgs<(Settlement,)>, ()>) -> napi::Result<Self> {
        let report =
            f.build_threadsafe_function::<Settlement>().build_callback(|ctx| Ok(FnArgs::from((ctx.value,))))?;
        Ok(Self(Arc::new(report)))
    }

    pub fn settle(&self, ticket: u32, result: Result<Settled>) {
        let mut s = Settlement {
            ticket,
            error_code: -1,
            message: String::new(),
            opened: None,
            count: None,
            response: None,
            responses: None,
            done: None,
            embedded: None,
            embedded_call: None,
        };
        match result {
            Ok(Settled::Nothing) => {}
            Ok(Settled::Opened(v)) => s.opened = Some(v),
            Ok(Settled::Count(v)) => s.count = Some(v),
            Ok(Settled::Response(v)) => s.response = Some(*v),
            Ok(Settled::Responses(v, done)) => (s.responses, s.done) = (Some(v), Some(done)),
            Ok(Settled::Embedded(v)) => s.embedded = Some(*v),
            Ok(Settled::EmbeddedCall(v)) => s.embedded_call = Some(*v),
            Err(e) => {
                s.error_code = e.code() as i32;
                s.message = e.message().to_owned();
            }
        }
        self.0.call(s, ThreadsafeFunctionCallMode::NonBlocking);
    }

    /// Runs `work`, loading a model, as [`run`](Self::run) does, but behind what serves requests when that has to wait: creating a session
    /// computes for seconds, and on few cores it would take them from inferences.
    pub fn run_behind(&self, ticket: u32, work: impl FnOnce() -> Result<Settled> + Send + 'static) {
        self.run(ticket, move || {
            let _yielding = memory::yielding::by_need();
            work()
        });
    }

    /// Runs `work` on a thread of its own and reports what it returns. Lifecycle calls only: seconds long, a few at a time.
    pub fn run(&self, ticket: u32, work: impl FnOnce() -> Result<Settled> + Send + 'static) {
        let settler = self.clone();
        let spawned = std::thread::Builder::new().name("nereid-lifecycle".into()).spawn(move || {
            // An unloaded model is gone, and its memory with it, when the call reports that it is.
            memory::behind::drop_in_place();
            let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                Err(Error::internal("the core panicked; this is a defect of the server, please report it with the log"))
            });
            settler.settle(ticket, result);
        });
        if let Err(e) = spawned {
            self.settle(ticket, Err(Error::internal(format!("cannot start a thread: {e}"))));
        }
    }
}
