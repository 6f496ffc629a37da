//! Authentication and authorisation of requests.

use crate::file::{ANONYMOUS, File, FileError, Object};
use crate::jwt::{self, Oidc, Verified};
use crate::limits::TOKEN_BYTES_MAX;
use crate::meter::{AccessResult, Meter, Part, Quota, QuotaHold, RESULTS};
use crate::scope::{Act, Of, Scopes, Verb};
use crate::token::{Hash, LastShown, presented};
use arc_swap::ArcSwap;
use options::IssuerOptions;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The current time; read only if something depends on it.
pub trait Clock {
    /// Nanoseconds since a fixed moment; never goes back.
    fn ns(&self) -> u64;
    /// Seconds since 1970.
    fn unix_secs(&self) -> u64;
}

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Kind of operation.
    pub verb: Verb,
    /// Read or write.
    pub act: Act,
    /// Object of the operation.
    pub of: Of<'a>,
}

/// Name of a caller, its requests by result, bytes, requests in flight, and its end in seconds since 1970.
pub type CallerCounts = (Arc<str>, [u64; RESULTS.len()], u64, u32, Option<u64>);

/// A caller of the keys file: a key, the anonymous caller, or the tokens of a rule.
#[derive(Debug)]
pub struct Principal {
    /// Name in logs, metrics and errors.
    pub name: Arc<str>,
    scopes: Scopes,
    quota: Quota,
    expires: Option<u64>,
    is_enabled: bool,
    meter: Arc<Meter>,
}

impl Principal {
    /// The caller's usage.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

/// Assigns tokens with a certain claim to a caller.
#[derive(Debug)]
struct Rule {
    /// Name of the claim; `None` = the claim of the issuer.
    claim: Option<Box<str>>,
    value: Box<str>,
    who: Arc<Principal>,
}

/// All keys of a file.
#[derive(Debug)]
pub struct Keys {
    /// Callers by [`Hash::place`].
    by_hash: HashMap<u64, (Hash, Arc<Principal>)>,
    anonymous: Arc<Principal>,
    /// Rules for tokens, in the order in which they are tried.
    rules: Vec<Rule>,
    /// All callers by name, for metrics.
    all: Vec<Arc<Principal>>,
    /// Number of this reading of the file.
    reading: u64,
}

impl Keys {
    /// Reads the text of a keys file. Keys keep the usage of the same name in `before`.
    ///
    /// # Errors
    /// The first error in the file, with its line and field.
    pub fn parse(text: &[u8], before: Option<&Self>) -> Result<Self, FileError> {
        let file = File::parse(text)?;
        let used: HashMap<&str, &Arc<Meter>> =
            before.iter().flat_map(|keys| &keys.all).map(|one| (&*one.name, &one.meter)).collect();
        let meter = |name: &str| used.get(name).map_or_else(Arc::default, |meter| Arc::clone(meter));
        let (scopes, quota) = match file.anonymous {
            Some(Object(anonymous)) => (anonymous.scopes, anonymous.quota),
            None => (Scopes::health(), Quota::default()),
        };
        let name = Arc::from(ANONYMOUS);
        let meter_of = meter(ANONYMOUS);
        let anonymous = Arc::new(Principal { name, scopes, quota, expires: None, is_enabled: true, meter: meter_of });
        let mut all = vec![anonymous.clone()];
        let mut by_hash = HashMap::new();
        for key in file.keys.0 {
            let principal = Arc::new(Principal {
                meter: meter(&key.name.0),
                name: key.name.0,
                scopes: key.scopes,
                quota: key.quota,
                expires: key.expires.map(|time| time.0),
                is_enabled: key.enabled,
            });
            by_hash.extend(key.sha256.0.into_iter().map(|hash| (hash.place(), (hash, principal.clone()))));
            all.push(principal);
        }
        let mut rules = Vec::new();
        for rule in file.oidc.into_iter().flat_map(|Object(oidc)| oidc.rules.0) {
            let who = Arc::new(Principal {
                meter: meter(&rule.name.0),
                name: rule.name.0,
                scopes: rule.scopes,
                quota: rule.quota,
                expires: None,
                is_enabled: true,
            });
            all.push(who.clone());
            rules.push(Rule { claim: rule.claim.map(|text| text.0), value: rule.value.0, who });
        }
        Ok(Self { by_hash, anonymous, rules, all, reading: before.map_or(0, |keys| keys.reading + 1) })
    }

    /// The caller of a token: that of the first rule that matches.
    fn rule(&self, issuer: &IssuerOptions, claims: &jwt::Claims) -> Option<&Arc<Principal>> {
        let fits = |rule: &&Rule| jwt::has(claims, rule.claim.as_deref().unwrap_or(&issuer.claim), &rule.value);
        self.rules.iter().find(fits).map(|rule| &rule.who)
    }

    /// The caller of the key with this hash.
    fn find(&self, hash: &Hash) -> Option<&Arc<Principal>> {
        let (known, principal) = self.by_hash.get(&hash.place())?;
        known.equals(hash).then_some(principal)
    }

    /// All callers of the file, and the anonymous caller.
    pub fn all(&self) -> &[Arc<Principal>] {
        &self.all
    }
}

/// Rejection of a request. The texts name the operation and a remedy, and never repeat a key or token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// The key is missing, unknown, expired or disabled.
    Unauthenticated(String),
    /// The key has no scope for the operation.
    Forbidden(String),
    /// A quota is used up.
    Exhausted {
        /// Text that names the quota.
        text: String,
        /// Seconds to wait before a retry, at least 1.
        retry_after: u64,
    },
}

impl AuthError {
    /// Text for clients and logs.
    pub fn text(&self) -> &str {
        match self {
            Self::Unauthenticated(text) | Self::Forbidden(text) | Self::Exhausted { text, .. } => text,
        }
    }
}

#[derive(Clone)]
enum Shown {
    Nothing,
    Key(Hash),
    Token(Verified),
}

/// An admitted request. Dropping it releases its place in the quota.
pub struct Admitted {
    who: Arc<Principal>,
    /// The place in the quota.
    pub hold: QuotaHold,
    shown: Shown,
    reading: u64,
    /// True after the first message. Each later message counts as one more request in the quota.
    has_begun: AtomicBool,
}

impl std::fmt::Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Admitted").field(&self.who.name).finish()
    }
}

impl Admitted {
    /// Name of the key, for logs; `RULE:SUBJECT` for a token. `None` for an anonymous request.
    pub fn key(&self) -> Option<Arc<str>> {
        match &self.shown {
            Shown::Nothing => None,
            Shown::Key(_) => Some(self.who.name.clone()),
            Shown::Token(verified) => Some(format!("{}:{}", self.who.name, jwt::subject(&verified.claims)).into()),
        }
    }
}

/// The keys of a server, which may be replaced while it serves.
pub struct Access {
    keys: ArcSwap<Keys>,
    /// Issuer whose tokens are accepted as well.
    oidc: Option<Oidc>,
    /// Number of requests with an unknown key or an invalid token.
    unknown: AtomicU64,
}

impl Access {
    /// Starts with the keys of a file, and optionally an issuer, whose keys are set later.
    pub fn new(keys: Keys, issuer: Option<IssuerOptions>) -> Self {
        Self { keys: ArcSwap::from_pointee(keys), oidc: issuer.map(Oidc::new), unknown: AtomicU64::new(0) }
    }

    /// The current keys.
    pub fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Replaces the keys by those of a new text. Admitted requests continue.
    ///
    /// # Errors
    /// The first error in the text, with its line and field. The keys then stay unchanged.
    pub fn replace(&self, text: &[u8]) -> Result<(), FileError> {
        let keys = Keys::parse(text, Some(&self.keys.load()))?;
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Replaces the keys of the issuer by a JWK set, and forgets verified tokens; returns the number of keys.
    ///
    /// # Errors
    /// The reason why the set is invalid. The keys then stay unchanged.
    pub fn replace_issuer_keys(&self, text: &[u8]) -> Result<usize, String> {
        self.oidc.as_ref().map_or(Ok(0), |oidc| oidc.replace(text))
    }

    /// True if a token since the last call named an unknown key of the issuer, which may have a new one.
    pub fn take_misses_key(&self) -> bool {
        self.oidc.as_ref().is_some_and(Oidc::take_misses_key)
    }

    /// Number of requests with an unknown key or an invalid token since the start.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Admits a request. `header` returns the first header or metadata of a lower-case name; `last` belongs to its
    /// connection.
    ///
    /// # Errors
    /// The rejection to send.
    pub fn admit<'a>(
        &self,
        ask: &Ask<'_>,
        header: impl Fn(&str) -> Option<&'a [u8]>,
        last: &LastShown,
        clock: &impl Clock,
    ) -> Result<Admitted, AuthError> {
        let keys = self.keys.load();
        let (who, shown) = match presented(header) {
            None => (&keys.anonymous, Shown::Nothing),
            Some(token) => match self.identify(&keys, token, last, clock) {
                Ok(found) => found,
                Err(text) => {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                    return Err(AuthError::Unauthenticated(text));
                }
            },
        };
        check(who, &shown, ask, clock)?;
        let hold = who.meter.hold(&who.quota, || clock.ns()).map_err(|(part, wait)| exhausted(who, part, wait))?;
        who.meter.count(AccessResult::Admitted);
        Ok(Admitted { who: who.clone(), hold, shown, reading: keys.reading, has_begun: AtomicBool::new(false) })
    }

    /// True if the anonymous caller is currently allowed this operation. Counts nothing.
    pub fn is_open(&self, ask: &Ask<'_>) -> bool {
        let keys = self.keys.load();
        keys.anonymous.is_enabled && keys.anonymous.scopes.cover(ask.verb, ask.act, ask.of)
    }

    fn identify<'k>(
        &self,
        keys: &'k Keys,
        token: &[u8],
        last: &LastShown,
        clock: &impl Clock,
    ) -> Result<(&'k Arc<Principal>, Shown), String> {
        let known = last.hash_of(token);
        let keep = |hash: &Hash| {
            if known.is_none() {
                last.keep(token, *hash);
            }
        };
        if let Some(hash) = known.or_else(|| Hash::of(token))
            && let Some(who) = keys.find(&hash)
        {
            keep(&hash);
            return Ok((who, Shown::Key(hash)));
        }
        let Some(oidc) = self.oidc.as_ref().filter(|_| token.len() <= TOKEN_BYTES_MAX && jwt::is_token(token)) else {
            return Err("The key is unknown to this server".into());
        };
        let hash = known.unwrap_or_else(|| Hash::of_any(token));
        let verified = oidc.verify(token, &hash, clock.unix_secs());
        let verified = verified.map_err(|why| format!("The token {why}"))?;
        match keys.rule(&oidc.issuer, &verified.claims) {
            Some(who) => {
                keep(&hash);
                Ok((who, Shown::Token(verified)))
            }
            None => Err("The token matches no rule of the keys file".into()),
        }
    }

    /// Checks an operation in the message of an admitted request. Fails if the key was removed since the admission.
    ///
    /// # Errors
    /// The rejection to send.
    pub fn check(&self, admitted: &Admitted, ask: &Ask<'_>, clock: &impl Clock) -> Result<(), AuthError> {
        self.now(admitted, |who| check(who, &admitted.shown, ask, clock))
    }

    /// Whether `check` would pass. Counts nothing: a list asks for each of its rows.
    pub fn covers(&self, admitted: &Admitted, ask: &Ask<'_>) -> bool {
        let refused = || AuthError::Forbidden(String::new());
        let covers = |who: &Principal| who.scopes.cover(ask.verb, ask.act, ask.of).then_some(()).ok_or_else(refused);
        self.now(admitted, covers).is_ok()
    }

    /// Like `check`, for the next message of a request. Each message after the first counts as one more request.
    ///
    /// # Errors
    /// The rejection to send.
    pub fn next(&self, admitted: &Admitted, ask: &Ask<'_>, clock: &impl Clock) -> Result<(), AuthError> {
        self.now(admitted, |who| {
            check(who, &admitted.shown, ask, clock)?;
            if !admitted.has_begun.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            who.meter.spend(&who.quota, || clock.ns()).map_err(|(part, wait)| exhausted(who, part, wait))?;
            who.meter.count(AccessResult::Admitted);
            Ok(())
        })
    }

    /// Calls `then` with the caller in the current keys.
    fn now(
        &self,
        admitted: &Admitted,
        then: impl FnOnce(&Principal) -> Result<(), AuthError>,
    ) -> Result<(), AuthError> {
        let keys = self.keys.load();
        if keys.reading == admitted.reading {
            return then(&admitted.who);
        }
        let found = match (&admitted.shown, &self.oidc) {
            (Shown::Nothing, _) => Some(&keys.anonymous),
            (Shown::Key(hash), _) => keys.find(hash),
            (Shown::Token(verified), Some(oidc)) => keys.rule(&oidc.issuer, &verified.claims),
            (Shown::Token(_), None) => None,
        };
        then(found.ok_or_else(|| {
            let name = &admitted.who.name;
            AuthError::Unauthenticated(format!("The key '{name}' was removed from the keys file"))
        })?)
    }

    /// The counters of all callers.
    pub fn counts(&self) -> Vec<CallerCounts> {
        let of = |one: &Arc<Principal>| {
            let meter = one.meter();
            (one.name.clone(), meter.counts(), meter.bytes_total(), meter.in_flight(), one.expires)
        };
        self.keys.load().all().iter().map(of).collect()
    }
}

fn check(who: &Principal, shown: &Shown, ask: &Ask<'_>, clock: &impl Clock) -> Result<(), AuthError> {
    let name = &who.name;
    let expires = match shown {
        Shown::Token(verified) => Some(verified.expires.saturating_add(jwt::LEEWAY_SECS)),
        _ => who.expires,
    };
    let gone = if !who.is_enabled {
        Some("is disabled")
    } else if expires.is_some_and(|time| clock.unix_secs() >= time) {
        Some("has expired")
    } else {
        None
    };
    if let Some(why) = gone {
        who.meter.count(AccessResult::Expired);
        return Err(AuthError::Unauthenticated(format!("The key '{name}' {why}")));
    }
    if who.scopes.cover(ask.verb, ask.act, ask.of) {
        return Ok(());
    }
    who.meter.count(AccessResult::Forbidden);
    let what = what(ask);
    if !matches!(shown, Shown::Nothing) {
        return Err(AuthError::Forbidden(format!("The key '{name}' has no scope for {what}")));
    }
    let how = "send one as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'";
    Err(AuthError::Unauthenticated(format!("This needs a key with a scope for {what}: {how}")))
}

/// The operation in error texts: `inference of model 'm'`.
fn what(ask: &Ask<'_>) -> String {
    let verb = match ask.act {
        Act::Write => format!("{} (changes)", ask.verb),
        Act::Read => ask.verb.to_string(),
    };
    match ask.of {
        Of::Server => verb,
        Of::Message => format!("{verb} of any model"),
        Of::Model(name) => {
            // Cut, because a client chose its length.
            let short: String = name.chars().take(128).collect();
            format!("{verb} of model '{short}'")
        }
    }
}

fn exhausted(who: &Principal, part: Part, wait: u64) -> AuthError {
    who.meter.count(AccessResult::Exhausted);
    let retry_after = wait.div_ceil(1_000_000_000).clamp(1, 86_400);
    let caller = match &*who.name {
        ANONYMOUS => "Requests without a key have".to_owned(),
        name => format!("The key '{name}' has"),
    };
    let text = format!("{caller} used up the quota '{}'; try again in {retry_after} s", part.name());
    AuthError::Exhausted { text, retry_after }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct At(Cell<u64>);

    impl Clock for At {
        fn ns(&self) -> u64 {
            self.0.get() * 1_000_000_000
        }
        fn unix_secs(&self) -> u64 {
            self.0.get()
        }
    }

    fn entry(name: &str, key: &str, rest: &str) -> String {
        let hash = Hash::of(key.as_bytes()).unwrap().to_hex();
        format!("{{\"name\": \"{name}\", \"sha256\": \"{hash}\"{rest}}}")
    }

    fn access(keys: &[String]) -> Access {
        Access::new(Keys::parse(file(keys).as_bytes(), None).unwrap(), None)
    }

    fn file(keys: &[String]) -> String {
        format!("{{\"keys\": [{}]}}", keys.join(","))
    }

    const INFER_A: Ask<'static> = Ask { verb: Verb::Inference, act: Act::Read, of: Of::Model("a") };
    const HEALTH: Ask<'static> = Ask { verb: Verb::Health, act: Act::Read, of: Of::Server };
    const ALL: &str = ", \"scopes\": [{\"verbs\": [\"all\"]}]";

    /// Over a connection that has shown this.
    fn ask_over(
        last: &LastShown,
        access: &Access,
        key: Option<&'static str>,
        ask: &Ask<'_>,
        now: u64,
    ) -> Result<Admitted, AuthError> {
        let header = |name: &str| (name == "x-api-key").then_some(key?.as_bytes());
        access.admit(ask, header, last, &At(Cell::new(now)))
    }

    fn ask(access: &Access, key: Option<&'static str>, ask: &Ask<'_>, now: u64) -> Result<Admitted, AuthError> {
        ask_over(&LastShown::default(), access, key, ask, now)
    }

    #[test]
    fn a_key_allows_only_the_operations_of_its_scopes() {
        let access =
            access(&[entry("ci", "secret", ", \"scopes\": [{\"models\": [\"a\"], \"verbs\": [\"inference\"]}]")]);
        let admitted = ask(&access, Some("secret"), &INFER_A, 0).unwrap();
        assert_eq!(admitted.key().as_deref(), Some("ci"));
        let other = Ask { of: Of::Model("b"), ..INFER_A };
        assert_eq!(
            ask(&access, Some("secret"), &other, 0).unwrap_err(),
            AuthError::Forbidden("The key 'ci' has no scope for inference of model 'b'".into())
        );
        assert_eq!(
            ask(&access, Some("Secret"), &INFER_A, 0).unwrap_err(),
            AuthError::Unauthenticated("The key is unknown to this server".into())
        );
        assert_eq!(access.unknown(), 1);
        assert_eq!(access.counts()[1].1, [1, 1, 0, 0]);
    }

    #[test]
    fn an_anonymous_request_may_only_read_health_by_default() {
        let access = access(&[]);
        assert!(ask(&access, None, &HEALTH, 0).unwrap().key().is_none());
        let Err(AuthError::Unauthenticated(text)) = ask(&access, None, &INFER_A, 0) else { panic!() };
        assert!(text.contains("inference of model 'a'") && text.contains("Authorization: Bearer"), "{text}");
        // A wrong key is rejected even if no key is needed.
        assert!(ask(&access, Some("wrong"), &HEALTH, 0).is_err());
        access.replace(b"{\"anonymous\": {\"scopes\": [{\"verbs\": [\"inference\"], \"models\": [\"a\"]}]}}").unwrap();
        assert!(ask(&access, None, &INFER_A, 0).is_ok());
        assert!(ask(&access, None, &Ask { of: Of::Model("b"), ..INFER_A }, 0).is_err());
        access.replace(b"{\"anonymous\": {\"scopes\": []}}").unwrap();
        assert!(ask(&access, None, &HEALTH, 0).is_err());
    }

    #[test]
    fn expired_and_disabled_keys_are_rejected() {
        let expiring = format!("{ALL}, \"expires\": \"1970-01-02\"");
        let access = access(&[entry("old", "1", &expiring), entry("off", "2", &format!("{ALL}, \"enabled\": false"))]);
        assert!(ask(&access, Some("1"), &INFER_A, 86_399).is_ok());
        assert_eq!(ask(&access, Some("1"), &INFER_A, 86_400).unwrap_err().text(), "The key 'old' has expired");
        assert_eq!(ask(&access, Some("2"), &INFER_A, 0).unwrap_err().text(), "The key 'off' is disabled");
    }

    #[test]
    fn quotas_belong_to_a_key_and_survive_a_reload_of_the_file() {
        let limited = format!("{ALL}, \"quota\": {{\"concurrency\": 1, \"requests_per_second\": 0.5, \"burst\": 2}}");
        let keys = [entry("a", "1", &limited), entry("b", "2", ALL)];
        let access = access(&keys);
        let held = ask(&access, Some("1"), &INFER_A, 0).unwrap();
        let full = AuthError::Exhausted {
            text: "The key 'a' has used up the quota 'concurrency'; try again in 1 s".into(),
            retry_after: 1,
        };
        assert_eq!(ask(&access, Some("1"), &INFER_A, 0).unwrap_err(), full);
        access.replace(file(&keys).as_bytes()).unwrap();
        assert_eq!(ask(&access, Some("1"), &INFER_A, 0).unwrap_err(), full);
        assert!(ask(&access, Some("2"), &INFER_A, 0).is_ok());
        drop(held);
        assert!(ask(&access, Some("1"), &INFER_A, 0).is_ok());
        let Err(AuthError::Exhausted { text, retry_after: 2 }) = ask(&access, Some("1"), &INFER_A, 0) else { panic!() };
        assert_eq!(text, "The key 'a' has used up the quota 'requests_per_second'; try again in 2 s");
        assert!(ask(&access, Some("1"), &INFER_A, 2).is_ok());
    }

    #[test]
    fn a_key_that_is_sent_again_on_a_connection_is_checked_again() {
        let expiring = format!("{ALL}, \"expires\": \"1970-01-02\"");
        let access = access(&[entry("a", "1", ALL), entry("b", "2", &expiring)]);
        let last = LastShown::default();
        let over = |key, now| ask_over(&last, &access, Some(key), &INFER_A, now).map(|admitted| admitted.key());
        for _ in 0..2 {
            assert_eq!(over("1", 0).unwrap().as_deref(), Some("a"));
        }
        assert!(last.hash_of(b"1").is_some());
        // A rejected request takes no place in the quota.
        assert!(over("wrong", 0).is_err() && last.hash_of(b"wrong").is_none() && last.hash_of(b"1").is_some());
        // Another key, and one that expires while it is known.
        assert_eq!(over("2", 86_399).unwrap().as_deref(), Some("b"));
        assert!(last.hash_of(b"1").is_none() && last.hash_of(b"2").is_some());
        assert_eq!(over("2", 86_400).unwrap_err().text(), "The key 'b' has expired");
        // A file that changes counts from the next request on.
        assert!(over("1", 0).is_ok());
        access.replace(file(&[entry("c", "1", ALL)]).as_bytes()).unwrap();
        assert_eq!(over("1", 0).unwrap().as_deref(), Some("c"));
        access.replace(file(&[]).as_bytes()).unwrap();
        let gone = AuthError::Unauthenticated("The key is unknown to this server".into());
        assert_eq!(over("1", 0).unwrap_err(), gone);
    }

    #[test]
    fn an_invalid_file_changes_nothing() {
        let access = access(&[entry("a", "1", ALL)]);
        assert!(access.replace(b"{").is_err());
        assert!(ask(&access, Some("1"), &INFER_A, 0).is_ok());
    }

    #[test]
    fn the_next_message_of_a_stream_needs_a_key_that_still_exists() {
        let access = access(&[entry("a", "1", ALL)]);
        let admitted = ask(&access, Some("1"), &Ask { of: Of::Message, ..INFER_A }, 0).unwrap();
        let clock = At(Cell::new(0));
        assert_eq!(access.check(&admitted, &INFER_A, &clock), Ok(()));
        // Another order and another hash beside it: the same key.
        access.replace(file(&[entry("b", "2", ALL), entry("a", "1", ALL)]).as_bytes()).unwrap();
        assert_eq!(access.check(&admitted, &INFER_A, &clock), Ok(()));
        access
            .replace(file(&[entry("a", "1", ", \"scopes\": [{\"models\": [\"b\"], \"verbs\": [\"all\"]}]")]).as_bytes())
            .unwrap();
        assert!(matches!(access.check(&admitted, &INFER_A, &clock), Err(AuthError::Forbidden(_))));
        access.replace(file(&[]).as_bytes()).unwrap();
        assert_eq!(
            access.check(&admitted, &INFER_A, &clock),
            Err(AuthError::Unauthenticated("The key 'a' was removed from the keys file".into()))
        );
    }

    #[test]
    fn later_messages_count_as_requests_in_the_quota() {
        let access =
            access(&[entry("a", "1", &format!("{ALL}, \"quota\": {{\"requests_per_second\": 1, \"burst\": 2}}"))]);
        let admitted = ask(&access, Some("1"), &Ask { of: Of::Message, ..INFER_A }, 0).unwrap();
        let clock = At(Cell::new(0));
        assert_eq!(access.next(&admitted, &INFER_A, &clock), Ok(()));
        assert_eq!(access.next(&admitted, &INFER_A, &clock), Ok(()));
        assert!(matches!(access.next(&admitted, &INFER_A, &clock), Err(AuthError::Exhausted { retry_after: 1, .. })));
        assert_eq!(access.counts()[1].1, [2, 0, 1, 0]);
    }

    #[test]
    fn both_hashes_of_a_key_are_valid_during_a_rotation() {
        let hashes = ["old", "new"].map(|key| Hash::of(key.as_bytes()).unwrap().to_hex()).join("\", \"");
        let text = format!("{{\"keys\": [{{\"name\": \"a\", \"sha256\": [\"{hashes}\"]{ALL}}}]}}");
        let access = Access::new(Keys::parse(text.as_bytes(), None).unwrap(), None);
        for key in ["old", "new"] {
            assert_eq!(ask(&access, Some(key), &INFER_A, 0).unwrap().key().as_deref(), Some("a"));
        }
    }
}
