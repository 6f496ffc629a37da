//! Passes log lines of the core to TypeScript, which formats and writes them. If it is slow, lines are dropped.

use crate::objects::LogRecord;
use log::{Level, Record};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use nereid_core::logging::{Delivery, LogSink};
use std::sync::Arc;

/// Lines queued for the JavaScript thread.
const QUEUE_MAX: usize = 4096;

/// Queue of lines for a JavaScript thread.
struct Lines(ThreadsafeFunction<LogRecord, (), FnArgs<(LogRecord,)>, napi::Status, false, true, QUEUE_MAX>);

impl LogSink for Lines {
    fn put(&self, record: &Record<'_>) -> Delivery {
        let level = match record.level() {
            Level::Error => 0,
            Level::Warn => 1,
            Level::Info => 2,
            Level::Debug => 3,
            Level::Trace => 4,
        };
        let line = LogRecord {
            level,
            message: record.args().to_string(),
            file: record.file().and_then(|f| f.rsplit('/').next()).unwrap_or("core").to_owned(),
            line: record.line().unwrap_or(0),
        };
        match self.0.call(line, ThreadsafeFunctionCallMode::NonBlocking) {
            napi::Status::Ok => Delivery::Taken,
            // The thread is a worker that has ended.
            napi::Status::Closing => Delivery::Ended,
            _ => Delivery::Full,
        }
    }
}

/// Sends lines to `f` while its JavaScript thread lives.
pub fn sink(f: &Function<'_, FnArgs<(LogRecord,)>, ()>) -> napi::Result<Arc<dyn LogSink>> {
    let lines = f
        .build_threadsafe_function::<LogRecord>()
        .max_queue_size::<QUEUE_MAX>()
        .weak::<true>()
        .build_callback(|ctx| Ok(FnArgs::from((ctx.value,))))?;
    Ok(Arc::new(Lines(lines)))
}
