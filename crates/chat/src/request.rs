//! Bodies of `POST /v1/chat/completions` and `/v1/completions`, read and checked by [`FIELDS`].

use crate::body::{BodyMembers, cut, integer, shown};
use crate::fields::{CHOICES_MAX, FIELDS, Field, FieldKind, On, Use};
use crate::messages::messages;
use crate::responses;
use crate::template::Json as Value;
use crate::tools::ToolParser;
use protocol::text::FormError;
use serde::Deserialize;
use serde_json::value::RawValue;
use tensor::{Error, Result};

/// Most texts in `stop`.
pub const STOPS_MAX: usize = 64;

/// Bytes of all texts in `stop` together.
pub const STOP_BYTES_MAX: usize = 1024;

/// Bytes of a JSON schema: of `response_format`, or of the functions of a forced call.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Most functions in `tools`.
pub const TOOLS_MAX: usize = 1024;

/// Read body of a request.
#[derive(Debug)]
pub struct ChatRequest {
    /// The endpoint.
    pub on: On,
    /// Name in the body.
    pub model: Option<String>,
    /// Parts of the reply.
    pub reply: ReplyForm,
    /// Choices for each prompt.
    pub choices: usize,
    /// The conversation of a chat, as templates see it.
    pub messages: Vec<Value>,
    /// Prompts of a completion.
    pub prompts: Vec<String>,
    /// Texts before which a choice ends.
    pub stop: Vec<String>,
    /// Fields that a model may take, with their JSON; `null` for one that was given as such.
    pub settings: Vec<(&'static Field, Box<RawValue>)>,
    /// Functions that the model may call.
    pub functions: Functions,
    /// Form of the text that the client demands.
    pub format: Option<Box<RawValue>>,
    /// Further variables of the template.
    pub variables: Vec<(String, Value)>,
    /// Whether the prompt ends where the assistant begins.
    pub add_generation_prompt: bool,
    /// Members of the request that an object `response` repeats; `None` for chats and completions.
    pub responses: Option<responses::RepeatedSettings>,
    /// Fields that Triton checks after it found the model.
    late: Late,
}

/// Parts of a reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplyForm {
    /// Whether the text is streamed.
    pub streams: bool,
    /// Whether a stream ends with its usage.
    pub has_usage: bool,
    /// Whether the prompt is put before the text.
    pub echo: bool,
    /// Number of the most probable tokens at each place; `None` without log probabilities.
    pub logprobs: Option<u32>,
}

/// Functions that a model may call.
#[derive(Debug, Default)]
pub struct Functions {
    /// The functions, as templates see them.
    pub tools: Vec<Value>,
    /// The functions, as schemas are made of them.
    pub raw: Option<Box<RawValue>>,
    /// Whether and which function is called.
    pub choice: ToolChoice,
    /// Whether there may be more than one call.
    pub has_parallel_calls: bool,
}

/// Choice of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides; the field is absent.
    #[default]
    Absent,
    /// The model decides.
    Auto,
    /// No function is called.
    None,
    /// Any function is called.
    Required,
    /// The named function is called.
    Named(String),
}

#[derive(Debug, Default)]
struct Late {
    /// `n`.
    n: i64,
    best_of: Option<i64>,
    has_suffix: bool,
    has_bias: bool,
    has_stream_options: bool,
    has_top_logprobs: bool,
    has_logprobs: bool,
    is_list: bool,
}

/// Whether a value has the type of its field, in the words of Triton's front end.
pub(crate) fn check(field: &'static Field, value: &str) -> Result<(), FormError> {
    let wrong = |text: String| Err(FormError::of(field.name, format!("{text}, got {}", cut(value))));
    let range = |is_least: bool, bound: String| {
        let than = if is_least { "greater than or equal to" } else { "less than or equal to" };
        wrong(format!("Input should be {than} {bound}"))
    };
    let first = value.as_bytes().first().copied().unwrap_or_default();
    match field.kind {
        FieldKind::Text if first != b'"' => wrong("Input should be a valid string".to_owned()),
        FieldKind::Texts if first != b'"' && first != b'[' => {
            wrong("Input should be a valid string, or a list of strings".to_owned())
        }
        FieldKind::Flag if value != "true" && value != "false" => wrong("Input should be a valid boolean".to_owned()),
        FieldKind::Object if first != b'{' => wrong("Input should be a valid dictionary".to_owned()),
        FieldKind::List if first != b'[' => wrong("Input should be a valid list".to_owned()),
        FieldKind::Integer(least, most) => match integer(value) {
            None => wrong("Input should be a valid integer".to_owned()),
            Some(n) if n < least => range(true, least.to_string()),
            Some(n) if n > most => range(false, most.to_string()),
            Some(_) => Ok(()),
        },
        FieldKind::Number(least, most) => match value.parse::<f64>() {
            Ok(n) if n < least => range(true, least.to_string()),
            Ok(n) if n > most => range(false, most.to_string()),
            Ok(n) if n.is_finite() => Ok(()),
            _ => wrong("Input should be a valid number".to_owned()),
        },
        _ => Ok(()),
    }
}

/// Checks that a rejected field has a value that changes nothing.
fn reject(field: &'static Field, value: &str) -> Result<(), FormError> {
    let is_harmless = match field.name {
        // Checked once the model is known.
        "best_of" | "suffix" => true,
        "modalities" => value.bytes().filter(|b| !b.is_ascii_whitespace()).eq(*b"[\"text\"]"),
        "functions" => value.bytes().filter(|b| !b.is_ascii_whitespace()).eq(*b"[]"),
        "function_call" => value == "\"none\"",
        _ => false,
    };
    let text = || format!("this field is not supported: {}", field.meaning);
    if is_harmless { Ok(()) } else { Err(FormError::of(field.name, text())) }
}

impl ChatRequest {
    /// Reads a body. `as_triton`: only the fields of Triton's front end are known.
    ///
    /// # Errors
    /// A text for the client, with the field that is wrong.
    pub fn read(body: &[u8], on: On, as_triton: bool) -> Result<Self, FormError> {
        let members: BodyMembers<'_> = protocol::text::read(body)?;
        let mut settings = Vec::new();
        for field in FIELDS.iter().filter(|field| field.on == On::Both || field.on == on) {
            let Some(value) = members.given(field.name) else { continue };
            if value.get() != "null" {
                check(field, value.get())?;
            }
            match field.used {
                Use::Model => settings.push((field, value.to_owned())),
                // Triton's front end takes them without effect.
                Use::Rejected if value.get() != "null" && !(as_triton && field.in_triton) => {
                    reject(field, value.get())?;
                }
                _ => {}
            }
        }
        if as_triton {
            let unknown = members.0.iter().find(|(name, _)| !Field::find(name, on).is_some_and(|f| f.in_triton));
            if let Some((name, _)) = unknown {
                let text = format!("Extra inputs are not permitted: '{}'", cut(name));
                return Err(FormError { field: None, text: text.into(), is_empty: false });
            }
        }
        for field in ["response_format", "structured_outputs"] {
            let bytes = members.get(field).map_or(0, |value| value.get().len());
            if bytes > SCHEMA_BYTES_MAX {
                return Err(FormError::of(field, format!("{bytes} bytes: at most {SCHEMA_BYTES_MAX} are supported")));
            }
        }
        let options: Option<StreamOptions> = members.read("stream_options")?;
        let n = members.integer("n").unwrap_or(1);
        let top = members.integer(if on == On::Chat { "top_logprobs" } else { "logprobs" });
        let logprobs = match on {
            On::Completions => top.filter(|&top| top > 0),
            _ => members.flag("logprobs").filter(|&is_on| is_on).map(|_| top.unwrap_or(0)),
        };
        let late = Late {
            n,
            best_of: members.integer("best_of"),
            has_suffix: members.get("suffix").is_some_and(|text| text.get() != "\"\""),
            has_bias: members.get("logit_bias").is_some(),
            has_stream_options: options.is_some(),
            has_top_logprobs: on == On::Chat && top.is_some(),
            has_logprobs: logprobs.is_some(),
            is_list: members.get("prompt").is_some_and(|prompt| prompt.get().starts_with('[')),
        };
        let tools: Vec<Value> = members.read("tools")?.unwrap_or_default();
        if tools.len() > TOOLS_MAX {
            return Err(FormError::of(
                "tools",
                format!("{} functions: at most {TOOLS_MAX} are supported", tools.len()),
            ));
        }
        let is_function = |tool: &Value| {
            tool.get_attr("function").and_then(|function| function.get_attr("name")).is_ok_and(|n| n.as_str().is_some())
        };
        if let Some(at) = tools.iter().position(|tool| !is_function(tool)) {
            let text = format!(
                "tool {at} is not a function; expected {{\"type\": \"function\", \"function\": {{\"name\": \"…\"}}}}"
            );
            return Err(FormError::of("tools", text));
        }
        let model: Option<String> = members.read("model")?;
        if as_triton && model.is_none() {
            return Err(FormError::missing("model"));
        }
        Ok(Self {
            on,
            model,
            reply: ReplyForm {
                streams: members.flag("stream") == Some(true),
                has_usage: options.is_some_and(|options| options.include_usage == Some(true)),
                echo: members.flag("echo") == Some(true),
                logprobs: logprobs.and_then(|top| u32::try_from(top).ok()),
            },
            choices: usize::try_from(n).unwrap_or(1),
            messages: if on == On::Chat { messages(&members)? } else { Vec::new() },
            prompts: if on == On::Completions { prompts(&members)? } else { Vec::new() },
            stop: stop(&members)?,
            settings,
            functions: Functions {
                tools,
                raw: members.get("tools").map(ToOwned::to_owned),
                choice: tool_choice(&members)?,
                has_parallel_calls: members.flag("parallel_tool_calls") != Some(false),
            },
            format: members.get("response_format").map(ToOwned::to_owned),
            variables: variables(&members)?,
            add_generation_prompt: members.flag("add_generation_prompt") != Some(false),
            responses: None,
            late,
        })
    }

    /// Checks what depends on the model, in the order and the words of Triton's front end. `is_vllm`: the model has
    /// backend `vllm`; `has_logprobs`: it has log probabilities; `has_parser`: there is a parser of tool calls.
    ///
    /// # Errors
    /// INVALID_ARG.
    pub fn admit(&self, as_triton: bool, is_vllm: bool, has_logprobs: bool, has_parser: bool) -> Result<()> {
        let fail = |text: &'static str| Err(Error::invalid(text));
        let late = &self.late;
        let is_chat = self.on == On::Chat;
        if !is_chat {
            if late.has_suffix {
                return fail("suffix is not currently supported");
            }
            if self.prompts.is_empty() || self.prompts.iter().all(String::is_empty) {
                return fail("prompt must be non-empty");
            }
            if late.is_list && as_triton {
                return fail("only single string input is supported");
            }
        }
        if late.best_of.is_some() && is_vllm && as_triton {
            return fail("best_of is no longer supported in vLLM backend, removed from vLLM V1 engine");
        }
        if late.n != 1 && as_triton {
            return Err(Error::invalid(format!(
                "Received n={}, but only single choice (n=1) is currently supported",
                late.n
            )));
        }
        if let Some(best) = late.best_of.filter(|&best| best != 1) {
            return Err(Error::invalid(format!(
                "Received best_of={best}, but only single choice (best_of=1) is currently supported"
            )));
        }
        if late.has_bias && as_triton {
            return fail(if is_chat { "logit bias is not currently supported" } else { "logit bias is not supported" });
        }
        if (late.has_logprobs || late.has_top_logprobs) && !has_logprobs {
            return fail(if as_triton {
                "logprobs are currently available only for the vLLM backend"
            } else {
                "the model has no output 'logprobs', so it has no log probabilities"
            });
        }
        if late.has_top_logprobs && !late.has_logprobs {
            return fail("`top_logprobs` can only be used when `logprobs` is True");
        }
        match &self.functions.choice {
            ToolChoice::Required if self.functions.tools.is_empty() => {
                return fail("\"required\" tool choice requires CreateChatCompletionRequest.tools to be provided");
            }
            ToolChoice::Named(_) if self.functions.tools.is_empty() => {
                return fail("Named tool choice requires CreateChatCompletionRequest.tools to be provided");
            }
            ToolChoice::Auto if !has_parser && (as_triton || !self.functions.tools.is_empty()) => {
                return Err(no_parser("\"auto\" tool choice", as_triton));
            }
            ToolChoice::Absent if !has_parser && !self.functions.tools.is_empty() => {
                return Err(no_parser("having tools in the request", as_triton));
            }
            _ => {}
        }
        if late.has_stream_options && !self.reply.streams {
            return fail("`stream_options` can only be used when `stream` is True");
        }
        let total = self.choices * self.prompts.len().max(1);
        if total > CHOICES_MAX as usize {
            return Err(Error::invalid(format!("{total} choices in all: at most {CHOICES_MAX} are supported")));
        }
        Ok(())
    }

    /// The JSON of a setting; `None` if it is absent or null.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(field, _)| field.name == name).map(|(_, v)| v.get()).filter(|v| *v != "null")
    }

    /// The name that the client knows a field of chats by.
    pub fn name_of(&self, field: &'static str) -> &'static str {
        if self.responses.is_some() { responses::name_of(field) } else { field }
    }

    /// Whether the field was given, if only as null.
    pub fn is_given(&self, name: &str) -> bool {
        self.settings.iter().any(|(field, _)| field.name == name)
    }
}

/// Tools came, and nothing reads calls in the text of the model.
fn no_parser(what: &str, as_triton: bool) -> Error {
    let names = ToolParser::ALL.map(ToolParser::name).join(", ");
    let more = format!(" ({names}), or the parameter nereid.chat.tool_parser of the model");
    let more = if as_triton { "" } else { &more };
    Error::invalid(format!("{what} requires --tool-call-parser to be set{more}"))
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

fn prompts(members: &BodyMembers<'_>) -> Result<Vec<String>, FormError> {
    let Some(value) = members.get("prompt") else { return Err(FormError::missing("prompt")) };
    let text = value.get();
    if text.starts_with('"') {
        return members.read("prompt").map(|text| text.into_iter().collect());
    }
    let first = text.get(1..).unwrap_or_default().trim_start().as_bytes().first().copied();
    match (text.starts_with('['), first) {
        (true, Some(b'"' | b']')) => Ok(members.read("prompt")?.unwrap_or_default()),
        (true, Some(b'0'..=b'9' | b'[')) => {
            Err(FormError::of("prompt", "token ids are not supported: send the text of these tokens"))
        }
        _ => Err(FormError::of(
            "prompt",
            format!("Input should be a valid string, or a list of strings, got {}", cut(text)),
        )),
    }
}

fn stop(members: &BodyMembers<'_>) -> Result<Vec<String>, FormError> {
    let Some(value) = members.get("stop") else { return Ok(Vec::new()) };
    let all: Vec<String> = if value.get().starts_with('"') {
        members.read("stop")?.into_iter().collect()
    } else {
        members.read("stop")?.unwrap_or_default()
    };
    if all.len() > STOPS_MAX {
        return Err(FormError::of("stop", format!("{} texts: at most {STOPS_MAX} are supported", all.len())));
    }
    let bytes: usize = all.iter().map(String::len).sum();
    if bytes > STOP_BYTES_MAX {
        return Err(FormError::of("stop", format!("{bytes} bytes: at most {STOP_BYTES_MAX} are supported")));
    }
    Ok(all.into_iter().filter(|text| !text.is_empty()).collect())
}

#[derive(Deserialize)]
struct NamedTool {
    function: NamedFunction,
}

#[derive(Deserialize)]
struct NamedFunction {
    name: String,
}

fn tool_choice(members: &BodyMembers<'_>) -> Result<ToolChoice, FormError> {
    let Some(value) = members.get("tool_choice") else { return Ok(ToolChoice::Absent) };
    match value.get() {
        "\"auto\"" => Ok(ToolChoice::Auto),
        "\"none\"" => Ok(ToolChoice::None),
        "\"required\"" => Ok(ToolChoice::Required),
        text if text.starts_with('{') => {
            let tool: Option<NamedTool> = members.read("tool_choice")?;
            Ok(tool.map_or(ToolChoice::Absent, |tool| ToolChoice::Named(tool.function.name)))
        }
        text => Err(FormError::of(
            "tool_choice",
            format!(
                "Input should be 'none', 'auto', 'required', or an object with a function's name, got {}",
                cut(text)
            ),
        )),
    }
}

fn variables(members: &BodyMembers<'_>) -> Result<Vec<(String, Value)>, FormError> {
    let mut all = Vec::new();
    if let Some(effort) = members.read("reasoning_effort")? {
        all.push(("reasoning_effort".to_owned(), effort));
    }
    if let Some(more) = members.get("chat_template_kwargs") {
        let more: BodyMembers<'_> =
            serde_json::from_str(more.get()).map_err(|error| FormError::of("chat_template_kwargs", shown(&error)))?;
        for (name, value) in more.0 {
            let value = serde_json::from_str(value.get())
                .map_err(|error| FormError::of("chat_template_kwargs", shown(&error)))?;
            all.push((name.into_owned(), value));
        }
    }
    Ok(all)
}
