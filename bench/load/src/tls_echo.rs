//! The cost of TLS with plain tokio-rustls: a server that reads a request by its Content-Length into a buffer and
//! writes a ready-made answer. With `--tail` the last bytes of the answer are those of the request, out of the buffer
//! they were read into.

use crate::arguments::{Arguments, Failure};
use crate::epoll::request_length;
use crate::floors::{listen, on_one_thread};
use bytes::Bytes;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// TLS of a floor, from the files `--cert` and `--key`; `None` = plain text.
pub fn acceptor(a: &Arguments, protocol: &[u8]) -> Result<Option<TlsAcceptor>, Failure> {
    if a.optional("cert").is_none() {
        return Ok(None);
    }
    let chain = CertificateDer::pem_slice_iter(&a.file("cert")?).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&a.file("key")?)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

pub fn serve(a: &Arguments) -> Result<(), Failure> {
    let body = a.file("answer")?;
    let tail = a.number("tail", 0usize)?.min(body.len());
    let mut ready = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    ready.extend_from_slice(&body[..body.len() - tail]);
    let ready = Bytes::from(ready);
    let tls = acceptor(a, b"http/1.1")?.ok_or("--cert and --key are missing")?;
    on_one_thread(async move {
        let listener = listen().await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (tls, ready) = (tls.clone(), ready.clone());
            tokio::task::spawn_local(async move { drop(echo(stream, tls, ready, tail).await) });
        }
    })
}

async fn echo(stream: TcpStream, tls: TlsAcceptor, ready: Bytes, tail: usize) -> Result<(), Failure> {
    let mut stream = tls.accept(stream).await?;
    // Grows to the longest request and is kept.
    let mut input = vec![0; 64 << 10];
    loop {
        let (mut filled, mut wanted) = (0, None);
        while wanted.is_none_or(|length| filled < length) {
            if filled == input.len() {
                input.resize(wanted.unwrap_or(0).max(filled * 2), 0);
            }
            match stream.read(&mut input[filled..]).await? {
                0 => return Ok(()),
                n => filled += n,
            }
            // The head comes with the first bytes: it is looked for once in a large request.
            wanted = wanted.or_else(|| request_length(&input[..filled]));
        }
        stream.write_all(&ready).await?;
        stream.write_all(&input[filled - tail.min(filled)..filled]).await?;
        stream.flush().await?;
    }
}
