//! Chat templates as transformers renders them: a list of messages to the text of a prompt.
//!
//! Templates come from the files of a model, conversations from clients; neither is trusted. What a template makes is
//! bounded: its steps, its text, the depth and size of its values. No clock besides that of [`Template::render`].

mod folder;
mod functions;
mod json;
mod limits;
mod methods;
mod python;
mod source;
mod time;

pub use folder::{FolderTemplates, of_folder};
pub use limits::{PROMPT_BYTES_MAX, STEPS_MAX, TEMPLATE_BYTES_MAX};

use limits::STEPS_PER_BYTE;
use minijinja::value::ValueKind;
use minijinja::{Environment, ErrorKind, State};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{SystemTime, UNIX_EPOCH};
use tensor::{Error, Result};

/// A JSON value that keeps the order of its keys, which prompts repeat. [`serde_json::Value`] sorts them.
pub use minijinja::Value as Json;

/// Deepest nesting of frames: four for each macro, one for each loop.
const RECURSION_MAX: usize = 200;

const NAME: &str = "chat_template";

/// A compiled template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
}

/// Values that a template sees, with the names that transformers gives them.
///
/// `V` is the type of the JSON in it: [`Json`] keeps the order of keys.
#[derive(Debug, Clone, Default)]
pub struct Conversation<V = Value> {
    /// The messages, each with `role` and `content`.
    pub messages: Vec<V>,
    /// Functions that the model may call.
    pub tools: Option<Vec<V>>,
    /// Whether the prompt ends where the assistant begins to speak.
    pub add_generation_prompt: bool,
    /// Further variables: `bos_token`, `eos_token`, and those that a request adds.
    pub variables: BTreeMap<String, Json>,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// INVALID_ARG with the line and the cause: the source has a syntax error, or exceeds a limit.
    pub fn compile(source: &str) -> Result<Self> {
        if source.len() > TEMPLATE_BYTES_MAX {
            let len = source.len();
            return Err(Error::invalid(format!(
                "the chat template has {len} bytes, of which {TEMPLATE_BYTES_MAX} are allowed"
            )));
        }
        let source = source::translate(source)
            .map_err(|error| Error::invalid(format!("chat template, line {}: {}", error.line, error.what)))?;
        let mut environment = environment();
        guarded(|| environment.add_template_owned(NAME, source).map_err(|error| describe(&error, STEPS_MAX)))?;
        Ok(Self { environment })
    }

    /// The prompt of a conversation, at the time of the system's clock.
    ///
    /// # Errors
    /// INVALID_ARG with the text of `raise_exception`, or what failed; also for a template that takes too many steps,
    /// or whose text is longer than [`PROMPT_BYTES_MAX`].
    pub fn render<V: Serialize>(&self, conversation: &Conversation<V>) -> Result<String> {
        // Templates write the date.
        #[allow(clippy::disallowed_methods)]
        let now = SystemTime::now();
        self.render_at(conversation, now)
    }

    /// The prompt of a conversation at a time, which templates write with `strftime_now`.
    ///
    /// # Errors
    /// INVALID_ARG: the errors of [`Self::render`].
    pub fn render_at<V: Serialize>(&self, conversation: &Conversation<V>, now: SystemTime) -> Result<String> {
        let (context, bytes) = context(conversation, now)?;
        Ok(guarded(|| self.run(context, bytes))?.0)
    }

    /// Steps that the prompt of a conversation takes.
    ///
    /// # Errors
    /// INVALID_ARG: the errors of [`Self::render`].
    pub fn steps<V: Serialize>(&self, conversation: &Conversation<V>) -> Result<u64> {
        let (context, bytes) = context(conversation, UNIX_EPOCH)?;
        Ok(guarded(|| self.run(context, bytes))?.1)
    }

    fn run(&self, context: Json, bytes: u64) -> Result<(String, u64)> {
        // The environment is cloned only for texts that can need it.
        let (steps_max, longer);
        let environment = if bytes * STEPS_PER_BYTE > STEPS_MAX / 4 {
            steps_max = STEPS_MAX + bytes * STEPS_PER_BYTE;
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(steps_max));
            longer = environment;
            &longer
        } else {
            steps_max = STEPS_MAX;
            &self.environment
        };
        let failed = |error| describe(&error, steps_max);
        let template = environment.get_template(NAME).map_err(failed)?;
        let mut prompt = Prompt(Vec::with_capacity(4096));
        let captured = template.render_captured_to(context, &mut prompt).map_err(failed)?;
        let steps = captured.state().fuel_levels().map_or(0, |(used, _)| used);
        drop(captured);
        let prompt = String::from_utf8(prompt.0).map_err(|_| Error::internal("a prompt is not UTF-8"))?;
        Ok((prompt, steps))
    }
}

/// An environment with everything but the template.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let mut syntax = minijinja::syntax::SyntaxConfig::builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build().expect("the delimiters are jinja's"));
    environment.set_debug(false);
    environment.set_fuel(Some(STEPS_MAX));
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _: &mut State<'_, '_>, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => Ok(out.write_str(&python::to_str(value)?)?),
    });
    functions::add_to(&mut environment);
    environment
}

/// Reasoning of a message, under the names that clients give it: the first that is there is the value of all.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

fn context<V: Serialize>(conversation: &Conversation<V>, now: SystemTime) -> Result<(Json, u64)> {
    let (mut messages, mut bytes) = (Vec::with_capacity(conversation.messages.len()), 0);
    for (index, message) in conversation.messages.iter().enumerate() {
        let message = from_serde(message);
        if message.kind() != ValueKind::Map {
            return Err(Error::invalid(format!("messages[{index}] is {}, expected an object", message.kind())));
        }
        bytes += text_bytes(&message);
        messages.push(normalize(message));
    }
    let tools = conversation.tools.as_ref().map(from_serde);
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let variables = conversation.variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let fixed = [
        ("messages", Json::from(messages)),
        ("tools", tools.unwrap_or_else(|| Json::from(()))),
        ("add_generation_prompt", Json::from(conversation.add_generation_prompt)),
        (time::NOW, Json::from(seconds)),
    ];
    let context = Json::from_pairs([("documents", Json::from(()))].into_iter().chain(variables).chain(fixed));
    Ok((context, bytes))
}

/// Bytes of all texts in a value of a request.
fn text_bytes(value: &Json) -> u64 {
    match value.as_str() {
        Some(text) => text.len() as u64,
        None => match value.as_object().and_then(|object| object.try_iter_pairs()) {
            Some(pairs) => pairs.map(|(_, item)| text_bytes(&item)).sum(),
            None => 0,
        },
    }
}

fn from_serde<V: Serialize>(value: V) -> Json {
    Json::from(minijinja::value::Serde(value))
}

/// A message as transformers hands it to templates: without keys that are null, and with reasoning under each name.
fn normalize(message: Json) -> Json {
    let pairs = || message.as_object().and_then(|object| object.try_iter_pairs()).into_iter().flatten();
    let get = |name: &str| message.get_attr(name).ok().filter(|value| !value.is_undefined() && !value.is_none());
    let reasoning = REASONING.iter().find_map(|name| get(name));
    if reasoning.is_none() && !pairs().any(|(_, value)| value.is_none()) {
        return message;
    }
    let alias = |name: &'static str| reasoning.clone().map(|value| (Json::from(name), value));
    let given = pairs().filter(|(_, value)| !value.is_none());
    // A given `thinking` keeps its value.
    Json::from_pairs(alias("thinking").into_iter().chain(given).chain(alias("reasoning_content")))
}

/// The text of a prompt, which ends at the limit.
struct Prompt(Vec<u8>);

impl io::Write for Prompt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > PROMPT_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs code of minijinja, whose panics are errors here: a template must not end the server.
fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Error::internal("the chat template caused a panic")))
}

/// An error of minijinja as clients see it: the template's own text alone, or the line and the cause.
fn describe(error: &minijinja::Error, steps_max: u64) -> Error {
    let mut innermost = error;
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(raised) = source.downcast_ref::<functions::Raised>() {
            return Error::invalid(raised.0.clone());
        }
        if let Some(source) = source.downcast_ref::<minijinja::Error>() {
            innermost = source;
        }
        cause = source.source();
    }
    let line = innermost.line().or(error.line()).map(|line| format!(", line {line}")).unwrap_or_default();
    let what = match innermost.kind() {
        ErrorKind::OutOfFuel => format!(
            "the template takes more than {steps_max} steps: the conversation is too long, or the template does not end"
        ),
        ErrorKind::WriteFailure => {
            format!("the prompt is longer than {PROMPT_BYTES_MAX} bytes: shorten the conversation")
        }
        kind => match innermost.detail() {
            Some(detail) => detail.to_owned(),
            None => kind.to_string(),
        },
    };
    Error::invalid(format!("chat template{line}: {what}"))
}
