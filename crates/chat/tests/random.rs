//! Damaged templates end with a prompt or an error, never with a panic. `FUZZ_SECONDS` sets how long it looks for one.

use chat::fuzz::chat_template;
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
