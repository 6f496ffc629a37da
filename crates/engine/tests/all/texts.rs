//! Requests that are divided into texts: a text is a word whose length counts as its tokens, and its row is its length.

use crate::support::*;
use backend::{
    Backend, Batch, Capabilities, Division, Marks, Model, OpenSpec, Opened, Outcome, PreparedText, RunControl,
    TextModel, now_ns,
};
use bytes::Bytes;
use engine::{Engine, EngineOptions, ModelVersion, ServerState, TextName};
use parking_lot::Mutex;
use protocol::pb::inference as pb;
use protocol::text::{Dimensions, Role, TextFacts, TextToken, TokenIds};
use protocol::{Checked, InferRequest, InferResponse, InputTensor, OutputForm, OutputTensor, Signature};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tensor::{Code, Data, DataType, Error, Result, Shape};

/// Observations of a test, and its control over runs.
struct Observed {
    /// Lengths of the texts of each run.
    runs: Mutex<Vec<Vec<u32>>>,
    /// Texts that were prepared and not answered, and the most there were.
    ahead: AtomicU32,
    ahead_max: AtomicU32,
    /// If set, each run waits for a message.
    go: Option<Mutex<Receiver<()>>>,
}

#[derive(Clone)]
struct Words {
    observed: Arc<Observed>,
    facts: TextFacts,
}

impl Words {
    fn new(go: Option<Receiver<()>>) -> Self {
        let observed = Observed {
            runs: Mutex::default(),
            ahead: AtomicU32::new(0),
            ahead_max: AtomicU32::new(0),
            go: go.map(Mutex::new),
        };
        let facts = TextFacts {
            role: Role::Embed,
            width: Some(1),
            dimensions: Dimensions::Fixed,
            tokens_max: None,
            labels: Vec::new(),
            is_native: true,
        };
        Self { observed: Arc::new(observed), facts }
    }

    fn served(&self, options: EngineOptions, change: impl FnOnce(&mut pb::ModelConfig)) -> Result<Arc<Engine>> {
        let engine = Engine::new(options, vec![Arc::new(self.clone()) as Arc<dyn Backend>])?;
        engine.set_server_state(ServerState::Ready);
        let input = pb::ModelInput { name: "text".into(), dims: vec![1], data_type: 13, ..Default::default() };
        let output = pb::ModelOutput { name: "row".into(), dims: vec![1], data_type: 11, ..Default::default() };
        let mut config = pb::ModelConfig { input: vec![input], output: vec![output], ..of_numbers("m", "words") };
        config.max_batch_size = 4096;
        change(&mut config);
        publish(&engine, &config)?;
        Ok(engine)
    }
}

impl Backend for Words {
    fn name(&self) -> &'static str {
        "words"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(self.clone()))
    }
}

impl Opened for Words {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(*self))
    }
}

impl Model for Words {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        if let Some(go) = &self.observed.go {
            go.lock().recv_timeout(WITHIN).expect("a sign to go");
        }
        let lengths = batch.requests.iter_mut().map(|entry| {
            let length = u32::try_from(entry.request.inputs[0].shape[1]).expect("a length");
            entry.result =
                Some(if length == 13 { Err(Error::internal("an unlucky text")) } else { Ok(row(&[length])) });
            length
        });
        let lengths = lengths.collect();
        self.observed.runs.lock().push(lengths);
        let now = now_ns();
        Marks { inputs_ready: now, inference_end: now, outputs_ready: now }
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { instances_are_permits: true, ..Capabilities::default() }
    }
    fn text(&self) -> Option<&dyn TextModel> {
        Some(self)
    }
}

fn row(values: &[u32]) -> Outcome {
    let output = OutputTensor {
        name: "row".into(),
        datatype: DataType::Fp32,
        shape: Shape::from_slice(&[values.len() as i64, 1]),
        data: Data::Bytes(values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect()),
        index: 0,
        form: OutputForm::default(),
    };
    Outcome { outputs: [output].into_iter().collect(), parameters: Vec::new() }
}

impl TextModel for Words {
    fn facts(&self) -> &TextFacts {
        &self.facts
    }
    fn batch_tokens_max(&self) -> u32 {
        64
    }
    fn divide(&self, request: &InferRequest, _: &Checked) -> Result<Box<dyn Division>> {
        let bytes = request.inputs[0].data.to_bytes()?;
        let elements = tensor::strings::Strings::new(&bytes).map(|e| String::from_utf8_lossy(e.expect("whole")).into());
        let words: Vec<String> = elements.collect();
        Ok(Box::new(Divided { rows: Mutex::new(vec![0; words.len()]), words, observed: self.observed.clone() }))
    }
    fn tokens(&self, _: &str, _: bool) -> Result<Vec<TextToken>> {
        Ok(Vec::new())
    }
}

struct Divided {
    words: Vec<String>,
    rows: Mutex<Vec<u32>>,
    observed: Arc<Observed>,
}

impl Division for Divided {
    fn texts(&self) -> u32 {
        self.words.len() as u32
    }
    fn bytes(&self) -> usize {
        self.words.iter().map(String::len).sum()
    }
    fn prepare(&self, text: u32) -> Result<PreparedText> {
        let word = &self.words[text as usize];
        match &**word {
            "panic" => panic!("a tokenizer that panics"),
            "bad" => return Err(Error::invalid(format!("text {text} is bad"))),
            _ => {}
        }
        let ahead = self.observed.ahead.fetch_add(1, Ordering::SeqCst) + 1;
        self.observed.ahead_max.fetch_max(ahead, Ordering::SeqCst);
        let tokens = word.len() as u32;
        let input = InputTensor {
            name: "input_ids".into(),
            datatype: Some(DataType::Int32),
            shape: Shape::from_slice(&[1, tokens.into()]),
            data: Data::Bytes(Bytes::from(vec![0; 4 * word.len()])),
        };
        Ok(PreparedText { inputs: [input].into_iter().collect(), tokens })
    }
    fn put(&self, text: u32, response: &InferResponse) -> Result<()> {
        self.observed.ahead.fetch_sub(1, Ordering::SeqCst);
        let value = response.outputs[0].data.to_vec()?;
        self.rows.lock()[text as usize] = f32::from_le_bytes(value[..4].try_into().expect("a number")) as u32;
        Ok(())
    }
    fn join(&self) -> Result<Outcome> {
        Ok(row(&self.rows.lock()))
    }
}

/// A model whose runs wait for the test, or not.
fn words(waits: bool) -> (Words, Option<Sender<()>>) {
    let (send, receive) = channel();
    (Words::new(waits.then_some(receive)), waits.then_some(send))
}

fn texts(words: &[&str]) -> Box<InferRequest> {
    let mut data = Vec::new();
    words.iter().for_each(|word| tensor::strings::push(&mut data, word.as_bytes()));
    let shape = Shape::from_slice(&[words.len() as i64, 1]);
    let input =
        InputTensor { name: "text".into(), datatype: Some(DataType::Bytes), shape, data: Bytes::from(data).into() };
    Box::new(InferRequest { id: "r".into(), inputs: [input].into_iter().collect(), ..InferRequest::default() })
}

fn ask(version: &ModelVersion, words: &[&str]) -> Call {
    try_request(version, texts(words), None).expect("accepted")
}

/// The rows of a response.
fn rows(call: &Call) -> Vec<u32> {
    let answer = call.next_answer();
    let response = answer.response.expect("a response").expect("rows");
    assert_eq!((&*response.id, &*response.model_name), ("r", "m"));
    assert_eq!(response.outputs[0].shape[1..], [1]);
    let bytes = response.outputs[0].data.to_vec().expect("in memory");
    let rows: Vec<_> = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("four")) as u32).collect();
    assert_eq!(response.outputs[0].shape[0], rows.len() as i64);
    rows
}

#[test]
fn rows_are_in_the_order_of_texts_and_the_request_counts_once() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let all = ["one", "three", "of", "different", "lengths", "a", "ab", "abc", "abcd"];
    let lengths: Vec<_> = all.iter().map(|word| word.len() as u32).collect();
    assert_eq!(rows(&ask(&version, &all)), lengths);
    assert_eq!(rows(&ask(&version, &["alone"])), [5]);
    let statistics = version.statistics();
    let runs = words.observed.runs.lock().len() as u64;
    assert_eq!((statistics.success.count, statistics.inference_count, statistics.execution_count), (2, 10, runs));
    assert_eq!((statistics.fail.count, statistics.queue.count, statistics.compute_infer.count), (0, 2, 2));
    assert_eq!(statistics.batches.iter().map(|(rows, _, infer, _)| rows * infer.count).sum::<u64>(), 10);
    settles(&engine, &version);
}

#[test]
fn texts_of_different_requests_run_together_by_length_and_within_the_budget() {
    let (words, go) = words(true);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let first = ask(&version, &["a"]);
    let long = "x".repeat(40);
    let calls = [ask(&version, &[&long, "ab"]), ask(&version, &["abc", &long]), ask(&version, &["abcd"])];
    (0..8).for_each(|_| go.as_ref().expect("waits").send(()).expect("listens"));
    assert_eq!(rows(&first), [1]);
    assert_eq!(calls.each_ref().map(rows), [vec![40, 2], vec![3, 40], vec![4]]);
    let runs = words.observed.runs.lock().clone();
    assert_eq!(runs[0], [1]);
    assert!(runs.iter().all(|run| run.len() == 1 || run.len() as u32 * run.iter().max().unwrap() <= 64), "{runs:?}");
    assert!(runs.iter().any(|run| run.len() >= 3 && *run.iter().max().unwrap() == 4), "{runs:?}");
    settles(&engine, &version);
}

#[test]
fn a_request_of_thousands_of_texts_has_few_prepared_ahead() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |config| instances(config, 2)).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let all: Vec<_> = (0..4000).map(|i| ["a", "abc", "abcdefgh"][i % 3]).collect();
    let lengths: Vec<_> = all.iter().map(|word| word.len() as u32).collect();
    let calls: Vec<_> = (0..3).map(|_| ask(&version, &all)).collect();
    assert!(calls.iter().all(|call| rows(call) == lengths));
    let most = words.observed.ahead_max.load(Ordering::SeqCst);
    assert!(most <= 3 * engine::TEXTS_AHEAD_MAX, "{most} texts of three requests were ahead");
    settles(&engine, &version);
}

#[test]
fn many_requests_have_fewer_texts_ahead_together() {
    let (words, go) = words(true);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let all = vec!["abc"; 1000];
    let calls: Vec<_> = (0..40).map(|_| ask(&version, &all)).collect();
    soon("texts wait", || version.statistics().pending > 4000);
    // Forty times the most of one request would be 10,240. A job may pass the limit before it sees it.
    let most = words.observed.ahead_max.load(Ordering::SeqCst);
    assert!(most < 6000, "{most} texts were ahead");
    let ends = std::thread::spawn(move || while go.as_ref().expect("waits").send(()).is_ok() {});
    assert!(calls.iter().all(|call| rows(call).len() == 1000));
    settles(&engine, &version);
    drop((calls, version, engine, words));
    ends.join().expect("ends with the model");
}

#[test]
fn a_text_that_fails_costs_its_request_only() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let many: Vec<_> = (0..500).map(|i| if i == 300 { "bad" } else { "abc" }).collect();
    let (bad, good) = (ask(&version, &many), ask(&version, &["abc", "abcd"]));
    let error = bad.error();
    assert_eq!((error.code(), error.message()), (Code::InvalidArg, "text 300 is bad"));
    assert_eq!(rows(&good), [3, 4]);
    assert_eq!(ask(&version, &["a", "exactly 13 ch"]).error().message(), "an unlucky text");
    assert!(ask(&version, &["a", "panic"]).error().message().contains("the server panicked"));
    assert_eq!(rows(&ask(&version, &["still"])), [5]);
    settles(&engine, &version);
    let statistics = version.statistics();
    assert_eq!((statistics.success.count, statistics.fail.count), (2, 3));
    assert_eq!(statistics.pending, 0);
}

#[test]
fn a_cancelled_request_leaves_the_queue_with_all_its_texts() {
    let (words, go) = words(true);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let running = ask(&version, &["a"]);
    let many = vec!["abc"; 3000];
    let cancelled = ask(&version, &many);
    soon("texts wait", || version.statistics().pending > 100);
    cancelled.ticket().cancel();
    assert_eq!(cancelled.error().code(), Code::Cancelled);
    soon("none of them waits", || version.statistics().pending == 0);
    go.expect("waits").send(()).expect("listens");
    assert_eq!(rows(&running), [1]);
    settles(&engine, &version);
    assert_eq!(words.observed.runs.lock().len(), 1, "none of them ran");
}

#[test]
fn parameters_of_a_request_keep_its_response_out_of_the_cache() {
    let (words, _) = words(false);
    let options = EngineOptions { response_cache_bytes: Some(1 << 20), ..EngineOptions::default() };
    let cached = |config: &mut pb::ModelConfig| config.response_cache = Some(pb::ModelResponseCache { enable: true });
    let engine = words.served(options, cached).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let runs = || words.observed.runs.lock().len();
    let with = |name: &'static str| {
        let parameters = vec![(name.into(), protocol::Parameter::Int(1))];
        let request = InferRequest { parameters, ..*texts(&["abc"]) };
        rows(&try_request(&version, Box::new(request), None).expect("accepted"))
    };
    assert_eq!((rows(&ask(&version, &["abc"])), runs()), (vec![3], 1));
    assert_eq!((rows(&ask(&version, &["abc"])), runs()), (vec![3], 1), "from the cache");
    assert_eq!((with("dimensions"), runs()), (vec![3], 2), "not from the cache");
    assert_eq!((with("dimensions"), runs()), (vec![3], 3), "nor kept in it");
}

#[test]
fn nor_is_the_response_of_an_ensemble_kept_whose_step_reads_them() {
    let (words, _) = words(false);
    let options = EngineOptions { response_cache_bytes: Some(1 << 20), ..EngineOptions::default() };
    let engine = words.served(options, |_| ()).expect("a model");
    let mut config = ensemble_of("e", "m");
    let input = pb::ModelInput { name: "text".into(), dims: vec![1], data_type: 13, ..Default::default() };
    let output = pb::ModelOutput { name: "row".into(), dims: vec![1], data_type: 11, ..Default::default() };
    (config.input, config.output) = (vec![input], vec![output]);
    config.response_cache = Some(pb::ModelResponseCache { enable: true });
    if let Some(pb::model_config::SchedulingChoice::EnsembleScheduling(graph)) = &mut config.scheduling_choice {
        graph.step[0].input_map = [("text".to_owned(), "text".to_owned())].into();
        graph.step[0].output_map = [("row".to_owned(), "row".to_owned())].into();
    }
    let version = publish(&engine, &config).expect("an ensemble");
    let runs = |parameters: Vec<_>| {
        let request = InferRequest { parameters, ..*texts(&["abc"]) };
        let call = try_request(&version, Box::new(request), None).expect("accepted");
        call.next_answer().response.expect("a response").expect("rows");
        words.observed.runs.lock().len()
    };
    let with = || vec![("dimensions".into(), protocol::Parameter::Int(1))];
    assert_eq!([runs(vec![]), runs(vec![]), runs(with()), runs(with()), runs(vec![])], [1, 1, 2, 3, 3]);
}

#[test]
fn the_texts_of_one_request_do_not_fill_a_limited_queue() {
    let (words, _) = words(false);
    let policy = pb::ModelQueuePolicy { max_queue_size: 10, ..Default::default() };
    let limited = pb::ModelDynamicBatching { default_queue_policy: Some(policy), ..Default::default() };
    let engine = words.served(EngineOptions::default(), |config| dynamic(config, limited)).expect("a model");
    let version = engine.model("m", "").expect("serves");
    assert_eq!(rows(&ask(&version, &["abc"; 500])), [3; 500]);
}

#[test]
fn texts_start_few_threads() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let calls: Vec<_> = (0..4).map(|_| ask(&version, &["abcdefgh"; 4000])).collect();
    let mut most = 0.0;
    let mut left: Vec<_> = calls.iter().collect();
    while !left.is_empty() {
        left.retain(|call| call.answers.try_recv().is_err());
        let gauges = engine.snapshot().gauges;
        let threads = gauges.iter().find(|gauge| gauge.0 == "nereid_worker_threads").expect("a gauge").2;
        most = f64::max(most, threads);
        std::thread::yield_now();
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    assert!(most <= 4.0 * cores + 4.0, "{most} threads for four requests");
}

#[test]
fn an_empty_request_and_one_above_the_batch_size_are_answered() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |config| config.max_batch_size = 2).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let error = try_request(&version, texts(&["a", "b", "c"]), None).err().expect("too many");
    assert!(error.message().contains("batch-size must be <= 2"), "{error:?}");
    assert_eq!(rows(&ask(&version, &["a", "bc"])), [1, 2]);
    let (any, _) = self::words(false);
    let engine = any.served(EngineOptions::default(), |config| {
        config.max_batch_size = 0;
        config.input[0].dims = vec![-1, 1];
        config.output[0].dims = vec![-1, 1];
    });
    let engine = engine.expect("a model");
    let version = engine.model("m", "").expect("serves");
    assert_eq!(rows(&ask(&version, &["a", "bc", "def"])), [1, 2, 3]);
    assert_eq!(rows(&ask(&version, &[])), [0; 0]);
    let runs = any.observed.runs.lock().iter().map(Vec::len).sum::<usize>();
    assert_eq!(runs, 3);
}

#[test]
fn the_first_text_tells_why_its_batch_began() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |_| ()).expect("a model");
    let version = engine.model("m", "").expect("serves");
    let trace = trace::Trace::measured();
    let request = InferRequest { trace: Some(trace.clone()), ..*texts(&["a", "abc"]) };
    let call = try_request(&version, Box::new(request), None).expect("accepted");
    assert_eq!(rows(&call), [1, 3]);
    assert_eq!(trace.phases().cause.get().copied(), Some("idle_instance"));
}

#[test]
fn warm_up_runs_the_texts_of_its_samples() {
    let (words, _) = words(false);
    let engine = words.served(EngineOptions::default(), |config| {
        let zeros = pb::model_warmup::input::InputDataType::ZeroData(true);
        let input = pb::model_warmup::Input { data_type: 13, dims: vec![1], input_data_type: Some(zeros) };
        let inputs = [("text".to_owned(), input)].into();
        config.model_warmup = vec![pb::ModelWarmup { name: "w".into(), batch_size: 3, inputs, count: 2 }];
    });
    let engine = engine.expect("a model");
    let version = engine.model("m", "").expect("serves");
    assert_eq!(*words.observed.runs.lock(), [[0, 0, 0], [0, 0, 0]]);
    settles(&engine, &version);
    assert_eq!(rows(&ask(&version, &["abc"])), [3]);
}

#[test]
fn schedules_without_texts_are_refused() {
    let (words, _) = words(false);
    let sequences = |config: &mut pb::ModelConfig| {
        let sequences = pb::ModelSequenceBatching::default();
        config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(sequences));
    };
    let ordered = |config: &mut pb::ModelConfig| {
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    };
    for (change, what) in [
        (&sequences as &dyn Fn(&mut pb::ModelConfig), "sequence_batching"),
        (&ordered, "preserve_ordering"),
        (&decoupled, "decoupled: true"),
    ] {
        let error = words.served(EngineOptions::default(), change).err().expect("refused");
        assert!(error.message().contains(what) && error.message().contains("remove it"), "{error:?}");
    }
}

#[test]
fn models_have_aliases_and_versions_in_names() {
    let parameter = |value: &str| pb::ModelParameter { string_value: value.into() };
    let (words, _) = words(false);
    let option = engine::TextAliasOption { alias: "big".into(), model: "m:1".into(), tokens: "o200k_base".into() };
    let options = EngineOptions { text_aliases: vec![option], ..EngineOptions::default() };
    let engine = words.served(options, |config| {
        config.parameters.insert("nereid.alias".into(), parameter("small tokens=cl100k_base; other"));
    });
    let engine = engine.expect("a model");
    let name = |model: &str, version, token_ids| (model.to_owned(), version, token_ids);
    for (asked, expected) in [
        ("m", name("m", None, TokenIds::Undeclared)),
        ("m:1", name("m", Some(1), TokenIds::Undeclared)),
        ("small", name("m", None, TokenIds::Cl100kBase)),
        ("small:1", name("m", Some(1), TokenIds::Cl100kBase)),
        ("other", name("m", None, TokenIds::Undeclared)),
        ("big", name("m", Some(1), TokenIds::O200kBase)),
        ("unknown", name("unknown", None, TokenIds::Undeclared)),
        ("unknown:+1", name("unknown:+1", None, TokenIds::Undeclared)),
    ] {
        let TextName { model, version, token_ids, is_alias } = engine.text_name(asked);
        assert_eq!((model, version, token_ids), expected, "{asked}");
        assert_eq!(is_alias, ["small", "small:1", "other", "big"].contains(&asked), "{asked}");
    }
    let aliases: Vec<_> = engine.text_aliases().into_iter().map(|alias| alias.alias).collect();
    assert_eq!(aliases, ["big", "other", "small"]);
    assert_eq!(
        engine.text_models().iter().map(|(v, role)| (v.signature.model.to_string(), *role)).collect::<Vec<_>>(),
        [("m".to_owned(), Role::Embed)]
    );
}

#[test]
fn any_model_with_texts_has_the_role_of_its_configuration() {
    let parameter = |value: &str| pb::ModelParameter { string_value: value.into() };
    let with = |role: &str, change: fn(&mut pb::ModelConfig)| {
        let role = parameter(role);
        try_model(
            |config| {
                config.parameters.insert("nereid.text".into(), role);
                change(config);
            },
            |_, _, _| (),
        )
    };
    let texts: fn(&mut pb::ModelConfig) = |config| config.input[0].data_type = 13;
    let (engine, version) = with("classify", texts).expect("a model");
    let facts = version.text_facts().expect("a role");
    assert_eq!((facts.role, facts.width, facts.is_native), (Role::Classify, Some(1), false));
    assert_eq!(engine.text_models().len(), 1);
    let error = |model: Result<()>| model.expect_err("refused").message().to_owned();
    let unknown = error(with("embedding", texts).map(drop));
    assert!(unknown.contains("'embedding'") && unknown.contains("'embed', 'rerank', 'classify'"), "{unknown}");
    let numbers = error(with("embed", |_| ()).map(drop));
    assert!(numbers.contains("without an input of TYPE_STRING"), "{numbers}");
    let alias = try_model(|c| drop(c.parameters.insert("nereid.alias".into(), parameter("x"))), |_, _, _| ()).map(drop);
    assert!(error(alias).contains("no role: add the parameter 'nereid.text'"));
}
