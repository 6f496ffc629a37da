//! The routes of text-embeddings-inference, which name no model: `/embed`, `/predict`, `/tokenize`, `/info`. The model
//! is the only one of the role, or that of `?model=`.

use super::classify::label;
use super::*;
use crate::failure::FailureKind;
use crate::limits::TOKENIZE_BYTES_MAX;
use crate::text_calls::TextTarget;
use crate::text_errors::TextError;
use memory::Kind;
use protocol::text::rows::RowValues;
use protocol::text::tei::{Info, InputsRequest, ModelType, Prediction, Token};
use protocol::text::{self, Role, TEXTS_MAX};

pub static EMBED: TextEndpoint = TextEndpoint {
    facts: &Facts::text("tei_embed", ErrorForm::Tei),
    answer: |exchange, body| Box::pin(embed(exchange, body)),
};

pub static PREDICT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("tei_predict", ErrorForm::Tei),
    answer: |exchange, body| Box::pin(predict(exchange, body)),
};

pub static TOKENIZE: TextEndpoint = TextEndpoint {
    facts: &Facts::text("tei_tokenize", ErrorForm::Tei),
    answer: |exchange, body| Box::pin(tokenize(exchange, body)),
};

pub static INFO: TextEndpoint = TextEndpoint {
    facts: &Facts { category: Some(Category::Metadata), ..Facts::text("tei_info", ErrorForm::Tei) },
    answer: |exchange, _| Box::pin(std::future::ready(info(exchange))),
};

/// Runs the texts of a request by the defaults of these routes: a text that is too long is rejected.
async fn run<'e>(
    exchange: &'e HttpExchange<'_>,
    form: InputsRequest,
    role: Role,
) -> TextResult<(TextTarget<'e>, Ran, bool)> {
    let mut options = form.options();
    let texts = text_calls::some(form.inputs, "inputs")?;
    let target = text_calls::find(exchange, form.model.as_deref(), &[role])?;
    if target.facts.is_native {
        options.truncate.get_or_insert(false);
        if role == Role::Embed {
            options.normalize.get_or_insert(true);
        }
    }
    let is_single = texts.is_single;
    let ran = target.run(exchange, texts, &options).await?;
    Ok((target, ran, is_single))
}

pub async fn embed(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) = text_calls::read::<InputsRequest>(exchange, body).await?;
    let (_, mut ran, _) = run(exchange, form, Role::Embed).await?;
    let (rows, values) = (std::mem::take(&mut ran.rows), ran.rows.bytes());
    let print = move || rows.print(text_calls::printed_bytes(values, false));
    let mut reply = text_calls::answered(exchange, values, print).await?;
    ran.add_fields(&mut reply);
    Ok(reply)
}

pub async fn predict(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) = text_calls::read::<InputsRequest>(exchange, body).await?;
    let (target, mut ran, is_single) = run(exchange, form, Role::Classify).await?;
    let (version, rows) = (target.version.clone(), std::mem::take(&mut ran.rows));
    let values = rows.bytes();
    let print = move || {
        let labels = version.text_facts().map_or(&[][..], |facts| &facts.labels);
        let classes = |row: RowValues<'_>| {
            let class = |(at, score)| Prediction { score, label: label(labels, at) };
            let mut classes: Vec<_> = row.values().enumerate().map(class).collect();
            classes.sort_by(|left, right| right.score.total_cmp(&left.score));
            classes
        };
        let bytes = text_calls::printed_bytes(values, false);
        match (is_single, &rows.finite()?[..]) {
            (true, [row]) => text::print(&classes(*row), bytes),
            (_, rows) => text::print(&rows.iter().copied().map(classes).collect::<Vec<_>>(), bytes),
        }
    };
    let mut reply = text_calls::answered(exchange, values, print).await?;
    ran.add_fields(&mut reply);
    Ok(reply)
}

async fn tokenize(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) = text_calls::read::<InputsRequest>(exchange, body).await?;
    let has_special = form.add_special_tokens.unwrap_or(true);
    let texts = text_calls::some_texts(form.inputs, "inputs")?;
    let target = text_calls::find(exchange, form.model.as_deref(), &Role::ALL)?;
    let version = target.version.clone();
    if version.text_model().is_none() {
        let text = format!("model '{}' has no tokenizer here: it is not of the backend 'text'", target.name);
        return Err(Error::invalid(text).into());
    }
    if texts.bytes() > TOKENIZE_BYTES_MAX {
        let text = format!(
            "the texts have {} bytes, and /tokenize takes {TOKENIZE_BYTES_MAX} in a request: send several requests",
            texts.bytes()
        );
        return Err(TextError::of(Error::invalid(text), FailureKind::TooLarge, Some("inputs")));
    }
    // A token is a hundred bytes of JSON, and tokenising takes longer than reading: never on a reactor if it is long.
    let bytes = texts.bytes() * 32;
    let work = move || {
        let Some(model) = version.text_model() else { return Ok(Vec::new()) };
        let tokens = texts.iter().map(|text| {
            let tokens = model.tokens(&text, has_special)?.into_iter().map(|token| Token {
                id: token.id,
                text: token.text,
                special: token.is_special,
                start: token.place.map(|place| place.0),
                stop: token.place.map(|place| place.1),
            });
            Ok(tokens.collect())
        });
        let tokens: Vec<Vec<_>> = tokens.collect::<tensor::Result<_>>()?;
        Ok(text::print(&tokens, bytes)?)
    };
    let (text, charge) = text_calls::heavy(exchange, Kind::Answer, bytes, work).await?;
    Ok(Reply::json(match charge {
        Some(charge) => offload::made(text.into(), charge),
        None => text.into(),
    }))
}

fn info(exchange: &HttpExchange<'_>) -> TextResult {
    let target = text_calls::find(exchange, None, &Role::ALL)?;
    let (facts, signature) = (target.facts, &target.version.signature);
    let answer = Info {
        model_id: &signature.model,
        model_sha: &signature.version,
        model_dtype: "float32",
        model_type: match facts.role {
            Role::Embed => ModelType::Embedding {},
            Role::Rerank => ModelType::Reranker { id2label: &facts.labels },
            Role::Classify => ModelType::Classifier { id2label: &facts.labels },
        },
        max_input_length: facts.tokens_max,
        max_client_batch_size: TEXTS_MAX,
        auto_truncate: false,
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(Reply::json(text::print(&answer, 0)?))
}
