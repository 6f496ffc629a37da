//! The response cache in a library that was written for Triton's C API (`libtritoncache_<name>.so`).
//!
//! The library runs in a process of its own, `nereid-backend-host`; `frames::cache` has the messages. Other
//! threads send it lookups and insertions and never wait. A process that ends is started again after a pause. Until
//! then, and for a lookup without an answer in `LOOKUP_TIME`, there is nothing in the cache.
//!
//! Not here: the format of an entry (`cache::store`), and requests that wait for a lookup (`engine`).
//!
//! A process that answers nothing for `SILENCE_MAX` while lookups wait is killed.
//!
//! Invariants: at most `LOOKUPS_MAX` lookups, and insertions of `INSERTION_BYTES_MAX` together, have no answer of the
//! process; every accepted lookup gets exactly one result.

mod process;

use bytes::Bytes;
use cache::{Cache, CachedOutput, Counters, Found, Insertion, Key, KeySpace, Lookup, OutputSet};
use frames::cache::CacheOperation;
use options::{LibraryCacheOptions, LibraryProcess};
use parking_lot::Mutex;
use process::Process;
use std::collections::HashMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tensor::{Error, Result};

/// Longest time of a lookup; later answers are ignored.
pub const LOOKUP_TIME: Duration = Duration::from_secs(1);
/// Maximum number of lookups that wait for the library; further ones are misses.
pub const LOOKUPS_MAX: usize = 4096;
/// Maximum bytes of one stored response.
pub const ENTRY_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes of responses that wait to be stored.
pub const INSERTION_BYTES_MAX: usize = 512 << 20;
/// Time without any answer, from a lookup that took too long to another one, after which a process is killed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Pause before a process that ended is started again.
const PAUSE: Duration = Duration::from_secs(1);
/// Time that the library has to finalize.
const END_TIME: Duration = Duration::from_secs(2);

/// A response cache in a library.
pub struct LibraryCache(Arc<CacheState>);

struct CacheState {
    options: LibraryCacheOptions,
    /// The start of the program that runs it.
    host: LibraryProcess,
    process: Mutex<Option<Arc<Process>>>,
    lookups: Mutex<HashMap<u64, PendingLookup>>,
    next: AtomicU64,
    /// Lookups without an answer of the process: also those that took too long.
    places: AtomicUsize,
    /// Time of the first lookup that took too long since the last answer of the process.
    silent_since: Mutex<Option<Instant>>,
    insertion_bytes: AtomicUsize,
    dropped: AtomicU64,
    is_closed: AtomicBool,
    /// Dropped when the cache is closed: ends the thread that watches.
    open: Mutex<Option<Sender<()>>>,
}

struct PendingLookup {
    key: Key,
    asked: OutputSet,
    found: Found,
    until: Instant,
}

impl LibraryCache {
    /// Starts the process and waits until the library is initialized.
    ///
    /// # Errors
    /// The error of the library, or the reason why it or its process cannot be started.
    pub fn start(options: LibraryCacheOptions, host: LibraryProcess) -> Result<Self> {
        let (open, closed) = channel();
        let shared = Arc::new(CacheState::new(options, host, open));
        shared.begin()?;
        let watched = Arc::downgrade(&shared);
        let cannot = |error: std::io::Error| Error::internal(format!("cannot start a thread of the cache: {error}"));
        let thread = std::thread::Builder::new().name("nereid-cache".into());
        thread.spawn(move || watch(&watched, &closed)).map_err(cannot)?;
        Ok(Self(shared))
    }
}

/// Ends lookups that wait too long, and starts the process again.
fn watch(shared: &Weak<CacheState>, closed: &Receiver<()>) {
    let mut down_since: Option<Instant> = None;
    while closed.recv_timeout(Duration::from_millis(100)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let Some(shared) = shared.upgrade() else { return };
        // This thread stays while the process finalizes: the kernel ends the process with the thread that started it.
        if shared.is_closed.load(Relaxed) {
            continue;
        }
        shared.expire(Instant::now());
        let process = shared.process.lock().clone();
        if let Some(process) = process {
            down_since = None;
            // It may have ended before it was noted.
            if process.is_over() {
                shared.ended();
            }
            continue;
        }
        if down_since.get_or_insert_with(Instant::now).elapsed() >= PAUSE {
            down_since = None;
            let name = &shared.options.name;
            match shared.begin() {
                Ok(()) => log::info!("the response cache '{name}' is used again"),
                Err(error) => log::warn!("the response cache '{name}' is not used: {}", error.message()),
            }
        }
    }
}

impl CacheState {
    fn new(options: LibraryCacheOptions, host: LibraryProcess, open: Sender<()>) -> Self {
        Self {
            options,
            host,
            process: Mutex::default(),
            lookups: Mutex::default(),
            next: AtomicU64::new(1),
            places: AtomicUsize::new(0),
            silent_since: Mutex::default(),
            insertion_bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            open: Mutex::new(Some(open)),
        }
    }

    /// Starts a process.
    fn begin(self: &Arc<Self>) -> Result<()> {
        let (answers, ended) = (Arc::downgrade(self), Arc::downgrade(self));
        let answer = move |id, found: Option<Vec<u8>>| {
            if let Some(shared) = answers.upgrade() {
                shared.answer(id, found);
            }
        };
        let end = move || {
            if let Some(shared) = ended.upgrade() {
                shared.ended();
            }
        };
        let process = Process::start(&self.options, &self.host, answer, end)?;
        *self.silent_since.lock() = None;
        *self.process.lock() = Some(Arc::new(process));
        if self.is_closed.load(Relaxed) {
            // The cache was closed while the process started.
            let process = self.process.lock().take();
            drop(process);
        }
        Ok(())
    }

    /// Handles the end of the process.
    fn ended(&self) {
        let process = self.process.lock().take();
        if process.is_some() && !self.is_closed.load(Relaxed) {
            let name = &self.options.name;
            log::warn!("the process of the response cache '{name}' ended; nothing is cached until it runs again");
        }
        let all = std::mem::take(&mut *self.lookups.lock());
        all.into_values().for_each(|lookup| give(lookup, None));
    }

    fn answer(&self, id: u64, text: Option<Vec<u8>>) {
        *self.silent_since.lock() = None;
        let lookup = self.lookups.lock().remove(&id);
        if let Some(lookup) = lookup {
            give(lookup, text);
        }
    }

    fn expire(&self, now: Instant) {
        let mut lookups = self.lookups.lock();
        let late: Vec<_> = lookups.iter().filter(|(_, lookup)| lookup.until <= now).map(|(id, _)| *id).collect();
        let late: Vec<_> = late.iter().filter_map(|id| lookups.remove(id)).collect();
        drop(lookups);
        if !late.is_empty() && self.is_silent(now) {
            let process = self.process.lock().clone();
            if let Some(process) = process {
                let name = &self.options.name;
                log::error!("the process of the response cache '{name}' is killed: it does not respond");
                process.kill();
            }
        }
        late.into_iter().for_each(|lookup| give(lookup, None));
    }

    /// Notes a lookup that took too long. True if the process should be killed.
    fn is_silent(&self, now: Instant) -> bool {
        let mut since = self.silent_since.lock();
        now.saturating_duration_since(*since.get_or_insert(now)) >= SILENCE_MAX
    }

    fn keep(self: &Arc<Self>, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Result<()> {
        let bytes = cache::stored_bytes(asked, outputs).filter(|&bytes| bytes <= ENTRY_BYTES_MAX).ok_or_else(|| {
            Error::invalid(format!("a response of more than {ENTRY_BYTES_MAX} bytes is not stored in the cache"))
        })?;
        let process = self.process.lock().clone();
        let process = process.ok_or_else(|| Error::unavailable("the process of the response cache does not run"))?;
        let more = |sum: usize| sum.checked_add(bytes).filter(|&sum| sum <= INSERTION_BYTES_MAX);
        if self.insertion_bytes.fetch_update(Relaxed, Relaxed, more).is_err() {
            return Err(Error::exhausted("too many responses are on their way to the cache"));
        }
        let permit = Permit(Arc::clone(self), |state| &state.insertion_bytes, bytes);
        let text = cache::store(key, asked, outputs).ok_or_else(|| Error::invalid("a response of too many parts"))?;
        process.send(CacheOperation::Insert, self.next.fetch_add(1, Relaxed), &name(key), &text, Box::new(permit));
        Ok(())
    }
}

/// Counts a request in one of the counters until it is answered.
struct Permit(Arc<CacheState>, fn(&CacheState) -> &AtomicUsize, usize);

impl Drop for Permit {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(self.2, Relaxed);
    }
}

fn give(lookup: PendingLookup, text: Option<Vec<u8>>) {
    let PendingLookup { key, asked, found, .. } = lookup;
    let entry = text.and_then(|text| cache::restore(&key, &Bytes::from(text))).filter(|e| e.has_outputs(&asked));
    if catch_unwind(AssertUnwindSafe(|| found(entry.map(Arc::new)))).is_err() {
        log::error!("the receiver of a response of the response cache panicked; please report it");
    }
}

fn name(key: &Key) -> String {
    let mut name = String::from("nereid:");
    for byte in key.bytes() {
        _ = write!(name, "{byte:02x}");
    }
    name
}

impl Cache for LibraryCache {
    fn lookup(&self, key: &Key, asked: &OutputSet, found: &mut dyn FnMut() -> Found) -> Lookup {
        let Some(process) = self.0.process.lock().clone() else { return Lookup::Miss };
        let more = |places: usize| (places < LOOKUPS_MAX).then_some(places + 1);
        if self.0.places.fetch_update(Relaxed, Relaxed, more).is_err() {
            return Lookup::Miss;
        }
        let permit = Permit(Arc::clone(&self.0), |state| &state.places, 1);
        let id = self.0.next.fetch_add(1, Relaxed);
        let mut lookups = self.0.lookups.lock();
        let until = Instant::now() + LOOKUP_TIME;
        lookups.insert(id, PendingLookup { key: *key, asked: asked.clone(), found: found(), until });
        drop(lookups);
        process.send(CacheOperation::LookUp, id, &name(key), &[], Box::new(permit));
        Lookup::Later
    }

    fn insert(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Insertion {
        match self.0.keep(key, asked, outputs) {
            Ok(()) => Insertion::Stored,
            Err(why) => {
                self.0.dropped.fetch_add(1, Relaxed);
                Insertion::Refused(why)
            }
        }
    }

    /// Does nothing: the C API of caches cannot delete an entry, and no request finds it any more.
    fn forget(&self, _scope: &KeySpace) {}

    /// `None` as in Triton: the library has its own metrics.
    fn counters(&self) -> Option<Counters> {
        None
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let lookups = self.0.places.load(Relaxed) as f64;
        let bytes = self.0.insertion_bytes.load(Relaxed) as f64;
        vec![
            ("nereid_cache_library_lookups", "Lookups that wait for the library of the response cache", lookups),
            ("nereid_cache_library_lookups_max", "Limit of nereid_cache_library_lookups", LOOKUPS_MAX as f64),
            ("nereid_cache_library_insertion_bytes", "Bytes of responses on their way to the library", bytes),
            ("nereid_cache_library_insertion_bytes_max", "Limit of insertion bytes", INSERTION_BYTES_MAX as f64),
        ]
    }

    fn close(&self) {
        self.0.is_closed.store(true, Relaxed);
        let process = self.0.process.lock().take();
        if let Some(process) = process {
            process.end(END_TIME);
        }
        drop(self.0.open.lock().take());
        self.0.ended();
    }
}

impl Drop for LibraryCache {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_silent_without_any_answer_between_late_lookups() {
        let cache = CacheState::new(LibraryCacheOptions::default(), LibraryProcess::default(), channel().0);
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        assert!(!cache.is_silent(begin));
        assert!(!cache.is_silent(begin + SILENCE_MAX - second));
        assert!(cache.is_silent(begin + SILENCE_MAX));
        cache.answer(1, None);
        assert!(!cache.is_silent(begin + SILENCE_MAX + second), "it answers, if late");
    }
}
