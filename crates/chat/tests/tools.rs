//! Calls of tools in texts of models, whole and in pieces.

use chat::request::ToolChoice;
use chat::tools::{DEPTH_MAX, Forced, Parsed, TextPiece, ToolParser, ToolStream, forced, fuzz};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use ToolParser::{Hermes, Llama3, Mistral, Pythonic};

/// Content, then `name(arguments)` per call, with `|` between.
fn line(parsed: &Parsed) -> String {
    let calls = parsed.calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
    std::iter::once(parsed.content.clone()).chain(calls).collect::<Vec<_>>().join("|")
}

fn divide<'a>(mut stream: ToolStream, pieces: impl IntoIterator<Item = &'a str>) -> Parsed {
    let mut divided: Vec<_> = pieces.into_iter().flat_map(|piece| stream.push(piece)).collect();
    divided.extend(stream.end());
    Parsed::of(divided)
}

fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|_: char| true)
}

#[track_caller]
fn check(parser: ToolParser, text: &str, expected: &str) {
    check_streamed(parser, text, expected, expected);
}

#[track_caller]
fn check_streamed(parser: ToolParser, text: &str, whole: &str, streamed: &str) {
    assert_eq!(line(&parser.parse(text)), whole, "{text}");
    assert_eq!(line(&divide(parser.stream(usize::MAX), [text])), streamed, "{text}");
    assert_eq!(line(&divide(parser.stream(usize::MAX), characters(text))), streamed, "{text}");
}

#[test]
fn llama3_calls_are_objects_after_a_tag_or_alone() {
    check(Llama3, r#"{"name": "f", "parameters": {"a": 1}}"#, r#"|f({"a": 1})"#);
    check(Llama3, r#"<|python_tag|>{"name": "f", "parameters": {}}"#, "|f({})");
    check(Llama3, r#"{"name":"f","arguments":{"a":"}\""}}; {"name":"g","parameters":{}}"#, r#"|f({"a":"}\""})|g({})"#);
    check(Llama3, "\n {\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}};\n", "|f({})|g({})");
    check(Llama3, r#"{"type": "function", "name": "f", "parameters": {}}"#, "|f({})");
    // The name may come last.
    check(Llama3, r#"{"parameters": {"a": [1, 2]}, "name": "f"}"#, r#"|f({"a": [1, 2]})"#);
    // TensorRT-LLM goes on with another turn.
    check(Llama3, "{\"name\": \"f\", \"parameters\": {}}assistant\n\nThe weather", "|f({})");
    check(Llama3, "{\"name\": \"f\", \"parameters\": {}}assistants", "assistants|f({})");
    check(Llama3, r#"{"name": "f", "parameters": {}} is a call"#, " is a call|f({})");
}

#[test]
fn text_that_is_no_call_is_content() {
    for parser in ToolParser::ALL {
        let texts = [
            "",
            " \n",
            "Hello, world",
            "{",
            "[",
            "<",
            "<|python",
            "[TOOL_CALLS",
            "<tool_call",
            "[1, 2]",
            r#"{"answer": 42}"#,
            r#"{"name": "Ada"}"#,
            r#"{"name": "Ada", "age": 36}"#,
            r#"{"name": "", "parameters": {}}"#,
            r#"{"name": 1, "parameters": {}}"#,
            r#"{"name": "\ud800", "parameters": {}}"#,
            r#"{"name": "f", "name": "g", "parameters": {}}"#,
            r#"{name: "f", "parameters": {}}"#,
            "[TOOL_CALLS]Hello world",
            "[TOOL_CALLS][]",
            r#"[TOOL_CALLS][{"name": "f"}]"#,
            r#"[TOOL_CALLS]{"name": "f"}"#,
            "<tool_call>none</tool_call>",
            r#"<tool_call>{"name": "f"}</tool_call>"#,
            "[a link](https://example.com)",
            "[f(1)]",
            "[f(a==1)]",
            "  indented",
        ];
        for text in texts {
            // A call that has begun is given in a stream; the whole text is content.
            assert_eq!(line(&parser.parse(text)), text, "{parser:?}");
            if text != "[f(a==1)]" {
                check(parser, text, text);
            }
        }
    }
}

#[test]
fn malformed_calls_are_content_of_a_whole_text_and_end_early_in_a_stream() {
    let cut = r#"{"name": "f", "parameters": {"a": "b"#;
    check_streamed(Llama3, cut, cut, r#"|f({"a": "b)"#);
    let wrong = r#"{"name": "f", "parameters": {"a": 01}}"#;
    check_streamed(Llama3, wrong, wrong, r#"1}}|f({"a": 0)"#);
    let twice = r#"{"name": "f", "parameters": {}, "arguments": {}}"#;
    check_streamed(Llama3, twice, twice, r#", "arguments": {}}|f({})"#);
    let second = r#"[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"#;
    check_streamed(Mistral, second, r#", {"name": "g", "arguments": {|f({})"#, "|f({})|g({)");
    // A tab in a string is no JSON.
    let tab = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\t\"}}</tool_call>";
    check_streamed(Hermes, tab, tab, "\t\"}}</tool_call>|f({\"a\": \")");
}

#[test]
fn mistral_calls_are_an_array() {
    check(Mistral, r#"[TOOL_CALLS][{"name": "f", "arguments": {"a": "A"}}]"#, r#"|f({"a": "A"})"#);
    check(Mistral, r#"[TOOL_CALLS] [{"name":"f","arguments":{}},{"arguments":{},"name":"g"}] "#, "|f({})|g({})");
    check(Mistral, r#"[{"name": "f", "arguments": {}}]"#, "|f({})");
    check(Mistral, r#"See: [TOOL_CALLS][{"name": "f", "arguments": {}}]"#, "See: |f({})");
    check(Mistral, r#"[TOOL_CALLS][TOOL_CALLS][{"name": "f", "arguments": {}}]"#, "[TOOL_CALLS]|f({})");
    check(Mistral, r#"[[TOOL_CALLS][{"name": "f", "arguments": {}}]ok"#, "[ok|f({})");
    // Newer models write names and arguments.
    check(Mistral, r#"[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g[ARGS]{}"#, r#"|f({"a": 1})|g({})"#);
    check(Mistral, "[TOOL_CALLS]f[ARG]{}", "[TOOL_CALLS]f[ARG]{}");
}

#[test]
fn hermes_calls_stand_in_elements() {
    let two = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": null}}\n</tool_call>\n<tool_call>\n\
               {\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n";
    check(Hermes, two, "I look.\n|f({\"a\": null})|g({})");
    check(Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "|f({})");
    check(Hermes, "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call>|f({})");
    check(Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> a < b", " a < b|f({})");
    check(Hermes, "a << <tool_call>{\"name\": \"f\", \"arguments\": {}}<tool_call>", "a << <tool_call>|f({})");
}

#[test]
fn pythonic_calls_become_json() {
    check(Pythonic, "[f(a=1, b=\"x\"), g()]", r#"|f({"a":1,"b":"x"})|g({})"#);
    check(
        Pythonic,
        "[f(a=True, b=None, c=[False, -1.5e3,], d={'k': [], \"l\": {},},)]",
        r#"|f({"a":true,"b":null,"c":[false,-1.5e3],"d":{"k":[],"l":{}}})"#,
    );
    check(Pythonic, r#"[f(a='it\'s "é"\n\x41\u00e9')]"#, r#"|f({"a":"it's \"é\"\n\u0041\u00e9"})"#);
    check(Pythonic, "\n[a.b-c(x=12345678901234567890)]\n", r#"|a.b-c({"x":12345678901234567890})"#);
    check_streamed(Pythonic, "[f(a=1, b)]", "[f(a=1, b)]", r#")]|f({"a":1)"#);
    check_streamed(Pythonic, "[f(a={1: 2})]", "[f(a={1: 2})]", r#"1: 2})]|f({"a":{)"#);
}

#[test]
fn arguments_keep_digits_and_the_order_of_keys() {
    let arguments = r#"{"z": 9007199254740993, "a": 1.10, "é\u00e9\\": -0.0e+05, "z": [ true , "\ud83d\ude00" ]}"#;
    check(Llama3, &format!(r#"{{"name": "f", "parameters": {arguments} }}"#), &format!("|f({arguments})"));
}

#[test]
fn pieces_come_as_soon_as_they_are_sure() {
    let mut stream = Mistral.stream(usize::MAX);
    let begin = |name: &str| TextPiece::Begin(0, name.into());
    let content = |text: &str| TextPiece::Content(text.into());
    let arguments = |text: &str| TextPiece::Arguments(0, text.into());
    assert_eq!(stream.push("One [TOO"), [content("One ")]);
    assert_eq!(stream.push("ls] [TOOL_CALLS]"), [content("[TOOls] ")]);
    assert_eq!(stream.push("[{\"name\": \"f\", \"argu"), []);
    assert_eq!(stream.push("ments\": "), []);
    assert_eq!(stream.push("{\"a"), [begin("f"), arguments("{\"a")]);
    assert_eq!(stream.push("\": 1"), [arguments("\": 1")]);
    assert_eq!(stream.push("}}"), [arguments("}")]);
    assert_eq!(stream.push("]"), []);
    assert_eq!(stream.push(" Done"), [content(" Done")]);
    assert_eq!(stream.end(), []);

    let mut stream = Llama3.stream(usize::MAX);
    assert_eq!(stream.push("{\"answer\": 4"), []);
    assert_eq!(stream.push("2}"), [content("{\"answer\": 42}")]);
    assert_eq!(stream.push("{"), [content("{")]);
}

#[test]
fn a_call_longer_than_allowed_is_content() {
    let text = format!(r#"[TOOL_CALLS][{{"name": "f", "arguments": {{"city": "{}"}}}}]"#, "A".repeat(2000));
    for size in [1, 8, 5000] {
        let pieces = text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap());
        let mut stream = Mistral.stream(512);
        let parsed = Parsed::of(pieces.flat_map(|piece| stream.push(piece)).collect::<Vec<_>>());
        assert!(stream.is_exceeded());
        assert_eq!(
            parsed.calls[0].arguments.len() + parsed.content.len(),
            text.find("{\"city").map_or(0, |at| text.len() - at)
        );
        assert!(parsed.calls[0].arguments.len() <= 512);
        let mut stream = Mistral.stream(text.len());
        stream.push(&text);
        assert!(!stream.is_exceeded());
    }
    // The limit is for each call, and not for content.
    let mut stream = Hermes.stream(64);
    let text =
        format!("{}{}", "a".repeat(100), "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>".repeat(9));
    assert_eq!(Parsed::of(stream.push(&text)).calls.len(), 9);
    assert!(!stream.is_exceeded());
    // Nor does it cut a character.
    let mut stream = Llama3.stream(5);
    assert_eq!(Parsed::of(stream.push("{\"éééé")).content, "{\"éééé");
}

#[test]
fn nesting_is_bounded() {
    let depth = DEPTH_MAX as usize;
    let call = |nested: String| format!(r#"{{"name": "f", "parameters": {nested}}}"#);
    let lists = |depth: usize| call("[".repeat(depth) + &"]".repeat(depth));
    assert_eq!(Llama3.parse(&lists(depth)).calls.len(), 1);
    assert_eq!(line(&Llama3.parse(&lists(depth + 1))), lists(depth + 1));
    let python = |depth: usize| format!("[f(a={}{})]", "[".repeat(depth), "]".repeat(depth));
    let [arguments] = &Pythonic.parse(&python(depth - 1)).calls[..] else { panic!() };
    serde_json::from_str::<Value>(&arguments.arguments).unwrap();
    assert!(Pythonic.parse(&python(depth)).calls.is_empty());
}

/// The time grows with the length only, whole and in small pieces. The first two texts have a mebibyte, others less.
#[test]
fn hostile_texts_take_linear_time() {
    let started = Instant::now();
    let beginnings = [
        ("", "{"),
        ("", "[TOOL_CALLS]"),
        ("", "["),
        ("", " "),
        ("", "[TOOL_CALLS]["),
        ("", "[TOOL_CALLS]f[ARGS]"),
        ("", "[TOOL_CALLS]a"),
        ("", "<tool_call>"),
        ("", "<tool_call>{\"a\":\""),
        ("", "<"),
        ("", "[f("),
        ("[f(a=1", ",a=1"),
        ("{", "\"a\":1,"),
        ("{\"name\":\"f\",\"parameters\":{}}", ";"),
        ("{\"name\":\"f\",\"parameters\":\"", "\\u0041"),
        ("<tool_call>{\"name\":\"f\",\"arguments\":{}}", "</tool_"),
        ("", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
        ("[TOOL_CALLS][", "{\"name\":\"f\",\"arguments\":{}},"),
    ];
    for parser in ToolParser::ALL {
        for (at, (first, more)) in beginnings.into_iter().enumerate() {
            let text = first.to_owned() + &more.repeat((1 << if at < 2 { 20 } else { 16 }) / more.len());
            let whole = parser.parse(&text);
            let pieces = text.as_bytes().chunks(7).map(|piece| std::str::from_utf8(piece).unwrap());
            let streamed = divide(parser.stream(usize::MAX), pieces);
            assert!(whole.calls.len() <= streamed.calls.len());
        }
    }
    // Some seconds in a build that is not optimised.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn of<'a>(&mut self, parts: &[&'a str]) -> &'a str {
        parts[self.below(parts.len())]
    }

    fn json(&mut self, depth: usize) -> String {
        let key = ["\"a\"", "\"é\\u00e9\"", "\"\"", "\"</tool_call>\"", "\"[TOOL_CALLS]\""];
        let space = self.of(&["", "", " ", "\n"]);
        let inner = match self.below(if depth == 0 { 2 } else { 4 }) {
            0 => self.of(&["0", "-1.5E+9", "12345678901234567890123", "true", "null", "false"]).to_owned(),
            1 => self.of(&["\"\"", "\"\\\\\"", "\"\\\"}]\"", "\"😀\\ud83d\\ude00\"", "\"<tool_call>; {\""]).to_owned(),
            2 => {
                let items: Vec<_> = (0..self.below(4)).map(|_| self.json(depth - 1)).collect();
                format!("[{space}{}{space}]", items.join(","))
            }
            _ => {
                let items: Vec<_> =
                    (0..self.below(4)).map(|_| format!("{}:{}", self.of(&key), self.json(depth - 1))).collect();
                format!("{{{space}{}{space}}}", items.join(", "))
            }
        };
        format!("{space}{inner}")
    }

    /// A text with well-formed calls, and what it means.
    fn text(&mut self, parser: ToolParser) -> (String, String) {
        let calls: Vec<_> = (0..1 + self.below(3)).map(|_| (self.of(&["f", "g_2", "a.b"]), self.json(4))).collect();
        let objects: Vec<_> = calls
            .iter()
            .map(|(name, arguments)| match self.below(3) {
                0 => format!("{{\"arguments\":{arguments},\"name\" :\"{name}\"}}"),
                1 => format!("{{ \"name\":\"{name}\", \"x\": [{{}}], \"parameters\": {arguments} }}"),
                _ => format!("{{\"name\": \"{name}\",\"arguments\":{arguments}}}"),
            })
            .collect();
        let content = if parser == Llama3 { "" } else { self.of(&["", "Let me see.\n", "a < b [c] "]) };
        let text = match parser {
            Llama3 => self.of(&["", "<|python_tag|>", "\n"]).to_owned() + &objects.join(self.of(&["; ", ";", "\n"])),
            Hermes => objects.iter().map(|object| format!("<tool_call>\n{object}\n</tool_call>\n")).collect(),
            _ => format!("[TOOL_CALLS][{}]", objects.join(", ")),
        };
        let calls: String = calls.iter().map(|(name, arguments)| format!("|{name}({})", arguments.trim())).collect();
        (content.to_owned() + &text, content.to_owned() + &calls)
    }
}

#[test]
fn pieces_of_any_size_mean_what_the_whole_means() {
    let mut random = Random(7);
    for _ in 0..2000 {
        for parser in [Llama3, Mistral, Hermes] {
            let (text, expected) = random.text(parser);
            assert_eq!(line(&parser.parse(&text)), expected, "{text}");
            let mut pieces = Vec::new();
            let mut rest = &*text;
            let size = 2 + random.below(40);
            while !rest.is_empty() {
                let size = random.below(size);
                let cut = (size..rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
                pieces.push(&rest[..cut]);
                rest = &rest[cut..];
            }
            assert_eq!(line(&divide(parser.stream(usize::MAX), pieces)), expected, "{text}");
        }
    }
}

/// `NEREID_FUZZ_SECONDS` runs longer.
#[test]
fn damaged_texts_hold_what_the_fuzzer_checks() {
    let seconds = std::env::var("NEREID_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let parts = [
        "[TOOL_CALLS]",
        "[ARGS]",
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "assistant\n\n",
        "{\"name\":\"f\",",
        "\"arguments\":",
        "\"parameters\":{}",
        "\"name\":\"g\"}",
        "[f(",
        "a=",
        "True",
        "'",
        "\"",
        "\\",
        "\\u00",
        "é",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ":",
        ";",
        " ",
        "\n",
        "1",
        "-0.5e",
        "null",
        "<",
        "a",
        "[{",
        "}]",
        "{}",
    ];
    let (started, mut random, mut accepted, mut inputs) = (Instant::now(), Random(11), 0, 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        let mut data: Vec<u8> = (0..3).map(|_| random.below(256) as u8).collect();
        if random.below(2) == 0 {
            let parser = [Llama3, Mistral, Hermes][random.below(3)];
            data[0] = parser as u8;
            data.extend(random.text(parser).0.bytes());
            for _ in 0..random.below(3) {
                let at = 3 + random.below(data.len() - 3);
                match random.below(3) {
                    0 => data[at] = random.below(256) as u8,
                    1 => data.truncate(at),
                    _ => drop(data.splice(at..at, random.of(&parts).bytes())),
                }
                data.push(b' ');
            }
        } else {
            (0..random.below(30)).for_each(|_| data.extend(random.of(&parts).bytes()));
        }
        accepted += usize::from(fuzz::tools(&data));
        inputs += 1;
    }
    println!("{inputs} inputs, {accepted} with calls");
    assert!(accepted > inputs / 100, "{accepted} of {inputs} inputs had calls");
}

fn tool(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn force(choice: &ToolChoice, tools: &[Value]) -> tensor::Result<Option<Forced>> {
    forced(choice, &Value::from(tools).to_string())
}

fn named(name: &str) -> ToolChoice {
    ToolChoice::Named(name.to_owned())
}

#[test]
fn a_named_function_has_the_whole_text_as_arguments() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let tools = [tool("f", &json!({})), tool("g", &schema)];
    let named = force(&named("g"), &tools).unwrap().unwrap();
    let only = force(&ToolChoice::Required, &tools[1..]).unwrap().unwrap();
    assert_eq!(named, only);
    assert_eq!(named.schema, schema.to_string());
    for text in [r#"{"a": 1}"#, r#"{"a": "#, ""] {
        assert_eq!(line(&named.parse(text)), format!("|g({text})"));
        assert_eq!(line(&divide(named.stream(1), characters(text))), format!("|g({text})"));
    }
}

#[test]
fn required_lets_the_model_choose() {
    let integer = json!({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}});
    let tools = [tool("f", &integer), tool("g", &Value::Null)];
    let forced_any = force(&ToolChoice::Required, &tools).unwrap().unwrap();
    let schema: Value = serde_json::from_str(&forced_any.schema).unwrap();
    assert_eq!(schema["$defs"]["n"], json!({"type": "integer"}));
    assert_eq!(
        schema["items"]["anyOf"][0]["properties"]["parameters"],
        json!({"properties": {"a": {"$ref": "#/$defs/n"}}})
    );
    assert_eq!(schema["items"]["anyOf"][1]["properties"]["name"], json!({"type": "string", "enum": ["g"]}));
    let text = r#"[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]"#;
    assert_eq!(line(&forced_any.parse(text)), r#"|f({"a": 1})|g({})"#);
    assert_eq!(line(&divide(forced_any.stream(1 << 10), characters(text))), r#"|f({"a": 1})|g({})"#);
    assert_eq!(line(&forced_any.parse("no")), "no");
}

#[test]
fn a_schema_keeps_its_order_and_its_numbers() {
    let schema = r#"{"type":"object","properties":{"z":{"maximum":12345678901234567890123},"a":{}}}"#;
    let tool = |name: &str| format!(r#"{{"function":{{"parameters":{schema},"name":"{name}"}}}}"#);
    let named = forced(&named("f"), &format!("[{},{}]", tool("f"), tool("g"))).unwrap().unwrap();
    assert_eq!(named.schema, schema);
    let any = forced(&ToolChoice::Required, &format!("[{},{}]", tool("f"), tool("g"))).unwrap().unwrap();
    assert_eq!(any.schema.matches(schema).count(), 2, "{}", any.schema);
}

#[test]
fn definitions_of_tools_are_joined_if_they_are_equal() {
    let tool = |name: &str, definition: &str| {
        format!(r#"{{"function":{{"name":"{name}","parameters":{{"$defs":{{"n":{definition}}}}}}}}}"#)
    };
    let force = |second: &str| {
        let first = tool("f", r#"{"type":"integer","minimum":1}"#);
        forced(&ToolChoice::Required, &format!("[{first},{}]", tool("g", second)))
    };
    let schema = force(r#"{"minimum": 1, "type": "integer"}"#).unwrap().unwrap().schema;
    assert!(schema.ends_with(r#","$defs":{"n":{"type":"integer","minimum":1}}}"#), "{schema}");
    let error = force(r#"{"type":"string"}"#).unwrap_err();
    assert_eq!(error.message(), "tools define $defs.n differently; rename it in the parameters of 'g'");
}

#[test]
fn a_wrong_choice_is_an_error() {
    let tools = [tool("f", &json!({}))];
    for choice in [ToolChoice::Absent, ToolChoice::Auto, ToolChoice::None] {
        assert_eq!(force(&choice, &[]).unwrap(), None);
    }
    for (choice, tools, message) in [
        (named("g"), &tools[..], "Tool 'g' has not been passed in `tools`."),
        (named("g"), &[], "Named tool choice requires CreateChatCompletionRequest.tools to be provided"),
        (
            ToolChoice::Required,
            &[],
            "\"required\" tool choice requires CreateChatCompletionRequest.tools to be provided",
        ),
        (ToolChoice::Required, &[json!({"type": "function"})], "tools: missing field `function`"),
        (ToolChoice::Required, &[tool("f", &json!(1))], "tools[0].function.parameters is 1; it must be an object"),
    ] {
        let error = force(&choice, tools).unwrap_err();
        assert!(error.message().starts_with(message), "{}", error.message());
    }
}
