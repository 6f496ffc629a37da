//! Facts of a reply before the model speaks, and why it ended.

use crate::tools::{Forced, ToolParser};
use std::sync::Arc;

/// Why a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The model ended, or a text of `stop` was reached.
    Stop,
    /// There are no more tokens.
    Length,
    /// The model calls functions.
    ToolCalls,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// Facts of a reply before the model speaks.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Id of the reply.
    pub id: String,
    /// Time in seconds since 1970.
    pub created: u64,
    /// Name of the model, as the request has it.
    pub model: String,
    /// Parser of calls; `None` leaves texts as they are.
    pub parser: Option<ToolParser>,
    /// Calls that the request demands.
    pub forced: Option<Forced>,
    /// Longest call in a stream, in bytes.
    pub call_bytes_max: usize,
    /// Makes an id of at least nine letters and digits, different each time.
    pub fresh: fn() -> String,
    /// Texts that end a choice and that the server looks for.
    pub stop: Arc<[String]>,
    /// Whether the tokens of the texts are counted when they are over.
    pub counts: bool,
    /// Most tokens, for models that do not say why they ended.
    pub max_tokens: Option<i64>,
}

impl Facts {
    pub(crate) fn call_id(&self) -> String {
        let fresh = (self.fresh)();
        match self.parser {
            // Its templates want exactly nine letters and digits.
            Some(ToolParser::Mistral) => fresh.chars().rev().take(9).collect(),
            _ => format!("call_{fresh}"),
        }
    }
}
