//! A real server on loopback with small models, and raw clients that show what is on the wire.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![allow(dead_code, missing_docs)]

use backend::{
    Backend, Batch, InstanceEventsRef, KeyValueCache, Marks, Model, OpenSpec, Opened, Outcome, Readiness, ReadyAnswer,
    RemoteModel, Responder, RunControl, now_ns,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use engine::{Engine, EngineOptions, PublishSpec, ServerMetadata, ServerState};
use frontend::{
    Argument, Control, ControlOperation, ControlReply, FrontEnd, FrontendOptions, GrpcOptions, HttpOptions,
    ListenOptions, serve,
};
use prost::Message;
use protocol::pb::inference as pb;
use protocol::{OutputTensor, Signature};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tensor::{DataType, Error, Result};

/// State of the model `slow`, which runs until it is cancelled or the gate opens.
#[derive(Default)]
pub struct Probe {
    pub started: AtomicU32,
    pub stopped: AtomicU32,
    gate: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Probe {
    pub fn open(&self) {
        self.gate.lock().unwrap().0 = true;
        self.changed.notify_all();
    }
    fn wait_open(&self) {
        let gate = self.gate.lock().unwrap();
        drop(self.changed.wait_timeout_while(gate, Duration::from_secs(10), |(open, _)| !*open).unwrap());
    }
    pub fn wait_started(&self, n: u32) {
        wait_for("the model to start", || self.started.load(Ordering::SeqCst) >= n);
    }
    pub fn wait_stopped(&self, n: u32) {
        wait_for("the model to be stopped", || self.stopped.load(Ordering::SeqCst) >= n);
    }
}

/// The timeout only makes sure that a test ends.
pub fn wait_for(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Fake(Arc<Probe>);
struct FakeOpened(Arc<Probe>);
struct FakeModel {
    probe: Arc<Probe>,
    signature: Arc<Signature>,
}

impl Backend for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(FakeOpened(self.0.clone())))
    }
}

impl Opened for FakeOpened {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(FakeModel { probe: self.0, signature }))
    }
}

impl Model for FakeModel {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, run: &RunControl) -> Marks {
        let start = now_ns();
        let name = self.signature.model.as_str();
        let mut stopped = false;
        if name == "slow" {
            let probe = self.probe.clone();
            let hooked = self.probe.clone();
            probe.gate.lock().unwrap().1 = false;
            let armed = run.arm(|| {
                move || {
                    hooked.gate.lock().unwrap().1 = true;
                    hooked.changed.notify_all();
                }
            });
            probe.started.fetch_add(1, Ordering::SeqCst);
            if armed {
                let gate = probe.gate.lock().unwrap();
                let (gate, _) = probe
                    .changed
                    .wait_timeout_while(gate, Duration::from_secs(10), |(open, stop)| !*open && !*stop)
                    .unwrap();
                stopped = gate.1;
            } else {
                stopped = true;
            }
            run.disarm();
            if stopped {
                probe.stopped.fetch_add(1, Ordering::SeqCst);
            }
        }
        for entry in batch.requests.iter_mut() {
            if ["many", "gated", "endless"].contains(&name) {
                let responder = entry.responder.take().expect("a decoupled model may answer any number of times");
                let data = entry.request.inputs[0].data.to_bytes().expect("in memory");
                let values: Vec<_> = data.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
                let (name, probe) = (name.to_owned(), self.probe.clone());
                std::thread::spawn(move || answer_many(&name, &probe, responder, &values));
                continue;
            }
            entry.result = Some(match name {
                _ if stopped => Err(Error::cancelled("")),
                "fail" => Err(Error::not_found("the model failed")),
                _ => Ok(Outcome {
                    outputs: entry
                        .checked
                        .outputs
                        .iter()
                        .map(|&(index, wanted)| {
                            let input = &entry.request.inputs[0];
                            let form = wanted
                                .map_or(entry.request.default_form, |w| entry.request.outputs[usize::from(w)].form);
                            OutputTensor {
                                name: self.signature.outputs[usize::from(index)].name.clone(),
                                index,
                                datatype: input.datatype.unwrap(),
                                shape: input.shape.clone(),
                                data: input.data.clone(),
                                form,
                            }
                        })
                        .collect(),
                    parameters: entry.request.parameters.clone(),
                }),
            });
        }
        Marks { inputs_ready: start, inference_end: now_ns(), outputs_ready: now_ns() }
    }

    fn key_value_cache(&self) -> Option<KeyValueCache> {
        let has_one = ["id", "many", "fail"].contains(&self.signature.model.as_str());
        has_one.then_some(KeyValueCache { blocks_used: 1, blocks_max: 4, tokens_per_block: 32 })
    }
}

/// Readiness of the model `elsewhere`, which runs outside of this process.
#[derive(Default)]
pub struct ModelReadiness {
    /// Receives the events of its instances.
    pub instances: Mutex<Option<InstanceEventsRef>>,
    /// Whether its code reports its readiness.
    pub has_queries: AtomicBool,
    /// Open queries of its readiness.
    pub queries: Mutex<Vec<ReadyAnswer>>,
}

impl ModelReadiness {
    pub fn instances(&self) -> InstanceEventsRef {
        self.instances.lock().unwrap().clone().expect("it serves")
    }
}

struct OutsideModel(Arc<ModelReadiness>);

impl Backend for OutsideModel {
    fn name(&self) -> &'static str {
        "elsewhere"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Self(self.0.clone())))
    }
}

impl Opened for OutsideModel {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(*self))
    }
}

impl Model for OutsideModel {
    fn execute(&self, _: u32, _: &mut Batch<'_>, _: &RunControl) -> Marks {
        Marks::default()
    }
    fn remote(&self) -> Option<&dyn RemoteModel> {
        Some(self)
    }
}

impl RemoteModel for OutsideModel {
    fn serve(&self, instances: InstanceEventsRef) {
        *self.0.instances.lock().unwrap() = Some(instances);
    }
    fn readiness(&self) -> Readiness {
        if !self.0.has_queries.load(Ordering::SeqCst) {
            return Readiness::Ready;
        }
        let state = self.0.clone();
        Readiness::Ask(Box::new(move |answer| state.queries.lock().unwrap().push(answer)))
    }
}

/// Responses of the decoupled models, sent by their own thread. `many` sends a response for each value, a failure for
/// a negative one. `gated` sends 1, waits for the gate, sends 2, and ends with 3. `endless` sends the values again and
/// again until it is cancelled.
fn answer_many(name: &str, probe: &Probe, responder: Responder, values: &[i32]) {
    let outcome = |values: &[i32]| {
        let output = OutputTensor {
            name: "OUT".into(),
            index: 0,
            datatype: DataType::Int32,
            shape: [values.len() as i64].into_iter().collect(),
            data: Bytes::from(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()).into(),
            form: Default::default(),
        };
        Outcome { outputs: [output].into_iter().collect(), parameters: Vec::new() }
    };
    match name {
        "many" => {
            for &value in values {
                if value < 0 {
                    responder.fail(Error::internal("simulated failure"));
                } else {
                    let _ = responder.send(outcome(&[value]));
                }
            }
            responder.finish(None);
        }
        "gated" => {
            let _ = responder.send(outcome(&[1]));
            probe.wait_open();
            let _ = responder.send(outcome(&[2]));
            responder.finish(Some(Ok(outcome(&[3]))));
        }
        _ => {
            probe.started.fetch_add(1, Ordering::SeqCst);
            let values = vec![0; usize::try_from(values[0]).unwrap()];
            while responder.send(outcome(&values)).is_ok() {}
            responder.finish(None);
            probe.stopped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Time for which an operation with `hold the reactor` in its argument blocks the reactor.
pub const HELD: Duration = Duration::from_secs(2);

/// Repeats its arguments, so that tests can check them.
struct Echo;

impl Control for Echo {
    fn call(&self, operation: ControlOperation, mut argument: Argument) -> ControlReply {
        // Files follow the JSON: their lengths and first bytes.
        let files: String = std::mem::take(&mut argument.files)
            .iter()
            .map(|(name, contents)| format!(" {name}={}:{:02x}", contents.len(), contents[0]))
            .collect();
        let argument = std::mem::take(&mut argument.json) + &files;
        if argument.contains("hold the reactor") {
            std::thread::sleep(HELD);
        }
        Box::pin(async move {
            match operation {
                ControlOperation::RepositoryIndex => {
                    Ok(r#"[{"name":"m","version":"1","state":"READY"},{"name":"n"}]"#.to_owned())
                }
                ControlOperation::RepositoryUnload => Err(Error::unavailable(argument)),
                // A successful load has no response: this one fails with its arguments.
                ControlOperation::RepositoryLoad if argument.starts_with(r#"{"model":"told""#) => {
                    Err(Error::unavailable(argument))
                }
                ControlOperation::LogGet => Ok(r#"{"log_file":"","log_info":true,"log_verbose_level":3}"#.to_owned()),
                ControlOperation::TraceGet => Ok(r#"{"trace_level":["OFF"],"trace_rate":"1000"}"#.to_owned()),
                _ => Ok(argument),
            }
        })
    }
}

pub struct Server {
    pub engine: Arc<Engine>,
    pub probe: Arc<Probe>,
    pub elsewhere: Arc<ModelReadiness>,
    pub running: Option<FrontEnd>,
    pub http: u16,
    pub grpc: u16,
}

impl Server {
    pub fn start() -> Self {
        Self::with(|_, _, _| {})
    }

    pub fn with(change: impl FnOnce(&mut EngineOptions, &mut HttpOptions, &mut GrpcOptions)) -> Self {
        Self::of(0, None, None, change)
    }

    /// A server with a limit of connections.
    pub fn with_room(connections_max: usize) -> Self {
        Self::of(connections_max, None, None, |_, _, _| {})
    }

    /// A server with its own memory budget.
    pub fn with_budget(
        budget: Option<memory::Budget>,
        change: impl FnOnce(&mut EngineOptions, &mut HttpOptions, &mut GrpcOptions),
    ) -> Self {
        Self::of(0, budget, None, change)
    }

    /// A server with one more backend.
    pub fn with_backend(backend: Arc<dyn Backend>, budget: memory::Budget) -> Self {
        Self::of(0, Some(budget), Some(backend), |_, _, _| {})
    }

    /// A server with one more backend and other options.
    pub fn with_backend_and(
        backend: Arc<dyn Backend>,
        change: impl FnOnce(&mut EngineOptions, &mut HttpOptions, &mut GrpcOptions),
    ) -> Self {
        Self::of(0, None, Some(backend), change)
    }

    fn of(
        connections_max: usize,
        budget: Option<memory::Budget>,
        more: Option<Arc<dyn Backend>>,
        change: impl FnOnce(&mut EngineOptions, &mut HttpOptions, &mut GrpcOptions),
    ) -> Self {
        let mut engine_options = EngineOptions {
            metadata: ServerMetadata {
                name: "triton".into(),
                version: "2.73.0".into(),
                extensions: vec!["trace".into()],
            },
            ..EngineOptions::default()
        };
        let mut http = HttpOptions { address: "127.0.0.1".into(), ..HttpOptions::default() };
        let mut grpc = GrpcOptions { address: "127.0.0.1".into(), ..GrpcOptions::default() };
        change(&mut engine_options, &mut http, &mut grpc);
        let probe = Arc::new(Probe::default());
        let elsewhere = Arc::new(ModelReadiness::default());
        let fake: Arc<dyn Backend> = Arc::new(Fake(probe.clone()));
        let backends = [fake, Arc::new(OutsideModel(elsewhere.clone()))].into_iter().chain(more).collect();
        let engine = Engine::new(engine_options, backends).unwrap();
        for (name, decoupled) in [
            ("id", false),
            ("slow", false),
            ("fail", false),
            ("deco", true),
            ("many", true),
            ("gated", true),
            ("endless", true),
        ] {
            publish(&engine, name, "fake", decoupled);
        }
        engine.set_server_state(ServerState::Ready);
        let options = FrontendOptions {
            listen: ListenOptions {
                http: Some(http),
                grpc: Some(grpc),
                reactor_threads: 1,
                ..ListenOptions::default()
            },
            connections_max,
            budget,
            ..FrontendOptions::default()
        };
        let running = serve(engine.clone(), Arc::new(Echo), options).unwrap();
        Self { engine, probe, elsewhere, http: running.http_port, grpc: running.grpc_port, running: Some(running) }
    }

    /// Loads `elsewhere`.
    pub fn load_elsewhere(&self) {
        publish(&self.engine, "elsewhere", "elsewhere", false);
    }

    pub fn connect(&self) -> Client {
        let io = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        io.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        io.set_nodelay(true).unwrap();
        Client { io, buffer: Vec::new() }
    }

    /// Sends one request on its own connection.
    pub fn ask(&self, request: &str) -> Response {
        let mut client = self.connect();
        client.send(request.as_bytes());
        client.response()
    }

    pub fn get(&self, path: &str) -> Response {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    pub fn post(&self, path: &str, headers: &str, body: &[u8]) -> Response {
        let mut client = self.connect();
        client.send(&post(path, headers, body));
        client.response()
    }
}

pub fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut all =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    all.extend_from_slice(body);
    all
}

pub fn publish(engine: &Engine, name: &str, backend: &str, decoupled: bool) {
    let config = pb::ModelConfig {
        name: name.into(),
        backend: backend.into(),
        max_batch_size: 0,
        input: vec![pb::ModelInput { name: "IN".into(), data_type: 8, dims: vec![-1], ..Default::default() }],
        output: vec![pb::ModelOutput { name: "OUT".into(), data_type: 8, dims: vec![-1], ..Default::default() }],
        model_transaction_policy: decoupled.then_some(pb::ModelTransactionPolicy { decoupled }),
        instance_group: vec![pb::ModelInstanceGroup { count: 1, ..Default::default() }],
        ..Default::default()
    };
    publish_config(engine, &config);
}

pub fn publish_config(engine: &Engine, config: &pb::ModelConfig) {
    let (name, backend) = (&config.name, &config.backend);
    let config: Bytes = config.encode_to_vec().into();
    let opened = engine
        .open(
            backend,
            OpenSpec {
                model: name.clone(),
                version: 1,
                model_directory: "/".into(),
                version_directory: "/".into(),
                config: config.clone(),
                settings: Vec::new(),
                config_json: String::new(),
                completes: false,
                code_directory: None,
                library: None,
                batching: None,
            },
        )
        .unwrap();
    let spec = PublishSpec {
        config,
        config_json: format!("{{\"name\":\"{name}\"}}"),
        labels: Vec::new(),
        platform: "fake".into(),
    };
    engine.publish(opened.handle, spec).unwrap();
}

/// A client that sends raw bytes.
pub struct Client {
    pub io: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Response {
    pub status: u16,
    /// Names and values as on the wire.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
    /// The value of a header with exactly this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).unwrap();
    }

    /// Whether the connection ends without further bytes.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.io.read_to_end(&mut rest).is_ok_and(|n| n == 0)
    }

    fn more(&mut self) {
        let mut chunk = [0; 65536];
        let n = self.io.read(&mut chunk).expect("a response");
        assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
        self.buffer.extend_from_slice(&chunk[..n]);
    }

    fn take_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|w| w == end) {
                return self.buffer.drain(..at + end.len()).collect();
            }
            self.more();
        }
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        while self.buffer.len() < n {
            self.more();
        }
        self.buffer.drain(..n).collect()
    }

    /// Status and headers, without the body.
    pub fn head(&mut self) -> Response {
        let head = String::from_utf8(self.take_until(b"\r\n\r\n")).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> =
            lines.map(|l| l.split_once(": ").unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let names: HashSet<_> = headers.iter().map(|(n, _)| n.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), headers.len(), "a header stands twice: {headers:?}");
        Response { status, headers, body: Vec::new() }
    }

    /// The next chunk; an empty one is the last.
    pub fn chunk(&mut self) -> Vec<u8> {
        let line = String::from_utf8(self.take_until(b"\r\n")).unwrap();
        let n = usize::from_str_radix(line.trim_end(), 16).unwrap();
        let mut chunk = self.take(n + 2);
        assert_eq!(chunk.split_off(n), b"\r\n");
        chunk
    }

    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        if response.status == 100 {
            return response;
        }
        if response.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk();
                response.body.extend_from_slice(&chunk);
                if chunk.is_empty() {
                    return response;
                }
            }
        }
        let n = response.header("Content-Length").expect("a length").parse().unwrap();
        response.body = self.take(n);
        response
    }
}

/// A JSON inference of these values.
pub fn infer_json(values: &[i32]) -> String {
    format!(r#"{{"inputs":[{{"name":"IN","datatype":"INT32","shape":[{}],"data":{values:?}}}]}}"#, values.len())
}

/// A binary inference: JSON head and whole body.
pub fn infer_binary(values: &[i32]) -> (usize, Vec<u8>) {
    let (shape, size) = (values.len(), values.len() * 4);
    let input = format!(r#""datatype":"INT32","shape":[{shape}],"parameters":{{"binary_data_size":{size}}}"#);
    let output = r#"{"name":"OUT","parameters":{"binary_data":true}}"#;
    let mut body = format!(r#"{{"inputs":[{{"name":"IN",{input}}}],"outputs":[{output}]}}"#).into_bytes();
    let head = body.len();
    body.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    (head, body)
}

/// Result of a gRPC call.
#[derive(Debug, Default)]
pub struct CallOutcome {
    pub status: u32,
    pub message: String,
    pub encoding: Option<String>,
    /// Flag and bytes of each message.
    pub messages: Vec<(u8, Bytes)>,
}

/// A gRPC client over plain h2.
pub struct Grpc {
    pub send: h2::client::SendRequest<Bytes>,
}

impl Grpc {
    pub async fn connect(server: &Server) -> Self {
        Self::connect_to(server.grpc).await
    }

    pub async fn connect_to(port: u16) -> Self {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(8 << 20)
            .initial_connection_window_size(8 << 20)
            .handshake(io)
            .await
            .unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        Self { send }
    }

    pub async fn open(
        &mut self,
        path: &str,
        metadata: &[(&'static str, &str)],
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut request = http::Request::post(format!("http://x{path}")).header("content-type", "application/grpc");
        for (name, value) in metadata {
            request = request.header(*name, *value);
        }
        let mut ready = self.send.clone().ready().await.unwrap();
        ready.send_request(request.body(()).unwrap(), false).unwrap()
    }

    pub async fn call(&mut self, path: &str, metadata: &[(&'static str, &str)], messages: &[Bytes]) -> CallOutcome {
        let (response, mut body) = self.open(path, metadata).await;
        for (i, message) in messages.iter().enumerate() {
            let _ = body.send_data(message.clone(), i + 1 == messages.len());
        }
        if messages.is_empty() {
            let _ = body.send_data(Bytes::new(), true);
        }
        finish(response).await
    }

    pub async fn unary<R: Message + Default>(&mut self, rpc: &str, request: &impl Message) -> Result<R, (u32, String)> {
        let path = format!("/inference.GRPCInferenceService/{rpc}");
        let outcome = self.call(&path, &[], &[frame(0, &request.encode_to_vec())]).await;
        match outcome.status {
            0 => Ok(R::decode(outcome.messages[0].1.clone()).unwrap()),
            code => Err((code, outcome.message)),
        }
    }
}

pub async fn finish(response: h2::client::ResponseFuture) -> CallOutcome {
    rest(response.await.unwrap()).await
}

/// Reads the rest of a response.
pub async fn rest(response: http::Response<h2::RecvStream>) -> CallOutcome {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let text = |h: &http::HeaderMap, n: &str| h.get(n).map(|v| v.to_str().unwrap().to_owned());
    let mut outcome = CallOutcome { encoding: text(response.headers(), "grpc-encoding"), ..CallOutcome::default() };
    let mut end = response.headers().clone();
    let mut body = response.into_body();
    let mut all = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        all.extend_from_slice(&chunk);
    }
    if let Some(trailers) = body.trailers().await.unwrap() {
        end = trailers;
    }
    while all.has_remaining() {
        let flag = all.get_u8();
        let n = all.get_u32() as usize;
        outcome.messages.push((flag, all.split_to(n).freeze()));
    }
    outcome.status = text(&end, "grpc-status").expect("a status").parse().unwrap();
    outcome.message = text(&end, "grpc-message").unwrap_or_default();
    outcome
}

pub fn frame(flag: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(flag);
    out.put_u32(message.len() as u32);
    out.extend_from_slice(message);
    out.freeze()
}

pub fn infer_request(model: &str, id: &str, values: &[i32]) -> pb::ModelInferRequest {
    pb::ModelInferRequest {
        model_name: model.into(),
        id: id.into(),
        inputs: vec![pb::model_infer_request::InferInputTensor {
            name: "IN".into(),
            datatype: "INT32".into(),
            shape: vec![values.len() as i64],
            ..Default::default()
        }],
        raw_input_contents: vec![values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>().into()],
        ..Default::default()
    }
}

/// Runs a client in a current-thread runtime.
pub fn client<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(20), work).await.expect("the client to finish")
    })
}
