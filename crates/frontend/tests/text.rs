//! Text endpoints over models that declare a role: forms, names, errors, splitting into calls.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads")]
#![allow(missing_docs)]

mod common;
use backend::{Backend, Batch, Marks, Model, OpenSpec, Opened, Outcome, RunControl, now_ns};
use bytes::Bytes;
use common::{Response, Server, publish_config};
use options::TextAliasOption;
use protocol::pb::inference as pb;
use protocol::{OutputTensor, Signature};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tensor::{DataType, Result};

/// A model whose rows say what it got: of a text its length, of a pair the length of the second; then 1 and 0.5.
#[derive(Clone, Default)]
struct Lengths {
    /// Shapes of the inputs of each call.
    shapes: Arc<Mutex<Vec<Vec<i64>>>>,
}

struct LengthsModel(Lengths, Arc<Signature>);

impl Backend for Lengths {
    fn name(&self) -> &'static str {
        "lengths"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(self.clone()))
    }
}

impl Opened for Lengths {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(LengthsModel(*self, signature)))
    }
}

impl Model for LengthsModel {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        let start = now_ns();
        for entry in batch.requests.iter_mut() {
            let input = &entry.request.inputs[0];
            self.0.shapes.lock().unwrap().push(input.shape.to_vec());
            let raw = input.data.to_bytes().unwrap();
            let (mut rest, mut texts) = (&raw[..], Vec::new());
            while let Some((length, tail)) = rest.split_first_chunk::<4>() {
                let (text, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
                texts.push(text);
                rest = tail;
            }
            let (name, output) = (self.1.model.as_str(), &self.1.outputs[0]);
            let texts: Vec<_> = match name {
                "rank" => texts.chunks(2).map(|pair| pair[1]).collect(),
                _ => texts,
            };
            let width = output.dims[output.dims.len() - 1];
            let values = texts.iter().flat_map(|text| {
                let first = if *text == b"nan" { f32::NAN } else { text.len() as f32 };
                [first, 1.0, 0.5].into_iter().take(width as usize)
            });
            let tensor = OutputTensor {
                name: output.name.clone(),
                index: 0,
                datatype: DataType::Fp32,
                shape: [texts.len() as i64, width].into_iter().collect(),
                data: Bytes::from(values.flat_map(f32::to_le_bytes).collect::<Vec<_>>()).into(),
                form: entry.request.outputs[0].form,
            };
            entry.result = Some(Ok(Outcome { outputs: [tensor].into_iter().collect(), parameters: Vec::new() }));
        }
        Marks { inputs_ready: start, inference_end: now_ns(), outputs_ready: now_ns() }
    }
}

fn config(name: &str, role: &str, max_batch_size: i32, dims: &[i64], width: i64) -> pb::ModelConfig {
    let parameter = |value: &str| pb::ModelParameter { string_value: value.into() };
    let output_dims = if max_batch_size > 0 { vec![width] } else { vec![-1, width] };
    pb::ModelConfig {
        name: name.into(),
        backend: "lengths".into(),
        max_batch_size,
        input: vec![pb::ModelInput { name: "T".into(), data_type: 13, dims: dims.to_vec(), ..Default::default() }],
        output: vec![pb::ModelOutput { name: "R".into(), data_type: 11, dims: output_dims, ..Default::default() }],
        instance_group: vec![pb::ModelInstanceGroup { count: 1, ..Default::default() }],
        parameters: [("nereid.text".to_owned(), parameter(role))].into(),
        ..Default::default()
    }
}

struct Texts {
    server: Server,
    model: Lengths,
}

impl Texts {
    fn start() -> Self {
        let model = Lengths::default();
        let alias = |alias: &str, model: &str| TextAliasOption {
            alias: alias.into(),
            model: model.into(),
            tokens: String::new(),
        };
        let server = Server::with_backend_and(Arc::new(model.clone()), |engine, _, _| {
            engine.text_aliases = vec![alias("text-embedding-3-small", "vec")];
        });
        publish_config(&server.engine, &config("vec", "embed", 4, &[1], 3));
        publish_config(&server.engine, &config("rank", "rerank", 0, &[-1, 2], 1));
        publish_config(&server.engine, &config("class", "classify", 0, &[-1], 2));
        Self { server, model }
    }

    fn post(&self, path: &str, body: &Value) -> Response {
        self.server.post(path, "", body.to_string().as_bytes())
    }

    /// The body of a good answer, without ids and times.
    fn good(&self, path: &str, body: Value) -> Value {
        let response = self.post(path, &body);
        assert_eq!(response.status, 200, "{path} {body}: {}", response.text());
        assert!(response.header("x-request-id").is_some());
        let mut answer: Value = serde_json::from_slice(&response.body).unwrap();
        if let Some(members) = answer.as_object_mut() {
            members.retain(|key, _| !["id", "created"].contains(&key.as_str()));
        }
        answer
    }

    /// Status, code, field and text of an error.
    fn bad(&self, path: &str, body: &str) -> (u16, String, String, String) {
        let response = self.server.post(path, "", body.as_bytes());
        let answer: Value = serde_json::from_slice(&response.body).unwrap();
        let error = &answer["error"];
        assert_eq!(error["message"], answer["detail"], "{path} {body}: {answer}");
        assert_eq!(response.header("x-should-retry"), Some("false"));
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (response.status, text("code"), text("param"), text("message"))
    }
}

#[test]
fn embeddings_have_the_form_of_openai() {
    let texts = Texts::start();
    let body = json!({ "model": "vec", "input": ["a", "bcd"], "unknown": [1] });
    let usage = json!({ "prompt_tokens": 0, "total_tokens": 0 });
    let item =
        |index: usize, embedding: Value| json!({ "object": "embedding", "index": index, "embedding": embedding });
    let data = [item(0, json!([1.0, 1.0, 0.5])), item(1, json!([3.0, 1.0, 0.5]))];
    let expected = json!({ "object": "list", "data": data, "model": "vec", "usage": usage });
    assert_eq!(texts.good("/v1/embeddings", body), expected);
    let response = texts.post("/v1/embeddings", &json!({ "model": "vec", "input": "a" }));
    let data = r#"[{"object":"embedding","index":0,"embedding":[1.0,1.0,0.5]}]"#;
    let usage = r#"{"prompt_tokens":0,"total_tokens":0}"#;
    let order = &*format!(r#"{{"object":"list","data":{data},"model":"vec","usage":{usage}}}"#);
    assert_eq!((response.text(), response.header("Content-Type")), (order, Some("application/json")));
    // An alias, a version, base64, the model's own width.
    for name in ["text-embedding-3-small", "vec:1"] {
        let body = json!({ "model": name, "input": "", "encoding_format": "base64", "dimensions": 3 });
        let answer = texts.good("/v1/embeddings", body);
        assert_eq!((&answer["model"], &answer["data"][0]["embedding"]), (&json!(name), &json!("AAAAAAAAgD8AAAA/")));
    }
}

#[test]
fn texts_are_split_into_calls_of_as_many_as_the_model_batches() {
    let texts = Texts::start();
    let input: Vec<_> = (0..70).map(|length| "x".repeat(length)).collect();
    let answer = texts.good("/v1/embeddings", json!({ "model": "vec", "input": input }));
    let rows = answer["data"].as_array().unwrap().iter();
    let lengths: Vec<_> = rows.map(|item| item["embedding"][0].as_f64().unwrap()).collect();
    assert_eq!(lengths, (0..70).map(f64::from).collect::<Vec<_>>(), "in the order of the texts");
    let mut shapes = std::mem::take(&mut *texts.model.shapes.lock().unwrap());
    shapes.sort();
    let mut expected = vec![vec![4, 1]; 17];
    expected.insert(0, vec![2, 1]);
    assert_eq!(shapes, expected);
    texts.good("/classify", json!({ "input": ["a", "b", "c"] }));
    texts.good("/rerank", json!({ "query": "q", "documents": ["a", "b", "c"] }));
    assert_eq!(*texts.model.shapes.lock().unwrap(), [vec![3], vec![3, 2]], "any number in a call");
    // More than a reactor reads and prints.
    let input: Vec<_> = (0..3000).map(|n| format!("text {n} of many")).collect();
    let answer = texts.good("/v1/embeddings", json!({ "model": "vec", "input": input }));
    assert_eq!(answer["data"].as_array().unwrap().len(), 3000);
    assert_eq!(answer["data"][2999]["embedding"][0], 17.0);
}

#[test]
fn cohere_embeds_by_type() {
    let texts = Texts::start();
    let types = ["float", "base64"];
    let body = json!({ "model": "vec", "texts": ["ab"], "input_type": "search_query", "embedding_types": types });
    let expected = json!({
        "embeddings": { "float": [[2.0, 1.0, 0.5]], "base64": ["AAAAQAAAgD8AAAA/"] }, "texts": ["ab"],
        "meta": { "api_version": { "version": "2" }, "billed_units": { "input_tokens": 0 } },
    });
    assert_eq!(texts.good("/v2/embed", body), expected);
    let error = texts.bad("/v2/embed", r#"{"model":"vec","texts":["a"],"embedding_types":["int8"]}"#);
    assert_eq!((error.0, &*error.2), (400, "embedding_types"));
}

#[test]
fn documents_are_ranked_in_each_form() {
    let texts = Texts::start();
    let body = json!({ "model": "rank", "query": "q", "documents": ["a", { "text": "bcd" }, "ef"], "top_n": 2 });
    let first = |with: bool| {
        let item = |index: usize, score: f32, text: &str| match with {
            true => json!({ "index": index, "relevance_score": score, "document": { "text": text } }),
            false => json!({ "index": index, "relevance_score": score }),
        };
        [item(1, 3.0, "bcd"), item(2, 2.0, "ef")]
    };
    for (path, with) in [("/rerank", true), ("/v1/rerank", true), ("/v2/rerank", false)] {
        let answer = texts.good(path, body.clone());
        assert_eq!((&answer["results"], &answer["model"]), (&json!(first(with)), &json!("rank")), "{path}");
        let mut other = body.clone();
        other["return_documents"] = json!(!with);
        assert_eq!(texts.good(path, other)["results"], json!(first(!with)), "{path}");
    }
    let body = json!({ "query": "q", "texts": ["a", "bcd", "ef"], "return_text": true });
    let rank = |index: usize, text: &str, score: f32| json!({ "index": index, "text": text, "score": score });
    assert_eq!(texts.good("/rerank", body), json!([rank(1, "bcd", 3.0), rank(2, "ef", 2.0), rank(0, "a", 1.0)]));
    // A model that embeds ranks by the cosine, which is greatest for the same row.
    let body = json!({ "model": "vec", "query": "ab", "documents": ["abcdefgh", "cd"] });
    let answer = texts.good("/v1/rerank", body);
    assert_eq!(answer["results"][0]["index"], 1);
    assert!((answer["results"][0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-6);
}

#[test]
fn pairs_are_scored_and_texts_are_classified() {
    let texts = Texts::start();
    let scores = |body: Value| {
        let answer = texts.good("/score", body);
        let items = answer["data"].as_array().unwrap().iter();
        items.map(|item| item["score"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(scores(json!({ "text_1": "q", "text_2": ["a", "bc"] })), [1.0, 2.0]);
    assert_eq!(scores(json!({ "text_1": ["q", "r"], "text_2": ["a", "bc"] })), [1.0, 2.0]);
    assert_eq!(scores(json!({ "queries": ["q", "r"], "documents": "abc" })), [3.0, 3.0]);
    let cosines = scores(json!({ "model": "vec", "text_1": "ab", "text_2": ["cd", "abcdefgh"] }));
    assert!((cosines[0] - 1.0).abs() < 1e-6 && cosines[1] < 0.99, "{cosines:?}");
    let error = texts.bad("/v1/score", r#"{"text_1":["a","b"],"text_2":["a","b","c"]}"#);
    assert!(error.0 == 400 && error.3.contains("2 and 3 texts"), "{error:?}");

    let answer = texts.good("/v1/classify", json!({ "model": "class", "input": ["", "ab"] }));
    let item = |index: usize, label: &str, probs: Value| {
        let classes = probs.as_array().unwrap().len();
        json!({ "index": index, "label": label, "probs": probs, "num_classes": classes })
    };
    assert_eq!(answer["data"], json!([item(0, "LABEL_1", json!([0.0, 1.0])), item(1, "LABEL_0", json!([2.0, 1.0]))]));
}

#[test]
fn the_routes_of_tei_take_the_only_model_of_a_role() {
    let texts = Texts::start();
    assert_eq!(texts.good("/embed", json!({ "inputs": "ab", "truncate": true })), json!([[2.0, 1.0, 0.5]]));
    assert_eq!(texts.good("/embed", json!({ "inputs": ["ab", ""] })), json!([[2.0, 1.0, 0.5], [0.0, 1.0, 0.5]]));
    let classes = json!([{ "score": 2.0, "label": "LABEL_0" }, { "score": 1.0, "label": "LABEL_1" }]);
    assert_eq!(texts.good("/predict", json!({ "inputs": "ab" })), classes);
    assert_eq!(texts.good("/predict", json!({ "inputs": ["ab"] })), json!([classes]));
    let response = texts.post("/embed", &json!({ "inputs": "a" }));
    for name in ["x-total-time", "x-inference-time", "x-compute-tokens"] {
        assert!(response.header(name).is_some_and(|value| value.parse::<u64>().is_ok()), "{name}");
    }
    let info: Value = serde_json::from_slice(&texts.server.get("/info").body).unwrap();
    assert_eq!((&info["model_id"], &info["model_type"]), (&json!("vec"), &json!({ "embedding": {} })));
    assert_eq!(texts.server.get("/health").status, 200);
    assert_eq!(texts.server.post("/tokenize", "", b"{\"inputs\":\"a\"}").status, 400, "it has no tokenizer");
    // Two models of a role: one has to be named.
    publish_config(&texts.server.engine, &config("other", "embed", 4, &[1], 3));
    let response = texts.post("/embed", &json!({ "inputs": "a" }));
    let error: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((response.status, &error["error_type"]), (400, &json!("Validation")));
    assert!(error["error"].as_str().unwrap().contains("?model= or in the body: other, vec"), "{error}");
    assert_eq!(texts.good("/embed?model=vec", json!({ "inputs": "a" })), json!([[1.0, 1.0, 0.5]]));
    assert_eq!(texts.good("/embed", json!({ "inputs": "a", "model": "other" })), json!([[1.0, 1.0, 0.5]]));
    for (body, status, kind) in [("{\"inputs\":[]}", 400, "Empty"), ("{\"inputs\":1}", 422, "Tokenizer")] {
        let response = texts.server.post("/embed", "", body.as_bytes());
        let error: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((response.status, &error["error_type"]), (status, &json!(kind)));
    }
}

#[test]
fn invocations_are_told_apart_by_their_fields() {
    let texts = Texts::start();
    let good = |body: Value| texts.good("/invocations", body);
    assert_eq!(good(json!({ "model": "vec", "input": "a" }))["data"][0]["object"], "embedding");
    assert_eq!(good(json!({ "model": "class", "input": "a" }))["data"][0]["num_classes"], 2);
    assert_eq!(good(json!({ "inputs": "a" })), json!([[1.0, 1.0, 0.5]]));
    assert_eq!(good(json!({ "query": "q", "documents": ["a"] }))["results"][0]["index"], 0);
    assert_eq!(good(json!({ "query": "q", "texts": ["a"] })), json!([{ "index": 0, "score": 1.0 }]));
    assert_eq!(good(json!({ "text_1": "q", "text_2": "a" }))["data"][0]["object"], "score");
    assert_eq!(texts.bad("/invocations", "{}").0, 400);
}

#[test]
fn models_with_a_role_are_listed_with_aliases() {
    let texts = Texts::start();
    let get = |path: &str| {
        let response = texts.server.get(path);
        (response.status, serde_json::from_slice::<Value>(&response.body).unwrap())
    };
    let (status, list) = get("/v1/models");
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!((status, ids), (200, vec!["class", "rank", "text-embedding-3-small", "vec"]));
    assert_eq!(list["data"][2]["root"], "vec");
    for name in ["vec", "text-embedding-3-small", "vec:1", "vec%3A1"] {
        let (status, model) = get(&format!("/v1/models/{name}"));
        assert_eq!((status, &model["object"], &model["id"]), (200, &json!("model"), &json!(name.replace("%3A", ":"))));
    }
    for name in ["nothing", "vec:2", "vec:x"] {
        let (status, error) = get(&format!("/v1/models/{name}"));
        assert_eq!((status, &error["error"]["code"]), (404, &json!("model_not_found")), "{name}");
    }
    assert_eq!(get("/v1/models/id").0, 400, "it has no role");
}

#[test]
fn errors_have_the_form_of_openai_wherever_they_are_found() {
    let texts = Texts::start();
    let check = |path: &str, body: &str, status, code: &str, field: &str, text: &str| {
        let error = texts.bad(path, body);
        assert_eq!((error.0, &*error.1, &*error.2), (status, code, field), "{path} {body}: {error:?}");
        assert!(error.3.contains(text), "{path} {body}: {error:?}");
    };
    let embeddings = "/v1/embeddings";
    check(embeddings, "{}", 400, "", "input", "Field required");
    check(embeddings, r#"{"model":"vec"}"#, 400, "", "input", "Field required");
    check(embeddings, r#"{"model":"vec","input":[]}"#, 400, "", "input", "at least 1 item");
    check(embeddings, r#"{"model":"vec","input":[[]]}"#, 400, "", "input", "at least 1 item");
    check(embeddings, r#"{"model":7,"input":"a"}"#, 400, "", "", "Input should be a valid string");
    check(embeddings, r#"{"model":"vec","input":"#, 400, "", "", "EOF");
    check(embeddings, r#"{"model":"vec","input":"\udc00"}"#, 400, "", "", "surrogate");
    check(embeddings, r#"{"model":"vec","input":[9007199254740993]}"#, 400, "", "", "is not a token id");
    check(embeddings, r#"{"model":"vec","input":"a","dimensions":0}"#, 400, "", "dimensions", "the minimum is 1");
    check(embeddings, r#"{"model":"vec","input":"a","dimensions":2}"#, 400, "", "dimensions", "backend 'text'");
    check(embeddings, r#"{"model":"vec","input":[1]}"#, 400, "", "input", "backend 'text'");
    check(embeddings, r#"{"model":"vec","input":"a","truncate":false}"#, 400, "", "truncate", "backend 'text'");
    check(embeddings, r#"{"model":"vec","input":"a","encoding_format":"int8"}"#, 400, "", "", "unknown variant");
    check(embeddings, r#"{"model":"none","input":"a"}"#, 404, "model_not_found", "model", "'none' is not found");
    check(embeddings, r#"{"model":"rank","input":"a"}"#, 400, "", "model", "/v1/rerank or /v1/score");
    check(embeddings, r#"{"model":"id","input":"a"}"#, 400, "", "model", "nereid.text");
    check(embeddings, r#"{"model":"vec","input":["a","nan"]}"#, 500, "", "", "NaN or infinity for text 1");
    check("/v1/rerank", r#"{"model":"class","query":"q","documents":["a"]}"#, 400, "", "model", "/v1/classify");
    check("/v1/rerank", r#"{"query":"q","documents":[]}"#, 400, "", "documents", "at least 1 item");
    check("/v1/rerank", r#"{"query":"q","documents":["a"],"top_n":0}"#, 400, "", "top_n", "at least 1");
    check("/v1/audio/speech", "{}", 404, "", "", "/v1/embeddings");
    check("/v1/moderations", "{}", 404, "", "", "is not supported");
    let deep = format!(r#"{{"model":"vec","input":{}"#, "[".repeat(100_000));
    check(embeddings, &deep, 400, "", "", "");
    // Errors that the endpoint does not see.
    let error = |response: Response| {
        let answer: Value = serde_json::from_slice(&response.body).unwrap();
        (response.status, answer["error"]["type"].as_str().unwrap().to_owned())
    };
    assert_eq!(error(texts.server.get(embeddings)), (405, "invalid_request_error".into()));
    let large = format!("POST {embeddings} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(error(texts.server.ask(&large)), (413, "invalid_request_error".into()));
    // The general form stays everywhere else.
    assert!(texts.server.get("/v2/models/none").text().starts_with("{\"error\":\"Request for unknown model"));
}

#[test]
fn a_request_id_is_repeated_or_made() {
    let texts = Texts::start();
    let id = |sent: &str| {
        let body = br#"{"model":"vec","input":"a"}"#;
        let response = texts.server.post("/v1/embeddings", &format!("X-Request-Id: {sent}\r\n"), body);
        response.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("abc-1"), "abc-1");
    let (first, second) = (id("has space"), id(&"x".repeat(257)));
    assert!(first.starts_with("req-") && second.starts_with("req-") && first != second);
}

#[test]
fn new_requests_are_rejected_while_the_server_exits() {
    let texts = Texts::start();
    texts.server.running.as_ref().unwrap().refuse();
    let response = texts.post("/v1/embeddings", &json!({ "model": "vec", "input": "a" }));
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((response.status, &answer["error"]["message"]), (503, &json!("Server exiting")));
    assert_eq!((response.header("Retry-After"), response.header("retry-after-ms")), (Some("1"), Some("1000")));
}
