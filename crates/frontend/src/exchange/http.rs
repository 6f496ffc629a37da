//! An exchange over HTTP, whatever version of it, or through another server of this process.

use super::endpoint::{BodyPlace, FindRoute, HttpAnswer, HttpExchange, Route};
use super::grpc::read_question;
use super::{Exchange, ExchangePhase};
use crate::failure::{ErrorForm, FailureKind};
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::grpc::status::code;
use crate::http::body::RequestBody;
use crate::http::context::HttpContext;
use crate::http::method::Method;
use crate::http::reply::{JSON, Reply};
use crate::http::request::RequestHead;
use crate::limits::{INLINE_BODY_BYTES_MAX, UNCHARGED_ANSWER_BYTES_MAX};
use crate::operation::{Context as Operations, Permission};
use crate::origin::{Caller, Client, Face};
use crate::record::{Record, RequestName, WHY};
use crate::table::paths::PathNames;
use crate::text::cut;
use crate::text_errors;
use crate::verbose;
use engine::ModelVersion;
use memory::{Kind, Short};
use protocol::InferRequest;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use tensor::{Name, Result};
use trace::{Context, Trace};

impl<'a> HttpExchange<'a> {
    /// Begins the exchange of a request whose head was read, and checks route, gate and method, in this order (P 1.2,
    /// P 1.12.2). `protocol`: the version of HTTP, as in the logs.
    ///
    /// Returns the maximum of bytes in the body to read, or the reply to a request that is rejected.
    pub fn begin(
        context: &'a HttpContext,
        client: &Client,
        head: &'a RequestHead,
        protocol: &'static str,
        find: FindRoute,
        account: &memory::Account,
    ) -> (Self, Result<u64, Box<Reply>>) {
        let inflight = context.shared.request();
        let route = std::str::from_utf8(head.path()).ok().and_then(|path| find(head.method, path));
        let facts = route.map(|route| route.endpoint.facts());
        let record = Record::begin(&context.shared, &client.caller, facts, head.asks_why, || {
            named(route.as_ref(), head, protocol)
        });
        let with = Exchange::new(client.caller, account.clone(), record);
        let charge = Cell::default();
        let mut exchange = Self { context, head, protocol, route, find, with, charge, _inflight: inflight };
        let (grant, admission) = exchange.admit(client);
        exchange.with.admitted(grant);
        (exchange, admission)
    }

    /// From now on there is a record of the request: it fails, or its client left. True if there was none.
    #[inline]
    pub fn needs_record(&self) -> bool {
        let Self { context, with, .. } = self;
        with.record.begin_late(&context.shared, &with.caller, || self.request_name())
    }

    /// Connects an inference with the record, for which the request itself may ask.
    pub fn follow(&self, request: &mut InferRequest) {
        read_question(&self.with.record, request, || {
            // Another record was there when the version was found.
            if self.needs_record()
                && let Ok(version) = self.version()
            {
                self.accept(version);
            }
        });
        self.with.follow(request);
    }

    /// The model rejects the request with this id.
    pub fn rejects(&self, id: &Name) {
        self.needs_record();
        self.with.record.identify(id);
    }

    /// The inference waits for its model; see [`Record::waits`].
    pub fn waits_for(&self, version: &ModelVersion, measured: Option<&Trace>) {
        self.with.record.waits(version, measured);
    }

    #[cold]
    fn request_name(&self) -> RequestName {
        named(self.route.as_ref(), self.head, self.protocol)
    }

    fn admit(&self, client: &Client) -> (Grant, Result<u64, Box<Reply>>) {
        let Self { context, head, .. } = self;
        verbose::http_request(head.method, head.path());
        let Some(route) = self.route else { return (Grant::default(), Err(Box::new(self.not_found()))) };
        if client.caller.face == Face::Crowded && !route.endpoint.facts().is_for_crowd {
            return (Grant::default(), Err(Box::new(Reply::refused(&GateError::Crowded).closing())));
        }
        if let Some(cors) = &context.cors
            && head.method == Method::OPTIONS
            && let Some(reply) = cors.preflight(|name| head.headers.get(name))
        {
            return (Grant::default(), Err(Box::new(reply)));
        }
        let is_page = route.endpoint.facts().has_page && head.accepts(b"text/html");
        let admitted = route
            .ask()
            .filter(|_| !is_page)
            .map(|ask| context.gate.admit(client, &ask, |name, at| head.headers.all(name).nth(at)));
        let grant = match admitted.transpose() {
            Ok(grant) => grant.unwrap_or_default(),
            Err(refusal) => return (Grant::default(), Err(Box::new(self.refused(&refusal)))),
        };
        if !route.is_allowed {
            return (grant, Err(Box::new(Reply::text_error(405, JSON, "Method Not Allowed"))));
        }
        match route.endpoint.admit(&grant, head) {
            Ok(()) => (grant, Ok(route.endpoint.body_bytes_max(self))),
            Err(refusal) => (Grant::default(), Err(Box::new(Reply::refused(&refusal)))),
        }
    }

    /// The reply to a caller without permission; on the port of OpenAI's form in the words of Triton's front end.
    #[cold]
    fn refused(&self, refusal: &GateError) -> Reply {
        let GateError::Restricted { header, .. } = refusal else { return Reply::refused(refusal) };
        if !self.context.is_openai {
            return Reply::refused(refusal);
        }
        let text = format!("This API is restricted, expecting header '{header}' with valid value");
        let mut reply = Reply::text_error(401, JSON, &text);
        if let Some(failure) = &mut reply.failure {
            failure.text.kind = FailureKind::Restricted;
        }
        reply
    }

    /// No route has this path. The reply to a gRPC call names the port for such calls.
    #[cold]
    fn not_found(&self) -> Reply {
        let Self { context, head, .. } = self;
        verbose::http_not_found(head.method, head.path());
        let is_grpc = head.headers.get("content-type").is_some_and(|media| media.starts_with(b"application/grpc"));
        match context.shared.strays().at_http() {
            Some(text) if is_grpc => Reply::grpc(code::UNIMPLEMENTED, &text),
            _ => {
                let path = std::str::from_utf8(head.path()).ok();
                let slashed = path.and_then(|path| path.strip_suffix('/'));
                let text = match slashed.filter(|path| (self.find)(head.method, path).is_some()) {
                    Some(path) => format!("Not Found: remove the slash at the end: the path is {path}").into(),
                    None if head.path().starts_with(text_errors::PREFIX) => text_errors::not_served(path),
                    None => Cow::Borrowed("Not Found"),
                };
                Reply::text_error(404, JSON, &cut(&text))
            }
        }
    }

    /// The form of errors of a text endpoint. Paths beside them have it as well: clients of the same kind ask for them.
    #[inline]
    fn text_form(&self) -> Option<ErrorForm> {
        match self.route {
            Some(route) => route.endpoint.facts().text,
            None => self.head.path().starts_with(text_errors::PREFIX).then_some(ErrorForm::OpenAi),
        }
    }

    /// Names in the path; empty without a route.
    pub fn names(&self) -> PathNames<'a> {
        self.route.map(|route| route.names).unwrap_or_default()
    }

    /// Context of an operation. The path names the operation and the model, so that all is checked.
    pub fn operations(&self) -> Operations<'a> {
        let HttpContext { engine, control, .. } = self.context;
        Operations { engine, control: &**control, permission: Permission::Checked }
    }

    /// The version that the path names; see [`Exchange::version`].
    #[inline]
    pub fn version(&self) -> Result<&Arc<ModelVersion>> {
        let PathNames { model, version, .. } = self.names();
        self.with.version(&self.context.engine, model, version)
    }

    /// Notes that this version accepts the inference; see [`Exchange::accept`].
    #[inline]
    pub fn accept(&self, version: &ModelVersion) {
        self.with.accept(version, || {
            let states = self.head.headers.pairs().filter(|(name, _)| name.eq_ignore_ascii_case(b"tracestate"));
            Context::parse(self.head.headers.get("traceparent")?, states.map(|(_, value)| value))
        });
    }

    /// The reply to a request that is rejected whatever its body contains; `None` if the body decides. Called before a
    /// body is read that is long or awaits `100 Continue`: 2 GB would be read, and held, for a model that does not
    /// exist.
    #[cold]
    pub fn reject_early(&self) -> Option<Reply> {
        self.route?.endpoint.reject_early(self)
    }

    /// Where a body of `length` bytes is read to. `takes_regions`: the connection can read into a region.
    #[inline]
    pub fn body_place(&self, length: usize, takes_regions: bool) -> BodyPlace {
        match self.route {
            Some(route) if length > INLINE_BODY_BYTES_MAX => route.endpoint.body_place(self, length, takes_regions),
            _ => BodyPlace::Buffer,
        }
    }

    /// The reply to a body of `bytes` bytes, more than the operation takes. The body was not read to its end.
    #[cold]
    pub fn too_large(&self, bytes: u64) -> Reply {
        self.route.map_or_else(|| self.not_found(), |route| route.endpoint.too_large(self, bytes))
    }

    /// The reply to a request for which there is no memory.
    #[cold]
    pub fn short(&self, short: &Short) -> Reply {
        self.with.account.count_refusal();
        Reply::short(short)
    }

    /// The answer to a request whose body was read.
    #[inline]
    pub fn answer(&'a self, body: RequestBody) -> HttpAnswer<'a> {
        self.with.received(&body.bytes, body.len() - body.bytes.len());
        match self.route {
            Some(route) => route.endpoint.http(self, body),
            None => HttpAnswer::Ready(self.not_found()),
        }
    }

    /// Completes a reply before it is written: its charge, the fields that all replies have, and the notes of it.
    /// `used`: bytes charged to the account for this request, which may be part of the response.
    #[inline]
    pub fn complete(&self, reply: &mut Reply, used: usize) {
        let length = reply.body_length();
        // A client may read its response slowly.
        if length > UNCHARGED_ANSWER_BYTES_MAX && !reply.is_charged {
            match self.with.account.charge(Kind::Answer, false, length.saturating_sub(used)) {
                Ok(charge) => self.charge.set(Some(charge)),
                Err(short) => *reply = self.short(&short),
            }
        }
        if let Some(cors) = &self.context.cors {
            cors.add(self.head.headers.get("origin"), reply);
        }
        if let Some(form) = self.text_form() {
            text_errors::complete(form, self.context.openai_errors_as_triton, self.head, reply);
        }
        self.with.advance(ExchangePhase::Answered);
        if reply.status >= 400 {
            self.needs_record();
        }
        note_reply(&self.with.record, reply);
        if reply.rest.is_none() {
            if let Some(why) = self.with.why() {
                reply.add(WHY, why);
            }
        } else if self.with.record.is_asked() && self.head.http11 && self.with.caller.face != Face::Embedded {
            // Behind the events, where all is known.
            reply.add("trailer", WHY);
        }
        self.with.grant.charge(reply.body_length());
    }

    /// Makes a reply hold the permission and the memory of the request until it was written, because the driver ends
    /// before that.
    pub fn hand_over(&self, reply: &mut Reply) {
        let Some(last) = reply.body.last_mut() else { return };
        if self.with.grant.is_some() {
            *last = self.with.grant.hold(std::mem::take(last));
        }
        if let Some(charge) = self.charge.take() {
            *last = charge.hold(std::mem::take(last));
        }
    }

    /// The reply was written. Called again when the events behind it were.
    #[inline]
    pub fn sent(&self) {
        let Self { context, with, .. } = self;
        with.advance(ExchangePhase::Sent);
        with.record.begin_at_end(&context.shared, &with.caller, || self.request_name());
        with.record.sent();
    }
}

/// The request line of a request, for its record.
#[cold]
fn named(route: Option<&Route<'_>>, head: &RequestHead, protocol: &'static str) -> RequestName {
    let endpoint = route.map(|route| (route.endpoint.facts(), route.is_allowed, route.names));
    RequestName::http(protocol, head.method, head.path_bytes(), endpoint)
}

/// A request whose head is invalid. Its record ends when this is dropped.
pub struct RefusedHead(Record);

impl RefusedHead {
    /// The reply was written.
    pub fn sent(self) {
        self.0.sent();
    }
}

/// Begins the record of a request whose head is invalid, answered by `reply`.
#[cold]
pub fn refuse_head(context: &HttpContext, caller: &Caller, protocol: &'static str, reply: &Reply) -> RefusedHead {
    let head = RequestHead::default();
    let record = Record::begin(&context.shared, caller, None, false, || named(None, &head, protocol));
    note_reply(&record, reply);
    RefusedHead(record)
}

/// Notes a reply that is about to be written, and counts it if it is a failure.
#[inline]
fn note_reply(record: &Record, reply: &Reply) {
    if let Some(failure) = reply.failure {
        failure.count();
    }
    record.replying(reply.status, reply.failure, reply.body_length(), &reply.body);
}
