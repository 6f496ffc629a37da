//! The OpenAPI document of the server, or of a model.

use super::*;
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::http::decode::percent_decode;
use crate::http::request::RequestHead;
use crate::limits::DISCARD_BYTES_MAX;
use std::borrow::Cow;

/// The document. Its query may name a model, which the path does not.
pub struct OpenApi;

/// The first value of this name in a query, percent-decoded; empty if there is none.
fn given<'q>(query: &'q [u8], name: &str) -> Cow<'q, str> {
    let pairs = query.split(|&b| b == b'&').filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| percent_decode(value)).next().unwrap_or_default()
}

impl Endpoint for OpenApi {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("openapi", Category::Metadata) }
    }

    fn admit(&self, grant: &Grant, head: &RequestHead) -> std::result::Result<(), GateError> {
        match given(head.query(), "model") {
            model if model.is_empty() => Ok(()),
            model => grant.admit_model(&model),
        }
    }

    fn body_bytes_max(&self, _exchange: &HttpExchange<'_>) -> u64 {
        DISCARD_BYTES_MAX
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let query = exchange.head.query();
            let mut argument = Text::begin(b'{');
            argument.key("model").string(&given(query, "model")).key("version").string(&given(query, "version"));
            argument.close(b'}');
            exchange.operations().control(ControlOperation::OpenApi, argument).await.map(Bytes::from)
        })
    }
}
