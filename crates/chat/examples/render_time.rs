//! Median time of a render: ten messages and a tool, the template `llama31_tools` of the tests. Compare with
//! `python tests/templates/make.py --time`.

use chat::template::{Conversation, Json, Template};
use std::time::Instant;

fn main() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/templates");
    let source = std::fs::read_to_string(format!("{folder}/llama31_tools.jinja")).expect("the template");
    let records = std::fs::read_to_string(format!("{folder}/expected.json")).expect("the records");
    let records: std::collections::BTreeMap<String, Json> = serde_json::from_str(&records).expect("JSON");
    let get = |value: &Json, name: &str| value.get_attr(name).expect("a value of the records");
    let tools = get(&get(&records["conversations"], "tool_call"), "tools").try_iter().expect("tools").collect();
    let message = |index: usize| {
        let (role, content) = match index {
            0 => ("system", "Be brief.".to_owned()),
            _ => (["assistant", "user"][index % 2], format!("message {}, a sentence of usual length.", index - 1)),
        };
        Json::from_pairs([("role", role.to_owned()), ("content", content)])
    };
    let variables = serde_json::from_str(r#"{"bos_token": "<s>", "eos_token": "</s>"}"#).expect("JSON");
    let messages = (0..10).map(message).collect();
    let conversation = Conversation { messages, tools: Some(tools), add_generation_prompt: true, variables };

    let started = Instant::now();
    let template = Template::compile(&source).expect("a template");
    println!("compile {:.1} µs", started.elapsed().as_secs_f64() * 1e6);
    let render = || {
        let started = Instant::now();
        std::hint::black_box(template.render(&conversation)).expect("a prompt");
        started.elapsed()
    };
    let mut times: Vec<_> = (0..20_000).map(|_| render()).collect();
    times.sort();
    println!(
        "render {:.1} µs, {} steps",
        times[10_000].as_secs_f64() * 1e6,
        template.steps(&conversation).expect("steps")
    );
}
