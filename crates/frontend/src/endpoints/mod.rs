//! Endpoints: what the server does for a client, each in one file: its name in logs, its permission, how much body it
//! takes and where the body goes, its responses over HTTP and gRPC, and its line in the audit log.
//!
//! A row of [`table`](crate::table) gives an endpoint its path. HTTP, gRPC and an embedded server drive the same
//! endpoints: a new route is a row and a file here. Routing, permissions, names in logs, the OpenAPI document and the
//! suite `exposed` derive from the rows.

pub mod chat;
pub mod classify;
pub mod cohere_embed;
pub mod config;
pub mod console;
pub mod embeddings;
#[cfg(test)]
pub mod example;
pub mod generate;
pub mod health;
pub mod index;
pub mod infer;
pub mod invocations;
pub mod load;
pub mod metadata;
pub mod model_why;
pub mod models;
pub mod openapi;
pub mod pages;
pub mod reflection;
pub mod regions;
pub mod rerank;
pub mod score;
pub mod settings;
pub mod statistics;
pub mod tei;
pub mod text_models;
pub mod unload;
pub mod why;

// Imports of most endpoints, each of which begins with `use super::*`.
use crate::access::Category;
use crate::access_log::json_line::JsonLine;
use crate::control::ControlOperation;
use crate::exchange::{Endpoint, GrpcAnswer, GrpcExchange, GrpcStream, HttpAnswer, HttpExchange, Later};
use crate::failure::ErrorForm;
use crate::gate_error::Result;
use crate::grpc::decode::{decode, decode_long, read_message};
use crate::grpc::message::frame;
use crate::http::body::RequestBody;
use crate::http::decode::{optional, read};
use crate::http::reply::{JSON, Reply};
use crate::limits::{JSON_BYTES_ON_REACTOR_MAX, LOG_NAME_BYTES_MAX};
use crate::offload;
use crate::operation::Context;
use crate::rope::Rope;
use crate::table::facts::{CallForm, Draining, Facts};
use crate::table::paths::PathNames;
use crate::text::Text;
use crate::text_calls::{self, Ran, TextEndpoint, TextResult};
use crate::text_errors::TextError;
use bytes::Bytes;
use engine::Engine;
use prost::{DecodeError, Message};
use protocol::json::Value;
use protocol::pb::inference as pb;
use tensor::Error;

/// Fields of messages that name a model and a version.
const MODEL_NAMES: &[(&str, u32)] = &[("model", 1), ("version", 2)];

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "responses of OpenAI's API have the wall clock")]
pub fn unix_secs() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An answer whose body is made by `work`: JSON, or nothing if the status is the answer.
fn later<'a>(work: impl Future<Output = Result<Bytes>> + 'a) -> HttpAnswer<'a> {
    HttpAnswer::Later(Box::pin(async move { answered(work.await) }))
}

fn answered(answer: Result<Bytes>) -> Reply {
    match answer {
        Ok(body) => Reply::json(body),
        Err(error) => Reply::failed(&error),
    }
}
