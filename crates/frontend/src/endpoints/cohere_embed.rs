//! `POST /v2/embed`: Cohere's form.

use super::*;
use crate::text_errors::new_id;
use protocol::text::Role;
use protocol::text::cohere::{EmbedAnswer, EmbedRequest, EmbedTypes, Meta, TextList};
use protocol::text::rows::Embedding;

pub static ENDPOINT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("cohere_embed", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body)),
};

async fn answer(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) = text_calls::read::<EmbedRequest>(exchange, body).await?;
    let (options, types) = (form.options()?, form.types()?);
    let texts = text_calls::some_texts(form.texts, "texts")?;
    let target = text_calls::find(exchange, form.model.as_deref(), &[Role::Embed])?;
    let Ran { rows, tokens, .. } = target.run(exchange, texts.clone(), &options).await?;
    let values = rows.bytes();
    let print = move || {
        let rows = rows.finite()?;
        let base64 = types.1.then(|| rows.iter().copied().map(Embedding::Base64).collect());
        let embeddings = EmbedTypes { float: types.0.then_some(rows), base64 };
        let meta = Meta::new(Some(tokens), None);
        let answer = EmbedAnswer { id: &new_id("embd"), embeddings, texts: TextList(&texts), meta };
        answer.print(text_calls::printed_bytes(values, !types.0) + texts.bytes())
    };
    text_calls::answered(exchange, values, print).await
}
