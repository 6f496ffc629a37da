//! Decides whether a request is allowed, after the head of the request was read and before its body is.
//!
//! The checks, in this order: Triton's restricted APIs; whether this listener answers the operation
//! (`--control-address`); keys (see `access`); and, for a request that changes the server, its origin.
//!
//! Invariants:
//! - Unless a flag asks for checks, a request that only reads costs one branch.
//! - Unless a flag allows it, no request from the network changes the server. [`wants`] lists what each operation
//!   needs, and a test compares that with what [`Gate::admit`] does.

pub use crate::access::Headers;
use crate::access::{Act, Ask, Category, Restrictions};
use crate::cors::Cors;
use crate::gate_console::{check_near, is_own_page};
use crate::gate_error::GateError;
use crate::keys::Keyring;
use crate::origin::{Caller, Client, Face, Origin};
use crate::table::{Needs, wants};
use ::access::Admitted;
use bytes::Bytes;
use std::sync::Arc;

/// Permission of a request, kept until the last byte of the response was written. Copies share one permission, which
/// ends when the last copy is dropped.
#[derive(Debug, Clone, Default)]
pub struct Grant(Option<Arc<Granted>>);

#[derive(Debug, Default)]
struct Granted {
    /// The request has the header that its restricted API requires.
    has_shown: bool,
    /// The name of the key, or the subject of the token.
    key: Option<Arc<str>>,
    /// Set if the server requires keys.
    keyed: Option<Keyed>,
}

/// How a request passed the check of keys.
#[derive(Debug)]
struct Keyed {
    ring: Arc<Keyring>,
    /// Result of the check. It counts towards the key's quota of concurrent requests.
    admitted: Admitted,
    category: Category,
    act: Act,
}

impl Grant {
    /// Name of the key that was shown, for logs.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.0.as_ref()?.key.as_ref()
    }

    /// Returns the same bytes, which keep this permission until they are dropped, after they were written.
    pub fn hold(&self, part: Bytes) -> Bytes {
        match &self.0 {
            None => part,
            Some(granted) => Bytes::from_owner(GrantedBytes { part, _granted: granted.clone() }),
        }
    }

    /// Second check, for a gRPC call whose message names the model.
    ///
    /// # Errors
    /// The reason why the request is rejected.
    #[inline]
    pub fn admit_model(&self, model: &str) -> Result<(), GateError> {
        match &self.0 {
            None => Ok(()),
            Some(granted) => granted.admit_model(model),
        }
    }

    /// Whether the caller may name this model in the operation, for lists.
    pub fn covers(&self, model: &str) -> bool {
        self.0.as_ref().is_none_or(|granted| granted.covers(model))
    }

    /// Second check, of a response that lasts.
    ///
    /// # Errors
    /// The key was removed, has expired, or lost the permission.
    pub fn check_again(&self) -> Result<(), GateError> {
        let keyed = self.0.as_ref().and_then(|granted| granted.keyed.as_ref());
        let Some(Keyed { ring, admitted, category, act }) = keyed else { return Ok(()) };
        ring.check(admitted, &Ask { is_in_body: true, ..Ask::new(*category, *act, None) })
    }

    /// True if the request passed a check: of keys, or of a restricted API.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Counts bytes of the request or of its response against the quota of its key.
    #[inline]
    pub fn charge(&self, bytes: usize) {
        if let Some(granted) = &self.0 {
            granted.charge(bytes);
        }
    }
}

impl Granted {
    fn has_secret(&self) -> bool {
        self.has_shown || self.key.is_some()
    }

    #[cold]
    fn admit_model(&self, model: &str) -> Result<(), GateError> {
        let Some(Keyed { ring, admitted, category, act }) = &self.keyed else { return Ok(()) };
        ring.next(admitted, &Ask::new(*category, *act, Some(model)))
    }

    #[cold]
    fn covers(&self, model: &str) -> bool {
        let Some(Keyed { ring, admitted, category, act }) = &self.keyed else { return true };
        ring.covers(admitted, &Ask::new(*category, *act, Some(model)))
    }

    #[cold]
    fn charge(&self, bytes: usize) {
        if let Some(Keyed { ring, admitted, .. }) = &self.keyed {
            ring.charge(admitted, bytes);
        }
    }
}

/// Bytes of a response, with the permission of its request.
struct GrantedBytes {
    part: Bytes,
    _granted: Arc<Granted>,
}

impl AsRef<[u8]> for GrantedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

/// Error for a change of settings from another machine.
const REMOTE_CHANGE: &str = "only clients on the machine of the server (loopback, without a proxy) may change \
                             settings: for others, the server needs a secret for this API (--http-restricted-api, \
                             --grpc-restricted-protocol) or --allow-remote-settings";

/// Error for a change by a web page.
const PAGE_CHANGE: &str = "the request comes from a web page of an origin that is not in --http-cors-origin";

/// Settings of the operator for all front ends.
#[derive(Debug, Clone, Default)]
pub struct GateOptions {
    /// Accept changes of settings from any machine, as Triton does.
    pub allow_remote_settings: bool,
    /// Origins of web pages that may send requests.
    pub cors: Option<Arc<Cors>>,
    /// The control address, if `--control-address` is set.
    pub control: Option<Arc<str>>,
    /// Accepted keys. `None`: no key is required.
    pub keys: Option<Arc<Keyring>>,
}

/// Noun for a category in the error texts of gRPC. Over gRPC the message names the model, not the path.
pub const PROTOCOL: &str = "protocol";

/// The checks of one front end.
#[derive(Debug)]
pub struct Gate {
    /// `None` if requests that only read need no check.
    guards: Option<Box<Guards>>,
    options: GateOptions,
}

#[derive(Debug)]
struct Guards {
    /// Noun for a category in error texts: `API` or `protocol`.
    noun: &'static str,
    restrictions: Restrictions,
}

impl Gate {
    /// Creates the checks of a front end. `noun` stands for a category in its error texts: `API` or [`PROTOCOL`].
    pub fn new(noun: &'static str, restrictions: Restrictions, options: GateOptions) -> Self {
        let guards = !restrictions.is_empty() || options.control.is_some() || options.keys.is_some();
        let guards = guards.then(|| Box::new(Guards { noun, restrictions }));
        Self { guards, options }
    }

    /// Checks a request before its body is read. `header` finds a header as [`Headers`] describes.
    ///
    /// # Errors
    /// The reason why the request is rejected.
    #[inline]
    pub fn admit<'a>(
        &self,
        client: &Client,
        ask: &Ask<'_>,
        header: impl Fn(&str, usize) -> Option<&'a [u8]>,
    ) -> Result<Grant, GateError> {
        match (&self.guards, ask.act) {
            (None, Act::Read) if !ask.is_near => Ok(Grant::default()),
            _ => self.examine(client, ask, &header),
        }
    }

    #[cold]
    fn examine(&self, client: &Client, ask: &Ask<'_>, header: Headers<'_, '_>) -> Result<Grant, GateError> {
        let mut granted = Granted { has_shown: self.check_restriction(ask.category, header)?, ..Granted::default() };
        self.check_place(client.caller.face, ask.category)?;
        if let (Some(ring), Some(guards)) = (&self.options.keys, &self.guards) {
            ::access::HEADERS.iter().try_for_each(|name| check_single(header, name, name))?;
            let first = |name: &str| header(name, 0);
            let admitted = ring.admit(ask, guards.noun == PROTOCOL, first, &client.last)?;
            granted.key = admitted.key();
            granted.keyed = Some(Keyed { ring: ring.clone(), admitted, category: ask.category, act: ask.act });
        }
        if ask.act == Act::Write {
            self.examine_change(&client.caller, &granted, ask, header)?;
        }
        if ask.is_near {
            check_near(&client.caller, granted.has_secret(), self.options.allow_remote_settings, header)?;
        }
        let has_any = granted.has_shown || granted.keyed.is_some();
        Ok(Grant(has_any.then(|| Arc::new(granted))))
    }

    /// Checks the header that a restricted API requires. True if there was one.
    fn check_restriction(&self, category: Category, header: Headers<'_, '_>) -> Result<bool, GateError> {
        let Some(guards) = &self.guards else { return Ok(false) };
        let Some(rule) = guards.restrictions.rule(category) else { return Ok(false) };
        check_single(header, &rule.name, &rule.header)?;
        match rule.admits(header(&rule.name, 0)) {
            true => Ok(true),
            false => Err(GateError::Restricted { noun: guards.noun, header: rule.header.clone() }),
        }
    }

    /// Checks whether this listener answers the operation.
    fn check_place(&self, face: Face, category: Category) -> Result<(), GateError> {
        match (&self.options.control, face) {
            (Some(address), Face::Public | Face::Embedded) if category.is_of_control() => {
                Err(GateError::NotHere { address: address.clone() })
            }
            (Some(_), Face::Control) if category == Category::Inference => {
                Err(GateError::Forbidden("the control address does not serve inference".into()))
            }
            _ => Ok(()),
        }
    }

    /// Second check, for a gRPC call whose message changes settings.
    ///
    /// # Errors
    /// The reason why the request is rejected.
    pub fn admit_change(
        &self,
        caller: &Caller,
        grant: &Grant,
        ask: &Ask<'_>,
        header: Headers<'_, '_>,
    ) -> Result<(), GateError> {
        let Some(granted) = grant.0.as_deref() else {
            return self.examine_change(caller, &Granted::default(), ask, header);
        };
        if let Some(keyed) = &granted.keyed {
            keyed.ring.check(&keyed.admitted, ask)?;
        }
        self.examine_change(caller, granted, ask, header)
    }

    /// Whether a request of the same caller for `ask` would be admitted, as far as is known before it comes. Takes
    /// nothing of the quotas of its key.
    pub fn would_admit(&self, caller: &Caller, grant: &Grant, ask: &Ask<'_>, header: Headers<'_, '_>) -> bool {
        let nothing = Granted::default();
        let granted = grant.0.as_deref().unwrap_or(&nothing);
        self.check_restriction(ask.category, header).is_ok()
            && self.check_place(caller.face, ask.category).is_ok()
            && granted.keyed.as_ref().is_none_or(|keyed| keyed.ring.covers(&keyed.admitted, ask))
            && (ask.act == Act::Read || self.examine_change(caller, granted, ask, header).is_ok())
    }

    fn examine_change(
        &self,
        caller: &Caller,
        granted: &Granted,
        ask: &Ask<'_>,
        header: Headers<'_, '_>,
    ) -> Result<(), GateError> {
        // A page of another site can make a browser on this machine send a request, without reading the response.
        let is_of_page = |origin: &[u8]| {
            !self.options.cors.as_ref().is_some_and(|cors| cors.allows(origin))
                && !is_own_page(origin, granted.has_secret(), header)
        };
        if (0..).map_while(|at| header("origin", at)).any(is_of_page) {
            return Err(GateError::Forbidden(PAGE_CHANGE.into()));
        }
        let is_near_only = matches!(wants(ask).far, Needs::SecretOr(_));
        let may = !is_near_only
            || self.options.allow_remote_settings
            // The key has a scope for this: `examine` and `admit_change` rejected all others before this check.
            || granted.has_secret()
            || caller.origin_of(|name| header(name, 0)) != Origin::Network;
        if may { Ok(()) } else { Err(GateError::Forbidden(REMOTE_CHANGE.into())) }
    }
}

/// Rejects a request in which a header that authenticates the caller occurs twice.
fn check_single(header: Headers<'_, '_>, name: &str, written: &str) -> Result<(), GateError> {
    match header(name, 1) {
        None => Ok(()),
        Some(_) => Err(GateError::Repeated { header: written.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{calls::CALLS, routes::ROWS};
    use options::Restriction;

    const REMOTE: &str = "--allow-remote-settings";

    fn gate(restricted: &[&str], options: GateOptions) -> Gate {
        let groups = match restricted {
            [] => Vec::new(),
            apis => vec![Restriction {
                apis: apis.iter().map(|api| (*api).to_owned()).collect(),
                key: "Admin-Key".into(),
                value: "s3cret".into(),
            }],
        };
        Gate::new("API", Restrictions::new("api", &groups).unwrap(), options)
    }

    fn caller(origin: Origin) -> Caller {
        Caller { origin, face: Face::Public, peer: None }
    }

    /// Operations of all routes and calls, as the gate checks them.
    fn asks() -> impl Iterator<Item = Ask<'static>> {
        let endpoints = ROWS.iter().map(|row| row.endpoint).chain(CALLS.iter().map(|call| call.endpoint));
        endpoints.filter_map(|endpoint| endpoint.facts().ask(None))
    }

    #[test]
    fn each_operation_is_admitted_from_each_origin_as_the_table_lists() {
        let plain = gate(&[], GateOptions::default());
        let remote = gate(&[], GateOptions { allow_remote_settings: true, ..GateOptions::default() });
        for ask in asks() {
            let wants = wants(&ask);
            for origin in [Origin::Loopback, Origin::Unix, Origin::Network] {
                let needs = if origin == Origin::Network { wants.far } else { wants.near };
                let admitted = |gate: &Gate| gate.admit(&caller(origin).into(), &ask, |_, _| None).is_ok();
                assert_eq!(admitted(&plain), !matches!(needs, Needs::SecretOr(_)), "{ask:?} from {origin:?}");
                assert!(admitted(&remote), "{ask:?} from {origin:?} with {REMOTE}");
            }
        }
    }

    #[test]
    fn a_secret_opens_settings_to_the_network_and_a_proxy_closes_them_to_loopback() {
        let restricted = gate(&["logging"], GateOptions::default());
        let ask = Ask::new(Category::Logging, Act::Write, None);
        let with = |value: &'static [u8]| move |name: &str, at| (name == "admin-key" && at == 0).then_some(value);
        assert!(restricted.admit(&caller(Origin::Network).into(), &ask, with(b"s3cret")).unwrap().is_some());
        let refused = restricted.admit(&caller(Origin::Loopback).into(), &ask, with(b"s3creT")).unwrap_err();
        assert_eq!((refused.http_status(), refused.grpc_status()), (403, 14));
        assert_eq!(refused.text(), "This API is restricted, expecting header 'Admin-Key'");
        let passed_on = |name: &str, at| (name == "x-forwarded-for" && at == 0).then_some(&b"127.0.0.1"[..]);
        let refused =
            gate(&[], GateOptions::default()).admit(&caller(Origin::Loopback).into(), &ask, passed_on).unwrap_err();
        assert_eq!((refused.http_status(), refused.grpc_status()), (403, 7));
        assert!(refused.text().contains(REMOTE), "{}", refused.text());
        // Calls whose message changes settings are checked in the second step.
        let open = gate(&[], GateOptions::default());
        let change = |origin, grant: &Grant| open.admit_change(&caller(origin), grant, &ask, &|_, _| None);
        assert!(change(Origin::Network, &Grant::default()).is_err() && change(Origin::Unix, &Grant::default()).is_ok());
    }

    #[test]
    fn a_header_that_authenticates_must_occur_once() {
        let restricted = gate(&["logging"], GateOptions::default());
        let ask = Ask::new(Category::Logging, Act::Read, None);
        for both in [[&b"s3cret"[..], b"wrong"], [b"wrong", b"s3cret"], [b"s3cret", b"s3cret"]] {
            let header = |name: &str, at: usize| both.get(at).copied().filter(|_| name == "admin-key");
            let refused = restricted.admit(&caller(Origin::Loopback).into(), &ask, header).unwrap_err();
            assert_eq!((refused.http_status(), refused.grpc_status()), (400, 3));
            assert_eq!(refused.text(), "the request has more than one header 'Admin-Key': send one");
        }
        let file = std::env::temp_dir().join(format!("nereid-gate-keys-{}.json", std::process::id()));
        std::fs::write(&file, r#"{ "anonymous": { "scopes": [{ "verbs": ["all"] }] }, "keys": [] }"#).unwrap();
        let keys = Keyring::open(&file, None).unwrap();
        std::fs::remove_file(&file).unwrap();
        let keyed = gate(&[], GateOptions { keys: Some(keys), ..GateOptions::default() });
        for name in ::access::HEADERS {
            let times =
                |times: usize| move |asked: &str, at: usize| (asked == name && at < times).then_some(&b"Basic a"[..]);
            let refused = keyed.admit(&caller(Origin::Loopback).into(), &ask, times(2)).unwrap_err();
            assert_eq!(refused.text(), format!("the request has more than one header '{name}': send one"));
            // A single header is checked.
            let one = keyed.admit(&caller(Origin::Loopback).into(), &ask, times(1));
            assert!(!matches!(one, Err(GateError::Repeated { .. })), "{name}");
        }
    }

    #[test]
    fn with_a_control_address_management_is_answered_there_and_inferences_are_not() {
        let gate = gate(&[], GateOptions { control: Some("unix:/run/c".into()), ..GateOptions::default() });
        for ask in asks() {
            let at = |face| gate.admit(&Caller { face, ..caller(Origin::Unix) }.into(), &ask, |_, _| None).map(drop);
            let is_moved = ask.category.is_of_control();
            assert_eq!(at(Face::Public).is_err(), is_moved, "{ask:?}");
            assert_eq!(at(Face::Control).is_err(), ask.category == Category::Inference, "{ask:?}");
            if is_moved {
                let refused = at(Face::Public).unwrap_err();
                assert_eq!((refused.http_status(), refused.grpc_status()), (403, 7));
                assert!(refused.text().contains(", unix:/run/c, "), "{}", refused.text());
            }
        }
    }

    #[test]
    fn a_web_page_changes_nothing_unless_its_origin_is_listed() {
        let listed = Cors::new(&["https://a.example".to_owned()]).unwrap().map(Arc::new);
        let listed = gate(&[], GateOptions { cors: listed, ..GateOptions::default() });
        for ask in asks().filter(|ask| ask.act == Act::Write) {
            let from = |gate: &Gate, page: &'static [u8]| {
                let header = |name: &str, at| (name == "origin" && at == 0).then_some(page);
                gate.admit(&caller(Origin::Loopback).into(), &ask, header).is_ok()
            };
            assert!(!from(&gate(&[], GateOptions::default()), b"https://a.example"), "{ask:?}");
            assert!(from(&listed, b"https://a.example") && !from(&listed, b"null"), "{ask:?}");
            let both = [&b"https://a.example"[..], b"https://b.example"];
            let header = |name: &str, at: usize| both.get(at).copied().filter(|_| name == "origin");
            assert!(listed.admit(&caller(Origin::Loopback).into(), &ask, header).is_err(), "{ask:?}");
        }
    }

    #[test]
    fn pages_of_this_server_change_it_under_a_name_of_this_machine_or_with_a_secret() {
        let (open, secret) = (gate(&[], GateOptions::default()), gate(&["logging"], GateOptions::default()));
        let ask = Ask::new(Category::Logging, Act::Write, None);
        let admitted = |gate: &Gate, host: &'static str, origin: &'static str, shown: &'static str| {
            let header = |name: &str, at| {
                let value = match name {
                    "host" => host,
                    "origin" => origin,
                    "admin-key" => shown,
                    _ => "",
                };
                (at == 0 && !value.is_empty()).then_some(value.as_bytes())
            };
            gate.admit(&caller(Origin::Loopback).into(), &ask, header).is_ok()
        };
        for (host, origin, is_own) in [
            ("localhost:8000", "http://localhost:8000", true),
            ("127.0.0.1:8000", "http://127.0.0.1:8000", true),
            ("[::1]:8000", "http://[::1]:8000", true),
            ("localhost", "https://localhost", true),
            ("localhost:8000", "http://localhost:9000", false),
            ("localhost:8000", "null", false),
            // The name of another site that leads here.
            ("evil.example:8000", "http://evil.example:8000", false),
            ("localhost.evil.example", "http://localhost.evil.example", false),
            ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example", false),
        ] {
            assert_eq!(admitted(&open, host, origin, ""), is_own, "{host} {origin}");
        }
        assert!(admitted(&secret, "ml.example", "https://ml.example", "s3cret"));
        assert!(!admitted(&secret, "ml.example", "https://evil.example", "s3cret"));
    }

    #[test]
    fn the_console_is_for_this_machine_and_for_callers_with_a_secret() {
        let open = gate(&[], GateOptions::default());
        let ask = Ask { is_near: true, ..Ask::new(Category::Statistics, Act::Read, None) };
        let near = |origin, host: &'static str, forwarded: bool| {
            let header = move |name: &str, at| match name {
                "host" if at == 0 && !host.is_empty() => Some(host.as_bytes()),
                "x-forwarded-for" if at == 0 && forwarded => Some(&b"10.0.0.1"[..]),
                _ => None,
            };
            open.admit(&caller(origin).into(), &ask, header).is_ok()
        };
        for (origin, host, forwarded, is_admitted) in [
            (Origin::Loopback, "localhost:8000", false, true),
            (Origin::Loopback, "LOCALHOST.:8000", false, true),
            (Origin::Loopback, "", false, true),
            (Origin::Loopback, "evil.example", false, false),
            (Origin::Loopback, "localhost", true, false),
            (Origin::Network, "localhost", false, false),
            (Origin::Unix, "anything", false, true),
        ] {
            assert_eq!(near(origin, host, forwarded), is_admitted, "{origin:?} {host} {forwarded}");
        }
        let secret = gate(&["statistics", "logging"], GateOptions::default());
        let with = |value: &'static [u8]| move |name: &str, at| (name == "admin-key" && at == 0).then_some(value);
        let shown = secret.admit(&caller(Origin::Network).into(), &ask, with(b"s3cret")).unwrap();
        assert!(secret.admit(&caller(Origin::Loopback).into(), &ask, |_, _| None).is_err());
        let header = &with(b"s3cret");
        let may = |category, act| {
            let ask = Ask { is_in_body: true, ..Ask::new(category, act, None) };
            secret.would_admit(&caller(Origin::Network), &shown, &ask, header)
        };
        assert!(may(Category::Logging, Act::Write) && may(Category::Inference, Act::Read));
        let without = secret.would_admit(
            &caller(Origin::Network),
            &Grant::default(),
            &Ask::new(Category::Logging, Act::Read, None),
            &|_, _| None,
        );
        assert!(!without);
    }

    #[test]
    fn a_response_that_is_being_written_keeps_its_permission() {
        let granted = Arc::new(Granted { has_shown: true, ..Granted::default() });
        let grant = Grant(Some(granted.clone()));
        let part = grant.hold(Bytes::from_static(b"answer"));
        drop(grant);
        let rest = part.slice(3..);
        drop(part);
        assert_eq!((Arc::strong_count(&granted), &rest[..]), (2, &b"wer"[..]));
        drop(rest);
        assert_eq!(Arc::strong_count(&granted), 1);
    }
}
