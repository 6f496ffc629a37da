//! Chat and completions: forms of requests and responses, templates, calls of tools, and how a model takes and gives
//! them. Pure: no threads, no I/O.

pub mod body;
mod facts;
pub mod fields;
pub mod fuzz;
mod holds;
mod logprobs;
pub mod messages;
pub mod places;
pub mod request;
pub mod responses;
pub mod speech;
mod stops;
pub mod template;
pub mod tools;
mod wire;
