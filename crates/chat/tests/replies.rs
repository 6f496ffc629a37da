//! Requests to inputs of models, and their responses to replies.

mod support;

use bytes::Bytes;
use chat::fields::On;
use chat::places::{Asked, Places, Said};
use chat::request::ChatRequest;
use chat::speech::{Continuation, Facts, Speech};
use chat::template::Conversation;
use chat::tools::ToolParser;
use protocol::{InputSpec, InputTensor, OutputSpec, Signature};
use serde_json::{Value, json};
use tensor::DataType;
use tensor::DataType::{Bool, Bytes as Text, Fp32, Int32, Uint64};

fn signature(inputs: &[(&str, DataType, &[i64])], outputs: &[(&str, DataType)]) -> Signature {
    let input = |&(name, datatype, dims): &(&str, DataType, &[i64])| InputSpec {
        name: name.into(),
        datatype,
        dims: dims.iter().copied().collect(),
        reshape: None,
        optional: name != "text_input",
        allow_ragged_batch: false,
    };
    let output = |&(name, datatype): &(&str, DataType)| OutputSpec {
        name: name.into(),
        datatype,
        dims: [-1].into_iter().collect(),
        reshape: None,
        labels: Default::default(),
    };
    Signature {
        model: "llm".into(),
        inputs: inputs.iter().map(input).collect(),
        outputs: outputs.iter().map(output).collect(),
        decoupled: true,
        ..Signature::default()
    }
}

fn read(on: On, body: &Value) -> Result<ChatRequest, String> {
    let read = ChatRequest::read(body.to_string().as_bytes(), on, false);
    read.map_err(|error| format!("{}: {}", error.field.unwrap_or("-"), error.text))
}

fn chat(more: Value) -> ChatRequest {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    read(On::Chat, &body).unwrap()
}

/// Name, shape and content of each input.
fn tensors(signature: &Signature, request: &ChatRequest, choice: usize) -> Vec<(String, Vec<i64>, Vec<u8>)> {
    let places = Places::of(signature, None).unwrap().unwrap();
    let asked = Asked { request, prompt: "P", choice, max_tokens: Some(16), lora: None, schema: None };
    let (inputs, _) = places.tensors(signature, &asked).unwrap();
    let part = |input: &InputTensor| {
        let (name, shape) = (input.name.to_string(), input.shape.to_vec());
        (name, shape, input.data.to_vec().unwrap())
    };
    inputs.iter().map(part).collect()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

#[test]
fn settings_go_to_one_object_or_to_tensors_of_their_names() {
    let vllm = signature(
        &[("text_input", Text, &[1]), ("stream", Bool, &[1]), ("sampling_parameters", Text, &[1])],
        &[("text_output", Text)],
    );
    let request = chat(json!({ "seed": 7, "stop": ["a", "b"], "top_k": 5, "temperature": null, "stream": true }));
    let all = tensors(&vllm, &request, 2);
    assert_eq!(all[0], ("text_input".to_owned(), vec![1], string("P")));
    assert_eq!(all[1], ("stream".to_owned(), vec![1], vec![1]));
    let settings: Value = serde_json::from_slice(&all[2].2[4..]).unwrap();
    let expected = json!({
        "n": 1, "seed": 9, "stop": ["a", "b"], "top_k": 5, "top_p": 1, "frequency_penalty": 0,
        "presence_penalty": 0, "ignore_eos": false, "max_tokens": 16,
    });
    assert_eq!(settings, expected, "null leaves a setting to the model");
    // Triton's own backend reads structured outputs only as a text of JSON.
    let places = Places::of(&vllm, None).unwrap().unwrap();
    let own = chat(json!({ "structured_outputs": { "choice": ["a"] } }));
    for (request, schema, expected) in [
        (&request, Some(r#"{"type":"object"}"#), json!({ "json": r#"{"type":"object"}"# })),
        (&own, None, json!({ "choice": ["a"] })),
    ] {
        let asked = Asked { request, prompt: "P", choice: 0, max_tokens: None, lora: None, schema };
        let (inputs, _) = places.tensors(&vllm, &asked).unwrap();
        let settings: Value = serde_json::from_slice(&inputs[2].data.to_vec().unwrap()[4..]).unwrap();
        let text = settings["structured_outputs"].as_str().expect("a text");
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
    }
    let trtllm = signature(
        &[
            ("text_input", Text, &[1]),
            ("max_tokens", Int32, &[1]),
            ("stop_words", Text, &[-1]),
            ("temperature", Fp32, &[1]),
            ("seed", Uint64, &[1]),
        ],
        &[("text_output", Text)],
    );
    let trtllm = Signature { max_batch_size: 4, ..trtllm };
    let all = tensors(&trtllm, &chat(json!({ "stop": ["a", "b"], "max_completion_tokens": 3 })), 0);
    let expected = [
        ("text_input", vec![1, 1], string("P")),
        ("stop_words", vec![1, 2], [string("a"), string("b")].concat()),
        ("max_tokens", vec![1, 1], 3i32.to_le_bytes().to_vec()),
        ("temperature", vec![1, 1], 0.7f32.to_le_bytes().to_vec()),
    ];
    assert_eq!(all, expected.map(|(name, shape, data)| (name.to_owned(), shape, data)));
    let places = Places::of(&trtllm, None).unwrap().unwrap();
    assert_eq!(places.ignored(&chat(json!({ "top_k": 1, "seed": 2, "logit_bias": {} }))), ["top_k", "logit_bias"]);
}

#[test]
fn a_configuration_names_tensors() {
    let other = signature(&[("Q", Text, &[1]), ("LIMIT", Int32, &[1])], &[("A", Text)]);
    assert!(Places::of(&other, None).unwrap().is_none());
    let places = Places::of(&other, Some("prompt=Q text=A max_tokens=LIMIT")).unwrap();
    assert!(places.is_some());
    for (text, why) in [
        ("prompt=X", "no input 'X'"),
        ("text=Q", "no output 'Q'"),
        ("speed=X", "'speed' is unknown"),
        ("prompt=LIMIT text=A", "the input 'LIMIT' has the datatype INT32; 'prompt' needs BYTES"),
        ("prompt=Q sampling_parameters=LIMIT text=A", "'sampling_parameters' needs BYTES"),
        ("prompt=Q messages=Q text=A", "the input 'Q' is named twice"),
        ("Q", "'Q' is not THING=TENSOR"),
    ] {
        let error = Places::of(&other, Some(text)).unwrap_err();
        assert!(error.message().contains(why), "{text}: {}", error.message());
    }
    let mut strict = other;
    strict.inputs.iter_mut().for_each(|input| input.optional = false);
    let error = Places::of(&strict, Some("prompt=Q text=A")).unwrap_err();
    assert!(error.message().contains("requires the input 'LIMIT', for which a chat has no value"));
}

#[test]
fn wrong_values_name_their_field() {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    for (name, value, why) in [
        ("temperature", json!(2.1), "Input should be less than or equal to 2, got 2.1"),
        ("n", json!(0), "Input should be greater than or equal to 1, got 0"),
        ("stop", json!(5), "Input should be a valid string, or a list of strings, got 5"),
        ("stream", json!("yes"), "Input should be a valid boolean, got \"yes\""),
        ("messages", json!([]), "List should have at least 1 item after validation, not 0"),
        ("messages", json!([{}]), "message 0: role: Field required"),
        ("messages", json!([{ "role": "robot" }]), "message 0: role is one of system"),
        ("messages", json!([{ "role": "user", "content": [{ "type": "image_url" }] }]), "but got image_url"),
        ("tool_choice", json!("x"), "Input should be 'none', 'auto', 'required'"),
        ("functions", json!([{}]), "this field is not supported: Use `tools`."),
        ("chat_template", json!("x"), "this field is not supported"),
        ("tools", json!([{ "type": "web" }]), "tool 0 is not a function"),
    ] {
        let before = body[name].take();
        body[name] = value.clone();
        let error = read(On::Chat, &body).unwrap_err();
        assert!(error.starts_with(name) && error.contains(why), "{name} {value}: {error}");
        body[name] = before;
    }
    let ids = read(On::Completions, &json!({ "prompt": [1, 2] })).unwrap_err();
    assert!(ids.starts_with("prompt: token ids"), "{ids}");
}

fn facts(parser: Option<ToolParser>, stop: &[&str]) -> Facts {
    Facts { parser, stop: stop.iter().map(|&text| text.to_owned()).collect(), ..support::facts("id") }
}

fn piece(text: &[u8]) -> Said {
    Said { text: Bytes::copy_from_slice(text), ..Said::default() }
}

/// The chunks of a stream, without what they all have.
fn chunks(out: &[u8]) -> Vec<Value> {
    let text = str::from_utf8(out).unwrap();
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    let data = events.map(|event| event.strip_prefix("data: ").unwrap()).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn deltas(out: &[u8]) -> Vec<Value> {
    let all = chunks(out).into_iter().map(|mut chunk| {
        assert_eq!((&chunk["id"], &chunk["object"]), (&json!("id"), &json!("chat.completion.chunk")));
        let choice = &mut chunk["choices"][0];
        json!([choice["index"], choice["delta"], choice["finish_reason"]])
    });
    all.collect()
}

#[test]
fn a_stream_begins_with_the_role_and_ends_once() {
    let request = chat(json!({ "stream": true, "stream_options": { "include_usage": true } }));
    let mut speech = Speech::new(&request, facts(None, &[]));
    let mut out = Vec::new();
    let count = |text: &[u8], reason: Option<&'static [u8]>| Said {
        reason: reason.map(Bytes::from_static),
        prompt_tokens: Some(3),
        text_tokens: Some(1),
        ..piece(text)
    };
    // A character that is cut waits for its end.
    for (text, reason) in [(&b"H\xc3"[..], None), (b"\xa9", None), (b"!", Some(&b"length"[..]))] {
        assert_eq!(speech.said(0, &count(text, reason), false, &mut out).unwrap(), Continuation::GoesOn);
    }
    speech.ended(0, &mut out).unwrap();
    assert!(speech.is_over());
    let expected = json!([
        [0, { "role": "assistant", "content": "" }, null],
        [0, { "content": "H" }, null],
        [0, { "content": "é" }, null],
        [0, { "content": "!" }, null],
        [0, {}, "length"],
    ]);
    assert_eq!(json!(deltas(&out)), expected);
    out.clear();
    speech.close(&mut out).unwrap();
    assert!(out.ends_with(b"data: [DONE]\n\n"));
    let usage = json!({ "prompt_tokens": 3, "total_tokens": 6, "completion_tokens": 3 });
    assert_eq!((&chunks(&out)[0]["usage"], &chunks(&out)[0]["choices"]), (&usage, &json!([])));
}

#[test]
fn templates_see_messages_in_the_order_of_their_members() {
    let arguments = "{\"z\": 1, \"a\": 12345678901234567890}";
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": arguments } });
    let messages = json!([
        { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
        { "role": "assistant", "content": null, "tool_calls": [call] },
    ]);
    let request = read(On::Chat, &json!({ "messages": messages })).unwrap();
    let source = "{{ messages[1].content }}{{ messages[0].content }}|\
        {{ messages[1].tool_calls[0].function.arguments | tojson }}";
    let template = chat::template::Template::compile(source).unwrap();
    let conversation = Conversation { messages: request.messages, ..Conversation::default() };
    assert_eq!(template.render(&conversation).unwrap(), "a\nb|{\"z\": 1, \"a\": 12345678901234567890}");
}

#[test]
fn a_stop_ends_a_choice_and_others_go_on() {
    let request = chat(json!({ "n": 2, "stop": "END" }));
    let mut speech = Speech::new(&request, facts(None, &["END"]));
    let mut out = Vec::new();
    assert_eq!(speech.said(0, &piece(b"one E"), false, &mut out).unwrap(), Continuation::GoesOn);
    assert_eq!(speech.said(0, &piece(b"ND two"), false, &mut out).unwrap(), Continuation::Over);
    assert!(speech.is_choice_over(0) && !speech.is_over());
    speech.said(1, &piece(b"other EN"), true, &mut out).unwrap();
    assert!(out.is_empty() && speech.is_over());
    let whole: Value = serde_json::from_slice(&speech.whole().unwrap()).unwrap();
    let message = |text: &str| json!({ "role": "assistant", "content": text });
    assert_eq!(whole["choices"][0]["message"], message("one "));
    assert_eq!(whole["choices"][1]["message"], message("other EN"));
    assert_eq!((&whole["usage"], &whole["object"]), (&Value::Null, &json!("chat.completion")));
}

#[test]
fn calls_of_tools_are_streamed_as_they_are_written() {
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let text = r#"<tool_call>{"name": "f", "arguments": {"a": 12345678901234567890}}</tool_call>"#;
    let request = chat(json!({ "tools": [tool], "stream": true }));
    let mut speech = Speech::new(&request, facts(Some(ToolParser::Hermes), &[]));
    let mut out = Vec::new();
    for part in text.as_bytes().chunks(7) {
        speech.said(0, &piece(part), false, &mut out).unwrap();
    }
    speech.ended(0, &mut out).unwrap();
    let all = deltas(&out);
    let begin = json!({
        "tool_calls": [{
            "index": 0, "id": "call_0123456789abcdef", "type": "function",
            "function": { "name": "f", "arguments": "" },
        }],
    });
    assert_eq!((&all[1][1], &all.last().unwrap()[2]), (&begin, &json!("tool_calls")));
    let arguments: String =
        all.iter().filter_map(|delta| delta[1]["tool_calls"][0]["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, r#"{"a": 12345678901234567890}"#);
    let whole = chat(json!({ "tools": [tool], "parallel_tool_calls": false }));
    let mut speech = Speech::new(&whole, facts(Some(ToolParser::Hermes), &[]));
    speech.said(0, &piece(text.repeat(2).as_bytes()), true, &mut Vec::new()).unwrap();
    let body: Value = serde_json::from_slice(&speech.whole().unwrap()).unwrap();
    let choice = &body["choices"][0];
    assert_eq!(choice["message"]["tool_calls"].as_array().map(Vec::len), Some(1));
    assert_eq!(choice["finish_reason"], "tool_calls");
}
