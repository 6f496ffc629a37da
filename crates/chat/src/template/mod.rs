//! Chat templates as transformers renders them: a list of messages to the text of a prompt.

use serde_json::{Map, Value};
use tensor::{Error, Result};

/// Longest source of a template in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 18;

/// Longest prompt that a template makes, in bytes.
pub const PROMPT_BYTES_MAX: usize = 1 << 20;

/// A compiled template.
#[derive(Debug)]
pub struct Template {
    source: String,
}

/// Values that a template sees, with the names that transformers gives them.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// The messages, each with `role` and `content`.
    pub messages: Vec<Value>,
    /// Functions that the model may call.
    pub tools: Option<Vec<Value>>,
    /// Whether the prompt ends where the assistant begins to speak.
    pub add_generation_prompt: bool,
    /// Further variables: `bos_token`, `eos_token`, and those that a request adds.
    pub variables: Map<String, Value>,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// INVALID_ARG with the line and the cause if it is no template, or too long.
    pub fn compile(source: &str) -> Result<Self> {
        Ok(Self { source: source.to_owned() })
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// INVALID_ARG with the text of `raise_exception`, or what failed; also for a template that takes too many steps,
    /// or whose text is longer than [`PROMPT_BYTES_MAX`].
    pub fn render(&self, conversation: &Conversation) -> Result<String> {
        let _ = (conversation, &self.source);
        Err(Error::unsupported("templates"))
    }
}
