//! `POST /v1/chat/completions` and `/v1/completions`: OpenAI's form, over models that stream text (P 4).

use super::*;
use crate::chat_calls;
use ::chat::fields::On;

pub static CHAT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("chat_completions", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(chat_calls::answer(exchange, body, On::Chat)),
};

pub static COMPLETIONS: TextEndpoint = TextEndpoint {
    facts: &Facts::text("completions", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(chat_calls::answer(exchange, body, On::Completions)),
};
