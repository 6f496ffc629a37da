//! A process that runs one response cache (`libtritoncache_<name>.so`) for the server at the other end of a socket, its
//! stdin.
//!
//! The messages are those of `frames::cache`.

#![allow(unsafe_code)] // functions of a library

use crate::abi::Err;
use crate::abi::cache::{CacheAllocator, CacheEntry};
use crate::abi::error::ServerError;
use crate::library::Opened;
use frames::cache::{CacheOperation, CacheRequest, CacheStatus, read_request, write_answer};
use std::ffi::{CString, c_char, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use tensor::{Code, Error, Result};

/// Threads that call the cache.
const THREADS: usize = 4;
/// Requests that wait for one thread; the reader waits for more.
const WAITING_MAX: usize = 1024;

type Operate = unsafe extern "C" fn(*mut c_void, *const c_char, *mut CacheEntry, *mut CacheAllocator) -> Err;

/// A cache that is initialized.
struct RunningCache {
    cache: *mut c_void,
    finalize: unsafe extern "C" fn(*mut c_void) -> Err,
    look_up: Operate,
    insert: Operate,
}

// SAFETY: the C API lets a server call a cache on any thread, and on several at a time.
unsafe impl Send for RunningCache {}
// SAFETY: as above.
unsafe impl Sync for RunningCache {}

type Initialize = unsafe extern "C" fn(*mut *mut c_void, *const c_char) -> Err;

impl RunningCache {
    fn new(path: &Path, config: Vec<u8>) -> Result<Self> {
        let library = Opened::new(path)?;
        // SAFETY: types of Triton's API.
        let (initialize, mut this) = unsafe {
            let initialize: Initialize = library.required(c"TRITONCACHE_CacheInitialize")?;
            let finalize = library.required(c"TRITONCACHE_CacheFinalize")?;
            let look_up = library.required(c"TRITONCACHE_CacheLookup")?;
            let insert = library.required(c"TRITONCACHE_CacheInsert")?;
            (initialize, Self { cache: null_mut(), finalize, look_up, insert })
        };
        let config = CString::new(config).map_err(|_| Error::invalid("the cache's configuration has a NUL"))?;
        // SAFETY: our own variable and a NUL-terminated text.
        let error = unsafe { ServerError::take(initialize(&raw mut this.cache, config.as_ptr())) };
        match error {
            Some(error) => Err(error),
            None if this.cache.is_null() => Err(Error::internal("Failed to initialize cache implementation")),
            None => Ok(this),
        }
    }

    /// Runs an operation. Returns what was found.
    fn run(&self, request: CacheRequest) -> Result<Vec<u8>> {
        let CacheRequest { operation, key, contents, .. } = request;
        let key = CString::new(key).map_err(|_| Error::invalid("a key has a NUL"))?;
        let (operate, mut entry, mut allocator) = if operation == CacheOperation::Insert {
            (self.insert, CacheEntry::of(contents.len()), CacheAllocator::Stored(contents))
        } else {
            (self.look_up, CacheEntry::default(), CacheAllocator::Found(None))
        };
        // SAFETY: objects that live for the time of the call.
        let error = unsafe { ServerError::take(operate(self.cache, key.as_ptr(), &raw mut entry, &raw mut allocator)) };
        match (error, allocator) {
            (Some(error), _) => Err(error),
            (None, CacheAllocator::Found(None)) => Err(Error::not_found("the cache copied nothing")),
            (None, CacheAllocator::Found(Some(found))) => Ok(found),
            (None, CacheAllocator::Stored(_)) => Ok(Vec::new()),
        }
    }
}

fn answer(to: &Mutex<UnixStream>, id: u64, result: &Result<Vec<u8>>) -> io::Result<()> {
    let answer = match result {
        Ok(found) => write_answer(id, CacheStatus::Done, found),
        Err(error) => {
            let status = match error.code() {
                Code::NotFound => CacheStatus::NotFound,
                Code::AlreadyExists => CacheStatus::Exists,
                _ => CacheStatus::Failed,
            };
            write_answer(id, status, error.message().as_bytes())
        }
    };
    to.lock().map_err(|_| io::ErrorKind::Other)?.write_all(&answer)
}

/// Serves the cache of a library until the server closes the socket.
///
/// # Errors
/// Those of the socket, and of requests that break the rules above.
pub(crate) fn serve(path: &Path, server: UnixStream) -> io::Result<()> {
    let answers = Arc::new(Mutex::new(server.try_clone()?));
    let mut requests = BufReader::new(server);
    let first = read_request(&mut requests)?.filter(|first| first.operation == CacheOperation::Configure);
    let Some(first) = first else { return Err(io::ErrorKind::InvalidData.into()) };
    let cache = match RunningCache::new(path, first.contents) {
        Ok(cache) => Arc::new(cache),
        Err(error) => return answer(&answers, first.id, &Err(error)),
    };
    answer(&answers, first.id, &Ok(Vec::new()))?;
    let work = |jobs: Receiver<CacheRequest>| {
        let (cache, answers) = (Arc::clone(&cache), Arc::clone(&answers));
        std::thread::Builder::new().name("cache".to_owned()).spawn(move || {
            for request in jobs {
                let id = request.id;
                // The server is gone if this fails; the reader notices that, too.
                let _ = answer(&answers, id, &cache.run(request));
            }
        })
    };
    let mut senders = Vec::new();
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let (send, jobs) = sync_channel(WAITING_MAX);
        senders.push(send);
        threads.push(work(jobs)?);
    }
    while let Some(request) = read_request(&mut requests)? {
        let mut hasher = DefaultHasher::new();
        request.key.hash(&mut hasher);
        if let Some(thread) = senders.get(hasher.finish() as usize % THREADS) {
            let _ = thread.send(request);
        }
    }
    drop(senders);
    for thread in threads {
        let _ = thread.join();
    }
    // SAFETY: the cache lives, and nothing uses it any more.
    if let Some(error) = unsafe { ServerError::take((cache.finalize)(cache.cache)) } {
        eprintln!("failed to finalize a cache: {}", error.message());
    }
    Ok(())
}
