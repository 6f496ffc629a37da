//! Nanoseconds per stage of one small inference, without sockets: parse, infer, encode, over HTTP's and gRPC's forms.
//! `cargo run --release -p nereid-frontend --example path_cost -- LIBONNXRUNTIME MODEL_DIRECTORY`

use backend::OpenSpec;
use bytes::Bytes;
use engine::{Engine, EngineOptions, EngineResponse, PublishSpec, ServerState, Sink, Started};
use prost::Message;
use protocol::pb::inference as pb;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

fn config() -> pb::ModelConfig {
    let input = |name: &str| pb::ModelInput { name: name.into(), data_type: 8, dims: vec![16], ..Default::default() };
    let output = |name: &str| pb::ModelOutput { name: name.into(), data_type: 8, dims: vec![16], ..Default::default() };
    pb::ModelConfig {
        name: "simple".into(),
        backend: "onnxruntime".into(),
        platform: "onnxruntime_onnx".into(),
        max_batch_size: 8,
        input: vec![input("INPUT0"), input("INPUT1")],
        output: vec![output("OUTPUT0"), output("OUTPUT1")],
        instance_group: vec![pb::ModelInstanceGroup { name: "simple".into(), count: 2, kind: 2, ..Default::default() }],
        default_model_filename: "model.onnx".into(),
        scheduling_choice: Some(pb::model_config::SchedulingChoice::DynamicBatching(pb::ModelDynamicBatching {
            preferred_batch_size: vec![8],
            ..Default::default()
        })),
        ..Default::default()
    }
}

fn time(what: &str, mut f: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..20_000 {
            f();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 20_000.0);
    }
    println!("{what:24} {best:8.0} ns");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (library, directory) = (args.next().expect("libonnxruntime"), args.next().expect("model directory"));
    let onnx = backend_onnx::OnnxBackend::new(Some(library.into()));
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(onnx)]).expect("engine");
    let config = Bytes::from(config().encode_to_vec());
    let spec = OpenSpec {
        model: "simple".into(),
        version: 1,
        version_directory: format!("{directory}/1").into(),
        model_directory: directory.into(),
        config: config.clone(),
        settings: Vec::new(),
        config_json: String::new(),
        completes: false,
        code_directory: None,
        library: None,
        batching: None,
    };
    let opened = engine.open("onnxruntime", spec).expect("open");
    engine.publish(opened.handle, PublishSpec { config, ..Default::default() }).expect("publish");
    engine.set_server_state(ServerState::Ready);
    let model = engine.model("simple", "").expect("model");
    let signature = model.signature.clone();

    let input = |n: &str| {
        format!(r#"{{"name":"{n}","shape":[1,16],"datatype":"INT32","parameters":{{"binary_data_size":64}}}}"#)
    };
    let output = |n: &str| format!(r#"{{"name":"{n}","parameters":{{"binary_data":true}}}}"#);
    let head = format!(
        r#"{{"inputs":[{},{}],"outputs":[{},{}]}}"#,
        input("INPUT0"),
        input("INPUT1"),
        output("OUTPUT0"),
        output("OUTPUT1")
    );
    let mut body = head.clone().into_bytes();
    body.extend_from_slice(&[1; 128]);
    let body = Bytes::from(body);
    let limits = protocol::http::Limits::default();
    let parse = || {
        Box::new(protocol::http::parse_infer(&body, Some(head.len()), &signature, &*engine, &limits).expect("parse"))
    };
    let run = |request| {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let sink = || Arc::new(move |answer: EngineResponse| drop(send.send(answer))) as Arc<dyn Sink>;
        let started = model.call(request, sink, None).expect("accepted");
        match started {
            Started::Answered(result) => result,
            Started::Queued(_) => receive.recv().ok().and_then(|answer| answer.response).expect("answered"),
        }
        .expect("succeeded")
    };
    for _ in 0..2000 {
        run(parse());
    }
    let answer = run(parse());
    println!(
        "InferRequest {} InputTensor {} RequestedOutput {} Checked {} BatchEntry {} Outcome {} OutputTensor {} \
         InferResponse {}",
        size_of::<protocol::InferRequest>(),
        size_of::<protocol::InputTensor>(),
        size_of::<protocol::RequestedOutput>(),
        size_of::<protocol::Checked>(),
        size_of::<backend::BatchEntry>(),
        size_of::<backend::Outcome>(),
        size_of::<protocol::OutputTensor>(),
        size_of::<protocol::InferResponse>()
    );
    time("http parse", || drop(black_box(parse())));
    let mut heads = protocol::http::HeadCache::default();
    time("http parse, known head", || {
        drop(black_box(heads.parse_infer(&body, Some(head.len()), &signature, &*engine, &limits)));
    });
    time("lookup", || drop(black_box(engine.model("simple", ""))));
    time("check", || {
        let mut r = parse();
        drop(black_box(signature.check(&mut r)));
    });
    time("parse + infer", || drop(black_box(run(parse()))));
    time("http encode", || drop(black_box(protocol::http::encode_infer(&answer, &signature))));

    let tensor = |name: &str| pb::model_infer_request::InferInputTensor {
        name: name.into(),
        datatype: "INT32".into(),
        shape: vec![1, 16],
        ..Default::default()
    };
    let message = Bytes::from(
        pb::ModelInferRequest {
            model_name: "simple".into(),
            inputs: vec![tensor("INPUT0"), tensor("INPUT1")],
            raw_input_contents: vec![Bytes::from(vec![1; 64]), Bytes::from(vec![1; 64])],
            ..Default::default()
        }
        .encode_to_vec(),
    );
    let parse = || {
        let head = protocol::grpc::peek(&message).expect("peek");
        head.into_request(&signature, &*engine).expect("request")
    };
    time("grpc parse", || drop(black_box(parse())));
    time("grpc parse + infer", || drop(black_box(run(parse()))));
    time("grpc encode", || drop(black_box(protocol::grpc::encode(&answer, &signature))));
}
