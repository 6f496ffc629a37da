//! Tokens of an issuer, as they stand behind `Bearer`. The first line is a JWK set, or nothing for one that is good.

use ::access::{Access, Act, Ask, AuthError, Clock, IssuerOptions, Keys, LastShown, Of, Verb};

struct Still;

impl Clock for Still {
    fn ns(&self) -> u64 {
        0
    }
    fn unix_secs(&self) -> u64 {
        1_800_000_000
    }
}

const KEYS: &[u8] = br#"{"oidc": {"rules": [{"name": "all", "claim": "iss", "value": "https://issuer",
    "scopes": [{"verbs": ["all"]}]}]}}"#;

/// The key of RFC 8037, A.2: its private half is in `make_seeds.py`.
const SET: &[u8] = br#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "rfc",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// Reads the keys and the token.
///
/// # Panics
/// A token is taken once and refused the next time, or the other way round; or an error repeats it.
pub fn token(data: &[u8]) -> bool {
    let (set, token) = data.split_at(data.iter().position(|&b| b == b'\n').map_or(0, |at| at + 1));
    let issuer = IssuerOptions {
        issuer: "https://issuer".into(),
        audience: "nereid".into(),
        claim: "scope".into(),
        keys_file: None,
    };
    let access = Access::new(Keys::parse(KEYS, None).expect("a good file"), Some(issuer));
    let set = if set.trim_ascii().is_empty() { SET } else { set };
    let has_keys = access.replace_issuer_keys(set).is_ok();
    let value = [b"Bearer ", token].concat();
    let ask = Ask { verb: Verb::Inference, act: Act::Read, of: Of::Model("m") };
    // Over one connection, which has its hash the second time; then over another.
    let last = LastShown::default();
    let admit = |last| access.admit(&ask, |name| (name == "authorization").then_some(&value[..]), last, &Still);
    let first = admit(&last);
    assert_eq!(first.is_ok(), admit(&last).is_ok());
    assert_eq!(first.is_ok(), admit(&LastShown::default()).is_ok());
    match first {
        Ok(admitted) => {
            assert!(has_keys && token.len() <= ::access::limits::TOKEN_BYTES_MAX + 64);
            let name = admitted.key().expect("a token has a name");
            assert!(name.len() < 256 && name.bytes().all(|b| b.is_ascii_graphic()), "{name}");
            true
        }
        Err(refusal) => {
            assert!(matches!(refusal, AuthError::Unauthenticated(_)) && refusal.text().len() < 128);
            false
        }
    }
}
