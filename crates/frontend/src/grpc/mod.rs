//! gRPC over h2, by hand: connections, framing, calls. No tonic: a unary call here is one poll of one future.

pub mod call;
pub mod connection;
mod control;
mod message;
mod method;
mod reflection;
mod status;
mod stream;
mod timeout;
mod unary;
mod upkeep;
mod watch;
