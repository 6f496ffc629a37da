//! Names of text models: roles and aliases of configurations, `model:version`, and the models of a role.

use crate::registry::Engine;
use crate::table::Table;
use crate::version::ModelVersion;
use backend::{Model, TextModel};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use protocol::text::{Dimensions, Role, TextFacts, TokenIds, configuration};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{Error, Result};

/// The model that a name in a body of a text endpoint means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextName {
    /// Name of the model.
    pub model: String,
    /// Its version; `None` lets the version policy decide.
    pub version: Option<i64>,
    /// The tokenizer of token ids that clients send under this name.
    pub token_ids: TokenIds,
}

/// An alias of a text model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextAlias {
    /// The name.
    pub alias: String,
    /// The model that it means.
    pub name: TextName,
}

/// Role and names of a version, from its configuration.
pub(crate) struct TextIdentity {
    /// `None` for a model of the backend `text`, which has its own.
    facts: Option<TextFacts>,
    aliases: Vec<(String, TokenIds)>,
}

impl TextIdentity {
    /// `None` for a model without a role.
    ///
    /// # Errors
    /// INVALID_ARG for an unknown role, a malformed alias, or a role without tensors that fit it.
    pub(crate) fn of(config: &ModelConfig, signature: &Signature, model: Option<&dyn Model>) -> Result<Option<Self>> {
        let value = |key| config.parameters.get(key).map(|parameter| parameter.string_value.as_str());
        let has_facts = model.is_some_and(|model| model.text().is_some());
        let role = value(configuration::ROLE);
        let facts = match role.filter(|_| !has_facts) {
            Some(role) => Some(facts(role, signature)?),
            None => None,
        };
        let aliases = value(configuration::ALIAS);
        if facts.is_none() && !has_facts {
            let Some(_) = aliases else { return Ok(None) };
            return Err(Error::invalid(format!(
                "model '{}' has the parameter '{}' and no role: add the parameter '{}' with one of {}",
                signature.model,
                configuration::ALIAS,
                configuration::ROLE,
                roles()
            )));
        }
        let aliases = aliases.map(|text| configuration::aliases(text)).transpose();
        let aliases = aliases.map_err(|why| Error::invalid(format!("model '{}': {why}", signature.model)))?;
        Ok(Some(Self { facts, aliases: aliases.unwrap_or_default() }))
    }
}

fn roles() -> String {
    Role::ALL.map(|role| format!("'{}'", role.name())).join(", ")
}

/// Facts of a model of another backend.
fn facts(role: &str, signature: &Signature) -> Result<TextFacts> {
    let model = &signature.model;
    let Some(role) = Role::ALL.into_iter().find(|known| known.name() == role) else {
        let key = configuration::ROLE;
        return Err(Error::invalid(format!(
            "model '{model}' has the parameter '{key}' with '{role}', which is no role: take one of {}",
            roles()
        )));
    };
    let has_text = signature.inputs.iter().any(|input| input.datatype == tensor::DataType::Bytes);
    let Some(output) = signature.outputs.first().filter(|_| has_text && !signature.decoupled) else {
        return Err(Error::invalid(format!(
            "model '{model}' has the role '{}' without an input of TYPE_STRING and an output, or it is decoupled: text \
             endpoints send it texts and read one row for each",
            role.name()
        )));
    };
    let width = output.dims.last().and_then(|&width| u32::try_from(width).ok());
    let label = |class| output.labels.get(class).map(|label| String::from_utf8_lossy(label).into_owned());
    let labels = (0..width.unwrap_or(0) as usize).map_while(label).collect();
    Ok(TextFacts { role, width, dimensions: Dimensions::Fixed, tokens_max: None, labels, is_native: false })
}

impl Table {
    /// Aliases of serving versions, with the models that they mean.
    pub(crate) fn aliases_of_models(&self) -> BTreeMap<String, (String, TokenIds)> {
        let mut all = BTreeMap::new();
        for version in self.models.values().filter_map(|entry| entry.ready().next_back()) {
            let Some(text) = &version.text else { continue };
            for (alias, token_ids) in &text.aliases {
                // The same server answers the same whatever the order of the table is.
                let model = version.signature.model.to_string();
                let entry = all.entry(alias.clone()).or_insert_with(|| (model.clone(), *token_ids));
                if model < entry.0 {
                    *entry = (model, *token_ids);
                }
            }
        }
        all
    }
}

impl Engine {
    /// The model that `name` means: a model, an alias of an option or of a serving model's configuration, or
    /// `name:version` of these. It need not exist.
    pub fn text_name(&self, name: &str) -> TextName {
        let table = self.directory.load();
        if let Some(found) = self.known_name(&table, name) {
            return found;
        }
        if let Some((name, number)) = name.rsplit_once(':')
            && let Some(number) = parsed(number)
        {
            let found = self.known_name(&table, name);
            let unknown = || TextName { model: name.to_owned(), version: None, token_ids: TokenIds::Undeclared };
            return TextName { version: Some(number), ..found.unwrap_or_else(unknown) };
        }
        TextName { model: name.to_owned(), version: None, token_ids: TokenIds::Undeclared }
    }

    fn known_name(&self, table: &Table, name: &str) -> Option<TextName> {
        if table.key("", name).is_ok_and(|key| table.models.contains_key(&*key)) {
            return Some(TextName { model: name.to_owned(), version: None, token_ids: TokenIds::Undeclared });
        }
        if let Some(found) = self.shared.options.text_aliases.iter().find(|option| option.alias == name) {
            return Some(of_option(&found.model, &found.tokens));
        }
        let (model, token_ids) = table.aliases.get(name)?.clone();
        Some(TextName { model, version: None, token_ids })
    }

    /// Aliases of options and of serving models, in order of their names.
    pub fn text_aliases(&self) -> Vec<TextAlias> {
        let table = self.directory.load();
        let of_models = table.aliases.iter().map(|(alias, (model, token_ids))| {
            let name = TextName { model: model.clone(), version: None, token_ids: *token_ids };
            (alias.clone(), name)
        });
        let options = self.shared.options.text_aliases.iter();
        let options = options.map(|option| (option.alias.clone(), of_option(&option.model, &option.tokens)));
        let all: BTreeMap<_, _> = of_models.chain(options).collect();
        all.into_iter().map(|(alias, name)| TextAlias { alias, name }).collect()
    }

    /// The serving models with a role, each in its latest version, in order of their names.
    pub fn text_models(&self) -> Vec<(Arc<ModelVersion>, Role)> {
        let table = self.directory.load();
        let latest = table.models.values().filter_map(|entry| entry.ready().next_back());
        let mut all: Vec<_> =
            latest.filter_map(|version| Some((version.clone(), version.text_facts()?.role))).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.signature.model.cmp(&b.signature.model));
        all
    }
}

fn of_option(model: &str, tokens: &str) -> TextName {
    let token_ids = TokenIds::DECLARED.into_iter().find(|known| known.name() == tokens);
    let token_ids = token_ids.unwrap_or(TokenIds::Undeclared);
    let versioned = model.rsplit_once(':').and_then(|(model, number)| Some((model, parsed(number)?)));
    match versioned {
        Some((model, number)) => TextName { model: model.to_owned(), version: Some(number), token_ids },
        None => TextName { model: model.to_owned(), version: None, token_ids },
    }
}

/// The number of a version, without a sign.
fn parsed(number: &str) -> Option<i64> {
    number.parse().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit()))
}

impl ModelVersion {
    /// The facts of a text model; `None` for a model without a role.
    pub fn text_facts(&self) -> Option<&TextFacts> {
        let text = self.text.as_ref()?;
        text.facts.as_ref().or_else(|| self.text_model().map(TextModel::facts))
    }

    /// The tokenizer of a model of the backend `text`.
    pub fn text_model(&self) -> Option<&dyn TextModel> {
        self.served.model()?.text()
    }
}
