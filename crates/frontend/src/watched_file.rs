//! Files with keys and certificates, which are read again when they change.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};
use tensor::{Error, Result};

/// A thread that looks at files until this is dropped.
pub(crate) struct FileWatcher {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FileWatcher {
    /// Calls `look` now and after each `interval`.
    ///
    /// # Errors
    /// INTERNAL if the system cannot start a thread.
    pub(crate) fn start(name: &str, interval: Duration, mut look: impl FnMut() + Send + 'static) -> Result<Self> {
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = stops.clone();
        let body = move || {
            while !stopped.load(Ordering::Acquire) {
                look();
                thread::park_timeout(interval);
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(body);
        let thread = thread.map_err(|e| Error::internal(format!("cannot start a thread: {e}")))?;
        Ok(Self { stops, thread: Some(thread) })
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // A thread that panicked has ended, too. `look` may drop the owner of this watcher.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Modification time, length and inode of a file: a new file may have the time of the old one. `None` without a file.
pub(crate) type Stamp = Option<(SystemTime, u64, u64)>;

/// Follows links: Kubernetes replaces files by changing a link.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

/// Reads a regular file of at most `bytes_max`. A pipe is rejected, because reading it could block the start.
///
/// # Errors
/// INVALID_ARG with the path.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::invalid(format!("{} can not be read: {e}", path.display()));
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_file() || found.len() > bytes_max {
        return Err(Error::invalid(format!("{} is not a file of at most {bytes_max} bytes", path.display())));
    }
    let mut text = Vec::new();
    // The file may grow meanwhile.
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut text)).map_err(failed)?;
    Ok(text)
}
