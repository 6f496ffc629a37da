//! Passes log lines of the core to TypeScript, which formats and writes them. If it is slow, lines are dropped.

use crate::objects::LogRecord;
use log::{Level, LevelFilter, Log, Metadata, Record};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

/// Lines queued for the JavaScript thread.
const QUEUE_MAX: usize = 4096;

type Sink = ThreadsafeFunction<LogRecord, (), FnArgs<(LogRecord,)>, napi::Status, false, true, QUEUE_MAX>;

/// Lines dropped since start.
pub static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Forwards lines to the JavaScript threads of the servers. All servers of a process log to the same destination.
struct Forward(RwLock<Vec<(ThreadId, Sink)>>);

static FORWARD: Forward = Forward(RwLock::new(Vec::new()));

impl Log for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            Level::Error => 0,
            Level::Warn => 1,
            Level::Info => 2,
            Level::Debug => 3,
            Level::Trace => 4,
        };
        let line = || LogRecord {
            level,
            message: record.args().to_string(),
            file: record.file().and_then(|f| f.rsplit('/').next()).unwrap_or("core").to_owned(),
            line: record.line().unwrap_or(0),
        };
        // The sink of a worker thread that has ended rejects every line.
        let sinks = self.0.read();
        let call = |sink: &Sink| sink.call(line(), ThreadsafeFunctionCallMode::NonBlocking);
        let status = sinks.iter().rev().map(|(_, sink)| call(sink)).find(|status| *status != napi::Status::Closing);
        if status != Some(napi::Status::Ok) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// Sends lines to `f` while the calling JavaScript thread lives.
pub fn install(f: &Function<'_, FnArgs<(LogRecord,)>, ()>) -> napi::Result<()> {
    let sink = f
        .build_threadsafe_function::<LogRecord>()
        .max_queue_size::<QUEUE_MAX>()
        .weak::<true>()
        .build_callback(|ctx| Ok(FnArgs::from((ctx.value,))))?;
    let own = thread::current().id();
    let mut sinks = FORWARD.0.write();
    sinks.retain(|(thread, sink)| *thread != own && !sink.aborted());
    sinks.push((own, sink));
    // Fails if this process already has a logger, which is then this one.
    let _ = log::set_logger(&FORWARD);
    set_verbose_level(0);
    Ok(())
}

/// 0 = errors, warnings and information; 1 adds details; 2 and more add everything.
pub fn set_verbose_level(level: u32) {
    log::set_max_level(match level {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
}
