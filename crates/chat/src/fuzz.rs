//! Entry points of the fuzzers. No input may cause a panic. Public for the fuzz package only.

use crate::fields::On;
use crate::places::{Asked, Places, Said};
use crate::request::ChatRequest;
use crate::responses;
use crate::speech::{Continuation, Facts, Speech};
use crate::template::{Conversation, Json, PROMPT_BYTES_MAX, Template};
use crate::tools::ToolParser;
use bytes::Bytes;
use protocol::{InputSpec, OutputSpec, Signature};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;
use tensor::{Code, DataType};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Given {
    messages: Vec<Json>,
    tools: Option<Vec<Json>>,
    add_generation_prompt: bool,
    variables: BTreeMap<String, Json>,
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

/// Choices whose replies are compared.
const CHOICES_MAX: usize = 4;

/// A body, a byte 0xFF, and the text that a model says. The first byte chooses the form, the second the parser, the
/// third the pieces, and the fourth the kind of model. Returns whether the body was read.
///
/// # Panics
/// If the events of a stream say something else than the whole reply.
pub fn chat_forms(data: &[u8]) -> bool {
    let [form, parser, size, model, rest @ ..] = data else { return false };
    let mut parts = rest.splitn(2, |&byte| byte == 0xff);
    let (body, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let read = match form % 3 {
        0 => ChatRequest::read(body, On::Chat, model & 1 == 1),
        1 => ChatRequest::read(body, On::Completions, model & 1 == 1),
        _ => responses::read(body),
    };
    let Ok(mut request) = read else { return false };
    if request.admit(false, false, true, true).is_err() {
        return true;
    }
    place(&request, model & 2 == 2);
    let _ = crate::logprobs::read(text);
    if request.prompts.len().max(1) * request.choices > CHOICES_MAX {
        return true;
    }
    let text = String::from_utf8_lossy(text);
    let facts = Facts {
        id: "id".to_owned(),
        created: 5,
        model: "m".to_owned(),
        parser: ToolParser::ALL.get(usize::from(parser % 5)).copied(),
        forced: None,
        call_bytes_max: usize::MAX,
        fresh: || "0123456789abcdef".to_owned(),
        stop: request.stop.clone().into(),
        counts: true,
        max_tokens: None,
    };
    let reason = (model & 4 == 4).then(|| Bytes::from_static(b"length"));
    request.reply.streams = false;
    let (whole, _) = speak(&request, facts.clone(), &text, text.len().max(1), reason.clone());
    let whole: Value = serde_json::from_slice(&whole.whole().expect("small")).expect("JSON");
    request.reply.streams = true;
    let (mut stream, mut out) = speak(&request, facts, &text, usize::from(*size) + 1, reason);
    stream.close(&mut out).expect("small");
    let out = String::from_utf8(out).expect("UTF-8");
    if request.responses.is_some() {
        compare_responses(&out, &whole)
    } else {
        compare_chunks(&out, &whole)
    }
    true
}

/// Makes the inputs of a model that takes settings as one object, or each as a tensor.
fn place(request: &ChatRequest, is_vllm: bool) {
    let names: &[(&str, DataType)] = match is_vllm {
        true => &[("text_input", DataType::Bytes), ("sampling_parameters", DataType::Bytes)],
        false => &[
            ("text_input", DataType::Bytes),
            ("max_tokens", DataType::Int32),
            ("temperature", DataType::Fp32),
            ("seed", DataType::Uint64),
            ("stop_words", DataType::Bytes),
            ("stop_token_ids", DataType::Int64),
            ("ignore_eos", DataType::Bool),
        ],
    };
    let input = |&(name, datatype): &(&str, DataType)| InputSpec {
        name: name.into(),
        datatype,
        dims: [-1].into_iter().collect(),
        reshape: None,
        optional: true,
        allow_ragged_batch: false,
    };
    let output = OutputSpec {
        name: "text_output".into(),
        datatype: DataType::Bytes,
        dims: [-1].into_iter().collect(),
        reshape: None,
        labels: Default::default(),
    };
    let inputs = names.iter().map(input).collect();
    let signature = Signature { inputs, outputs: [output].into_iter().collect(), ..Signature::default() };
    let places = Places::of(&signature, None).expect("no parameter").expect("it chats");
    let asked = Asked { request, prompt: "P", choice: 1, max_tokens: Some(5), lora: None, schema: None };
    match places.tensors(&signature, &asked) {
        Ok((inputs, _)) => inputs.iter().for_each(|input| {
            let count = input.shape.iter().product::<i64>() as usize;
            let size = input.datatype.and_then(DataType::byte_size).unwrap_or(4);
            assert!(input.data.to_bytes().expect("here").len() >= count * size);
        }),
        Err(error) => assert_eq!(error.code(), Code::InvalidArg, "{error}"),
    }
    places.ignored(request).into_iter().for_each(|name| assert!(!request.name_of(name).is_empty()));
}

/// Each choice says a text in pieces of `size` bytes, the last of which has the reason.
fn speak(request: &ChatRequest, facts: Facts, text: &str, size: usize, reason: Option<Bytes>) -> (Speech, Vec<u8>) {
    let mut speech = Speech::new(request, facts);
    let mut out = Vec::new();
    for at in 0..speech.len() {
        let mut pieces = text.as_bytes().chunks(size).peekable();
        while let Some(piece) = pieces.next() {
            let reason = reason.clone().filter(|_| pieces.peek().is_none());
            let said = Said { text: Bytes::copy_from_slice(piece), reason, ..Said::default() };
            if speech.said(at, &said, false, &mut out).expect("small") == Continuation::Over {
                break;
            }
        }
        speech.ended(at, &mut out).expect("small");
    }
    assert!(speech.is_over() && (request.reply.streams || out.is_empty()));
    (speech, out)
}

/// The data of each event.
fn data(out: &str) -> impl Iterator<Item = Value> {
    let events = out.strip_suffix("\n\n").expect("whole events").split("\n\n");
    let data = events.map(|event| event.rsplit_once("data: ").expect("data").1).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).expect("JSON"))
}

fn compare_chunks(out: &str, whole: &Value) {
    let choices = whole["choices"].as_array().expect("a list");
    let mut said = vec![(String::new(), Vec::<String>::new(), Value::Null); choices.len()];
    for chunk in data(out) {
        for choice in chunk["choices"].as_array().expect("a list") {
            let (text, calls, reason) = &mut said[choice["index"].as_u64().expect("a number") as usize];
            *text += choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default();
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                if call["id"].is_string() {
                    calls.push(String::new());
                }
                *calls.last_mut().expect("a call has begun") += call["function"]["arguments"].as_str().expect("a text");
            }
            assert!(reason.is_null(), "a chunk follows the end of its choice");
            *reason = choice["finish_reason"].clone();
        }
    }
    for (choice, (text, calls, reason)) in choices.iter().zip(said) {
        assert_eq!(choice["text"].as_str().or(choice["message"]["content"].as_str()), Some(&*text));
        let whole = choice["message"]["tool_calls"].as_array().into_iter().flatten();
        assert_eq!(whole.map(|call| call["function"]["arguments"].clone()).collect::<Vec<_>>(), calls);
        assert_eq!(choice["finish_reason"], reason);
    }
}

fn compare_responses(out: &str, whole: &Value) {
    let mut said = Vec::new();
    for (number, event) in data(out).enumerate() {
        assert_eq!(event["sequence_number"], number);
        let at = event["output_index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().expect("a text") {
            "response.output_item.added" => {
                assert_eq!(at, said.len());
                said.push(String::new());
            }
            "response.output_text.delta" | "response.function_call_arguments.delta" => {
                said[at] += event["delta"].as_str().expect("a text");
            }
            "response.output_item.done" => assert_eq!(event["item"], whole["output"][at]),
            "response.completed" | "response.incomplete" => assert_eq!(event["response"], *whole),
            _ => {}
        }
    }
    let item = |item: &Value| item["arguments"].as_str().or(item["content"][0]["text"].as_str()).map(str::to_owned);
    assert_eq!(whole["output"].as_array().expect("a list").iter().filter_map(item).collect::<Vec<_>>(), said);
}
