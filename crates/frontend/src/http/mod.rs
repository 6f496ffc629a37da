//! The HTTP front end: HTTP/1 and HTTP/2 on one side, the v2 REST operations on the other.

pub mod body;
mod chunked;
pub mod connection;
pub mod context;
mod cors;
pub mod decode;
pub mod events;
pub mod generate;
mod h2c;
pub mod inference;
pub mod method;
pub mod orca;
pub mod reply;
pub mod request;
pub mod service;
