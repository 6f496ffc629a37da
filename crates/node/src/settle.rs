//! Reports how calls ended. Calls are started from JavaScript only, so the queue is never longer than what JavaScript asked for.

use crate::objects::{EmbeddedAnswer, EmbeddedCallAnswer, Failure, NativeInferResponse, NextResponses, Opened};
use napi::bindgen_prelude::{FnArgs, Function, ToNapiValue};
use napi::sys::{napi_env, napi_value};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor::{Error, Result};

/// The ticket of a call, why it failed, and what it came back with.
pub type Report = FnArgs<(u32, Option<Failure>, Settled)>;

type Reports = ThreadsafeFunction<(u32, Result<Settled>), (), Report, napi::Status, false>;

/// Where threads report. Keeps Node's event loop alive, so that a process with an open call does not end under it.
#[derive(Clone)]
pub struct Settler(Arc<Reports>);

/// What a call came back with.
pub enum Settled {
    Nothing,
    Flag(bool),
    Count(i64),
    Opened(Opened),
    Response(Box<NativeInferResponse>),
    Responses(NextResponses),
    /// Of a request that another server received.
    Embedded(Box<EmbeddedAnswer>),
    /// Of a gRPC call that another server received.
    EmbeddedCall(Box<EmbeddedCallAnswer>),
}

impl ToNapiValue for Settled {
    unsafe fn to_napi_value(env: napi_env, settled: Self) -> napi::Result<napi_value> {
        // SAFETY: the caller's promise about `env` is passed on.
        unsafe {
            match settled {
                Self::Nothing => ToNapiValue::to_napi_value(env, ()),
                Self::Flag(v) => ToNapiValue::to_napi_value(env, v),
                Self::Count(v) => ToNapiValue::to_napi_value(env, v),
                Self::Opened(v) => ToNapiValue::to_napi_value(env, v),
                Self::Response(v) => ToNapiValue::to_napi_value(env, *v),
                Self::Responses(v) => ToNapiValue::to_napi_value(env, v),
                Self::Embedded(v) => ToNapiValue::to_napi_value(env, *v),
                Self::EmbeddedCall(v) => ToNapiValue::to_napi_value(env, *v),
            }
        }
    }
}

impl From<&Error> for Failure {
    fn from(e: &Error) -> Self {
        Self { code: e.code().constant(), message: e.message().to_owned() }
    }
}

impl Settler {
    pub fn new(f: &Function<'_, Report, ()>) -> napi::Result<Self> {
        let reports = f.build_threadsafe_function::<(u32, Result<Settled>)>().build_callback(|ctx| {
            let (ticket, result) = ctx.value;
            Ok(FnArgs::from(match result {
                Ok(settled) => (ticket, None, settled),
                Err(e) => (ticket, Some(Failure::from(&e)), Settled::Nothing),
            }))
        })?;
        Ok(Self(Arc::new(reports)))
    }

    pub fn settle(&self, ticket: u32, result: Result<Settled>) {
        self.0.call((ticket, result), ThreadsafeFunctionCallMode::NonBlocking);
    }

    /// Runs `work`, loading a model, as [`run`](Self::run) does, but behind what serves requests when that has to wait: creating a session
    /// computes for seconds, and on few cores it would take them from inferences.
    pub fn run_behind(&self, ticket: u32, work: impl FnOnce() -> Result<Settled> + Send + 'static) {
        self.run(ticket, move || {
            let _yielding = memory::yielding::when_contended();
            work()
        });
    }

    /// Runs `work` on a thread of its own and reports what it returns. Lifecycle calls only: seconds long, a few at a time.
    pub fn run(&self, ticket: u32, work: impl FnOnce() -> Result<Settled> + Send + 'static) {
        let settler = self.clone();
        let spawned = std::thread::Builder::new().name("nereid-lifecycle".into()).spawn(move || {
            // An unloaded model is gone, and its memory with it, when the call reports that it is.
            memory::release::drop_in_place();
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
