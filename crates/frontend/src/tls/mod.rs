//! TLS of a listener: certificates from files, which are reread when they change, and handshakes with a time limit.
//!
//! rustls implements the protocol, with the cryptography of ring. A connection keeps the certificate it began with.

mod files;
mod machine;
mod names;
mod stream;
mod version1;

pub use files::{Expiry, TlsFiles};
pub use stream::Encrypted;

use crate::limits::{HANDSHAKE_TIME_MAX, HANDSHAKES_PER_THREAD};
use crate::offload;
use crate::stray::{self, Strays};
use crate::watched_file::FileWatcher;
use arc_swap::ArcSwap;
use machine::Machine;
use options::TlsOptions;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tensor::Result;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::rustls::{self, ServerConfig};

/// Type of the first record of every TLS connection.
const HANDSHAKE: u8 = 22;
/// Interval of the checks for changed files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the warnings of certificates that end.
const WARN_INTERVAL: Duration = Duration::from_secs(86_400);
/// Reply to a client that sends plain HTTP to a TLS port.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 52\r\nConnection: \
     close\r\n\r\n{\"error\":\"this port uses TLS: use https:// instead\"}";

/// Reasons why a handshake can fail.
pub const REASONS: [&str; 5] = ["timeout", "not_tls", "certificate", "busy", "other"];

/// TLS configuration of a listener.
pub struct Tls {
    current: ArcSwap<ServerConfig>,
    speaks_http: bool,
    /// Failed handshakes, in the order of [`REASONS`].
    failed: [AtomicU64; REASONS.len()],
}

/// TLS configurations with their files.
type Watched = Vec<(Arc<Tls>, TlsFiles)>;

/// Checks the files of all listeners for changes until it is dropped.
pub struct Watcher {
    watched: Arc<Mutex<Watched>>,
    _thread: FileWatcher,
}

impl Tls {
    /// Reads the files of a listener. `protocols`: the protocols offered by ALPN, the preferred one first.
    ///
    /// # Errors
    /// INVALID_ARG with the file and its mistake.
    pub fn open(options: &TlsOptions, protocols: &[&[u8]], listener: &'static str) -> Result<(Arc<Self>, TlsFiles)> {
        let mut files = TlsFiles::new(options, protocols, listener)?;
        let tls = Self {
            current: ArcSwap::new(files.config()?),
            speaks_http: listener != "grpc",
            failed: Default::default(),
        };
        Ok((Arc::new(tls), files))
    }

    /// Runs the handshake of a connection. Returns `None` if it fails, which is counted.
    pub async fn accept(&self, io: TcpStream, strays: &Strays) -> Option<Encrypted> {
        let refused = match timeout(HANDSHAKE_TIME_MAX, self.shake_hands(io, strays)).await {
            Ok(Ok(encrypted)) => return encrypted,
            Ok(Err(reason)) => reason,
            Err(_) => "timeout",
        };
        let at = REASONS.iter().position(|reason| *reason == refused);
        if let Some(counter) = at.and_then(|at| self.failed.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// `Ok(None)`: the client sent nothing and closed, as probes of load balancers do. `Err`: one of [`REASONS`].
    async fn shake_hands(
        &self,
        mut io: TcpStream,
        strays: &Strays,
    ) -> std::result::Result<Option<Encrypted>, &'static str> {
        let mut machine = Machine::new(self.current.load_full()).map_err(|error| reason_of(&error))?;
        let mut is_first = true;
        while machine.is_handshaking() {
            // A connection that waits for its client holds no buffer.
            machine.rest();
            if io.readable().await.is_err() {
                return Err("other");
            }
            let room = machine.room(0);
            if room.is_empty() {
                return Err("other");
            }
            let n = match io.try_read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(0) if is_first => return Ok(None),
                Ok(0) | Err(_) => return Err("other"),
                Ok(n) => n,
            };
            if is_first && room.first() != Some(&HANDSHAKE) {
                // Four bytes are enough to recognize a protocol.
                let mut begin = [0; 4];
                begin.iter_mut().zip(room.get(..n).unwrap_or_default()).for_each(|(to, &byte)| *to = byte);
                strays.note_plain(io.peer_addr().ok(), !self.speaks_http);
                stray::end_at_tls(io, &begin, strays, self.speaks_http.then_some(PLAIN_HTTP)).await;
                return Err("not_tls");
            }
            is_first = false;
            machine.received(n);
            // Nor does one that waits for its turn, because many may.
            machine.rest();
            let (back, result) = compute(machine).await?;
            // Also sends the alert if the handshake failed.
            let mut encrypted = Encrypted { io, machine: back };
            let sent = poll_fn(|cx| encrypted.poll_sent(cx)).await;
            result.map_err(|error| {
                log::debug!("a TLS handshake failed: {error}");
                reason_of(&error)
            })?;
            sent.map_err(|_| "other")?;
            (io, machine) = (encrypted.io, encrypted.machine);
        }
        machine.rest();
        Ok(Some(Encrypted { io, machine }))
    }
}

/// Runs the cryptography of a handshake on [`offload`]: 0.3 ms to 5 ms, too long for a reactor. Only a few handshakes
/// enter the queue of its threads, so that it has room for large requests; the others wait here until their time limit.
async fn compute(mut machine: Machine) -> std::result::Result<(Machine, Result<(), rustls::Error>), &'static str> {
    static TURNS: LazyLock<Semaphore> =
        LazyLock::new(|| Semaphore::new(HANDSHAKES_PER_THREAD * offload::status().threads_max));
    // Cannot fail: the semaphore is never closed.
    let _turn = TURNS.acquire().await;
    let work = offload::run(0, move |_| {
        let result = machine.shake_hands();
        (machine, result)
    });
    work.await.map_err(|error| {
        log::debug!("a TLS handshake was rejected: {}", error.message());
        "busy"
    })
}

fn reason_of(error: &rustls::Error) -> &'static str {
    use rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(_) | Tls::NoCertificatesPresented | Tls::AlertReceived(_) => "certificate",
        _ => "other",
    }
}

impl Watcher {
    /// Rereads files when they change. An invalid file is logged once, and the old certificate stays in use.
    ///
    /// # Errors
    /// INTERNAL if the system cannot start a thread.
    pub fn start(watched: Vec<(Arc<Tls>, TlsFiles)>) -> Result<Option<Self>> {
        if watched.is_empty() {
            return Ok(None);
        }
        let watched = Arc::new(Mutex::new(watched));
        let looked_at = watched.clone();
        let mut warned: Option<Instant> = None;
        let thread = FileWatcher::start("tls-files", LOOK_INTERVAL, move || {
            for name in look(&looked_at, false) {
                log::info!("{name} was read again");
            }
            if warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
                looked_at.lock().iter().for_each(|(_, files)| files.warn());
                warned = Some(Instant::now());
            }
        })?;
        Ok(Some(Self { watched, _thread: thread }))
    }

    /// Rereads all files now. Returns the certificate files that are now in use.
    pub fn reread(&self) -> Vec<String> {
        look(&self.watched, true)
    }

    /// Failed handshakes of all listeners, by reason.
    pub fn failed_handshakes(&self) -> Vec<(&'static str, u64)> {
        let watched = self.watched.lock();
        let sum = |at: usize| {
            watched.iter().filter_map(|(tls, _)| tls.failed.get(at)).map(|n| n.load(Ordering::Relaxed)).sum()
        };
        REASONS.iter().enumerate().map(|(at, reason)| (*reason, sum(at))).collect()
    }

    /// When certificates expire, those of all files in use.
    pub fn expiries(&self) -> Vec<Expiry> {
        self.watched.lock().iter().flat_map(|(_, files)| files.expiries.clone()).collect()
    }
}

/// Reads the files that changed, or all. Returns the certificate files that are valid.
fn look(watched: &Mutex<Vec<(Arc<Tls>, TlsFiles)>>, all: bool) -> Vec<String> {
    let mut names = Vec::new();
    for (tls, files) in watched.lock().iter_mut() {
        match files.changed(all) {
            None => {}
            Some(Ok(config)) => {
                tls.current.store(config);
                files.warn();
                names.push(files.certificate().display().to_string());
            }
            Some(Err(error)) => log::error!("{}; the current certificate stays in use", error.message()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_to_plain_http_has_the_right_content_length() {
        let text = std::str::from_utf8(PLAIN_HTTP).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
