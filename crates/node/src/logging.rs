//! Hands log lines of the core to TypeScript, which owns format and destination. Lines are dropped, and counted, when it is slow.

use crate::objects::LogRecord;
use log::{Level, LevelFilter, Log, Metadata, Record};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use parking_lot::RwLock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines that may wait for the JavaScript thread.
const QUEUE_MAX: usize = 4096;

type Sink = ThreadsafeFunction<LogRecord, (), FnArgs<(LogRecord,)>, napi::Status, false, true, QUEUE_MAX>;

/// Lines dropped since start.
pub static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Forward(RwLock<Option<Sink>>);

static FORWARD: OnceLock<&'static Forward> = OnceLock::new();

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
        let line = LogRecord {
            level,
            message: record.args().to_string(),
            file: record.file().and_then(|f| f.rsplit('/').next()).unwrap_or("core").to_owned(),
            line: record.line().unwrap_or(0),
        };
        let sink = self.0.read();
        let sent = sink.as_ref().map(|s| s.call(line, ThreadsafeFunctionCallMode::NonBlocking));
        if sent != Some(napi::Status::Ok) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// From now on lines go to `f`; the core of one process logs to one place.
pub fn install(f: &Function<'_, FnArgs<(LogRecord,)>, ()>) -> napi::Result<()> {
    let sink = f
        .build_threadsafe_function::<LogRecord>()
        .max_queue_size::<QUEUE_MAX>()
        .weak::<true>()
        .build_callback(|ctx| Ok(FnArgs::from((ctx.value,))))?;
    let forward = FORWARD.get_or_init(|| Box::leak(Box::new(Forward(RwLock::new(None)))));
    *forward.0.write() = Some(sink);
    // Fails when this process already has the logger, which is then the same one.
    let _ = log::set_logger(*forward);
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
