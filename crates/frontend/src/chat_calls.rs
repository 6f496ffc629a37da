//! A chat, a completion or a response: from a body to requests of a model, and from its responses to one reply or a
//! stream.
//!
//! Each choice is a request of its own, in one inbox, whose key is the number of the choice. Prompts are made on a
//! thread of [`offload`]. A reply waits for the first response of the model, which decides the status; a stream that
//! fails later ends with an event of the error. Who leaves cancels all choices: the inbox ends with the reply.

use crate::answers::Inbox;
use crate::chat_stream::{Saying, count};
use crate::exchange::HttpExchange;
use crate::failure::FailureKind;
use crate::hold;
use crate::http::inference::forward;
use crate::limits::CHARGE_BYTES_MIN;
use crate::offload;
use crate::text_calls::{self, TextResult};
use crate::text_errors::{self, TextError};
use bytes::Bytes;
use chat::body::{check_values, integer, values_in};
use chat::fields::On;
use chat::places::{Asked, Holds};
use chat::request::{ChatRequest, SCHEMA_BYTES_MAX, ToolChoice};
use chat::speech::{Facts, Speech};
use chat::template::Conversation;
use chat::tools::{Forced, forced};
use engine::{ChatModel, ModelVersion};
use memory::{Charge, Kind};
use protocol::text::FormError;
use protocol::{InferRequest, InputTensor, RequestedOutput};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use tensor::{Error, Result};

/// Bytes of memory that a value of a body takes, with its copies.
const VALUE_BYTES: usize = 256;

/// Bytes of the name of a LoRA.
const LORA_BYTES_MAX: usize = 256;

/// Models that the error of an unknown name lists.
const UNKNOWN_NAMES_MAX: usize = 16;

/// Names fields for which the model has no place.
const IGNORED: &str = "nereid-ignored";

/// The model of a request.
struct ChatTarget<'e> {
    version: &'e Arc<ModelVersion>,
    model: &'e ChatModel,
    /// The name that the request has, or that of the model.
    name: String,
    lora: Option<String>,
}

/// Reads a body; the flag is `--openai-errors=triton`.
type ReadBody = fn(&[u8], bool) -> Result<ChatRequest, FormError>;

pub async fn answer(exchange: &HttpExchange<'_>, body: Bytes, read: ReadBody) -> TextResult {
    let as_triton = exchange.context.openai_errors_as_triton;
    let options = &exchange.context.engine.options().chat;
    exchange.context.limits.check_json(body.len()).map_err(|e| TextError::of(e, FailureKind::TooLarge, None))?;
    let bytes = body.len();
    let counted = body.clone();
    let count = move || Ok(values_in(&counted));
    let (values, _) = text_calls::heavy(exchange, Kind::Unpacked, bytes, count).await?;
    check_values(values)?;
    // Read values, of which a template has copies, and the body itself once more.
    let unpacked = values * VALUE_BYTES + bytes;
    let mut unpacked_charge = exchange.with.account.empty(Kind::Unpacked, true);
    cover(&mut unpacked_charge, unpacked)?;
    let read = move || Ok(read(&body, as_triton)?);
    let (request, _charge) = text_calls::heavy(exchange, Kind::Unpacked, bytes, read).await?;
    let target = find(exchange, request.model.as_deref(), &options.lora_separator)?;
    let ChatTarget { version, model, .. } = &target;
    let as_triton = as_triton && request.responses.is_none();
    if as_triton && request.on == On::Chat && model.places.has(Holds::Prompt) && !model.has_template() {
        return Err(Error::internal("Unknown tokenizer").into());
    }
    request.admit(as_triton, model.is_vllm, model.places.has(Holds::Logprobs), model.parser.is_some())?;
    if request.on == On::Completions && !model.places.has(Holds::Prompt) {
        let text = format!("model '{}' takes messages and no prompt: use /v1/chat/completions", target.name);
        return Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("model")));
    }
    let forced = force(&request, model)?;
    let schema = schema(&request, model, forced.as_ref(), as_triton)?;
    let request = Arc::new(request);
    let made = prompts(exchange, version, &request, bytes).await?;
    let ignored = model.places.ignored(&request);
    let facts = Facts {
        id: match request.on {
            _ if request.responses.is_some() => format!("resp_{}", fresh()),
            On::Completions => text_errors::new_id("cmpl"),
            _ => text_errors::new_id("chatcmpl"),
        },
        created: crate::endpoints::unix_secs(),
        model: target.name.clone(),
        parser: model.parser,
        forced,
        call_bytes_max: options.call_bytes_max as usize,
        fresh,
        stop: if model.places.stops() { [].into() } else { request.stop.clone().into() },
        counts: wants_count(&request, model),
        max_tokens: request
            .setting("max_completion_tokens")
            .or_else(|| request.setting("max_tokens"))
            .and_then(integer),
    };
    let mut speech = Speech::new(&request, facts);
    speech.count(&made.tokens, &[]);
    let account = &exchange.with.account;
    let inbox = Inbox::new(account);
    if !request.reply.streams {
        inbox.read_by_server();
    }
    // Choices of a prompt share its tensors, which are made and charged once.
    let mut shared: Option<(Vec<InputTensor>, Vec<RequestedOutput>)> = None;
    let mut inputs_charge = account.empty(Kind::Unpacked, true);
    let mut inputs_bytes = 0;
    for at in 0..speech.len() {
        let place = at / request.choices.max(1);
        let asked = Asked {
            request: &request,
            prompt: made.prompts.get(place).or(request.prompts.get(place)).map_or("", String::as_str),
            choice: at % request.choices.max(1),
            max_tokens: Some(i64::from(options.max_tokens_default)),
            lora: target.lora.as_deref(),
            schema: schema.as_deref(),
        };
        let is_first = asked.choice == 0;
        let known = shared.take().filter(|_| !is_first && request.setting("seed").is_none());
        let (inputs, outputs) = match known {
            Some(known) => known,
            None => {
                let made = model.places.tensors(&version.signature, &asked)?;
                inputs_bytes += made.0.iter().map(|input| input.data.len()).sum::<usize>();
                cover(&mut inputs_charge, inputs_bytes)?;
                made
            }
        };
        shared = Some((inputs.clone(), outputs.clone()));
        let mut call =
            Box::new(InferRequest { inputs: inputs.into(), outputs: outputs.into(), ..InferRequest::default() });
        if at == 0 {
            // Its responses come from the inbox, which knows no record.
            exchange.needs_record();
            exchange.accept(version);
            forward(exchange, &mut call)?;
        }
        let key = inbox.reserve();
        inbox.starter().start(key, version, call).get().await?;
        hold::pause().await;
    }
    let saying = Saying::new(inbox, version, speech, account, inputs_charge);
    let mut reply = if request.reply.streams {
        saying.stream(exchange.with.record.events()).await?
    } else {
        saying.whole().await?
    };
    if !ignored.is_empty() {
        let names: Vec<_> = ignored.into_iter().map(|field| request.name_of(field)).collect();
        reply.add(IGNORED, names.join(", "));
    }
    Ok(reply)
}

/// Grows a charge to so many bytes. Few are not charged: a small chat needs no room in a budget that is used up.
fn cover(charge: &mut Charge, bytes: usize) -> Result<()> {
    if bytes > CHARGE_BYTES_MIN {
        charge.grow_to(bytes)?;
    }
    Ok(())
}

/// Sixteen digits, different each time.
fn fresh() -> String {
    text_errors::new_id("").trim_start_matches('-').to_owned()
}

/// The model that a body names, or the only one that chats, if the caller may use it.
fn find<'e>(exchange: &'e HttpExchange<'_>, name: Option<&str>, separator: &str) -> TextResult<ChatTarget<'e>> {
    let asked = text_calls::name_asked(exchange, name);
    let name = asked.as_deref();
    let parts: Vec<_> =
        name.filter(|_| !separator.is_empty()).map_or(Vec::new(), |name| name.split(separator).collect());
    let (base, lora) = match (name, &parts[..]) {
        (Some(_), &[base, lora]) => (Some(base), Some(lora)),
        (name, _) => (name, None),
    };
    let found = match base {
        Some(base) => exchange.context.engine.text_name(base),
        None => text_calls::only_of(exchange, &usable_models(exchange, usize::MAX), || "no model chats".to_owned())?,
    };
    let version = text_calls::version_of(exchange, name, &found, || {
        Some(format!("models that chat: {}", usable_models(exchange, UNKNOWN_NAMES_MAX).join(", ")))
    })?;
    let model = version.chat().ok_or_else(|| {
        let text = format!(
            "model '{}' does not chat: it needs a BYTES input text_input and a BYTES output text_output, or the \
             parameter '{}' that names others",
            found.model,
            chat::places::PARAMETER
        );
        TextError::of(Error::invalid(text), FailureKind::Other, Some("model"))
    })?;
    if let (Some(lora), Some(known)) = (lora, &model.loras)
        && !known.iter().any(|name| name == lora)
    {
        let text = format!("Unknown LoRA: {lora}; for model: {}", name.unwrap_or_default());
        return Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("model")));
    }
    if let Some(lora) = lora.filter(|lora| lora.len() > LORA_BYTES_MAX) {
        let text = format!("the name of the LoRA has {} bytes: at most {LORA_BYTES_MAX} are supported", lora.len());
        return Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("model")));
    }
    let name = name.map_or(found.model, str::to_owned);
    Ok(ChatTarget { version, model, name, lora: lora.map(str::to_owned) })
}

/// Names of the models that chat and that the caller may use, at most `most`.
fn usable_models(exchange: &HttpExchange<'_>, most: usize) -> Vec<String> {
    let all = exchange.context.engine.chat_models();
    let names = all.iter().map(|version| version.signature.model.as_str());
    names.filter(|model| exchange.with.grant.covers(model)).take(most).map(str::to_owned).collect()
}

/// Calls that the request demands.
fn force(request: &ChatRequest, model: &ChatModel) -> TextResult<Option<Forced>> {
    let choice = &request.functions.choice;
    if !matches!(choice, ToolChoice::Required | ToolChoice::Named(_)) {
        return Ok(None);
    }
    if !model.places.takes_schema() {
        let text = "the model has no input for structured outputs (sampling_parameters, or \
                    guided_decoding_guide), so no call can be forced; use \"auto\"";
        return Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("tool_choice")));
    }
    let tools = request.functions.raw.as_ref().map_or("[]", |raw| raw.get());
    let bytes = tools.len();
    if bytes > SCHEMA_BYTES_MAX {
        let text =
            format!("{bytes} bytes of functions, of which one is forced: at most {SCHEMA_BYTES_MAX} are supported");
        return Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("tools")));
    }
    Ok(forced(choice, tools)?)
}

/// `response_format` of a request.
#[derive(Deserialize)]
struct ResponseFormat<'f> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'f, str>>,
    #[serde(borrow)]
    json_schema: Option<&'f RawValue>,
}

#[derive(Deserialize)]
struct ResponseSchema<'f> {
    #[serde(borrow)]
    schema: Option<&'f RawValue>,
}

/// The JSON schema that the text must have, as the client wrote it: models write members in the order of the schema.
/// Triton's front end has no effect where the model cannot be held to one.
fn schema(
    request: &ChatRequest,
    model: &ChatModel,
    forced: Option<&Forced>,
    as_triton: bool,
) -> TextResult<Option<String>> {
    if let Some(forced) = forced {
        return Ok(Some(forced.schema.clone()));
    }
    let Some(format) = &request.format else { return Ok(None) };
    let field = request.name_of("response_format");
    let wrong = |text: String| TextError::of(Error::invalid(text), FailureKind::Form, Some(field));
    let read = |error: serde_json::Error| wrong(error.to_string());
    let format: ResponseFormat<'_> = serde_json::from_str(format.get()).map_err(read)?;
    let schema = match format.kind.as_deref() {
        Some("text") => return Ok(None),
        Some("json_object") => r#"{"type":"object"}"#,
        Some("json_schema") => {
            let inner = format.json_schema.map(|json| serde_json::from_str::<ResponseSchema<'_>>(json.get()));
            match inner.transpose().map_err(read)?.and_then(|inner| inner.schema) {
                Some(schema) => schema.get(),
                None if request.responses.is_some() => return Err(wrong("schema is missing".to_owned())),
                None => return Err(wrong("json_schema.schema is missing".to_owned())),
            }
        }
        _ => return Err(wrong("type is 'text', 'json_object' or 'json_schema'".to_owned())),
    };
    match model.places.takes_schema() {
        true => Ok(Some(schema.to_owned())),
        false if as_triton => Ok(None),
        false => Err(wrong(
            "the model has no input for structured outputs (sampling_parameters, or guided_decoding_guide): only \
             the type 'text' works"
                .to_owned(),
        )),
    }
}

/// Prompts that a template made, with the numbers of tokens of all prompts if these are counted here.
#[derive(Default)]
struct Made {
    prompts: Vec<String>,
    tokens: Vec<u64>,
}

/// Makes the prompts, on another thread unless nothing is to be made.
async fn prompts(
    exchange: &HttpExchange<'_>,
    version: &Arc<ModelVersion>,
    request: &Arc<ChatRequest>,
    bytes: usize,
) -> TextResult<Made> {
    let Some(model) = version.chat() else { return Ok(Made::default()) };
    let renders = request.on == On::Chat && model.places.has(Holds::Prompt);
    let counts = wants_count(request, model);
    if !renders && !counts {
        return Ok(Made::default());
    }
    let (request, version) = (request.clone(), version.clone());
    let work = move |_: &offload::CancelFlag<'_>| -> Result<Made> {
        let Some(model) = version.chat() else { return Ok(Made::default()) };
        let prompts = if renders { vec![render(&version.signature.model, model, &request)?] } else { Vec::new() };
        let all = if renders { &prompts } else { &request.prompts };
        let tokens = if counts { count(model, all, !renders) } else { Vec::new() };
        Ok(Made { prompts, tokens })
    };
    let (made, _charge) = offload::run_charged(&exchange.with.account, Kind::Unpacked, bytes, work).await?;
    Ok(made?)
}

/// Whether tokens are counted by the tokenizer, because the model does not.
fn wants_count(request: &ChatRequest, model: &ChatModel) -> bool {
    let counts = model.places.has(Holds::PromptTokens) && model.places.has(Holds::TextTokens);
    (request.reply.has_usage || !request.reply.streams) && !counts && model.tokenizer().is_some()
}

fn render(name: &str, model: &ChatModel, request: &ChatRequest) -> Result<String> {
    let templates = model.templates()?;
    let Some(template) = templates.of(!request.functions.tools.is_empty()) else {
        return Err(Error::internal(format!(
            "Cannot use chat template functions because tokenizer.chat_template is not set and no template argument \
             was passed: model '{name}' has no chat template. Put chat_template.jinja, or a tokenizer_config.json with \
             a template, into the directory of its version, or name one by --chat-template or --tokenizer"
        )));
    };
    let mut variables = templates.tokens.clone();
    variables.extend(request.variables.iter().cloned());
    template.render(&Conversation {
        messages: request.messages.clone(),
        tools: (!request.functions.tools.is_empty()).then(|| request.functions.tools.clone()),
        add_generation_prompt: request.add_generation_prompt,
        variables,
    })
}
