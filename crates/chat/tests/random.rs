//! Damaged templates end with a prompt or an error, never with a panic, and replies in pieces say what whole ones do.
//! `FUZZ_SECONDS` sets how long they look for a fault.

use chat::fuzz::{chat_forms, chat_template};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const PIECES: [&str; 64] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "{%-",
    "-%}",
    "~",
    "*",
    "**",
    "+",
    "-",
    "/",
    "//",
    "%",
    "|",
    ".",
    ",",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "\\",
    "\n",
    "\r",
    " ",
    "=",
    "==",
    "<",
    "not ",
    " in ",
    " is ",
    " if ",
    " else ",
    "set x = ",
    "for x in ",
    "endfor",
    "endset",
    "endif",
    "raw",
    "endraw",
    "generation",
    "endgeneration",
    "macro m(x)",
    "endmacro",
    "m(x)",
    "namespace(x=1)",
    "loop",
    "messages",
    "tojson(indent=2)",
    "[::-1]",
    ".items()",
    ".split()",
    "range(9)",
    "x",
    "9223372036854775807",
    "1e308",
    "ü",
    "|map(attribute='x')|list",
];

fn damage(source: &str, other: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = source.chars().collect();
    for _ in 0..=random.below(8) {
        let at = random.below(chars.len() + 1);
        let len = random.below(24).min(chars.len() - at);
        match random.below(5) {
            0 => drop(chars.drain(at..at + len)),
            1 => {
                let copy = chars[at..at + len].to_vec();
                let to = random.below(chars.len() + 1);
                chars.splice(to..to, copy);
            }
            2 => {
                let other: Vec<char> = other.chars().collect();
                let from = random.below(other.len() + 1);
                let piece = other[from..(from + 40).min(other.len())].to_vec();
                chars.splice(at..at + len, piece);
            }
            _ => drop(chars.splice(at..at, random.pick(&PIECES).chars()).collect::<Vec<_>>()),
        }
    }
    chars.into_iter().collect()
}

#[test]
fn damaged_templates_end_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file of the records");
    let language: Value = serde_json::from_str(&text("language.json")).expect("the records are JSON");
    let expected: Value = serde_json::from_str(&text("expected.json")).expect("the records are JSON");
    let mut sources: Vec<String> =
        expected["prompts"].as_object().expect("prompts").keys().map(|name| text(&format!("{name}.jinja"))).collect();
    let lines = language["templates"].as_array().expect("templates").iter();
    sources.extend(lines.map(|entry| entry[0].as_str().expect("a source").to_owned()));
    let conversations: Vec<String> =
        expected["conversations"].as_object().expect("conversations").values().map(Value::to_string).collect();

    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut count, mut prompts, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    while Instant::now() < end {
        let (source, other) = (random.below(sources.len()), random.below(sources.len()));
        let source = damage(&sources[source], &sources[other], &mut random);
        let conversation = &conversations[random.below(conversations.len())];
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{source}\n{conversation}");
        }
        let started = Instant::now();
        prompts += u64::from(chat_template(&[source.as_bytes(), b"\xff", conversation.as_bytes()].concat()));
        count += 1;
        slowest = slowest.max(started.elapsed());
    }
    println!("{count} templates, {prompts} prompts, the slowest {slowest:.3?}");
    assert!(prompts > 0 && prompts < count);
}

/// Bodies of each form.
const BODIES: [&str; 6] = [
    r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}],
        "tools": [{"type": "function", "function": {"name": "f"}}], "stop": ["w b", "é"], "n": 2, "seed": 5}"#,
    r#"{"messages": [{"role": "user", "content": "a"}], "parallel_tool_calls": false, "max_tokens": 3,
        "tools": [{"type": "function", "function": {"name": "f"}}], "stream_options": null, "temperature": 0.5}"#,
    r#"{"prompt": "a", "echo": true, "n": 2, "stop": "w b", "temperature": 1.5, "stop_token_ids": [1, 2]}"#,
    r#"{"prompt": ["a", "b"], "max_tokens": 5.0, "logit_bias": {"1": 2}, "ignore_eos": true, "user": "u"}"#,
    r#"{"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "stop": "w b",
        "metadata": {"a": "b"}, "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}}, "top_p": 1}"#,
    r#"{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "function_call",
        "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": ""}],
        "tools": [{"type": "function", "name": "f"}], "parallel_tool_calls": false, "reasoning": {"effort": "low"}}"#,
];

/// Parts of what a model says.
const SAID: [&str; 12] = [
    "w",
    " b",
    "\u{e9}",
    "\n",
    " ",
    "<tool_call>\n",
    r#"{"name": "f", "arguments": {"a": 1.50}}"#,
    "</tool_call>",
    r#"[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"b": []}}]"#,
    "[f(a=1), f(b='c')]",
    "<|python_tag|>",
    ";",
];

#[test]
fn replies_in_pieces_say_what_whole_ones_do() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut count, mut read) = (0_u64, 0_u64);
    while Instant::now() < end {
        let at = random.below(BODIES.len());
        let body = match random.below(2) {
            0 => BODIES[at].to_owned(),
            _ => damage(BODIES[at], BODIES[random.below(BODIES.len())], &mut random),
        };
        let text: String = (0..random.below(8)).map(|_| random.pick(&SAID)).collect();
        let facts = [at as u8 / 2, random.below(5) as u8, random.below(12) as u8, random.below(8) as u8];
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{facts:?}\n{body}\n{text:?}");
        }
        read += u64::from(chat_forms(&[&facts, body.as_bytes(), b"\xff", text.as_bytes()].concat()));
        count += 1;
    }
    println!("{count} bodies, {read} read");
    assert!(read > 0 && read < count);
}
