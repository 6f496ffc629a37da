//! Inference: `infer` over HTTP, `ModelInfer` and `ModelStreamInfer` over gRPC. How requests become tensors is in
//! `http::inference`, `grpc::unary` and `grpc::stream`.

use super::*;
use crate::exchange::BodyPlace;
use crate::grpc::stream;
use crate::http::inference;
use crate::limits::BODY_BYTES_MAX;

const FACTS: Facts = Facts { draining: Draining::Sequences, ..Facts::read("infer", Category::Inference) };

/// One request, one response.
pub struct Infer;

impl Endpoint for Infer {
    fn facts(&self) -> &'static Facts {
        const { &Facts { form: CallForm::Inference, ..FACTS } }
    }

    fn body_bytes_max(&self, _exchange: &HttpExchange<'_>) -> u64 {
        BODY_BYTES_MAX
    }

    fn reject_early(&self, exchange: &HttpExchange<'_>) -> Option<Reply> {
        inference::reject_early(exchange)
    }

    fn body_place(&self, exchange: &HttpExchange<'_>, length: usize, takes_regions: bool) -> BodyPlace {
        let head = exchange.head;
        if head.headers.get("content-encoding").is_some() {
            return BodyPlace::Slab { near_device: false };
        }
        let json = head.json_length().filter(|json| takes_regions && (1..=JSON_BYTES_ON_REACTOR_MAX).contains(json));
        let lent = json.and_then(|json| {
            let region = exchange.version().ok()?.lend_input(length.checked_sub(json)?)?;
            Some(BodyPlace::Region { json, region })
        });
        lent.unwrap_or_else(|| {
            // Raw tensors for a model on a device. Without devices one branch.
            let near_device = memory::has_devices()
                && head.headers.get("inference-header-content-length").is_some()
                && exchange.version().is_ok_and(|model| model.reads_on_device());
            BodyPlace::Slab { near_device }
        })
    }

    fn too_large(&self, exchange: &HttpExchange<'_>, bytes: u64) -> Reply {
        // The model comes first in the order of checks, even here.
        let error = exchange.version().err().unwrap_or_else(|| {
            let text = bytes.to_string();
            let parsed = protocol::http::parse_content_length(&text).err();
            parsed.unwrap_or_else(|| Error::invalid(format!("Unable to parse Content-Length, got: {text}")))
        });
        Reply::error(JSON, &error)
    }

    #[inline]
    fn http<'a>(&'a self, _exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Inference(body)
    }
}

/// Any number of requests in a gRPC stream, with any number of responses.
pub struct StreamInfer;

impl Endpoint for StreamInfer {
    fn facts(&self) -> &'static Facts {
        const { &Facts { name: "stream", form: CallForm::Inferences, ..FACTS } }
    }

    fn serve<'a>(&'a self, stream: GrpcStream<'a>) -> Later<'a, ()> {
        Box::pin(stream::serve(stream))
    }
}
