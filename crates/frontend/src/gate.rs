//! Decides whether a request is allowed. Both front ends call this after they have read the head of a request and before they read its body.
//!
//! The checks, in this order: Triton's restricted APIs; whether this listener answers the operation (`--control-address`); keys; and, for a
//! request that changes the server, where it comes from. What a key permits is decided by `access`, not here.
//!
//! Invariants:
//! - Unless a flag asks for checks, a request that only reads costs one branch.
//! - Unless a flag allows it, no request from the network changes the server. [`VERBS`] lists what each operation needs, and a test compares
//!   the list with what [`Gate::admit`] does.

use crate::access::{Category, Restrictions};
use crate::cors::Cors;
use crate::keys::Keyring;
use crate::origin::{Caller, Client, Face, Origin};
use ::access::Admitted;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tensor::Error;

pub use ::access::Act;

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Kind of the operation.
    pub category: Category,
    /// Whether it changes something.
    pub act: Act,
    /// The model that it names. `None` where that is not known before the body is read.
    pub model: Option<&'a str>,
}

/// Permission of a request. The request keeps it until the last byte of its answer was written. Copies share one permission, which ends when the
/// last copy is dropped.
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
    /// Result of the check. Occupies a place in the key's quota of concurrent requests.
    admitted: Admitted,
    category: Category,
    act: Act,
}

impl Grant {
    /// Name of the key that was shown, for logs.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.0.as_ref()?.key.as_ref()
    }

    /// Returns the same bytes, which keep this permission alive until they are dropped: an answer may be written long after it was made.
    pub fn hold(&self, part: Bytes) -> Bytes {
        match &self.0 {
            None => part,
            Some(granted) => Bytes::from_owner(Held { part, _granted: granted.clone() }),
        }
    }

    /// Second check, for a gRPC call whose message names the model.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    #[inline]
    pub fn admit_model(&self, model: &str) -> Result<(), Refusal> {
        match &self.0 {
            None => Ok(()),
            Some(granted) => granted.admit_model(model),
        }
    }

    /// Whether it carries anything: a key, or a restricted API's header.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Counts bytes of the request or of its answer against the quota of its key.
    #[inline]
    pub fn charge(&self, bytes: usize) {
        if let Some(granted) = &self.0 {
            granted.charge(bytes);
        }
    }
}

impl Granted {
    #[cold]
    fn admit_model(&self, model: &str) -> Result<(), Refusal> {
        let Some(Keyed { ring, admitted, category, act }) = &self.keyed else { return Ok(()) };
        ring.next(admitted, &Ask { category: *category, act: *act, model: Some(model) })
    }

    #[cold]
    fn charge(&self, bytes: usize) {
        if let Some(Keyed { ring, admitted, .. }) = &self.keyed {
            ring.charge(admitted, bytes);
        }
    }
}

struct Held {
    part: Bytes,
    _granted: Arc<Granted>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The API is restricted as in Triton, and the required header is missing or has another value.
    Restricted {
        /// What the message calls a category: `API` over HTTP, `protocol` over gRPC.
        noun: &'static str,
        /// Name of the header, as configured.
        header: Arc<str>,
    },
    /// A header that authenticates the caller occurs twice in the request. A proxy in front of the server may have checked the other one.
    Repeated {
        /// Name of the header.
        header: Arc<str>,
    },
    /// The server requires a key, and the request has no valid one: the reason.
    Unauthenticated(Cow<'static, str>),
    /// The caller's key, or the place that the request comes from, does not permit this: the reason.
    Forbidden(Cow<'static, str>),
    /// Another listener answers this operation.
    NotHere {
        /// `--control-address`.
        address: Arc<str>,
    },
    /// A quota of the key is used up.
    Exhausted {
        /// Which quota, as text.
        reason: Cow<'static, str>,
        /// Time after which the client may try again.
        retry_after: Duration,
    },
}

impl Refusal {
    /// Message for the client.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Restricted { noun, header } => {
                format!("This {noun} is restricted, expecting header '{header}'").into()
            }
            Self::Repeated { header } => format!("the request has more than one header '{header}': send one").into(),
            Self::Unauthenticated(reason) | Self::Forbidden(reason) | Self::Exhausted { reason, .. } => {
                Cow::Borrowed(reason)
            }
            Self::NotHere { address } => {
                format!("operations that manage this server are answered at its control address, {address}").into()
            }
        }
    }

    /// Status over HTTP.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Repeated { .. } => 400,
            Self::Restricted { .. } | Self::Forbidden(_) | Self::NotHere { .. } => 403,
            Self::Unauthenticated(_) => 401,
            Self::Exhausted { .. } => 429,
        }
    }

    /// Number over gRPC.
    pub fn grpc_status(&self) -> u8 {
        match self {
            // As Triton.
            Self::Restricted { .. } => 14,
            Self::Repeated { .. } => 3,
            Self::Forbidden(_) | Self::NotHere { .. } => 7,
            Self::Unauthenticated(_) => 16,
            Self::Exhausted { .. } => 8,
        }
    }

    /// When to try again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Exhausted { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

/// In a stream a refusal is a message, which has no place for more than a text.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::Exhausted { .. } => Self::exhausted(refusal.text().into_owned()),
            Refusal::Repeated { .. } => Self::invalid(refusal.text().into_owned()),
            _ => Self::unavailable(refusal.text().into_owned()),
        }
    }
}

/// Finds a header of a request, by its name in lower case and its index among the headers of that name, from 0.
pub type Headers<'h, 'a> = &'h dyn Fn(&str, usize) -> Option<&'a [u8]>;

/// What an operation needs in addition to configured keys and restricted APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The server was started with this flag, which is off by default. Checked by the code that carries out the operation, not here.
    Flag(&'static str),
    /// The request has a secret for this category, or the server was started with this flag.
    SecretOr(&'static str),
}

/// Refusal of a change of settings from another machine.
const FAR: &str = "settings are changed from the server's own machine (loopback, and not through a proxy): from elsewhere it takes a \
     secret for this API, or a server that was started with --allow-remote-settings";

/// Refusal of a change by a web page.
const PAGE: &str = "the request comes from a web page of an origin that is not in --http-cors-origin";

/// An operation of the API.
#[derive(Debug, Clone, Copy)]
pub struct Verb {
    /// Description.
    pub what: &'static str,
    /// Its category, and whether it changes something.
    pub asks: (Category, Act),
    /// HTTP method and path.
    pub http: &'static str,
    /// gRPC call.
    pub grpc: &'static str,
    /// What it needs from a process of this machine: over loopback or a Unix socket, and not through a proxy.
    pub near: Needs,
    /// What it needs from anywhere else.
    pub far: Needs,
}

const REMOTE: &str = "--allow-remote-settings";

/// All operations of the front ends, and what each needs. `reflection` is left out: it returns the published proto files, which need no
/// protection.
pub const VERBS: [Verb; 13] = {
    use Category::{
        Health, Inference, Logging, Metadata, ModelConfig, ModelRepository, SharedMemory, Statistics, Trace,
    };
    use Needs::{Flag, Nothing, SecretOr};
    const fn verb(what: &'static str, asks: (Category, Act), http: &'static str, grpc: &'static str) -> Verb {
        Verb { what, asks, http, grpc, near: Nothing, far: Nothing }
    }
    const fn asked_for(verb: Verb, flag: &'static str) -> Verb {
        Verb { near: Flag(flag), far: Flag(flag), ..verb }
    }
    const fn near(verb: Verb) -> Verb {
        Verb { far: SecretOr(REMOTE), ..verb }
    }
    [
        verb(
            "ask whether the server or a model is ready",
            (Health, Act::Read),
            "GET /v2/health/live, GET /v2/health/ready, GET /v2/models/MODEL[/versions/N]/ready",
            "ServerLive, ServerReady, ModelReady, Health/Check, Health/Watch",
        ),
        verb(
            "read metadata",
            (Metadata, Act::Read),
            "GET /v2, GET /v2/models/MODEL[/versions/N], GET /v2/openapi.json, GET /docs",
            "ServerMetadata, ModelMetadata",
        ),
        verb(
            "infer",
            (Inference, Act::Read),
            "POST /v2/models/MODEL[/versions/N]/infer, …/generate, …/generate_stream",
            "ModelInfer, ModelStreamInfer",
        ),
        verb(
            "read the configuration of a model",
            (ModelConfig, Act::Read),
            "GET /v2/models/MODEL[/versions/N]/config",
            "ModelConfig",
        ),
        verb(
            "read statistics",
            (Statistics, Act::Read),
            "GET /v2/models/stats, GET /v2/models/MODEL[/versions/N]/stats",
            "ModelStatistics",
        ),
        verb(
            "list the repository",
            (ModelRepository, Act::Read),
            "POST /v2/repository/index, GET /v2/models, GET /",
            "RepositoryIndex",
        ),
        asked_for(
            verb(
                "load or unload a model",
                (ModelRepository, Act::Write),
                "POST /v2/repository/models/MODEL/load, …/unload",
                "RepositoryModelLoad, RepositoryModelUnload",
            ),
            "--model-control-mode=explicit",
        ),
        verb(
            "list shared memory",
            (SharedMemory, Act::Read),
            "GET /v2/systemsharedmemory[/region/NAME]/status, GET /v2/cudasharedmemory[/region/NAME]/status",
            "SystemSharedMemoryStatus, CudaSharedMemoryStatus",
        ),
        asked_for(
            verb(
                "register or unregister shared memory",
                (SharedMemory, Act::Write),
                "POST /v2/systemsharedmemory[/region/NAME]/register, …/unregister, and of cudasharedmemory",
                "SystemSharedMemoryRegister, SystemSharedMemoryUnregister, CudaSharedMemoryRegister, CudaSharedMemoryUnregister",
            ),
            "--allow-client-shm=true",
        ),
        verb(
            "read trace settings",
            (Trace, Act::Read),
            "GET /v2[/models/MODEL]/trace/setting",
            "TraceSetting without settings",
        ),
        near(verb(
            "change trace settings",
            (Trace, Act::Write),
            "POST /v2[/models/MODEL]/trace/setting",
            "TraceSetting with settings",
        )),
        verb("read log settings", (Logging, Act::Read), "GET /v2/logging", "LogSettings without settings"),
        near(verb("change log settings", (Logging, Act::Write), "POST /v2/logging", "LogSettings with settings")),
    ]
};

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

/// What gRPC calls a category in a refusal. Over gRPC the message names the model, not the path.
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
    /// What a refusal calls a category: `API` or `protocol`.
    noun: &'static str,
    restrictions: Restrictions,
}

impl Gate {
    /// Creates the checks of a front end. `noun`: what its refusals call a category, `API` or [`PROTOCOL`].
    pub fn new(noun: &'static str, restrictions: Restrictions, options: GateOptions) -> Self {
        let guards = !restrictions.is_empty() || options.control.is_some() || options.keys.is_some();
        let guards = guards.then(|| Box::new(Guards { noun, restrictions }));
        Self { guards, options }
    }

    /// Checks a request before its body is read. `header` finds a header as [`Headers`] describes.
    ///
    /// # Errors
    /// Why the request is refused.
    #[inline]
    pub fn admit<'a>(
        &self,
        client: &Client,
        ask: &Ask<'_>,
        header: impl Fn(&str, usize) -> Option<&'a [u8]>,
    ) -> Result<Grant, Refusal> {
        match (&self.guards, ask.act) {
            (None, Act::Read) => Ok(Grant::default()),
            _ => self.examine(client, ask, &header),
        }
    }

    #[cold]
    fn examine(&self, client: &Client, ask: &Ask<'_>, header: Headers<'_, '_>) -> Result<Grant, Refusal> {
        let mut granted = Granted::default();
        if let Some(guards) = &self.guards
            && let Some(rule) = guards.restrictions.rule(ask.category)
        {
            check_single(header, &rule.name, &rule.header)?;
            if !rule.admits(header(&rule.name, 0)) {
                return Err(Refusal::Restricted { noun: guards.noun, header: rule.header.clone() });
            }
            granted.has_shown = true;
        }
        if let Some(address) = &self.options.control {
            match client.caller.face {
                Face::Public | Face::Embedded if ask.category.is_of_control() => {
                    return Err(Refusal::NotHere { address: address.clone() });
                }
                Face::Control if ask.category == Category::Inference => {
                    return Err(Refusal::Forbidden("inferences are not answered at the control address".into()));
                }
                _ => {}
            }
        }
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
        let has_any = granted.has_shown || granted.keyed.is_some();
        Ok(Grant(has_any.then(|| Arc::new(granted))))
    }

    /// Second check, for a gRPC call whose message says that it changes something.
    ///
    /// # Errors
    /// As `admit`.
    pub fn admit_change(
        &self,
        caller: &Caller,
        grant: &Grant,
        ask: &Ask<'_>,
        header: Headers<'_, '_>,
    ) -> Result<(), Refusal> {
        let Some(granted) = grant.0.as_deref() else {
            return self.examine_change(caller, &Granted::default(), ask, header);
        };
        if let Some(keyed) = &granted.keyed {
            keyed.ring.check(&keyed.admitted, ask)?;
        }
        self.examine_change(caller, granted, ask, header)
    }

    fn examine_change(
        &self,
        caller: &Caller,
        granted: &Granted,
        ask: &Ask<'_>,
        header: Headers<'_, '_>,
    ) -> Result<(), Refusal> {
        // A web page of another site can make a browser on this machine send a request, and does not need to read the answer.
        let is_of_page = |origin: &[u8]| !self.options.cors.as_ref().is_some_and(|cors| cors.allows(origin));
        if (0..).map_while(|at| header("origin", at)).any(is_of_page) {
            return Err(Refusal::Forbidden(PAGE.into()));
        }
        let is_near_only =
            VERBS.iter().any(|v| v.asks == (ask.category, ask.act) && matches!(v.far, Needs::SecretOr(_)));
        let may = !is_near_only
            || self.options.allow_remote_settings
            || granted.has_shown
            // The key has a scope for this: `examine` and `admit_change` refuse all others before this check.
            || granted.key.is_some()
            || caller.origin_of(|name| header(name, 0)) != Origin::Network;
        if may { Ok(()) } else { Err(Refusal::Forbidden(FAR.into())) }
    }
}

/// Refuses a request in which a header that authenticates the caller occurs twice.
fn check_single(header: Headers<'_, '_>, name: &str, written: &str) -> Result<(), Refusal> {
    match header(name, 1) {
        None => Ok(()),
        Some(_) => Err(Refusal::Repeated { header: written.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Restriction;
    use crate::origin::Face;
    use std::fmt::Write as _;

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

    fn ask(verb: &Verb) -> Ask<'static> {
        Ask { category: verb.asks.0, act: verb.asks.1, model: None }
    }

    #[test]
    fn each_verb_needs_from_each_origin_what_the_table_says() {
        let plain = gate(&[], GateOptions::default());
        let remote = gate(&[], GateOptions { allow_remote_settings: true, ..GateOptions::default() });
        for verb in &VERBS {
            for origin in [Origin::Loopback, Origin::Unix, Origin::Network] {
                let needs = if origin == Origin::Network { verb.far } else { verb.near };
                let admitted = |gate: &Gate| gate.admit(&caller(origin).into(), &ask(verb), |_, _| None).is_ok();
                assert_eq!(admitted(&plain), !matches!(needs, Needs::SecretOr(_)), "{} from {origin:?}", verb.what);
                assert!(admitted(&remote), "{} from {origin:?} with {REMOTE}", verb.what);
            }
        }
        // Every operation that changes the server needs something when it comes from the network.
        assert!(VERBS.iter().all(|verb| verb.asks.1 == Act::Read || verb.far != Needs::Nothing));
    }

    #[test]
    fn a_secret_opens_settings_to_the_network_and_a_proxy_closes_them_to_loopback() {
        let restricted = gate(&["logging"], GateOptions::default());
        let ask = Ask { category: Category::Logging, act: Act::Write, model: None };
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
        // Calls whose message says so are checked in the second step.
        let open = gate(&[], GateOptions::default());
        let change = |origin, grant: &Grant| open.admit_change(&caller(origin), grant, &ask, &|_, _| None);
        assert!(change(Origin::Network, &Grant::default()).is_err() && change(Origin::Unix, &Grant::default()).is_ok());
    }

    #[test]
    fn a_header_that_lets_a_caller_in_stands_once() {
        let restricted = gate(&["logging"], GateOptions::default());
        let ask = Ask { category: Category::Logging, act: Act::Read, model: None };
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
            // One is looked at.
            let one = keyed.admit(&caller(Origin::Loopback).into(), &ask, times(1));
            assert!(!matches!(one, Err(Refusal::Repeated { .. })), "{name}");
        }
    }

    #[test]
    fn with_a_control_address_management_is_answered_there_and_inferences_are_not() {
        let gate = gate(&[], GateOptions { control: Some("unix:/run/c".into()), ..GateOptions::default() });
        for verb in &VERBS {
            let at =
                |face| gate.admit(&Caller { face, ..caller(Origin::Unix) }.into(), &ask(verb), |_, _| None).map(drop);
            let is_moved = verb.asks.0.is_of_control();
            assert_eq!(at(Face::Public).is_err(), is_moved, "{}", verb.what);
            assert_eq!(at(Face::Control).is_err(), verb.asks.0 == Category::Inference, "{}", verb.what);
            if is_moved {
                let refused = at(Face::Public).unwrap_err();
                assert_eq!((refused.http_status(), refused.grpc_status()), (403, 7));
                assert!(refused.text().ends_with("unix:/run/c"), "{}", refused.text());
            }
        }
    }

    #[test]
    fn a_web_page_changes_nothing_unless_its_origin_is_listed() {
        let listed = Cors::new(&["https://a.example".to_owned()]).unwrap().map(Arc::new);
        let listed = gate(&[], GateOptions { cors: listed, ..GateOptions::default() });
        for verb in VERBS.iter().filter(|verb| verb.asks.1 == Act::Write) {
            let from = |gate: &Gate, page: &'static [u8]| {
                let header = |name: &str, at| (name == "origin" && at == 0).then_some(page);
                gate.admit(&caller(Origin::Loopback).into(), &ask(verb), header).is_ok()
            };
            assert!(!from(&gate(&[], GateOptions::default()), b"https://a.example"), "{}", verb.what);
            assert!(from(&listed, b"https://a.example") && !from(&listed, b"null"), "{}", verb.what);
            let both = [&b"https://a.example"[..], b"https://b.example"];
            let header = |name: &str, at: usize| both.get(at).copied().filter(|_| name == "origin");
            assert!(listed.admit(&caller(Origin::Loopback).into(), &ask(verb), header).is_err(), "{}", verb.what);
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_again_and_has_the_codes_of_its_kind() {
        let exhausted = Refusal::Exhausted { reason: "busy".into(), retry_after: Duration::from_millis(1500) };
        assert_eq!((exhausted.http_status(), exhausted.grpc_status()), (429, 8));
        assert_eq!(exhausted.retry_after(), Some(Duration::from_millis(1500)));
        let unknown = Refusal::Unauthenticated("no key".into());
        assert_eq!((unknown.http_status(), unknown.grpc_status()), (401, 16));
    }

    #[test]
    fn an_answer_that_is_being_written_holds_what_was_granted() {
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

    /// The table as JSON, for the documentation that is made from it. `NEREID_UPDATE=1` writes it.
    #[test]
    fn the_table_in_the_repository_is_this_one() {
        let needs = |needs: Needs| match needs {
            Needs::Nothing => "nothing".to_owned(),
            Needs::Flag(flag) => flag.to_owned(),
            Needs::SecretOr(flag) => format!("a secret for the API, or {flag}"),
        };
        let mut text = String::from("[\n");
        for (at, verb) in VERBS.iter().enumerate() {
            let end = if at + 1 < VERBS.len() { "," } else { "" };
            let act = if verb.asks.1 == Act::Read { "read" } else { "write" };
            let (near, far) = (needs(verb.near), needs(verb.far));
            writeln!(
                text,
                "  {{ \"what\": {:?}, \"category\": {:?}, \"act\": {act:?}, \"http\": {:?}, \"grpc\": {:?}, \"near\": {near:?}, \"far\": {far:?} }}{end}",
                verb.what, verb.asks.0.name(), verb.http, verb.grpc
            )
            .unwrap();
        }
        text.push_str("]\n");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/verbs.json");
        if std::env::var_os("NEREID_UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap_or_default(),
            text,
            "NEREID_UPDATE=1 cargo test -p nereid-frontend writes it"
        );
    }
}
