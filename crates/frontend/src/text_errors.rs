//! Errors of text endpoints as their clients expect them: OpenAI's form, that of text-embeddings-inference, or, with
//! `--openai-errors=triton`, that of Triton's OpenAI front end.
//!
//! An endpoint, the gate and the drivers all make the general reply. [`complete`] gives it the form before it is
//! written, so that an error has it wherever it was found.

use crate::failure::{ErrorForm, FailureKind, RequestFailure, TextFailure};
use crate::gate_error::{GateError, OperationError};
use crate::http::reply::{JSON, Reply};
use crate::http::request::RequestHead;
use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::record::error_text;
use bytes::Bytes;
use memory::thread::now_ns;
use protocol::text::openai::{ErrorAnswer, ErrorItem};
use protocol::text::{FormError, tei};
use smallvec::smallvec;
use std::borrow::Cow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::Error;

/// The end of the text for a member that is not there.
const MISSING: &str = "Field required";

/// Paths that clients of OpenAI's API ask for.
pub const PREFIX: &[u8] = b"/v1/";

/// The paths below [`PREFIX`] that are served.
const SERVED: [&str; 11] = [
    "/v1/models",
    "/v1/models/{model}",
    "/v1/models/{model}/load",
    "/v1/models/{model}/unload",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/classify",
];

/// Text for a path of OpenAI's API that is not served.
pub fn not_served(path: Option<&str>) -> Cow<'static, str> {
    format!("{} is not supported; supported are {}", path.unwrap_or("this path"), SERVED.join(", ")).into()
}

/// Failure of a text endpoint.
#[derive(Debug)]
pub struct TextError {
    cause: OperationError,
    text: TextFailure,
}

impl TextError {
    pub fn of(error: Error, kind: FailureKind, field: Option<&'static str>) -> Self {
        Self { cause: error.into(), text: TextFailure { kind, field, form: None } }
    }

    /// The error in TEI's form, at a route that has two.
    pub fn tei(self) -> Self {
        Self { text: TextFailure { form: Some(ErrorForm::Tei), ..self.text }, ..self }
    }

    pub fn reply(self) -> Reply {
        let mut reply = Reply::failed(&self.cause);
        if let Some(failure) = &mut reply.failure {
            let kind = if self.text.kind == FailureKind::Other { failure.text.kind } else { self.text.kind };
            failure.text = TextFailure { kind, ..self.text };
        }
        reply
    }
}

impl From<OperationError> for TextError {
    fn from(cause: OperationError) -> Self {
        Self { cause, text: TextFailure::default() }
    }
}

impl From<Error> for TextError {
    fn from(error: Error) -> Self {
        Self { cause: error.into(), text: TextFailure::default() }
    }
}

impl From<GateError> for TextError {
    fn from(error: GateError) -> Self {
        Self { cause: error.into(), text: TextFailure::default() }
    }
}

impl From<FormError> for TextError {
    fn from(FormError { field, text, is_empty }: FormError) -> Self {
        Self::of(Error::invalid(text), if is_empty { FailureKind::Empty } else { FailureKind::Form }, field)
    }
}

/// Completes a reply of a text route: its id, and the form of an error.
pub fn complete(form: ErrorForm, as_triton: bool, head: &RequestHead, reply: &mut Reply) {
    let sent = head.headers.get("x-request-id").filter(|id| id.len() <= REQUEST_ID_BYTES_MAX);
    let sent = sent.and_then(|id| std::str::from_utf8(id).ok()).filter(|id| id.bytes().all(|b| b.is_ascii_graphic()));
    let id = sent.filter(|id| !id.is_empty()).map_or_else(|| new_id("req"), str::to_owned);
    reply.add("x-request-id", id);
    let Some(failure) = reply.failure else { return };
    match failure.retry_after {
        Some(after) => reply.add("retry-after-ms", after.as_millis().to_string()),
        None => reply.add("x-should-retry", "false"),
    }
    let message = error_text(&reply.body);
    let (status, body) = match failure.text.form.unwrap_or(form) {
        ErrorForm::Tei => as_tei(reply.status, failure, &message),
        ErrorForm::OpenAi if as_triton => as_triton_does(reply.status, failure, &message),
        ErrorForm::OpenAi => as_openai(reply.status, failure, &message),
    };
    reply.status = status;
    reply.content_type = JSON;
    reply.body = smallvec![Bytes::from(body)];
}

/// The event of an error behind the beginning of a stream.
pub fn event(error: &Error) -> String {
    let failure = RequestFailure::from(error);
    as_openai(error.code().http_status(), failure, error.message()).1
}

fn as_openai(status: u16, failure: RequestFailure, message: &str) -> (u16, String) {
    let TextFailure { kind, field, .. } = failure.text;
    let (status, code) = match (kind, status) {
        (FailureKind::TooLarge, _) => (413, None),
        (FailureKind::TooLong, _) => (400, Some("context_length_exceeded")),
        (FailureKind::UnknownModel, _) => (404, Some("model_not_found")),
        (FailureKind::Restricted, _) => (401, Some("invalid_auth")),
        (_, 401) => (status, Some("invalid_api_key")),
        (_, 429) => (status, Some("rate_limit_exceeded")),
        _ => (status, None),
    };
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let message = match field {
        Some(field) if code.is_none() => Cow::Owned(format!("{field}: {message}")),
        _ => Cow::Borrowed(message),
    };
    let answer = ErrorAnswer { error: ErrorItem { message: &message, kind, param: field, code }, detail: &message };
    (status, printed(&answer))
}

/// Errors of bodies are those of pydantic; an unknown model is a 400.
fn as_triton_does(status: u16, failure: RequestFailure, message: &str) -> (u16, String) {
    let TextFailure { kind, field, .. } = failure.text;
    // Triton's front end counts whole requests.
    let message = &*message.replacen("request JSON size of", "Request size of", 1);
    let error = |status, code: &str| {
        let kind = if status == 401 { "authentication_error" } else { "invalid_request_error" };
        let error = serde_json::json!({ "message": message, "type": kind, "code": code });
        (status, serde_json::json!({ "error": error }).to_string())
    };
    let status = match kind {
        FailureKind::Restricted => return error(401, "invalid_auth"),
        FailureKind::TooLarge => return error(413, "content_too_large"),
        FailureKind::Form | FailureKind::Empty => {
            let place: &[&str] = &["body", field.unwrap_or_default()];
            let place = place.get(..if field.is_some() { 2 } else { 1 }).unwrap_or_default();
            // The rest names the place, which Triton has in a list.
            let message = if message.ends_with(MISSING) { MISSING } else { message };
            let detail = [serde_json::json!({ "type": "value_error", "loc": place, "msg": message })];
            return (422, serde_json::json!({ "detail": detail }).to_string());
        }
        FailureKind::UnknownModel | FailureKind::TooLong => 400,
        FailureKind::Other => status,
    };
    (status, serde_json::json!({ "detail": message }).to_string())
}

fn as_tei(status: u16, failure: RequestFailure, message: &str) -> (u16, String) {
    let is_by_model = failure.fault == tensor::Fault::Model;
    let (status, error_type) = match (failure.text.kind, status) {
        (FailureKind::Empty, _) => (400, "Empty"),
        (FailureKind::Form, _) => (422, "Tokenizer"),
        (FailureKind::TooLong | FailureKind::TooLarge, _) => (413, "Validation"),
        (_, 500..) if is_by_model => (424, "Backend"),
        // A full queue is no sick server.
        (_, 503) if failure.number == Some(tensor::Code::ResourceExhausted.grpc_status()) => (429, "Overloaded"),
        (_, 429) => (status, "Overloaded"),
        (_, 503) => (status, "Unhealthy"),
        (_, 500..) => (status, "Backend"),
        _ => (status, "Validation"),
    };
    (status, printed(&tei::ErrorAnswer { error: message, error_type }))
}

fn printed(answer: &impl serde::Serialize) -> String {
    // Types without maps: this cannot fail.
    serde_json::to_string(answer).unwrap_or_default()
}

/// A new id: `prefix-` and sixteen digits, different for each request and each start of a server.
pub fn new_id(prefix: &str) -> String {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| (now_ns() ^ (u64::from(std::process::id()) << 40)).into());
    // The finaliser of splitmix64, which maps different numbers to different numbers.
    let mut id = NEXT.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{prefix}-{:016x}", id ^ (id >> 31))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::routes::ROWS;
    use std::time::Duration;

    #[test]
    fn the_text_for_a_path_that_is_not_served_lists_those_that_are() {
        let mut rows: Vec<_> =
            ROWS.iter().map(|row| row.path).filter(|path| path.as_bytes().starts_with(PREFIX)).collect();
        let mut served = SERVED.to_vec();
        rows.sort_unstable();
        served.sort_unstable();
        assert_eq!(rows, served);
    }

    #[test]
    fn ids_differ() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| new_id("req")).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 20 && id.starts_with("req-")));
    }

    #[test]
    fn an_error_has_the_status_and_the_form_of_its_route() {
        let invalid = || TextError::of(Error::invalid("why"), FailureKind::Form, Some("model"));
        let unknown = || TextError::of(Error::not_found("why"), FailureKind::UnknownModel, Some("model"));
        let long = || TextError::from(Error::invalid("why").too_long());
        let exhausted = GateError::Exhausted { reason: "why".into(), retry_after: Duration::from_millis(1500) };
        let check = |error: TextError, form, as_triton, status, body: &str, retry: &str| {
            let mut reply = error.reply();
            complete(form, as_triton, &RequestHead::default(), &mut reply);
            let found: Vec<_> = reply.body.iter().map(|part| String::from_utf8_lossy(part)).collect();
            assert_eq!((reply.status, &*found.concat()), (status, body));
            assert!(error_text(&reply.body).ends_with("why"), "logs have the text");
            let fields = reply.extra.unwrap();
            let field =
                |name: &str| fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string());
            assert!(field("x-request-id").is_some());
            let (name, value) = retry.split_once('=').unwrap();
            assert_eq!(field(name).as_deref(), Some(value));
        };
        use ErrorForm::{OpenAi, Tei};
        let openai = |text: &str, kind: &str, param: &str, code: &str| {
            format!(
                r#"{{"error":{{"message":"{text}","type":"{kind}","param":{param},"code":{code}}},"detail":"{text}"}}"#
            )
        };
        let no = "x-should-retry=false";
        let wrong = "invalid_request_error";
        check(invalid(), OpenAi, false, 400, &openai("model: why", wrong, r#""model""#, "null"), no);
        check(unknown(), OpenAi, false, 404, &openai("why", wrong, r#""model""#, r#""model_not_found""#), no);
        check(long(), OpenAi, false, 400, &openai("why", wrong, "null", r#""context_length_exceeded""#), no);
        check(Error::internal("why").into(), OpenAi, false, 500, &openai("why", "server_error", "null", "null"), no);
        let limit = openai("why", "rate_limit_error", "null", r#""rate_limit_exceeded""#);
        check(exhausted.clone().into(), OpenAi, false, 429, &limit, "retry-after-ms=1500");
        let key = openai("why", "authentication_error", "null", r#""invalid_api_key""#);
        check(GateError::Unauthenticated("why".into()).into(), OpenAi, false, 401, &key, no);
        let detail = r#"{"detail":[{"loc":["body","model"],"msg":"why","type":"value_error"}]}"#;
        check(invalid(), OpenAi, true, 422, detail, no);
        check(unknown(), OpenAi, true, 400, r#"{"detail":"why"}"#, no);
        let tei = |kind: &str| format!(r#"{{"error":"why","error_type":"{kind}"}}"#);
        check(invalid(), Tei, false, 422, &tei("Tokenizer"), no);
        check(invalid().tei(), OpenAi, false, 422, &tei("Tokenizer"), no);
        check(FormError { is_empty: true, ..FormError::of("x", "why") }.into(), Tei, true, 400, &tei("Empty"), no);
        check(long(), Tei, false, 413, &tei("Validation"), no);
        check(Error::internal("why").by_model().into(), Tei, false, 424, &tei("Backend"), no);
        check(Error::exhausted("why").into(), Tei, false, 429, &tei("Overloaded"), "retry-after-ms=1000");
        check(Error::unavailable("why").into(), Tei, false, 503, &tei("Unhealthy"), "retry-after-ms=1000");
    }
}
