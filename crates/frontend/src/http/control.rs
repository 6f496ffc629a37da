//! Operations that are decided elsewhere (repository, settings) or in `memory` (shared memory regions): bodies checked for
//! syntax, turned into the JSON of the native contract, replies handed on.

use super::reply::{JSON, Reply};
use super::request::RequestHead;
use super::service::{HttpContext, accepts, percent_decode};
use crate::control::{Argument, ControlOperation, check, check_files};
use crate::gate::Grant;
use crate::limits::JSON_BYTES_ON_REACTOR_MAX;
use crate::offload;
use crate::refusal::Refusal;
use crate::regions;
use crate::table::Operation;
use crate::text::Text;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use engine::Engine;
use memory::{RegionKind, Source};
use protocol::json::Value;
use std::borrow::Cow;
use tensor::{Error, Result};

fn reply(result: Result<impl Into<Bytes>>) -> Reply {
    match result {
        Ok(body) => Reply::json(body),
        Err(error) => Reply::error(JSON, &error),
    }
}

/// A body that may be missing.
fn optional(body: &Bytes) -> Result<Option<Value<'_>>> {
    if body.is_empty() { Ok(None) } else { Value::parse(body).map(Some) }
}

async fn call(context: &HttpContext, operation: ControlOperation, argument: Text) -> Reply {
    match argument.into_string().and_then(|argument| check(operation, argument)) {
        Ok(argument) => reply(context.control.call(operation, argument.into()).await),
        Err(error) => Reply::error(JSON, &error),
    }
}

/// Does what reads a body: elsewhere, if the body is long.
async fn read<T: Send + 'static>(body: &Bytes, work: impl FnOnce(&Bytes) -> Result<T> + Send + 'static) -> Result<T> {
    if body.len() <= JSON_BYTES_ON_REACTOR_MAX {
        return work(body);
    }
    let body = body.clone();
    offload::run(body.len(), move |_| work(&body)).await?
}

/// `…/index`.
pub async fn index(context: &HttpContext, body: &Bytes) -> Reply {
    let ready = read(body, |body| match optional(body)?.and_then(|v| v.get("ready")) {
        None => Ok(false),
        Some(ready) => ready.as_bool().map_err(|_| Error::invalid("Invalid value for 'ready': expected a boolean")),
    });
    let ready = match ready.await {
        Ok(ready) => ready,
        Err(error) => return Reply::error(JSON, &error),
    };
    let mut argument = Text::begin(b'{');
    argument.key("ready").boolean(ready).close(b'}');
    call(context, ControlOperation::RepositoryIndex, argument).await
}

/// `…/load` and `…/unload`.
pub async fn repository_model(context: &HttpContext, repository: &str, model: &str, load: bool, body: &Bytes) -> Reply {
    if !repository.is_empty() {
        let error = Error::unsupported("'repository_name' specification is not supported");
        return Reply::error(JSON, &error);
    }
    let model = model.to_owned();
    let argument = read(body, move |body| {
        let parameters = optional(body)?.and_then(|v| v.get("parameters"));
        let mut argument = Text::begin(b'{');
        let mut files = Vec::new();
        argument.key("model").string(&model);
        if load {
            argument.key("parameters");
            match parameters.filter(|p| p.is_object() && p.text().len() > JSON_BYTES_ON_REACTOR_MAX) {
                Some(parameters) => files = without_files(parameters, &mut argument)?,
                // Whatever it is: what is wrong with a value that is no object is decided where the others are.
                None => _ = argument.raw(parameters.map_or(b"{}", |p| p.text())),
            }
        } else {
            // What is not a boolean is false, and the unload goes on (P 1.8).
            let dependents = parameters.and_then(|p| p.get("unload_dependents")?.as_bool().ok()).unwrap_or(false);
            argument.key("unload_dependents").boolean(dependents);
        }
        argument.close(b'}');
        Ok(Argument { json: argument.into_string()?, files })
    });
    let operation = if load { ControlOperation::RepositoryLoad } else { ControlOperation::RepositoryUnload };
    match argument.await {
        // The reply is `{}`; over HTTP success has no body.
        Ok(argument) => reply(context.control.call(operation, argument).await.map(|_| Bytes::new())),
        Err(error) => Reply::error(JSON, &error),
    }
}

/// Writes the parameters of a load, but for the files among them, which are decoded. One that is not base64 stays: what is told of it
/// is decided where the others are.
fn without_files(parameters: Value<'_>, argument: &mut Text) -> Result<Vec<(String, Vec<u8>)>> {
    let decoded = |value: Value<'_>| decode_base64(&value.as_text().ok()?.decode());
    check_files(parameters.members()?.filter(|(key, _)| key.decode().starts_with(b"file:")).count())?;
    let mut files = Vec::new();
    argument.open(b'{');
    for (key, value) in parameters.members()? {
        // A name that is not UTF-8 is refused with the text as a whole.
        let name = key.decode();
        let contents = if name.starts_with(b"file:") { decoded(value) } else { None };
        match (contents, std::str::from_utf8(&name)) {
            (Some(contents), Ok(name)) => files.push((name.to_owned(), contents)),
            (_, Ok(name)) => _ = argument.key(name).raw(value.text()),
            (_, Err(_)) => return Err(Error::invalid("the request holds text that is not UTF-8")),
        }
    }
    argument.close(b'}');
    Ok(files)
}

/// Of either alphabet, padded or not.
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabets = [base64::alphabet::STANDARD, base64::alphabet::URL_SAFE];
    alphabets.iter().find_map(|alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(text).ok())
}

/// A value of a query; the first of several, empty when there is none. Names are percent-decoded, as everywhere in a query.
fn given<'q>(query: &'q [u8], name: &str) -> Cow<'q, str> {
    let pairs = query.split(|&b| b == b'&').filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| percent_decode(value)).next().unwrap_or_default()
}

/// Whether a caller may have the model described that the query of `/v2/openapi.json` names.
///
/// # Errors
/// Why not.
pub fn admit_described(grant: &Grant, query: &[u8]) -> std::result::Result<(), Refusal> {
    match given(query, "model") {
        model if model.is_empty() => Ok(()),
        model => grant.admit_model(&model),
    }
}

/// `/v2/openapi.json`, with `?model=` and `&version=` of one model.
pub async fn openapi(context: &HttpContext, query: &[u8]) -> Reply {
    let mut argument = Text::begin(b'{');
    argument.key("model").string(&given(query, "model")).key("version").string(&given(query, "version")).close(b'}');
    call(context, ControlOperation::OpenApi, argument).await
}

/// `/v2/models`.
pub async fn models(context: &HttpContext) -> Reply {
    let mut argument = Text::begin(b'{');
    argument.key("page").string("/v2/models").close(b'}');
    call(context, ControlOperation::Page, argument).await
}

/// What browsers do with a page: nothing of another server is loaded, nothing in the page itself is run, and no other page shows it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Pages for people. `/` is JSON for clients that do not ask for HTML.
pub async fn page(context: &HttpContext, page: Operation, head: &RequestHead) -> Reply {
    let is_home = page == Operation::Home;
    let is_html = page == Operation::Docs || (is_home && accepts(head, b"text/html"));
    let path = String::from_utf8_lossy(head.path());
    let host = head.headers.get("host").and_then(|host| std::str::from_utf8(host).ok());
    // Over HTTP/2 the host is that of the target, which is not among the fields.
    let mut argument = Text::begin(b'{');
    argument.key("page").string(&path).key("html").boolean(is_html);
    argument.key("host").string(host.unwrap_or_default()).close(b'}');
    let mut reply = call(context, ControlOperation::Page, argument).await;
    if reply.status == 200 {
        reply.content_type = match page {
            Operation::DocsScript => "text/javascript; charset=utf-8",
            Operation::DocsStyle => "text/css; charset=utf-8",
            _ if is_html => "text/html; charset=utf-8",
            _ => JSON,
        };
    }
    reply.add("content-security-policy", POLICY);
    reply.add("x-content-type-options", "nosniff");
    reply.add("referrer-policy", "no-referrer");
    // Names of models are for whoever may ask for them, and not for those who ask a cache.
    reply.add("cache-control", if is_home { "no-store" } else { "no-cache" });
    if is_home {
        reply.add("vary", "accept");
    }
    reply
}

/// `/v2/logging`.
pub async fn logging(context: &HttpContext, operation: Operation, body: &Bytes) -> Reply {
    settings(context, None, operation, body, ControlOperation::LogGet, ControlOperation::LogUpdate).await
}

/// `…/trace/setting`; `model` is empty for the global settings.
pub async fn trace(context: &HttpContext, model: &str, operation: Operation, body: &Bytes) -> Reply {
    settings(context, Some(model), operation, body, ControlOperation::TraceGet, ControlOperation::TraceUpdate).await
}

async fn settings(
    context: &HttpContext,
    model: Option<&str>,
    operation: Operation,
    body: &Bytes,
    get: ControlOperation,
    update: ControlOperation,
) -> Reply {
    let mut argument = Text::begin(b'{');
    if let Some(model) = model {
        argument.key("model").string(model);
    }
    argument.key("settings");
    let is_update = operation.is_change();
    let argument = read(body, move |body| {
        let given = if is_update { Some(Value::parse(body)?) } else { None };
        // JSON that is no object counts as an empty one (P 1.14).
        argument.raw(given.filter(|value| value.is_object()).map_or(b"{}", |value| value.text()));
        argument.key("protocol").string("http").close(b'}');
        argument.into_string()
    });
    let operation = if is_update { update } else { get };
    match argument.await.and_then(|argument| check(operation, argument)) {
        Ok(argument) => reply(context.control.call(operation, argument.into()).await),
        Err(error) => Reply::error(JSON, &error),
    }
}

/// `…sharedmemory…`. Elsewhere: a large region takes long to unmap, and there may be many.
pub async fn shared_memory(context: &HttpContext, operation: Operation, region: &str, body: Bytes) -> Reply {
    let (engine, region) = (context.engine.clone(), region.to_owned());
    let done = offload::run(body.len(), move |_| change_region(&engine, operation, &region, &body));
    done.await.unwrap_or_else(|error| Reply::error(JSON, &error))
}

fn change_region(engine: &Engine, operation: Operation, region: &str, body: &Bytes) -> Reply {
    let empty = |()| Bytes::new();
    match operation {
        Operation::SystemRegionRegister => reply(register(engine, region, body).map(empty)),
        Operation::CudaRegionRegister => reply(register_cuda(engine, region, body).map(empty)),
        Operation::SystemRegionUnregister => reply(regions::unregister(engine, RegionKind::System, region).map(empty)),
        Operation::CudaRegionUnregister => reply(regions::unregister(engine, RegionKind::Cuda, region).map(empty)),
        Operation::CudaRegionStatus => reply(region_status(engine, RegionKind::Cuda, region)),
        _ => reply(region_status(engine, RegionKind::System, region)),
    }
}

fn region_status(engine: &Engine, kind: RegionKind, region: &str) -> Result<Bytes> {
    let mut text = Text::begin(b'[');
    for r in regions::status(engine, kind, region)? {
        text.open(b'{').key("name").string(&r.name);
        match &r.source {
            Source::System { key, offset } => text.key("key").string(key).key("offset").integer(*offset),
            Source::Cuda { device_id } => text.key("device_id").integer(u64::from(*device_id)),
        };
        text.key("byte_size").integer(r.byte_size).close(b'}');
    }
    text.close(b']');
    Ok(text.into_bytes())
}

/// Checks in the order of memory.md 2.1; without a GPU the body is not looked at.
fn register_cuda(engine: &Engine, region: &str, body: &Bytes) -> Result<()> {
    regions::permit(engine)?;
    regions::named(RegionKind::Cuda, region)?;
    regions::permit_cuda(engine, region)?;
    let request = Value::parse(body)?;
    let missing = |name: &str| Error::internal(format!("attempt to access non-existing object member '{name}'"));
    let raw = request
        .get("raw_handle")
        .ok_or_else(|| Error::invalid("Shared memory register request has no 'raw_handle' field"))?;
    let text = raw.get("b64").ok_or_else(|| missing("b64"))?.as_text()?.decode();
    let byte_size = request.get("byte_size").ok_or_else(|| missing("byte_size"))?.as_u64()?;
    let device_id = request.get("device_id").ok_or_else(|| missing("device_id"))?.as_u64()?;
    // Some clients break the text into lines.
    let text: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let raw = decode_base64(&text).unwrap_or_default();
    let device_id = i64::try_from(device_id).unwrap_or(i64::MAX);
    engine.regions().register_cuda(region, regions::handle(&raw)?, device_id, byte_size)
}

/// Checks in the order of memory.md 1.4.
fn register(engine: &Engine, region: &str, body: &Bytes) -> Result<()> {
    regions::permit(engine)?;
    regions::named(RegionKind::System, region)?;
    let request = Value::parse(body)?;
    let missing = |field: &str| Error::invalid(format!("Shared memory register request has no '{field}' field"));
    let key = request.get("key").ok_or_else(|| missing("key"))?.as_string()?;
    let offset = request.get("offset").map_or(Ok(0), Value::as_u64)?;
    let byte_size = request.get("byte_size").ok_or_else(|| missing("byte_size"))?.as_u64()?;
    engine.regions().register(region, &key, offset, byte_size)
}
