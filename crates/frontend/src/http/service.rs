//! What each operation does with an exchange over HTTP; health.

use super::body::RequestBody;
use super::context::HttpContext;
use super::method::Method;
use super::reply::{JSON, PLAIN, Reply};
use super::request::RequestHead;
use super::{control, generate, inference, orca};
use crate::exchange::{BodyPlace, HttpExchange};
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::limits::{BODY_BYTES_MAX, DISCARD_BYTES_MAX, JSON_BYTES_ON_REACTOR_MAX};
use crate::table::Operation;
use crate::table::routes::Route;
use engine::ReadinessState;
use tensor::Error;

/// Maximum of bytes in a body.
///
/// # Errors
/// The caller may not have the model that the query names.
#[inline]
pub fn body_bytes_max(
    context: &HttpContext,
    route: &Route<'_>,
    head: &RequestHead,
    grant: &Grant,
) -> Result<u64, GateError> {
    Ok(match route.operation {
        Operation::Infer => BODY_BYTES_MAX,
        // Its query may name a model, which the path does not.
        Operation::OpenApi => control::admit_described(grant, head.query()).map(|()| DISCARD_BYTES_MAX)?,
        _ if matches!(head.method, Method::Get | Method::HEAD) => DISCARD_BYTES_MAX,
        _ => context.limits.input_bytes_max as u64,
    })
}

/// See [`HttpExchange::reject_early`].
pub fn reject_by_head(exchange: &HttpExchange<'_>, operation: Operation) -> Option<Reply> {
    match operation {
        Operation::Infer => inference::reject_by_head(exchange),
        Operation::Generate | Operation::GenerateStream => generate::reject_by_head(exchange),
        _ => None,
    }
}

/// See [`HttpExchange::body_place`].
pub fn body_place(exchange: &HttpExchange<'_>, operation: Operation, length: usize, takes_regions: bool) -> BodyPlace {
    let head = exchange.head;
    if operation != Operation::Infer || head.headers.get("content-encoding").is_some() {
        return BodyPlace::Slab { near_device: false };
    }
    let json = head.json_length().filter(|json| takes_regions && (1..=JSON_BYTES_ON_REACTOR_MAX).contains(json));
    let lent = json.and_then(|json| {
        let region = exchange.version().ok()?.lend_input(length.checked_sub(json)?)?;
        Some(BodyPlace::Region { json, region })
    });
    lent.unwrap_or_else(|| {
        // Raw tensors for a model on a device. Without devices one branch.
        let near_device = memory::has_devices()
            && head.headers.get("inference-header-content-length").is_some()
            && exchange.version().is_ok_and(|model| model.reads_on_device());
        BodyPlace::Slab { near_device }
    })
}

/// See [`HttpExchange::too_large`].
pub fn too_large(exchange: &HttpExchange<'_>, operation: Operation, bytes: u64) -> Reply {
    let error = match operation {
        // The model comes first in the order of checks, even here.
        Operation::Infer => exchange.version().err().unwrap_or_else(|| {
            let text = bytes.to_string();
            let parsed = protocol::http::parse_content_length(&text).err();
            parsed.unwrap_or_else(|| Error::invalid(format!("Unable to parse Content-Length, got: {text}")))
        }),
        _ => {
            let checked = exchange.context.limits.check_json(usize::try_from(bytes).unwrap_or(usize::MAX));
            checked.err().unwrap_or_else(|| Error::invalid("the request has a body that is not wanted"))
        }
    };
    Reply::error(JSON, &error)
}

/// Answers a request. Rare operations are boxed: the future of every request has the size of its largest state.
pub async fn respond(exchange: &HttpExchange<'_>, operation: Operation, body: RequestBody) -> Reply {
    let HttpExchange { context, head, .. } = exchange;
    match operation {
        Operation::Infer => {
            let reply = inference::infer(exchange, body).await;
            orca::add_load_report(context, head, reply)
        }
        Operation::Generate | Operation::GenerateStream => {
            let stream = operation == Operation::GenerateStream;
            let reply = Box::pin(generate::generate(exchange, &body.bytes, stream)).await;
            orca::add_cache_report(exchange, reply)
        }
        Operation::ModelReady => match control::model_ready(exchange) {
            Ok(ready) => match is_ready(ready).await {
                true => Reply::empty(PLAIN),
                false => Reply::text_error(400, JSON, "Model version not ready"),
            },
            Err(error) => Reply::failed(&error),
        },
        Operation::ServerLive => health(head, "live", context.engine.is_live()),
        Operation::ServerReady => health(head, "ready", is_ready(context.engine.readiness()).await),
        _ => Box::pin(control::answer(exchange, operation, body.bytes)).await,
    }
}

/// Waits for readiness. Boxed if models are asked, see [`respond`].
async fn is_ready(ready: ReadinessState) -> bool {
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
