//! Text models over folders with a tiny graph: requests are divided into texts, which run in batches of any kind.

mod support;

use backend::{Backend, Batch, BatchEntry, Model, Outcome, PreparedText, RunControl, TextModel};
use backend_onnx::TextBackend;
use bytes::Bytes;
use memory::RegionRegistry;
use protocol::pb::inference::{ModelConfig, ModelParameter};
use protocol::text::parameters::{
    DIMENSIONS, NORMALIZE, PROMPT, RAW_SCORES, TOKEN_IDS, TOKENS, TOKENS_MAX, TRUNCATE, TRUNCATION_SIDE, USAGE,
};
use protocol::text::{Dimensions, Role};
use protocol::{Checked, InferRequest, InferResponse, InputTensor, Parameter, RequestedOutput, Signature};
use std::sync::Arc;
use support::*;
use tensor::{Code, Data, DataType, Error, Result, Shape};

const VOCABULARY: [&str; 8] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "query"];

/// Values of the state of a token.
const WIDTH: usize = 4;

fn tokenizer() -> String {
    let vocab: Vec<String> = VOCABULARY.iter().enumerate().map(|(id, token)| format!("\"{token}\": {id}")).collect();
    let special = |name: &str, kind: u32| format!(r#"{{"SpecialToken": {{"id": "{name}", "type_id": {kind}}}}}"#);
    let text = |name: &str, kind: u32| format!(r#"{{"Sequence": {{"id": "{name}", "type_id": {kind}}}}}"#);
    let single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)].join(",");
    let pair = [single.clone(), text("B", 1), special("[SEP]", 1)].join(",");
    let token = |id: usize| {
        let name = VOCABULARY[id];
        format!(
            r#"{{"id": {id}, "content": "{name}", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}}"#
        )
    };
    let added: Vec<String> = (0..4).map(token).collect();
    format!(
        r###"{{
          "version": "1.0",
          "truncation": {{"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}},
          "padding": {{"strategy": {{"Fixed": 16}}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                       "pad_type_id": 0, "pad_token": "[PAD]"}},
          "added_tokens": [{}], "normalizer": null, "pre_tokenizer": {{"type": "Whitespace"}}, "decoder": null,
          "post_processor": {{"type": "TemplateProcessing", "single": [{single}], "pair": [{pair}], "special_tokens": {{
            "[CLS]": {{"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
            "[SEP]": {{"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}
          }}}},
          "model": {{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                     "max_input_chars_per_word": 100, "vocab": {{{}}}}}
        }}"###,
        added.join(","),
        vocab.join(",")
    )
}

/// State of a token: numbers that the graph looks up by its id.
fn state(id: usize, at: usize) -> f32 {
    ((id * 7 + at * 3) % 11) as f32 - 4.0
}

/// `states` = the number of each token, plus the mean of all tokens that the mask shows: each state depends on all of
/// them, and on no padding. `length` = the tokens of the run, padding included.
fn network(ids: i64, output: &[u8], tail: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    let floats = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let longs = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let table = (0..VOCABULARY.len()).flat_map(|id| (0..WIDTH).map(move |at| state(id, at))).collect();
    let types = (0..2 * WIDTH).map(|n| if n < WIDTH { 0.0 } else { 0.5 }).collect();
    let nodes = [
        node("Gather", &["table", "input_ids"], &["word"], &[]),
        node("Gather", &["types", "token_type_ids"], &["type"], &[]),
        node("Add", &["word", "type"], &["x"], &[]),
        node("Cast", &["attention_mask"], &["mask"], &[("to", F32)]),
        node("Unsqueeze", &["mask", "last"], &["shown"], &[]),
        node("Mul", &["x", "shown"], &["visible"], &[]),
        node("ReduceSum", &["visible", "middle"], &["sum"], &[("keepdims", 1)]),
        node("ReduceSum", &["shown", "middle"], &["count"], &[("keepdims", 1)]),
        node("Div", &["sum", "count"], &["mean"], &[]),
        node("Add", &["x", "mean"], &["states"], &[]),
    ];
    let all = [
        initializer("table", F32, &[VOCABULARY.len() as i64, WIDTH as i64], &floats(table)),
        initializer("types", F32, &[2, WIDTH as i64], &floats(types)),
        initializer("last", I64, &[1], &longs(&[2])),
        initializer("middle", I64, &[1], &longs(&[1])),
    ];
    let dims = [D::S("batch"), D::S("tokens")];
    onnx(
        &[&nodes, tail].concat(),
        &["input_ids", "attention_mask", "token_type_ids"].map(|name| tensor(name, ids, &dims)),
        &[output.to_vec()],
        &[&all, initializers].concat(),
    )
}

fn encoder() -> Vec<u8> {
    let output = tensor("last_hidden_state", F32, &[D::S("batch"), D::S("tokens"), D::N(WIDTH as i64)]);
    network(I64, &output, &[node("Identity", &["states"], &["last_hidden_state"], &[])], &[])
}

/// The values of the first token, as many as there are classes.
fn classifier(ids: i64, classes: i64) -> Vec<u8> {
    let longs = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let output = tensor("logits", F32, &[D::S("batch"), D::N(classes)]);
    let tail = [
        node("Gather", &["states", "first"], &["cls"], &[("axis", 1)]),
        node("Slice", &["cls", "first_row", "classes", "middle"], &["logits"], &[]),
    ];
    let initializers = [
        initializer("first", I64, &[], &longs(&[0])),
        initializer("first_row", I64, &[1], &longs(&[0])),
        initializer("classes", I64, &[1], &longs(&[classes])),
    ];
    network(ids, &output, &tail, &initializers)
}

/// A folder in a version directory.
struct Hub(Version);

impl Hub {
    fn new(graph: &[u8], files: &[(&str, &str)]) -> Self {
        let version = Version::new(graph);
        std::fs::write(version.0.join("tokenizer.json"), tokenizer()).expect("written");
        for (name, text) in files {
            let path = version.0.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        Self(version)
    }

    fn embeds() -> Self {
        Self::new(
            &encoder(),
            &[
                (
                    "modules.json",
                    r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                        {"idx": 2, "name": "2", "path": "2_Normalize",
                         "type": "sentence_transformers.models.Normalize"}]"#,
                ),
                ("1_Pooling/config.json", r#"{"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true}"#),
                ("sentence_bert_config.json", r#"{"max_seq_length": 8, "do_lower_case": false}"#),
                ("config.json", r#"{"architectures": ["BertModel"], "max_position_embeddings": 16}"#),
                ("config_sentence_transformers.json", r#"{"prompts": {"q": "query "}, "default_prompt_name": null}"#),
            ],
        )
    }

    fn classifies(ids: i64, labels: &[&str]) -> Self {
        let names: Vec<String> = labels.iter().enumerate().map(|(i, l)| format!("\"{i}\": \"{l}\"")).collect();
        let config = format!(
            r#"{{"architectures": ["BertForSequenceClassification"], "max_position_embeddings": 16,
                 "id2label": {{{}}}, "num_labels": {}}}"#,
            names.join(","),
            labels.len()
        );
        Self::new(&classifier(ids, labels.len() as i64), &[("config.json", &config)])
    }

    fn open(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn backend::Opened>> {
        let of = |value: &str| ModelParameter { string_value: value.to_owned() };
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), of(value))).collect();
        let config = ModelConfig { parameters, ..ModelConfig::default() };
        TextBackend::new(Some(library())).open(&self.0.spec(&config))
    }

    fn load_as(&self, parameters: &[(&str, &str)], signature: Signature) -> Result<Arc<dyn Model>> {
        self.open(parameters)?.finish(&ModelConfig::default(), Arc::new(signature))
    }

    /// Loads with batches, one text for each row.
    fn load(&self, parameters: &[(&str, &str)], width: i64) -> Loaded {
        let signature = one_text(64, &[1], &[width]);
        Loaded { model: self.load_as(parameters, signature.clone()).expect("loads"), signature }
    }
}

fn one_text(batch: u32, dims: &[i64], output_dims: &[i64]) -> Signature {
    signature(batch, vec![input("text", DataType::Bytes, dims)], vec![output("row", DataType::Fp32, output_dims)])
}

struct Loaded {
    model: Arc<dyn Model>,
    signature: Signature,
}

type Sent<'a> = &'a [(&'a str, Parameter)];

impl Loaded {
    fn text(&self) -> &dyn TextModel {
        self.model.text().expect("a text model")
    }

    fn request(&self, elements: &[&[u8]], parameters: Sent<'_>) -> (InferRequest, Checked) {
        let mut request = InferRequest::default();
        let per_text = self.signature.inputs[0].dims.last().copied().filter(|&n| n > 0).unwrap_or(1);
        let texts = elements.len() as i64 / per_text;
        let shape = match (self.signature.max_batch_size, per_text) {
            (0, 1) => Shape::from_slice(&[texts]),
            _ => Shape::from_slice(&[texts, per_text]),
        };
        request.inputs.push(InputTensor {
            name: "text".into(),
            datatype: Some(DataType::Bytes),
            shape,
            data: strings(elements),
        });
        request.parameters = parameters.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
        let checked = Checked {
            rows: texts as u32,
            inputs: [0].into_iter().collect(),
            outputs: [(0, None)].into_iter().collect(),
        };
        (request, checked)
    }

    /// Answers a request as the engine does, with batches of `together` texts.
    fn answer(&self, elements: &[&[u8]], parameters: Sent<'_>, together: usize) -> Result<Outcome> {
        let (request, checked) = self.request(elements, parameters);
        self.answer_to(&request, &checked, together)
    }

    fn answer_to(&self, request: &InferRequest, checked: &Checked, together: usize) -> Result<Outcome> {
        let division = self.text().divide(request, checked)?;
        let texts: Vec<u32> = (0..division.texts()).collect();
        for some in texts.chunks(together) {
            let entries = some.iter().map(|&text| division.prepare(text).map(entry)).collect::<Result<Vec<_>>>()?;
            for (&text, outcome) in some.iter().zip(run(&*self.model, entries)) {
                let outputs = outcome?.outputs;
                division.put(text, &InferResponse { outputs, ..InferResponse::default() })?;
            }
        }
        division.join()
    }

    fn rows(&self, texts: &[&str], parameters: Sent<'_>) -> Rows {
        let elements: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        Rows::of(&self.answer(&elements, parameters, 1).expect("answers"))
    }

    fn refused(&self, elements: &[&[u8]], parameters: Sent<'_>) -> Error {
        self.answer(elements, parameters, 1).map(drop).expect_err("is rejected")
    }
}

/// A prepared text as an entry of a batch.
fn entry(text: PreparedText) -> BatchEntry {
    let checked = Checked { rows: 1, inputs: (0..).take(text.inputs.len()).collect(), ..Checked::default() };
    BatchEntry::new(InferRequest { inputs: text.inputs, ..InferRequest::default() }.into(), checked)
}

#[derive(Debug, PartialEq)]
struct Rows {
    shape: Vec<i64>,
    values: Vec<f32>,
}

impl Rows {
    fn of(outcome: &Outcome) -> Self {
        let [output] = &outcome.outputs[..] else { panic!("one output, not {}", outcome.outputs.len()) };
        assert_eq!((&*output.name, output.datatype), ("row", DataType::Fp32));
        let bytes: Bytes = output.data.to_vec().expect("in memory").into();
        let values = bytes.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect();
        Self { shape: output.shape.to_vec(), values }
    }

    fn is(&self, shape: &[i64], values: &[f32]) {
        assert_eq!(self.shape, shape);
        assert_eq!(self.values.len(), values.len());
        for (got, expected) in self.values.iter().zip(values) {
            assert!((got - expected).abs() < 1e-5, "{:?} instead of {values:?}", self.values);
        }
    }
}

/// Mean of the graph's states, which is twice the mean of the tokens' numbers.
fn mean(ids: &[usize], types: &[usize]) -> Vec<f32> {
    let row = |at: usize| {
        let sum: f32 = ids.iter().zip(types).map(|(&id, &kind)| state(id, at) + kind as f32 * 0.5).sum();
        2.0 * sum / ids.len() as f32
    };
    (0..WIDTH).map(row).collect()
}

fn normalized(row: &[f32]) -> Vec<f32> {
    let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
    row.iter().map(|v| v / norm).collect()
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

/// The first token's number, plus the mean of all.
fn logits(ids: &[usize], types: &[usize], classes: usize) -> Vec<f32> {
    let mean = mean(ids, types);
    (0..classes).map(|at| state(ids[0], at) + mean[at] / 2.0).collect()
}

const ZEROS: [usize; 16] = [0; 16];

#[test]
fn texts_become_normalised_rows_in_their_order() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let facts = model.text().facts().clone();
    assert_eq!((facts.role, facts.width, facts.tokens_max), (Role::Embed, Some(4), Some(8)));
    assert!(facts.is_native && facts.labels.is_empty() && facts.dimensions == Dimensions::Fixed);
    let rows = model.rows(&["a b", "c", ""], &[]);
    let expected = [&[2, 4, 5, 3][..], &[2, 6, 3], &[2, 3]].map(|ids| normalized(&mean(ids, &ZEROS)));
    rows.is(&[3, 4], &expected.concat());
    // No text at all.
    assert_eq!(model.rows(&[], &[]), Rows { shape: vec![0, 4], values: vec![] });
}

#[test]
fn the_row_of_a_text_does_not_depend_on_its_batch() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let texts: [&[u8]; 6] = [b"a", b"a b c a b", b"", b"c c", b"b a b a b a", b"query"];
    let alone = Rows::of(&model.answer(&texts, &[], 1).expect("answers"));
    for together in [2, 3, 6] {
        Rows::of(&model.answer(&texts, &[], together).expect("answers")).is(&alone.shape, &alone.values);
    }
}

#[test]
fn a_text_of_5_tokens_runs_5_tokens() {
    // The state of each token is the number of tokens of the run, though tokenizer.json asks for 16.
    let output = tensor("last_hidden_state", F32, &[D::S("batch"), D::S("tokens"), D::N(WIDTH as i64)]);
    let tail = [
        node("Shape", &["input_ids"], &["length"], &[("start", 1)]),
        node("Cast", &["length"], &["run"], &[("to", F32)]),
        node("Mul", &["states", "zero"], &["zeros"], &[]),
        node("Add", &["zeros", "run"], &["last_hidden_state"], &[]),
    ];
    let graph = network(I64, &output, &tail, &[initializer("zero", F32, &[], &0f32.to_le_bytes())]);
    let hub = Hub::new(&graph, &[("config.json", r#"{"architectures": ["BertModel"], "max_position_embeddings": 8}"#)]);
    let model = hub.load(&[("pooling", "mean"), ("normalize", "false")], WIDTH as i64);
    model.rows(&["a b c"], &[]).is(&[1, 4], &[5.0; 4]);
    model.rows(&["a b c a b c a b c"], &[]).is(&[1, 4], &[8.0; 4]);
    // Texts of one batch run as long as the longest, and no longer.
    let batch = model.answer(&[b"a", b"a b c"], &[], 2).expect("answers");
    Rows::of(&batch).is(&[2, 4], &[5.0; 8]);
    let (request, checked) = model.request(&[b"a b c"], &[]);
    let prepared = model.text().divide(&request, &checked).and_then(|d| d.prepare(0)).expect("prepared");
    assert_eq!((prepared.tokens, &prepared.inputs[0].shape[..], prepared.inputs.len()), (5, &[1, 5][..], 1));
}

#[test]
fn pairs_become_scores_and_texts_become_probabilities() {
    let hub = Hub::classifies(I64, &["relevant"]);
    let signature = one_text(64, &[2], &[1]);
    let model = Loaded { model: hub.load_as(&[], signature.clone()).expect("loads"), signature };
    let (ids, types) = ([2, 4, 3, 5, 6, 3], [0, 0, 0, 1, 1, 1]);
    let expected = logits(&ids, &types, 1);
    let (ids, types) = ([2, 6, 3, 4, 3], [0, 0, 0, 1, 1]);
    let other = logits(&ids, &types, 1);
    let rows = model.rows(&["a", "b c", "c", "a"], &[]);
    rows.is(&[2, 1], &[sigmoid(expected[0]), sigmoid(other[0])]);
    let raw = model.rows(&["a", "b c", "c", "a"], &[(RAW_SCORES, Parameter::Bool(true))]);
    raw.is(&[2, 1], &[expected[0], other[0]]);

    // A prompt is put before the first text of a pair.
    let prompts = r#"{"prompts": {"q": "query "}, "default_prompt_name": "q"}"#;
    std::fs::write(hub.0.0.join("config_sentence_transformers.json"), prompts).expect("written");
    let signature = one_text(64, &[2], &[1]);
    let prompted = Loaded { model: hub.load_as(&[], signature.clone()).expect("loads"), signature };
    let expected = logits(&[2, 7, 4, 3, 5, 3], &[0, 0, 0, 0, 1, 1], 1);
    prompted.rows(&["a", "b"], &[]).is(&[1, 1], &[sigmoid(expected[0])]);

    // A graph with 32-bit inputs, and three classes.
    let model = Hub::classifies(I32, &["x", "y", "z"]).load(&[], 3);
    assert_eq!((model.text().facts().role, model.text().facts().labels.len()), (Role::Classify, 3));
    let raw = logits(&[2, 4, 3], &ZEROS, 3);
    model.rows(&["a"], &[(RAW_SCORES, Parameter::Bool(true))]).is(&[1, 3], &raw);
    let sum: f32 = raw.iter().map(|v| v.exp()).sum();
    model.rows(&["a"], &[]).is(&[1, 3], &raw.iter().map(|v| v.exp() / sum).collect::<Vec<_>>());
}

#[test]
fn the_side_that_is_cut_is_that_of_any_file_of_the_tokenizer() {
    let hub = Hub::embeds();
    let left = tokenizer().replacen(r#""direction": "Right""#, r#""direction": "Left""#, 1);
    assert_ne!(left, tokenizer());
    std::fs::write(hub.0.0.join("tokenizer.json"), left).expect("written");
    let model = hub.load(&[], WIDTH as i64);
    model.rows(&["a b"], &[(TOKENS_MAX, Parameter::Int(3))]).is(&[1, 4], &normalized(&mean(&[2, 5, 3], &ZEROS)));
}

#[test]
fn parameters_of_a_request_decide_what_it_gets() {
    let model = Hub::embeds().load(&[("dimensions", "2")], WIDTH as i64);
    let whole = mean(&[2, 4, 5, 3], &ZEROS);
    let ask = |parameters: Sent<'_>| model.rows(&["a b"], parameters);
    ask(&[(NORMALIZE, Parameter::Bool(false))]).is(&[1, 4], &whole);
    ask(&[(DIMENSIONS, Parameter::Int(2))]).is(&[1, 2], &normalized(&whole[..2]));
    let both = [(DIMENSIONS, Parameter::Int(2)), (NORMALIZE, Parameter::Bool(false))];
    ask(&both).is(&[1, 2], &whole[..2]);
    let prompted = normalized(&mean(&[2, 7, 4, 5, 3], &ZEROS));
    ask(&[(PROMPT, Parameter::String("q".into()))]).is(&[1, 4], &prompted);
    ask(&[(TOKENS_MAX, Parameter::Int(3))]).is(&[1, 4], &normalized(&mean(&[2, 4, 3], &ZEROS)));
    let left = [(TOKENS_MAX, Parameter::Int(3)), (TRUNCATION_SIDE, Parameter::String("left".into()))];
    ask(&left).is(&[1, 4], &normalized(&mean(&[2, 5, 3], &ZEROS)));
    // The model's own maximum is 8.
    let long = "a b c a b c a b c";
    let cut = normalized(&mean(&[2, 4, 5, 6, 4, 5, 6, 3], &ZEROS));
    model.rows(&[long], &[(TOKENS_MAX, Parameter::Int(100))]).is(&[1, 4], &cut);
    let kept = model.refused(&[long.as_bytes()], &[(TRUNCATE, Parameter::Bool(false))]);
    assert_eq!(kept.code(), Code::InvalidArg);
    assert!(kept.message().contains("maximum context length is 8 tokens"), "{kept}");
}

#[test]
fn token_ids_run_as_they_are_or_are_decoded() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let ids = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let ask = |of: &[u32], kind: &str| model.answer(&[&ids(of)], &[(TOKEN_IDS, Parameter::String(kind.into()))], 1);
    let expected = normalized(&mean(&[2, 4, 5, 3], &ZEROS));
    Rows::of(&ask(&[2, 4, 5, 3], "undeclared").expect("answers")).is(&[1, 4], &expected);
    Rows::of(&ask(&[4, 5], "own").expect("answers")).is(&[1, 4], &expected);
    // "a b" of cl100k_base and of o200k_base.
    Rows::of(&ask(&[64, 293], "cl100k_base").expect("answers")).is(&[1, 4], &expected);
    Rows::of(&ask(&[64, 287], "o200k_base").expect("answers")).is(&[1, 4], &expected);
    let refused = |of: &[u32], kind: &str| ask(of, kind).map(drop).expect_err("is rejected");
    assert_eq!(refused(&[64, 293], "undeclared").code(), Code::InvalidArg);
    assert_eq!(refused(&[2, 4000, 3], "own").code(), Code::InvalidArg);
    assert!(refused(&[64], "p50k_base").message().contains("cl100k_base, o200k_base"));
    let odd = model.refused(&[b"abc"], &[(TOKEN_IDS, Parameter::String("own".into()))]);
    assert_eq!(odd, Error::invalid("token ids are little-endian integers of 4 bytes"));
}

#[test]
fn usage_counts_the_tokens_that_ran() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let texts: [&[u8]; 3] = [b"a b", b"", b"a b c a b c a b c"];
    let with = model.answer(&texts, &[(USAGE, Parameter::Bool(true))], 2).expect("answers");
    assert_eq!(with.parameters, [(TOKENS.into(), Parameter::Int(4 + 2 + 8))]);
    assert_eq!(model.answer(&texts, &[], 2).expect("answers").parameters, []);
}

#[test]
fn parameters_that_a_model_does_not_take_are_rejected_with_what_is_possible() {
    let embeds = Hub::embeds().load(&[], WIDTH as i64);
    let listed = Hub::embeds().load(&[("dimensions", "2,3")], WIDTH as i64);
    let classifies = Hub::classifies(I64, &["x", "y"]).load(&[], 2);
    let check = |model: &Loaded, name: &str, value: Parameter, found: &str, possible: &str| {
        let error = model.refused(&[b"a"], &[(name, value)]);
        let text = format!("parameter '{name}' of a request to model 'm' is {found}: ");
        assert_eq!(error.code(), Code::InvalidArg);
        assert!(error.message().starts_with(&text) && error.message().contains(possible), "{error}");
    };
    let text = |text: &str| Parameter::String(text.into());
    check(&embeds, DIMENSIONS, Parameter::Int(2), "2", "only 4 is possible");
    check(&embeds, DIMENSIONS, Parameter::Int(-1), "-1", "only 4 is possible");
    check(&embeds, DIMENSIONS, text("4"), "'4'", "it is an integer");
    check(&listed, DIMENSIONS, Parameter::Int(1), "1", "2, 3 and 4 are possible");
    check(&classifies, DIMENSIONS, Parameter::Int(2), "2", "only embedding models accept it");
    check(&classifies, NORMALIZE, Parameter::Bool(true), "true", "only embedding models accept it");
    check(&embeds, RAW_SCORES, Parameter::Bool(true), "true", "embedding models have no scores");
    check(&embeds, PROMPT, text("passage"), "'passage'", "the prompts of the model: q");
    check(&classifies, PROMPT, text("q"), "'q'", "it has none");
    check(&embeds, TRUNCATION_SIDE, text("middle"), "'middle'", "possible are left, right");
    check(&embeds, TRUNCATE, Parameter::Int(1), "1", "it is true or false");
    check(&embeds, TOKENS_MAX, Parameter::Int(0), "0", "it must be at least 1");
    check(&embeds, TOKENS_MAX, Parameter::Double(1.5), "1.5", "it is an integer");
}

#[test]
fn texts_that_cannot_be_read_and_too_many_of_them_are_rejected() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let broken = model.refused(&[b"a", b"\xff"], &[]);
    assert_eq!(broken.code(), Code::InvalidArg);
    assert!(broken.message().starts_with("text 1 of the request: it is not UTF-8"), "{broken}");
    let (request, checked) = model.request(&vec![&b"a"[..]; 65_537], &[]);
    let many = model.text().divide(&request, &checked).map(drop).expect_err("too many");
    assert!(many.message().contains("65537 texts") && many.message().contains("the limit is 65536"), "{many}");
}

#[test]
fn texts_and_rows_in_shared_memory_are_copied_once_and_checked_again() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let expected = model.rows(&["a b", "c"], &[]);
    let raw = strings(&[b"a b", b"c"]).to_vec().expect("in memory");
    let key = format!("nereid_text_{}", std::process::id());
    let path = format!("/dev/shm/{key}");
    std::fs::write(&path, [&raw[..], &[0; 64]].concat()).expect("/dev/shm is writable");
    let regions = RegionRegistry::default();
    regions.register("r", &key, 0, raw.len() as u64 + 64).expect("fits");
    let at = |offset: usize, size: usize| regions.resolve("r", offset as u64, size as u64).expect("inside");
    let ask = |size: usize| {
        let (mut request, mut checked) = model.request(&[b"a b", b"c"], &[]);
        request.inputs[0].data = Data::Region(at(0, raw.len()));
        let form = protocol::OutputForm::default();
        request.outputs.push(RequestedOutput { name: "row".into(), form, region: Some(at(raw.len(), size)) });
        checked.outputs = [(0, Some(0))].into_iter().collect();
        model.answer_to(&request, &checked, 2)
    };
    let outcome = ask(32).expect("answers");
    assert!(matches!(outcome.outputs[0].data, Data::Region(_)));
    assert_eq!(Rows::of(&outcome), expected);
    let small = ask(31).map(drop).expect_err("is too small");
    assert!(small.message().contains("(31 bytes) should be at least 32 bytes to hold the results"), "{small}");
    // A length that the client changed after the request was checked.
    std::fs::write(&path, [&9u32.to_le_bytes()[..], &raw[4..], &[0; 64]].concat()).expect("written");
    let changed = ask(32).map(drop).expect_err("is no text");
    assert_eq!(changed.code(), Code::InvalidArg);
    assert!(changed.message().starts_with("expected 2 string elements for inference input 'text'"), "{changed}");
    let _ = std::fs::remove_file(path);
}

#[test]
fn values_that_are_no_numbers_are_errors_of_the_model() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let (request, checked) = model.request(&[b"a"], &[]);
    let division = model.text().divide(&request, &checked).expect("divided");
    for wrong in [f32::NAN, f32::INFINITY] {
        let output = protocol::OutputTensor {
            name: "row".into(),
            index: 0,
            datatype: DataType::Fp32,
            shape: Shape::from_slice(&[1, 4]),
            data: f32s([1.0, wrong, 1.0, 1.0]),
            form: Default::default(),
        };
        let outputs = [output].into_iter().collect();
        let put = division.put(0, &InferResponse { outputs, ..InferResponse::default() });
        assert_eq!(put, Err(Error::internal(format!("model 'm' returned {wrong}")).by_model()));
    }
    assert!(division.join().is_err());
}

#[test]
fn a_token_that_the_graph_does_not_have_fails_its_own_text_only() {
    let hub = Hub::embeds();
    // A tokenizer that knows more than the graph.
    let longer = tokenizer().replace("\"query\": 7", "\"query\": 7, \"beyond\": 8");
    std::fs::write(hub.0.0.join("tokenizer.json"), longer).expect("written");
    let model = hub.load(&[], WIDTH as i64);
    let prepare = |text: &str| {
        let (request, checked) = model.request(&[text.as_bytes()], &[]);
        let prepared = model.text().divide(&request, &checked).and_then(|d| d.prepare(0)).expect("prepared");
        entry(prepared)
    };
    let results = run(&*model.model, vec![prepare("a"), prepare("beyond"), prepare("b")]);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_batch_whose_requests_are_cancelled_does_not_run() {
    let model = Hub::embeds().load(&[], WIDTH as i64);
    let (request, checked) = model.request(&[b"a", b"b"], &[]);
    let division = model.text().divide(&request, &checked).expect("divided");
    let mut entries: Vec<_> = (0..2).map(|text| entry(division.prepare(text).expect("prepared"))).collect();
    let control = RunControl::new(2);
    (0..2).for_each(|_| control.cancel_one());
    model.model.execute(0, &mut Batch::new(&mut entries), &control);
    for entry in entries {
        assert_eq!(entry.result.expect("a result").map(drop).expect_err("is cancelled").code(), Code::Cancelled);
    }
}

#[test]
fn models_without_batches_take_lists() {
    let hub = Hub::embeds();
    let signature = one_text(0, &[-1], &[-1, WIDTH as i64]);
    let model = Loaded { model: hub.load_as(&[], signature.clone()).expect("loads"), signature };
    let expected = [&[2, 4, 3][..], &[2, 5, 3]].map(|ids| normalized(&mean(ids, &ZEROS)));
    model.rows(&["a", "b"], &[]).is(&[2, 4], &expected.concat());
}

#[test]
fn configurations_and_graphs_that_do_not_fit_are_rejected_with_what_is_needed() {
    let embeds = Hub::embeds();
    let check = |hub: &Hub, signature: Signature, needed: &str| {
        let error = hub.load_as(&[], signature).map(drop).expect_err("does not fit");
        assert!(error.code() == Code::InvalidArg && error.message().contains(needed), "{error}");
    };
    check(&embeds, one_text(8, &[2], &[4]), "has TYPE_STRING [1], or [-1] with max_batch_size 0");
    check(&embeds, one_text(8, &[-1], &[4]), "has TYPE_STRING [1], or [-1] with max_batch_size 0");
    check(&embeds, one_text(8, &[1], &[3]), "has TYPE_FP32 [4], or [-1,4] with max_batch_size 0");
    check(&embeds, one_text(0, &[-1], &[4]), "has TYPE_FP32 [4], or [-1,4] with max_batch_size 0");
    let scores = Hub::classifies(I64, &["relevant"]);
    check(&scores, one_text(8, &[1], &[1]), "has TYPE_STRING [2], or [-1,2] with max_batch_size 0: pairs of texts");
    let two = signature(8, vec![input("text", DataType::Bytes, &[1]), input("b", DataType::Bytes, &[1])], vec![]);
    check(&embeds, two, "has 2 inputs and 0 outputs: a model of the backend 'text' has one of each");

    let plain = Hub::new(
        &identity(F32, &[D::S("batch"), D::N(4)]),
        &[("config.json", r#"{"architectures": ["BertModel"], "max_position_embeddings": 8}"#)],
    );
    let error = plain.open(&[]).map(drop).expect_err("another graph");
    assert!(error.message().contains("the inputs 'I' FP32 [-1,4] and the outputs 'O' FP32 [-1,4]"), "{error}");
    assert!(error.message().contains("needs the inputs 'input_ids' and 'attention_mask'"), "{error}");
    let wrong = embeds.open(&[("max_batch_tokens", "0")]).map(drop).expect_err("no number");
    assert!(wrong.message().contains("parameter 'max_batch_tokens' is '0': it is a number from 1 to"), "{wrong}");
    let set = embeds.load(&[("max_batch_tokens", "77")], 4);
    assert_eq!(set.text().batch_tokens_max(), 77);
}

#[test]
fn a_model_declares_its_text_and_its_row() {
    let check = |hub: &Hub, inputs: &[i64], name: &str, width: i64| {
        let io = hub.open(&[]).expect("opens").io().expect("declares");
        assert_eq!((&*io.inputs[0].name, io.inputs[0].datatype), ("text", Some(DataType::Bytes)));
        assert_eq!((&io.inputs[0].shape[..], io.inputs.len(), io.outputs.len()), (inputs, 1, 1));
        let output = &io.outputs[0];
        assert_eq!((&*output.name, output.datatype, &output.shape[..]), (name, Some(DataType::Fp32), &[-1, width][..]));
    };
    check(&Hub::embeds(), &[-1, 1], "embedding", 4);
    check(&Hub::classifies(I64, &["relevant"]), &[-1, 2], "score", 1);
    check(&Hub::classifies(I64, &["x", "y"]), &[-1, 1], "probabilities", 2);
}
