//! Answers requests over HTTP.

use super::body::RequestBody;
use super::reply::Reply;
use super::{inference, orca};
use crate::exchange::{HttpAnswer, HttpExchange};

/// Answers a request whose body was read. Only an inference is not boxed: the future of every request has the size of
/// its largest state.
pub async fn respond<'a>(exchange: &'a HttpExchange<'a>, body: RequestBody) -> Reply {
    match exchange.answer(body) {
        HttpAnswer::Ready(reply) => reply,
        HttpAnswer::Later(reply) => reply.await,
        HttpAnswer::Inference(body) => {
            let reply = inference::infer(exchange, body).await;
            orca::add_load_report(exchange.context, exchange.head, reply)
        }
    }
}
