//! The keys of a server: their file, which is read again when it changes, and the clock of their quotas.
//!
//! `access` decides what a key permits; it has no file and no clock. `gate` calls this module.

use crate::access::Ask;
use crate::gate_error::GateError;
use crate::watched_file::{FileWatcher, Stamp, read, stamp};
use ::access::limits::FILE_BYTES_MAX;
use ::access::{Access, Act, Admitted, Clock, IssuerOptions, Keys, LastShown, Of, Verb};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tensor::{Error, Result};

/// Interval of checks for a changed file.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The current keys of a file.
pub struct Keyring {
    access: Access,
    started: Instant,
    files: parking_lot::Mutex<Vec<Watched>>,
    /// Checks the files until the keyring is dropped.
    watcher: parking_lot::Mutex<Option<FileWatcher>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring")
    }
}

impl Keyring {
    /// Reads the keys of a file, and reads them again when it changes. A wrong file is logged once, and the keys stay.
    ///
    /// # Errors
    /// INVALID_ARG, with the file, the line, the field, and what is wrong; INTERNAL if no thread can be started.
    pub fn open(path: &Path, issuer: Option<IssuerOptions>) -> Result<Arc<Self>> {
        let issuer_keys = issuer.as_ref().and_then(|one| one.keys_file.clone());
        let mut files = vec![Watched { path: path.to_owned(), seen: stamp(path), is_of_issuer: false }];
        let ring = Arc::new(Self {
            access: Access::new(check_keys_file(path)?, issuer),
            started: Instant::now(),
            files: parking_lot::Mutex::default(),
            watcher: parking_lot::Mutex::default(),
        });
        if let Some(path) = issuer_keys {
            let seen = stamp(&path);
            ring.replace_issuer_keys(&read(&path, FILE_BYTES_MAX as u64)?)
                .map_err(|why| Error::invalid(format!("{}: {why}", path.display())))?;
            files.push(Watched { path, seen, is_of_issuer: true });
        }
        *ring.files.lock() = files;
        let watched = Arc::downgrade(&ring);
        let look = move || {
            let names = watched.upgrade().map_or_else(Vec::new, |ring: Arc<Self>| ring.update(false));
            names.iter().for_each(|name| log::info!("{name} was read again"));
        };
        *ring.watcher.lock() = Some(FileWatcher::start("keys-file", LOOK_INTERVAL, look)?);
        Ok(ring)
    }

    /// Whether the current keys permit this operation without a key.
    pub(crate) fn is_open(&self, ask: &Ask<'_>) -> bool {
        self.access.is_open(&to_access(ask, false))
    }

    /// The keys with their usage.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Replaces the keys of the issuer by a JWK set; returns how many can be used.
    ///
    /// # Errors
    /// The mistake in the set. The keys stay as they are.
    pub fn replace_issuer_keys(&self, text: &[u8]) -> Result<usize, String> {
        self.access.replace_issuer_keys(text)
    }

    /// Reads the files again now; returns those that were accepted. A file that is wrong is logged, and its keys stay.
    pub fn reread(&self) -> Vec<String> {
        self.update(true)
    }

    /// Reads the files that changed, or all; returns those that were accepted.
    fn update(&self, all: bool) -> Vec<String> {
        let mut names = Vec::new();
        for Watched { path, seen, is_of_issuer } in self.files.lock().iter_mut() {
            let now = stamp(path);
            if now == *seen && !all {
                continue;
            }
            // Taken before reading: if the file is written meanwhile, the next check reads it again.
            *seen = now;
            let taken = read(path, FILE_BYTES_MAX as u64).and_then(|text| {
                let wrong = |why: String| Error::invalid(format!("{}: {why}", path.display()));
                match is_of_issuer {
                    true => self.replace_issuer_keys(&text).map(drop).map_err(wrong),
                    false => self.access.replace(&text).map_err(|error| wrong(error.to_string())),
                }
            });
            match taken {
                Ok(()) => names.push(path.display().to_string()),
                Err(error) => log::error!("{}; the keys stay as they are", error.message()),
            }
        }
        names
    }

    /// Counts bytes against the quota of a key.
    pub(crate) fn charge(&self, admitted: &Admitted, bytes: usize) {
        admitted.hold.charge(bytes as u64, || self.ns());
    }

    /// Checks a request. `is_message`: the model is named in a message, which was not read yet.
    pub(crate) fn admit<'a>(
        &self,
        ask: &Ask<'_>,
        is_message: bool,
        header: impl Fn(&str) -> Option<&'a [u8]>,
        last: &LastShown,
    ) -> Result<Admitted, GateError> {
        self.access.admit(&to_access(ask, is_message), header, last, self).map_err(GateError::from)
    }

    /// Checks another operation of a request that was admitted.
    pub(crate) fn check(&self, admitted: &Admitted, ask: &Ask<'_>) -> Result<(), GateError> {
        self.access.check(admitted, &to_access(ask, false), self).map_err(GateError::from)
    }

    /// Whether the caller may do this; counts nothing.
    pub(crate) fn covers(&self, admitted: &Admitted, ask: &Ask<'_>) -> bool {
        self.access.covers(admitted, &to_access(ask, false))
    }

    /// Checks a message of a call. Each message after the first counts as a request for the quota.
    pub(crate) fn next(&self, admitted: &Admitted, ask: &Ask<'_>) -> Result<(), GateError> {
        self.access.next(admitted, &to_access(ask, false), self).map_err(GateError::from)
    }
}

impl Clock for Keyring {
    fn ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "tokens expire by the wall clock")]
    fn unix_secs(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// A file, and its stamp when it was last read.
struct Watched {
    path: PathBuf,
    seen: Stamp,
    /// True for the keys of the issuer, false for those of the server.
    is_of_issuer: bool,
}

/// Reads a keys file as a server does at start.
///
/// # Errors
/// INVALID_ARG, with the file, the line, the field, and what is wrong.
pub fn check_keys_file(path: &Path) -> Result<Keys> {
    Keys::parse(&read(path, FILE_BYTES_MAX as u64)?, None)
        .map_err(|e| Error::invalid(format!("{}: {e}", path.display())))
}

/// Converts an operation to the type of `access`.
fn to_access<'a>(ask: &Ask<'a>, is_message: bool) -> ::access::Ask<'a> {
    let (verb, act) = (ask.category, ask.act);
    let names_a_model = match verb {
        Verb::ModelRepository => act == Act::Write,
        Verb::SharedMemory | Verb::Logging => false,
        _ => true,
    };
    let of = match ask.model {
        Some(name) if !name.is_empty() => Of::Model(name),
        _ if (is_message || ask.is_in_body) && names_a_model => Of::Message,
        _ => Of::Server,
    };
    ::access::Ask { verb, act, of }
}

impl From<::access::AuthError> for GateError {
    fn from(error: ::access::AuthError) -> Self {
        match error {
            ::access::AuthError::Unauthenticated(text) => Self::Unauthenticated(text.into()),
            ::access::AuthError::Forbidden(text) => Self::Forbidden(text.into()),
            ::access::AuthError::Exhausted { text, retry_after } => {
                Self::Exhausted { reason: text.into(), retry_after: Duration::from_secs(retry_after) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_file_that_is_not_a_regular_file_is_rejected() {
        for path in ["/dev/zero", "/", "/nowhere/keys.json"] {
            let error = check_keys_file(Path::new(path)).err().unwrap();
            assert!(error.message().starts_with(path), "{}", error.message());
        }
    }
}
