//! Entry points of the fuzzers. No input may cause a panic. Public for the fuzz package only.

use crate::template::{Conversation, Json, PROMPT_BYTES_MAX, Template};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::UNIX_EPOCH;
use tensor::Code;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Given {
    messages: Vec<Json>,
    tools: Option<Vec<Json>>,
    add_generation_prompt: bool,
    variables: Map<String, Value>,
}

/// Renders a template, which a byte 0xFF separates from a conversation in JSON; without one there are no messages.
/// Returns whether there was a prompt. Two renders must give the same.
pub fn chat_template(data: &[u8]) -> bool {
    let mut parts = data.splitn(2, |&byte| byte == 0xff);
    let source = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let given: Given = parts.next().and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
    let Given { messages, tools, add_generation_prompt, variables } = given;
    let conversation = Conversation { messages, tools, add_generation_prompt, variables };
    let render = || Template::compile(&source)?.render_at(&conversation, UNIX_EPOCH);
    let prompt = render();
    assert!(prompt == render(), "two renders differ");
    match prompt {
        Ok(prompt) => {
            assert!(prompt.len() <= PROMPT_BYTES_MAX);
            true
        }
        // Another code is a panic of the library.
        Err(error) => {
            assert_eq!(error.code(), Code::InvalidArg, "{error}");
            false
        }
    }
}
