//! The infer path of each front end without sockets: parse, infer, encode, on one thread, `--n` times. What the CI
//! guard counts instructions of.
//!
//! `many` is an exception: many answers of one request, in the engine alone.
//!
//! `http1` is another: a whole HTTP server with a connection over loopback, without what the kernel does. Reading and
//! writing the heads of requests and answers is as much as the rest. `text` is a text to `/v1/embeddings` in such a
//! server, of a model that computes nothing.
//!
//! It runs the calls the front ends make, in their order: model lookup, parse against its signature (a head that is
//! known), run inline, encode. The model is the native identity, so that ONNX Runtime's own instructions, which are not
//! ours to guard, stay out of the count.

use crate::arguments::{Arguments, Failure};
use backend::gather::rows_of;
use backend::{Backend, Batch, BatchEntry, Marks, Model, OpenSpec, Opened, Outcome, RunControl, now_ns, scatter};
use bytes::{Buf, Bytes, BytesMut};
use engine::{Engine, EngineOptions, EngineResponse, ModelVersion, PublishSpec, ServerState, Started};
use frontend::{Argument, Control, ControlOperation, ControlReply, FrontendOptions, HttpOptions, ListenOptions};
use http2::parts::{FrameHead, PREFACE};
use http2::{Field, Machine, Options};
use load::grpc::literals;
use load::messages::framed;
use prost::Message;
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, InputTensor, Signature};
use smallvec::SmallVec;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tensor::{DataType, Shape};

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
    engine_of(&config())
}

/// Values of a vector of [`Stub`].
const WIDTH: usize = 384;

/// A backend, and its model: zeros for each text.
struct Stub;

impl Backend for Stub {
    fn name(&self) -> &'static str {
        "stub"
    }

    fn open(&self, _: &OpenSpec) -> tensor::Result<Box<dyn Opened>> {
        Ok(Box::new(Self))
    }
}

impl Opened for Stub {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, signature: Arc<Signature>) -> tensor::Result<Arc<dyn Model>> {
        Ok(Arc::new(StubModel { signature }))
    }
}

struct StubModel {
    signature: Arc<Signature>,
}

impl StubModel {
    fn answer(&self, entry: &BatchEntry) -> tensor::Result<Outcome> {
        let rows = usize::try_from(rows_of(entry)).unwrap_or(0);
        let mut outcome = Outcome::default();
        for &(index, slot) in &entry.checked.outputs {
            let Some(spec) = self.signature.outputs.get(usize::from(index)) else { continue };
            let data = Bytes::from(vec![0; rows * WIDTH * 4]).into();
            let shape = Shape::from_slice(&[rows as i64, WIDTH as i64]);
            outcome.outputs.push(scatter::output(entry, spec, (index, slot), shape, data)?);
        }
        Ok(outcome)
    }
}

impl Model for StubModel {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        let at = now_ns();
        for entry in batch.requests.iter_mut().filter(|entry| entry.result.is_none()) {
            entry.result = Some(self.answer(entry));
        }
        Marks { inputs_ready: at, inference_end: at, outputs_ready: now_ns() }
    }
}

/// A short text to `/v1/embeddings`, answered with base64, as the official clients ask.
pub fn text(a: &Arguments) -> Result<(), Failure> {
    let embed = pb::ModelParameter { string_value: "embed".into() };
    let config = pb::ModelConfig {
        name: MODEL.into(),
        backend: "stub".into(),
        max_batch_size: 8,
        input: vec![pb::ModelInput {
            name: "text".into(),
            dims: vec![1],
            data_type: pb::DataType::TypeString as i32,
            ..Default::default()
        }],
        output: vec![pb::ModelOutput {
            name: "embedding".into(),
            dims: vec![WIDTH as i64],
            data_type: pb::DataType::TypeFp32 as i32,
            ..Default::default()
        }],
        parameters: [("nereid.text".to_owned(), embed)].into(),
        instance_group: vec![pb::ModelInstanceGroup { name: MODEL.into(), count: 1, kind: 2, ..Default::default() }],
        ..Default::default()
    };
    let body = format!(r#"{{"model":"{MODEL}","input":"The food was delicious","encoding_format":"base64"}}"#);
    let more = "Content-Type: application/json\r\nAuthorization: Bearer any\r\n";
    http1_path(a, engine_of(&config)?, vec![wire("/v1/embeddings", body.as_bytes(), more)], |_, _| ())
}

/// An engine with one model, called `MODEL`.
fn engine_of(config: &pb::ModelConfig) -> Result<Arc<Engine>, Failure> {
    // Under a simulator nothing is cheap; the path that is guarded is the inline one all the same.
    let options = EngineOptions { inline_cost_max_ns: 1_000_000_000, ..EngineOptions::default() };
    let mut backends = backend_test::all();
    backends.push(Arc::new(Stub));
    let engine = Engine::new(options, backends)?;
    let (backend, config) = (&config.backend, Bytes::from(config.encode_to_vec()));
    let spec = OpenSpec {
        model: MODEL.into(),
        version: 1,
        version_directory: "1".into(),
        model_directory: ".".into(),
        config: config.clone(),
        settings: Vec::new(),
        config_json: String::new(),
        completes: false,
        code_directory: None,
        library: None,
        batching: None,
    };
    let opened = engine.open(backend, spec)?;
    engine.publish(opened.handle, PublishSpec { config, ..Default::default() })?;
    engine.set_server_state(ServerState::Ready);
    Ok(engine)
}

fn infer(model: &Arc<ModelVersion>, request: Box<InferRequest>) -> Result<Box<InferResponse>, Failure> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    match model.call(request, || Arc::new(move |answer: EngineResponse| drop(send.send(answer))), None)? {
        Started::Answered(result) => Ok(result?),
        // The first few, until the model is known to be cheap.
        Started::Queued(_) => Ok(receive.recv()?.response.ok_or("no response")??),
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

/// Heads that repeat: the case of a client that sends no ids.
pub fn http(a: &Arguments) -> Result<(), Failure> {
    let head = http_head("", 1);
    let (body, length) = (http_body(&head, 1), head.len());
    http_path(a, |_| (body.clone(), length))
}

/// Requests that differ: each has an id of its own, and one, two or four rows.
pub fn http_varied(a: &Arguments) -> Result<(), Failure> {
    let ring = varied_bodies();
    http_path(a, |i| {
        let (body, length) = &ring[i % ring.len()];
        let mut body = body.clone();
        count_up(&mut body, i);
        (Bytes::from(body), *length)
    })
}

const ID: &str = r#"{"id":"request-00000000","#;

/// Bodies of one, two and four rows, and the lengths of their heads.
fn varied_bodies() -> [(Vec<u8>, usize); 3] {
    std::array::from_fn(|i| {
        let head = http_head(&ID[1..], 1 << i);
        (http_body(&head, 1 << i).to_vec(), head.len())
    })
}

/// Gives a body that begins with `ID` the i-th id.
fn count_up(body: &mut [u8], i: usize) {
    let mut left = i;
    for digit in body[ID.len() - 10..ID.len() - 2].iter_mut().rev() {
        *digit = b"0123456789abcdef"[left & 15];
        left >>= 4;
    }
}

/// Nobody asks for control operations here.
struct NoControl;

impl Control for NoControl {
    fn call(&self, _: ControlOperation, _: Argument) -> ControlReply {
        Box::pin(std::future::pending())
    }
}

/// A request as it stands on the wire, and where its body begins.
fn wire(path: &str, body: &[u8], more: &str) -> (Vec<u8>, usize) {
    let (length, host) = (body.len(), "Host: localhost:8000");
    let mut bytes = format!("POST {path} HTTP/1.1\r\n{host}\r\nContent-Length: {length}\r\n{more}\r\n").into_bytes();
    let at = bytes.len();
    bytes.extend_from_slice(body);
    (bytes, at)
}

/// An inference as it stands on the wire.
fn wire_infer(body: &[u8], head_length: usize, more: &str) -> (Vec<u8>, usize) {
    let kind = "Content-Type: application/octet-stream";
    let more = format!("{kind}\r\nInference-Header-Content-Length: {head_length}\r\n{more}");
    wire(&format!("/v2/models/{MODEL}/infer"), body, &more)
}

/// The same request over a connection.
pub fn http1(a: &Arguments) -> Result<(), Failure> {
    let head = http_head("", 1);
    http1_path(a, engine()?, vec![wire_infer(&http_body(&head, 1), head.len(), "")], |_, _| ())
}

/// Requests that differ: id, rows and the fields of their heads.
pub fn http1_varied(a: &Arguments) -> Result<(), Failure> {
    let bodies = varied_bodies();
    let ring = (0..200).map(|i| {
        let (body, length) = &bodies[i % 3];
        let trace = format!("traceparent: 00-{i:032x}-{i:016x}-01\r\n");
        let more = ["", "Accept: */*\r\nUser-Agent: bench/1.0\r\n", "Accept-Encoding: identity\r\n"][i % 7 % 3];
        wire_infer(body, *length, &format!("{trace}{more}"))
    });
    http1_path(a, engine()?, ring.collect(), count_up)
}

/// `ring` is sent in turn, each request when the one before it is answered; `change` gets its body and its number.
fn http1_path(
    a: &Arguments,
    engine: Arc<Engine>,
    mut ring: Vec<(Vec<u8>, usize)>,
    change: impl Fn(&mut [u8], usize),
) -> Result<(), Failure> {
    let options = FrontendOptions {
        listen: ListenOptions {
            http: Some(HttpOptions { address: "127.0.0.1".into(), ..HttpOptions::default() }),
            reactor_threads: 1,
            ..ListenOptions::default()
        },
        ..FrontendOptions::default()
    };
    let running = frontend::serve(engine, Arc::new(NoControl), options)?;
    let mut stream = TcpStream::connect(("127.0.0.1", running.http_port))?;
    stream.set_nodelay(true)?;
    let (mut answer, mut i) = (vec![0; 16 << 10], 0);
    let count = ring.len();
    repeat(a, || {
        let (request, body) = &mut ring[i % count];
        change(&mut request[*body..], i);
        i += 1;
        stream.write_all(request)?;
        // Small enough to come in one piece.
        match stream.read(&mut answer)? {
            n if answer.starts_with(b"HTTP/1.1 200 ") => Ok(n),
            n => Err(String::from_utf8_lossy(&answer[..n]).into_owned().into()),
        }
    })
}

fn http_head(id: &str, rows: usize) -> String {
    let input = |n: &str| {
        let bytes = 64 * rows;
        format!(
            r#"{{"name":"{n}","shape":[{rows},16],"datatype":"INT32","parameters":{{"binary_data_size":{bytes}}}}}"#
        )
    };
    let output = |n: &str| format!(r#"{{"name":"{n}","parameters":{{"binary_data":true}}}}"#);
    let (inputs, outputs) = (["INPUT0", "INPUT1"].map(input), ["OUTPUT0", "OUTPUT1"].map(output));
    format!(r#"{{{id}"inputs":[{}],"outputs":[{}]}}"#, inputs.join(","), outputs.join(","))
}

fn http_body(head: &str, rows: usize) -> Bytes {
    let mut body = head.as_bytes().to_vec();
    body.resize(body.len() + 128 * rows, 1);
    Bytes::from(body)
}

/// `body` gives the i-th request and the length of its head.
fn http_path(a: &Arguments, mut body: impl FnMut(usize) -> (Bytes, usize)) -> Result<(), Failure> {
    let engine = engine()?;
    let limits = protocol::http::Limits::default();
    let mut heads = protocol::http::HeadCache::default();
    let mut i = 0;
    repeat(a, || {
        let model = engine.model(MODEL, "")?;
        let (body, length) = body(i);
        i += 1;
        let request = heads.parse_infer(&body, Some(length), &model.signature, &*engine, &limits)?;
        let response = infer(&model, request)?;
        black_box(heads.encode_infer(&response, &model.signature))?;
        Ok(response.outputs.len())
    })
}

/// A message of a whole inference call.
fn grpc_message(id: &str, rows: usize) -> Bytes {
    let tensor = |name: &str| pb::model_infer_request::InferInputTensor {
        name: name.into(),
        datatype: "INT32".into(),
        shape: vec![rows as i64, 16],
        ..Default::default()
    };
    let request = pb::ModelInferRequest {
        model_name: MODEL.into(),
        id: id.into(),
        inputs: vec![tensor("INPUT0"), tensor("INPUT1")],
        raw_input_contents: vec![Bytes::from(vec![1; 64 * rows]), Bytes::from(vec![1; 64 * rows])],
        ..Default::default()
    };
    Bytes::from(request.encode_to_vec())
}

fn grpc_infer(engine: &Arc<Engine>, message: &Bytes) -> Result<SmallVec<[Bytes; 3]>, Failure> {
    let head = protocol::grpc::peek(message)?;
    let model = engine.model(MODEL, "")?;
    let request = head.into_request(&model.signature, &**engine)?;
    let response = infer(&model, request)?;
    Ok(protocol::grpc::encode(&response, &model.signature)?.into_frame())
}

pub fn grpc(a: &Arguments) -> Result<(), Failure> {
    let (engine, message) = (engine()?, grpc_message("", 1));
    repeat(a, || Ok(black_box(grpc_infer(&engine, &message)?).len()))
}

/// Responses of a request of `many`.
const RESPONSES: usize = 64;

/// Requests of a decoupled model, which runs on a thread of the pool: what the engine and the backend repeat do for 64
/// responses and an end. The sink only counts.
pub fn many(a: &Arguments) -> Result<(), Failure> {
    let input = |name: &str, data_type: pb::DataType, dim: i64| pb::ModelInput {
        name: name.into(),
        dims: vec![dim],
        data_type: data_type as i32,
        ..Default::default()
    };
    let output = |name: &str, data_type: pb::DataType| pb::ModelOutput {
        name: name.into(),
        dims: vec![1],
        data_type: data_type as i32,
        ..Default::default()
    };
    let engine = engine_of(&pb::ModelConfig {
        name: MODEL.into(),
        backend: "repeat".into(),
        input: vec![
            input("IN", pb::DataType::TypeInt32, -1),
            input("DELAY", pb::DataType::TypeUint32, -1),
            input("WAIT", pb::DataType::TypeUint32, 1),
        ],
        output: vec![output("OUT", pb::DataType::TypeInt32), output("IDX", pb::DataType::TypeUint32)],
        model_transaction_policy: Some(pb::ModelTransactionPolicy { decoupled: true }),
        ..Default::default()
    })?;
    let zeros = Bytes::from(vec![0; 4 * RESPONSES]);
    let tensor = |name: &'static str, datatype, count: usize| InputTensor {
        name: name.into(),
        datatype: Some(datatype),
        shape: Shape::from_slice(&[count as i64]),
        data: zeros.slice(..4 * count).into(),
    };
    repeat(a, || {
        let inputs = [
            tensor("IN", DataType::Int32, RESPONSES),
            tensor("DELAY", DataType::Uint32, RESPONSES),
            tensor("WAIT", DataType::Uint32, 1),
        ];
        let request = InferRequest { inputs: inputs.into_iter().collect(), ..InferRequest::default() };
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let seen = AtomicUsize::new(0);
        let sink = move |answer: EngineResponse| {
            let count = seen.fetch_add(1, Ordering::Relaxed) + 1;
            if answer.is_final {
                let _ = send.send(count);
            }
        };
        engine.model(MODEL, "")?.call(Box::new(request), || Arc::new(sink), None)?;
        match receive.recv()? {
            count if count == RESPONSES + 1 => Ok(count),
            count => Err(format!("{count} answers").into()),
        }
    })
}

/// A whole frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&FrameHead { length: payload.len(), kind, flags, stream }.bytes()[..], payload].concat()
}

/// The same calls with everything HTTP/2 does for them: frames and header blocks in, frames and header blocks out.
pub fn http2(a: &Arguments) -> Result<(), Failure> {
    http2_path(a, vec![(framed(&grpc_message("", 1)), Vec::new())])
}

/// Calls that differ: ids, rows, and header fields that enter no table.
pub fn http2_varied(a: &Arguments) -> Result<(), Failure> {
    let call = |i: usize| {
        let fields = [("traceparent", format!("00-{i:032x}-{i:016x}-01")), ("grpc-timeout", format!("{}m", 5000 + i))];
        (framed(&grpc_message(&format!("request-{i:08x}"), 1 << (i % 3))), literals(&fields))
    };
    http2_path(a, (0..200).map(call).collect())
}

/// `calls` are sent in turn: a framed message, and header fields of its own.
fn http2_path(a: &Arguments, calls: Vec<(Bytes, Vec<u8>)>) -> Result<(), Failure> {
    const FIXED: &[(&str, &str)] = &[("content-type", "application/grpc"), ("grpc-status", "0")];
    let engine = engine()?;
    let mut machine = Machine::new(Options { fixed: FIXED, ..Options::default() });
    let (now, mut buffer, mut out) = (Instant::now(), BytesMut::new(), Vec::new());
    buffer.extend_from_slice(PREFACE);
    // Windows as large as can be; then fields that the client's table keeps, as clients do on their first call.
    buffer.extend_from_slice(&frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    buffer.extend_from_slice(&frame(8, 0, 0, &(i32::MAX as u32 - 65_535).to_be_bytes()));
    let first = [&[0x83, 0x86, 0x44, 1, b'/', 0x5f, 16][..], b"application/grpc", &[0x40, 2], b"te", &[8], b"trailers"]
        .concat();
    let again = [0x83, 0x86, 0xc0, 0xbf, 0xbe];
    let (mut id, mut next) = (1, 0);
    repeat(a, || {
        let (body, fields) = &calls[next % calls.len()];
        next += 1;
        let block = if id == 1 { &first[..] } else { &again };
        buffer.extend_from_slice(&frame(1, 4, id, &[block, fields].concat()));
        buffer.extend_from_slice(&frame(0, 1, id, body));
        id += 2;
        machine.receive(&mut buffer, now);
        let (mut request, mut respond) = machine.accept().ok_or("no call came")?;
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(mut piece))) = request.body.poll_data(&mut cx) else {
            return Err("no body came".into());
        };
        piece.advance(5);
        let gone = |_| "the call is over";
        respond.send_head(200, &[Field::Fixed(0)], false).map_err(gone)?;
        for part in grpc_infer(&engine, &piece)? {
            respond.send_data(part, false).map_err(gone)?;
        }
        respond.send_trailers(&[Field::Fixed(1)]).map_err(gone)?;
        drop((request, respond));
        out.clear();
        machine.transmit(&mut out);
        Ok(out.len())
    })
}
