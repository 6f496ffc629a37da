//! Bodies of `/v1/responses` to chats, and what a model says to objects and events that OpenAI's client reads.
//!
//! With `NEREID_RESPONSES=FILE` the objects and events are written to a file, one JSON value per line, for
//! `responses/check.py`.

mod support;

use bytes::Bytes;
use chat::places::Said;
use chat::request::{ChatRequest, ToolChoice};
use chat::responses;
use chat::speech::{Facts, Speech};
use chat::tools::ToolParser;
use serde_json::{Value, json};

fn read(body: &Value) -> Result<ChatRequest, String> {
    let read = responses::read(body.to_string().as_bytes());
    read.map_err(|error| format!("{}: {}", error.field.unwrap_or("-"), error.text))
}

fn facts(parser: Option<ToolParser>) -> Facts {
    Facts { parser, ..support::facts("resp_1") }
}

/// A reply to pieces of text, the last with this reason.
fn speak(body: &Value, parser: Option<ToolParser>, pieces: &[&str], reason: &'static str) -> (Speech, Vec<u8>) {
    let mut speech = Speech::new(&read(body).unwrap(), facts(parser));
    let mut out = Vec::new();
    for (at, text) in pieces.iter().enumerate() {
        let is_last = at + 1 == pieces.len();
        let said = Said {
            text: Bytes::copy_from_slice(text.as_bytes()),
            reason: is_last.then(|| Bytes::from_static(reason.as_bytes())),
            prompt_tokens: Some(3),
            text_tokens: Some(1),
            logprobs: None,
        };
        speech.said(0, &said, is_last, &mut out).unwrap();
    }
    (speech, out)
}

fn whole(body: &Value, parser: Option<ToolParser>, pieces: &[&str], reason: &'static str) -> Value {
    let (speech, out) = speak(body, parser, pieces, reason);
    assert!(out.is_empty() && speech.is_over());
    let body = serde_json::from_slice(&speech.whole().unwrap()).unwrap();
    record("response", &body);
    body
}

/// The events of a stream, whose numbers and names are checked.
fn events(out: &[u8]) -> Vec<Value> {
    let text = str::from_utf8(out).unwrap().strip_suffix("\n\n").unwrap();
    let event = |(at, event): (usize, &str)| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(at)));
        record("event", &event);
        event
    };
    text.split("\n\n").enumerate().map(event).collect()
}

fn record(kind: &str, value: &Value) {
    use std::io::Write;
    let Some(path) = std::env::var_os("NEREID_RESPONSES") else { return };
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    // One write each, as tests run at once.
    file.write_all(format!("{}\n", json!({ kind: value })).as_bytes()).unwrap();
}

fn streamed(body: &Value, parser: Option<ToolParser>, pieces: &[&str], reason: &'static str) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = true.into();
    let (mut speech, mut out) = speak(&body, parser, pieces, reason);
    speech.close(&mut out).unwrap();
    events(&out)
}

/// Type of each event without `response.`, and what it adds.
fn steps(events: &[Value]) -> Vec<String> {
    let step = |event: &Value| {
        let name = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
        let place = event["output_index"].as_u64().map(|at| format!(" {at}")).unwrap_or_default();
        let delta = event["delta"].as_str().map(|text| format!(" {text:?}")).unwrap_or_default();
        format!("{name}{place}{delta}")
    };
    events.iter().map(step).collect()
}

#[test]
fn items_are_messages_of_a_chat() {
    let check = |input: Value, expected: Value| {
        let request = read(&json!({ "instructions": "Be short.", "input": input })).unwrap();
        let messages = serde_json::to_value(&request.messages).unwrap();
        let system = json!({ "role": "system", "content": "Be short." });
        assert_eq!((&messages[0], &json!(messages.as_array().unwrap()[1..])), (&system, &expected));
    };
    check(json!("Hi"), json!([{ "role": "user", "content": "Hi" }]));
    let parts = json!([{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }]);
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{\"n\": 1.50}" });
    let of_chat =
        |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": { "n": 1.5 } } });
    check(
        json!([
            { "role": "user", "content": parts },
            { "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
              "content": [{ "type": "output_text", "text": "I look.", "annotations": [] }] },
            call("1"), call("2"),
            { "type": "function_call_output", "call_id": "1", "output": "x" },
            { "type": "function_call_output", "call_id": "2", "output": [{ "type": "input_text", "text": "y" }] },
            call("3"),
            { "role": "developer", "content": "Now." },
        ]),
        json!([
            { "role": "user", "content": "a\nb" },
            { "role": "assistant", "content": "I look.", "tool_calls": [of_chat("1"), of_chat("2")] },
            { "role": "tool", "tool_call_id": "1", "content": "x" },
            { "role": "tool", "tool_call_id": "2", "content": "y" },
            { "role": "assistant", "content": null, "tool_calls": [of_chat("3")] },
            { "role": "system", "content": "Now." },
        ]),
    );
}

#[test]
fn settings_are_those_of_a_chat() {
    let body = r#"{"input": "Hi", "max_output_tokens": 7, "seed": 3, "top_k": 4, "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {"b": 1.50, "a": 2}, "strict": true}},
        "tools": [{"type": "function", "name": "f", "description": null, "parameters": {"z": 1, "a": 2}}],
        "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false, "store": true}"#;
    let request = responses::read(body.as_bytes()).unwrap();
    assert_eq!(request.setting("max_tokens"), Some("7"));
    assert_eq!((request.setting("seed"), request.setting("top_k")), (Some("3"), Some("4")));
    assert_eq!(request.functions.choice, ToolChoice::Named("f".to_owned()));
    assert!(!request.functions.has_parallel_calls);
    let format = r#"{"type":"json_schema","json_schema":{"name":"s","schema":{"b": 1.50, "a": 2},"strict":true}}"#;
    assert_eq!(request.format.unwrap().get(), format);
    let tools = r#"[{"type":"function","function":{"name":"f","parameters":{"z": 1, "a": 2}}}]"#;
    assert_eq!(request.functions.raw.unwrap().get(), tools);
    assert_eq!(request.variables[0].0, "reasoning_effort");
}

#[test]
fn unsupported_parts_say_what_works() {
    let mut body = json!({ "input": "Hi" });
    let image = json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }]);
    let call = json!([{ "type": "function_call", "call_id": "1", "name": "f", "arguments": "{" }]);
    for (name, value, why) in [
        ("previous_response_id", json!("resp_1"), "Nothing is stored: send the earlier items in `input`."),
        ("conversation", json!("conv_1"), "Nothing is stored"),
        ("background", json!(true), "Only `false`: wait for the response, or stream it."),
        ("include", json!(["reasoning.encrypted_content"]), "Only empty"),
        ("max_tokens", json!(5), "Use `max_output_tokens`."),
        ("messages", json!([]), "Use `input`."),
        ("tools", json!([{ "type": "web_search" }]), "tools[0].type is \"web_search\"; only \"function\""),
        ("tools", json!([{ "type": "function", "function": { "name": "f" } }]), "tools[0].name should be a string"),
        ("tool_choice", json!({ "type": "file_search" }), "or {\"type\": \"function\", \"name\": \"…\"}, got {\"type"),
        ("input", image, "input[0].content[0] has the type 'input_image': only texts are supported, as 'input_text'"),
        ("input", json!([{ "type": "item_reference", "id": "x" }]), "input[0].type is 'item_reference', and nothing"),
        ("input", json!([{ "type": "reasoning" }]), "supported are 'message', 'function_call' and"),
        ("input", json!([{ "role": "tool", "content": "x" }]), "input[0].role should be user, system"),
        ("input", json!([{ "role": "user" }]), "input[0].content is missing"),
        ("input", call, "input[0].arguments should be JSON in a string"),
        ("input", json!([]), "at least 1 item"),
        ("input", json!(5), "Input should be a valid string, or a list of items, got 5"),
        ("temperature", json!(3), "less than or equal to 2, got 3"),
        ("max_output_tokens", json!("x"), "valid integer, got \"x\""),
        ("text", json!({ "format": 5 }), "invalid type"),
    ] {
        let before = body[name].take();
        body[name] = value.clone();
        let error = read(&body).unwrap_err();
        assert!(error.starts_with(name) && error.contains(why), "{name} {value}: {error}");
        body[name] = before;
    }
    for (name, value) in [("background", json!(false)), ("include", json!([])), ("store", json!(true))] {
        assert!(read(&json!({ "input": "Hi", name: value })).is_ok());
    }
    assert_eq!(read(&json!({})).unwrap_err(), "input: Field required");
}

#[test]
fn a_response_repeats_the_settings_and_has_a_message() {
    let tool = json!({ "type": "function", "name": "f", "parameters": { "type": "object" } });
    let body = json!({
        "input": "Hi", "instructions": "Be short.", "metadata": { "a": "b" }, "tools": [tool], "tool_choice": "none",
        "max_output_tokens": 20, "temperature": 0.5, "store": true,
    });
    let message = |text: &str, status: &str| {
        json!({
            "id": "msg_0123456789abcdef", "type": "message", "status": status, "role": "assistant",
            "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }],
        })
    };
    let expected = json!({
        "id": "resp_1", "object": "response", "created_at": 5, "model": "m", "status": "completed", "error": null,
        "incomplete_details": null, "output": [message("Hé \"you\"", "completed")],
        "usage": {
            "input_tokens": 3, "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
            "output_tokens": 2, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 5,
        },
        "reasoning": { "effort": null, "summary": null }, "text": { "format": { "type": "text" } },
        "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" }, "strict": false }],
        "instructions": "Be short.", "max_output_tokens": 20, "temperature": 0.5, "top_p": 1.0, "user": null,
        "metadata": { "a": "b" }, "parallel_tool_calls": true, "tool_choice": "none", "background": false,
        "previous_response_id": null, "store": false, "top_logprobs": 0, "truncation": "disabled",
    });
    assert_eq!(whole(&body, None, &["Hé", " \"you\""], "stop"), expected);
    let cut = whole(&json!({ "input": "Hi" }), None, &[" a"], "length");
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!(cut["output"], json!([message(" a", "incomplete")]));
    let empty = whole(&json!({ "input": "Hi" }), None, &[""], "stop");
    assert_eq!(empty["output"], json!([message("", "completed")]));
}

#[test]
fn a_stream_has_the_events_of_openai_in_their_order() {
    // Line breaks of a body must not break the lines of an event.
    let body = "{\"input\": \"Hi\", \"stream\": true, \"metadata\": {\n\"a\":\r\n\"b\"}}";
    let mut speech = Speech::new(&responses::read(body.as_bytes()).unwrap(), facts(None));
    let mut out = Vec::new();
    for text in ["\nH\u{e9}", "!\n"] {
        let said = Said { text: Bytes::copy_from_slice(text.as_bytes()), ..Said::default() };
        speech.said(0, &said, false, &mut out).unwrap();
    }
    speech.ended(0, &mut out).unwrap();
    speech.close(&mut out).unwrap();
    let events = events(&out);
    let expected = [
        "created",
        "in_progress",
        "output_item.added 0",
        "content_part.added 0",
        "output_text.delta 0 \"\\nH\u{e9}\"",
        "output_text.delta 0 \"!\\n\"",
        "output_text.done 0",
        "content_part.done 0",
        "output_item.done 0",
        "completed",
    ];
    assert_eq!(steps(&events), expected);
    assert_eq!(events[2]["item"]["content"], json!([]));
    assert_eq!(events[6]["text"], "\nH\u{e9}!\n");
    let response = &events[9]["response"];
    assert_eq!((&response["usage"], &response["metadata"]["a"]), (&Value::Null, &json!("b")));
    assert_eq!(response["output"][0], events[8]["item"]);
    let cut = streamed(&json!({ "input": "Hi" }), None, &["a"], "length");
    assert_eq!(cut.last().unwrap()["type"], "response.incomplete");
    let empty = streamed(&json!({ "input": "Hi" }), None, &[""], "stop");
    assert!(!steps(&empty).iter().any(|step| step.contains("delta")));
}

#[test]
fn calls_are_items_between_messages() {
    let tool = json!({ "type": "function", "name": "f", "parameters": { "type": "object" } });
    let body = json!({ "input": "Hi", "tools": [tool] });
    let call = r#"<tool_call>{"name": "f", "arguments": {"a": 12345678901234567890}}</tool_call>"#;
    let pieces = ["I look.", call, "\n", call];
    let all = streamed(&body, Some(ToolParser::Hermes), &pieces, "stop");
    let of_call = |at: usize| {
        let delta = all.iter().filter(|event| event["output_index"] == at).filter_map(|event| event["delta"].as_str());
        assert_eq!(delta.collect::<String>(), r#"{"a": 12345678901234567890}"#);
        let mut names = steps(&all);
        names.retain(|step| step.contains(&format!(" {at}")) && !step.contains("delta"));
        let (added, arguments, done) = ("output_item.added", "function_call_arguments.done", "output_item.done");
        assert_eq!(names, [added, arguments, done].map(|name| format!("{name} {at}")));
    };
    of_call(1);
    of_call(2);
    let output = &all.last().unwrap()["response"]["output"];
    let expected = json!({
        "id": "fc_0123456789abcdef", "type": "function_call", "status": "completed",
        "call_id": "call_0123456789abcdef", "name": "f", "arguments": "{\"a\": 12345678901234567890}",
    });
    assert_eq!((output.as_array().map(Vec::len), &output[1], &output[2]), (Some(3), &expected, &expected));
    assert_eq!(output[0]["content"][0]["text"], "I look.");
    let same = whole(&body, Some(ToolParser::Hermes), &pieces, "stop");
    assert_eq!((&same["output"], &same["status"]), (output, &json!("completed")));
    let one = json!({ "input": "Hi", "tools": [tool], "parallel_tool_calls": false });
    let one = whole(&one, Some(ToolParser::Hermes), &pieces, "stop");
    assert_eq!(one["output"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_stream_that_fails_ends_with_its_error() {
    let body = json!({ "input": "Hi", "stream": true });
    let mut speech = Speech::new(&read(&body).unwrap(), facts(None));
    let mut out = Vec::new();
    speech.said(0, &Said { text: "a".into(), ..Said::default() }, false, &mut out).unwrap();
    assert!(speech.fail(&tensor::Error::internal("the model broke"), &mut out));
    let events = events(&out);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"], json!({ "code": "server_error", "message": "the model broke" }));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
}
