//! Requests with any number of responses, over every transport (P 1.13, P 2.5).

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![allow(missing_docs)]

mod common;

use bytes::Bytes;
use common::{Client, Grpc, Server, client, finish, frame, infer_request, post, wait_for};
use frontend::limits::ANSWERS_BYTES_MAX;
use memory::Budget;
use prost::Message;
use protocol::pb::inference as pb;
use protocol::pb::inference::infer_parameter::ParameterChoice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
const WRONG_COUNT: &str = "generate expects model to produce exactly 1 response, use generate stream for model that \
generates various number of responses";
const OVERRUN: &str = "the request was cancelled because its client reads responses too slowly";

fn request(model: &str, id: &str, values: &[i32], wants_empty_final: bool) -> Bytes {
    let mut request = infer_request(model, id, values);
    if wants_empty_final {
        let value = pb::InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
        request.parameters.insert("triton_enable_empty_final_response".into(), value);
    }
    frame(0, &request.encode_to_vec())
}

/// A message in one line: `id: values, final flag`, or an error with the name of its model.
fn line(message: &[u8]) -> String {
    let message = pb::ModelStreamInferResponse::decode(message).unwrap();
    let response = message.infer_response.unwrap();
    let is_final = match response.parameters.get("triton_final_response").map(|p| p.parameter_choice.clone().unwrap()) {
        Some(ParameterChoice::BoolParam(is_final)) => is_final.to_string(),
        _ => "no flag".into(),
    };
    let values: Vec<_> = response
        .raw_output_contents
        .iter()
        .flat_map(|raw| raw.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>())
        .collect();
    let what = match message.error_message.as_str() {
        "" if response.outputs.is_empty() => {
            format!("nothing of '{}' '{}'", response.model_name, response.model_version)
        }
        "" => format!("{values:?}"),
        error => format!("{error} of '{}' '{}'", response.model_name, response.model_version),
    };
    format!("{}: {what}, {is_final}", response.id)
}

/// One message of an open stream; its frames come one by one.
async fn next_line(body: &mut h2::RecvStream) -> String {
    let chunk = body.data().await.expect("a message").unwrap();
    body.flow_control().release_capacity(chunk.len()).unwrap();
    line(&chunk[5..])
}

#[test]
fn p2_5_responses_of_a_decoupled_model_are_sent_when_they_are_made() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let (response, mut body) = grpc.open(STREAM, &[]).await;
        body.send_data(request("gated", "g", &[0], true), false).unwrap();
        let mut stream = response.await.unwrap().into_body();
        assert_eq!(next_line(&mut stream).await, "g: [1], false");
        // Cancels the rest.
        body.send_data(request("id", "i", &[7], false), false).unwrap();
        assert_eq!(next_line(&mut stream).await, "i: [7], true");
        server.probe.open();
        let mut rest = Vec::new();
        body.send_data(Bytes::new(), true).unwrap();
        while let Some(chunk) = stream.data().await {
            let mut chunk = chunk.unwrap();
            while chunk.len() > 5 {
                let n = u32::from_be_bytes(chunk[1..5].try_into().unwrap()) as usize;
                rest.push(line(&chunk.split_to(5 + n)[5..]));
            }
        }
        assert_eq!(rest, ["g: [2], false", "g: [3], true"]);
        assert_eq!(stream.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    });
    wait_for("the requests to be over", || server.engine.inflight() == 0);
}

#[test]
fn p_150_an_empty_final_response_is_a_message_on_request() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let cases: &[(&[i32], bool, &[&str])] = &[
            (&[5, 6], false, &["m: [5], false", "m: [6], false"]),
            (&[5, 6], true, &["m: [5], false", "m: [6], false", "m: nothing of 'many' '', true"]),
            (
                &[-1, 6],
                true,
                &["m: simulated failure of 'many' '', false", "m: [6], false", "m: nothing of 'many' '', true"],
            ),
        ];
        for (values, wants_empty_final, expected) in cases {
            let outcome = grpc.call(STREAM, &[], &[request("many", "m", values, *wants_empty_final)]).await;
            let lines: Vec<_> = outcome.messages.iter().map(|(_, m)| line(m)).collect();
            assert_eq!((outcome.status, lines), (0, expected.iter().map(ToString::to_string).collect()));
        }
        let (code, text) =
            grpc.unary::<pb::ModelInferResponse>("ModelInfer", &infer_request("many", "", &[1])).await.unwrap_err();
        assert_eq!(
            (code, text.as_str()),
            (12, "ModelInfer RPC doesn't support models with decoupled transaction policy")
        );
    });
}

#[test]
fn p_148_requests_of_any_kind_share_a_stream_and_each_keeps_its_order() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let mut messages = Vec::new();
        for i in 0..50 {
            messages.push(request("many", &format!("d{i}"), &(0..i + 1).collect::<Vec<_>>(), i % 2 == 0));
            messages.push(request("id", &format!("p{i}"), &[i], false));
            messages.push(request("nope", &format!("n{i}"), &[i], false));
        }
        let outcome = grpc.call(STREAM, &[], &messages).await;
        let lines: Vec<_> = outcome.messages.iter().map(|(_, m)| line(m)).collect();
        assert_eq!(outcome.status, 0);
        for i in 0..50 {
            let of = |c: char| {
                let begin = format!("{c}{i}: ");
                lines.iter().filter_map(move |l| l.strip_prefix(&begin)).collect::<Vec<_>>()
            };
            let mut expected: Vec<_> = (0..=i).map(|v| format!("[{v}], false")).collect();
            expected.extend((i % 2 == 0).then(|| "nothing of 'many' '', true".to_owned()));
            assert_eq!(of('d'), expected);
            assert_eq!(of('p'), [format!("[{i}], true")]);
            assert_eq!(of('n'), ["Request for unknown model: 'nope' is not found of '' '', no flag"]);
        }
        let plain: Vec<_> = lines.iter().filter(|l| l.starts_with(['p', 'n'])).collect();
        let in_order = (0..50).flat_map(|i| [format!("p{i}: "), format!("n{i}: ")]);
        assert!(plain.iter().zip(in_order).all(|(l, begin)| l.starts_with(&begin)), "{plain:?}");
    });
}

#[test]
fn p2_5_triton_grpc_error_ends_the_stream_at_the_first_failure_of_a_decoupled_model() {
    let server = Server::start();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let messages = [request("many", "m", &[5, -1, 6], true), request("endless", "e", &[1], false)];
        let outcome = grpc.call(STREAM, &[("triton_grpc_error", "true")], &messages).await;
        assert_eq!((outcome.status, outcome.message.as_str()), (13, "simulated failure"));
    });
    wait_for("the other request of the stream to be cancelled", || server.engine.inflight() == 0);
}

#[test]
fn a_client_that_disconnects_cancels_its_requests_over_every_transport() {
    let server = Server::start();
    let mut n = 0;
    client(async {
        // A reset stream, and a lost connection.
        for lost in [false, true] {
            let mut grpc = Grpc::connect(&server).await;
            let (response, mut body) = grpc.open(STREAM, &[]).await;
            body.send_data(request("endless", "e", &[1], false), false).unwrap();
            let mut stream = response.await.unwrap().into_body();
            next_line(&mut stream).await;
            n += 1;
            if lost {
                drop(grpc);
            }
            drop((stream, body));
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.probe.wait_stopped(n);
        }
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let request = http::Request::post("http://x/v2/models/endless/generate_stream").body(()).unwrap();
        let (response, mut body) = send.send_request(request, false).unwrap();
        body.send_data(r#"{"IN":[1]}"#.into(), true).unwrap();
        let mut stream = response.await.unwrap().into_body();
        assert!(stream.data().await.unwrap().unwrap().starts_with(b"data: {\"OUT\":0"));
        n += 1;
        drop(stream);
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.probe.wait_stopped(n);
    });
    let mut client = server.connect();
    client.send(&post("/v2/models/endless/generate_stream", "", br#"{"IN":[1]}"#));
    assert_eq!(client.head().status, 200);
    client.chunk();
    drop(client);
    server.probe.wait_stopped(n + 1);
    // A client of `generate` has no response yet.
    let mut client = server.connect();
    client.send(&post("/v2/models/endless/generate", "", br#"{"IN":[1]}"#));
    server.probe.wait_started(n + 2);
    drop(client);
    server.probe.wait_stopped(n + 2);
    wait_for("everything to be gone", || server.running.as_ref().unwrap().inflight() == 0);
}

/// Runs a client that does not read, on a server with its own budget, and samples the charged bytes.
fn with_slow_reader(client: impl FnOnce(&Server)) {
    let budget = Budget::new(1 << 30);
    let server = Server::with_budget(Some(budget.clone()), |_, _, _| {});
    let used = || budget.counters().used_bytes.iter().sum::<usize>();
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                most = most.max(used());
                std::thread::sleep(Duration::from_millis(1));
            }
            most
        });
        // Also when it panics: the scope waits for the thread.
        let client = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&server)));
        done.store(true, Ordering::SeqCst);
        client.unwrap();
        watch.join().unwrap()
    });
    // The transport holds some bytes besides the inbox.
    assert!(most > ANSWERS_BYTES_MAX / 2 && most < ANSWERS_BYTES_MAX + (1 << 20), "{most} bytes were charged");
    wait_for("all charges to end", || used() == 0);
    wait_for("everything to be gone", || server.running.as_ref().unwrap().inflight() == 0);
}

#[test]
fn a_stream_that_is_not_read_ends_with_an_error_after_its_queued_responses() {
    with_slow_reader(|server| {
        client(async {
            let mut grpc = Grpc::connect(server).await;
            let (response, mut body) = grpc.open(STREAM, &[]).await;
            body.send_data(request("endless", "e", &[1 << 16], false), true).unwrap();
            let probe = server.probe.clone();
            tokio::task::spawn_blocking(move || probe.wait_stopped(1)).await.unwrap();
            let outcome = finish(response).await;
            let (last, others) = outcome.messages.split_last().unwrap();
            assert!(line(&last.1).starts_with(&format!("e: {OVERRUN}")), "{}", &line(&last.1)[..200]);
            assert!(line(&last.1).ends_with(", true"));
            assert!(others.iter().all(|(_, m)| m.len() > 1 << 18), "{} responses", others.len());
            assert_eq!(outcome.status, 0);
        });
    });
}

#[test]
fn events_that_are_not_read_end_with_an_error_and_the_connection_stays_open() {
    with_slow_reader(|server| {
        let mut client = server.connect();
        client.send(&post("/v2/models/endless/generate_stream", "", br#"{"IN":[16384]}"#));
        server.probe.wait_stopped(1);
        client.send(&post("/v2/models/many/generate", "", br#"{"IN":[5]}"#));
        let streamed = client.response();
        assert_eq!(streamed.status, 200);
        let text = streamed.text();
        assert!(text.ends_with("\n\n") && text.starts_with("data: {\"OUT\":[0,0,"));
        let last = text.trim_end().rsplit("\n\n").next().unwrap();
        assert!(last.starts_with(&format!("data: {{\"error\":\"{OVERRUN}")), "{}", &last[..200.min(last.len())]);
        assert_eq!(client.response().text(), r#"{"OUT":5,"model_name":"many","model_version":"1"}"#);
    });
}

fn generate(client: &mut Client, path: &str, values: &[i32]) -> (u16, String) {
    client.send(&post(&format!("/v2/models/{path}"), "", format!("{{\"IN\":{values:?}}}").as_bytes()));
    let response = client.response();
    assert_eq!(response.header("Transfer-Encoding"), Some("chunked"));
    (response.status, response.text().to_owned())
}

#[test]
fn p_112_generate_requires_one_response_and_the_first_decides_the_status() {
    let server = Server::start();
    let mut client = server.connect();
    let wrong = format!(r#"{{"error":"{WRONG_COUNT}"}}"#);
    let one = r#"{"OUT":7,"model_name":"many","model_version":"1"}"#;
    let failed = r#"{"error":"simulated failure"}"#;
    for (values, status, text) in [
        (&[7][..], 200, one),
        (&[7, 8], 200, &wrong),
        (&[7, -1], 200, &wrong),
        (&[-1], 400, failed),
        (&[-1, 7], 400, &wrong),
    ] {
        assert_eq!(generate(&mut client, "many/generate", values), (status, text.to_owned()), "{values:?}");
    }
}

#[test]
fn p_113_generate_stream_has_an_event_for_each_response_and_each_failure() {
    let server = Server::start();
    let mut client = server.connect();
    let event = |n: i32| format!("data: {{\"OUT\":{n},\"model_name\":\"many\",\"model_version\":\"1\"}}\n\n");
    let failed = "data: {\"error\":\"simulated failure\"}\n\n";
    for (values, status, text) in [
        (&[7][..], 200, event(7)),
        (&[7, 8], 200, event(7) + &event(8)),
        (&[7, -1, 8], 200, event(7) + failed + &event(8)),
        (&[-1], 400, failed.to_owned()),
        (&[-1, 7], 400, failed.to_owned() + &event(7)),
    ] {
        assert_eq!(generate(&mut client, "many/generate_stream", values), (status, text), "{values:?}");
    }
    let all: Vec<_> = (0..3000).collect();
    let text = all.iter().map(|&n| event(n)).collect::<String>();
    assert_eq!(generate(&mut client, "many/generate_stream", &all), (200, text), "none is lost in a burst");
    let refused = server.post("/v2/models/many/infer", "", b"{");
    assert_eq!(
        (refused.status, refused.text()),
        (501, r#"{"error":"HTTP end point doesn't support models with decoupled transaction policy"}"#)
    );
}

#[test]
fn p_107_an_event_is_sent_at_once_in_its_own_chunk() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(&post("/v2/models/gated/generate_stream", "", br#"{"IN":[0]}"#));
    let head = client.head();
    assert_eq!((head.status, head.header("Content-Type")), (200, Some("text/event-stream; charset=utf-8")));
    let event =
        |n: i32| format!("data: {{\"OUT\":{n},\"model_name\":\"gated\",\"model_version\":\"1\"}}\n\n").into_bytes();
    assert_eq!(client.chunk(), event(1));
    server.probe.open();
    assert_eq!([client.chunk(), client.chunk(), client.chunk()], [event(2), event(3), Vec::new()]);
}

#[test]
fn http10_has_no_chunks_so_its_events_end_with_the_connection() {
    use std::io::Read;
    let server = Server::start();
    server.probe.open();
    let mut client = server.connect();
    let body = r#"{"IN":[0]}"#;
    let head = "POST /v2/models/gated/generate_stream HTTP/1.0\r\nConnection: keep-alive";
    client.send(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let mut all = String::new();
    client.io.read_to_string(&mut all).unwrap();
    let (head, events) = all.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("Content-Length") && !head.contains("Transfer-Encoding"), "{head}");
    assert_eq!(events.matches("data: ").count(), 3, "{events}");
}

#[test]
fn http2_has_the_same_events() {
    let server = Server::start();
    client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let request = http::Request::post("http://x/v2/models/gated/generate_stream").body(()).unwrap();
        let (response, mut body) = send.send_request(request, false).unwrap();
        body.send_data(r#"{"IN":[0]}"#.into(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()),
            (200, "text/event-stream; charset=utf-8")
        );
        let mut stream = response.into_body();
        let first = stream.data().await.unwrap().unwrap();
        assert_eq!(first, "data: {\"OUT\":1,\"model_name\":\"gated\",\"model_version\":\"1\"}\n\n");
        server.probe.open();
        let mut rest = Vec::new();
        while let Some(chunk) = stream.data().await {
            rest.extend_from_slice(&chunk.unwrap());
        }
        assert_eq!(String::from_utf8(rest).unwrap().matches("data: {\"OUT\":").count(), 2);
    });
}
