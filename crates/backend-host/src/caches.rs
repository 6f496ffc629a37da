//! A process that runs one response cache (`libtritoncache_<name>.so`) for the server at the other end of a socket, its
//! stdin.
//!
//! The messages are those of `frames::cache`.

use crate::abi::cache::{CacheAllocator, CacheEntry};
use crate::library::{Address, Opened, Start, entry_points};
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

entry_points! {
    /// The functions of a cache.
    struct CacheLibrary {
        Required TRITONCACHE_CacheInitialize initialize(cache: &mut *mut c_void, config: Start<'_, c_char>);
        Required TRITONCACHE_CacheFinalize finalize(cache: *mut c_void);
        Required TRITONCACHE_CacheLookup look_up(
            cache: *mut c_void,
            key: Start<'_, c_char>,
            entry: &mut CacheEntry,
            allocator: &mut CacheAllocator,
        );
        Required TRITONCACHE_CacheInsert insert(
            cache: *mut c_void,
            key: Start<'_, c_char>,
            entry: &mut CacheEntry,
            allocator: &mut CacheAllocator,
        );
    }
}

/// A cache that is initialized. Its functions are called on several threads at a time.
struct RunningCache {
    library: CacheLibrary,
    cache: Address<c_void>,
}

impl RunningCache {
    fn new(path: &Path, config: Vec<u8>) -> Result<Self> {
        let library = CacheLibrary::of(&Opened::new(path)?)?;
        let config = CString::new(config).map_err(|_| Error::invalid("the cache's configuration has a NUL"))?;
        let mut cache = null_mut();
        library.initialize(&mut cache, config.as_c_str().into())?;
        if cache.is_null() {
            return Err(Error::internal("Failed to initialize cache implementation"));
        }
        Ok(Self { library, cache: Address(cache) })
    }

    /// Runs an operation. Returns what was found.
    fn run(&self, request: CacheRequest) -> Result<Vec<u8>> {
        let CacheRequest { operation, key, contents, .. } = request;
        let key = CString::new(key).map_err(|_| Error::invalid("a key has a NUL"))?;
        let (cache, key) = (self.cache.0, key.as_c_str().into());
        if operation == CacheOperation::Insert {
            let mut entry = CacheEntry::of(contents.len());
            self.library.insert(cache, key, &mut entry, &mut CacheAllocator::Stored(contents))?;
            return Ok(Vec::new());
        }
        let mut allocator = CacheAllocator::Found(None);
        self.library.look_up(cache, key, &mut CacheEntry::default(), &mut allocator)?;
        match allocator {
            CacheAllocator::Found(Some(found)) => Ok(found),
            _ => Err(Error::not_found("the cache copied nothing")),
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
/// The socket fails, or a request breaks the rules above.
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
    if let Err(error) = cache.library.finalize(cache.cache.0) {
        eprintln!("failed to finalize a cache: {}", error.message());
    }
    Ok(())
}
