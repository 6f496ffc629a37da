//! Names of text models: aliases, `model:version`, and the models of a role.

use crate::chat_model::ChatModel;
use crate::registry::Engine;
use crate::table::Table;
use crate::version::ModelVersion;
use backend::TextModel;
use protocol::text::{Role, TextFacts, TokenIds};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The model that a name in a body of a text endpoint means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextName {
    /// Name of the model.
    pub model: String,
    /// The version; `None` lets the version policy decide.
    pub version: Option<i64>,
    /// The tokenizer of token ids that clients send under this name.
    pub token_ids: TokenIds,
    /// Whether the name is an alias.
    pub is_alias: bool,
}

impl TextName {
    /// The name of a model itself.
    fn of_model(model: &str, version: Option<i64>) -> Self {
        Self { model: model.to_owned(), version, token_ids: TokenIds::Undeclared, is_alias: false }
    }
}

/// An alias of a text model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextAlias {
    /// The name.
    pub alias: String,
    /// The model that it means.
    pub name: TextName,
}

impl Table {
    /// Whether a model of this name is known.
    fn has(&self, name: &str) -> bool {
        self.key("", name).is_ok_and(|key| self.models.contains_key(&*key))
    }

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
            return TextName { version: Some(number), ..found.unwrap_or_else(|| TextName::of_model(name, None)) };
        }
        TextName::of_model(name, None)
    }

    fn known_name(&self, table: &Table, name: &str) -> Option<TextName> {
        if table.has(name) {
            return Some(TextName::of_model(name, None));
        }
        if let Some(found) = self.shared.options.text_aliases.iter().find(|option| option.alias == name) {
            return Some(of_option(&found.model, &found.tokens));
        }
        let (model, token_ids) = table.aliases.get(name)?.clone();
        Some(TextName { model, version: None, token_ids, is_alias: true })
    }

    /// Aliases of options and of serving models that mean a known model, in order of their names.
    pub fn text_aliases(&self) -> Vec<TextAlias> {
        let table = self.directory.load();
        let of_models = table.aliases.iter().map(|(alias, (model, token_ids))| {
            let name = TextName { model: model.clone(), version: None, token_ids: *token_ids, is_alias: true };
            (alias.clone(), name)
        });
        let options = self.shared.options.text_aliases.iter();
        let options = options.map(|option| (option.alias.clone(), of_option(&option.model, &option.tokens)));
        let all: BTreeMap<_, _> = of_models.chain(options).collect();
        let all = all.into_iter().map(|(alias, name)| TextAlias { alias, name });
        all.filter(|alias| !table.has(&alias.alias) && table.has(&alias.name.model)).collect()
    }

    /// The serving models that chat, each in its latest version, in order of their names.
    pub fn chat_models(&self) -> Vec<Arc<ModelVersion>> {
        self.latest(|version| version.chat.is_some())
    }

    /// The serving models that `wants` chooses, each in its latest version, in order of their names.
    pub fn latest(&self, wants: impl Fn(&ModelVersion) -> bool) -> Vec<Arc<ModelVersion>> {
        let table = self.directory.load();
        let latest = table.models.values().filter_map(|entry| entry.ready().next_back());
        let mut all: Vec<_> = latest.filter(|version| wants(version)).cloned().collect();
        all.sort_unstable_by(|a, b| a.signature.model.cmp(&b.signature.model));
        all
    }

    /// The serving models with a role, each in its latest version, in order of their names.
    pub fn text_models(&self) -> Vec<(Arc<ModelVersion>, Role)> {
        let all = self.latest(|version| version.text_facts().is_some());
        all.into_iter().filter_map(|version| Some((version.text_facts()?.role, version))).map(|(r, v)| (v, r)).collect()
    }
}

fn of_option(model: &str, tokens: &str) -> TextName {
    let token_ids = TokenIds::DECLARED.into_iter().find(|known| known.name() == tokens);
    let token_ids = token_ids.unwrap_or(TokenIds::Undeclared);
    let versioned = model.rsplit_once(':').and_then(|(model, number)| Some((model, parsed(number)?)));
    let (model, version) = versioned.map_or((model, None), |(model, number)| (model, Some(number)));
    TextName { token_ids, is_alias: true, ..TextName::of_model(model, version) }
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

    /// Facts of a model that chats; `None` for any other.
    pub fn chat(&self) -> Option<&ChatModel> {
        self.chat.as_deref()
    }

    /// The tokenizer of a model of the backend `text`.
    pub fn text_model(&self) -> Option<&dyn TextModel> {
        self.served.model()?.text()
    }
}
