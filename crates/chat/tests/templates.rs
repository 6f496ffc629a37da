//! Prompts of templates are those of transformers, byte by byte. `templates/make.py` records them.

use chat::template::{Conversation, Json, STEPS_MAX, Template};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Given {
    messages: Vec<Json>,
    tools: Option<Vec<Json>>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    variables: BTreeMap<String, Json>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Prompt(String),
    /// The text of `raise_exception`, or nothing for any other failure.
    Failed {
        error: Option<String>,
    },
}

#[derive(Deserialize)]
struct Expected {
    tokens: BTreeMap<String, Json>,
    conversations: BTreeMap<String, Given>,
    prompts: BTreeMap<String, BTreeMap<String, Outcome>>,
}

#[derive(Deserialize)]
struct Language {
    values: BTreeMap<String, Json>,
    templates: Vec<(String, Outcome)>,
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn render(source: &str, conversation: &Conversation<Json>) -> Result<String, String> {
    let prompt = Template::compile(source).and_then(|template| template.render(conversation));
    prompt.map_err(|error| error.message().to_owned())
}

/// The difference, if there is one.
fn difference(outcome: &Outcome, got: &Result<String, String>) -> Option<String> {
    match (outcome, got) {
        (Outcome::Prompt(expected), Ok(got)) if expected == got => None,
        (Outcome::Prompt(expected), got) => Some(format!("expected {expected:?}\n     got {got:?}")),
        (Outcome::Failed { error: Some(text) }, Err(got)) if text == got || got.starts_with("chat template") => None,
        (Outcome::Failed { error: None }, Err(_)) => None,
        (Outcome::Failed { error }, got) => Some(format!("expected the error {error:?}\n     got {got:?}")),
    }
}

#[test]
fn prompts_are_those_of_transformers() {
    let expected: Expected = serde_json::from_str(&read("expected.json")).expect("the records are JSON");
    let (mut count, mut differences) = (0, Vec::new());
    for (name, outcomes) in &expected.prompts {
        let source = read(&format!("{name}.jinja"));
        for (key, outcome) in outcomes {
            let given = &expected.conversations[key];
            let mut variables = expected.tokens.clone();
            variables.extend(given.variables.clone());
            let conversation = Conversation {
                messages: given.messages.clone(),
                tools: given.tools.clone(),
                add_generation_prompt: given.add_generation_prompt,
                variables,
            };
            count += 1;
            let difference = difference(outcome, &render(&source, &conversation));
            differences.extend(difference.map(|text| format!("{name}, {key}:\n{text}\n")));
        }
    }
    assert!(count >= 40 * 20, "only {count} prompts were compared");
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn the_language_is_that_of_transformers() {
    let language: Language = serde_json::from_str(&read("language.json")).expect("the records are JSON");
    let message = serde_json::from_str(r#"{"role": "user", "content": "q"}"#).expect("a message");
    let conversation = Conversation { messages: vec![message], variables: language.values, ..Conversation::default() };
    let mut differences = Vec::new();
    for (source, outcome) in &language.templates {
        let difference = difference(outcome, &render(source, &conversation));
        differences.extend(difference.map(|text| format!("{source:?}\n{text}\n")));
    }
    let count = language.templates.len();
    assert!(differences.is_empty(), "{} of {count} differ:\n{}", differences.len(), differences.join("\n"));
}

/// Templates take a fraction of the limit for a long conversation.
#[test]
fn long_conversations_are_far_from_the_limit() {
    let expected: Expected = serde_json::from_str(&read("expected.json")).expect("the records are JSON");
    let text = "A sentence of usual length, of which a message has some. ".repeat(10);
    let message = |index: usize| {
        let role = ["user", "assistant"][index % 2];
        serde_json::from_value(serde_json::json!({ "role": role, "content": text })).expect("a message")
    };
    let conversation = Conversation {
        messages: (0..200).map(message).collect(),
        tools: expected.conversations["tools"].tools.clone(),
        variables: expected.tokens,
        ..Conversation::default()
    };
    let mut most = (0, String::new());
    for name in expected.prompts.keys() {
        let template = Template::compile(&read(&format!("{name}.jinja"))).expect("a template");
        let started = std::time::Instant::now();
        // The others reject the tools before they go through the messages.
        if let Ok(steps) = template.steps(&conversation) {
            println!("{steps:>8} {:>10.3?} {name}", started.elapsed());
            // One looks for pictures in each character of a text, and has steps for them.
            most = if name == "llama32_vision" { most } else { most.max((steps, name.clone())) };
        }
    }
    let (steps, name) = most;
    assert!(steps > 200 && steps * 10 <= STEPS_MAX, "{name} takes {steps} of {STEPS_MAX} steps");
}
