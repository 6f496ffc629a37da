//! gRPC over the `http2` crate: connections, framing, calls. A unary call that does not wait is one function call.

pub mod call;
pub mod connection;
pub mod context;
pub mod decode;
mod delays;
pub mod load;
pub(crate) mod message;
pub mod reflection;
pub mod reply;
pub mod status;
pub mod stream;
mod timeout;
mod unary;
mod upkeep;
pub mod watch;
