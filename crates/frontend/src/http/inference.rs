//! `infer`, `generate` and `generate_stream`. The order of checks is that of P 1.12.2; which content type an error has depends on
//! how far the request got (P 1.1).

use super::reply::{EVENTS, JSON, OCTETS, PLAIN, Parts, Reply};
use super::request::Head;
use super::service::HttpContext;
use crate::encoding::{Encoding, compress, decompress};
use crate::flight::{self, Flight};
use crate::verbose;
use bytes::Bytes;
use engine::ModelVersion;
use protocol::http::{HeadCache, encode_infer, parse_header_length};
use protocol::{InferRequest, InferResponse, Parameter, generate};
use std::cell::RefCell;
use std::sync::Arc;
use tensor::{Error, Name, Result};

/// zlib level of responses: most of the gain for a fraction of the time.
const COMPRESSION_LEVEL: u32 = 1;

thread_local! {
    /// Heads this reactor read before; nothing is shared, so nothing is locked.
    static HEADS: RefCell<HeadCache> = RefCell::default();
}

/// `POST …/infer`.
pub async fn infer(context: &HttpContext, name: &str, version: &str, head: &Head, body: Bytes) -> Reply {
    let version = match find(context, name, version) {
        Ok(version) => version,
        Err(error) => {
            verbose::infer_failed(None, &error);
            return Reply::error(PLAIN, &error);
        }
    };
    let body = match unpack(context, head, body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    // One expression, so that the request is not kept across the wait.
    let parsed = parse(context, &version, head, body).inspect_err(|e| verbose::infer_failed(None, e));
    let airborne = match parsed.and_then(|request| flight::start(&version, request)) {
        Ok(Flight::Landed(result)) => return reply(&version, result, head),
        Ok(Flight::Airborne(airborne)) => airborne,
        Err(error) => return Reply::error(JSON, &error),
    };
    reply(&version, airborne.await, head)
}

fn reply(version: &ModelVersion, result: Result<InferResponse>, head: &Head) -> Reply {
    match result.and_then(|response| encode(version, &response, head)) {
        Ok(reply) => reply,
        Err(error) => Reply::error(PLAIN, &error),
    }
}

fn find(context: &HttpContext, name: &str, version: &str) -> Result<Arc<ModelVersion>> {
    if context.shared.is_draining() {
        return Err(Error::unavailable("Server exiting"));
    }
    let version = context.engine.model(name, version)?;
    if version.signature.decoupled {
        return Err(Error::unsupported("HTTP end point doesn't support models with decoupled transaction policy"));
    }
    Ok(version)
}

fn unpack(context: &HttpContext, head: &Head, body: Bytes) -> Result<Bytes, Box<Reply>> {
    match head.headers.get("content-encoding").map(Encoding::parse) {
        None | Some(Some(Encoding::Identity)) => Ok(body),
        Some(Some(_)) => decompress(&body, context.limits.input_bytes_max as u64)
            .map_err(|error| Box::new(Reply::error(PLAIN, &error))),
        Some(None) => {
            let mut reply = Reply::error(PLAIN, &Error::unsupported("Unsupported compression type"));
            reply.accept_encoding = true;
            Err(Box::new(reply))
        }
    }
}

fn parse(context: &HttpContext, version: &ModelVersion, head: &Head, body: Bytes) -> Result<InferRequest> {
    let header_length = match head.headers.get("inference-header-content-length") {
        None => None,
        Some(value) => Some(parse_header_length(&String::from_utf8_lossy(value), body.len())?),
    };
    let mut request = HEADS.with_borrow_mut(|heads| {
        heads.parse_infer(&body, header_length, &version.signature, &*context.engine, &context.limits)
    })?;
    if context.forward.is_active() {
        for (name, value) in head.headers.iter() {
            let name = Name::from_utf8_lossy(name);
            if context.forward.wants(&name)? {
                request.parameters.push((name, Parameter::String(Name::from_utf8_lossy(value))));
            }
        }
    }
    Ok(request)
}

fn encode(version: &ModelVersion, response: &InferResponse, head: &Head) -> Result<Reply> {
    let encoded = encode_infer(response, &version.signature)?;
    let mut parts = Parts::new();
    parts.push(encoded.json);
    parts.extend(encoded.binary);
    let mut reply = Reply::empty(if encoded.inference_header_length.is_some() { OCTETS } else { JSON });
    reply.header_length = encoded.inference_header_length;
    let encoding = head.headers.get("accept-encoding").map_or(Encoding::Identity, Encoding::negotiate);
    if let Some(packed) = compress(parts.iter().map(|p| &p[..]), encoding, COMPRESSION_LEVEL) {
        reply.content_encoding = Some(encoding.name());
        parts.clear();
        parts.push(packed);
    }
    reply.body = parts;
    Ok(reply)
}

/// `POST …/generate` and `…/generate_stream`.
pub async fn generate(
    context: &HttpContext,
    name: &str,
    version: &str,
    head: &Head,
    body: &Bytes,
    stream: bool,
) -> Reply {
    let started = || -> Result<(Arc<ModelVersion>, Flight)> {
        if context.shared.is_draining() {
            return Err(Error::unavailable("Server exiting"));
        }
        let version = context.engine.model(name, version)?;
        if head.headers.get("content-encoding").is_some_and(|e| e != b"identity") {
            return Err(Error::invalid("Unsupported content-encoding, only 'identity' is supported."));
        }
        let request = generate::parse_generate(body, &version.signature, &context.limits)
            .inspect_err(|e| verbose::infer_failed(None, e))?;
        let flight = flight::start(&version, request)?;
        Ok((version, flight))
    };
    let (version, result) = match started() {
        Ok((version, Flight::Landed(result))) => (version, result),
        Ok((version, Flight::Airborne(airborne))) => {
            let result = airborne.await;
            (version, result)
        }
        Err(error) => return Reply::error(JSON, &error),
    };
    let result = result.and_then(|response| generate::encode_generate(&response, &version.signature));
    // Once the request was accepted every failure is a 400, whatever its class (P 1.13).
    let (status, json) = match result {
        Ok(json) => (200, json),
        Err(error) => (400, protocol::json::error_json(error.message())),
    };
    let mut reply = Reply::new(status, if stream { EVENTS } else { JSON }, json);
    if stream {
        reply.body.insert(0, Bytes::from_static(b"data: "));
        reply.body.push(Bytes::from_static(b"\n\n"));
    }
    reply.chunked = true;
    reply
}
