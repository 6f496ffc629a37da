//! The response cache in a Redis server that several servers share (S-39).
//!
//! One thread uses a few connections to Redis, each with many commands in flight. Other threads send their lookups and
//! insertions to it and never wait.
//!
//! Requests work without Redis, so its failures cost a limited time and count as misses: a lookup waits at most
//! `wait_timeout` for a connection, and at most `socket_timeout` for its reply. A connection that fails or breaks the
//! protocol is closed. Without connections lookups miss at once, until a new one has replied to a PING. The log has one
//! line per change between both states. Readiness does not depend on Redis.
//!
//! Not here: the format of an entry (`cache::store`), and requests that wait for a lookup (`engine`).
//!
//! Invariants: at most `LOOKUPS_MAX` lookups, and `INSERTIONS_MAX` insertions with `INSERTION_BYTES_MAX` together, are
//! pending; every accepted lookup gets exactly one result or is dropped once.

mod limits;
mod link;
mod resp;

pub use limits::*;
#[doc(hidden)]
pub use resp::replies_in;

use crate::link::{CommandError, Connections};
use crate::resp::Reply;
use bytes::Bytes;
use cache::{Cache, CachedOutput, Counters, Found, Insertion, Key, KeySpace, Lookup, OutputSet};
use options::RedisOptions;
use parking_lot::Mutex;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use tensor::{Error, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Pending and lost jobs.
#[derive(Default)]
struct Counts {
    lookups: AtomicUsize,
    insertions: AtomicUsize,
    insertion_bytes: AtomicUsize,
    dropped: AtomicU64,
    failed: AtomicU64,
    foreign: AtomicU64,
}

/// A response cache in Redis.
pub struct RedisCache {
    connections: Arc<Connections>,
    counts: Arc<Counts>,
    /// `None` once the cache is closed.
    jobs: Mutex<Option<UnboundedSender<RedisJob>>>,
}

enum RedisJob {
    Lookup(JobPermit, Key, OutputSet, Found),
    Insert(JobPermit, Key, Vec<u8>),
}

/// Counts a job while it is pending.
struct JobPermit {
    counts: Arc<Counts>,
    /// Bytes of an insertion; `None` for a lookup.
    bytes: Option<usize>,
}

impl JobPermit {
    fn lookup(counts: &Arc<Counts>) -> Option<Self> {
        let more = |n: usize| (n < LOOKUPS_MAX).then_some(n + 1);
        counts.lookups.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Self { counts: counts.clone(), bytes: None })
    }

    fn insertion(counts: &Arc<Counts>, bytes: usize) -> Option<Self> {
        let more = |n: usize| (n < INSERTIONS_MAX).then_some(n + 1);
        counts.insertions.fetch_update(Relaxed, Relaxed, more).ok()?;
        // The limit is larger than an entry, so no insertion is always rejected.
        let more = |n: usize| n.checked_add(bytes).filter(|&sum| sum <= INSERTION_BYTES_MAX);
        if counts.insertion_bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            counts.insertions.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Self { counts: counts.clone(), bytes: Some(bytes) })
    }
}

impl Drop for JobPermit {
    fn drop(&mut self) {
        match self.bytes {
            None => _ = self.counts.lookups.fetch_sub(1, Relaxed),
            Some(bytes) => {
                self.counts.insertion_bytes.fetch_sub(bytes, Relaxed);
                self.counts.insertions.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl RedisCache {
    /// Starts the thread, which connects in the background: an unreachable Redis is not an error.
    ///
    /// # Errors
    /// INTERNAL if the system has no thread or no resources for sockets.
    pub fn start(mut options: RedisOptions) -> Result<Self> {
        let environment = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        options.user = options.user.or_else(|| environment("TRITONCACHE_REDIS_USERNAME"));
        options.password = options.password.or_else(|| environment("TRITONCACHE_REDIS_PASSWORD"));
        options.pool_size = options.pool_size.clamp(1, POOL_SIZE_MAX);
        let cannot = |e: std::io::Error| Error::internal(format!("cannot start the thread of the Redis cache: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let connections = Arc::new(Connections::new(options));
        let counts = Arc::new(Counts::default());
        let (jobs, waiting) = unbounded_channel();
        let (l, c) = (connections.clone(), counts.clone());
        let work = move || {
            runtime.block_on(serve(l, c, waiting));
            // Without waiting for the resolution of an address, which may take long.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("nereid-redis".into()).spawn(work).map_err(cannot)?;
        Ok(Self { connections, counts, jobs: Mutex::new(Some(jobs)) })
    }

    fn send(&self, job: RedisJob) {
        let jobs = self.jobs.lock().clone();
        // A job that cannot be sent is dropped without the lock; dropping its receiver is a miss.
        if let Some(jobs) = jobs {
            _ = jobs.send(job);
        }
    }
}

impl Drop for RedisCache {
    fn drop(&mut self) {
        self.close();
    }
}

impl Cache for RedisCache {
    fn lookup(&self, key: &Key, asked: &OutputSet, found: &mut dyn FnMut() -> Found) -> Lookup {
        if self.connections.up() == 0 {
            return Lookup::Miss;
        }
        let Some(permit) = JobPermit::lookup(&self.counts) else {
            self.counts.failed.fetch_add(1, Relaxed);
            return Lookup::Miss;
        };
        self.send(RedisJob::Lookup(permit, *key, asked.clone(), found()));
        Lookup::Later
    }

    fn insert(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Insertion {
        match self.keep(key, asked, outputs) {
            Ok(()) => Insertion::Stored,
            Err(why) => {
                self.counts.dropped.fetch_add(1, Relaxed);
                Insertion::Refused(why)
            }
        }
    }

    /// Does nothing: other servers with the same files use the entries, and Redis evicts them.
    fn forget(&self, _scope: &KeySpace) {}

    /// `None` as in Triton: Redis has its own counters.
    fn counters(&self) -> Option<Counters> {
        None
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let (c, size) = (&self.counts, self.connections.options().pool_size);
        let of = |n: &AtomicUsize| n.load(Relaxed) as f64;
        vec![
            (
                "nereid_redis_connections",
                "Connections to the Redis of the response cache",
                self.connections.up() as f64,
            ),
            ("nereid_redis_connections_max", "Limit of nereid_redis_connections", size as f64),
            ("nereid_redis_lookups", "Lookups that wait for Redis", of(&c.lookups)),
            ("nereid_redis_lookups_max", "Limit of nereid_redis_lookups", LOOKUPS_MAX as f64),
            ("nereid_redis_insertions", "Responses on their way to Redis", of(&c.insertions)),
            ("nereid_redis_insertions_max", "Limit of nereid_redis_insertions", INSERTIONS_MAX as f64),
            ("nereid_redis_insertion_bytes", "Bytes of responses on their way to Redis", of(&c.insertion_bytes)),
            ("nereid_redis_insertion_bytes_max", "Limit of insertion bytes", INSERTION_BYTES_MAX as f64),
            ("nereid_redis_insertions_dropped_total", "Responses that were not stored", c.dropped.load(Relaxed) as f64),
            (
                "nereid_redis_lookups_failed_total",
                "Lookups without a response of Redis in time",
                c.failed.load(Relaxed) as f64,
            ),
            (
                "nereid_redis_entries_foreign_total",
                "Entries that this server did not write",
                c.foreign.load(Relaxed) as f64,
            ),
        ]
    }

    fn close(&self) {
        drop(self.jobs.lock().take());
    }
}

impl RedisCache {
    fn keep(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Result<()> {
        let bytes = cache::stored_bytes(asked, outputs).filter(|&bytes| bytes <= ENTRY_BYTES_MAX).ok_or_else(|| {
            Error::invalid(format!("a response of more than {ENTRY_BYTES_MAX} bytes is not stored in Redis"))
        })?;
        if self.connections.up() == 0 {
            return Err(Error::unavailable("there is no connection to Redis"));
        }
        let permit = JobPermit::insertion(&self.counts, bytes)
            .ok_or_else(|| Error::exhausted("too many responses are on their way to Redis"))?;
        let text = cache::store(key, asked, outputs).ok_or_else(|| Error::invalid("a response of too many parts"))?;
        self.send(RedisJob::Insert(permit, *key, text));
        Ok(())
    }
}

/// Runs jobs until the cache is closed.
async fn serve(connections: Arc<Connections>, counts: Arc<Counts>, mut jobs: UnboundedReceiver<RedisJob>) {
    let keepers: Vec<_> =
        (0..connections.options().pool_size).map(|n| tokio::spawn(connections.clone().keep(n))).collect();
    while let Some(job) = jobs.recv().await {
        let (connections, counts) = (connections.clone(), counts.clone());
        tokio::spawn(async move {
            match job {
                RedisJob::Lookup(permit, key, asked, found) => {
                    let entry = look_up(&connections, &counts, &key).await.filter(|e| e.has_outputs(&asked));
                    drop(permit);
                    if catch_unwind(AssertUnwindSafe(|| found(entry.map(Arc::new)))).is_err() {
                        log::error!("the receiver of a response of the response cache panicked; please report it");
                    }
                }
                RedisJob::Insert(permit, key, text) => {
                    if connections.ask(&[b"SET", name(&key).as_bytes(), &text]).await.is_err() {
                        counts.dropped.fetch_add(1, Relaxed);
                    }
                    drop(permit);
                }
            }
        });
    }
    keepers.iter().for_each(|k| k.abort());
}

async fn look_up(connections: &Connections, counts: &Counts, key: &Key) -> Option<cache::Entry> {
    // At most one byte more than the limit, because another program may have stored a larger value.
    let last = ENTRY_BYTES_MAX.to_string();
    let text = match connections.ask(&[b"GETRANGE", name(key).as_bytes(), b"0", last.as_bytes()]).await {
        // The key does not exist, or is empty.
        Ok(Reply::Value(text)) if text.is_empty() => return None,
        Ok(Reply::Value(text)) => Bytes::from(text),
        // The key has another type.
        Ok(_) | Err(CommandError::Rejected) => Bytes::new(),
        Err(CommandError::Failed) => {
            counts.failed.fetch_add(1, Relaxed);
            return None;
        }
    };
    let entry = (text.len() <= ENTRY_BYTES_MAX).then(|| cache::restore(key, &text)).flatten();
    if entry.is_none() {
        counts.foreign.fetch_add(1, Relaxed);
    }
    entry
}

fn name(key: &Key) -> String {
    let mut name = String::from("nereid:");
    for byte in key.bytes() {
        _ = write!(name, "{byte:02x}");
    }
    name
}
