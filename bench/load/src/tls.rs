//! Connections of the load generator and listeners of the floors: plain TCP, TLS over it with rustls, or a Unix socket.
//!
//! The client takes any certificate: it measures servers that the bench started itself on loopback, and the time for a
//! check of a chain would fall on the first request only.

use crate::arguments::{Arguments, Failure};
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A connection of a client.
pub enum Stream {
    Plain(TcpStream),
    Unix(UnixStream),
    /// In a box: its state is a kilobyte.
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// Takes whatever certificate a server shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// How the connections of a plan speak: `None` = plainly.
pub fn connector(a: &Arguments) -> std::result::Result<Option<TlsConnector>, Failure> {
    if a.optional("tls").is_none() {
        return Ok(None);
    }
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![if a.text("protocol")? == "grpc" { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

impl Stream {
    pub async fn connect(address: &str, tls: Option<&TlsConnector>) -> std::result::Result<Self, Failure> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Self::Unix(UnixStream::connect(path).await?));
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Self::Plain(stream)) };
        let name = ServerName::try_from("localhost")?;
        Ok(Self::Encrypted(Box::new(tls.connect(name, stream).await?)))
    }
}

/// TLS of a floor, from the files `--cert` and `--key`; `None` = plain text.
pub fn acceptor(a: &Arguments, protocol: &[u8]) -> std::result::Result<Option<TlsAcceptor>, Failure> {
    if a.optional("cert").is_none() {
        return Ok(None);
    }
    let chain = CertificateDer::pem_slice_iter(&a.file("cert")?).collect::<std::result::Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&a.file("key")?)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, to),
            Self::Unix(io) => Pin::new(io).poll_read(cx, to),
            Self::Encrypted(io) => Pin::new(io).poll_read(cx, to),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, from),
            Self::Unix(io) => Pin::new(io).poll_write(cx, from),
            Self::Encrypted(io) => Pin::new(io).poll_write(cx, from),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, from),
            Self::Unix(io) => Pin::new(io).poll_write_vectored(cx, from),
            Self::Encrypted(io) => Pin::new(io).poll_write_vectored(cx, from),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Unix(io) => Pin::new(io).poll_flush(cx),
            Self::Encrypted(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Unix(io) => Pin::new(io).poll_shutdown(cx),
            Self::Encrypted(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
