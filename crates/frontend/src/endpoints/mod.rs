//! Endpoints: what the server does for a client, each in one file: its name in logs, its permission, how much body it
//! takes and where the body goes, its responses over HTTP and gRPC, and its line in the audit log.
//!
//! A row of [`table`](crate::table) gives an endpoint its path. HTTP, gRPC and an embedded server drive the same
//! endpoints: a new route is a row and a file here. Routing, permissions, names in logs, the OpenAPI document and the
//! suite `exposed` derive from the rows.

pub mod config;
#[cfg(test)]
pub mod example;
pub mod generate;
pub mod health;
pub mod index;
pub mod infer;
pub mod load;
pub mod metadata;
pub mod models;
pub mod openapi;
pub mod pages;
pub mod reflection;
pub mod regions;
pub mod settings;
pub mod statistics;
pub mod unload;

use crate::exchange::HttpAnswer;
use crate::gate_error::Result;
use crate::http::reply::Reply;
use bytes::Bytes;

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
