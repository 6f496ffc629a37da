//! `/v1/models`: models that text endpoints serve, and aliases, in OpenAI's form; loads and unloads as Triton's OpenAI
//! front end has them (P 4).

use super::*;
use crate::access::Act;
use crate::control::Argument;
use crate::http::decode::percent_decode;
use crate::http::reply::PLAIN;
use engine::ModelVersion;
use protocol::text::openai::{ModelItem, ModelList, Unloaded};
use protocol::text::{self, Role};
use std::sync::LazyLock;
use tensor::Code;

pub static LIST: TextEndpoint = TextEndpoint {
    facts: &Facts { category: Some(Category::Metadata), ..Facts::text("text_models", ErrorForm::OpenAi) },
    answer: |exchange, _| Box::pin(std::future::ready(list(exchange))),
};

pub static ONE: TextEndpoint = TextEndpoint {
    facts: &Facts { category: Some(Category::Metadata), ..Facts::text("text_model", ErrorForm::OpenAi) },
    answer: |exchange, _| Box::pin(std::future::ready(one(exchange))),
};

pub static LOAD: TextEndpoint = TextEndpoint {
    facts: &Facts {
        category: Some(Category::ModelRepository),
        act: Act::Write,
        ..Facts::text("load", ErrorForm::OpenAi)
    },
    answer: |exchange, _| Box::pin(load(exchange)),
};

pub static UNLOAD: TextEndpoint = TextEndpoint {
    facts: &Facts {
        category: Some(Category::ModelRepository),
        act: Act::Write,
        ..Facts::text("unload", ErrorForm::OpenAi)
    },
    answer: |exchange, _| Box::pin(unload(exchange)),
};

/// `/metrics`, on the port of `--openai-port` only: others may reach that of HTTP.
pub static METRICS: TextEndpoint = TextEndpoint {
    facts: &Facts { category: Some(Category::Statistics), ..Facts::text("metrics", ErrorForm::OpenAi) },
    answer: |exchange, _| Box::pin(metrics(exchange)),
};

fn item<'a>(exchange: &HttpExchange<'_>, id: &'a str, root: Option<&'a str>) -> ModelItem<'a> {
    static STARTED: LazyLock<u64> = LazyLock::new(unix_secs);
    let as_triton = exchange.context.openai_errors_as_triton;
    let owned_by = if as_triton { "Triton Inference Server" } else { "nereid" };
    ModelItem { id, object: "model", created: *STARTED, owned_by, root }
}

/// Names of the LoRAs of a model, as requests have them.
fn lora_names(exchange: &HttpExchange<'_>, version: &ModelVersion) -> Vec<String> {
    let separator = &exchange.context.engine.options().chat.lora_separator;
    let loras = version.chat().and_then(|chat| chat.loras.as_ref()).filter(|_| !separator.is_empty());
    let name = |lora: &String| format!("{}{separator}{lora}", version.signature.model);
    loras.into_iter().flatten().map(name).collect()
}

fn list(exchange: &HttpExchange<'_>) -> TextResult {
    let engine = &exchange.context.engine;
    let grant = &exchange.with.grant;
    let as_triton = exchange.context.openai_errors_as_triton;
    let has_use = |version: &ModelVersion| as_triton || version.chat().is_some() || version.text_facts().is_some();
    let versions = engine.latest(has_use);
    let loras: Vec<_> = versions.iter().map(|version| (version, lora_names(exchange, version))).collect();
    let aliases = engine.text_aliases();
    let models = loras.iter().flat_map(|(version, loras)| {
        let model = version.signature.model.as_str();
        std::iter::once((model, None)).chain(loras.iter().map(move |lora| (lora.as_str(), Some(model))))
    });
    let aliases = aliases.iter().map(|alias| (&*alias.alias, Some(&*alias.name.model)));
    let mut data: Vec<_> = models
        .chain(aliases)
        .filter(|(name, root)| grant.covers(root.unwrap_or(name)))
        .map(|(name, root)| item(exchange, name, root.filter(|_| !as_triton)))
        .collect();
    data.sort_by_key(|item| item.id);
    Ok(Reply::json(text::print(&ModelList { object: "list", data }, 0)?))
}

fn one(exchange: &HttpExchange<'_>) -> TextResult {
    let HttpExchange { context, with, .. } = exchange;
    let name = percent_decode(exchange.names().model);
    let as_triton = context.openai_errors_as_triton;
    let versions = context.engine.latest(|version| as_triton || version.chat().is_some());
    let found = versions.iter().find(|version| {
        version.signature.model.as_str() == name || lora_names(exchange, version).iter().any(|lora| *lora == name)
    });
    if let Some(version) = found {
        let model = version.signature.model.as_str();
        with.grant.admit_model(model)?;
        let root = Some(model).filter(|model| **model != *name && !as_triton);
        return Ok(Reply::json(text::print(&item(exchange, &name, root), 0)?));
    }
    if as_triton && context.engine.text_aliases().iter().all(|alias| alias.alias != name) {
        return Err(Error::not_found(format!("Unknown model: {name}")).into());
    }
    let target = text_calls::find(exchange, Some(&name), &Role::ALL)?;
    let model = target.version.signature.model.as_str();
    let is_alias = name.split_once(':').map_or(&*name, |(model, _)| model) != model;
    Ok(Reply::json(text::print(&item(exchange, &name, is_alias.then_some(model)), 0)?))
}

/// Whether a version of the model serves.
fn is_loaded(exchange: &HttpExchange<'_>, name: &str) -> bool {
    !exchange.context.engine.latest(|version| version.signature.model.as_str() == name).is_empty()
}

/// Runs an operation of the repository in the words of Triton's front end.
async fn manage(exchange: &HttpExchange<'_>, act: ControlOperation, verb: &str, name: &str) -> TextResult<()> {
    let context = exchange.operations();
    context.admit_model(name)?;
    let mut argument = Text::begin(b'{');
    argument.key("model").string(name);
    match act {
        ControlOperation::RepositoryLoad => argument.key("parameters").raw(b"{}"),
        _ => argument.key("unload_dependents").boolean(false),
    };
    argument.close(b'}');
    let argument = Argument::from(argument.into_string()?);
    let Err(error) = context.control.call(act, argument).await else { return Ok(()) };
    let text = format!("Failed to {verb} model '{name}': {}", error.message());
    Err(if error.code() == Code::InvalidArg { Error::invalid(text) } else { Error::internal(text) }.into())
}

/// The model of the path, if clients may load and unload models.
fn managed(exchange: &HttpExchange<'_>) -> TextResult<String> {
    if !exchange.context.engine.options().chat.is_explicit {
        return Err(Error::invalid("Model load/unload requires --model-control-mode=explicit").into());
    }
    Ok(percent_decode(exchange.names().model).into_owned())
}

async fn load(exchange: &HttpExchange<'_>) -> TextResult {
    let name = managed(exchange)?;
    let _alone = exchange.context.managing.lock().await;
    if is_loaded(exchange, &name) {
        return Err(Error::invalid(format!("Model '{name}' is already loaded")).into());
    }
    manage(exchange, ControlOperation::RepositoryLoad, "load", &name).await?;
    Ok(Reply::json(text::print(&item(exchange, &name, None), 0)?))
}

async fn unload(exchange: &HttpExchange<'_>) -> TextResult {
    let name = managed(exchange)?;
    let _alone = exchange.context.managing.lock().await;
    if !is_loaded(exchange, &name) {
        return Err(Error::invalid(format!("Unknown model: {name}")).into());
    }
    manage(exchange, ControlOperation::RepositoryUnload, "unload", &name).await?;
    Ok(Reply::json(text::print(&Unloaded { status: "success", model: &name }, 0)?))
}

async fn metrics(exchange: &HttpExchange<'_>) -> TextResult {
    if !exchange.context.is_openai {
        return Err(Error::not_found("Not Found").into());
    }
    let text = exchange.context.control.call(ControlOperation::Metrics, "{}".to_owned().into()).await?;
    let text: String = serde_json::from_slice(text.as_ref()).map_err(|error| Error::internal(error.to_string()))?;
    Ok(Reply::new(200, PLAIN, text))
}
