//! The OpenAPI document of the server, or of a model.

use super::*;
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::http::decode::query_value;
use crate::http::request::RequestHead;
use crate::limits::DISCARD_BYTES_MAX;

/// The document. Its query may name a model, which the path does not.
pub struct OpenApi;

impl Endpoint for OpenApi {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("openapi", Category::Metadata) }
    }

    fn admit(&self, grant: &Grant, head: &RequestHead) -> std::result::Result<(), GateError> {
        match query_value(head.query(), "model") {
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
            argument
                .key("model")
                .string(&query_value(query, "model"))
                .key("version")
                .string(&query_value(query, "version"));
            argument.close(b'}');
            exchange.operations().control(ControlOperation::OpenApi, argument).await.map(Bytes::from)
        })
    }
}
