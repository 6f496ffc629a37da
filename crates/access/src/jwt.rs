//! Tokens of an OpenID Connect issuer: signed by one of its keys, for this server, and not expired.
//!
//! `jsonwebtoken` checks format, signature (with ring), issuer and audience; this module checks the times, because time
//! is an argument. A verified token is remembered by its hash until it expires or the keys change, so that the next
//! request with it only costs a hash.

use crate::limits::{SUBJECT_CHARS_MAX, TOKEN_KEYS_BYTES_MAX, TOKEN_KEYS_MAX, TOKENS_KEPT_MAX};
use crate::token::Hash;
use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Validation, signature};
use options::IssuerOptions;
use parking_lot::Mutex;
use ring::signature as ring_signature;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest difference of the clocks of issuer and server, in seconds.
pub(crate) const LEEWAY_SECS: u64 = 60;

/// Accepted signature algorithms. Neither `none` nor shared secrets, with which a verifier could make tokens.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA];

/// Claims of a valid token.
pub(crate) type Claims = Map<String, Value>;

/// A verified token.
#[derive(Clone)]
pub(crate) struct Verified {
    pub claims: std::sync::Arc<Claims>,
    /// Expiry in seconds since 1970, by the issuer's clock.
    pub expires: u64,
}

struct TokenKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// An issuer with its keys and verified tokens.
pub(crate) struct Oidc {
    pub issuer: IssuerOptions,
    keys: Mutex<std::sync::Arc<[TokenKey]>>,
    kept: Mutex<Kept>,
    /// True if a token named an unknown key.
    misses_key: AtomicBool,
}

/// Verified tokens in two maps of limited size: when the map of new tokens is full, it replaces the other.
#[derive(Default)]
struct Kept {
    new: HashMap<u64, (Hash, Verified)>,
    old: HashMap<u64, (Hash, Verified)>,
}

impl Oidc {
    pub fn new(issuer: IssuerOptions) -> Self {
        // An earlier provider may have more algorithms, but each is checked here anyway.
        let _ = PROVIDER.install_default();
        Self { issuer, keys: Mutex::new([].into()), kept: Mutex::default(), misses_key: AtomicBool::new(false) }
    }

    /// Replaces the keys by those of a JWK set, without keys of other algorithms; returns their number.
    pub fn replace(&self, text: &[u8]) -> Result<usize, String> {
        let keys = read_keys(text)?;
        let count = keys.len();
        *self.keys.lock() = keys.into();
        // Tokens that a removed key signed are no longer valid.
        *self.kept.lock() = Kept::default();
        Ok(count)
    }

    /// True if a token since the last call named an unknown key.
    pub fn take_misses_key(&self) -> bool {
        self.misses_key.swap(false, Ordering::Relaxed)
    }

    /// Verifies a token. The error text continues a sentence that begins with "it".
    pub fn verify(&self, token: &[u8], hash: &Hash, now: u64) -> Result<Verified, &'static str> {
        if let Some(verified) = self.kept.lock().find(hash) {
            return if now < verified.expires.saturating_add(LEEWAY_SECS) { Ok(verified) } else { Err("has expired") };
        }
        let verified = self.verify_anew(token, now)?;
        self.kept.lock().keep(*hash, verified.clone());
        Ok(verified)
    }

    fn verify_anew(&self, token: &[u8], now: u64) -> Result<Verified, &'static str> {
        let header = jsonwebtoken::decode_header(token).map_err(|e| reason(&e))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err("is signed with an algorithm that is not accepted");
        }
        // The server knows no extensions, which it would have to understand (RFC 7515, 4.1.11).
        if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
            return Err("has an unknown extension");
        }
        let keys = self.keys.lock().clone();
        let fits = |key: &&TokenKey| key.algorithms.contains(&header.alg);
        let found = match &header.kid {
            Some(id) => keys.iter().filter(fits).find(|key| key.id.as_ref() == Some(id)),
            // Without a key id there must be exactly one matching key.
            None => Some(keys.iter().filter(fits)).and_then(|mut all| all.next().filter(|_| all.next().is_none())),
        };
        let Some(key) = found else {
            self.misses_key.store(true, Ordering::Relaxed);
            return Err("is signed with an unknown key");
        };
        let mut validation = Validation::new(header.alg);
        validation.set_required_spec_claims(&["iss", "aud"]);
        validation.set_issuer(&[&self.issuer.issuer]);
        validation.set_audience(&[&self.issuer.audience]);
        // Checked below with the caller's clock.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        let claims: Claims = jsonwebtoken::decode(token, &key.key, &validation).map_err(|e| reason(&e))?.claims;
        let expires = time(&claims, "exp")?.ok_or("has no expiry time")?;
        if now >= expires.saturating_add(LEEWAY_SECS) {
            return Err("has expired");
        }
        if time(&claims, "nbf")?.is_some_and(|from| from > now.saturating_add(LEEWAY_SECS)) {
            return Err("is not valid yet");
        }
        Ok(Verified { claims: claims.into(), expires })
    }
}

impl Kept {
    fn find(&self, hash: &Hash) -> Option<Verified> {
        let place = hash.place();
        let (known, verified) = self.new.get(&place).or_else(|| self.old.get(&place))?;
        known.equals(hash).then(|| verified.clone())
    }

    fn keep(&mut self, hash: Hash, verified: Verified) {
        if self.new.len() >= TOKENS_KEPT_MAX / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(hash.place(), (hash, verified));
    }
}

/// True if the text looks like a JWT: three parts, the first of which is JSON in base64.
pub(crate) fn is_token(text: &[u8]) -> bool {
    text.starts_with(b"ey") && text.iter().filter(|&&b| b == b'.').count() == 2
}

/// True if a claim has a value: as a text, as a word of a text, or in a list. A claim may be a path:
/// `realm_access.roles`.
pub(crate) fn has(claims: &Claims, claim: &str, value: &str) -> bool {
    fn is(found: &Value, value: &str) -> bool {
        match found {
            Value::String(text) => text == value || text.split(' ').any(|word| word == value),
            Value::Array(list) => list.iter().any(|one| one.as_str() == Some(value)),
            Value::Bool(b) => value == if *b { "true" } else { "false" },
            _ => false,
        }
    }
    if let Some(found) = claims.get(claim) {
        return is(found, value);
    }
    let mut path = claim.split('.');
    let first = path.next().and_then(|name| claims.get(name));
    path.try_fold(first, |at, name| Some(at?.get(name))).flatten().is_some_and(|found| is(found, value))
}

pub(crate) fn subject(claims: &Claims) -> String {
    let text = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '?' };
    text.chars().take(SUBJECT_CHARS_MAX).map(plain).collect()
}

/// Reads a time in seconds since 1970. Any value but a number is an error, because the token would never expire.
fn time(claims: &Claims, name: &str) -> Result<Option<u64>, &'static str> {
    match claims.get(name) {
        None => Ok(None),
        // The cast truncates fractions and saturates.
        Some(Value::Number(n)) => Ok(Some(n.as_u64().or_else(|| n.as_f64().map(|f| f as u64)).unwrap_or(0))),
        Some(_) => Err("has a time that is not a number"),
    }
}

fn reason(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidSignature => "is not signed by its issuer",
        ErrorKind::InvalidIssuer => "has another issuer",
        ErrorKind::InvalidAudience => "has another audience",
        ErrorKind::MissingRequiredClaim(_) => "does not name its issuer and its audience",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => {
            "is signed with an algorithm that is not accepted"
        }
        _ => "is malformed",
    }
}

fn read_keys(text: &[u8]) -> Result<Vec<TokenKey>, String> {
    #[derive(serde::Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    if text.len() > TOKEN_KEYS_BYTES_MAX {
        return Err(format!("a set of keys has at most {TOKEN_KEYS_BYTES_MAX} bytes"));
    }
    let set: Set = serde_json::from_slice(text).map_err(|e| format!("not a JSON Web Key set: {e}"))?;
    if set.keys.len() > TOKEN_KEYS_MAX {
        return Err(format!("a set has at most {TOKEN_KEYS_MAX} keys"));
    }
    let keys: Vec<_> = set.keys.into_iter().filter_map(|key| token_key(&serde_json::from_value(key).ok()?)).collect();
    if keys.is_empty() {
        return Err("no key for RS256, PS256, ES256 or EdDSA is in the set".into());
    }
    Ok(keys)
}

fn token_key(jwk: &Jwk) -> Option<TokenKey> {
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![Algorithm::RS256, Algorithm::PS256],
        AlgorithmParameters::EllipticCurve(p) if p.curve == EllipticCurve::P256 => vec![Algorithm::ES256],
        AlgorithmParameters::OctetKeyPair(p) if p.curve == EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
        _ => return None,
    };
    // A key that names its algorithm is only valid for that.
    if let Some(only) = &jwk.common.key_algorithm {
        let only = match only {
            KeyAlgorithm::RS256 => Algorithm::RS256,
            KeyAlgorithm::PS256 => Algorithm::PS256,
            KeyAlgorithm::ES256 => Algorithm::ES256,
            KeyAlgorithm::EdDSA => Algorithm::EdDSA,
            _ => return None,
        };
        algorithms.retain(|one| *one == only);
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    (!algorithms.is_empty()).then(|| TokenKey { id: jwk.common.key_id.clone(), algorithms, key })
}

/// Verification by ring, which is a dependency for TLS anyway, instead of the libraries of `jsonwebtoken`. Signs
/// nothing.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: verifier,
    // Only needed to make key sets.
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(ErrorKind::InvalidKeyFormat.into()),
        rsa_pub_components_from_public_key: |_| Err(ErrorKind::InvalidKeyFormat.into()),
        ec_pub_components_from_private_key: |_, _| Err(ErrorKind::InvalidKeyFormat.into()),
        ed_pub_components_from_private_key: |_, _| Err(ErrorKind::InvalidKeyFormat.into()),
        compute_digest: |_, _| Err(ErrorKind::InvalidKeyFormat.into()),
    },
};

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if !ALGORITHMS.contains(algorithm) || algorithm.family() != key.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl signature::Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(&ring_signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::PS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(&ring_signature::RSA_PSS_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                ring_signature::UnparsedPublicKey::new(&ring_signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                ring_signature::UnparsedPublicKey::new(&ring_signature::ED25519, point).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use serde_json::json;

    const NOW: u64 = 1_000_000;

    struct Signers {
        curve: EcdsaKeyPair,
        edwards: Ed25519KeyPair,
    }

    impl Signers {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let curve = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
            Self {
                curve: EcdsaKeyPair::from_pkcs8(algorithm, curve.as_ref(), &random).unwrap(),
                edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap(),
            }
        }

        fn set(&self) -> Value {
            let (x, y) = self.curve.public_key().as_ref()[1..].split_at(32);
            let edwards = self.edwards.public_key().as_ref();
            json!({ "keys": [
                { "kty": "EC", "crv": "P-256", "kid": "curve", "x": BASE64.encode(x), "y": BASE64.encode(y) },
                { "kty": "OKP", "crv": "Ed25519", "kid": "edwards", "alg": "EdDSA", "x": BASE64.encode(edwards) },
                { "kty": "oct", "kid": "secret", "k": "AAAA" },
                {
                    "kty": "EC", "crv": "P-256", "kid": "for-secrets", "use": "enc",
                    "x": BASE64.encode(x), "y": BASE64.encode(y)
                },
                { "kty": "new", "kid": "unknown" },
                { "kid": "without a type" },
            ] })
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| BASE64.encode(value.to_string());
            let message = format!("{}.{}", part(header), part(claims));
            let signature = match header["alg"].as_str() {
                Some("EdDSA") => self.edwards.sign(message.as_bytes()).as_ref().to_vec(),
                _ => self.curve.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec(),
            };
            format!("{message}.{}", BASE64.encode(signature))
        }
    }

    fn oidc(signers: &Signers) -> Oidc {
        let issuer = IssuerOptions {
            issuer: "https://issuer".into(),
            audience: "nereid".into(),
            claim: "scope".into(),
            keys_file: None,
        };
        let oidc = Oidc::new(issuer);
        assert_eq!(oidc.replace(signers.set().to_string().as_bytes()), Ok(2));
        oidc
    }

    fn good() -> Value {
        let (issuer, audience) = ("https://issuer", ["other", "nereid"]);
        json!({ "iss": issuer, "aud": audience, "sub": "ann", "exp": NOW + 100, "scope": "read infer" })
    }

    fn verify(oidc: &Oidc, token: &str) -> Result<Verified, &'static str> {
        oidc.verify(token.as_bytes(), &Hash::of_any(token.as_bytes()), NOW)
    }

    fn es256() -> Value {
        json!({ "alg": "ES256", "kid": "curve" })
    }

    #[test]
    fn valid_tokens_are_accepted_and_remembered() {
        let signers = Signers::new();
        let oidc = oidc(&signers);
        for header in [es256(), json!({ "alg": "EdDSA", "kid": "edwards" }), json!({ "alg": "ES256" })] {
            let token = signers.token(&header, &good());
            assert!(is_token(token.as_bytes()));
            let verified = verify(&oidc, &token).unwrap();
            assert_eq!((verified.expires, subject(&verified.claims)), (NOW + 100, "ann".to_owned()));
            assert!(oidc.kept.lock().find(&Hash::of_any(token.as_bytes())).is_some());
            let late = oidc.verify(token.as_bytes(), &Hash::of_any(token.as_bytes()), NOW + 100 + LEEWAY_SECS);
            assert_eq!(late.err(), Some("has expired"), "also from memory");
        }
        // A key that is taken away takes what it signed along.
        let token = signers.token(&es256(), &good());
        assert!(verify(&oidc, &token).is_ok());
        let set = json!({ "keys": [signers.set()["keys"][1]] });
        assert_eq!(oidc.replace(set.to_string().as_bytes()), Ok(1));
        assert_eq!(verify(&oidc, &token).err(), Some("is signed with an unknown key"));
        assert!(oidc.take_misses_key() && !oidc.take_misses_key());
    }

    #[test]
    fn errors_name_the_wrong_claim() {
        let signers = Signers::new();
        let oidc = oidc(&signers);
        for (name, value, why) in [
            ("iss", json!("https://other"), "has another issuer"),
            ("iss", Value::Null, "does not name its issuer and its audience"),
            ("aud", json!("other"), "has another audience"),
            ("aud", json!([]), "has another audience"),
            ("aud", json!(7), "does not name its issuer and its audience"),
            ("exp", json!(NOW - LEEWAY_SECS), "has expired"),
            ("exp", json!(0), "has expired"),
            ("exp", json!(-5), "has expired"),
            ("exp", json!("99999999999"), "has a time that is not a number"),
            ("exp", Value::Null, "has a time that is not a number"),
            ("nbf", json!(NOW + LEEWAY_SECS + 1), "is not valid yet"),
            ("nbf", json!("99999999999"), "has a time that is not a number"),
            ("nbf", json!(1e300), "is not valid yet"),
        ] {
            let mut claims = good();
            claims[name] = value.clone();
            assert_eq!(verify(&oidc, &signers.token(&es256(), &claims)).err(), Some(why), "{name}: {value}");
        }
        let mut claims = good();
        claims.as_object_mut().unwrap().remove("exp");
        assert_eq!(verify(&oidc, &signers.token(&es256(), &claims)).err(), Some("has no expiry time"));
        for (exp, nbf) in
            [(json!(NOW as f64 + 0.5), json!(NOW)), (json!(NOW - 59), json!(NOW + 60)), (json!(1e300), json!(-1))]
        {
            let mut claims = good();
            (claims["exp"], claims["nbf"]) = (exp, nbf);
            assert!(verify(&oidc, &signers.token(&es256(), &claims)).is_ok(), "{claims}");
        }
    }

    #[test]
    fn tokens_that_are_not_signed_by_a_key_of_their_algorithm_are_rejected() {
        let (signers, stranger) = (Signers::new(), Signers::new());
        let oidc = oidc(&signers);
        let refused = |token: &str| verify(&oidc, token).err().unwrap();
        assert_eq!(refused(&stranger.token(&es256(), &good())), "is not signed by its issuer");
        for (alg, kid) in [
            ("none", "curve"),
            ("HS256", "secret"),
            ("HS256", "curve"),
            ("HS512", "curve"),
            ("ES384", "curve"),
            ("RS512", "curve"),
        ] {
            let why = refused(&signers.token(&json!({ "alg": alg, "kid": kid }), &good()));
            assert!(
                ["is signed with an algorithm that is not accepted", "is malformed"].contains(&why),
                "{alg}: {why}"
            );
        }
        for (alg, kid) in
            [("EdDSA", "curve"), ("RS256", "curve"), ("ES256", "edwards"), ("ES256", "for-secrets"), ("ES256", "new")]
        {
            let why = refused(&signers.token(&json!({ "alg": alg, "kid": kid }), &good()));
            assert_eq!(why, "is signed with an unknown key", "{alg} {kid}");
        }
        for more in ["crit", "jku"] {
            let mut header = es256();
            header[more] = if more == "crit" { json!(["exp"]) } else { json!("https://evil/keys") };
            // Keys are never taken from where a token says.
            assert_eq!(verify(&oidc, &signers.token(&header, &good())).is_ok(), more == "jku");
        }
        let token = signers.token(&es256(), &good());
        for cut in 1..token.len() {
            assert!(verify(&oidc, &token[..token.len() - cut]).is_err());
        }
    }

    #[test]
    fn invalid_and_too_large_key_sets_change_nothing() {
        let signers = Signers::new();
        let oidc = oidc(&signers);
        let many = json!({ "keys": vec![&signers.set()["keys"][0]; TOKEN_KEYS_MAX + 1] }).to_string();
        for text in [
            "",
            "[]",
            "{\"keys\": []}",
            "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AAAA\"}]}",
            &many,
            &" ".repeat(TOKEN_KEYS_BYTES_MAX + 1),
        ] {
            assert!(oidc.replace(text.as_bytes()).is_err());
        }
        assert!(verify(&oidc, &signers.token(&es256(), &good())).is_ok());
        // Without a name in the token, two keys would be a choice.
        let two = json!({ "keys": vec![&signers.set()["keys"][0]; 2] }).to_string();
        assert_eq!(oidc.replace(two.as_bytes()), Ok(2));
        assert!(verify(&oidc, &signers.token(&json!({ "alg": "ES256" }), &good())).is_err());
    }

    #[test]
    fn the_number_of_remembered_tokens_is_limited() {
        let mut kept = Kept::default();
        let verified = Verified { claims: Map::new().into(), expires: 0 };
        let hash = |i: usize| Hash::of_any(&i.to_le_bytes());
        for i in 0..3 * TOKENS_KEPT_MAX {
            kept.keep(hash(i), verified.clone());
            assert!(kept.new.len() + kept.old.len() <= TOKENS_KEPT_MAX);
        }
        assert!(kept.find(&hash(3 * TOKENS_KEPT_MAX - 1)).is_some() && kept.find(&hash(0)).is_none());
    }

    #[test]
    fn rules_match_claims_as_texts_words_lists_and_paths() {
        let claims =
            json!({ "scope": "a b", "groups": ["x", 7], "ok": true, "realm": { "roles": ["r"] }, "https://n/r": "v" });
        let claims = claims.as_object().unwrap();
        for (claim, value, has_it) in [
            ("scope", "a", true),
            ("scope", "a b", true),
            ("scope", "", false),
            ("groups", "x", true),
            ("groups", "7", false),
            ("ok", "true", true),
            ("realm.roles", "r", true),
            ("realm.roles.r", "r", false),
            ("realm", "r", false),
            ("https://n/r", "v", true),
            ("none.at.all", "r", false),
        ] {
            assert_eq!(has(claims, claim, value), has_it, "{claim} {value}");
        }
        let named = json!({ "sub": format!("a\n\"b{}", "c".repeat(100)) });
        assert_eq!(subject(named.as_object().unwrap()), format!("a??b{}", "c".repeat(60)));
    }

    proptest! {
        #[test]
        fn a_malformed_token_is_rejected(
            header in "\\PC{0,40}",
            claims in "\\PC{0,40}",
            signature in "[A-Za-z0-9_.-]{0,100}",
        ) {
            let signers = Signers::new();
            let token = format!("{}.{}.{signature}", BASE64.encode(header), BASE64.encode(claims));
            prop_assert!(verify(&oidc(&signers), &token).is_err());
        }
    }
}
