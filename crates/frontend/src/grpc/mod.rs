//! gRPC over the `http2` crate: connections, framing, calls. A unary call that does not wait is one function call.

pub mod call;
pub mod connection;
pub mod context;
pub mod control;
mod delays;
mod load;
pub(crate) mod message;
mod reflection;
pub mod reply;
pub mod status;
mod stream;
mod timeout;
mod unary;
mod upkeep;
mod watch;
