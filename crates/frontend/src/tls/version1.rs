//! End certificates of X.509 version 1, which have no extensions: `openssl x509 -req` makes them by default.
//!
//! webpki reads version 3 only. A certificate of version 1 means the same as one of version 3 without extensions, so it
//! is rewritten as version 3, and webpki checks dates, algorithms, key and path to a root. The issuer signed the
//! original bytes, though: where webpki checks the signature of the rewritten bytes, [`AsSigned`] uses them instead.
//!
//! Invariant: a certificate of version 1 is not a CA. Only end certificates are rewritten. webpki rejects intermediates
//! of version 1, and rewritten ones too, because they lack the CA extension.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::WebPkiSupportedAlgorithms;
use tokio_rustls::rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, UnixTime,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, SignatureScheme,
};

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
/// The version field of version 3, which precedes the serial number. Version 1 has no such field.
const VERSION_3: [u8; 5] = [0xa0, 3, INTEGER, 1, 2];
/// Tags of serial number, signature algorithm, issuer, dates, subject and key, the only fields of version 1.
const FIELDS: [u8; 6] = [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE];

/// A certificate of version 1.
#[derive(Debug)]
pub(super) struct Version1<'a> {
    /// The part that the issuer signed.
    signed: &'a [u8],
    /// The signed part, rewritten as version 3.
    rewritten: Vec<u8>,
    /// The whole certificate, rewritten as version 3.
    version3: CertificateDer<'static>,
}

impl<'a> Version1<'a> {
    /// Parses a certificate. `None` if it has another version or is malformed. webpki checks the contents of fields.
    pub(super) fn read(certificate: &'a [u8]) -> Option<Self> {
        let whole = Element::read(certificate).filter(|whole| whole.tag == SEQUENCE && whole.rest.is_empty())?;
        let signed = Element::read(whole.contents).filter(|signed| signed.tag == SEQUENCE)?;
        let mut rest = signed.contents;
        for tag in FIELDS {
            rest = Element::read(rest).filter(|field| field.tag == tag)?.rest;
        }
        if !rest.is_empty() {
            return None;
        }
        let rewritten = sequence(&VERSION_3, signed.contents)?;
        // The signed part is followed by the algorithm again and the signature.
        let version3 = sequence(&rewritten, signed.rest)?;
        Some(Self { signed: signed.whole, rewritten, version3: version3.into() })
    }

    /// The certificate as version 3, for code that reads its fields. The signature does not match these bytes.
    pub(super) fn version3(&self) -> &CertificateDer<'static> {
        &self.version3
    }

    /// Implements `ClientCertVerifier::verify_client_cert`.
    fn verify_client(
        &self,
        roots: &RootCertStore,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<ClientCertVerified, Error> {
        let certificate = webpki::EndEntityCert::try_from(&self.version3).map_err(refusal)?;
        let as_signed: Vec<_> =
            algorithms.all.iter().map(|&algorithm| AsSigned { algorithm, certificate: self }).collect();
        let as_signed: Vec<_> = as_signed.iter().map(|one| one as &dyn SignatureVerificationAlgorithm).collect();
        let usage = webpki::KeyUsage::client_auth();
        let path = certificate.verify_for_usage(&as_signed, &roots.roots, intermediates, now, usage, None, None);
        path.map(|_| ClientCertVerified::assertion()).map_err(refusal)
    }
}

/// Converts a certificate to version 3 if necessary. The key stays the same; the signature may become invalid.
fn as_version3<'c>(certificate: &'c CertificateDer<'c>) -> Cow<'c, CertificateDer<'c>> {
    match Version1::read(certificate) {
        Some(old) => Cow::Owned(old.version3),
        None => Cow::Borrowed(certificate),
    }
}

/// When a certificate expires, in seconds since 1970. `None` if webpki cannot read it.
pub(super) fn expires(certificate: &CertificateDer<'_>) -> Option<u64> {
    let shown = as_version3(certificate);
    let shown = webpki::EndEntityCert::try_from(&*shown).ok()?;
    // webpki tells the date only in this error; it checks the dates before the path to a root.
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match shown.verify_for_usage(&[], &[], &[], late, webpki::KeyUsage::client_auth(), None, None).err()? {
        webpki::Error::CertExpired { not_after, .. } => Some(not_after.as_secs()),
        _ => None,
    }
}

/// An element of DER.
struct Element<'a> {
    tag: u8,
    /// The element with its tag and length.
    whole: &'a [u8],
    contents: &'a [u8],
    /// The bytes after the element.
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    /// Reads the first element, of at most 64 KiB as in webpki. Rejects a length that is not in the shortest form.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[tag, first], after) = bytes.split_first_chunk()?;
        let (length, after) = match first {
            0..=0x7f => (usize::from(first), after),
            0x81 => {
                let (&length, after) = after.split_first().filter(|(length, _)| **length >= 0x80)?;
                (usize::from(length), after)
            }
            0x82 => {
                let (&length, after) = after.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(length)), after)
            }
            _ => return None,
        };
        if first == 0x82 && length < 0x100 {
            return None;
        }
        let (contents, rest) = after.split_at_checked(length)?;
        let whole = bytes.get(..bytes.len() - rest.len())?;
        Some(Self { tag, whole, contents, rest })
    }
}

/// Makes a sequence of two parts; `None` if it is longer than `Element::read` accepts.
fn sequence(first: &[u8], second: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(first.len() + second.len()).ok()?;
    let [high, low] = length.to_be_bytes();
    let head: &[u8] = match length {
        0..=0x7f => &[SEQUENCE, low],
        0x80..=0xff => &[SEQUENCE, 0x81, low],
        _ => &[SEQUENCE, 0x82, high, low],
    };
    Some([head, first, second].concat())
}

/// A signature algorithm that, for one certificate of version 1, checks the original bytes.
#[derive(Debug)]
struct AsSigned<'a> {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    certificate: &'a Version1<'a>,
}

impl SignatureVerificationAlgorithm for AsSigned<'_> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        // Other certificates of the chain are not rewritten.
        let message = if message == self.certificate.rewritten { self.certificate.signed } else { message };
        self.algorithm.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// Converts an error to that of rustls, which decides the alert that the client gets.
fn refusal(error: webpki::Error) -> Error {
    use webpki::Error as Pki;
    Error::InvalidCertificate(match error {
        Pki::BadDer | Pki::BadDerTime | Pki::TrailingData(_) => CertificateError::BadEncoding,
        Pki::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before },
        Pki::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        Pki::InvalidCertValidity => CertificateError::Expired,
        Pki::UnknownIssuer => CertificateError::UnknownIssuer,
        Pki::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// Checks certificates of clients: those of version 1 as rewritten, all others by `version3`.
#[derive(Debug)]
pub(super) struct Clients {
    version3: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    /// Makes a verifier. `version3` must have the same roots and algorithms.
    pub(super) fn new(
        version3: Arc<dyn ClientCertVerifier>,
        roots: Arc<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { version3, roots, algorithms }
    }
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.version3.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.version3.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.version3.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match Version1::read(end_entity) {
            Some(old) => old.verify_client(&self.roots, intermediates, now, &self.algorithms),
            None => self.version3.verify_client_cert(end_entity, intermediates, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.version3.verify_tls12_signature(message, &as_version3(certificate), signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.version3.verify_tls13_signature(message, &as_version3(certificate), signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.version3.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::server::WebPkiClientVerifier;

    const NOW: u64 = 1_800_000_000;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test/attacks/lib/tls/version1");
        CertificateDer::from_pem_file(format!("{directory}/{name}.pem")).unwrap()
    }

    /// Accepts clients whose certificates `root` signed.
    fn clients() -> Clients {
        let mut roots = RootCertStore::empty();
        roots.add(certificate("root")).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let algorithms = provider.signature_verification_algorithms;
        let version3 = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider).build().unwrap();
        Clients::new(version3, roots, algorithms)
    }

    fn verify(end: &CertificateDer<'_>, others: &[CertificateDer<'_>], now: u64) -> Result<(), CertificateError> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        match clients().verify_client_cert(end, others, now) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(why)) => Err(why),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_client_of_version_1_is_accepted_through_its_root_or_an_intermediate() {
        assert_eq!(verify(&certificate("client"), &[], NOW), Ok(()));
        assert_eq!(verify(&certificate("below"), &[certificate("middle")], NOW), Ok(()));
        assert_eq!(verify(&certificate("below"), &[certificate("foreign"), certificate("middle")], NOW), Ok(()));
    }

    #[test]
    fn the_end_is_read_of_every_version_and_of_authorities() {
        let ends = ["client", "old", "root", "middle"].map(|name| expires(&certificate(name)));
        assert_eq!(ends, [4_949_226_424, 4_949_226_425, 4_949_226_424, 4_949_226_424].map(Some));
        assert_eq!(expires(&CertificateDer::from(vec![0x30, 0])), None);
    }

    #[test]
    fn an_invalid_client_of_version_1_is_rejected_like_one_of_version_3() {
        let unknown = Err(CertificateError::UnknownIssuer);
        assert_eq!(verify(&certificate("foreign"), &[], NOW), unknown, "of another root");
        assert!(verify(&certificate("foreign"), &[certificate("client")], NOW).is_err(), "with another client's");
        assert_eq!(verify(&certificate("below"), &[], NOW), unknown, "without the intermediate");
        let expired = verify(&certificate("client"), &[], NOW + 200 * 366 * 86_400);
        assert!(matches!(expired, Err(CertificateError::ExpiredContext { .. })), "{expired:?}");
        let early = verify(&certificate("client"), &[], 1_000_000_000);
        assert!(matches!(early, Err(CertificateError::NotValidYetContext { .. })), "{early:?}");
    }

    #[test]
    fn a_certificate_of_version_1_is_not_a_ca() {
        let old = certificate("old");
        assert_eq!(verify(&old, &[], NOW), Ok(()), "valid as an end certificate");
        for below in ["below_old", "new_below_old"] {
            assert!(verify(&certificate(below), std::slice::from_ref(&old), NOW).is_err(), "{below}");
            // An attacker may send it rewritten as version 3.
            let rewritten = Version1::read(&old).unwrap().version3().clone();
            assert!(verify(&certificate(below), std::slice::from_ref(&rewritten), NOW).is_err(), "{below}");
            assert!(verify(&rewritten, &[], NOW).is_err(), "not the bytes that were signed");
        }
    }

    #[test]
    fn a_certificate_with_any_changed_byte_is_rejected() {
        let good = certificate("client");
        for at in 0..good.len() {
            for bit in [1, 0x20, 0x80] {
                let mut changed = good.to_vec();
                changed[at] ^= bit;
                assert!(verify(&changed.into(), &[], NOW).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn only_whole_certificates_of_version_1_are_read() {
        let good = certificate("client");
        let old = Version1::read(&good).unwrap();
        assert!(Version1::read(old.version3()).is_none(), "version 3");
        assert!(Version1::read(&certificate("root")).is_none());
        for length in 0..good.len() {
            assert!(Version1::read(good.get(..length).unwrap()).is_none(), "{length} bytes of it");
        }
        assert!(Version1::read(&[&good[..], b"x"].concat()).is_none(), "more than it");
        let signed = Element::read(old.signed).unwrap().contents;
        let behind = good.len() - Element::read(&good).unwrap().contents.len() + old.signed.len();
        let signature = good.get(behind..).unwrap();
        let rebuilt = |first: &[u8], last: &[u8]| {
            sequence(&sequence(first, &[signed, last].concat()).unwrap(), signature).unwrap()
        };
        assert_eq!(rebuilt(&[], &[]), good.to_vec());
        for version in 0..3 {
            assert!(Version1::read(&rebuilt(&[0xa0, 3, 2, 1, version], &[])).is_none(), "version {version} in words");
        }
        // Extensions of version 3, and names of version 2.
        for last in [&[0xa3, 4, 0x30, 2, 0x30, 0][..], &[0x81, 2, 0, 1], &[0x30, 0]] {
            assert!(Version1::read(&rebuilt(&[], last)).is_none(), "{last:x?}");
        }
    }

    #[test]
    fn lengths_have_the_shortest_form() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let made = sequence(&vec![7; length], &[]).unwrap();
            let read = Element::read(&made).unwrap();
            assert_eq!((read.contents.len(), read.whole.len(), read.rest.len()), (length, made.len(), 0));
        }
        assert!(sequence(&vec![7; 0xffff], &[7]).is_none());
        for wrong in [
            &[0x30][..],
            &[0x30, 0x80],
            &[0x30, 0x81, 1, 7],
            &[0x30, 0x82, 0, 0x80],
            &[0x30, 0x83, 0, 0, 1, 7],
            &[0x30, 2, 7],
        ] {
            assert!(Element::read(wrong).is_none(), "{wrong:x?}");
        }
    }
}
