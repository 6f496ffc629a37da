//! A server with a small memory budget, over real sockets.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![allow(missing_docs)]

mod common;
use common::{Grpc, Server, client, frame, infer_binary, infer_json, infer_request, post, wait_for};
use memory::{Account, Budget, Charge, Kind, SMALL_BYTES_MAX};
use prost::Message;
use protocol::pb::inference as pb;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const INFER: &str = "/v2/models/id/infer";
const GRPC_INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const LIMIT: usize = 8 << 20;
/// 1 MiB and its head.
const VALUES: usize = 1 << 18;

fn server() -> (Server, Budget) {
    let budget = Budget::new(LIMIT);
    (Server::with_budget(Some(budget.clone()), |_, _, _| {}), budget)
}

/// Charges all memory of large bodies.
fn exhaust(budget: &Budget) -> Vec<(Account, Charge)> {
    exhaust_beside(budget, 0)
}

/// Charges all memory of large bodies if `used` bytes are charged already.
fn exhaust_beside(budget: &Budget, used: usize) -> Vec<(Account, Charge)> {
    let charge = |bytes| {
        let account = budget.account();
        let charge = account.charge(Kind::Body, false, bytes).expect("room");
        (account, charge)
    };
    let mut all: Vec<_> = (0..3).map(|_| charge(LIMIT / 4)).collect();
    all.push(charge(LIMIT / 8 - used));
    all
}

/// Charges bytes of the reserve for small bodies.
fn in_reserve(budget: &Budget, bytes: usize) -> Vec<(Account, Charge)> {
    let account = budget.account();
    let starts = (0..bytes).step_by(SMALL_BYTES_MAX);
    let charge = |at| account.charge(Kind::Body, true, SMALL_BYTES_MAX.min(bytes - at)).expect("room");
    starts.map(|at| (account.clone(), charge(at))).collect()
}

fn used(budget: &Budget) -> usize {
    budget.counters().used_bytes.iter().sum()
}

fn binary(values: usize) -> (String, Vec<u8>) {
    let (head, body) = infer_binary(&vec![7; values]);
    (format!("Inference-Header-Content-Length: {head}\r\n"), body)
}

fn large() -> Vec<u8> {
    let (headers, body) = binary(VALUES);
    post(INFER, &headers, &body)
}

#[test]
fn a_body_larger_than_the_share_of_a_connection_is_rejected_by_its_length() {
    let (server, budget) = server();
    let mut client = server.connect();
    client.send(format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", LIMIT / 4 + 1).as_bytes());
    let response = client.response();
    assert_eq!((response.status, response.header("Retry-After")), (400, None));
    assert!(
        response.text().contains("2097153 bytes are more than one connection may hold, 2097152 bytes"),
        "{response:?}"
    );
    assert_eq!((used(&budget), budget.counters().refused), (0, 1));
}

#[test]
fn a_large_body_waits_for_memory_and_small_requests_do_not() {
    let (server, budget) = server();
    let held = exhaust(&budget);
    let mut waiting = server.connect();
    // The head and a part of the body: the whole body would block this thread.
    waiting.send(&large()[..100_000]);
    wait_for("the body to wait", || budget.counters().waiting == 1);
    assert_eq!(server.get("/v2/health/live").status, 200);
    assert_eq!(server.post(INFER, "", infer_json(&[1, 2, 3]).as_bytes()).status, 200);
    drop(held);
    waiting.send(&large()[100_000..]);
    assert_eq!(waiting.response().status, 200);
    drop(waiting);
    wait_for("all charges to end", || used(&budget) == 0);
    assert_eq!(budget.counters().refused, 0);
}

#[test]
fn a_request_rejected_for_lack_of_memory_has_a_retry_after() {
    let (server, budget) = server();
    let held = exhaust(&budget);
    let begun = Instant::now();
    let mut http = server.connect();
    http.send(&large()[..100_000]);
    let outcome = client(async {
        let mut grpc = Grpc::connect(&server).await;
        let request = infer_request("id", "", &vec![7; VALUES]).encode_to_vec();
        grpc.call(GRPC_INFER, &[], &[frame(0, &request)]).await
    });
    assert_eq!(outcome.status, 8, "{}", outcome.message);
    assert!(outcome.message.starts_with("the server is short of memory"), "{}", outcome.message);
    let response = http.response();
    assert!(begun.elapsed() >= Duration::from_secs(4));
    assert_eq!((response.status, response.header("Retry-After")), (503, Some("1")), "{response:?}");
    assert_eq!(response.header("Connection"), Some("close"));
    drop(held);
    wait_for("all charges to end", || used(&budget) == 0);
    assert_eq!((budget.counters().refused, budget.counters().waiting), (2, 0));
}

#[test]
fn a_client_that_disconnects_leaves_the_queue_for_memory_at_once() {
    let (server, budget) = server();
    let mut held = exhaust(&budget);
    let large_body = &large()[..100_000];
    let chunked = [
        format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", 90_000).as_bytes(),
        &[b' '; 80_000],
    ]
    .concat();
    let gone_in_time = |what: &str, leave: &mut dyn FnMut()| {
        wait_for(what, || budget.counters().waiting == 1);
        let left = Instant::now();
        leave();
        wait_for("its place to be free", || budget.counters().waiting == 0);
        assert!(left.elapsed() < Duration::from_secs(1), "{what}: noticed after {:?}", left.elapsed());
    };
    for (what, request) in [("a large body", large_body), ("a chunked body", &chunked)] {
        for resets in [false, true] {
            let mut client = Some(server.connect());
            client.as_mut().expect("just made").send(request);
            gone_in_time(what, &mut || {
                let client = client.take().expect("left once");
                if resets {
                    socket2::SockRef::from(&client.io).set_linger(Some(Duration::ZERO)).expect("a socket option");
                }
            });
        }
    }
    let request = infer_request("id", "", &vec![7; VALUES]).encode_to_vec();
    client(async {
        let mut grpc = Grpc::connect(&server).await;
        let (response, mut sending) = grpc.open(GRPC_INFER, &[]).await;
        sending.send_data(frame(0, &request).slice(..60_000), false).expect("room");
        let waiting = async |n: usize| {
            while budget.counters().waiting != n {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        waiting(1).await;
        sending.send_reset(h2::Reason::CANCEL);
        let left = Instant::now();
        waiting(0).await;
        assert!(left.elapsed() < Duration::from_secs(1), "a call: noticed after {:?}", left.elapsed());
        drop(response);
    });
    // A small body waits only if the reserve for small bodies is used up as well.
    held.extend(in_reserve(&budget, LIMIT / 8));
    let mut small = Some(server.connect());
    let (headers, body) = binary(10_000);
    small.as_mut().expect("just made").send(&post(INFER, &headers, &body)[..30_000]);
    gone_in_time("a small body", &mut || drop(small.take()));
    drop(held);
    wait_for("all charges to end", || used(&budget) == 0);
    assert_eq!(budget.counters().refused, 0);
}

#[test]
fn a_body_is_charged_as_it_arrives_until_the_response_is_written() {
    let (server, budget) = server();
    let mut http = server.connect();
    let (headers, body) = binary(VALUES);
    let request = post("/v2/models/slow/infer", &headers, &body);
    http.send(&request[..20_000]);
    wait_for("the first bytes", || used(&budget) > 0);
    assert!(used(&budget) <= 64 << 10, "{} bytes for 20,000", used(&budget));
    http.send(&request[20_000..]);
    server.probe.wait_started(1);
    assert!((VALUES * 4..VALUES * 4 + 1000).contains(&used(&budget)), "{}", used(&budget));
    server.probe.open();
    assert_eq!(http.response().status, 200);
    wait_for("the charge to end", || used(&budget) == 0);
    assert_eq!(server.probe.started.load(Ordering::SeqCst), 1);
}

#[test]
fn chunked_bodies_are_charged_too() {
    let (server, budget) = server();
    let (headers, body) = binary(VALUES);
    let mut request =
        format!("POST {INFER} HTTP/1.1\r\nHost: x\r\n{headers}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in body.chunks(50_000) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    let mut http = server.connect();
    http.send(&request[..600_000]);
    wait_for("the first chunks", || used(&budget) >= 512 << 10);
    assert!(used(&budget) <= 1 << 20);
    http.send(&request[600_000..]);
    http.send(b"0\r\n\r\n");
    assert_eq!(http.response().status, 200);
    wait_for("the charge to end", || used(&budget) == 0);
    // Exceeds the share of a connection, which is known only once it has arrived.
    let mut http = server.connect();
    http.send(
        format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", LIMIT).as_bytes(),
    );
    let piece = vec![b' '; 1 << 16];
    for _ in 0..33 {
        http.send(&piece);
    }
    assert_eq!(http.response().status, 400);
    wait_for("the charge to end", || used(&budget) == 0);
}

#[test]
fn a_stalled_body_loses_its_memory_to_waiting_requests() {
    let (server, budget) = server();
    let mut stalled = server.connect();
    stalled.send(&large()[..600_000]);
    wait_for("it to hold some", || used(&budget) >= 500_000);
    // Waits until all received bytes are charged: a body that waits for memory would be rejected instead.
    std::thread::sleep(Duration::from_millis(300));
    let held = exhaust_beside(&budget, used(&budget));
    std::thread::sleep(Duration::from_secs(5));
    let begun = Instant::now();
    let mut waiting = server.connect();
    waiting.send(&large()[..100_000]);
    let response = stalled.response();
    assert_eq!((response.status, response.header("Connection")), (408, Some("close")), "{response:?}");
    assert!(response.text().contains("--memory-limit"), "{response:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
    wait_for("the other to have it", || budget.counters().waiting == 0);
    drop(held);
    waiting.send(&large()[100_000..]);
    assert_eq!(waiting.response().status, 200);
}

/// Bytes charged for one kind.
fn used_for(budget: &Budget, kind: Kind) -> usize {
    budget.counters().used_bytes[kind as usize]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).expect("memory");
    to.finish().expect("memory")
}

#[test]
fn decompressed_and_parsed_contents_are_charged_until_their_request_ends() {
    let (server, budget) = server();
    let values = vec![1234; VALUES / 2];
    let (headers, body) = binary(VALUES / 2);
    let packed = post("/v2/models/slow/infer", &format!("{headers}Content-Encoding: gzip\r\n"), &gzip(&body));
    let json = post("/v2/models/slow/infer", "", infer_json(&values).as_bytes());
    let mut clients: Vec<_> = [packed, json]
        .iter()
        .map(|request| {
            let mut http = server.connect();
            http.send(request);
            http
        })
        .collect();
    // One runs and one waits for it; both hold the contents of their body.
    wait_for("both to be unpacked", || (VALUES * 4..VALUES * 4 + 1000).contains(&used_for(&budget, Kind::Unpacked)));
    server.probe.wait_started(1);
    server.probe.open();
    for http in &mut clients {
        assert_eq!(http.response().status, 200);
    }
    drop(clients);
    wait_for("all charges to end", || used(&budget) == 0);
}

#[test]
fn requests_whose_contents_exceed_the_memory_are_rejected_at_once() {
    let (server, budget) = server();
    let (headers, body) = binary(VALUES);
    let packed = post(INFER, &format!("{headers}Content-Encoding: gzip\r\n"), &gzip(&body));
    // A body of 20 KB that inflates to 1 MiB; the numbers of one of 300 KB; an answer of some 400 KB of text.
    let json = post(INFER, "", infer_json(&vec![7; 150_000]).as_bytes());
    let (json_length, mut plain) = infer_binary(&vec![-1_234_567_890; 30_000]);
    let text = String::from_utf8(plain[..json_length].to_vec())
        .expect("JSON")
        .replace("\"binary_data\":true", "\"binary_data\":false");
    plain.splice(..json_length, text.bytes());
    let printed = post(INFER, &format!("Inference-Header-Content-Length: {}\r\n", text.len()), &plain);
    for (what, request) in [("gzip", &packed), ("json", &json), ("printed", &printed)] {
        let mut http = server.connect();
        // All but the last byte is received and charged; then memory gets short.
        http.send(&request[..request.len() - 1]);
        std::thread::sleep(Duration::from_millis(100));
        let mut held = exhaust_beside(&budget, used(&budget));
        held.extend(in_reserve(&budget, LIMIT - used(&budget) - (32 << 10)));
        let before = budget.counters().refused;
        http.send(&request[request.len() - 1..]);
        let response = http.response();
        assert_eq!((response.status, response.header("Retry-After")), (503, Some("1")), "{what}: {response:?}");
        assert!(response.text().contains("--memory-limit"), "{what}: {response:?}");
        assert_eq!(budget.counters().refused, before + 1, "{what}");
        drop(held);
        drop(http);
        wait_for("all charges to end", || used(&budget) == 0);
    }
}

const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Error, or number of values, of each message.
fn results(outcome: &common::CallOutcome) -> Vec<Result<usize, String>> {
    let read = |(_, message): &(u8, bytes::Bytes)| {
        let message = pb::ModelStreamInferResponse::decode(message.clone()).expect("a message");
        match message.error_message.as_str() {
            "" => Ok(message.infer_response.map_or(0, |r| r.raw_output_contents.iter().map(|c| c.len() / 4).sum())),
            text => Err(text.to_owned()),
        }
    };
    outcome.messages.iter().map(read).collect()
}

#[test]
fn p2_5_a_message_without_memory_is_rejected_and_its_stream_continues() {
    let (server, budget) = server();
    let of = |id: &str, values: usize| frame(0, &infer_request("id", id, &vec![7; values]).encode_to_vec());
    let outcome = client(async {
        let mut grpc = Grpc::connect(&server).await;
        // Exceeds the share of a connection; its start may look like a message.
        grpc.call(STREAM, &[], &[of("a", 3), of("b", 3 * VALUES), of("c", 5), of("d", 3 * VALUES), of("e", 7)]).await
    });
    let results = results(&outcome);
    let text = "are more than one connection may hold";
    assert_eq!((outcome.status, results.len()), (0, 5), "{} {results:?}", outcome.message);
    assert_eq!((&results[0], &results[2], &results[4]), (&Ok(3), &Ok(5), &Ok(7)));
    assert!([&results[1], &results[3]].iter().all(|r| r.as_ref().is_err_and(|e| e.contains(text))), "{results:?}");
    wait_for("all charges to end", || used(&budget) == 0);
    assert_eq!(budget.counters().refused, 2);
}

#[test]
fn p2_5_a_message_without_memory_to_decompress_is_rejected_its_stream_continues() {
    let (server, budget) = server();
    let of = |id: &str, values: usize| frame(1, &gzip(&infer_request("id", id, &vec![7; values]).encode_to_vec()));
    let outcome = client(async {
        let mut grpc = Grpc::connect(&server).await;
        // 3 MiB in about 20 KB; the share of a connection is 2 MiB.
        let all = [of("a", 3), of("b", 3 * VALUES), of("c", 5)];
        grpc.call(STREAM, &[("grpc-encoding", "gzip")], &all).await
    });
    let results = results(&outcome);
    assert_eq!((outcome.status, results.len()), (0, 3), "{} {results:?}", outcome.message);
    assert_eq!((&results[0], &results[2]), (&Ok(3), &Ok(5)));
    assert!(results[1].as_ref().is_err_and(|e| e.contains("are more than one connection may hold")), "{results:?}");
    wait_for("all charges to end", || used(&budget) == 0);
    assert_eq!(budget.counters().refused, 1);
}

#[test]
fn p2_5_a_message_for_which_memory_stays_short_is_rejected_and_its_stream_continues() {
    let (server, budget) = server();
    let outcome = client(async {
        let mut grpc = Grpc::connect(&server).await;
        let (response, mut body) = grpc.open(STREAM, &[]).await;
        let large = frame(0, &infer_request("id", "", &vec![7; VALUES]).encode_to_vec());
        // There is memory for a part of it.
        body.send_data(large.slice(..400_000), false).expect("open");
        while used(&budget) < 300_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let held = exhaust_beside(&budget, used(&budget));
        body.send_data(large.slice(400_000..), false).expect("open");
        while budget.counters().refused == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(held);
        body.send_data(frame(0, &infer_request("id", "", &[1, 2]).encode_to_vec()), true).expect("open");
        common::finish(response).await
    });
    let results = results(&outcome);
    assert_eq!((outcome.status, results.len()), (0, 2), "{} {results:?}", outcome.message);
    assert!(results[0].as_ref().is_err_and(|e| e.contains("the server is short of memory")), "{results:?}");
    assert_eq!(results[1], Ok(2));
    wait_for("all charges to end", || used(&budget) == 0);
}

#[test]
fn p2_5_a_response_without_memory_fails_its_request_and_its_stream_continues() {
    let (server, budget) = server();
    let outcome = client(async {
        let mut grpc = Grpc::connect(&server).await;
        let (response, mut body) = grpc.open(STREAM, &[]).await;
        let large = infer_request("slow", "large", &vec![7; VALUES / 2]).encode_to_vec();
        body.send_data(frame(0, &large), false).expect("open");
        let probe = server.probe.clone();
        tokio::task::spawn_blocking(move || probe.wait_started(1)).await.expect("starts");
        let held = exhaust_beside(&budget, used(&budget));
        server.probe.open();
        while budget.counters().refused == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(held);
        body.send_data(frame(0, &infer_request("id", "", &[1, 2]).encode_to_vec()), true).expect("open");
        common::finish(response).await
    });
    let results = results(&outcome);
    assert_eq!((outcome.status, results.len()), (0, 2), "{} {results:?}", outcome.message);
    assert!(results[0].as_ref().is_err_and(|e| e.contains("--memory-limit")), "{results:?}");
    assert_eq!(results[1], Ok(2));
    wait_for("all charges to end", || used(&budget) == 0);
}

#[test]
fn very_long_heads_and_requests_sent_ahead_are_charged() {
    let (server, budget) = server();
    let mut http = server.connect();
    let long = "x".repeat(40_000);
    http.send(format!("GET /v2 HTTP/1.1\r\nHost: x\r\nX-Long: {long}").as_bytes());
    wait_for("a charge for half a head", || used_for(&budget, Kind::Head) > 0);
    http.send(b"\r\n\r\n");
    assert_eq!(http.response().status, 200);
    wait_for("it to end", || used(&budget) == 0);
    let request = post("/v2/models/slow/infer", "", infer_json(&[1]).as_bytes());
    http.send(&request);
    server.probe.wait_started(1);
    let ahead = "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
    http.send(ahead.as_bytes());
    wait_for("a charge for what was sent ahead", || used_for(&budget, Kind::Head) > 0);
    server.probe.open();
    for _ in 0..501 {
        assert_eq!(http.response().status, 200);
    }
    wait_for("it to end", || used(&budget) == 0);
}

#[test]
fn responses_over_h2c_are_charged_until_they_are_read_and_fail_if_memory_is_short() {
    let (server, budget) = server();
    let (head, body) = infer_binary(&vec![7; VALUES / 2]);
    client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let mut post = |model: &str| {
            let request = http::Request::post(format!("http://x/v2/models/{model}/infer"))
                .header("inference-header-content-length", head)
                .body(())
                .unwrap();
            let (response, mut to) = send.send_request(request, false).unwrap();
            to.send_data(body.clone().into(), true).unwrap();
            response
        };
        let unread = post("id").await.unwrap();
        assert_eq!(unread.status(), 200);
        wait_for("the answer to be charged", || used_for(&budget, Kind::Answer) >= VALUES * 2);
        drop(unread);
        let response = post("slow");
        let probe = server.probe.clone();
        tokio::task::spawn_blocking(move || probe.wait_started(1)).await.unwrap();
        let held = exhaust_beside(&budget, used(&budget));
        server.probe.open();
        let response = response.await.unwrap();
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"1".parse().unwrap()));
        drop(held);
    });
    wait_for("all charges to end", || used(&budget) == 0);
    assert_eq!(budget.counters().refused, 1);
}
