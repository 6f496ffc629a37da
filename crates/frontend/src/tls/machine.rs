//! One TLS connection without its socket: takes records of the client, returns decrypted bytes and records to send.
//!
//! rustls implements the protocol and the cryptography; this file manages buffers. Many records are read at a time and
//! decrypted in place, and many are written at a time. The buffers belong to the thread: a connection that waits holds
//! none, and keeps only an incomplete record.
//!
//! Invariants: records are sent in the order of encryption. A connection holds at most [`BUFFER_BYTES`] of the client's
//! records, and about as many of its own.

use std::cell::RefCell;
use std::io::IoSlice;
use std::ops::Deref;
use std::sync::Arc;
use tokio_rustls::rustls::server::UnbufferedServerConnection;
use tokio_rustls::rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use tokio_rustls::rustls::{Error, ServerConfig};

/// Plain bytes of a full record.
const RECORD_BYTES: usize = 16 * 1024;
/// Maximum overhead of a record of TLS 1.2 (RFC 5246, 6.2.3).
const RECORD_OVERHEAD_MAX: usize = 5 + 2048;
/// Size of four full records with their overhead.
pub const BUFFER_BYTES: usize = 4 * (RECORD_BYTES + RECORD_OVERHEAD_MAX);
/// Plain bytes that are encrypted at a time, in full records.
const ENCRYPT_BYTES: usize = 4 * RECORD_BYTES;
/// Size of the smallest read: a full record, or several small ones.
const READ_BYTES_MIN: usize = RECORD_BYTES + RECORD_OVERHEAD_MAX;
/// Number of buffers that a thread keeps. Few of its connections need one when a turn ends.
const SPARE_MAX: usize = 4;

thread_local! {
    /// Free buffers of `BUFFER_BYTES`.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The used range of a buffer.
#[derive(Default)]
struct Span {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Deref for Span {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.from..self.to).unwrap_or_default()
    }
}

impl Span {
    /// Moves the contents to a buffer of this thread.
    fn borrow(&mut self) {
        if self.bytes.len() < BUFFER_BYTES {
            let spare = SPARE.with(|spare| spare.borrow_mut().pop());
            let mut bytes = spare.unwrap_or_else(|| vec![0; BUFFER_BYTES]);
            let n = self.len();
            if let Some(place) = bytes.get_mut(..n) {
                place.copy_from_slice(self);
            }
            (self.bytes, self.from, self.to) = (bytes, 0, n);
        }
    }

    /// Returns the buffer to this thread and keeps the contents.
    fn give_back(&mut self) {
        if self.bytes.len() < BUFFER_BYTES {
            if self.is_empty() {
                *self = Self::default();
            }
            return;
        }
        let kept = self.to_vec();
        (self.from, self.to) = (0, kept.len());
        let bytes = std::mem::replace(&mut self.bytes, kept);
        SPARE.with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX && bytes.len() == BUFFER_BYTES {
                spare.push(bytes);
            }
        });
    }

    /// Makes room for `n` bytes after the contents.
    fn room(&mut self, n: usize) -> &mut [u8] {
        if self.bytes.len() - self.to < n && self.from > 0 {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.bytes.len() - self.to < n {
            self.bytes.resize(self.to + n, 0);
        }
        self.bytes.get_mut(self.to..).unwrap_or_default()
    }

    fn discard(&mut self, n: usize) {
        self.from += n.min(self.to - self.from);
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }
}

/// The state of a connection.
pub struct Machine {
    tls: UnbufferedServerConnection,
    /// Records of the client that were not processed yet.
    incoming: Span,
    /// Records that were not written to the socket yet.
    outgoing: Span,
    /// Decrypted bytes that were not read yet.
    plain: Span,
    /// The client sent close_notify.
    is_closed: bool,
    /// The server sent close_notify.
    is_shut: bool,
    /// Protocol error of the client, which was sent as an alert.
    broken: Option<Error>,
}

/// Needs of rustls to continue.
enum TlsNeed {
    /// More bytes from the client.
    Input,
    /// Another call.
    Again,
}

impl Machine {
    /// Makes a connection before its handshake.
    ///
    /// # Errors
    /// The error of rustls for an unusable configuration.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(config)?,
            incoming: Span::default(),
            outgoing: Span::default(),
            plain: Span::default(),
            is_closed: false,
            is_shut: false,
            broken: None,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the client sent close_notify and all decrypted bytes were read.
    pub fn is_over(&self) -> bool {
        self.is_closed && self.plain.is_empty()
    }

    /// Buffer for the client's next bytes, for a reader that wants `wanted` decrypted ones. Empty if the client sends a
    /// message that is too long for the buffer.
    pub fn room(&mut self, wanted: usize) -> &mut [u8] {
        self.incoming.borrow();
        let held = self.incoming.len();
        // Somewhat more than wanted; the surplus stays in the buffer until the next read.
        let n = (wanted + wanted / 16 + 512).clamp(READ_BYTES_MIN, BUFFER_BYTES).min(BUFFER_BYTES - held);
        let room = self.incoming.room(n);
        room.get_mut(..n).unwrap_or_default()
    }

    /// Records that `n` bytes were received.
    pub fn received(&mut self, n: usize) {
        self.incoming.to = (self.incoming.to + n).min(self.incoming.bytes.len());
    }

    /// Returns the buffer when there is nothing to read. Keeps an incomplete record.
    pub fn rest(&mut self) {
        self.incoming.give_back();
    }

    /// Continues the handshake with the received bytes. Slow: makes a signature and, with mutual TLS, checks a chain.
    ///
    /// # Errors
    /// A protocol error of the client. [`Machine::outgoing`] then has the alert.
    pub fn shake_hands(&mut self) -> Result<(), Error> {
        while self.tls.is_handshaking() {
            if let TlsNeed::Input = self.step(&mut |_| 0)? {
                break;
            }
        }
        // Session tickets, and the last messages of TLS 1.2.
        while !self.tls.is_handshaking() && !self.is_closed {
            if let TlsNeed::Input = self.step(&mut |_| 0)? {
                break;
            }
        }
        Ok(())
    }

    /// Decrypts at most `room` bytes and passes them to `put` in order. Returns their number.
    ///
    /// # Errors
    /// A protocol error of the client. [`Machine::outgoing`] then has the alert.
    pub fn read(&mut self, room: usize, put: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let mut left = room;
        let mut take = |bytes: &[u8]| {
            let n = bytes.len().min(left);
            put(bytes.get(..n).unwrap_or_default());
            left -= n;
            n
        };
        if !self.plain.is_empty() {
            let n = take(&self.plain);
            self.plain.discard(n);
            if self.plain.is_empty() {
                self.plain = Span::default();
            } else {
                return Ok(n);
            }
        }
        let mut has_room = room > 0;
        while has_room {
            let mut is_full = false;
            let next = self.step(&mut |bytes| {
                let n = take(bytes);
                is_full = n < bytes.len();
                n
            });
            match next {
                Ok(TlsNeed::Again) => has_room = !is_full,
                Ok(TlsNeed::Input) => break,
                // Bytes before the error are returned first; the error is kept for the next call.
                Err(error) if left == room => return Err(error),
                Err(_) => break,
            }
        }
        Ok(room - left)
    }

    /// Encrypts the beginning of `from` into [`Machine::outgoing`], which must be empty. Returns the number of bytes.
    ///
    /// # Errors
    /// The error of rustls if the connection is not in a state to send.
    pub fn encrypt(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.is_shut {
            return Err(Error::General("the connection was closed".into()));
        }
        let mut gathered = Vec::new();
        let (mut at, mut skip, mut total) = (0, 0, 0);
        while total < ENCRYPT_BYTES
            && let Some(slice) = from.get(at)
        {
            let rest = slice.get(skip..).unwrap_or_default();
            let is_last = from.get(at + 1..).is_none_or(|others| others.iter().all(|s| s.is_empty()));
            if is_last || rest.len() >= RECORD_BYTES {
                let n = match rest.len().min(ENCRYPT_BYTES - total) {
                    // The rest shares a record with what follows.
                    n if n == rest.len() && !is_last => n / RECORD_BYTES * RECORD_BYTES,
                    n => n,
                };
                self.seal(rest.get(..n).unwrap_or_default())?;
                total += n;
                skip += n;
            } else {
                gathered.clear();
                let more = from.iter().skip(at).map(|s| s.len()).fold(0, usize::saturating_add);
                gathered.reserve(more.min(RECORD_BYTES));
                while gathered.len() < RECORD_BYTES
                    && let Some(slice) = from.get(at)
                {
                    let rest = slice.get(skip..).unwrap_or_default();
                    let n = rest.len().min(RECORD_BYTES - gathered.len());
                    gathered.extend_from_slice(rest.get(..n).unwrap_or_default());
                    skip += n;
                    if n == rest.len() {
                        (at, skip) = (at + 1, 0);
                    }
                }
                self.seal(&gathered)?;
                total += gathered.len();
                continue;
            }
            if skip == slice.len() {
                (at, skip) = (at + 1, 0);
            }
        }
        Ok(total)
    }

    /// Encrypts all of `plain`.
    fn seal(&mut self, plain: &[u8]) -> Result<(), Error> {
        if plain.is_empty() {
            return Ok(());
        }
        self.outgoing.borrow();
        loop {
            let Self { tls, incoming, outgoing, plain: decrypted, is_closed, .. } = self;
            let UnbufferedStatus { discard, state } = tls.process_tls_records(filled(incoming));
            let sealed = match state? {
                ConnectionState::WriteTraffic(mut traffic) => Some(seal_with(outgoing, |to| {
                    traffic.encrypt(plain, to).map_err(|e| match e {
                        EncryptError::InsufficientSize(e) => Short::By(e.required_size),
                        EncryptError::EncryptExhausted => Short::Never,
                    })
                })),
                other => {
                    let next = handle_state(other, outgoing, is_closed, &mut |bytes| {
                        keep(decrypted, bytes);
                        bytes.len()
                    })?;
                    matches!(next, TlsNeed::Input).then_some(Err(Error::HandshakeNotComplete))
                }
            };
            incoming.discard(discard);
            if let Some(result) = sealed {
                return result;
            }
        }
    }

    /// Records that have to be sent.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// Removes the first `n` bytes of the outgoing records, which were sent.
    pub fn sent(&mut self, n: usize) {
        self.outgoing.discard(n);
        if self.outgoing.is_empty() {
            self.outgoing.give_back();
        }
    }

    /// Queues close_notify.
    ///
    /// # Errors
    /// The error of rustls if the connection failed before.
    pub fn shut(&mut self) -> Result<(), Error> {
        while !self.is_shut && self.broken.is_none() {
            let Self { tls, incoming, outgoing, plain, is_closed, is_shut, .. } = self;
            let UnbufferedStatus { discard, state } = tls.process_tls_records(filled(incoming));
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    *is_shut = true;
                    seal_with(outgoing, |to| {
                        traffic.queue_close_notify(to).map_err(|e| match e {
                            EncryptError::InsufficientSize(e) => Short::By(e.required_size),
                            EncryptError::EncryptExhausted => Short::Never,
                        })
                    })?;
                }
                other => {
                    let next = handle_state(other, outgoing, is_closed, &mut |bytes| {
                        keep(plain, bytes);
                        bytes.len()
                    })?;
                    *is_shut = matches!(next, TlsNeed::Input);
                }
            }
            incoming.discard(discard);
        }
        Ok(())
    }

    /// Runs one step of rustls. Decrypted bytes go to `put`; those it does not take are kept.
    fn step(&mut self, put: &mut dyn FnMut(&[u8]) -> usize) -> Result<TlsNeed, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let Self { tls, incoming, outgoing, plain, is_closed, .. } = self;
        let UnbufferedStatus { discard, state } = tls.process_tls_records(filled(incoming));
        let next = match state {
            Ok(state) => handle_state(state, outgoing, is_closed, &mut |bytes| {
                let n = if plain.is_empty() { put(bytes) } else { 0 };
                keep(plain, bytes.get(n..).unwrap_or_default());
                n
            }),
            Err(error) => Err(error),
        };
        incoming.discard(discard);
        if *is_closed {
            // Bytes after close_notify are ignored.
            incoming.discard(incoming.len());
        }
        if let Err(error) = &next {
            self.broken = Some(error.clone());
            self.queue_alert();
        }
        next
    }

    /// Queues the alert for a protocol error.
    fn queue_alert(&mut self) {
        let Self { tls, incoming, outgoing, .. } = self;
        // Called once: earlier records were queued before, and after the alert rustls would report the error again.
        let UnbufferedStatus { discard, state } = tls.process_tls_records(filled(incoming));
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = state {
            // Without room for the alert, the connection ends all the same.
            let _ = seal_with(outgoing, |to| encode(&mut data, to));
        }
        incoming.discard(discard);
    }
}

/// Why bytes were not written.
enum Short {
    /// The room needed in bytes.
    By(usize),
    Never,
}

fn encode<D>(data: &mut tokio_rustls::rustls::unbuffered::EncodeTlsData<'_, D>, to: &mut [u8]) -> Result<usize, Short> {
    data.encode(to).map_err(|e| match e {
        EncodeError::InsufficientSize(e) => Short::By(e.required_size),
        EncodeError::AlreadyEncoded => Short::Never,
    })
}

/// Calls `write` with the room after the contents, and again with as much room as it needs.
fn seal_with(to: &mut Span, mut write: impl FnMut(&mut [u8]) -> Result<usize, Short>) -> Result<(), Error> {
    let mut needed = 0;
    loop {
        let written = write(to.room(needed));
        match written {
            Ok(n) => {
                to.to += n;
                return Ok(());
            }
            Err(Short::By(n)) if n > needed => needed = n,
            Err(_) => return Err(Error::EncryptError),
        }
    }
}

/// Keeps decrypted bytes that the reader had no room for.
fn keep(plain: &mut Span, bytes: &[u8]) {
    if !bytes.is_empty() {
        if let Some(place) = plain.room(bytes.len()).get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
        plain.to += bytes.len();
    }
}

fn filled(span: &mut Span) -> &mut [u8] {
    let (from, to) = (span.from, span.to);
    span.bytes.get_mut(from..to).unwrap_or_default()
}

/// Handles a state of rustls, except for sending.
fn handle_state<D>(
    state: ConnectionState<'_, '_, D>,
    outgoing: &mut Span,
    is_closed: &mut bool,
    put: &mut dyn FnMut(&[u8]) -> usize,
) -> Result<TlsNeed, Error> {
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                put(record?.payload);
            }
        }
        ConnectionState::EncodeTlsData(mut data) => seal_with(outgoing, |to| encode(&mut data, to))?,
        // Outgoing records are sent in order, so these precede records that are encrypted later.
        ConnectionState::TransmitTlsData(transmit) => transmit.done(),
        ConnectionState::PeerClosed => *is_closed = true,
        ConnectionState::Closed => {
            *is_closed = true;
            return Ok(TlsNeed::Input);
        }
        // Cannot happen: early data is not offered.
        ConnectionState::ReadEarlyData(_) => return Err(Error::General("early data".into())),
        _ => return Ok(TlsNeed::Input),
    }
    Ok(TlsNeed::Again)
}
