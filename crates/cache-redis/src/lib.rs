//! The response cache in a Redis that several servers share (S-39).
//!
//! One thread talks to Redis, over a few connections on which many commands are under way at once. Threads that bring requests leave
//! their lookups and insertions with it and never wait.
//!
//! Redis is a convenience: answers are right without it. So whatever it does costs a bounded time, and then counts as a miss: a lookup
//! waits for its turn for `wait_timeout` at most, and for its answer for `socket_timeout`. A connection that fails, or answers what is
//! no Redis protocol, is closed. Without connections lookups miss at once, until one is there again that answered a PING. Each change
//! between the two is one line in the log. Readiness does not depend on it.
//!
//! Not here: what an entry looks like (`cache::store`), and what is done with a request while its lookup is under way (`engine`).
//!
//! Invariants: at most `LOOKUPS_MAX` lookups and `INSERTIONS_MAX` insertions of `INSERTION_BYTES_MAX` together wait or are under way;
//! every lookup that was taken gets its answer, or is dropped, once.

mod bounded;
mod limits;
mod link;

pub use limits::*;

use crate::link::{Links, Refusal};
use bytes::Bytes;
use cache::{Asked, Cache, Counters, Found, Insertion, Key, Lookup, Output, Scope};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tensor::{Error, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Where Redis is, and how patient to be with it.
#[derive(Clone)]
pub struct Settings {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User of Redis' access lists; with a password only.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Number of the database.
    pub database: u32,
    /// Connecting, signing in included.
    pub connect_timeout: Duration,
    /// A command.
    pub socket_timeout: Duration,
    /// Waiting until a connection takes another command.
    pub wait_timeout: Duration,
    /// Connections.
    pub pool_size: usize,
}

/// What waits and was lost.
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
    links: Arc<Links>,
    counts: Arc<Counts>,
    /// `None` when it is closed.
    jobs: Mutex<Option<UnboundedSender<Job>>>,
}

enum Job {
    Lookup(Place, Key, Asked, Found),
    Insert(Place, Key, Vec<u8>),
}

/// What a job is counted as while it waits or is under way.
struct Place {
    counts: Arc<Counts>,
    /// Of an insertion.
    bytes: Option<usize>,
}

impl Place {
    fn lookup(counts: &Arc<Counts>) -> Option<Self> {
        let more = |n: usize| (n < LOOKUPS_MAX).then_some(n + 1);
        counts.lookups.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Self { counts: counts.clone(), bytes: None })
    }

    fn insertion(counts: &Arc<Counts>, bytes: usize) -> Option<Self> {
        let more = |n: usize| (n < INSERTIONS_MAX).then_some(n + 1);
        counts.insertions.fetch_update(Relaxed, Relaxed, more).ok()?;
        // An entry is never larger than all may be, so none is refused for ever.
        let more = |n: usize| n.checked_add(bytes).filter(|&sum| sum <= INSERTION_BYTES_MAX);
        if counts.insertion_bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            counts.insertions.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Self { counts: counts.clone(), bytes: Some(bytes) })
    }
}

impl Drop for Place {
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
    /// Starts its thread, which connects on its own: that Redis cannot be reached is no error.
    ///
    /// # Errors
    /// INTERNAL when the machine refuses a thread or what it needs for its sockets.
    pub fn start(settings: Settings) -> Result<Self> {
        let cannot = |e: std::io::Error| Error::internal(format!("cannot start the thread of the Redis cache: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let links = Arc::new(Links::new(settings));
        let counts = Arc::new(Counts::default());
        let (jobs, waiting) = unbounded_channel();
        let (l, c) = (links.clone(), counts.clone());
        let work = move || {
            runtime.block_on(serve(l, c, waiting));
            // Asking for an address may take long, and nothing waits for it.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("nereid-redis".into()).spawn(work).map_err(cannot)?;
        Ok(Self { links, counts, jobs: Mutex::new(Some(jobs)) })
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.lock().clone();
        // A job that cannot be sent is dropped, without the lock, and with it what it was to answer: a miss.
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
    fn lookup(&self, key: &Key, asked: &Asked, found: &mut dyn FnMut() -> Found) -> Lookup {
        if self.links.up() == 0 {
            return Lookup::Miss;
        }
        let Some(place) = Place::lookup(&self.counts) else {
            self.counts.failed.fetch_add(1, Relaxed);
            return Lookup::Miss;
        };
        self.send(Job::Lookup(place, *key, asked.clone(), found()));
        Lookup::Later
    }

    fn insert(&self, key: &Key, asked: &Asked, outputs: &[Output]) -> Insertion {
        match self.keep(key, asked, outputs) {
            Ok(()) => Insertion::Stored,
            Err(why) => {
                self.counts.dropped.fetch_add(1, Relaxed);
                Insertion::Refused(why)
            }
        }
    }

    /// Entries stay: other servers with the same files find them, and Redis decides what it keeps.
    fn forget(&self, _scope: &Scope) {}

    /// As in Triton: what is in Redis, Redis tells.
    fn counters(&self) -> Option<Counters> {
        None
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let (c, size) = (&self.counts, self.links.settings().pool_size);
        let of = |n: &AtomicUsize| n.load(Relaxed) as f64;
        vec![
            ("nereid_redis_connections", "Connections to the Redis of the response cache", self.links.up() as f64),
            ("nereid_redis_connections_max", "Most of them there may be", size as f64),
            ("nereid_redis_lookups", "Lookups that wait for Redis", of(&c.lookups)),
            ("nereid_redis_lookups_max", "Most of them; further ones are misses", LOOKUPS_MAX as f64),
            ("nereid_redis_insertions", "Answers on their way to Redis", of(&c.insertions)),
            ("nereid_redis_insertions_max", "Most of them; further ones are not kept", INSERTIONS_MAX as f64),
            ("nereid_redis_insertion_bytes", "Bytes of answers on their way to Redis", of(&c.insertion_bytes)),
            ("nereid_redis_insertion_bytes_max", "Most of them", INSERTION_BYTES_MAX as f64),
            ("nereid_redis_insertions_dropped_total", "Answers that were not kept", c.dropped.load(Relaxed) as f64),
            (
                "nereid_redis_lookups_failed_total",
                "Lookups that Redis did not answer in time",
                c.failed.load(Relaxed) as f64,
            ),
            (
                "nereid_redis_entries_foreign_total",
                "Entries found that are none of ours",
                c.foreign.load(Relaxed) as f64,
            ),
        ]
    }

    fn close(&self) {
        drop(self.jobs.lock().take());
    }
}

impl RedisCache {
    fn keep(&self, key: &Key, asked: &Asked, outputs: &[Output]) -> Result<()> {
        let bytes = cache::stored_bytes(asked, outputs).filter(|&bytes| bytes <= ENTRY_BYTES_MAX).ok_or_else(|| {
            Error::invalid(format!("an answer of more than {ENTRY_BYTES_MAX} bytes is not kept in Redis"))
        })?;
        if self.links.up() == 0 {
            return Err(Error::unavailable("there is no connection to Redis"));
        }
        let place = Place::insertion(&self.counts, bytes)
            .ok_or_else(|| Error::exhausted("too many answers are on their way to Redis"))?;
        let text = cache::store(key, asked, outputs).ok_or_else(|| Error::invalid("an answer of too many parts"))?;
        self.send(Job::Insert(place, *key, text));
        Ok(())
    }
}

/// Does what is asked until the cache is closed.
async fn serve(links: Arc<Links>, counts: Arc<Counts>, mut jobs: UnboundedReceiver<Job>) {
    let keepers: Vec<_> = (0..links.settings().pool_size).map(|n| tokio::spawn(links.clone().keep(n))).collect();
    while let Some(job) = jobs.recv().await {
        let (links, counts) = (links.clone(), counts.clone());
        tokio::spawn(async move {
            match job {
                Job::Lookup(place, key, asked, found) => {
                    let entry = look_up(&links, &counts, &key).await.filter(|e| e.answers(&asked));
                    drop(place);
                    if catch_unwind(AssertUnwindSafe(|| found(entry.map(Arc::new)))).is_err() {
                        log::error!("the receiver of an answer of the response cache panicked; please report it");
                    }
                }
                Job::Insert(place, key, text) => {
                    let mut command = Cmd::new();
                    command.arg("SET").arg(name(&key)).arg(text);
                    if links.ask(command).await.is_err() {
                        counts.dropped.fetch_add(1, Relaxed);
                    }
                    drop(place);
                }
            }
        });
    }
    keepers.iter().for_each(|k| k.abort());
}

async fn look_up(links: &Links, counts: &Counts, key: &Key) -> Option<cache::Entry> {
    let mut command = Cmd::new();
    // One byte more than an entry may have: what another program left there is not read whole.
    command.arg("GETRANGE").arg(name(key)).arg(0).arg(ENTRY_BYTES_MAX);
    let text = match links.ask(command).await {
        // A key that does not exist, or is empty.
        Ok(Value::BulkString(text)) if text.is_empty() => return None,
        Ok(Value::BulkString(text)) => Bytes::from(text),
        // A key of another type.
        Ok(_) | Err(Refusal::Answered) => Bytes::new(),
        Err(Refusal::Failed) => {
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

/// The name of an entry in Redis.
fn name(key: &Key) -> String {
    let mut name = String::from("nereid:");
    for byte in key.bytes() {
        _ = write!(name, "{byte:02x}");
    }
    name
}
