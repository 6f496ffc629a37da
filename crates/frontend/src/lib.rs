//! Listeners, routing, authorisation, limits: HTTP and gRPC.
//!
//! This crate owns the sockets. One thread reads a request, parses it with `protocol`, runs it with `engine` and
//! answers it, without a task of its own unless it has to wait. TypeScript decides model control and settings, through
//! [`Control`]. Not here: what a tensor is, what a model accepts, when a batch is formed, what the settings mean.
//!
//! Invariants:
//! - Nothing on a reactor blocks, and nothing occupies it for longer than a millisecond: [`hold`] counts.
//! - The end of a connection and a deadline cancel the inference: dropping the future of a response does it.
//! - Every buffer that a client can fill has a limit in [`limits`].

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod access;
mod access_log;
pub mod answers;
mod assemble;
mod chat_calls;
mod chat_stream;
mod control;
mod cors;
mod describe;
mod descriptors;
pub mod embed;
mod encoding;
mod endpoints;
mod exchange;
pub mod failure;
mod forward;
mod gate;
mod gate_console;
mod gate_error;
#[cfg(target_os = "linux")]
pub mod given;
#[cfg(not(target_os = "linux"))]
#[path = "given_nowhere.rs"]
pub mod given;
mod given_socket;
mod grpc;
mod hold;
mod http;
mod idle;
mod inference;
mod keys;
pub mod limits;
mod listen;
mod offload;
mod operation;
mod origin;
mod packed;
mod place;
mod record;
mod rope;
mod server;
mod shared;
mod socket;
mod stray;
mod table;
mod text;
mod text_calls;
mod text_errors;
pub mod tls;
mod transfer;
mod unix;
mod verbose;
mod watch;
mod watched_file;

pub use access_log::{LogCounts, Logs};
pub use control::{Argument, Control, ControlOperation, ControlReply};
pub use describe::{described as described_routes, is_open as is_open_to_all};
pub use endpoints::metadata::Metadata;
pub use hold::{BOUNDS_NS as HOLD_BOUNDS_NS, HoldTotals};
pub use keys::{Keyring, check_keys_file};
pub use listen::BoundListener;
pub use offload::{OffloadStatus, status as offload_status};
pub use options::{GrpcOptions, HttpOptions, ListenOptions, RequestLogOptions, Restriction, TlsOptions};
pub use server::{Bound, FrontEnd, FrontendOptions, StartFailure, bind, bind_metrics, reactors, serve};
