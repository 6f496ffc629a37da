//! The gRPC front end on the wire: an h2 client, exact statuses and messages.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

mod common;

use bytes::Bytes;
use common::{Grpc, Server, client, finish, frame, infer_request, rest, wait_for};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use prost::Message;
use protocol::pb::health::{HealthCheckRequest, HealthCheckResponse};
use protocol::pb::inference as pb;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tensor::Error;

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

fn values(response: &pb::ModelInferResponse) -> Vec<i32> {
    response.raw_output_contents[0].chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn encoded(request: &pb::ModelInferRequest) -> Bytes {
    frame(0, &request.encode_to_vec())
}

#[test]
fn p2_1_the_unary_calls() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let live: pb::ServerLiveResponse = grpc.unary("ServerLive", &pb::ServerLiveRequest {}).await.unwrap();
        let ready: pb::ServerReadyResponse = grpc.unary("ServerReady", &pb::ServerReadyRequest {}).await.unwrap();
        assert!(live.live && ready.ready);
        let server: pb::ServerMetadataResponse =
            grpc.unary("ServerMetadata", &pb::ServerMetadataRequest {}).await.unwrap();
        assert_eq!((server.name.as_str(), server.version.as_str(), server.extensions.len()), ("triton", "2.73.0", 1));
        let ask = pb::ModelReadyRequest { name: "nope".into(), version: String::new() };
        assert!(!grpc.unary::<pb::ModelReadyResponse>("ModelReady", &ask).await.unwrap().ready);
        let ask = pb::ModelMetadataRequest { name: "id".into(), version: String::new() };
        let model: pb::ModelMetadataResponse = grpc.unary("ModelMetadata", &ask).await.unwrap();
        assert_eq!((model.versions[0].as_str(), model.inputs[0].datatype.as_str()), ("1", "INT32"));
        assert_eq!(model.outputs[0].shape, [-1]);
        let ask = pb::ModelConfigRequest { name: "id".into(), version: "1abc".into() };
        let config: pb::ModelConfigResponse = grpc.unary("ModelConfig", &ask).await.unwrap();
        assert_eq!(config.config.unwrap().backend, "fake");
        let ask = pb::ModelStatisticsRequest { name: "id".into(), version: String::new() };
        let stats: pb::ModelStatisticsResponse = grpc.unary("ModelStatistics", &ask).await.unwrap();
        assert_eq!(stats.model_stats[0].name, "id");
        let index: pb::RepositoryIndexResponse =
            grpc.unary("RepositoryIndex", &pb::RepositoryIndexRequest::default()).await.unwrap();
        assert_eq!((index.models.len(), index.models[0].state.as_str()), (2, "READY"));
        let trace: pb::TraceSettingResponse =
            grpc.unary("TraceSetting", &pb::TraceSettingRequest::default()).await.unwrap();
        assert_eq!(trace.settings["trace_level"].value, ["OFF"]);
        assert_eq!(trace.settings["trace_rate"].value, ["1000"]);
        let log: pb::LogSettingsResponse = grpc.unary("LogSettings", &pb::LogSettingsRequest::default()).await.unwrap();
        use pb::log_settings_response::setting_value::ParameterChoice;
        assert_eq!(log.settings["log_verbose_level"].parameter_choice, Some(ParameterChoice::Uint32Param(3)));
        assert_eq!(log.settings["log_info"].parameter_choice, Some(ParameterChoice::BoolParam(true)));
        let shm: pb::SystemSharedMemoryStatusResponse =
            grpc.unary("SystemSharedMemoryStatus", &pb::SystemSharedMemoryStatusRequest::default()).await.unwrap();
        assert!(shm.regions.is_empty());
    });
}

#[test]
fn p2_8_errors_are_trailers_only_with_code_and_text() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let mut check = async |rpc: &str, request: Bytes, code: u32, text: &str| {
            let path = format!("/inference.GRPCInferenceService/{rpc}");
            let outcome = grpc.call(&path, &[], &[frame(0, &request)]).await;
            assert_eq!((outcome.status, outcome.message.as_str()), (code, text), "{rpc}");
            assert!(outcome.messages.is_empty());
        };
        let bytes = |m: &pb::ModelInferRequest| Bytes::from(m.encode_to_vec());
        check(
            "ModelInfer",
            bytes(&infer_request("nope", "", &[1])),
            5,
            "Request for unknown model: 'nope' is not found",
        )
        .await;
        check(
            "ModelInfer",
            bytes(&infer_request("deco", "", &[1])),
            12,
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        )
        .await;
        check("ModelInfer", bytes(&infer_request("fail", "", &[1])), 5, "the model failed").await;
        let load = |parameters: &[(&str, Option<pb::model_repository_parameter::ParameterChoice>)]| {
            let parameters = parameters
                .iter()
                .map(|(k, v)| ((*k).to_owned(), pb::ModelRepositoryParameter { parameter_choice: v.clone() }))
                .collect();
            let request = pb::RepositoryModelLoadRequest { model_name: "m".into(), parameters, ..Default::default() };
            Bytes::from(request.encode_to_vec())
        };
        use pb::model_repository_parameter::ParameterChoice::{BoolParam, BytesParam, Int64Param, StringParam};
        let text = "invalid value type for load parameter 'config', expected string_param.";
        check("RepositoryModelLoad", load(&[("config", Some(BoolParam(true)))]), 3, text).await;
        let text = "invalid value type for load parameter 'file:1/x', expected bytes_param.";
        check("RepositoryModelLoad", load(&[("file:1/x", Some(StringParam("x".into())))]), 3, text).await;
        check("RepositoryModelLoad", load(&[("zz", Some(Int64Param(1)))]), 3, "unrecognized load parameter 'zz'.")
            .await;
        let names: Vec<_> = (0..=1024).map(|i| format!("file:{i}")).collect();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), Some(BytesParam(Bytes::new())))).collect();
        let text = "1025 file parameters, at most 1024 are taken";
        check("RepositoryModelLoad", load(&files), 3, text).await;
        // Counted before they are read: each of these would be a table of its own.
        let same = load(&files[..1]).repeat(2000);
        check("RepositoryModelLoad", same.into(), 3, "1999 file parameters, at most 1024 are taken").await;
        check("RepositoryModelUnload", Bytes::new(), 14, r#"{"model":"","unload_dependents":false}"#).await;
        let index = pb::RepositoryIndexRequest { repository_name: "x".into(), ready: false };
        check("RepositoryIndex", index.encode_to_vec().into(), 12, "'repository_name' specification is not supported")
            .await;
        let disabled = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
        for rpc in ["SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryUnregister"] {
            check(rpc, Bytes::new(), 12, disabled).await;
        }
        check("Nope", Bytes::new(), 12, "").await;
        // Half a protobuf field.
        let outcome = grpc.call(INFER, &[], &[frame(0, &[0x0a, 0xff])]).await;
        assert!(outcome.status == 13 || outcome.status == 3, "{outcome:?}");
        let outcome = grpc.call(INFER, &[], &[]).await;
        assert_eq!(outcome.status, 13, "no message at all");
        let outcome = grpc.call(INFER, &[], &[Bytes::from_static(&[0, 0, 0, 0, 9, 1])]).await;
        assert_eq!(outcome.status, 13, "the request ends inside a message");
        let outcome = grpc.call(INFER, &[], &[Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff])]).await;
        assert_eq!(outcome.status, 8, "larger than any message may be");
    });
}

#[test]
fn p2_6_health_check_answers_for_every_service() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let request = HealthCheckRequest { service: "whatever".into() }.encode_to_vec();
        let outcome = grpc.call("/grpc.health.v1.Health/Check", &[], &[frame(0, &request)]).await;
        assert_eq!(HealthCheckResponse::decode(outcome.messages[0].1.clone()).unwrap().status, 1);
    });
}

const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Opens a watch and returns its message stream.
async fn watch(grpc: &mut Grpc) -> h2::RecvStream {
    let request = HealthCheckRequest { service: "whatever".into() }.encode_to_vec();
    let (response, mut body) = grpc.open(WATCH, &[]).await;
    body.send_data(frame(0, &request), true).unwrap();
    response.await.unwrap().into_body()
}

async fn next_status(body: &mut h2::RecvStream) -> i32 {
    let data = body.data().await.expect("a status").unwrap();
    body.flow_control().release_capacity(data.len()).unwrap();
    HealthCheckResponse::decode(data.slice(5..)).unwrap().status
}

#[test]
fn health_watch_sends_the_status_and_each_change_and_ends_with_the_server() {
    let mut server = Server::start();
    let (engine, running) = (server.engine.clone(), server.running.take().unwrap());
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let mut watched = watch(&mut grpc).await;
        assert_eq!(next_status(&mut watched).await, 1, "at once");
        let silence = tokio::time::timeout(Duration::from_millis(600), next_status(&mut watched)).await;
        assert!(silence.is_err(), "nothing changed, yet {silence:?} came");
        for (state, status) in [(engine::ServerState::Initializing, 2), (engine::ServerState::Ready, 1)] {
            let from = std::time::Instant::now();
            engine.set_server_state(state);
            assert_eq!(next_status(&mut watched).await, status, "{state:?}");
            assert!(from.elapsed() < Duration::from_millis(400), "{:?}", from.elapsed());
        }
        assert_eq!(running.inflight(), 0, "a drain does not wait for it");
        running.leave();
        assert_eq!(next_status(&mut watched).await, 2);
        assert!(watched.data().await.is_none(), "nothing after the last word");
        assert_eq!(watched.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        let mut late = watch(&mut Grpc::connect(&server).await).await;
        assert_eq!((next_status(&mut late).await, late.data().await.is_none()), (2, true));
        drop(grpc);
    });
    running.close(Duration::from_secs(5));
}

/// ServerReady, Health/Check and ModelReady of `elsewhere`, and readiness of the server and the model over HTTP.
async fn readiness(server: &Server, grpc: &mut Grpc) -> [bool; 5] {
    let ready: pb::ServerReadyResponse = grpc.unary("ServerReady", &pb::ServerReadyRequest {}).await.unwrap();
    let checked = grpc.call("/grpc.health.v1.Health/Check", &[], &[frame(0, &[])]).await;
    let ask = pb::ModelReadyRequest { name: "elsewhere".into(), version: String::new() };
    let model: pb::ModelReadyResponse = grpc.unary("ModelReady", &ask).await.unwrap();
    let over_http = ["/v2/health/ready", "/v2/models/elsewhere/versions/1/ready"].map(|path| server.get(path));
    if over_http[1].status != 200 {
        let refused = (over_http[1].status, over_http[1].text());
        assert_eq!(refused, (400, r#"{"error":"Model version not ready"}"#));
    }
    let checked = HealthCheckResponse::decode(checked.messages[0].1.clone()).unwrap().status == 1;
    [ready.ready, checked, model.ready, over_http[0].status == 200, over_http[1].status == 200]
}

#[test]
fn b_py_26_a_lost_instance_makes_model_and_server_not_ready_and_tells_watchers() {
    let server = Server::start();
    server.load_elsewhere();
    let instances = server.elsewhere.instances();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let mut watched = watch(&mut grpc).await;
        assert_eq!(next_status(&mut watched).await, 1);
        assert_eq!(readiness(&server, &mut grpc).await, [true; 5]);
        let from = std::time::Instant::now();
        instances.down(0, Error::unavailable("Stub process 'elsewhere_0' is not healthy."));
        assert_eq!(next_status(&mut watched).await, 2);
        assert!(from.elapsed() < Duration::from_millis(100), "{:?}", from.elapsed());
        assert_eq!(readiness(&server, &mut grpc).await, [false; 5]);
        instances.up(0);
        assert_eq!(next_status(&mut watched).await, 1);
        assert_eq!(readiness(&server, &mut grpc).await, [true; 5]);
    });
}

#[test]
fn b_py_26_the_readiness_of_a_model_is_queried_without_blocking_the_reactor() {
    let server = Server::start();
    server.load_elsewhere();
    server.elsewhere.has_queries.store(true, Ordering::SeqCst);
    // Another thread answers each query some milliseconds later; the one reactor serves other clients meanwhile.
    let answering = |says: bool| {
        let (elsewhere, done) = (server.elsewhere.clone(), Arc::new(AtomicBool::new(false)));
        let stop = done.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
                for answer in elsewhere.queries.lock().unwrap().drain(..) {
                    answer(if says { Ok(()) } else { Err(Error::unavailable("user-defined check failed")) });
                }
            }
        });
        move || {
            done.store(true, Ordering::SeqCst);
            thread.join().unwrap();
        }
    };
    for says in [true, false] {
        let stop = answering(says);
        client(async {
            let mut grpc = Grpc::connect(&server).await;
            assert_eq!(readiness(&server, &mut grpc).await, [says; 5]);
        });
        stop();
    }
    // Health is served while many requests wait for one query.
    let waiting: Vec<_> = (0..64)
        .map(|_| {
            let mut client = server.connect();
            client.send(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n");
            client
        })
        .collect();
    wait_for("the query of the model", || !server.elsewhere.queries.lock().unwrap().is_empty());
    assert_eq!(server.get("/v2/health/live").status, 200);
    let stop = answering(true);
    for mut client in waiting {
        assert_eq!(client.response().status, 200);
    }
    stop();
}

#[test]
fn health_watch_obeys_deadline_restriction_and_limit_and_counts_closed_watchers() {
    let server = Server::with(|_, _, grpc| {
        grpc.restrictions =
            vec![frontend::Restriction { apis: vec!["health".into()], key: "k".into(), value: "v".into() }];
    });
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let message = [frame(0, &[])];
        let refused = "This protocol is restricted, expecting header 'k'";
        let outcome = grpc.call(WATCH, &[], &message).await;
        assert_eq!((outcome.status, outcome.message.as_str()), (14, refused));
        let outcome = grpc.call(WATCH, &[("k", "v"), ("grpc-timeout", "100m")], &message).await;
        assert_eq!((outcome.status, outcome.messages.len()), (4, 1));
        for (messages, status) in [(&[][..], 13), (&[frame(0, &[0xff])], 13)] {
            assert_eq!(grpc.call(WATCH, &[("k", "v")], messages).await.status, status);
        }
    });
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let mut all = Vec::new();
        for _ in 0..frontend::limits::HEALTH_WATCHERS_MAX {
            all.push(watch(&mut grpc).await);
        }
        let outcome = grpc.call(WATCH, &[], &[frame(0, &[])]).await;
        let text = "health is watched by 1024 clients, which is the limit; use Check";
        assert_eq!((outcome.status, outcome.message.as_str()), (8, text));
        // Dropping a stream resets it.
        drop(all.pop());
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while grpc.call(WATCH, &[("grpc-timeout", "20m")], &[frame(0, &[])]).await.status != 4 {
            assert!(std::time::Instant::now() < end, "no room after one left");
        }
    });
}

#[test]
fn p2_3_infer_of_any_size_in_any_pieces() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        for n in [0usize, 1, 3, 5000, 1_500_000] {
            let input: Vec<i32> = (0..n as i32).collect();
            let message = encoded(&infer_request("id", "7", &input));
            for step in [message.len(), 3.max(message.len() / 7)] {
                let (response, mut body) = grpc.open(INFER, &[]).await;
                let mut rest = message.clone();
                while !rest.is_empty() {
                    let piece = rest.split_to(step.min(rest.len()));
                    body.send_data(piece, rest.is_empty()).unwrap();
                    if step < 100 {
                        tokio::task::yield_now().await;
                    }
                }
                let outcome = finish(response).await;
                assert_eq!(outcome.status, 0, "{n}: {}", outcome.message);
                let response = pb::ModelInferResponse::decode(outcome.messages[0].1.clone()).unwrap();
                assert_eq!((response.id.as_str(), response.model_version.as_str()), ("7", "1"));
                assert!(values(&response) == input, "{n} values");
            }
        }
    });
}

#[test]
fn p2_7_compression_both_ways() {
    let server = Server::with(|_, _, grpc| grpc.infer_response_compression_level = "medium".into());
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(&infer_request("id", "", &[1, 2]).encode_to_vec()).unwrap();
        let message = frame(1, &packer.finish().unwrap());
        let headers = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, deflate,gzip")];
        let outcome = grpc.call(INFER, &headers, std::slice::from_ref(&message)).await;
        assert_eq!((outcome.status, outcome.encoding.as_deref()), (0, Some("gzip")));
        let (flag, packed) = &outcome.messages[0];
        let mut plain = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
        assert_eq!((*flag, values(&pb::ModelInferResponse::decode(&plain[..]).unwrap())), (1, vec![1, 2]));
        let outcome = grpc.call(INFER, &[("grpc-encoding", "gzip")], std::slice::from_ref(&message)).await;
        assert_eq!(
            (outcome.status, outcome.encoding, outcome.messages[0].0),
            (0, None, 0),
            "not requested, not compressed"
        );
        let outcome = grpc.call(INFER, &[("grpc-encoding", "br")], std::slice::from_ref(&message)).await;
        assert_eq!(outcome.status, 12);
        let outcome = grpc.call(INFER, &[], &[message]).await;
        assert_eq!(outcome.status, 13, "packed, and nobody said how");
    });
}

#[test]
fn p2_6_restricted_protocols_and_forwarded_metadata() {
    let server = Server::with(|_, _, grpc| {
        grpc.header_forward_pattern = "^x-|timeout".into();
        grpc.restrictions = vec![frontend::Restriction {
            apis: vec!["inference".into()],
            key: "triton-grpc-protocol-Secret".into(),
            value: "sesame".into(),
        }];
    });
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let message = encoded(&infer_request("id", "", &[1]));
        let refused = "This protocol is restricted, expecting header 'triton-grpc-protocol-Secret'";
        for path in [INFER, STREAM] {
            for headers in [&[][..], &[("secret", "sesame")], &[("triton-grpc-protocol-secret", "x")]] {
                let outcome = grpc.call(path, headers, std::slice::from_ref(&message)).await;
                assert_eq!((outcome.status, outcome.message.as_str()), (14, refused), "{path} {headers:?}");
            }
        }
        let key = ("triton-grpc-protocol-secret", "sesame");
        let outcome = grpc.call(INFER, &[key, ("x-foo", "bar")], std::slice::from_ref(&message)).await;
        let response = pb::ModelInferResponse::decode(outcome.messages[0].1.clone()).unwrap();
        use pb::infer_parameter::ParameterChoice;
        assert_eq!(response.parameters["x-foo"].parameter_choice, Some(ParameterChoice::StringParam("bar".into())));
        let outcome = grpc.call(INFER, &[key, ("timeout", "5")], &[message]).await;
        let text = "Header 'timeout' is reserved for Triton usage and cannot be forwarded.";
        assert_eq!((outcome.status, outcome.message.as_str()), (3, text));
    });
}

#[test]
fn p2_6_a_deadline_cancels_the_inference() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        for (path, n) in [(INFER, 1), (STREAM, 2)] {
            let message = encoded(&infer_request("slow", "", &[1]));
            let outcome = grpc.call(path, &[("grpc-timeout", "150m")], &[message]).await;
            assert_eq!((outcome.status, outcome.message.as_str()), (4, "Deadline Exceeded"), "{path}");
            server.probe.wait_stopped(n);
        }
    });
}

#[test]
fn a_timeout_that_cannot_be_read_fails_its_call_as_in_grpc() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let message = encoded(&infer_request("id", "", &[1]));
        for path in [INFER, STREAM, WATCH] {
            for timeout in ["abc", "1s", "-1S", "5", ""] {
                let outcome = grpc.call(path, &[("grpc-timeout", timeout)], std::slice::from_ref(&message)).await;
                let expected = (13, "Error parsing 'grpc-timeout' metadata");
                assert_eq!((outcome.status, outcome.message.as_str()), expected, "{path} {timeout:?}");
            }
        }
        // More digits than the protocol permits are accepted, as in gRPC.
        for timeout in ["123456789S", "99999999999999H"] {
            let outcome = grpc.call(INFER, &[("grpc-timeout", timeout)], std::slice::from_ref(&message)).await;
            assert_eq!(outcome.status, 0, "{timeout}: {}", outcome.message);
        }
    });
}

#[test]
fn a_restricted_header_that_occurs_twice_is_rejected() {
    let server = Server::with(|_, http, grpc| {
        let group =
            frontend::Restriction { apis: vec!["inference".into()], key: "Admin-Key".into(), value: "s3cret".into() };
        http.restrictions = vec![group.clone()];
        grpc.restrictions = vec![group];
    });
    let text = "the request has more than one header 'Admin-Key': send one";
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let message = encoded(&infer_request("id", "", &[1]));
        let both = [("admin-key", "s3cret"), ("admin-key", "other")];
        for (path, metadata, expected) in
            [(INFER, &both[..1], (0, "")), (INFER, &both, (3, text)), (STREAM, &both, (3, text))]
        {
            let outcome = grpc.call(path, metadata, std::slice::from_ref(&message)).await;
            assert_eq!((outcome.status, outcome.message.as_str()), expected, "{path} {metadata:?}");
        }
    });
    let body = common::infer_json(&[1]);
    for (headers, status) in [
        ("Admin-Key: s3cret\r\n", 200),
        ("Admin-Key: s3cret\r\nadmin-key: other\r\n", 400),
        ("ADMIN-KEY: other\r\nAdmin-Key: s3cret\r\n", 400),
    ] {
        let response = server.post("/v2/models/id/infer", headers, body.as_bytes());
        assert_eq!((response.status, response.text().contains(text)), (status, status == 400), "{headers}");
    }
}

// P-154, S-41
#[test]
fn p2_5_p2_6_a_reset_or_a_lost_connection_cancels_the_inference() {
    let server = Server::start();
    let message = encoded(&infer_request("slow", "", &[1]));
    let mut n = 0;
    for path in [INFER, STREAM] {
        for lose_connection in [false, true] {
            n += 1;
            client(async {
                let mut grpc = Grpc::connect(&server).await;
                let (response, mut body) = grpc.open(path, &[]).await;
                body.send_data(message.clone(), path == INFER).unwrap();
                let end = std::time::Instant::now() + Duration::from_secs(5);
                while server.probe.started.load(Ordering::SeqCst) < n && std::time::Instant::now() < end {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                if !lose_connection {
                    body.send_reset(h2::Reason::CANCEL);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    server.probe.wait_stopped(n);
                }
                drop(response);
            });
            server.probe.wait_stopped(n);
        }
    }
    wait_for("everything to be gone", || server.running.as_ref().unwrap().inflight() == 0);
}

fn stream_messages(outcome: &common::CallOutcome) -> Vec<pb::ModelStreamInferResponse> {
    outcome.messages.iter().map(|(_, m)| pb::ModelStreamInferResponse::decode(m.clone()).unwrap()).collect()
}

fn is_final(response: &pb::ModelInferResponse) -> Option<bool> {
    match response.parameters.get("triton_final_response")?.parameter_choice.clone()? {
        pb::infer_parameter::ParameterChoice::BoolParam(b) => Some(b),
        _ => None,
    }
}

// P-147, P-149, P-151, P-152, P-156
#[test]
fn p2_5_stream_answers_in_request_order_errors_included() {
    let server = Server::start();
    let probe = server.probe.clone();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        // The slow request is first: the responses of the others, which are ready long before, wait for it.
        let mut messages = vec![encoded(&infer_request("slow", "0", &[0]))];
        for i in 1..200 {
            let model = match i % 4 {
                0 => "nope",
                1 => "fail",
                _ => "id",
            };
            messages.push(encoded(&infer_request(model, &i.to_string(), &[i])));
        }
        let opener = tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            probe.open();
        });
        let outcome = grpc.call(STREAM, &[], &messages).await;
        opener.await.unwrap();
        assert_eq!(outcome.status, 0);
        let answers = stream_messages(&outcome);
        assert_eq!(answers.len(), 200);
        for (i, answer) in answers.iter().enumerate() {
            let response = answer.infer_response.as_ref().unwrap();
            assert_eq!(response.id, i.to_string());
            match i % 4 {
                0 if i > 0 => {
                    assert_eq!(answer.error_message, "Request for unknown model: 'nope' is not found");
                    assert_eq!((response.model_name.as_str(), is_final(response)), ("", None));
                }
                1 => {
                    assert_eq!(answer.error_message, "the model failed");
                    assert_eq!((response.model_name.as_str(), is_final(response)), ("fail", Some(true)));
                }
                _ => {
                    assert_eq!((answer.error_message.as_str(), is_final(response)), ("", Some(true)));
                    assert_eq!(values(response), [i as i32]);
                }
            }
        }
    });
}

// P-148
#[test]
fn p2_5_decoupled_responses_are_sent_out_of_order() {
    let server = Server::start();
    let probe = server.probe.clone();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let (response, mut body) = grpc.open(STREAM, &[]).await;
        body.send_data(encoded(&infer_request("slow", "first", &[1])), false).unwrap();
        body.send_data(encoded(&infer_request("deco", "second", &[2])), false).unwrap();
        let mut stream = response.await.unwrap().into_body();
        let chunk = stream.data().await.unwrap().unwrap();
        let early = pb::ModelStreamInferResponse::decode(chunk.slice(5..)).unwrap().infer_response.unwrap();
        assert_eq!((early.id.as_str(), is_final(&early)), ("second", Some(true)));
        probe.open();
        let chunk = stream.data().await.unwrap().unwrap();
        let late = pb::ModelStreamInferResponse::decode(chunk.slice(5..)).unwrap().infer_response.unwrap();
        assert_eq!(late.id, "first");
        body.send_data(Bytes::new(), true).unwrap();
        while stream.data().await.is_some() {}
        assert_eq!(stream.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    });
}

#[test]
fn p2_6_a_deadline_inside_a_message_resets_the_stream() {
    let server = Server::start();
    client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.grpc)).await.unwrap();
        let (send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let mut grpc = Grpc { send };
        let (response, mut body) = grpc.open(STREAM, &[("grpc-timeout", "300m")]).await;
        // Larger than the window of this client.
        body.send_data(encoded(&infer_request("id", "", &vec![7; 1 << 18])), false).unwrap();
        let mut answer = response.await.unwrap().into_body();
        let mut got = 0;
        let end = loop {
            match answer.data().await {
                Some(Ok(chunk)) => got += chunk.len(),
                other => break other,
            }
        };
        assert!((1..1 << 20).contains(&got), "{got} bytes");
        assert_eq!(end.unwrap().unwrap_err().reason(), Some(h2::Reason::CANCEL));
    });
}

// P-155
#[test]
fn p2_5_triton_grpc_error_ends_the_stream_with_the_first_failure_after_enqueue() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let messages: Vec<_> = [("id", "1"), ("nope", "2"), ("fail", "3"), ("id", "4")]
            .iter()
            .map(|(model, id)| encoded(&infer_request(model, id, &[1])))
            .collect();
        let outcome = grpc.call(STREAM, &[("triton_grpc_error", "true")], &messages).await;
        assert_eq!((outcome.status, outcome.message.as_str()), (5, "the model failed"));
        assert_eq!(stream_messages(&outcome).len(), 2, "what came before it is delivered");
        let outcome = grpc.call(STREAM, &[("triton_grpc_error", "1")], &messages).await;
        assert_eq!((outcome.status, stream_messages(&outcome).len()), (0, 4));
        let outcome = grpc.call(STREAM, &[], &[]).await;
        assert_eq!((outcome.status, outcome.messages.len()), (0, 0), "an empty stream is fine");
    });
}

#[test]
fn p2_5_a_stream_whose_client_does_not_read_is_paused_and_loses_nothing() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        // 64 MiB of responses against 8 MiB of windows and 16 MiB of buffers.
        let input: Vec<i32> = (0..262_144).collect();
        let message = encoded(&infer_request("id", "", &input));
        let (response, mut body) = grpc.open(STREAM, &[]).await;
        for i in 0..64 {
            body.send_data(message.clone(), i == 63).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let outcome = finish(response).await;
        assert_eq!((outcome.status, outcome.messages.len()), (0, 64));
    });
}

#[test]
fn server_reflection_lists_the_service() {
    use protocol::pb::reflection::server_reflection_request::MessageRequest;
    use protocol::pb::reflection::server_reflection_response::MessageResponse;
    use protocol::pb::reflection::{ServerReflectionRequest, ServerReflectionResponse};
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        for version in ["v1", "v1alpha"] {
            let request = ServerReflectionRequest {
                host: String::new(),
                message_request: Some(MessageRequest::ListServices(String::new())),
            };
            let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            let outcome = grpc.call(&path, &[], &[frame(0, &request.encode_to_vec())]).await;
            let answer = ServerReflectionResponse::decode(outcome.messages[0].1.clone()).unwrap();
            let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!() };
            assert!(list.service.iter().any(|s| s.name == "inference.GRPCInferenceService"), "{version}");
        }
    });
}

#[test]
fn p2_7_a_leaving_server_sends_goaway_and_answers_new_calls_until_it_rejects_them() {
    let mut server = Server::start();
    let probe = server.probe.clone();
    let running = server.running.take().unwrap();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let (response, mut body) = grpc.open(INFER, &[]).await;
        body.send_data(encoded(&infer_request("slow", "", &[1])), true).unwrap();
        let (stream_response, mut stream) = grpc.open(STREAM, &[]).await;
        stream.send_data(encoded(&infer_request("id", "", &[1])), false).unwrap();
        // The stream was accepted before the drain began, and its first request answered.
        let mut answers = stream_response.await.unwrap();
        let first = answers.body_mut().data().await.unwrap().unwrap();
        answers.body_mut().flow_control().release_capacity(first.len()).unwrap();
        while probe.started.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(running.leave(), "somebody is connected");
        let text = "GRPC server is shutting down and has stopped accepting new requests.";
        // GOAWAY: no further call starts on this connection, so the client reconnects, possibly to another server.
        while grpc.send.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // A client that connects to this server nevertheless is answered, and gets a GOAWAY.
        let mut late = Grpc::connect(&server).await;
        let outcome = late.call(INFER, &[], &[encoded(&infer_request("id", "", &[1]))]).await;
        assert_eq!((outcome.status, outcome.messages.len()), (0, 1));
        wait_for_closed(&late).await;
        // So is the next request of its stream.
        stream.send_data(encoded(&infer_request("id", "", &[1])), false).unwrap();
        let second = answers.body_mut().data().await.unwrap().unwrap();
        answers.body_mut().flow_control().release_capacity(second.len()).unwrap();
        running.refuse();
        let mut late = Grpc::connect(&server).await;
        let outcome = late.call(INFER, &[], &[encoded(&infer_request("id", "", &[1]))]).await;
        assert_eq!((outcome.status, outcome.message.as_str()), (14, text));
        wait_for_closed(&late).await;
        running.stop_accepting();
        while tokio::net::TcpStream::connect(("127.0.0.1", server.grpc)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        stream.send_data(encoded(&infer_request("id", "late", &[1])), true).unwrap();
        let outcome = rest(answers).await;
        assert_eq!(stream_messages(&outcome)[0].error_message, text);
        let closer = std::thread::spawn(move || running.close(Duration::from_secs(5)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        probe.open();
        assert_eq!(finish(response).await.status, 0);
        drop(grpc);
        closer.join().unwrap();
    });
    assert_eq!(server.probe.stopped.load(Ordering::SeqCst), 0);
}

#[test]
fn p2_7_connection_age_and_keepalive() {
    let server = Server::with(|_, _, grpc| {
        grpc.max_connection_age_ms = 150;
        grpc.max_connection_age_grace_ms = 150;
        grpc.keepalive_time_ms = 20;
        grpc.keepalive_timeout_ms = 1000;
        grpc.keepalive_permit_without_calls = true;
    });
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let request = pb::ServerLiveRequest {};
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(grpc.unary::<pb::ServerLiveResponse>("ServerLive", &request).await.unwrap().live, "pings do no harm");
        wait_for_closed(&grpc).await;
    });
}

#[test]
fn d12_a_client_that_pings_too_often_gets_enhance_your_calm() {
    let server = Server::with(|_, _, grpc| {
        grpc.http2_min_recv_ping_interval_without_data_ms = 300_000;
        grpc.http2_max_ping_strikes = 2;
    });
    client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.grpc)).await.unwrap();
        let (_send, mut connection) = h2::client::handshake(io).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        let ended = tokio::task::spawn_local(connection);
        // The first and two strikes are answered.
        for _ in 0..3 {
            pings.ping(h2::Ping::opaque()).await.unwrap();
        }
        assert!(pings.ping(h2::Ping::opaque()).await.is_err());
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
        assert!(error.to_string().contains("too_many_pings"), "{error}");
    });
}

async fn wait_for_closed(grpc: &Grpc) {
    let end = std::time::Instant::now() + Duration::from_secs(5);
    while grpc.send.clone().ready().await.is_ok() {
        assert!(std::time::Instant::now() < end, "the connection outlives its age");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
