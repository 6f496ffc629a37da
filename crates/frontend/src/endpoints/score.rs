//! `POST /score` and `/v1/score`: vLLM's form.

use super::rerank::ROLES;
use super::*;
use crate::text_errors::new_id;
use protocol::text;
use protocol::text::openai::{ScoreAnswer, ScoreItem, ScoreRequest, Usage};
use std::sync::Arc;

pub static ENDPOINT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("score", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body)),
};

pub async fn answer(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) = text_calls::read::<ScoreRequest>(exchange, body).await?;
    let options = form.options()?;
    let first = text_calls::some_texts(form.text_1, "text_1")?;
    let second = Arc::new(text_calls::some_texts(form.text_2, "text_2")?);
    let target = text_calls::find(exchange, form.model.as_deref(), &ROLES)?;
    let (scores, ran) = target.score(exchange, first, second, &options).await?;
    let model = target.name;
    let bytes = scores.len() * 64;
    let print = move || {
        let items = scores.into_iter().enumerate();
        let data = items.map(|(index, score)| ScoreItem { index, object: "score", score }).collect();
        let (id, created, usage) = (&*new_id("score"), unix_secs(), Usage::of(ran.tokens));
        text::print(&ScoreAnswer { id, object: "list", created, model: &model, data, usage }, bytes)
    };
    text_calls::answered(exchange, bytes, print).await
}
