//! From a request head to the operation; health.

use super::body::RequestBody;
use super::context::HttpContext;
use super::method::Method;
use super::reply::{JSON, PLAIN, Reply};
use super::request::RequestHead;
use super::{control, generate, inference, orca};
use crate::gate::Grant;
use crate::grpc::status::code;
use crate::limits::{BODY_BYTES_MAX, DISCARD_BYTES_MAX, JSON_BYTES_ON_REACTOR_MAX};
use crate::operations::models;
use crate::origin::Client;
use crate::table::Operation;
use crate::table::routes::{PathNames, Route};
use crate::text::cut;
use crate::verbose;
use engine::ReadinessState;
use memory::Account;
use tensor::{Error, RegionRef};

/// The next step for a request whose body was not read yet.
pub enum Admission<'a> {
    /// Answer without reading the body.
    Reply(Reply),
    /// Read a body of at most `bytes_max`, then `respond`.
    Read { route: Route<'a>, bytes_max: u64 },
}

/// Checks route, gate and method, in this order (P 1.2, P 1.12.2). The caller keeps the grant until it has responded.
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

/// No route has this path. The reply to a gRPC call names the port for such calls.
#[cold]
fn not_found(context: &HttpContext, head: &RequestHead) -> Reply {
    verbose::http_not_found(head.method, head.path());
    let is_grpc = head.headers.get("content-type").is_some_and(|media| media.starts_with(b"application/grpc"));
    match context.shared.strays().at_http() {
        Some(text) if is_grpc => Reply::grpc(code::UNIMPLEMENTED, &text),
        _ => {
            let path =
                std::str::from_utf8(head.path()).ok().and_then(|path| Route::path_without_slash(head.method, path));
            let text = path.map(|path| format!("Not Found: the path has a slash at its end, which {path} has not"));
            Reply::text_error(404, JSON, &cut(text.as_deref().unwrap_or("Not Found")))
        }
    }
}

/// The reply to a request that is rejected whatever its body contains; `None` if the body decides. Called before a body
/// is read that is long or awaits `100 Continue`: 2 GB would be read, and held, for a model that does not exist.
#[cold]
pub fn reject_by_head(context: &HttpContext, route: &Route<'_>, head: &RequestHead) -> Option<Reply> {
    let PathNames { model, version, .. } = route.names;
    match route.operation {
        Operation::Infer => inference::reject_by_head(context, model, version, head),
        Operation::Generate | Operation::GenerateStream => generate::reject_by_head(context, model, version, head),
        _ => None,
    }
}

/// Whether a body is read into memory for devices: it has raw tensors for a model on one. Without devices one branch.
pub fn is_near_device(context: &HttpContext, route: &Route<'_>, head: &RequestHead) -> bool {
    memory::has_devices()
        && route.operation == Operation::Infer
        && context.engine.model(route.names.model, route.names.version).is_ok_and(|model| model.reads_on_device())
        && head.headers.get("inference-header-content-length").is_some()
        && head.headers.get("content-encoding").is_none()
}

/// Memory of the model's process for the binary part of a body of `length` bytes, and the bytes of JSON before it.
/// `None` if the body is read into memory of the server.
pub fn lend_input(
    context: &HttpContext,
    route: &Route<'_>,
    head: &RequestHead,
    length: usize,
) -> Option<(usize, RegionRef)> {
    if route.operation != Operation::Infer || head.headers.get("content-encoding").is_some() {
        return None;
    }
    let json = head.json_length().filter(|json| (1..=JSON_BYTES_ON_REACTOR_MAX).contains(json))?;
    let model = context.engine.model(route.names.model, route.names.version).ok()?;
    Some((json, model.lend_input(length.checked_sub(json)?)?))
}

/// Adds what every reply has in common.
#[inline]
pub fn complete(context: &HttpContext, head: &RequestHead, reply: &mut Reply) {
    if let Some(cors) = &context.cors {
        cors.add(head.headers.get("origin"), reply);
    }
}

/// The reply to a body of `bytes` bytes, more than the operation takes. The body was not read to its end.
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

/// Answers a request. Rare operations are boxed: the future of every request has the size of its largest state.
pub async fn respond(
    context: &HttpContext,
    account: &Account,
    route: Route<'_>,
    head: &RequestHead,
    body: RequestBody,
) -> Reply {
    let PathNames { model, version, .. } = route.names;
    match route.operation {
        Operation::Infer => {
            let reply = inference::infer(context, account, model, version, head, body).await;
            orca::add_load_report(context, head, reply)
        }
        Operation::Generate | Operation::GenerateStream => {
            let stream = route.operation == Operation::GenerateStream;
            let reply = Box::pin(generate::generate(context, account, model, version, head, &body.bytes, stream)).await;
            orca::add_cache_report(context, model, version, head, reply)
        }
        Operation::ModelReady => match models::readiness(&context.operations(), model, version) {
            Ok(ready) => match said(ready).await {
                true => Reply::empty(PLAIN),
                false => Reply::text_error(400, JSON, "Model version not ready"),
            },
            Err(error) => Reply::failed(&error),
        },
        Operation::ServerLive => health(head, "live", context.engine.is_live()),
        Operation::ServerReady => health(head, "ready", said(context.engine.readiness()).await),
        _ => Box::pin(control::answer(context, route, head, body.bytes)).await,
    }
}

/// Waits for readiness. Boxed if models are asked, see [`respond`].
async fn said(ready: ReadinessState) -> bool {
    match ready {
        ReadinessState::Known(ready) => ready,
        ReadinessState::Queried(asking) => Box::pin(asking).await,
    }
}

/// A status without a body, as in Triton: scripts print the body before the status and compare with `200`. A request
/// whose `Accept` names JSON gets the body of the Open Inference Protocol.
fn health(head: &RequestHead, what: &str, is_good: bool) -> Reply {
    let status = if is_good { 200 } else { 400 };
    match head.accepts(b"application/json") {
        true => Reply::new(status, JSON, format!(r#"{{"{what}":{is_good}}}"#)),
        false => Reply::new(status, PLAIN, ""),
    }
}
