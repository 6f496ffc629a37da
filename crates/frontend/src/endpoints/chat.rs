//! `POST /v1/chat/completions`, `/v1/completions` and `/v1/responses`: OpenAI's forms, over models that stream text
//! (P 4).

use super::*;
use crate::chat_calls;
use ::chat::fields::On;
use ::chat::request::ChatRequest;
use ::chat::responses;

pub static CHAT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("chat_completions", ErrorForm::OpenAi),
    answer: |exchange, body| {
        Box::pin(chat_calls::answer(exchange, body, |body, as_triton| ChatRequest::read(body, On::Chat, as_triton)))
    },
};

pub static COMPLETIONS: TextEndpoint = TextEndpoint {
    facts: &Facts::text("completions", ErrorForm::OpenAi),
    answer: |exchange, body| {
        Box::pin(chat_calls::answer(exchange, body, |body, as_triton| {
            ChatRequest::read(body, On::Completions, as_triton)
        }))
    },
};

/// Triton's front end does not have it, so `--openai-errors=triton` decides the form of errors only.
pub static RESPONSES: TextEndpoint = TextEndpoint {
    facts: &Facts::text("responses", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(chat_calls::answer(exchange, body, |body, _| responses::read(body))),
};
