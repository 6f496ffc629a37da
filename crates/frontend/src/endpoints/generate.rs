//! `generate` and `generate_stream` (P 1.13), over HTTP only. How bodies become tensors is in `http::generate`.

use crate::access::Category;
use crate::exchange::{Endpoint, HttpAnswer, HttpExchange};
use crate::http::body::RequestBody;
use crate::http::reply::Reply;
use crate::http::{generate, orca};
use crate::table::facts::{Described, Facts};

/// A flat JSON object in; one such object, or a stream of events, out.
pub struct Generate {
    pub streams: bool,
}

impl Described for Generate {
    fn facts(&self) -> Facts {
        Facts::read(if self.streams { "generate_stream" } else { "generate" }, Category::Inference)
    }
}

impl Endpoint for Generate {
    fn reject_early(&self, exchange: &HttpExchange<'_>) -> Option<Reply> {
        generate::reject_early(exchange)
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Later(Box::pin(async move {
            let reply = generate::generate(exchange, &body.bytes, self.streams).await;
            orca::add_cache_report(exchange, reply)
        }))
    }
}
