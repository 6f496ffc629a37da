//! Connections: plain TCP, TLS over it with rustls, or a Unix socket. They count their bytes.

use crate::pace::Traffic;
use crate::plan::{AnyError, Plan, Protocol, Tls};
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Files of certificates of systems; the first that exists is read. `SSL_CERT_FILE` precedes them.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A socket, plain or not.
trait Socket: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Socket for T {}

/// A connection.
pub struct Stream {
    socket: Box<dyn Socket>,
    traffic: Rc<Traffic>,
}

/// Who a server may be.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None`: anybody.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// A certificate that is among those of the authorities is known, also one that an authority may not be shown as.
    known: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        match &self.authorities {
            Some(authorities) if !self.known.contains(certificate) => {
                authorities.verify_server_cert(certificate, chain, name, ocsp, now)
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn certificates(path: &str) -> std::result::Result<Vec<CertificateDer<'static>>, AnyError> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    Ok(all.map_err(|e| format!("certificates of {path}: {e}"))?)
}

fn verifier(tls: &Tls, provider: Arc<CryptoProvider>) -> std::result::Result<Verifier, AnyError> {
    if tls.insecure {
        return Ok(Verifier { provider, authorities: None, known: Vec::new() });
    }
    let of_system = || {
        let named = std::env::var("SSL_CERT_FILE").ok();
        let found = SYSTEM_ROOTS.iter().find(|path| std::path::Path::new(path).exists());
        named.or(found.map(|path| (*path).to_owned()))
    };
    let path = tls.ca.clone().or_else(of_system);
    let path = path.ok_or("this system has no file of certificates in the usual locations: name one as tls.ca")?;
    let (known, mut roots) = (certificates(&path)?, RootCertStore::empty());
    if roots.add_parsable_certificates(known.iter().cloned()).0 == 0 {
        return Err(format!("{path} has no certificate of an authority: name one as tls.ca").into());
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    Ok(Verifier { provider, authorities: Some(authorities), known: if tls.ca.is_some() { known } else { Vec::new() } })
}

/// Opens connections of a plan.
pub struct Connector {
    address: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    traffic: Rc<Traffic>,
}

impl Connector {
    /// Reads what TLS needs.
    pub fn new(plan: &Plan, traffic: Rc<Traffic>) -> std::result::Result<Self, AnyError> {
        let tls = match &plan.tls {
            None => None,
            Some(_) if plan.address.starts_with("unix:") => return Err("TLS over a Unix socket is not possible".into()),
            Some(tls) => Some((connector(tls, plan.protocol)?, server_name(plan.host())?)),
        };
        Ok(Self { address: plan.address.clone(), tls, traffic })
    }

    /// Opens one.
    pub async fn connect(&self) -> std::result::Result<Stream, AnyError> {
        let socket = self.socket().await.map_err(|e| format!("cannot connect to {}: {e}", self.address))?;
        Ok(Stream { socket, traffic: self.traffic.clone() })
    }

    async fn socket(&self) -> Result<Box<dyn Socket>> {
        if let Some(path) = self.address.strip_prefix("unix:") {
            return Ok(Box::new(UnixStream::connect(path).await?));
        }
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
        })
    }
}

/// The name in a certificate, from `HOST:PORT`, `[V6]:PORT` or `HOST`.
fn server_name(host: &str) -> std::result::Result<ServerName<'static>, AnyError> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(ServerName::try_from(name).map_err(|_| format!("\"{host}\" is not a valid name for a certificate"))?)
}

fn connector(tls: &Tls, protocol: Protocol) -> std::result::Result<TlsConnector, AnyError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier(tls, provider)?));
    let mut config = match (&tls.certificate, &tls.key) {
        (Some(chain), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("key of {key}: {e}"))?;
            builder.with_client_auth_cert(certificates(chain)?, key)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("tls.certificate and tls.key belong together: give both or none".into()),
    };
    config.alpn_protocols = vec![if protocol == Protocol::Grpc { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Adds the bytes of a write.
fn counted(traffic: &Traffic, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
    if let Poll::Ready(Ok(n)) = &written {
        traffic.out.set(traffic.out.get() + *n as u64);
    }
    written
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = to.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, to);
        let input = &self.traffic.input;
        input.set(input.get() + (to.filled().len() - before) as u64);
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, from);
        counted(&self.traffic, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, from);
        counted(&self.traffic, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
