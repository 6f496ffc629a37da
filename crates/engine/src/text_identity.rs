//! The role and the aliases of a version, from its configuration.

use backend::Model;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use protocol::text::{Dimensions, Role, TextFacts, TokenIds, configuration};
use tensor::{Error, Result};

/// Role and names of a version, from its configuration.
pub(crate) struct TextIdentity {
    /// `None` for a model of the backend `text`, which has its own.
    pub(crate) facts: Option<TextFacts>,
    pub(crate) aliases: Vec<(String, TokenIds)>,
}

impl TextIdentity {
    /// `None` for a model without a role or alias. `chats`: endpoints of chats serve it, under its aliases too.
    ///
    /// # Errors
    /// INVALID_ARG for an unknown role, a malformed alias, or a role without tensors that fit it.
    pub(crate) fn of(
        config: &ModelConfig,
        signature: &Signature,
        model: Option<&dyn Model>,
        chats: bool,
    ) -> Result<Option<Self>> {
        let value = |key| config.parameters.get(key).map(|parameter| parameter.string_value.as_str());
        let has_facts = model.is_some_and(|model| model.text().is_some());
        let role = value(configuration::ROLE);
        let facts = match role.filter(|_| !has_facts) {
            Some(role) => Some(facts(role, signature)?),
            None => None,
        };
        let aliases = value(configuration::ALIAS);
        if facts.is_none() && !has_facts && !(chats && aliases.is_some()) {
            let Some(_) = aliases else { return Ok(None) };
            return Err(Error::invalid(format!(
                "model '{}' has the parameter '{}' and no role: add the parameter '{}' with one of {}",
                signature.model,
                configuration::ALIAS,
                configuration::ROLE,
                roles()
            )));
        }
        let aliases = aliases.map(configuration::aliases).transpose();
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
            "model '{model}' has the parameter '{key}' with '{role}', which is not a role: use one of {}",
            roles()
        )));
    };
    let has_text = signature.inputs.iter().any(|input| input.datatype == tensor::DataType::Bytes);
    let Some(output) = signature.outputs.first().filter(|_| has_text && !signature.decoupled) else {
        return Err(Error::invalid(format!(
            "model '{model}' has the role '{}' without an input of TYPE_STRING and an output, or it is decoupled: \
             text endpoints send texts and read one row for each",
            role.name()
        )));
    };
    let width = output.dims.last().and_then(|&width| u32::try_from(width).ok());
    let label = |class| output.labels.get(class).map(|label| String::from_utf8_lossy(label).into_owned());
    let labels = (0..width.unwrap_or(0) as usize).map_while(label).collect();
    Ok(TextFacts { role, width, dimensions: Dimensions::Fixed, tokens_max: None, labels, is_native: false })
}
