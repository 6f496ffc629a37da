//! One TLS connection without its socket: records of the client go in, what they say and records for the client come out.
//!
//! rustls does all of the protocol and the cryptography. This is about buffers: records are read from the socket many at a time and
//! decrypted where they lie, and many are written at a time. A connection that waits holds none of these buffers: they are lent by
//! its thread. What stays is the beginning of a record that has not come whole.
//!
//! Invariants: what was encrypted is sent in its order; at most [`BUFFER_BYTES`] of the client's records are held, and about as
//! many of ours.

use std::cell::RefCell;
use std::io::IoSlice;
use std::ops::Deref;
use std::sync::Arc;
use tokio_rustls::rustls::server::UnbufferedServerConnection;
use tokio_rustls::rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use tokio_rustls::rustls::{Error, ServerConfig};

/// Plain bytes of a full record.
const RECORD_BYTES: usize = 16 * 1024;
/// The most that a record is longer than what it says, of TLS 1.2 (RFC 5246, 6.2.3).
const RECORD_OVERHEAD_MAX: usize = 5 + 2048;
/// Four full records, and as much as may stand around them.
pub const BUFFER_BYTES: usize = 4 * (RECORD_BYTES + RECORD_OVERHEAD_MAX);
/// Plain bytes that are encrypted at a time, in full records.
const ENCRYPT_BYTES: usize = 4 * RECORD_BYTES;
/// The smallest read: a record, or some small ones.
const READ_BYTES_MIN: usize = RECORD_BYTES + RECORD_OVERHEAD_MAX;
/// Buffers that a thread keeps. Of its connections few are in the middle of something when a turn ends.
const SPARE_MAX: usize = 4;

thread_local! {
    /// Each of `BUFFER_BYTES`.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes between two points of a buffer.
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
    /// A buffer of its own thread under what is there.
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

    /// Gives the buffer back, and keeps what is in it.
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

    /// Room for `n` bytes behind what is there.
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
    /// Records of the client that were not looked at.
    incoming: Span,
    /// Records for the client that its socket did not take.
    outgoing: Span,
    /// Decrypted, and not read.
    plain: Span,
    /// The client said that nothing follows.
    is_closed: bool,
    /// We said so.
    is_shut: bool,
    /// What the client did wrong, of which it was told.
    broken: Option<Error>,
}

/// What rustls wants before it goes on.
enum Next {
    /// More of the client's bytes.
    Input,
    /// The same again.
    Again,
}

impl Machine {
    /// A connection before its handshake.
    ///
    /// # Errors
    /// Of rustls, when the configuration cannot be used.
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

    /// Whether the handshake is still going on.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the client said that nothing follows, and all before was read.
    pub fn is_over(&self) -> bool {
        self.is_closed && self.plain.is_empty()
    }

    /// Where the client's next bytes go, for a reader who wants `wanted` plain ones. Empty when the client sends what cannot be
    /// used and never ends.
    pub fn room(&mut self, wanted: usize) -> &mut [u8] {
        self.incoming.borrow();
        let held = self.incoming.len();
        // Somewhat more than is wanted: what is read beyond it stays in the buffer until somebody wants it.
        let n = (wanted + wanted / 16 + 512).clamp(READ_BYTES_MIN, BUFFER_BYTES).min(BUFFER_BYTES - held);
        let room = self.incoming.room(n);
        room.get_mut(..n).unwrap_or_default()
    }

    /// So many bytes are there now.
    pub fn received(&mut self, n: usize) {
        self.incoming.to = (self.incoming.to + n).min(self.incoming.bytes.len());
    }

    /// The client has no more for now: the buffer goes back, and the beginning of a record is kept.
    pub fn rest(&mut self) {
        self.incoming.give_back();
    }

    /// Goes on with the handshake as far as what came allows. This is what takes its time: a signature and, with mutual TLS, the
    /// check of a chain.
    ///
    /// # Errors
    /// What is wrong with what the client sent; what tells the client is then in [`Machine::outgoing`].
    pub fn shake_hands(&mut self) -> Result<(), Error> {
        while self.tls.is_handshaking() {
            if let Next::Input = self.step(&mut |_| 0)? {
                break;
            }
        }
        // Tickets, and what a client of TLS 1.2 waits for.
        while !self.tls.is_handshaking() && !self.is_closed {
            if let Next::Input = self.step(&mut |_| 0)? {
                break;
            }
        }
        Ok(())
    }

    /// Decrypts what came: at most `room` bytes, which go to `put` in their order. Returns how many there were.
    ///
    /// # Errors
    /// As [`Machine::shake_hands`].
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
                Ok(Next::Again) => has_room = !is_full,
                Ok(Next::Input) => break,
                // What came before it is read first; it is kept.
                Err(error) if left == room => return Err(error),
                Err(_) => break,
            }
        }
        Ok(room - left)
    }

    /// Encrypts what `from` begins with and returns how many bytes that were; they are then in [`Machine::outgoing`], which has
    /// to be empty before.
    ///
    /// # Errors
    /// Of rustls: the connection is not in a state to send.
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
                    let next = settle(other, outgoing, is_closed, &mut |bytes| {
                        keep(decrypted, bytes);
                        bytes.len()
                    })?;
                    matches!(next, Next::Input).then_some(Err(Error::HandshakeNotComplete))
                }
            };
            incoming.discard(discard);
            if let Some(result) = sealed {
                return result;
            }
        }
    }

    /// Records that the client is to get.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// So many of these bytes went.
    pub fn sent(&mut self, n: usize) {
        self.outgoing.discard(n);
        if self.outgoing.is_empty() {
            self.outgoing.give_back();
        }
    }

    /// Says that nothing follows.
    ///
    /// # Errors
    /// Of rustls: the connection was broken before.
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
                    let next = settle(other, outgoing, is_closed, &mut |bytes| {
                        keep(plain, bytes);
                        bytes.len()
                    })?;
                    *is_shut = matches!(next, Next::Input);
                }
            }
            incoming.discard(discard);
        }
        Ok(())
    }

    /// One step of rustls. Plain bytes go to `put`; what it does not take is kept.
    fn step(&mut self, put: &mut dyn FnMut(&[u8]) -> usize) -> Result<Next, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let Self { tls, incoming, outgoing, plain, is_closed, .. } = self;
        let UnbufferedStatus { discard, state } = tls.process_tls_records(filled(incoming));
        let next = match state {
            Ok(state) => settle(state, outgoing, is_closed, &mut |bytes| {
                let n = if plain.is_empty() { put(bytes) } else { 0 };
                keep(plain, bytes.get(n..).unwrap_or_default());
                n
            }),
            Err(error) => Err(error),
        };
        incoming.discard(discard);
        if *is_closed {
            // Whatever follows a farewell is not looked at.
            incoming.discard(incoming.len());
        }
        if let Err(error) = &next {
            self.broken = Some(error.clone());
            self.tell();
        }
        next
    }

    /// What the client is told of its mistake.
    fn tell(&mut self) {
        let Self { tls, incoming, outgoing, .. } = self;
        // Once: what was queued before went before, and after the alert the mistake would be found again.
        let UnbufferedStatus { discard, state } = tls.process_tls_records(filled(incoming));
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = state {
            // If there is no room for it: the connection is over anyway.
            let _ = seal_with(outgoing, |to| encode(&mut data, to));
        }
        incoming.discard(discard);
    }
}

/// Why bytes were not written.
enum Short {
    /// So much room is needed.
    By(usize),
    Never,
}

fn encode<D>(data: &mut tokio_rustls::rustls::unbuffered::EncodeTlsData<'_, D>, to: &mut [u8]) -> Result<usize, Short> {
    data.encode(to).map_err(|e| match e {
        EncodeError::InsufficientSize(e) => Short::By(e.required_size),
        EncodeError::AlreadyEncoded => Short::Never,
    })
}

/// Lets `write` write behind what is there.
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

/// Bytes that nobody had room for.
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

/// Does what a state asks for, but for sending.
fn settle<D>(
    state: ConnectionState<'_, '_, D>,
    outgoing: &mut Span,
    is_closed: &mut bool,
    put: &mut dyn FnMut(&[u8]) -> usize,
) -> Result<Next, Error> {
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                put(record?.payload);
            }
        }
        ConnectionState::EncodeTlsData(mut data) => seal_with(outgoing, |to| encode(&mut data, to))?,
        // It is sent in its turn, which is before anything that is encrypted later.
        ConnectionState::TransmitTlsData(transmit) => transmit.done(),
        ConnectionState::PeerClosed => *is_closed = true,
        ConnectionState::Closed => {
            *is_closed = true;
            return Ok(Next::Input);
        }
        // Early data is not offered: the first of these cannot be.
        ConnectionState::ReadEarlyData(_) => return Err(Error::General("early data".into())),
        _ => return Ok(Next::Input),
    }
    Ok(Next::Again)
}
