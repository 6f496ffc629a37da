//! `POST /v1/embeddings`: OpenAI's form.

use super::*;
use protocol::text::openai::{EmbeddingItem, EmbeddingsAnswer, EmbeddingsRequest, EncodingFormat, Usage};
use protocol::text::rows::Embedding;
use protocol::text::{FormError, Role};

pub static ENDPOINT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("embeddings", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body)),
};

pub async fn answer(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) =
        text_calls::read_only::<EmbeddingsRequest>(exchange, body, &EmbeddingsRequest::TRITON_FIELDS).await?;
    let options = form.options()?;
    let as_triton = exchange.context.openai_errors_as_triton;
    if as_triton && form.model.is_none() {
        return Err(FormError::missing("model").into());
    }
    let texts = text_calls::some(form.input, "input")?;
    if as_triton && texts.has_empty() {
        return Err(FormError::empty("input").into());
    }
    let target = text_calls::find(exchange, form.model.as_deref(), &[Role::Embed])?;
    let Ran { rows, tokens, .. } = target.run(exchange, texts, &options).await?;
    let is_base64 = form.encoding_format == Some(EncodingFormat::Base64);
    let (values, model) = (rows.bytes(), target.name);
    let print = move || {
        let form = |row| if is_base64 { Embedding::Base64(row) } else { Embedding::Float(row) };
        let items = rows.finite()?.into_iter().enumerate();
        let data = items.map(|(index, row)| EmbeddingItem { object: "embedding", index, embedding: form(row) });
        let data = data.collect();
        let answer = EmbeddingsAnswer { object: "list", data, model: &model, usage: Usage::of(tokens) };
        answer.print(text_calls::printed_bytes(values, is_base64))
    };
    text_calls::answered(exchange, values, print).await
}
