//! Reads certificates and keys from files.

use options::TlsOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{Error, Result};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey};
use tokio_rustls::rustls::{self, InconsistentKeys, RootCertStore, ServerConfig};

use super::names::ByName;
use super::version1::{Clients, Version1, expires};
use crate::limits::{TLS_CERTIFICATES_MAX, TLS_FILE_BYTES_MAX};
use crate::watched_file::{Stamp, read, stamp};

/// Time before the end of a certificate from which it is logged.
const WARN_SECONDS: u64 = 14 * DAY;
const DAY: u64 = 86_400;

/// A listener (`http`, `grpc`, `control`), a file, and when its first certificate expires, in seconds since 1970.
pub type Expiry = (&'static str, PathBuf, u64);

/// The files of a listener, with their stamps when they were last read.
pub struct TlsFiles {
    options: TlsOptions,
    /// Certificates, each with its key.
    pairs: Vec<(PathBuf, PathBuf)>,
    protocols: Vec<Vec<u8>>,
    listener: &'static str,
    seen: Vec<Stamp>,
    /// Read with the contents in use.
    pub(super) expiries: Vec<Expiry>,
}

impl TlsFiles {
    /// # Errors
    /// INVALID_ARG if a required file is not named.
    pub(super) fn new(options: &TlsOptions, protocols: &[&[u8]], listener: &'static str) -> Result<Self> {
        let unnamed = |path: &Path| path.as_os_str().is_empty();
        if unnamed(&options.certificate) || unnamed(&options.key) {
            return Err(Error::invalid("TLS needs the files of a certificate and of its key"));
        }
        if options.mutual && unnamed(&options.roots) {
            return Err(Error::invalid("mutual TLS needs the file of the roots that clients are checked against"));
        }
        let (certificates, keys) = (list(&options.certificate), list(&options.key));
        if certificates.len() != keys.len() || certificates.len() > TLS_CERTIFICATES_MAX {
            return Err(Error::invalid(format!(
                "TLS needs as many keys as certificates, at most {TLS_CERTIFICATES_MAX}: there are {} and {}",
                certificates.len(),
                keys.len()
            )));
        }
        let mut files = Self {
            options: options.clone(),
            pairs: certificates.into_iter().zip(keys).collect(),
            protocols: protocols.iter().map(|name| name.to_vec()).collect(),
            listener,
            seen: Vec::new(),
            expiries: Vec::new(),
        };
        files.seen = files.stamps();
        Ok(files)
    }

    /// The certificate option as it was given.
    pub fn certificate(&self) -> &Path {
        &self.options.certificate
    }

    fn stamps(&self) -> Vec<Stamp> {
        let pairs = self.pairs.iter().flat_map(|(certificate, key)| [certificate, key]);
        pairs.chain([&self.options.roots]).map(|path| stamp(path)).collect()
    }

    /// Reads the files if they changed, or `in_any_case`; otherwise returns `None`.
    pub(super) fn changed(&mut self, in_any_case: bool) -> Option<Result<Arc<ServerConfig>>> {
        let now = self.stamps();
        if now == self.seen && !in_any_case {
            return None;
        }
        let read = self.config();
        // The stamp from before the read, so that a write during the read is found by the next check.
        self.seen = now;
        Some(read)
    }

    /// Logs the certificates that expired or soon will.
    pub(super) fn warn(&self) {
        let now = UnixTime::now().as_secs();
        for (listener, file, end) in self.expiries.iter().filter(|(.., end)| *end < now + WARN_SECONDS) {
            let (file, days) = (file.display(), now.abs_diff(*end) / DAY);
            let when = if now < *end { format!("expires in {days} d") } else { format!("expired {days} d ago") };
            log::warn!("a certificate in {file}, for {listener}, {when}: replace it; a changed file is read again");
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// INVALID_ARG with the file and its mistake.
    pub(super) fn config(&mut self) -> Result<Arc<ServerConfig>> {
        let listener = self.listener;
        let mut expiries = Vec::new();
        let mut note = |file: &PathBuf, found: &[CertificateDer<'_>]| {
            let first = found.iter().filter_map(expires).min();
            expiries.extend(first.map(|end| (listener, file.clone(), end)));
        };
        let TlsOptions { roots, mutual, .. } = &self.options;
        let provider = Arc::new(ring::default_provider());
        let mut certified = |(certificate, key): &(PathBuf, PathBuf)| {
            let chain = certificates(certificate)?;
            note(certificate, &chain);
            let secret = PrivateKeyDer::from_pem_slice(&read(key, TLS_FILE_BYTES_MAX)?)
                .map_err(|e| wrong(key, "no private key", &e))?;
            let secret = provider.key_provider.load_private_key(secret);
            let secret = secret.map_err(|e| Error::invalid(format!("{} cannot be used: {e}", key.display())))?;
            match matches(&chain, &secret) {
                Ok(()) => Ok(Arc::new(CertifiedKey::new(chain, secret))),
                Err(rustls::Error::InconsistentKeys(_)) => {
                    let (certificate, key) = (certificate.display(), key.display());
                    Err(Error::invalid(format!(
                        "the certificate {certificate} and the key {key} do not match: the key belongs to another \
                         certificate"
                    )))
                }
                Err(e) => Err(Error::invalid(format!("{} cannot be used: {e}", certificate.display()))),
            }
        };
        let keys: Vec<_> = self.pairs.iter().map(&mut certified).collect::<Result<_>>()?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::internal(e.to_string()))?;
        let builder = if *mutual {
            let mut store = RootCertStore::empty();
            let found = certificates(roots)?;
            note(roots, &found);
            for root in found {
                store.add(root).map_err(|e| Error::invalid(format!("{}: {e}", roots.display())))?;
            }
            let (store, algorithms) = (Arc::new(store), provider.signature_verification_algorithms);
            let verifier = WebPkiClientVerifier::builder_with_provider(store.clone(), provider).build();
            let verifier = verifier.map_err(|e| Error::invalid(format!("{}: {e}", roots.display())))?;
            builder.with_client_cert_verifier(Arc::new(Clients::new(verifier, store, algorithms)))
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName(keys)));
        config.alpn_protocols.clone_from(&self.protocols);
        // A client that reconnects sends a ticket, which saves the signature. Ticket keys change with the files and
        // every six hours.
        config.ticketer = ring::Ticketer::new().map_err(|e| Error::internal(e.to_string()))?;
        self.expiries = expiries;
        Ok(Arc::new(config))
    }
}

/// Checks that the key belongs to the first certificate.
fn matches(chain: &[CertificateDer<'static>], key: &Arc<dyn SigningKey>) -> std::result::Result<(), rustls::Error> {
    let old = chain.first().and_then(|certificate| Version1::read(certificate));
    let shown = old.map_or_else(|| chain.to_vec(), |old| vec![old.version3().clone()]);
    match CertifiedKey::new(shown, key.clone()).keys_match() {
        // A key whose public half is unknown is accepted.
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        result => result,
    }
}

/// The files of an option. An existing file with a comma in its name is one file.
fn list(option: &Path) -> Vec<PathBuf> {
    match option.to_str() {
        Some(text) if text.contains(',') && !option.exists() => text.split(',').map(PathBuf::from).collect(),
        _ => vec![option.to_owned()],
    }
}

fn wrong(path: &Path, what: &str, error: &pem::Error) -> Error {
    let path = path.display();
    match error {
        pem::Error::NoItemsFound => Error::invalid(format!("there is {what} in PEM in {path}")),
        other => Error::invalid(format!("{path} is not a PEM file: {other}")),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path, TLS_FILE_BYTES_MAX)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|e| wrong(path, "no certificate", &e))?;
    if found.is_empty() {
        return Err(wrong(path, "no certificate", &pem::Error::NoItemsFound));
    }
    Ok(found)
}
