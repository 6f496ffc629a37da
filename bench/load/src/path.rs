//! The infer path of each front end without sockets: parse, infer, encode, on one thread, `--n` times. What the CI guard counts
//! instructions of.
//!
//! It runs the calls the front ends make, in their order: model lookup, parse against its signature (a head that is known), run inline, encode. The
//! model is the native identity, so that ONNX Runtime's own instructions, which are not ours to guard, stay out of the count.

use crate::arguments::{Arguments, Failure};
use backend::OpenSpec;
use bytes::Bytes;
use engine::{Engine, EngineOptions, ModelVersion, PublishSpec, ServerState, Started};
use prost::Message;
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse};
use std::hint::black_box;
use std::sync::Arc;

const MODEL: &str = "identity";

fn config() -> pb::ModelConfig {
    let tensor = |name: &str| (name.to_owned(), vec![16], pb::DataType::TypeInt32 as i32);
    let input = |name: &str| {
        let (name, dims, data_type) = tensor(name);
        pb::ModelInput { name, dims, data_type, ..Default::default() }
    };
    let output = |name: &str| {
        let (name, dims, data_type) = tensor(name);
        pb::ModelOutput { name, dims, data_type, ..Default::default() }
    };
    pb::ModelConfig {
        name: MODEL.into(),
        backend: "identity".into(),
        max_batch_size: 8,
        input: vec![input("INPUT0"), input("INPUT1")],
        output: vec![output("OUTPUT0"), output("OUTPUT1")],
        instance_group: vec![pb::ModelInstanceGroup { name: MODEL.into(), count: 1, kind: 2, ..Default::default() }],
        ..Default::default()
    }
}

fn engine() -> Result<Arc<Engine>, Failure> {
    // Under a simulator nothing is cheap; the path that is guarded is the inline one all the same.
    let options = EngineOptions { inline_cost_max_ns: 1_000_000_000, ..EngineOptions::default() };
    let engine = Engine::new(options, vec![Arc::new(backend_test::IdentityBackend)])?;
    let config = Bytes::from(config().encode_to_vec());
    let spec = OpenSpec {
        model: MODEL.into(),
        version: 1,
        version_directory: "1".into(),
        model_directory: ".".into(),
        config: config.clone(),
        settings: Vec::new(),
    };
    let opened = engine.open("identity", spec)?;
    engine.publish(opened.handle, PublishSpec { config, ..Default::default() })?;
    engine.set_server_state(ServerState::Ready);
    Ok(engine)
}

fn infer(model: &Arc<ModelVersion>, request: InferRequest) -> Result<InferResponse, Failure> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    match model.start(request, || Box::new(move |r| drop(send.send(r))))? {
        Started::Answered(result) => Ok(result?),
        // The first few, until the model is known to be cheap.
        Started::Queued(_) => Ok(receive.recv()??),
    }
}

fn repeat(a: &Arguments, mut once: impl FnMut() -> Result<usize, Failure>) -> Result<(), Failure> {
    let n: u64 = a.number("n", 1000)?;
    let mut bytes = 0;
    for _ in 0..n {
        bytes += once()?;
    }
    println!("{{\"n\":{n},\"bytes\":{bytes}}}");
    Ok(())
}

pub fn http(a: &Arguments) -> Result<(), Failure> {
    let engine = engine()?;
    let input = |n: &str| {
        format!(r#"{{"name":"{n}","shape":[1,16],"datatype":"INT32","parameters":{{"binary_data_size":64}}}}"#)
    };
    let output = |n: &str| format!(r#"{{"name":"{n}","parameters":{{"binary_data":true}}}}"#);
    let (inputs, outputs) = (["INPUT0", "INPUT1"].map(input), ["OUTPUT0", "OUTPUT1"].map(output));
    let head = format!(r#"{{"inputs":[{}],"outputs":[{}]}}"#, inputs.join(","), outputs.join(","));
    let mut body = head.clone().into_bytes();
    body.extend_from_slice(&[1; 128]);
    let (body, limits) = (Bytes::from(body), protocol::http::Limits::default());
    let mut heads = protocol::http::HeadCache::default();
    repeat(a, || {
        let model = engine.model(MODEL, "")?;
        let request = heads.parse_infer(&body, Some(head.len()), &model.signature, &*engine, &limits)?;
        let response = infer(&model, request)?;
        black_box(protocol::http::encode_infer(&response, &model.signature))?;
        Ok(response.outputs.len())
    })
}

pub fn grpc(a: &Arguments) -> Result<(), Failure> {
    let engine = engine()?;
    let tensor = |name: &str| pb::model_infer_request::InferInputTensor {
        name: name.into(),
        datatype: "INT32".into(),
        shape: vec![1, 16],
        ..Default::default()
    };
    let request = pb::ModelInferRequest {
        model_name: MODEL.into(),
        inputs: vec![tensor("INPUT0"), tensor("INPUT1")],
        raw_input_contents: vec![Bytes::from(vec![1; 64]), Bytes::from(vec![1; 64])],
        ..Default::default()
    };
    let message = Bytes::from(request.encode_to_vec());
    repeat(a, || {
        let head = protocol::grpc::peek(&message)?;
        let model = engine.model(MODEL, "")?;
        let request = head.into_request(&model.signature, &*engine)?;
        let response = infer(&model, request)?;
        black_box(protocol::grpc::encode(&response, &model.signature))?;
        Ok(response.outputs.len())
    })
}
