//! The parameters of a request to a text model.

use super::core::TextCore;
use protocol::Parameter;
use protocol::text::parameters::{
    DIMENSIONS, NORMALIZE, PROMPT, RAW_SCORES, TOKEN_IDS, TOKENS_MAX, TRUNCATE, TRUNCATION_SIDE, USAGE,
};
use protocol::text::{CutSide, Dimensions, Role, TokenIds, parameter};
use tensor::{Error, Name, Result};
use text::tokenizer::Truncation;

/// The parameters of a request, with the defaults of its model.
pub(super) struct Wishes {
    /// Values of a row of the response.
    pub(super) width: usize,
    pub(super) normalizes: bool,
    pub(super) is_raw: bool,
    pub(super) truncation: Truncation,
    /// Put before each text, and before the first text of a pair, as sentence-transformers does.
    pub(super) prompt: String,
    /// The elements are token ids instead of texts.
    pub(super) token_ids: Option<TokenIds>,
    pub(super) has_usage: bool,
}

impl Wishes {
    /// # Errors
    /// INVALID_ARG names the parameter, its value and the possible ones.
    pub(super) fn read(core: &TextCore, all: &[(Name, Parameter)]) -> Result<Self> {
        let folder = &core.folder;
        let of = |name| Wish { core, name, value: parameter(all, name) };
        let width = match of(DIMENSIONS).integer()? {
            None => core.width,
            Some(wanted) => dimensions(core, wanted).ok_or_else(|| of(DIMENSIONS).wrong(&possible(core)))?,
        };
        let embeds = |name: Wish<'_>| match name.boolean()? {
            Some(_) if core.facts.role != Role::Embed => Err(name.wrong("only embedding models accept it")),
            value => Ok(value),
        };
        let scores = |name: Wish<'_>| match name.boolean()? {
            Some(true) if core.facts.role == Role::Embed => Err(name.wrong("embedding models have no scores")),
            value => Ok(value),
        };
        let side = match of(TRUNCATION_SIDE).one_of(&CutSide::ALL.map(|side| (side.name(), side)))? {
            Some(side) => side,
            None => core.tokenizer.truncation_side(),
        };
        let tokens_max = match of(TOKENS_MAX).integer()? {
            Some(wanted) if wanted < 1 => return Err(of(TOKENS_MAX).wrong("it must be at least 1")),
            wanted => {
                wanted.and_then(|n| u32::try_from(n).ok()).map_or(folder.tokens_max, |n| n.min(folder.tokens_max))
            }
        };
        let token_ids = of(TOKEN_IDS).one_of(&TOKEN_IDS_NAMES.map(|ids| (ids.name(), ids)))?;
        if token_ids.is_some() && core.has_pairs {
            return Err(of(TOKEN_IDS).wrong("pairs are texts"));
        }
        let named = of(PROMPT).text()?;
        let prompt = named.or(folder.default_prompt.as_deref()).map(|name| folder.prompts.get(name));
        if named.is_some() && matches!(token_ids, Some(TokenIds::Own | TokenIds::Undeclared)) {
            return Err(of(PROMPT).wrong("token ids of the model's own tokenizer include their prompt"));
        }
        if prompt == Some(None) {
            let names: Vec<&str> = folder.prompts.keys().map(String::as_str).collect();
            let names = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            return Err(of(PROMPT).wrong(&format!("the prompts of the model: {names}")));
        }
        Ok(Self {
            width,
            normalizes: embeds(of(NORMALIZE))?.unwrap_or(folder.normalizes),
            is_raw: scores(of(RAW_SCORES))?.unwrap_or(false),
            truncation: Truncation {
                tokens_max: tokens_max as usize,
                side,
                rejects: !of(TRUNCATE).boolean()?.unwrap_or(true),
            },
            prompt: prompt.flatten().cloned().unwrap_or_default(),
            token_ids,
            has_usage: of(USAGE).boolean()?.unwrap_or(false),
        })
    }
}

const TOKEN_IDS_NAMES: [TokenIds; 4] = [TokenIds::Undeclared, TokenIds::Own, TokenIds::Cl100kBase, TokenIds::O200kBase];

fn dimensions(core: &TextCore, wanted: i64) -> Option<usize> {
    let (wanted, width) = (u32::try_from(wanted).ok()?, u32::try_from(core.width).ok()?);
    let is_allowed = core.facts.role == Role::Embed && core.facts.dimensions.allows(wanted, width);
    is_allowed.then_some(wanted as usize)
}

fn possible(core: &TextCore) -> String {
    match &core.facts.dimensions {
        _ if core.facts.role != Role::Embed => "only embedding models accept it".to_owned(),
        Dimensions::Any => format!("1 to {} are possible", core.width),
        Dimensions::Listed(all) => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("{} and {} are possible", all.join(", "), core.width)
        }
        Dimensions::Fixed => format!(
            "only {} is possible, because no file declares others that the model was trained for; if it was, set \
             parameters {{ key: \"dimensions\" value {{ string_value: \"any\" }} }} in its configuration",
            core.width
        ),
    }
}

/// A parameter, if the request has it.
struct Wish<'p> {
    core: &'p TextCore,
    name: &'static str,
    value: Option<&'p Parameter>,
}

impl<'p> Wish<'p> {
    fn integer(&self) -> Result<Option<i64>> {
        match self.value {
            None => Ok(None),
            Some(Parameter::Int(n)) => Ok(Some(*n)),
            Some(_) => Err(self.wrong("it is an integer")),
        }
    }

    fn boolean(&self) -> Result<Option<bool>> {
        match self.value {
            None => Ok(None),
            Some(Parameter::Bool(b)) => Ok(Some(*b)),
            Some(_) => Err(self.wrong("it is true or false")),
        }
    }

    fn text(&self) -> Result<Option<&'p str>> {
        match self.value {
            None => Ok(None),
            Some(Parameter::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong("it is a string")),
        }
    }

    fn one_of<T: Copy>(&self, all: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text()? else { return Ok(None) };
        let found = all.iter().find(|(name, _)| *name == text).map(|&(_, value)| value);
        let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| self.wrong(&format!("possible are {}", names())))
    }

    #[cold]
    fn wrong(&self, possible: &str) -> Error {
        let found = match self.value {
            None => String::new(),
            Some(Parameter::Bool(b)) => b.to_string(),
            Some(Parameter::Int(n)) => n.to_string(),
            Some(Parameter::Double(n)) => n.to_string(),
            Some(Parameter::String(text)) => format!("'{text}'"),
        };
        let (name, model) = (self.name, &self.core.signature.model);
        Error::invalid(format!("parameter '{name}' of a request to model '{model}' is {found}: {possible}"))
    }
}
