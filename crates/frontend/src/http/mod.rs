//! The HTTP front end: HTTP/1 and HTTP/2 on one side, the v2 REST operations on the other.

pub mod body;
mod chunked;
pub mod connection;
pub mod context;
mod control;
mod cors;
pub mod events;
mod generate;
mod h2c;
mod inference;
pub mod method;
mod orca;
pub mod reply;
pub mod request;
pub mod service;
