//! Certificates of a client, each behind two bytes with its length: its own, and those that lead from it to a root.

use crate::version1::{Clients, Version1};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

const CHAIN_MAX: usize = 4;

macro_rules! made {
    ($name:literal) => {
        CertificateDer::from_pem_slice(include_bytes!(concat!("../../test/attacks/lib/tls/version1/", $name, ".pem")))
            .unwrap()
    };
}

/// Certificates of version 1 that `root` or `middle` signed.
static GOOD: LazyLock<[CertificateDer<'static>; 3]> = LazyLock::new(|| [made!("client"), made!("below"), made!("old")]);

static CLIENTS: LazyLock<Clients> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add(made!("root")).unwrap();
    let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
    let algorithms = provider.signature_verification_algorithms;
    let version3 = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider).build().unwrap();
    Clients::new(version3, roots, algorithms)
});

/// Shows the chain to a server that trusts `root`. Returns whether the first certificate was of version 1.
///
/// # Panics
/// If a client without a trusted signature is accepted, or if a certificate of version 1 is still one after its
/// conversion to version 3.
pub fn certificate(mut data: &[u8]) -> bool {
    let mut chain = Vec::new();
    while let Some((&length, rest)) = data.split_first_chunk()
        && chain.len() < CHAIN_MAX
    {
        let length = usize::from(u16::from_be_bytes(length)).min(rest.len());
        let (one, rest) = rest.split_at(length);
        chain.push(CertificateDer::from(one));
        data = rest;
    }
    let Some((first, others)) = chain.split_first() else { return false };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    if CLIENTS.verify_client_cert(first, others, now).is_ok() {
        assert!(GOOD.contains(first), "a certificate that nobody signed");
    }
    let Some(old) = Version1::read(first) else { return false };
    assert!(Version1::read(old.version3()).is_none(), "two versions");
    true
}
