//! Lines of `--log-verbose=1` about requests, in Triton's words, for which its QA scripts and users search. While the
//! level is off, each costs a relaxed load and a branch. Addresses of buffers and states of objects are left out.

use crate::http::method::Method;
use log::Level;
use protocol::{CorrelationId, InferRequest, InferResponse, Signature};
use std::fmt::Write;
use tensor::{Error, Name, Result};

/// Bytes of a line; the log cuts longer ones as well.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Whether the lines are logged.
pub fn is_on() -> bool {
    log::log_enabled!(Level::Debug)
}

/// An HTTP request was routed. Without its query, which may contain secrets.
pub fn http_request(method: Method, path: &[u8]) {
    log::debug!("HTTP request: {} {}", number(method), String::from_utf8_lossy(path));
}

/// No route has this path.
pub fn http_not_found(method: Method, path: &[u8]) {
    log::debug!("HTTP error: {} {} - 404", number(method), String::from_utf8_lossy(path));
}

/// The numbers Triton's HTTP library gives to methods.
fn number(method: Method) -> u8 {
    match method {
        Method::Get => 0,
        Method::Post => 2,
        Method::Other(method) => method.0,
    }
}

/// A gRPC call was admitted.
pub fn grpc_started(path: &[u8]) {
    log::debug!("Process for {}0 step START", handler(path));
}

/// A message of a stream was read.
pub fn stream_read() {
    log::debug!("Process for ModelStreamInferHandler, rpc_ok=1, context 0, 0 step READ");
}

/// A gRPC call was answered.
pub fn grpc_done(path: &[u8]) {
    if is_on() {
        let handler = handler(path);
        log::debug!("Process for {handler}0 step COMPLETE");
        if is_inference(path) {
            log::debug!("Process for {handler}0 step FINISH");
        }
        log::debug!("Done for {}, 0", name(path));
    }
}

/// The client of a call disconnected before its response.
pub fn grpc_cancelled(path: &[u8]) {
    log::debug!("Cancellation notification received for {}, rpc_ok=1", name(path));
}

/// Handler of a step. Triton numbers calls and contexts from 0; here all have the number 0.
fn handler(path: &[u8]) -> String {
    let context = if method(path) == b"ModelStreamInfer" { "context 0, " } else { "" };
    format!("{}, rpc_ok=1, {context}", name(path))
}

/// Name of a handler: `ModelInferHandler` and `ModelStreamInferHandler`. The other calls share one handler and have
/// their own names, two of them shorter ones.
fn name(path: &[u8]) -> String {
    match method(path) {
        b"LogSettings" => "Logging".to_owned(),
        b"TraceSetting" => "Trace".to_owned(),
        other => format!("{}{}", String::from_utf8_lossy(other), if is_inference(path) { "Handler" } else { "" }),
    }
}

fn is_inference(path: &[u8]) -> bool {
    matches!(method(path), b"ModelInfer" | b"ModelStreamInfer")
}

fn method(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or_default()
}

/// An inference failed.
pub fn infer_failed(id: Option<&Name>, error: &Error) {
    log::debug!("[request id: {}] Infer failed: {}", printed(id.map_or("", |id| id)), error.message());
}

/// An inference was checked and accepted; see [`prepared_text`].
pub fn prepared(text: &str) {
    log::debug!("{text}");
}

/// An inference has a response.
pub fn answered(id: &Name, result: &Result<Box<InferResponse>>) {
    match result {
        Ok(response) => {
            for output in &response.outputs {
                let (name, datatype) = (&output.name, output.datatype.name());
                log::debug!("add response output: output: {name}, type: {datatype}, shape: {}", dims(&output.shape));
            }
        }
        Err(error) => infer_failed(Some(id), error),
    }
}

/// Triton's description of a request, without addresses, and with the inputs once: it repeats them.
pub fn prepared_text(signature: &Signature, request: &InferRequest) -> String {
    let is_batching = signature.max_batch_size > 0;
    let batch_size = request.inputs.first().filter(|_| is_batching).and_then(|i| i.shape.first()).copied().unwrap_or(0);
    let flags = u8::from(request.sequence.start) | u8::from(request.sequence.end) << 1;
    let correlation_id = match &request.sequence.id {
        CorrelationId::Number(id) => id.to_string(),
        CorrelationId::String(id) => id.to_string(),
    };
    let mut text = format!(
        "[request id: {}] prepared: request id: {}, model: {}, actual version: {}, flags: {flags:#x}, correlation id: \
         {correlation_id}, batch size: {batch_size}, priority: {}, timeout (us): {}\ninputs:\n",
        printed(&request.id),
        &request.id,
        signature.model,
        signature.version,
        request.priority,
        request.timeout_us
    );
    for input in &request.inputs {
        let full = dims(&input.shape);
        let shape = dims(input.shape.get(usize::from(is_batching)..).unwrap_or_default());
        let datatype = input.datatype.map_or("<invalid>", |t| t.name());
        let name = &input.name;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "input: {name}, type: {datatype}, original shape: {full}, batch + shape: {full}, shape: {shape}"
        );
        if text.len() > LINE_BYTES_MAX {
            return text;
        }
    }
    text.push_str("requested outputs:\n");
    let requested = request.outputs.iter().map(|o| &o.name);
    let all = signature.outputs.iter().map(|o| &o.name).filter(|_| request.outputs.is_empty());
    for name in requested.chain(all) {
        let _ = writeln!(text, "{name}");
        if text.len() > LINE_BYTES_MAX {
            break;
        }
    }
    text
}

/// Formats a shape: `[1,16]`.
fn dims(shape: &[i64]) -> String {
    let all: Vec<_> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", all.join(","))
}

/// Formats an id for a message.
fn printed(id: &str) -> &str {
    if id.is_empty() { "<id_unknown>" } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_have_the_names_of_triton() {
        assert_eq!(handler(b"/inference.GRPCInferenceService/ModelInfer"), "ModelInferHandler, rpc_ok=1, ");
        assert_eq!(
            handler(b"/inference.GRPCInferenceService/ModelStreamInfer"),
            "ModelStreamInferHandler, rpc_ok=1, context 0, "
        );
        assert_eq!(name(b"/inference.GRPCInferenceService/ServerLive"), "ServerLive");
        assert_eq!(name(b"/inference.GRPCInferenceService/LogSettings"), "Logging");
    }

    #[test]
    fn methods_have_the_numbers_of_tritons_library() {
        for (text, expected) in
            [("GET", 0), ("HEAD", 1), ("POST", 2), ("PUT", 3), ("DELETE", 4), ("OPTIONS", 8), ("PATCH", 15)]
        {
            assert_eq!(number(Method::parse(text.as_bytes())), expected, "{text}");
        }
        assert_eq!(number(Method::parse(b"BREW")), 16);
    }
}
