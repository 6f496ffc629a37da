//! From a request head to the operation, and the operations that need nothing but a look: health, metadata, configuration,
//! statistics.

use super::method::Method;
use super::reply::{JSON, PLAIN, Reply};
use super::request::RequestHead;
use super::{control, generate, inference, orca};
use crate::access::Restrictions;
use crate::control::Control;
use crate::cors::Cors;
use crate::forward::HeaderForward;
use crate::gate::{Gate, GateOptions, Grant};
use crate::grpc::connection::GrpcContext;
use crate::grpc::status::code;
use crate::limits::{BODY_BYTES_MAX, DISCARD_BYTES_MAX, ENTRIES_ON_REACTOR_MAX, MODELS_ON_REACTOR_MAX};
use crate::offload::{self, Abandoned};
use crate::options::HttpOptions;
use crate::origin::Client;
use crate::shared::Shared;
use crate::table::Operation;
use crate::table::routes::{Names, Route};
use crate::verbose;
use bytes::Bytes;
use engine::{Engine, Ready};
use memory::Account;
use protocol::http::{Limits, model_metadata_json, server_metadata_json};
use std::borrow::Cow;
use std::sync::Arc;
use tensor::{Error, Result};

/// What every HTTP connection knows.
pub struct HttpContext {
    /// Models.
    pub engine: Arc<Engine>,
    /// Decides control operations.
    pub control: Arc<dyn Control>,
    /// How far the shutdown is.
    pub shared: Arc<Shared>,
    /// Who may ask for what.
    pub gate: Gate,
    /// Which web pages may read answers; `None` = none.
    pub cors: Option<Arc<Cors>>,
    /// Forwarded headers.
    pub forward: HeaderForward,
    /// On the control address: who answers the calls of gRPC that come over HTTP/2.
    pub grpc: Option<Arc<GrpcContext>>,
    /// Bounds of one request.
    pub limits: Limits,
}

impl HttpContext {
    /// Compiles the options.
    ///
    /// # Errors
    /// INVALID_ARG for options that cannot be.
    pub fn new(
        engine: Arc<Engine>,
        control: Arc<dyn Control>,
        shared: Arc<Shared>,
        options: &HttpOptions,
        gate: GateOptions,
    ) -> Result<Self> {
        let cors = Cors::new(&options.cors_origins)?.map(Arc::new);
        let limits = Limits { input_bytes_max: engine.options().http_input_bytes_max, ..Limits::default() };
        Ok(Self {
            engine,
            control,
            shared,
            gate: Gate::new(
                "API",
                Restrictions::new("api", &options.restrictions)?,
                GateOptions { cors: cors.clone(), ..gate },
            ),
            cors,
            forward: HeaderForward::new(&options.header_forward_pattern)?,
            grpc: None,
            limits,
        })
    }
}

/// What to do with a request whose body was not read yet.
pub enum Admission<'a> {
    /// Answer; the body is not wanted.
    Reply(Reply),
    /// Read a body of at most `bytes_max`, then `respond`.
    Read { route: Route<'a>, bytes_max: u64 },
}

/// Route, gate, method: in this order (P 1.2, P 1.12.2). The grant is to live until the answer was written.
pub fn admit<'a>(context: &HttpContext, client: &Client, head: &'a RequestHead) -> (Grant, Admission<'a>) {
    verbose::http_request(head.method, head.path());
    let Some(route) = std::str::from_utf8(head.path()).ok().and_then(|path| Route::find(head.method, path)) else {
        return (Grant::default(), Admission::Reply(not_found(context, head)));
    };
    if let Some(cors) = &context.cors
        && head.method == Method::OPTIONS
        && let Some(reply) = cors.preflight(|name| head.headers.get(name))
    {
        return (Grant::default(), Admission::Reply(reply));
    }
    let admitted = route.ask().map(|ask| context.gate.admit(client, &ask, |name, at| head.headers.all(name).nth(at)));
    let grant = match admitted.transpose() {
        Ok(grant) => grant.unwrap_or_default(),
        Err(refusal) => return (Grant::default(), Admission::Reply(Reply::refused(&refusal))),
    };
    if !route.is_allowed {
        return (grant, Admission::Reply(Reply::text_error(405, JSON, "Method Not Allowed")));
    }
    let bytes_max = match route.operation {
        Operation::Infer => BODY_BYTES_MAX,
        // Its query may name a model, which the path does not.
        Operation::OpenApi => match control::admit_described(&grant, head.query()) {
            Ok(()) => DISCARD_BYTES_MAX,
            Err(refusal) => return (Grant::default(), Admission::Reply(Reply::refused(&refusal))),
        },
        _ if matches!(head.method, Method::Get | Method::HEAD) => DISCARD_BYTES_MAX,
        _ => context.limits.input_bytes_max as u64,
    };
    (grant, Admission::Read { route, bytes_max })
}

/// No route has this path. A call of gRPC is told where calls are answered.
#[cold]
fn not_found(context: &HttpContext, head: &RequestHead) -> Reply {
    verbose::http_not_found(head.method, head.path());
    let is_grpc = head.headers.get("content-type").is_some_and(|media| media.starts_with(b"application/grpc"));
    match context.shared.strays().at_http() {
        Some(text) if is_grpc => Reply::grpc(code::UNIMPLEMENTED, &text),
        _ => Reply::text_error(404, JSON, "Not Found"),
    }
}

/// The answer to a request that is refused whatever its body says. Asked before a body is read that is long, or that the client waits to
/// be asked for: one of 2 GB would else be read, and held, for a model that does not exist. `None`: its body decides.
#[cold]
pub fn refused_by_head(context: &HttpContext, route: &Route<'_>, head: &RequestHead) -> Option<Reply> {
    let Names { model, version, .. } = route.names;
    match route.operation {
        Operation::Infer => inference::refused_by_head(context, model, version, head),
        Operation::Generate | Operation::GenerateStream => generate::refused_by_head(context, model, version, head),
        _ => None,
    }
}

/// Whether a body is read where devices read it themselves: it has raw tensors, and its model runs on one. Without devices one branch.
pub fn is_near_device(context: &HttpContext, route: &Route<'_>, head: &RequestHead) -> bool {
    memory::has_devices()
        && route.operation == Operation::Infer
        && context.engine.model(route.names.model, route.names.version).is_ok_and(|model| model.reads_on_device())
        && head.headers.get("inference-header-content-length").is_some()
        && head.headers.get("content-encoding").is_none()
}

/// What every answer says beside what it is.
#[inline]
pub fn complete(context: &HttpContext, head: &RequestHead, reply: &mut Reply) {
    if let Some(cors) = &context.cors {
        cors.add(head.headers.get("origin"), reply);
    }
}

/// The reply to a body of `bytes`, more than the operation takes. The body was not read to its end.
pub fn too_large(context: &HttpContext, route: Route<'_>, bytes: u64) -> Reply {
    match route.operation {
        Operation::Infer => {
            // The model comes first in the order of checks, even here.
            let error = context.engine.model(route.names.model, route.names.version).err().unwrap_or_else(|| {
                let text = bytes.to_string();
                let parsed = protocol::http::parse_content_length(&text).err();
                parsed.unwrap_or_else(|| Error::invalid(format!("Unable to parse Content-Length, got: {text}")))
            });
            Reply::error(JSON, &error)
        }
        _ => {
            let checked = context.limits.check_json(usize::try_from(bytes).unwrap_or(usize::MAX));
            let error = checked.err().unwrap_or_else(|| Error::invalid("the request has a body that is not wanted"));
            Reply::error(JSON, &error)
        }
    }
}

/// Does what the request asks. Rare operations are boxed: the future of every request is as large as the largest it may become.
pub async fn respond(
    context: &HttpContext,
    account: &Account,
    route: Route<'_>,
    head: &RequestHead,
    body: Bytes,
) -> Reply {
    let engine = &*context.engine;
    let json = |result: Result<Bytes>| match result {
        Ok(body) => Reply::json(body),
        Err(error) => Reply::error(JSON, &error),
    };
    let Names { model, version, region, repository } = route.names;
    match route.operation {
        Operation::Infer => {
            let reply = inference::infer(context, account, model, version, head, body).await;
            orca::add_load_report(context, head, reply)
        }
        Operation::Generate | Operation::GenerateStream => {
            let stream = route.operation == Operation::GenerateStream;
            let reply = Box::pin(generate::generate(context, account, model, version, head, &body, stream)).await;
            orca::add_cache_report(context, model, version, head, reply)
        }
        Operation::ModelReady => match engine.model_ready(model, version) {
            Ok(ready) => match said(ready).await {
                true => Reply::empty(PLAIN),
                false => Reply::text_error(400, JSON, "Model version not ready"),
            },
            Err(error) => Reply::error(JSON, &error),
        },
        Operation::ModelMetadata => json(Box::pin(metadata(context, model, version)).await),
        Operation::ModelConfig => json(engine.model(model, version).map(|v| v.identity.config_json())),
        Operation::ModelStatistics | Operation::AllStatistics => {
            json(Box::pin(statistics(context, model, version)).await)
        }
        Operation::ServerMetadata => {
            let m = engine.server_metadata();
            Reply::json(server_metadata_json(&m.name, &m.version, &m.extensions))
        }
        Operation::ServerLive => health(head, "live", engine.is_live()),
        Operation::ServerReady => health(head, "ready", said(engine.readiness()).await),
        Operation::OpenApi => Box::pin(control::openapi(context, head.query())).await,
        Operation::Models => Box::pin(control::models(context)).await,
        Operation::Home | Operation::Docs | Operation::DocsScript | Operation::DocsStyle => {
            Box::pin(control::page(context, route.operation, head)).await
        }
        Operation::LogSettings | Operation::LogUpdate => {
            Box::pin(control::logging(context, route.operation, &body)).await
        }
        Operation::TraceSettings | Operation::TraceUpdate => {
            Box::pin(control::trace(context, model, route.operation, &body)).await
        }
        Operation::Index => Box::pin(control::index(context, &body)).await,
        Operation::Load | Operation::Unload => {
            let load = route.operation == Operation::Load;
            Box::pin(control::repository_model(context, repository, model, load, &body)).await
        }
        Operation::SystemRegionStatus
        | Operation::SystemRegionRegister
        | Operation::SystemRegionUnregister
        | Operation::CudaRegionStatus
        | Operation::CudaRegionRegister
        | Operation::CudaRegionUnregister => {
            // Clients percent-encode region names in the path and not in requests: decoded once here, they meet (memory.md 1.4).
            Box::pin(control::shared_memory(context, route.operation, &percent_decode(region), body)).await
        }
        // gRPC alone asks for these.
        Operation::StreamInfer
        | Operation::HealthCheck
        | Operation::HealthWatch
        | Operation::LoadReports
        | Operation::Reflection => Reply::text_error(404, JSON, "Not Found"),
    }
}

async fn metadata(context: &HttpContext, name: &str, version: &str) -> Result<Bytes> {
    let model = context.engine.model(name, version)?;
    let versions = if version.is_empty() { context.engine.ready_versions(name) } else { vec![model.identity.number] };
    let is_long = model.signature.inputs.len() + model.signature.outputs.len() > ENTRIES_ON_REACTOR_MAX;
    let make = move |_: &Abandoned<'_>| model_metadata_json(&model.signature, &versions, &model.identity.platform);
    if is_long { offload::run(0, make).await } else { Ok(make(&Abandoned::never())) }
}

async fn statistics(context: &HttpContext, name: &str, version: &str) -> Result<Bytes> {
    let engine = context.engine.clone();
    let models = if name.is_empty() { engine.models() } else { engine.ready_versions(name).len() };
    let (name, version) = (name.to_owned(), version.to_owned());
    let make = move |_: &Abandoned<'_>| -> Result<Bytes> {
        let text = Bytes::from(engine::statistics_json(&engine.statistics(&name, &version)?));
        Ok(offload::disposed(text))
    };
    if models > MODELS_ON_REACTOR_MAX { offload::run(0, make).await? } else { make(&Abandoned::never()) }
}

/// Whether it is ready. Boxed where models are asked: the future of every request is as large as the largest it may become.
async fn said(ready: Ready) -> bool {
    match ready {
        Ready::Known(ready) => ready,
        Ready::Asked(asking) => Box::pin(asking).await,
    }
}

/// A status without a body, as Triton: scripts print the body before the status and compare with `200`. A request whose `Accept` names
/// JSON gets the body of the Open Inference Protocol.
fn health(head: &RequestHead, what: &str, is_good: bool) -> Reply {
    let status = if is_good { 200 } else { 400 };
    match accepts(head, b"application/json") {
        true => Reply::new(status, JSON, format!(r#"{{"{what}":{is_good}}}"#)),
        false => Reply::new(status, PLAIN, ""),
    }
}

/// Whether `Accept` names this media type. `*/*`, which most clients send, names none.
pub fn accepts(head: &RequestHead, media: &[u8]) -> bool {
    let accept = head.headers.get("accept").unwrap_or_default();
    let range = |entry: &[u8]| entry.split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    accept.split(|b| *b == b',').any(|entry| range(entry) == media)
}

/// Decodes `%XX`; what is no such escape, or does not decode to UTF-8, stays as it is.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let decoded =
            digits.filter(|d| byte == b'%' && !d.starts_with('+')).and_then(|d| u8::from_str_radix(d, 16).ok());
        out.push(decoded.unwrap_or(byte));
        rest = if decoded.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_names_are_decoded_once() {
        for (text, expected) in [
            ("a", "a"),
            ("a%20b", "a b"),
            ("100%", "100%"),
            ("%zz", "%zz"),
            ("%2541", "%41"),
            ("%ff", "%ff"),
            ("%+1", "%+1"),
        ] {
            assert_eq!(percent_decode(text), expected);
        }
    }
}
