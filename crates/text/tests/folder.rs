//! Facts that are read of a folder, and those that are guessed.

mod support;

use protocol::text::{Dimensions, Role};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::Folder;
use tensor::{Code, Error};
use text::folder::{Folder as Facts, LABELS_MAX, overrides};
use text::pooling::{Activation, Pooling};

fn read(folder: &Folder, parameters: &[(&str, &str)]) -> Result<Facts, Error> {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Facts::read(folder.path(), &parameters.collect::<BTreeMap<_, _>>())
}

fn refuses(folder: &Folder, parameters: &[(&str, &str)], code: Code, texts: &[&str]) {
    let error = read(folder, parameters).expect_err("an error");
    assert_eq!(error.code(), code, "{}", error.message());
    for text in texts {
        assert!(error.message().contains(text), "{text:?} in {:?}", error.message());
    }
}

/// Value and source of a guess.
fn guess<'f>(facts: &'f Facts, name: &str) -> (&'f str, &'f str) {
    let guess = facts.guesses.iter().find(|guess| guess.name == name).expect("a guess");
    (&guess.value, &guess.from)
}

fn model() -> Folder {
    Folder::new().text("model.onnx", "")
}

/// A folder as sentence-transformers writes it, with these types of modules.
fn sentences(types: &[&str], pooling: &Value) -> Folder {
    let path = |at: usize, name: &str| if at == 0 { String::new() } else { format!("{at}_{name}") };
    let module = |(at, name): (usize, &&str)| {
        let class = format!("sentence_transformers.models.{name}");
        json!({ "idx": at, "name": at.to_string(), "path": path(at, name), "type": class })
    };
    let modules: Vec<Value> = types.iter().enumerate().map(module).collect();
    let config = json!({ "architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 512 });
    let folder = model().json("modules.json", &json!(modules)).json("config.json", &config);
    folder.json("1_Pooling/config.json", pooling)
}

fn mean() -> Value {
    json!({
        "word_embedding_dimension": 384, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true,
        "pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false
    })
}

const ALL: [&str; 3] = ["Transformer", "Pooling", "Normalize"];

#[test]
fn a_folder_of_sentence_transformers_says_everything() {
    let folder = sentences(&ALL, &mean())
        .json("sentence_bert_config.json", &json!({ "max_seq_length": 256, "do_lower_case": false }))
        .json("tokenizer_config.json", &json!({ "model_max_length": 512, "truncation_side": "left" }))
        .json(
            "config_sentence_transformers.json",
            &json!({
                "prompts": { "query": "query: ", "passage": "" }, "default_prompt_name": "query",
                "matryoshka_dimensions": [256, 64, 64, 128]
            }),
        );
    let facts = read(&folder, &[]).unwrap();
    assert_eq!((facts.role, facts.pooling, facts.normalizes), (Role::Embed, Pooling::Mean, true));
    assert_eq!((facts.activation, facts.tokens_max), (Activation::None, 256));
    assert_eq!(facts.file, folder.path().join("model.onnx"));
    assert_eq!(facts.labels, [""; 0]);
    assert_eq!(facts.dimensions, Dimensions::Listed(vec![64, 128, 256]));
    assert_eq!((facts.prompts.len(), facts.default_prompt.as_deref()), (2, Some("query")));
    assert_eq!(guess(&facts, overrides::ROLE), ("embed", "modules.json: a module Pooling"));
    assert_eq!(guess(&facts, overrides::POOLING), ("mean", "1_Pooling/config.json: pooling_mode_mean_tokens"));
    assert_eq!(guess(&facts, overrides::NORMALIZE), ("true", "modules.json: a module Normalize"));
    assert_eq!(guess(&facts, overrides::MAX_LENGTH), ("256", "sentence_bert_config.json: max_seq_length"));
    let listed = ("64,128,256", "config_sentence_transformers.json: matryoshka_dimensions");
    assert_eq!(guess(&facts, overrides::DIMENSIONS), listed);
    assert_eq!(guess(&facts, overrides::PROMPT), ("query", "config_sentence_transformers.json: default_prompt_name"));
    assert_eq!(guess(&facts, overrides::FILE), ("model.onnx", "the file exists"));
}

#[test]
fn a_folder_without_modules_pools_as_sentence_transformers_does() {
    let facts = read(&model(), &[]).unwrap();
    assert_eq!((facts.role, facts.pooling, facts.normalizes), (Role::Embed, Pooling::Mean, false));
    assert_eq!((facts.tokens_max, &facts.dimensions), (512, &Dimensions::Fixed));
    assert_eq!(guess(&facts, overrides::ROLE), ("embed", "no file names a role"));
    assert!(guess(&facts, overrides::POOLING).1.starts_with("no modules.json"));
    assert!(guess(&facts, overrides::NORMALIZE).1.starts_with("no modules.json"));
    assert_eq!(guess(&facts, overrides::MAX_LENGTH), ("512", "no file sets it: that of BERT"));
    assert_eq!(guess(&facts, overrides::PROMPT), ("", "no file names one"));
}

#[test]
fn pooling_is_that_of_its_module() {
    let check = |pooling: Value, expected: Pooling| {
        let facts = read(&sentences(&ALL[..2], &pooling), &[]).unwrap();
        assert_eq!((facts.pooling, facts.normalizes), (expected, false));
    };
    check(json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false }), Pooling::Cls);
    check(json!({ "pooling_mode_max_tokens": true }), Pooling::Max);
    check(json!({ "pooling_mode_lasttoken": true }), Pooling::LastToken);
    check(json!({ "pooling_mode": "lasttoken", "pooling_mode_cls_token": true }), Pooling::LastToken);
    check(json!({ "pooling_mode": ["cls"] }), Pooling::Cls);
    check(json!({ "embedding_dimension": 8 }), Pooling::Mean);
    for (pooling, what) in [
        (json!({ "pooling_mode_cls_token": true, "pooling_mode_max_tokens": true }), "cls_token with max_tokens"),
        (json!({ "pooling_mode_weightedmean_tokens": true }), "weightedmean_tokens"),
        (json!({ "pooling_mode": ["mean", "max"] }), "mean with max"),
        (json!({ "pooling_mode": "mean_sqrt_len_tokens" }), "mean_sqrt_len_tokens"),
    ] {
        let folder = sentences(&ALL, &pooling);
        refuses(&folder, &[], Code::InvalidArg, &["1_Pooling/config.json", what, "is not supported", "'pooling'"]);
        assert_eq!(read(&folder, &[("pooling", "max")]).unwrap().pooling, Pooling::Max);
    }
}

#[test]
fn modules_that_are_not_supported_are_errors() {
    let all = ["Transformer", "Pooling", "Dense", "Normalize"];
    refuses(&sentences(&all, &mean()), &[], Code::InvalidArg, &["modules.json: a module Dense is not supported"]);
    let twice = ["Transformer", "Pooling", "Pooling"];
    let folder = sentences(&twice, &mean()).json("2_Pooling/config.json", &mean());
    refuses(&folder, &[], Code::InvalidArg, &["two modules of type Pooling"]);
    let module =
        |name: &str, path: &str| json!([{ "path": path, "type": format!("sentence_transformers.models.{name}") }]);
    let old = model().json("modules.json", &module("Transformer", "0_Transformer"));
    refuses(&old, &[], Code::InvalidArg, &["the transformer is in 0_Transformer"]);
    let out = model().json("modules.json", &module("Pooling", "../other"));
    refuses(&out, &[], Code::InvalidArg, &["is outside of the folder"]);
    let missing = model().json("modules.json", &module("Pooling", "1_Pooling"));
    refuses(&missing, &[], Code::InvalidArg, &["1_Pooling/config.json is missing"]);
    let prompts = json!({ "prompts": { "query": "query: " } });
    let without = sentences(&ALL, &json!({ "pooling_mode": "mean", "include_prompt": false }));
    refuses(
        &without.json("config_sentence_transformers.json", &prompts),
        &[],
        Code::InvalidArg,
        &["pooling without the tokens of prompts is not supported"],
    );
    refuses(&model().text("modules.json", "[{}]"), &[], Code::InvalidArg, &["modules.json: missing field"]);
    refuses(&model().text("config.json", &"[".repeat(1000)), &[], Code::InvalidArg, &["config.json: "]);
}

fn classifier(more: Value) -> Folder {
    let mut config = json!({ "architectures": ["BertForSequenceClassification"], "model_type": "bert" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    model().json("config.json", &config)
}

#[test]
fn labels_and_activations_are_those_of_the_configuration() {
    let check = |more: Value, role: Role, activation: Activation, labels: &[&str]| {
        let facts = read(&classifier(more), &[]).unwrap();
        assert_eq!((facts.role, facts.activation), (role, activation));
        assert_eq!(facts.labels, labels);
    };
    use Activation::{None, Sigmoid, Softmax};
    check(json!({}), Role::Classify, Softmax, &["LABEL_0", "LABEL_1"]);
    let three = json!({ "2": "neutral", "0": "negative", "1": "positive" });
    check(json!({ "id2label": three }), Role::Classify, Softmax, &["negative", "positive", "neutral"]);
    let several = json!({ "id2label": three, "problem_type": "multi_label_classification" });
    check(several, Role::Classify, Sigmoid, &["negative", "positive", "neutral"]);
    check(json!({ "problem_type": "regression" }), Role::Classify, None, &["LABEL_0", "LABEL_1"]);
    check(json!({ "id2label": { "0": "LABEL_0" } }), Role::Rerank, Sigmoid, &[]);
    check(json!({ "num_labels": 1 }), Role::Rerank, Sigmoid, &[]);
    let old = json!({ "num_labels": 1, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity" });
    check(old, Role::Rerank, None, &[]);
    let new =
        json!({ "num_labels": 1, "sentence_transformers": { "activation_fn": "torch.nn.modules.linear.Identity" } });
    check(new, Role::Rerank, None, &[]);
    let other =
        json!({ "num_labels": 1, "sentence_transformers": { "activation_fn": "torch.nn.modules.activation.Tanh" } });
    refuses(
        &classifier(other.clone()),
        &[],
        Code::InvalidArg,
        &["activation_fn is torch.nn.modules.activation.Tanh", "'activation'"],
    );
    assert_eq!(read(&classifier(other), &[("activation", "none")]).unwrap().activation, None);
    let gap = json!({ "id2label": { "0": "a", "2": "b" } });
    refuses(&classifier(gap), &[], Code::InvalidArg, &["id2label has 2 labels and none for 1"]);
    let many = json!({ "num_labels": LABELS_MAX + 1 });
    refuses(&classifier(many), &[], Code::InvalidArg, &["config.json: 65537 labels, the limit is 65536"]);
    let facts = read(&classifier(json!({})), &[]).unwrap();
    let from = "config.json: architectures, BertForSequenceClassification with 2 labels";
    assert_eq!(guess(&facts, overrides::ROLE), ("classify", from));
    // A folder that pools gives vectors, whatever its architecture is called.
    let embeds = classifier(json!({})).json(
        "modules.json",
        &json!([
            { "path": "", "type": "a.Transformer" }, { "path": "1_Pooling", "type": "a.Pooling" }
        ]),
    );
    assert_eq!(read(&embeds.json("1_Pooling/config.json", &mean()), &[]).unwrap().role, Role::Embed);
}

#[test]
fn the_length_is_the_first_that_a_file_names_and_fits_the_model() {
    let check = |config: Value, tokenizer: Value, sentences: Option<u32>, expected: u32, from: &str| {
        let mut folder = model().json("config.json", &config).json("tokenizer_config.json", &tokenizer);
        if let Some(length) = sentences {
            folder = folder.json("sentence_roberta_config.json", &json!({ "max_seq_length": length }));
        }
        let facts = read(&folder, &[]).unwrap();
        assert_eq!((facts.tokens_max, guess(&facts, overrides::MAX_LENGTH).1), (expected, from));
    };
    let bert = || json!({ "model_type": "bert", "max_position_embeddings": 512 });
    let of_model = "config.json: max_position_embeddings";
    check(bert(), json!({ "model_max_length": 128 }), Some(64), 64, "sentence_roberta_config.json: max_seq_length");
    check(bert(), json!({ "model_max_length": 128 }), None, 128, "tokenizer_config.json: model_max_length");
    check(bert(), json!({ "model_max_length": 1e30 }), None, 512, of_model);
    check(bert(), json!({}), None, 512, of_model);
    check(bert(), json!({ "model_max_length": 8192 }), None, 512, of_model);
    for kind in ["roberta", "xlm-roberta", "mpnet"] {
        let config = json!({ "model_type": kind, "max_position_embeddings": 514 });
        check(config.clone(), json!({ "model_max_length": 1e30 }), None, 512, of_model);
        check(config, json!({}), Some(514), 512, of_model);
    }
    check(
        json!({ "max_position_embeddings": 0 }),
        json!({ "model_max_length": 0 }),
        None,
        512,
        "no file sets it: that of BERT",
    );
}

#[test]
fn dimensions_are_those_that_the_model_was_trained_for() {
    let check = |of_sentences: Value, config: Value, expected: Dimensions| {
        let folder = model().json("config.json", &config).json("config_sentence_transformers.json", &of_sentences);
        assert_eq!(read(&folder, &[]).unwrap().dimensions, expected);
    };
    check(json!({ "is_matryoshka": true }), json!({}), Dimensions::Any);
    check(json!({}), json!({ "is_matryoshka": true }), Dimensions::Any);
    check(json!({}), json!({ "matryoshka_dimensions": [32, 0] }), Dimensions::Listed(vec![32]));
    check(json!({ "is_matryoshka": false }), json!({ "is_matryoshka": false }), Dimensions::Fixed);
    let with = |value| read(&model(), &[("dimensions", value)]).map(|facts| facts.dimensions);
    assert_eq!(with("any").unwrap(), Dimensions::Any);
    assert_eq!(with("fixed").unwrap(), Dimensions::Fixed);
    assert_eq!(with("128, 64").unwrap(), Dimensions::Listed(vec![64, 128]));
    assert!(with("0").is_err());
}

#[test]
fn the_file_is_the_usual_one_or_the_only_one() {
    let file =
        |folder: Folder| read(&folder, &[]).map(|facts| facts.file.strip_prefix(folder.path()).unwrap().to_owned());
    let is = |folder: Folder, expected: &str| assert_eq!(file(folder).unwrap().to_str(), Some(expected));
    is(model().text("onnx/model.onnx", ""), "model.onnx");
    is(Folder::new().text("onnx/model.onnx", "").text("onnx/model_O2.onnx", ""), "onnx/model.onnx");
    is(Folder::new().text("onnx/model_qint8.onnx", "").text("onnx/other.onnx", ""), "onnx/model_qint8.onnx");
    let two = Folder::new().text("onnx/model_O1.onnx", "").text("onnx/model_O2.onnx", "");
    refuses(&two, &[], Code::InvalidArg, &["onnx/model_O1.onnx", "model_O1.onnx, model_O2.onnx", "\"file\""]);
    assert!(read(&two, &[("file", "onnx/model_O2.onnx")]).is_ok());
    refuses(&two, &[("file", "onnx/model_O3.onnx")], Code::NotFound, &["onnx/model_O3.onnx is missing"]);
    for out in ["../model.onnx", "/model.onnx", ""] {
        refuses(&two, &[("file", out)], Code::InvalidArg, &["'file'", "the path of a file below"]);
    }
    refuses(&Folder::new(), &[], Code::NotFound, &["no model.onnx and no onnx/model.onnx"]);
    let weights = Folder::new().text("model.safetensors", "");
    refuses(&weights, &[], Code::NotFound, &["safetensors", "nereid init FOLDER --export"]);
}

#[test]
fn parameters_win_over_files_and_are_no_guesses() {
    let all = [
        (overrides::ROLE, "embed"),
        (overrides::POOLING, "cls"),
        (overrides::NORMALIZE, "false"),
        (overrides::MAX_LENGTH, "9"),
        (overrides::DIMENSIONS, "any"),
        (overrides::FILE, "model.onnx"),
        (overrides::PROMPT, ""),
        (overrides::MAX_BATCH_TOKENS, "1000"),
    ];
    let facts = read(&sentences(&ALL, &mean()), &all).unwrap();
    assert_eq!((facts.pooling, facts.normalizes, facts.tokens_max), (Pooling::Cls, false, 9));
    assert_eq!(facts.guesses, []);
    for (name, value, expected) in [
        (overrides::ROLE, "vector", "one of embed, rerank, classify"),
        (overrides::POOLING, "sum", "one of mean, cls, last, max"),
        (overrides::NORMALIZE, "yes", "one of true, false"),
        (overrides::MAX_LENGTH, "-1", "a number of tokens above 0"),
    ] {
        let found = format!("parameter '{name}' of a text model has the value '{value}', expected {expected}");
        refuses(&model(), &[(name, value)], Code::InvalidArg, &[&found]);
    }
    refuses(&model(), &[("prompt", "query")], Code::InvalidArg, &["no prompt \"query\", it has none"]);
    let softmax = [(overrides::ROLE, "rerank"), (overrides::ACTIVATION, "softmax")];
    assert_eq!(read(&model(), &softmax).unwrap().activation, Activation::Softmax);
}
