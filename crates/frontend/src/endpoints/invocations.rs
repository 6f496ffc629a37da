//! `POST /invocations`, SageMaker's only path: the fields of the body say which endpoint is meant.

use super::*;
use protocol::text::{FormError, Role};
use serde::Deserialize;
use serde::de::IgnoredAny;

pub static ENDPOINT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("invocations", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body)),
};

/// The fields that endpoints tell apart.
#[derive(Deserialize)]
struct Fields {
    model: Option<String>,
    input: Option<IgnoredAny>,
    inputs: Option<IgnoredAny>,
    texts: Option<IgnoredAny>,
    documents: Option<IgnoredAny>,
    query: Option<IgnoredAny>,
    #[serde(alias = "queries", alias = "data_1")]
    text_1: Option<IgnoredAny>,
}

async fn answer(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (fields, _charge) = text_calls::read::<Fields>(exchange, body.clone()).await?;
    // By the list of models: the endpoint itself finds the model and checks the permission.
    let models = exchange.context.engine.text_models();
    let named = fields.model.map(|name| exchange.context.engine.text_name(&name).model);
    let is = |of: Role| {
        models.iter().any(|(version, role)| *role == of && named.as_deref() == Some(&*version.signature.model))
    };
    let has = |of: Role| models.iter().any(|(_, role)| *role == of);
    let classifies = is(Role::Classify) || (named.is_none() && !has(Role::Embed) && has(Role::Classify));
    if fields.query.is_some() && (fields.documents.is_some() || fields.texts.is_some()) {
        return rerank::answer(exchange, body, true).await;
    }
    if fields.text_1.is_some() {
        return score::answer(exchange, body).await;
    }
    match (fields.input.is_some(), fields.inputs.is_some(), classifies) {
        (true, _, true) => classify::answer(exchange, body).await,
        (true, _, false) => embeddings::answer(exchange, body).await,
        (false, true, true) => tei::predict(exchange, body).await.map_err(TextError::tei),
        (false, true, false) => tei::embed(exchange, body).await.map_err(TextError::tei),
        (false, false, _) => {
            let text = "expected input, inputs, query with documents or texts, or text_1 with text_2";
            Err(FormError { field: None, text: text.into(), is_empty: false }.into())
        }
    }
}
