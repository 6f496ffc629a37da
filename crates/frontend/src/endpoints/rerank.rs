//! `POST /rerank`, `/v1/rerank` and `/v2/rerank`: the forms of Cohere, Jina and vLLM by `documents`, that of
//! text-embeddings-inference by `texts`.

use super::*;
use crate::text_errors::{TextError, new_id};
use protocol::text::cohere::{Document, Meta, RerankAnswer, RerankItem, RerankRequest};
use protocol::text::openai::Usage;
use protocol::text::{self, FormError, Role, TextOptions, Texts, tei};
use std::sync::Arc;

pub static ENDPOINT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("rerank", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body, true)),
};

/// Cohere's second version, whose results have no documents.
pub static SECOND: TextEndpoint = TextEndpoint {
    facts: &Facts::text("rerank", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body, false)),
};

/// A cross-encoder, or else a model that embeds.
pub const ROLES: [Role; 2] = [Role::Rerank, Role::Embed];

pub async fn answer(exchange: &HttpExchange<'_>, body: Bytes, has_documents: bool) -> TextResult {
    let (mut form, _charge) = text_calls::read::<RerankRequest>(exchange, body).await?;
    if form.documents.is_none() && form.texts.is_some() {
        return tei_answer(exchange, form).await.map_err(TextError::tei);
    }
    let options = form.options()?;
    let documents = Arc::new(text_calls::some_texts(form.documents.take(), "documents")?);
    let results = form.results(documents.len())?;
    let has_documents = form.return_documents.unwrap_or(has_documents);
    let (target, ranks, ran) = ranked(exchange, form.model.as_deref(), form.query, &documents, options, false).await?;
    let model = target.name;
    let bytes = if has_documents { documents.bytes() } else { 0 } + results * 64;
    let print = move || {
        let texts: Vec<_> = if has_documents { documents.iter().collect() } else { Vec::new() };
        let item = |&(index, relevance_score): &(usize, f32)| {
            let document = texts.get(index).map(|text| Document { text: text.clone() });
            RerankItem { index, relevance_score, document }
        };
        let results = ranks.iter().take(results).map(item).collect();
        let (usage, meta) = (Usage::of(ran.tokens), Meta::new(None, Some(1)));
        text::print(&RerankAnswer { id: &new_id("rerank"), model: &model, results, usage, meta }, bytes)
    };
    text_calls::answered(exchange, bytes, print).await
}

async fn tei_answer(exchange: &HttpExchange<'_>, form: RerankRequest) -> TextResult {
    let options = form.options()?;
    let texts = Arc::new(text_calls::some_texts(form.texts, "texts")?);
    let (_, ranks, ran) = ranked(exchange, form.model.as_deref(), form.query, &texts, options, true).await?;
    let bytes = if form.return_text { texts.bytes() } else { 0 } + ranks.len() * 32;
    let print = move || {
        let all: Vec<_> = if form.return_text { texts.iter().collect() } else { Vec::new() };
        let rank = |&(index, score): &(usize, f32)| tei::Rank { index, text: all.get(index).cloned(), score };
        text::print(&ranks.iter().map(rank).collect::<Vec<_>>(), bytes)
    };
    let mut reply = text_calls::answered(exchange, bytes, print).await?;
    ran.add_fields(&mut reply);
    Ok(reply)
}

/// The places of texts with their scores, the greatest first; equal ones in the order of the request. As at all routes
/// of text-embeddings-inference, `is_tei` rejects texts that are too long, unless the request wants them cut.
async fn ranked<'e>(
    exchange: &'e HttpExchange<'_>,
    model: Option<&str>,
    query: Option<String>,
    texts: &Arc<Texts>,
    mut options: TextOptions,
    is_tei: bool,
) -> TextResult<(text_calls::TextTarget<'e>, Vec<(usize, f32)>, Ran)> {
    let query = Texts::from(&*query.ok_or_else(|| FormError::missing("query"))?);
    let target = text_calls::find(exchange, model, &ROLES)?;
    if is_tei && target.facts.is_native {
        options.truncate.get_or_insert(false);
    }
    let (scores, ran) = target.score(exchange, query, texts.clone(), &options).await?;
    let sort = move || {
        let mut ranks: Vec<_> = scores.into_iter().enumerate().collect();
        ranks.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        Ok(ranks)
    };
    let (ranks, _) = text_calls::heavy(exchange, memory::Kind::Unpacked, texts.len() * 16, sort).await?;
    Ok((target, ranks, ran))
}
