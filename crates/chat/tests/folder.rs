//! Templates and special tokens of a model folder, and the texts of errors.

use chat::template::{Conversation, Template, of_folder};
use serde_json::{Value, json};

fn error_of(source: &str, messages: &[Value]) -> String {
    let conversation = Conversation { messages: messages.to_vec(), ..Conversation::default() };
    let prompt = Template::compile(source).and_then(|template| template.render(&conversation));
    prompt.expect_err("a failure").message().to_owned()
}

#[test]
fn a_template_is_a_string_a_list_or_a_file() {
    let config = |template: Value| json!({ "chat_template": template, "bos_token": "<s>" }).to_string();
    let one = of_folder(Some(&config(json!("T"))), None, None, None).expect("a template");
    assert_eq!((one.source(false), one.source(true)), (Some("T"), Some("T")));
    let entry = |name: &str, template: &str| json!({ "name": name, "template": template });
    let named = json!([entry("default", "D"), entry("tool_use", "U"), entry("rag", "R")]);
    let two = of_folder(Some(&config(named.clone())), None, None, None).expect("templates");
    assert_eq!((two.source(false), two.source(true)), (Some("D"), Some("U")));
    let file = of_folder(Some(&config(named)), Some("F"), None, None).expect("a template");
    assert_eq!((file.source(false), file.source(true)), (Some("F"), Some("F")));
    let files = of_folder(Some(&config(json!("T"))), Some("F"), Some("U"), None).expect("templates");
    assert_eq!((files.source(false), files.source(true)), (Some("F"), Some("U")));
    let none = of_folder(Some(&config(Value::Null)), None, None, None).expect("no template");
    assert_eq!((none.source(true), of_folder(None, None, None, None).expect("nothing").source(false)), (None, None));
}

#[test]
fn special_tokens_are_strings_or_objects() {
    let config = json!({ "bos_token": { "content": "<s>", "lstrip": false }, "eos_token": "</s>", "pad_token": null });
    let map = json!({ "eos_token": "other", "unk_token": { "content": "<unk>" }, "additional_special_tokens": ["x"] });
    let found = of_folder(Some(&config.to_string()), None, None, Some(&map.to_string())).expect("tokens");
    let found = serde_json::to_value(found.tokens).expect("tokens are JSON");
    assert_eq!(found, json!({ "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>" }));
}

#[test]
fn a_folder_that_cannot_be_read_says_where() {
    let error = |config: &str| of_folder(Some(config), None, None, None).expect_err("a failure").message().to_owned();
    assert!(error("[").starts_with("tokenizer_config.json is not a JSON object: "));
    assert_eq!(
        error(r#"{"chat_template": 5}"#),
        "chat_template of tokenizer_config.json is a number, expected a string or a list"
    );
    assert_eq!(
        error(r#"{"chat_template": [{"name": "default"}]}"#),
        "chat_template[0].template of tokenizer_config.json is null, expected a string"
    );
}

#[test]
fn errors_tell_the_line_and_the_cause() {
    let message = json!({ "role": "user", "content": "q" });
    let check = |source: &str, expected: &str| assert_eq!(error_of(source, std::slice::from_ref(&message)), expected);
    check("a\n{{ raise_exception('Only ' ~ 2 ~ ' roles') }}", "Only 2 roles");
    check("{% macro m() %}{{ raise_exception('in a macro') }}{% endmacro %}{{ m() }}", "in a macro");
    check(
        "a\n\n{{ messages[0].content + 1 }}",
        "chat template, line 3: tried to use + operator on unsupported types string and number",
    );
    check("\n{{ missing.role }}", "chat template, line 2: undefined value");
    check("{{ 'a'.nothing() }}", "chat template, line 1: string has no method named nothing");
    check("{% for x in none %}{% endfor %}", "chat template, line 1: none is not iterable");
    check("\n{% if %}", "chat template, line 2: unexpected end of block");
    check("{{ x", "chat template, line 1: unexpected end of input, expected end of variable block");
    assert_eq!(error_of("", &[json!("text")]), "messages[0] is string, expected an object");
}
