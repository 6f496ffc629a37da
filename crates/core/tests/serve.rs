//! Whole servers without Node: an inference over HTTP and gRPC, and two servers in one process.

#![allow(clippy::disallowed_methods, missing_docs, reason = "a test waits for other threads")]

use backend::ControlAnswer;
use backend_javascript::{Threads, WorkerSpec};
use bytes::{BufMut, Bytes, BytesMut};
use engine::{OpenedVersion, PublishSpec, ServerState};
use frontend::{Argument, ControlOperation};
use log::Record;
use nereid_core::logging::{Delivery, LogSink};
use nereid_core::{Controller, Outside, Server};
use options::{CoreOptions, GrpcOptions, HttpOptions, ListenOptions, OpenSpec};
use parking_lot::Mutex;
use prost::Message;
use protocol::pb::inference as pb;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, Error};

/// A program around a server that executes nothing, and collects lines of the log.
#[derive(Default)]
struct Program(Mutex<Vec<String>>);

impl Controller for Program {
    fn start(&self, operation: ControlOperation, _: Argument, answer: ControlAnswer) {
        answer(Err(Error::unsupported(format!("no {}", operation.name()))));
    }
}

impl LogSink for Program {
    fn put(&self, record: &Record<'_>) -> Delivery {
        self.0.lock().push(record.args().to_string());
        Delivery::Taken
    }
}

impl Threads for Program {
    fn start(&self, _: WorkerSpec) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn terminate(&self, _: u32) {}
    fn write_stack(&self, _: u32, _: bool) {}
}

fn outside(program: &Arc<Program>) -> Outside {
    Outside {
        control: program.clone(),
        log: program.clone(),
        threads: program.clone(),
        on_traces: Box::new(|| {}),
        on_device_failure: Box::new(|_, _| {}),
    }
}

/// Tests of this process share its settings.
static ALONE: Mutex<()> = Mutex::new(());

fn start(memory_limit_bytes: usize) -> Result<Server, Error> {
    let options = CoreOptions { memory_limit_bytes, ..CoreOptions::default() };
    Server::start(options, outside(&Arc::default()))
}

/// Serves the model `echo` of the backend `identity`.
fn serve(server: &Server) -> (u16, u16) {
    let tensor = |name: &str| (name.to_owned(), vec![-1]);
    let ((input, dims), (output, _)) = (tensor("INPUT0"), tensor("OUTPUT0"));
    let config = pb::ModelConfig {
        name: "echo".into(),
        backend: "identity".into(),
        max_batch_size: 0,
        input: vec![pb::ModelInput { name: input, data_type: 8, dims: dims.clone(), ..Default::default() }],
        output: vec![pb::ModelOutput { name: output, data_type: 8, dims, ..Default::default() }],
        instance_group: vec![pb::ModelInstanceGroup { count: 1, ..Default::default() }],
        ..Default::default()
    };
    let config: Bytes = config.encode_to_vec().into();
    let spec = OpenSpec {
        model: "echo".into(),
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
    };
    let OpenedVersion { handle, .. } = server.engine().open("identity", spec).expect("a backend of every server");
    let spec = PublishSpec { config, config_json: "{}".into(), labels: Vec::new(), platform: String::new() };
    server.engine().publish(handle, spec).expect("a valid configuration");
    server.set_state(ServerState::Ready);
    let address = || "127.0.0.1".to_owned();
    let listen = ListenOptions {
        http: Some(HttpOptions { address: address(), ..HttpOptions::default() }),
        grpc: Some(GrpcOptions { address: address(), ..GrpcOptions::default() }),
        reactor_threads: 1,
        ..ListenOptions::default()
    };
    let ports = server.bind(listen, None).expect("free ports");
    server.listen().expect("nobody else listens there");
    (ports.http, ports.grpc)
}

fn post(port: u16, path: &str, body: &str) -> String {
    let mut io = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    io.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let length = body.len();
    write!(io, "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .expect("an open connection");
    let mut response = String::new();
    io.read_to_string(&mut response).expect("a whole response");
    response
}

/// Calls an RPC; returns its status and the message of the response.
fn call(port: u16, rpc: &str, request: &impl Message) -> (String, Bytes) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(request.encoded_len()).expect("a small message"));
    framed.extend_from_slice(&request.encode_to_vec());
    let path = format!("http://x/inference.GRPCInferenceService/{rpc}");
    runtime.block_on(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("a server");
        let (mut client, connection) = h2::client::handshake(io).await.expect("HTTP/2");
        let exchange = async move {
            let request = http::Request::post(path).header("content-type", "application/grpc").body(());
            let (response, mut body) = client.send_request(request.expect("a request"), false).expect("a stream");
            body.send_data(framed.freeze(), true).expect("a stream");
            let mut body = response.await.expect("a response").into_body();
            let mut all = BytesMut::new();
            while let Some(chunk) = body.data().await {
                all.extend_from_slice(&chunk.expect("bytes"));
            }
            let trailers = body.trailers().await.expect("trailers").expect("trailers");
            (trailers["grpc-status"].to_str().expect("a number").to_owned(), all.freeze().split_off(5))
        };
        tokio::select! {
            answer = exchange => answer,
            _ = connection => panic!("the connection ended before the response"),
        }
    })
}

fn values(port: u16) -> Vec<i32> {
    let request = pb::ModelInferRequest {
        model_name: "echo".into(),
        inputs: vec![pb::model_infer_request::InferInputTensor {
            name: "INPUT0".into(),
            datatype: "INT32".into(),
            shape: vec![3],
            ..Default::default()
        }],
        raw_input_contents: vec![[7, 8, 9].into_iter().flat_map(i32::to_le_bytes).collect::<Vec<_>>().into()],
        ..Default::default()
    };
    let (status, message) = call(port, "ModelInfer", &request);
    assert_eq!(status, "0");
    let response = pb::ModelInferResponse::decode(message).expect("a response");
    let [output] = response.outputs.as_slice() else { panic!("one output: {response:?}") };
    assert_eq!(
        (output.name.as_str(), output.datatype.as_str(), output.shape.as_slice()),
        ("OUTPUT0", "INT32", &[3][..])
    );
    response.raw_output_contents[0].chunks(4).map(|b| i32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
}

const BODY: &str = r#"{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[3],"data":[4,5,6]}]}"#;
const OUTPUT: &str = r#""outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[3],"data":[4,5,6]}]"#;

#[test]
fn a_server_serves_http_and_grpc_without_node() {
    let _alone = ALONE.lock();
    let server = start(0).expect("a server");
    let (http, grpc) = serve(&server);
    let response = post(http, "/v2/models/echo/infer", BODY);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains(OUTPUT), "{response}");
    assert_eq!(values(grpc), [7, 8, 9]);
    let counted = server.snapshot().versions;
    assert_eq!(
        counted.iter().map(|version| (version.name.as_str(), version.success.count)).collect::<Vec<_>>(),
        [("echo", 2)]
    );
    // The program around decides control operations.
    let response = post(http, "/v2/repository/index", "{}");
    assert!(response.contains("no repository_index"), "{response}");
    server.stop_accepting();
    assert_eq!(server.engine().drain(Duration::from_secs(60)), 0);
    server.close(Duration::ZERO);
    TcpStream::connect(("127.0.0.1", http)).expect_err("the listener is closed");
}

#[test]
fn a_second_server_with_another_memory_limit_is_rejected_until_the_first_is_closed() {
    let _alone = ALONE.lock();
    let first = start(64 << 20).expect("a server");
    let Err(refused) = start(32 << 20) else { panic!("two limits in one process") };
    assert_eq!(refused.code(), Code::InvalidArg);
    assert_eq!(
        refused.message(),
        "another server of this process has a memory limit of 67108864 bytes, not 33554432, which all servers of a \
         process share: stop it first, or start this one with the same"
    );
    // One with the same limit serves beside it.
    let second = start(64 << 20).expect("a second server");
    let ((one, _), (two, _)) = (serve(&first), serve(&second));
    for port in [one, two] {
        assert!(post(port, "/v2/models/echo/infer", BODY).contains(OUTPUT));
    }
    first.close(Duration::ZERO);
    assert!(post(two, "/v2/models/echo/infer", BODY).contains(OUTPUT), "it does not end with the first");
    assert!(start(32 << 20).is_err(), "the second still runs");
    second.close(Duration::ZERO);
    let third = start(32 << 20).expect("the limit is free");
    assert_eq!(memory::Budget::global().limit(), 32 << 20);
    third.close(Duration::ZERO);
    start(0).expect("a server without a limit of its own").close(Duration::ZERO);
    assert_eq!(memory::Budget::global().limit(), memory::budget::limit_of_machine());
}

#[test]
fn lines_go_to_the_newest_server_and_to_the_older_one_after_its_end() {
    let _alone = ALONE.lock();
    let programs: [Arc<Program>; 2] = Default::default();
    let [first, second] =
        programs.each_ref().map(|program| Server::start(CoreOptions::default(), outside(program)).expect("a server"));
    let said = |line: &str| programs.each_ref().map(|program| program.0.lock().iter().any(|one| one == line));
    log::warn!("to the newest");
    assert_eq!(said("to the newest"), [false, true]);
    log::debug!("details");
    first.set_verbose_level(1);
    log::debug!("details of the first");
    assert_eq!([said("details"), said("details of the first")], [[false, false], [true, false]]);
    second.close(Duration::ZERO);
    log::warn!("to the other");
    assert_eq!(said("to the other"), [true, false]);
    first.close(Duration::ZERO);
}
