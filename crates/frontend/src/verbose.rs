//! Lines of `--log-verbose=1` about requests, in Triton's words; its QA scripts and its users look for them. While the level is off
//! each costs a relaxed load and a branch.

use crate::http::route::Method;
use log::Level;
use tensor::{Error, Name};

/// Whether the lines are wanted.
pub fn is_on() -> bool {
    log::log_enabled!(Level::Debug)
}

/// An HTTP request was routed. Without its query, which may hold secrets.
pub fn http_request(method: Method, path: &[u8]) {
    // The numbers Triton's HTTP library gives to methods.
    let number = match method {
        Method::Get => 0,
        Method::Post => 2,
        Method::Other => -1,
    };
    log::debug!("HTTP request: {number} {}", String::from_utf8_lossy(path));
}

/// A gRPC call was admitted; `name` as Triton's handlers are called, see [`handler`].
pub fn grpc_request(path: &[u8]) {
    if is_on() {
        log::debug!("Process for {}, rpc_ok=1, 0 step START", handler(path));
    }
}

/// The client of a call went away before its answer.
pub fn grpc_cancelled(path: &[u8]) {
    if is_on() {
        log::debug!("Cancellation notification received for {}, rpc_ok=1", handler(path));
    }
}

/// `ModelInferHandler` and `ModelStreamInferHandler`; the other calls share one handler and go by their own names.
fn handler(path: &[u8]) -> String {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let suffix = if matches!(name, b"ModelInfer" | b"ModelStreamInfer") { "Handler" } else { "" };
    format!("{}{suffix}", String::from_utf8_lossy(name))
}

/// An inference failed before it had an id, or after.
pub fn infer_failed(id: Option<&Name>, error: &Error) {
    let id = id.map_or("", |id| id);
    log::debug!("[request id: {}] Infer failed: {}", if id.is_empty() { "<id_unknown>" } else { id }, error.message());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_have_their_names() {
        assert_eq!(handler(b"/inference.GRPCInferenceService/ModelInfer"), "ModelInferHandler");
        assert_eq!(handler(b"/inference.GRPCInferenceService/ServerLive"), "ServerLive");
    }
}
