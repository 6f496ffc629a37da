//! Reports the results of calls. Only JavaScript starts calls, so it bounds the queue.

use crate::failure::caught;
use crate::objects::{EmbeddedAnswer, EmbeddedCallAnswer, Failure, NativeInferResponse, NextResponses, Opened};
use napi::bindgen_prelude::{FnArgs, Function, ToNapiValue};
use napi::sys::{napi_env, napi_value};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use std::sync::Arc;
use tensor::{Error, Fault, Result};

/// The ticket of a call, its error, and its value.
pub type Report = FnArgs<(u32, Option<Failure>, Settled)>;

type Reports = ThreadsafeFunction<(u32, Result<Settled>), (), Report, napi::Status, false>;

/// Queue of reports. Keeps Node's event loop alive while a call is open.
#[derive(Clone)]
pub struct Settler(Arc<Reports>);

/// Result of a call.
pub enum Settled {
    Nothing,
    Flag(bool),
    Count(i64),
    Opened(Opened),
    Response(Box<NativeInferResponse>),
    Responses(NextResponses),
    /// A part of the response to a request that another server received.
    Embedded(Box<EmbeddedAnswer>),
    /// A part of the response to a gRPC call that another server received.
    EmbeddedCall(Box<EmbeddedCallAnswer>),
}

impl ToNapiValue for Settled {
    unsafe fn to_napi_value(env: napi_env, settled: Self) -> napi::Result<napi_value> {
        // SAFETY: the caller guarantees that `env` is valid.
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
        let (code, fault) = (e.code().constant(), e.fault().name());
        Self { code, fault, retryable: e.is_retryable(), message: e.message().to_owned() }
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

    /// Runs `work`, which loads a model, like [`run`](Self::run), but yields to serving threads: creating a session
    /// computes for seconds and would take a core from inferences.
    pub fn run_load(&self, ticket: u32, work: impl FnOnce() -> Result<Settled> + Send + 'static) {
        self.run(ticket, move || {
            let _yielding = memory::yielding::when_contended();
            work().map_err(Error::by_model)
        });
    }

    /// Runs `work` on a thread of its own and reports its result. Only for lifecycle calls: seconds long, but few.
    pub fn run(&self, ticket: u32, work: impl FnOnce() -> Result<Settled> + Send + 'static) {
        let settler = self.clone();
        let spawned = std::thread::Builder::new().name("nereid-lifecycle".into()).spawn(move || {
            // When the call reports an unloaded model, its memory is free.
            memory::release::drop_in_place();
            settler.settle(ticket, caught(work));
        });
        if let Err(e) = spawned {
            self.settle(ticket, Err(Error::internal(format!("cannot start a thread: {e}")).by(Fault::Environment)));
        }
    }
}
