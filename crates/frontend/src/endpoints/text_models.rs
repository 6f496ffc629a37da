//! `GET /v1/models` and `/v1/models/{model}`: models with a role, and aliases, in OpenAI's form.

use super::*;
use crate::http::decode::percent_decode;
use protocol::text::openai::{ModelItem, ModelList};
use protocol::text::{self, Role};
use std::sync::LazyLock;

pub static LIST: TextEndpoint = TextEndpoint {
    facts: &Facts { category: Some(Category::Metadata), ..Facts::text("text_models", ErrorForm::OpenAi) },
    answer: |exchange, _| Box::pin(std::future::ready(list(exchange))),
};

pub static ONE: TextEndpoint = TextEndpoint {
    facts: &Facts { category: Some(Category::Metadata), ..Facts::text("text_model", ErrorForm::OpenAi) },
    answer: |exchange, _| Box::pin(std::future::ready(one(exchange))),
};

fn item<'a>(id: &'a str, root: Option<&'a str>) -> ModelItem<'a> {
    static STARTED: LazyLock<u64> = LazyLock::new(unix_secs);
    ModelItem { id, object: "model", created: *STARTED, owned_by: "nereid", root }
}

fn list(exchange: &HttpExchange<'_>) -> TextResult {
    let engine = &exchange.context.engine;
    let grant = &exchange.with.grant;
    let (models, aliases) = (engine.text_models(), engine.text_aliases());
    let models = models.iter().map(|(version, _)| (version.signature.model.as_str(), None));
    let aliases = aliases.iter().map(|alias| (&*alias.alias, Some(&*alias.name.model)));
    let mut data: Vec<_> = models
        .chain(aliases)
        .filter(|(name, root)| grant.covers(root.unwrap_or(name)))
        .map(|(name, root)| item(name, root))
        .collect();
    data.sort_by_key(|item| item.id);
    Ok(Reply::json(text::print(&ModelList { object: "list", data }, 0)?))
}

fn one(exchange: &HttpExchange<'_>) -> TextResult {
    let name = percent_decode(exchange.names().model);
    let target = text_calls::find(exchange, Some(&name), &Role::ALL)?;
    let model = target.version.signature.model.as_str();
    let is_alias = name.split_once(':').map_or(&*name, |(model, _)| model) != model;
    Ok(Reply::json(text::print(&item(&name, is_alias.then_some(model)), 0)?))
}
