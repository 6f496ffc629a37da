//! Fuzz targets: each takes arbitrary bytes through one of the readers that stand between a socket and a model, or a
//! file or a store and one.
//!
//! A target fails by panicking. Besides "nothing panics" it checks what must hold whatever came in: a request that
//! arrives in pieces means what it means in one, two ways of reading the same agree, what is printed reads back the
//! same. It returns whether the input was accepted, so that a run can tell that it got past the first check.
//!
//! Not here: sockets, model configuration (TypeScript, see README.md).

mod archive;
mod cache_entry;
mod cache_messages;
mod certificate;
mod chat_tools;
mod elf;
mod files;
mod forest;
mod grpc;
mod http2;
mod http2_direct;
mod http_body;
mod http_head;
mod json;
mod keys_file;
mod load_response;
mod model;
mod onnx;
mod redis_reply;
mod runner_frames;
mod text;
mod text_forms;
mod tls_front;
mod token;
mod trace_context;
mod visible;
mod vision;
mod worker;

pub use self::vision::{boxes, picture};
pub use archive::archive;
pub use cache_entry::cache_entry;
pub use cache_messages::cache_messages;
pub use certificate::certificate;
pub use chat::fuzz::{chat_forms, chat_template};
pub use chat_tools::chat_tools;
pub use elf::elf;
pub use files::files;
pub use forest::{trees_binary, trees_json, trees_lightgbm, trees_treelite, trees_ubjson};
pub use grpc::grpc;
pub use http_body::http_body;
pub use http_head::http_head;
pub use http2::http2;
pub use http2_direct::http2_direct;
pub use json::json;
pub use keys_file::keys_file;
pub use load_response::load_response;
pub use onnx::onnx;
pub use redis_reply::redis_reply;
pub use runner_frames::runner_frames;
pub use text::text;
pub use text_forms::text_forms;
pub use tls_front::tls_front;
pub use token::token;
pub use trace_context::trace_context;
pub use visible::visible;
pub use worker::worker;

// The readers of the front end are private to it, and pure. They are compiled from where they stand, so that fuzzing
// needs neither an opening in the server nor the server's sockets, runtime and engine. A new dependency of one of them
// shows as a build error here.
#[allow(dead_code)]
#[path = "../../crates/frontend/src/access.rs"]
mod access;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/cors.rs"]
mod cors;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/encoding.rs"]
mod encoding;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/keys.rs"]
mod keys;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/origin.rs"]
mod origin;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/http"]
mod http {
    pub mod chunked;
    pub mod method;
    pub mod request;
}
#[allow(dead_code)]
#[path = "../../crates/frontend/src/gate_error.rs"]
mod gate_error;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/limits.rs"]
mod limits;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/table/paths.rs"]
mod paths;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/watched_file.rs"]
mod watched_file;
// A TLS connection without its socket.
#[allow(dead_code)]
#[path = "../../crates/frontend/src/tls/machine.rs"]
mod machine;
#[allow(dead_code)]
#[path = "../../crates/frontend/src/tls/version1.rs"]
mod version1;

// Likewise the reader of ONNX files: without the runtime it is there for.
#[allow(dead_code)]
#[path = "../../crates/backend-onnx/src/cost.rs"]
mod cost;
#[allow(dead_code)]
#[path = "../../crates/backend-onnx/src/proto.rs"]
mod proto;

// And the reader of libraries, which is called as what it reads: another module has its name.
#[allow(dead_code)]
#[path = "../../crates/backend-onnx/src/provider/elf.rs"]
mod library;

// And that of the variable which chooses devices.
#[allow(dead_code)]
#[path = "../../crates/device/src/visible.rs"]
mod visible_devices;

/// A target by name.
pub type Target = fn(&[u8]) -> bool;

/// All of them.
pub const TARGETS: [(&str, Target); 34] = [
    ("http_head", http_head),
    ("http_body", http_body),
    ("files", files),
    ("picture", picture),
    ("boxes", boxes),
    ("chat_forms", chat_forms),
    ("chat_template", chat_template),
    ("json", json),
    ("text_forms", text_forms),
    ("grpc", grpc),
    ("http2", http2),
    ("http2_direct", http2_direct),
    ("tls_front", tls_front),
    ("elf", elf),
    ("visible", visible),
    ("onnx", onnx),
    ("cache_entry", cache_entry),
    ("cache_messages", cache_messages),
    ("certificate", certificate),
    ("keys_file", keys_file),
    ("token", token),
    ("trace_context", trace_context),
    ("runner_frames", runner_frames),
    ("text", text),
    ("chat_tools", chat_tools),
    ("worker", worker),
    ("archive", archive),
    ("redis_reply", redis_reply),
    ("load_response", load_response),
    ("trees_json", trees_json),
    ("trees_ubjson", trees_ubjson),
    ("trees_binary", trees_binary),
    ("trees_lightgbm", trees_lightgbm),
    ("trees_treelite", trees_treelite),
];
