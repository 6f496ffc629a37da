//! Log lines of the core, passed to the sinks of the servers. Lines do not name their server: each goes to the newest
//! server that takes its level, and to an older one if that has ended.

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Result of passing a line to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The line is written or queued.
    Taken,
    /// The queue is full: the line is lost.
    Full,
    /// The sink takes no more lines.
    Ended,
}

/// Receives the log lines of a server. Must not block.
pub trait LogSink: Send + Sync {
    /// Passes a line on.
    fn put(&self, record: &Record<'_>) -> Delivery;
}

struct Registered {
    sink: Arc<dyn LogSink>,
    dropped: AtomicU64,
    /// The `LevelFilter` as a number.
    level: AtomicUsize,
}

/// The logger of the process, which the crate `log` has only once.
struct Forward(RwLock<Vec<Arc<Registered>>>);

static FORWARD: Forward = Forward(RwLock::new(Vec::new()));

impl Log for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let level = record.level() as usize;
        for one in self.0.read().iter().rev().filter(|one| level <= one.level.load(Ordering::Relaxed)) {
            match one.sink.put(record) {
                Delivery::Taken => return,
                Delivery::Full => {
                    one.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Delivery::Ended => {}
            }
        }
    }

    fn flush(&self) {}
}

impl Forward {
    /// Lets through what any sink takes.
    fn set_level(sinks: &[Arc<Registered>]) {
        let most = sinks.iter().map(|one| one.level.load(Ordering::Relaxed)).max().unwrap_or(0);
        let filter = LevelFilter::iter().find(|filter| *filter as usize == most);
        log::set_max_level(filter.unwrap_or(LevelFilter::Off));
    }
}

/// The log of one server. Dropping it removes its sink.
pub struct ServerLog(Arc<Registered>);

impl ServerLog {
    /// Sends lines to `sink` from now on.
    pub fn new(sink: Arc<dyn LogSink>) -> Self {
        let level = AtomicUsize::new(Level::Info as usize);
        let own = Arc::new(Registered { sink, dropped: AtomicU64::new(0), level });
        let mut sinks = FORWARD.0.write();
        sinks.push(own.clone());
        // Fails if the process already has a logger, which is then this one.
        let _ = log::set_logger(&FORWARD);
        Forward::set_level(&sinks);
        Self(own)
    }

    /// 0 = errors, warnings and information; 1 adds details; 2 and more add everything.
    pub fn set_verbose_level(&self, level: u32) {
        let level = match level {
            0 => Level::Info,
            1 => Level::Debug,
            _ => Level::Trace,
        };
        self.0.level.store(level as usize, Ordering::Relaxed);
        Forward::set_level(&FORWARD.0.read());
    }

    /// Lines lost because the queue of the sink was full.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for ServerLog {
    fn drop(&mut self) {
        let mut sinks = FORWARD.0.write();
        sinks.retain(|one| !Arc::ptr_eq(one, &self.0));
        Forward::set_level(&sinks);
    }
}
