//! One call: what is common to all of them. Who may make it, how it is packed, how long it may take, how it ends.

use super::connection::GrpcContext;
use super::message::Messages;
use super::method::Rpc;
use super::status::{Status, code};
use super::unary::Departed;
use super::{reflection, stream, timeout, unary, watch};
use crate::encoding::Encoding;
use crate::flight::Airborne;
use crate::rope::Rope;
use engine::ModelVersion;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

/// The request's part of a call.
pub struct Call {
    /// Metadata.
    pub headers: HeaderMap,
    /// Messages.
    pub messages: Messages,
    /// How inference responses are packed.
    pub response_encoding: Encoding,
}

/// Answers a call as far as that goes without waiting. What is left, if anything, is for a task of its own.
///
/// The usual inference is over when this returns: no future was made for it, and nothing of it outlives the turn.
pub fn begin(
    context: &Arc<GrpcContext>,
    cx: &mut Context<'_>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Rope>,
) -> Option<Pin<Box<impl Future<Output = ()> + use<>>>> {
    let (parts, body) = request.into_parts();
    let metadata = Metadata::read(&parts.headers);
    if parts.method != Method::POST || !metadata.media.starts_with(b"application/grpc") {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(response, true);
        return None;
    }
    let (rpc, encoding) = match admit(context, parts.uri.path(), &parts.headers, &metadata) {
        Ok(admitted) => admitted,
        Err(status) => {
            refuse(&mut respond, &status);
            return None;
        }
    };
    let response_encoding = match (rpc, context.compression_level) {
        (Rpc::ModelInfer | Rpc::ModelStreamInfer, Some(_)) => accepted(&parts.headers),
        _ => Encoding::Identity,
    };
    let deadline = metadata.timeout.and_then(timeout::parse);
    let mut call = Call { headers: parts.headers, messages: Messages::new(body, encoding), response_encoding };
    // Held until the task that goes on with it, if there is one, counts for itself.
    let _request = (!rpc.is_stream()).then(|| context.shared.request());
    let mut departed = None;
    if rpc == Rpc::ModelInfer
        && let Poll::Ready(message) = call.messages.poll_next(cx)
    {
        match unary::required(message).and_then(|message| unary::depart(context, &call, message)) {
            Ok(Departed::Answered(message)) => {
                finish(&mut respond, message, response_encoding);
                return None;
            }
            Ok(Departed::Waits(version, airborne)) => departed = Some((version, airborne)),
            Err(status) => {
                refuse(&mut respond, &status);
                return None;
            }
        }
    }
    let mut rest = Box::pin(go_on(context.clone(), rpc, call, respond, deadline, departed));
    rest.as_mut().poll(cx).is_pending().then_some(rest)
}

/// An inference that was started and has no answer yet.
type Started = (Arc<ModelVersion>, Airborne);

/// The part of a call that may wait.
async fn go_on(
    context: Arc<GrpcContext>,
    rpc: Rpc,
    mut call: Call,
    mut respond: SendResponse<Rope>,
    deadline: Option<Duration>,
    departed: Option<Started>,
) {
    match rpc {
        // In boxes of their own: the future of every call is as large as the largest it may become.
        Rpc::ModelStreamInfer => Box::pin(stream::serve(&context, call, respond, deadline)).await,
        Rpc::HealthWatch => Box::pin(watch::serve(&context, call, respond, deadline)).await,
        Rpc::Reflection => Box::pin(reflection::serve(call, respond)).await,
        _ => {
            let _request = context.shared.request();
            let encoding = call.response_encoding;
            let answer = async {
                match departed {
                    Some((version, airborne)) => unary::respond(&context, &call, &version, &airborne.await?),
                    None => unary::answer(&context, rpc, &mut call).await,
                }
            };
            let watched = until_reset(&mut respond, answer);
            let outcome = match deadline {
                None => watched.await,
                Some(limit) => limited(limit, watched).await,
            };
            match outcome {
                // The client is gone; dropping the answer's future cancelled what it was waiting for.
                None => {}
                Some(Ok(message)) => finish(&mut respond, message, encoding),
                Some(Err(status)) => refuse(&mut respond, &status),
            }
        }
    }
}

/// The request headers that every call is asked for: few come, so one walk is cheaper than a look-up for each.
#[derive(Default)]
struct Metadata<'a> {
    media: &'a [u8],
    encoding: Option<&'a [u8]>,
    timeout: Option<&'a [u8]>,
}

impl<'a> Metadata<'a> {
    fn read(headers: &'a HeaderMap) -> Self {
        let mut metadata = Self::default();
        // Of several headers of one name the first counts.
        for (name, value) in headers {
            let value = value.as_bytes();
            match name.as_str() {
                "content-type" if metadata.media.is_empty() => metadata.media = value,
                "grpc-encoding" => _ = metadata.encoding.get_or_insert(value),
                "grpc-timeout" => _ = metadata.timeout.get_or_insert(value),
                _ => {}
            }
        }
        metadata
    }
}

/// Gives `work` so much time. In a box of its own, as most calls have no deadline.
async fn limited<T>(
    limit: Duration,
    work: impl Future<Output = Option<Result<T, Status>>>,
) -> Option<Result<T, Status>> {
    Box::pin(tokio::time::timeout(limit, work)).await.unwrap_or_else(|_| Some(Err(deadline_exceeded())))
}

/// How a call ends whose time is up.
pub fn deadline_exceeded() -> Status {
    Status::new(code::DEADLINE_EXCEEDED, "Deadline Exceeded")
}

/// What a call is told that comes too late.
pub fn shutting_down() -> Status {
    Status::new(code::UNAVAILABLE, "GRPC server is shutting down and has stopped accepting new requests.")
}

fn admit(
    context: &GrpcContext,
    path: &str,
    headers: &HeaderMap,
    metadata: &Metadata<'_>,
) -> Result<(Rpc, Encoding), Status> {
    let rpc = Rpc::parse(path).ok_or_else(|| Status::new(code::UNIMPLEMENTED, ""))?;
    if let Some(rule) = rpc.category().and_then(|c| context.restrictions.rule(c)) {
        let value = headers.get(rule.header.as_str()).map(HeaderValue::as_bytes);
        if !rule.admits(value) {
            let text = format!("This protocol is restricted, expecting header '{}'", rule.header);
            return Err(Status::new(code::UNAVAILABLE, text));
        }
    }
    let is_health = matches!(rpc, Rpc::ServerLive | Rpc::ServerReady | Rpc::HealthCheck | Rpc::HealthWatch);
    if context.shared.is_draining() && !is_health {
        return Err(shutting_down());
    }
    let encoding = match metadata.encoding {
        None => Encoding::Identity,
        Some(name) => Encoding::parse(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Status::new(code::UNIMPLEMENTED, format!("Compression algorithm '{name}' is not supported."))
        })?,
    };
    Ok((rpc, encoding))
}

/// gzip where the client takes it, else deflate, else nothing.
fn accepted(headers: &HeaderMap) -> Encoding {
    let list = headers.get("grpc-accept-encoding").map(HeaderValue::as_bytes).unwrap_or_default();
    let has = |e: Encoding| list.split(|&b| b == b',').any(|n| n.trim_ascii() == e.name().as_bytes());
    [Encoding::Gzip, Encoding::Deflate].into_iter().find(|&e| has(e)).unwrap_or(Encoding::Identity)
}

/// Runs `work` for as long as the client is interested.
async fn until_reset<T>(respond: &mut SendResponse<Rope>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(result) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        respond.poll_reset(cx).map(|_| None)
    })
    .await
}

/// Headers every response begins with. Copied from one that is ready: no name is hashed again for each response.
pub fn response_head(encoding: Encoding) -> Response<()> {
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,deflate,gzip"));
        headers
    });
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.clone_from(&HEADERS);
    if encoding != Encoding::Identity {
        headers.insert("grpc-encoding", HeaderValue::from_static(encoding.name()));
    }
    response
}

/// Trailers of a status.
pub fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    status.write(&mut trailers);
    trailers
}

/// Trailers of success.
fn ok_trailers() -> HeaderMap {
    static TRAILERS: LazyLock<HeaderMap> = LazyLock::new(|| trailers(&Status::ok()));
    TRAILERS.clone()
}

/// Ends a call that has nothing but a status. h2 tells the client by itself to stop sending once the request is dropped.
pub fn refuse(respond: &mut SendResponse<Rope>, status: &Status) {
    let mut response = response_head(Encoding::Identity);
    status.write(response.headers_mut());
    let _ = respond.send_response(response, true);
}

/// Ends a call with its one message. Failures mean that the client is gone.
fn finish(respond: &mut SendResponse<Rope>, message: Rope, encoding: Encoding) {
    if let Ok(mut send) = respond.send_response(response_head(encoding), false)
        && send.send_data(message, false).is_ok()
    {
        let _ = send.send_trailers(ok_trailers());
    }
}

#[cfg(test)]
mod tests {
    /// Printed by `--no-capture`; a future is copied into its box once per call that waits, so its size is paid for every time.
    #[test]
    fn the_future_of_a_call_stays_small() {
        fn size<A, B, C, D, E, G, F: Future>(_: impl Fn(A, B, C, D, E, G) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(super::go_on);
        println!("{bytes} bytes");
        assert!(bytes <= 2304, "{bytes} bytes");
    }
}
