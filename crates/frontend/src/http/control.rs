//! Operations besides inference over HTTP: decodes requests and encodes responses for `operations`.

use super::context::HttpContext;
use super::reply::{JSON, Reply};
use super::request::RequestHead;
use crate::control::ControlOperation;
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::limits::JSON_BYTES_ON_REACTOR_MAX;
use crate::offload;
use crate::operations::regions::Registration;
use crate::operations::repository::{Files, Load};
use crate::operations::settings::{Settings, settings};
use crate::operations::{self, models, regions, repository};
use crate::table::Operation;
use crate::table::routes::{PathNames, Route};
use crate::text::{Text, decode_base64};
use bytes::Bytes;
use engine::statistics_json;
use memory::{RegionKind, RegionSource, RegionStatus};
use protocol::http::server_metadata_json;
use protocol::json::Value;
use std::borrow::Cow;
use tensor::{Error, Result};

fn reply(answer: operations::Result<impl Into<Bytes>>) -> Reply {
    match answer {
        Ok(body) => Reply::json(body),
        Err(error) => Reply::failed(&error),
    }
}

/// Answers a request whose body was read.
pub async fn answer(context: &HttpContext, route: Route<'_>, head: &RequestHead, body: Bytes) -> Reply {
    match route.operation {
        Operation::Home | Operation::Docs | Operation::DocsScript | Operation::DocsStyle => {
            page(context, route.operation, head).await
        }
        _ => reply(json(context, route, head, body).await),
    }
}

/// The JSON of a response; empty if the status is the response.
async fn json(context: &HttpContext, route: Route<'_>, head: &RequestHead, body: Bytes) -> operations::Result<Bytes> {
    let with = &context.operations();
    let operation = route.operation;
    let PathNames { model, version, region, repository } = route.names;
    // Clients percent-encode region names in the path but not in inference requests (memory.md 1.4).
    let region = percent_decode(region).into_owned();
    let named = (!region.is_empty()).then(|| region.clone());
    let done = |()| Bytes::new();
    match operation {
        Operation::ServerMetadata => {
            let m = context.engine.server_metadata();
            Ok(server_metadata_json(&m.name, &m.version, &m.extensions))
        }
        Operation::ModelMetadata => models::metadata(with, model, version, |metadata| metadata.json()).await,
        Operation::ModelConfig => models::configured(with, model, version).map(|v| v.identity.config_json()),
        Operation::ModelStatistics | Operation::AllStatistics => {
            let encode = |statistics: &[_]| offload::disposed(statistics_json(statistics).into());
            models::statistics(with, model, version, encode).await
        }
        Operation::OpenApi => {
            let (model, version) = (given(head.query(), "model"), given(head.query(), "version"));
            let mut argument = Text::begin(b'{');
            argument.key("model").string(&model).key("version").string(&version).close(b'}');
            with.control(ControlOperation::OpenApi, argument).await.map(Bytes::from)
        }
        Operation::Models => {
            let mut argument = Text::begin(b'{');
            argument.key("page").string("/v2/models").close(b'}');
            with.control(ControlOperation::Page, argument).await.map(Bytes::from)
        }
        Operation::Index => {
            let ready = read(body, |body| match optional(body)?.and_then(|v| v.get("ready")) {
                None => Ok(false),
                Some(ready) => {
                    ready.as_bool().map_err(|_| Error::invalid("Invalid value for 'ready': expected a boolean"))
                }
            });
            // A repository in the path means the same as none.
            repository::index(with, "", ready.await?).await.map(Bytes::from)
        }
        Operation::Load => {
            let (repository, model) = (repository.to_owned(), model.to_owned());
            let load =
                read(body, move |body| Load::new(&repository, &model, |text, files| parameters(body, text, files)));
            repository::load(with, load.await?).await.map(done)
        }
        Operation::Unload => {
            // A value that is not a boolean counts as false, and the model is unloaded (P 1.8).
            let dependents = read(body, |body| {
                let parameters = optional(body)?.and_then(|v| v.get("parameters"));
                Ok(parameters.and_then(|p| p.get("unload_dependents")?.as_bool().ok()).unwrap_or(false))
            });
            repository::unload(with, repository, model, dependents).await.map(done)
        }
        Operation::LogSettings | Operation::LogUpdate | Operation::TraceSettings | Operation::TraceUpdate => {
            let is_trace = matches!(operation, Operation::TraceSettings | Operation::TraceUpdate);
            let model = is_trace.then(|| model.to_owned());
            let request = read(body, move |body| {
                let changes = if operation.is_change() { Some(Value::parse(body)?) } else { None };
                // JSON that is not an object counts as an empty one (P 1.14).
                let changes = changes.map(|value| if value.is_object() { value.text() } else { b"{}" });
                Ok(Settings::new(model.as_deref(), "http", changes))
            });
            settings(with, request.await?).await.map(Bytes::from)
        }
        Operation::SystemRegionStatus => regions::status(with, RegionKind::System, region, region_list).await,
        Operation::CudaRegionStatus => regions::status(with, RegionKind::Cuda, region, region_list).await,
        Operation::SystemRegionRegister => {
            regions::register(with, RegionKind::System, named, body.len(), move || system_region(&body)).await.map(done)
        }
        Operation::CudaRegionRegister => {
            regions::register(with, RegionKind::Cuda, named, body.len(), move || cuda_region(&body)).await.map(done)
        }
        Operation::SystemRegionUnregister => regions::unregister(with, RegionKind::System, region).await.map(done),
        Operation::CudaRegionUnregister => regions::unregister(with, RegionKind::Cuda, region).await.map(done),
        // Answered by `service`, or in gRPC only.
        _ => Err(Error::not_found("Not Found").into()),
    }
}

/// Parses a body; on another thread if it is long.
async fn read<T: Send + 'static>(body: Bytes, work: impl FnOnce(&Bytes) -> Result<T> + Send + 'static) -> Result<T> {
    let bytes = body.len();
    offload::run_if(bytes > JSON_BYTES_ON_REACTOR_MAX, bytes, move || work(&body)).await?
}

/// A body that may be missing.
fn optional(body: &Bytes) -> Result<Option<Value<'_>>> {
    if body.is_empty() { Ok(None) } else { Value::parse(body).map(Some) }
}

/// Writes the parameters of a load. Decodes the files of long ones; a file that is not base64 stays in the parameters,
/// where TypeScript rejects it with other wrong values.
fn parameters(body: &Bytes, argument: &mut Text, files: &mut Files) -> Result<()> {
    let parameters = optional(body)?.and_then(|v| v.get("parameters"));
    let long = parameters.filter(|p| p.is_object() && p.text().len() > JSON_BYTES_ON_REACTOR_MAX);
    let Some(parameters) = long else {
        argument.raw(parameters.map_or(b"{}", |p| p.text()));
        return Ok(());
    };
    let decoded = |value: Value<'_>| decode_base64(&value.as_text().ok()?.decode());
    Load::check_files(parameters.members()?.filter(|(key, _)| key.decode().starts_with(b"file:")).count())?;
    argument.open(b'{');
    for (key, value) in parameters.members()? {
        // A name that is not UTF-8 is rejected with the whole text.
        let name = key.decode();
        let contents = if name.starts_with(b"file:") { decoded(value) } else { None };
        match (contents, std::str::from_utf8(&name)) {
            (Some(contents), Ok(name)) => files.push((name.to_owned(), contents)),
            (_, Ok(name)) => _ = argument.key(name).raw(value.text()),
            (_, Err(_)) => return Err(Error::invalid("the request holds text that is not UTF-8")),
        }
    }
    argument.close(b'}');
    Ok(())
}

/// Decodes `%XX`. An invalid escape stays as it is, and so does a text that does not decode to UTF-8.
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

/// The first value of this name in a query, percent-decoded; empty if there is none.
fn given<'q>(query: &'q [u8], name: &str) -> Cow<'q, str> {
    let pairs = query.split(|&b| b == b'&').filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| percent_decode(value)).next().unwrap_or_default()
}

/// Whether a caller may have the model described that the query of `/v2/openapi.json` names.
///
/// # Errors
/// Why not.
pub fn admit_described(grant: &Grant, query: &[u8]) -> std::result::Result<(), GateError> {
    match given(query, "model") {
        model if model.is_empty() => Ok(()),
        model => grant.admit_model(&model),
    }
}

/// Pages load nothing from other servers, run no inline code, and are shown in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Pages for people. `/` is JSON for clients that do not ask for HTML.
pub async fn page(context: &HttpContext, page: Operation, head: &RequestHead) -> Reply {
    let is_home = page == Operation::Home;
    let is_html = page == Operation::Docs || (is_home && head.accepts(b"text/html"));
    let path = String::from_utf8_lossy(head.path());
    let host = head.headers.get("host").and_then(|host| std::str::from_utf8(host).ok());
    // Over HTTP/2 the host is part of the target, not a header field.
    let mut argument = Text::begin(b'{');
    argument.key("page").string(&path).key("html").boolean(is_html);
    argument.key("host").string(host.unwrap_or_default()).close(b'}');
    let mut reply = reply(context.operations().control(ControlOperation::Page, argument).await);
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
    // A cache must not pass names of models to clients without permission.
    reply.add("cache-control", if is_home { "no-store" } else { "no-cache" });
    if is_home {
        reply.vary("accept");
    }
    reply
}

/// Regions of one kind.
fn region_list(regions: Vec<RegionStatus>) -> Bytes {
    let mut text = Text::begin(b'[');
    for r in regions {
        text.open(b'{').key("name").string(&r.name);
        match &r.source {
            RegionSource::System { key, offset } => text.key("key").string(key).key("offset").integer(*offset),
            RegionSource::Cuda { device_id } => text.key("device_id").integer(u64::from(*device_id)),
        };
        text.key("byte_size").integer(r.byte_size).close(b'}');
    }
    text.close(b']');
    text.into_bytes()
}

fn cuda_region(body: &Bytes) -> Result<Registration> {
    let request = Value::parse(body)?;
    let missing = |name: &str| Error::malformed(format!("attempt to access non-existing object member '{name}'"));
    let raw = request
        .get("raw_handle")
        .ok_or_else(|| Error::invalid("Shared memory register request has no 'raw_handle' field"))?;
    let text = raw.get("b64").ok_or_else(|| missing("b64"))?.as_text()?.decode();
    let byte_size = request.get("byte_size").ok_or_else(|| missing("byte_size"))?.as_u64()?;
    let device_id = request.get("device_id").ok_or_else(|| missing("device_id"))?.as_u64()?;
    // Some clients break the text into lines.
    let text: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let device_id = i64::try_from(device_id).unwrap_or(i64::MAX);
    Ok(Registration::Cuda { handle: decode_base64(&text).unwrap_or_default(), device_id, byte_size })
}

fn system_region(body: &Bytes) -> Result<Registration> {
    let request = Value::parse(body)?;
    let missing = |field: &str| Error::invalid(format!("Shared memory register request has no '{field}' field"));
    let key = request.get("key").ok_or_else(|| missing("key"))?.as_string()?;
    let offset = request.get("offset").map_or(Ok(0), Value::as_u64)?;
    let byte_size = request.get("byte_size").ok_or_else(|| missing("byte_size"))?.as_u64()?;
    Ok(Registration::System { key, offset, byte_size })
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
