//! Chooses among several certificates: the first that is valid for the server name the client requests.

use std::sync::Arc;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Certificates with their keys. The first is also the default.
#[derive(Debug)]
pub(super) struct ByName(pub(super) Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The default, for a client that sends no name or an unknown one. The client decides whether to accept it.
        let first = self.0.first()?;
        let [_, _, ..] = self.0.as_slice() else { return Some(first.clone()) };
        let Some(name) = hello.server_name().and_then(|name| ServerName::try_from(name).ok()) else {
            return Some(first.clone());
        };
        let has_name = |key: &&Arc<CertifiedKey>| {
            let parsed = key.cert.first().and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
            parsed.is_some_and(|parsed| verify_server_name(&parsed, &name).is_ok())
        };
        // Prefers a certificate whose key type the client supports, so that RSA and a curve can be used together.
        let is_understood = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let found = self.0.iter().filter(has_name).find(is_understood).or_else(|| self.0.iter().find(has_name));
        Some(found.unwrap_or(first).clone())
    }
}
