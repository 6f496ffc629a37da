//! Passes traces to TypeScript, which writes or exports them.

use crate::objects as js;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use tensor::Error;
use trace::{Call, Record, RecordedTensor, Stamp, TraceMode, Tracer};

/// Queued calls for the JavaScript thread; all are the same notification.
const QUEUE_MAX: usize = 4;

type OnTraces = ThreadsafeFunction<(), (), (), napi::Status, false, true, QUEUE_MAX>;

/// A call of `f`, for when there are records to take.
pub fn notify(f: &Function<'_, (), ()>) -> napi::Result<Box<dyn Fn() + Send + Sync>> {
    let call: OnTraces =
        f.build_threadsafe_function::<()>().max_queue_size::<QUEUE_MAX>().weak::<true>().build_callback(|_| Ok(()))?;
    Ok(Box::new(move || {
        // A full queue has notified already.
        call.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}

/// Takes at most `max` records. `start` is that of the core's clock by JavaScript's.
pub fn take(tracer: &Tracer, max: u32, start: u64) -> js::TakenTraces {
    let taken = tracer.take(max as usize);
    js::TakenTraces {
        records: taken.records.into_iter().map(|r| record(r, start)).collect(),
        ended: taken.ended,
        is_all: taken.is_all,
    }
}

fn record(r: Record, start: u64) -> js::TraceRecord {
    js::TraceRecord {
        mode: match r.mode {
            TraceMode::Triton => "triton",
            TraceMode::OpenTelemetry => "opentelemetry",
        },
        setting: r.setting,
        context: r.context.map(|c| js::TraceContext { traceparent: c.traceparent, tracestate: c.tracestate }),
        trace_id: r.trace_id,
        calls: r.calls.into_iter().map(|c| call(c, start)).collect(),
        activities: activities(&r.activities, start),
        id: r.id as f64,
    }
}

fn call(c: Call, start: u64) -> js::TraceCall {
    js::TraceCall {
        id: c.id as f64,
        parent_id: c.parent as f64,
        model: c.model,
        version: c.version,
        request_id: c.request_id,
        span_id: c.span_id,
        activities: activities(&c.activities, start),
        tensors: c.tensors.into_iter().map(tensor).collect(),
        error: c.error.map(|(code, message)| js::Failure::from(&Error::new(code, message))),
    }
}

fn activities(stamps: &[Stamp], start: u64) -> Vec<js::TraceActivity> {
    let activity =
        |s: &Stamp| js::TraceActivity { name: s.activity.name().into_owned(), ns: start.saturating_add(s.ns) };
    stamps.iter().map(activity).collect()
}

fn tensor(t: RecordedTensor) -> js::TraceTensor {
    let data = t.text();
    let activity = t.kind.name().to_owned();
    js::TraceTensor { activity, name: t.name, datatype: t.datatype.name().to_owned(), shape: t.shape, data }
}
