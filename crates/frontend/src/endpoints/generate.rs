//! `generate` and `generate_stream` (P 1.13), over HTTP only. How bodies become tensors is in `http::generate`.

use super::*;
use crate::http::generate;
use crate::http::orca;

/// A flat JSON object in; one such object, or a stream of events, out.
pub struct Generate {
    pub streams: bool,
}

impl Endpoint for Generate {
    fn facts(&self) -> &'static Facts {
        match self.streams {
            false => const { &Facts::read("generate", Category::Inference) },
            true => const { &Facts::read("generate_stream", Category::Inference) },
        }
    }

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
