//! Bytes of a client on a port that speaks TLS: any bytes, and a whole conversation with a client of rustls of which
//! some bytes are damaged, lost or added on their way.

use crate::machine::{BUFFER_BYTES, Machine};
use std::io::{IoSlice, Read, Write};
use std::sync::{Arc, LazyLock};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

/// Bytes that both sides say in one conversation: thousands of long texts only take time.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// rustls takes no more requests for new keys in a row.
const KEY_UPDATES_MAX: usize = 16;

static SERVER: LazyLock<Arc<ServerConfig>> = LazyLock::new(|| {
    let chain = CertificateDer::from_pem_slice(include_bytes!("../../test/attacks/lib/tls/certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../test/attacks/lib/tls/key.pem")).unwrap();
    let builder = ServerConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![chain], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new().unwrap();
    Arc::new(config)
});

/// Configurations for TLS 1.2 and 1.3.
static CLIENTS: LazyLock<[Arc<ClientConfig>; 2]> = LazyLock::new(|| [client(&TLS12), client(&TLS13)]);

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn client(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_protocol_versions(&[version]).unwrap().dangerous();
    let mut config = builder.with_custom_certificate_verifier(Arc::new(AnyCertificate)).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Tickets of other inputs would make this one depend on them.
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// The first byte says which: bit 0 a conversation, bit 1 of TLS 1.3, the others the size of pieces.
pub fn tls_front(data: &[u8]) -> bool {
    let Some((&how, rest)) = data.split_first() else { return false };
    let pieces = [1, 5, 97, 1400, 16_384, 40_000, 70_000, usize::MAX][usize::from(how >> 5)];
    if how & 1 == 0 {
        let whole = anything(rest, usize::MAX);
        assert_eq!(anything(rest, pieces), whole, "in pieces of {pieces}");
        return whole.is_ok();
    }
    Conversation::new(usize::from(how >> 1 & 1), pieces).hold(rest)
}

/// Feeds any bytes. Only rejection is compared, because alerts may differ in detail.
fn anything(bytes: &[u8], pieces: usize) -> Result<bool, ()> {
    let mut machine = Machine::new(SERVER.clone()).unwrap();
    for piece in bytes.chunks(pieces.min(bytes.len()).max(1)) {
        give(&mut machine, piece).map_err(drop)?;
    }
    Ok(machine.outgoing().is_empty())
}

/// Feeds bytes like a socket, as many as there is room for at a time: during the handshake, and then until nothing is
/// left.
fn give(machine: &mut Machine, mut bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut read = Vec::new();
    while !bytes.is_empty() {
        let room = machine.room(1000);
        assert!(room.len() <= BUFFER_BYTES);
        if room.is_empty() {
            return Err(Error::General("a message without an end".into()));
        }
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        machine.received(n);
        bytes = &bytes[n..];
        if machine.is_handshaking() {
            machine.shake_hands()?;
        }
        if !machine.is_handshaking() {
            while machine.read(1000, &mut |plain| read.extend_from_slice(plain))? > 0 {}
        }
        machine.rest();
    }
    Ok(read)
}

struct Conversation {
    client: ClientConnection,
    server: Machine,
    pieces: usize,
    /// Bytes that one side sent and the other has not received.
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    /// Damage to the next records of the client.
    harm: Option<Harm>,
    is_harmed: bool,
    /// One side gave up, which only harm explains.
    is_over: bool,
    has_left: bool,
    text_left: usize,
    key_updates: usize,
    said: u8,
}

enum Harm {
    Flip(usize, u8),
    Cut(usize),
    Twice,
    Before(Vec<u8>),
}

impl Conversation {
    fn new(version: usize, pieces: usize) -> Self {
        Self {
            client: ClientConnection::new(CLIENTS[version].clone(), ServerName::try_from("localhost").unwrap())
                .unwrap(),
            server: Machine::new(SERVER.clone()).unwrap(),
            pieces,
            from_client: Vec::new(),
            from_server: Vec::new(),
            harm: None,
            is_harmed: false,
            is_over: false,
            has_left: false,
            text_left: TEXT_BYTES_MAX,
            key_updates: 0,
            said: 0,
        }
    }

    /// Runs steps of three bytes: the first has four bits for the action, four for its kind. Returns whether nothing
    /// was harmed.
    fn hold(mut self, steps: &[u8]) -> bool {
        let mut at = 0;
        while let Some(&[what, a, b]) = steps.get(at..at + 3)
            && !self.is_over
        {
            at += 3;
            let n = usize::from(a) * 256 + usize::from(b);
            match what & 15 {
                0 => self.pump(),
                1 => self.client_says(n),
                2 => self.server_says(n, usize::from(what >> 4)),
                3 if self.key_updates < KEY_UPDATES_MAX && !self.client.is_handshaking() => {
                    self.key_updates += 1;
                    // TLS 1.2 has none.
                    let _ = self.client.refresh_traffic_keys();
                }
                4 if !self.client.is_handshaking() => {
                    self.client.send_close_notify();
                    self.has_left = true;
                }
                5 => self.harm = Some(Harm::Flip(n, (what >> 4).max(1))),
                6 => self.harm = Some(Harm::Cut(n)),
                7 => self.harm = Some(Harm::Twice),
                8 => {
                    let added = steps.get(at..at + usize::from(a)).unwrap_or_default();
                    at += added.len();
                    self.harm = Some(Harm::Before(added.to_vec()));
                }
                _ => {}
            }
        }
        for _ in 0..8 {
            self.pump();
        }
        if self.is_harmed {
            return false;
        }
        assert!(!self.is_over, "nothing was harmed, and one of them gave up");
        assert!(!self.server.is_handshaking() && !self.client.is_handshaking());
        assert!(self.from_client.is_empty(), "{} bytes of the client are lost", self.from_client.len());
        assert!(self.from_server.is_empty(), "{} bytes of the server are lost", self.from_server.len());
        assert_eq!(self.server.is_over(), self.has_left);
        true
    }

    fn text(&mut self, n: usize) -> Vec<u8> {
        // A record in single bytes is put together anew for each of them: much of that only takes time.
        let n = n.min(self.pieces.saturating_mul(2000)).min(self.text_left);
        self.text_left -= n;
        self.said = self.said.wrapping_add(1);
        (0..n).map(|i| (i as u8) ^ self.said).collect()
    }

    fn client_says(&mut self, n: usize) {
        if !self.has_left && !self.client.is_handshaking() {
            let text = self.text(n);
            let taken = self.client.writer().write(&text).unwrap();
            self.from_client.extend_from_slice(&text[..taken]);
        }
        self.pump();
    }

    fn server_says(&mut self, n: usize, slices: usize) {
        if self.server.is_handshaking() || self.is_over {
            return self.pump();
        }
        let text = self.text(n);
        let all: Vec<_> = text.chunks(text.len() / slices.max(1) + 1).map(IoSlice::new).collect();
        match self.server.encrypt(&all) {
            Ok(taken) => {
                assert!(taken > 0 || text.is_empty());
                self.from_server.extend_from_slice(&text[..taken]);
            }
            Err(_) => self.end(),
        }
        assert!(self.server.outgoing().len() <= 2 * BUFFER_BYTES);
        self.pump();
    }

    /// Carries what there is both ways, once.
    fn pump(&mut self) {
        if self.is_over {
            return;
        }
        let mut records = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut records).unwrap();
        }
        if !records.is_empty()
            && let Some(harm) = self.harm.take()
        {
            self.is_harmed = true;
            match harm {
                Harm::Flip(at, with) => {
                    let at = at % records.len();
                    records[at] ^= with;
                }
                Harm::Cut(n) => records.truncate(records.len().saturating_sub(n.max(1))),
                Harm::Twice => records.extend_from_within(..),
                Harm::Before(mut added) => {
                    added.extend_from_slice(&records);
                    records = added;
                }
            }
        }
        for piece in records.chunks(self.pieces.min(records.len()).max(1)) {
            match give(&mut self.server, piece) {
                // The received text is a prefix of the sent text, even after damage.
                Ok(read) => {
                    assert!(self.from_client.starts_with(&read), "the server heard what was not said");
                    self.from_client.drain(..read.len());
                }
                Err(_) => {
                    self.end();
                    break;
                }
            }
        }
        let mut answer = self.server.outgoing();
        while !answer.is_empty() {
            if self.client.read_tls(&mut answer).is_err() || self.client.process_new_packets().is_err() {
                self.end();
                break;
            }
            let mut read = Vec::new();
            // All that is there; then there would be a wait.
            let _ = self.client.reader().read_to_end(&mut read);
            assert!(self.from_server.starts_with(&read), "the client heard what was not said");
            self.from_server.drain(..read.len());
        }
        let n = self.server.outgoing().len();
        self.server.sent(n);
    }

    fn end(&mut self) {
        assert!(self.is_harmed, "nothing was harmed, and one of them gave up");
        self.is_over = true;
    }
}
