//! The gRPC client against servers on the `h2` crate, of which nothing is ours.

mod support;

use bytes::{Bytes, BytesMut};
use load::messages::framed;
use load::plan::{Arrivals, Plan, Prepared, Protocol};
use support::{counts, measure};
use tokio::net::TcpListener;

/// Settings of a test server that sends each message back.
#[derive(Clone, Copy)]
struct Behaviour {
    window: u32,
    table_bytes: u32,
    streams: u32,
    status: &'static str,
}

const USUAL: Behaviour = Behaviour { window: 65_535, table_bytes: 4096, streams: 100, status: "0" };

/// An echo on the `h2` crate, for one connection after the other; nothing of it is ours.
async fn serve(listener: TcpListener, b: Behaviour) {
    while let Ok((io, _)) = listener.accept().await {
        tokio::task::spawn_local(async move {
            let mut builder = h2::server::Builder::new();
            builder.initial_window_size(b.window).header_table_size(b.table_bytes).max_concurrent_streams(b.streams);
            let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                assert_eq!(request.headers()["content-type"], "application/grpc");
                assert_eq!(request.uri().path(), "/p");
                tokio::task::spawn_local(echo(request, respond, b.status));
            }
        });
    }
}

async fn echo(request: http::Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>, status: &str) {
    let mut body = request.into_body();
    let mut message = BytesMut::new();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
        message.extend_from_slice(&chunk);
    }
    let head = http::Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let Ok(mut send) = respond.send_response(head, false) else { return };
    let _ = send.send_data(message.freeze(), false);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", status.parse().expect("a value"));
    trailers.insert("grpc-message", "so it is".parse().expect("a value"));
    let _ = send.send_trailers(trailers);
}

/// Starts a test server, on a thread of its own.
fn start(b: Behaviour) -> String {
    let (tell, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            tell.send(listener.local_addr().expect("an address").to_string()).expect("is asked for");
            serve(listener, b).await;
        });
    });
    address.recv().expect("an address")
}

/// Measures a test server: requests, errors, the first failure.
fn check(b: Behaviour, plan: Plan, expected: (u64, u64, &str)) {
    let result = measure(Plan { address: start(b), ..plan });
    assert_eq!(counts(&result), expected, "{} {}", b.window, b.table_bytes);
}

fn plan(bytes: usize, connections: usize, streams: usize, requests_max: u64) -> Plan {
    let plan = support::plan(bytes);
    let expected = framed(&plan.ring[0].body);
    Plan { protocol: Protocol::Grpc, expected, connections, streams, requests_max, ..plan }
}

#[test]
fn every_answer_is_the_message_whatever_windows_and_tables_the_server_has() {
    for window in [65_535, 100, 1 << 20] {
        for table_bytes in [4096, 0, 100] {
            for (bytes, requests) in [(0, 200), (100, 200), (300_000, 12)] {
                check(Behaviour { window, table_bytes, ..USUAL }, plan(bytes, 2, 3, requests), (requests, 0, ""));
            }
        }
    }
}

#[test]
fn no_more_streams_are_open_than_the_server_allows() {
    check(Behaviour { streams: 2, ..USUAL }, plan(10, 1, 8, 100), (100, 0, ""));
}

#[test]
fn what_differs_and_what_fails_is_an_error() {
    let other = Plan { expected: Bytes::from_static(b"other"), ..plan(10, 1, 2, 20) };
    check(USUAL, other, (0, 20, "a response differs from the expected one"));
    check(Behaviour { status: "5", ..USUAL }, plan(10, 1, 2, 20), (0, 20, "grpc-status 5 so it is"));
}

#[test]
fn a_ring_is_sent_in_turn_and_each_answer_is_looked_at() {
    // A value of this length takes more than one byte for its length.
    let request = |i: u8| Prepared {
        headers: vec![("X-Long".into(), format!("{i:0200x}"))],
        body: Bytes::from(vec![i; 10 + usize::from(i)]),
        tail: Bytes::from(vec![i; 5]),
        counter_at: None,
    };
    let ring: Vec<Prepared> = (0..7).map(request).collect();
    let verified = |ring| Plan { verify: true, expected: Bytes::new(), ring, ..plan(0, 2, 3, 100) };
    check(USUAL, verified(ring.clone()), (100, 0, ""));
    let wrong = ring.into_iter().map(|r| Prepared { tail: Bytes::from_static(b"other"), ..r }).collect();
    check(USUAL, verified(wrong), (0, 100, "a response differs from the expected one"));
}

#[test]
fn an_open_loop_sends_what_arrives() {
    for arrivals in [Arrivals::Poisson, Arrivals::Constant] {
        let plan = Plan { address: start(USUAL), arrivals, rate: 2000.0, seconds: 0.3, seed: 3, ..plan(10, 2, 4, 0) };
        let result = measure(plan);
        let all = counts(&result).0 + result["unsent"].as_u64().expect("a number");
        assert!((450..750).contains(&all), "{all} of about 600 arrivals");
        assert_eq!(counts(&result).1, 0);
        assert!(result["late_us"]["p50"].as_f64().is_some());
    }
}
