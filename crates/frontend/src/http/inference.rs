//! `infer`. Checks have the order of P 1.12.2. The check that fails decides the content type of its error (P 1.1).

use super::body::RequestBody;
use super::context::HttpContext;
use super::reply::{BodyParts, JSON, OCTETS, Reply};
use super::request::RequestHead;
use crate::encoding::{Encoding, compress, decompress, decompress_small};
use crate::exchange::HttpExchange;
use crate::inference::{self, Inference, Started, is_long_to_encode};
use crate::limits::{INFLATE_RATIO_MAX, JSON_BYTES_ON_REACTOR_MAX};
use crate::offload::{self, CancelFlag};
use crate::record;
use crate::verbose;
use bytes::Bytes;
use engine::ModelVersion;
use memory::Kind;
use protocol::files::{Media, parse_files};
use protocol::http::{HeadCache, parse_header_length, parse_infer, parse_infer_apart};
use protocol::{InferRequest, InferResponse, Parameter};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tensor::{Data, DataType, Error, Name, RegionRef, Result};

/// zlib level of responses: most of the gain for a fraction of the time.
const COMPRESSION_LEVEL: u32 = 1;

thread_local! {
    /// Heads this reactor read and wrote before; nothing is shared, so nothing is locked.
    static HEADS: RefCell<HeadCache> = RefCell::default();
}

/// `POST …/infer`.
///
/// A request of usual size is parsed, checked and, if the model is cheap, answered on the reactor. Work that grows with
/// the body is done by [`offload`], in boxed branches: the future of every request has the size of its largest state.
pub async fn infer(exchange: &HttpExchange<'_>, body: RequestBody) -> Reply {
    let version = match find(exchange) {
        Ok(version) => version,
        Err(error) => {
            verbose::infer_failed(None, &error);
            return Reply::error(JSON, &error);
        }
    };
    exchange.accept(version);
    let RequestBody { bytes, tail, sends_regions } = body;
    let head = exchange.head;
    let body = match unpack(exchange, bytes) {
        Ok(Unpacked::Here(body)) => body,
        Ok(Unpacked::TooLong(body)) => return Box::pin(infer_large(exchange, version, body, true)).await,
        Err(reply) => return *reply,
    };
    if body.len() > JSON_BYTES_ON_REACTOR_MAX && is_long_to_read(version, head, &body) {
        return Box::pin(infer_large(exchange, version, body, false)).await;
    }
    // One expression, so that the request is not kept across the wait.
    let mut id = Name::new();
    let start = |mut request: Box<InferRequest>| {
        id = request.id.clone();
        request.sends_regions = sends_regions && version.lends_memory() && encoding_wanted(head) == Encoding::Identity;
        inference::start(version, request)
    };
    let parsed = parse(exchange, version, body, tail).inspect_err(|e| verbose::infer_failed(None, e));
    let pending = match parsed.map(start) {
        Ok(Started::Done(Ok(Inference::Done(result)))) => match reply(exchange, version, result) {
            Ok(reply) => return reply,
            Err(later) => return later.await,
        },
        Ok(Started::Done(Ok(Inference::Pending(pending)))) => pending,
        Ok(later @ Started::Offloaded(_)) => return Box::pin(finish(exchange, version, later)).await,
        Ok(Started::Done(Err(error))) | Err(error) => {
            exchange.rejects(&id);
            return Reply::error(JSON, &error);
        }
    };
    drop(id);
    exchange.waits_for(version, pending.measured());
    match reply(exchange, version, pending.await) {
        Ok(reply) => reply,
        Err(later) => later.await,
    }
}

/// `infer` for a body that another thread decompresses or parses.
async fn infer_large(exchange: &HttpExchange<'_>, version: &Arc<ModelVersion>, body: Bytes, is_packed: bool) -> Reply {
    let HttpExchange { context, head, .. } = exchange;
    let body = if is_packed {
        let (bytes, bytes_max) = (body.len(), context.limits.input_bytes_max);
        // The size is unknown: charges the largest possible one.
        let bytes = bytes.saturating_mul(INFLATE_RATIO_MAX);
        let work = offload::run_charged(&exchange.with.account, Kind::Unpacked, bytes, move |cancel| {
            decompress(&body, bytes_max, || cancel.is_set()).map_err(Error::from)
        });
        match work.await.and_then(|(unpacked, charge)| Ok(offload::made(unpacked?, charge))) {
            Ok(body) => body,
            Err(error) => return Reply::error(JSON, &error),
        }
    } else {
        body
    };
    let parsed = async {
        let header_length = header_length(head, &body)?;
        let media = media(head, header_length, &body)?;
        let wants_binary = head.accepts(OCTETS.as_bytes());
        let (engine, limits, model) = (context.engine.clone(), context.limits, version.clone());
        let is_sampled = exchange.with.record.is_sampled() && media.is_none();
        let bytes = if media.is_some() { body.len() } else { header_length.unwrap_or(usize::MAX) };
        let parse = move |_: &CancelFlag<'_>| -> Result<_, (Error, bool)> {
            let parsed = match &media {
                None => parse_infer(&body, header_length, &model.signature, &*engine, &limits),
                Some(media) => parse_files(&body, media, wants_binary, &model.signature, &limits),
            };
            let mut request =
                parsed.map_err(|error| (error, is_sampled && record::is_no_json(json_of(&body, header_length))))?;
            inference::dispose_offloaded(&mut request);
            Ok(Box::new(request))
        };
        let (parsed, charge) = offload::run_charged(&exchange.with.account, Kind::Unpacked, bytes, parse).await?;
        match parsed {
            Ok(mut request) => {
                inference::charge(&mut request, charge);
                Ok(request)
            }
            Err((error, is_no_json)) => {
                exchange.with.record.refused(is_no_json);
                Err(error)
            }
        }
    };
    let request = match parsed.await.and_then(|mut request| forward(exchange, &mut request).map(|()| request)) {
        Ok(request) => request,
        Err(error) => {
            verbose::infer_failed(None, &error);
            return Reply::error(JSON, &error);
        }
    };
    let started = inference::start(version, request);
    finish(exchange, version, started).await
}

/// Answers a request that another thread read, or that takes long to check.
async fn finish(exchange: &HttpExchange<'_>, version: &Arc<ModelVersion>, started: Started<Inference>) -> Reply {
    let result = match started.get().await {
        Ok(Inference::Done(result)) => result,
        Ok(Inference::Pending(pending)) => {
            exchange.waits_for(version, pending.measured());
            pending.await
        }
        Err(error) => return Reply::error(JSON, &error),
    };
    match reply(exchange, version, result) {
        Ok(reply) => reply,
        Err(later) => later.await,
    }
}

/// Whether a large body has much JSON, files or one string, which is copied behind its length. A wrong length in the
/// head is rejected by a later check.
fn is_long_to_read(version: &ModelVersion, head: &RequestHead, body: &Bytes) -> bool {
    match header_length(head, body) {
        Ok(None) => true,
        Ok(Some(0)) => version.signature.inputs.iter().any(|input| input.datatype == DataType::Bytes),
        Ok(Some(json)) => json > JSON_BYTES_ON_REACTOR_MAX,
        Err(_) => false,
    }
}

/// The part of a body that should be JSON.
fn json_of(body: &Bytes, header_length: Option<usize>) -> &[u8] {
    body.get(..header_length.unwrap_or(body.len())).unwrap_or_default()
}

fn header_length(head: &RequestHead, body: &Bytes) -> Result<Option<usize>> {
    match head.headers.get("inference-header-content-length") {
        None => Ok(None),
        Some(value) => parse_header_length(value, body.len()).map(Some),
    }
}

/// How a body without a header length has files instead of JSON.
#[inline]
pub fn media(head: &RequestHead, header_length: Option<usize>, body: &[u8]) -> Result<Option<Media>> {
    if header_length.is_some() { Ok(None) } else { Media::of(body, || head.headers.get("content-type")) }
}

/// A reply that another thread makes.
type LaterReply = Pin<Box<dyn Future<Output = Reply>>>;

/// The reply to an inference. A function, so that the future of a request has no place for a response.
fn reply(
    exchange: &HttpExchange<'_>,
    version: &Arc<ModelVersion>,
    result: Result<Box<InferResponse>>,
) -> Result<Reply, LaterReply> {
    let failed = |error: Error| Reply::error(JSON, &error);
    let response = match result {
        Ok(response) => response,
        Err(error) => return Ok(failed(error)),
    };
    let encoding = encoding_wanted(exchange.head);
    if !is_long_to_encode(&response, encoding) {
        return Ok(encode(version, &response, encoding).unwrap_or_else(failed));
    }
    let bytes = response.answered_bytes();
    let version = version.clone();
    let encode = move |_: &CancelFlag<'_>| encode(&version, &response, encoding);
    let work = offload::start_charged(&exchange.with.account, Kind::Answer, bytes, encode);
    Err(Box::pin(async move {
        let encoded = async { work?.await.and_then(|(reply, charge)| Ok(reply?.charged(charge))) };
        encoded.await.unwrap_or_else(failed)
    }))
}

/// The encoding of the response.
fn encoding_wanted(head: &RequestHead) -> Encoding {
    head.headers.get("accept-encoding").map_or(Encoding::Identity, Encoding::negotiate)
}

/// # Errors
/// UNAVAILABLE while the server exits, unless sequences are in progress.
pub fn reject_draining(context: &HttpContext) -> Result<()> {
    if inference::is_closed(&context.shared, &context.engine) {
        Err(Error::unavailable("Server exiting"))
    } else {
        Ok(())
    }
}

fn find<'e>(exchange: &'e HttpExchange<'_>) -> Result<&'e Arc<ModelVersion>> {
    reject_draining(exchange.context)?;
    let version = exchange.version()?;
    if version.signature.decoupled {
        return Err(Error::unsupported("HTTP end point doesn't support models with decoupled transaction policy"));
    }
    Ok(version)
}

/// See [`HttpExchange::reject_early`].
pub fn reject_early(exchange: &HttpExchange<'_>) -> Option<Reply> {
    if let Err(error) = find(exchange) {
        verbose::infer_failed(None, &error);
        return Some(Reply::error(JSON, &error));
    }
    encoding_of(exchange.head).err().map(|reply| *reply)
}

fn encoding_of(head: &RequestHead) -> Result<Encoding, Box<Reply>> {
    head.headers.get("content-encoding").map_or(Some(Encoding::Identity), Encoding::parse).ok_or_else(|| {
        let mut reply = Reply::error(JSON, &Error::unsupported("Unsupported compression type"));
        reply.accept_encoding = true;
        Box::new(reply)
    })
}

enum Unpacked {
    Here(Bytes),
    /// Still packed.
    TooLong(Bytes),
}

fn unpack(exchange: &HttpExchange<'_>, body: Bytes) -> Result<Unpacked, Box<Reply>> {
    if encoding_of(exchange.head)? == Encoding::Identity {
        return Ok(Unpacked::Here(body));
    }
    match decompress_small(&body, exchange.context.limits.input_bytes_max) {
        None => Ok(Unpacked::TooLong(body)),
        Some(Ok(body)) => Ok(Unpacked::Here(body)),
        Some(Err(why)) => Err(Box::new(Reply::error(JSON, &why.into()))),
    }
}

fn parse(
    exchange: &HttpExchange<'_>,
    version: &ModelVersion,
    body: Bytes,
    tail: Option<RegionRef>,
) -> Result<Box<InferRequest>> {
    let HttpExchange { context, head, .. } = exchange;
    let header_length = header_length(head, &body)?;
    let (signature, regions, limits) = (&version.signature, &*context.engine, &context.limits);
    let media = media(head, header_length, &body)?;
    let parsed = match (tail, &media) {
        (None, Some(media)) => {
            parse_files(&body, media, head.accepts(OCTETS.as_bytes()), signature, limits).map(Box::new)
        }
        (None, None) => {
            HEADS.with_borrow_mut(|heads| heads.parse_infer(&body, header_length, signature, regions, limits))
        }
        (Some(tail), _) => parse_infer_apart(&body, tail, signature, regions, limits).map(Box::new),
    };
    if parsed.is_err() {
        let record = &exchange.with.record;
        let is_json = media.is_none();
        record.refused(is_json && record.is_sampled() && record::is_no_json(json_of(&body, header_length)));
    }
    let mut request = parsed?;
    forward(exchange, &mut request)?;
    Ok(request)
}

/// Adds forwarded headers to a request, and its trace.
pub fn forward(exchange: &HttpExchange<'_>, request: &mut InferRequest) -> Result<()> {
    let HttpExchange { context, head, .. } = exchange;
    exchange.follow(request);
    if context.forward.is_active() {
        for (name, value) in head.headers.iter() {
            let name = Name::from_utf8_lossy(name);
            if context.forward.wants(&name)? {
                request.parameters.push((name, Parameter::String(Name::from_utf8_lossy(value))));
            }
        }
    }
    Ok(())
}

fn encode(version: &ModelVersion, response: &InferResponse, encoding: Encoding) -> Result<Reply> {
    let encoded = HEADS.with_borrow_mut(|heads| heads.encode_infer(response, &version.signature))?;
    let mut parts = BodyParts::new();
    parts.push(offload::disposed(encoded.json));
    let mut reply = Reply::empty(if encoded.inference_header_length.is_some() { OCTETS } else { JSON });
    reply.header_length = encoded.inference_header_length;
    for output in encoded.binary {
        match output {
            Data::Bytes(bytes) if reply.tail.is_empty() => parts.push(offload::disposed(bytes)),
            // Only of a request that wants no compression.
            other => reply.tail.push(other),
        }
    }
    if let Some(packed) = compress(parts.iter().map(|p| &p[..]), encoding, COMPRESSION_LEVEL)? {
        reply.content_encoding = Some(encoding.name());
        parts.clear();
        parts.push(offload::disposed(packed));
    }
    reply.body = parts;
    Ok(reply)
}
