//! The HTTP client against servers that answer in every form.

mod support;

use load::plan::{Arrivals, Form, Plan};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{counts, measure, plan, serve};

/// Reads the head of a request and its four bytes; `None` when the client closed the connection.
fn request(stream: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    stream.read_exact(&mut [0; 4]).ok()?;
    Some(head)
}

/// A server that sends these answers in turn on every connection, and closes it behind the last; the count of its
/// connections.
fn answers(answers: &'static [&'static str]) -> (String, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let address = serve(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        for answer in answers {
            let Some(head) = request(&mut reader) else { return };
            assert!(head.starts_with("POST /p HTTP/1.1\r\nHost: ") && head.contains("\r\nContent-Length: 4\r\n"));
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, connections)
}

/// Six requests to such a server: successes, failures, the first failure, connections.
fn check(all: &'static [&'static str], expected: (u64, u64, &str), connections: usize) {
    let (address, opened) = answers(all);
    let result = measure(Plan { address, requests_max: 6, ..plan(4) });
    assert_eq!(counts(&result), expected, "{all:?}");
    assert_eq!(opened.load(Ordering::Relaxed), connections, "{all:?}");
}

const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
const CLOSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
const OBJECT: &str = "HTTP/1.1 400 No\r\nContent-Length: 40\r\nConnection: close\r\n\r\n\
                      {\"error\":{\"message\":\"no\",\"code\":\"none\"}}";
const REFUSED: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 16\r\n\r\n{\"error\":\"busy\"}";

#[test]
fn a_connection_is_used_as_long_as_the_server_keeps_it() {
    check(&[LENGTH, CHUNKS, LENGTH, CHUNKS, LENGTH, LENGTH], (6, 0, ""), 1);
    check(&[CLOSE], (6, 0, ""), 6);
    check(&["HTTP/1.0 200 OK\r\n\r\nhello"], (6, 0, ""), 6);
    // It closes idle connections, and does not say so before.
    check(&[LENGTH, LENGTH], (6, 0, ""), 3);
}

#[test]
fn requests_of_the_warm_up_are_no_part_of_those_that_are_asked_for() {
    let (address, _) = answers(&[CLOSE]);
    let result = measure(Plan { address, warmup_s: 0.1, requests_max: 7, ..plan(4) });
    assert_eq!(counts(&result), (7, 0, ""));
}

#[test]
fn the_text_of_a_failure_is_that_of_the_server() {
    check(&[REFUSED, LENGTH, REFUSED, LENGTH, REFUSED, LENGTH], (3, 3, "503 busy"), 1);
    check(&["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"], (0, 6, "404 Not Found"), 6);
    check(&[OBJECT], (0, 6, "400 no"), 6);
}

#[test]
fn an_open_loop_counts_the_time_that_a_request_waits_for_its_turn() {
    // The server needs 20 ms for each and gets one each 10 ms: the last of ten waits 100 ms.
    let address = serve(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        while request(&mut reader).is_some() {
            // A read that ends after its time: nothing else comes.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0]);
            let _ = stream.set_read_timeout(None);
            let _ = stream.write_all(LENGTH.as_bytes());
        }
    });
    let arrivals = Arrivals::Constant;
    let result = measure(Plan { address, arrivals, rate: 100.0, requests_max: 10, samples: true, ..plan(4) });
    assert_eq!(counts(&result), (10, 0, ""));
    let samples: Vec<f64> =
        result["samples_us"].as_array().expect("samples").iter().filter_map(|s| s.as_f64()).collect();
    assert!(samples.len() == 10 && samples[9] > samples[0] + 80_000.0, "{samples:?}");
    let late = result["late_us"]["max"].as_f64().expect("lateness");
    assert!(late > 80_000.0, "{late}");
}

#[test]
fn events_are_responses_and_their_times_are_known() {
    const STREAM: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                          15\r\ndata: {}\n\ndata: {}\n\nd\r\nd\r\nata: [DONE]\n\n\r\n";
    let whole: &'static str = Box::leak(format!("{STREAM}0\r\n\r\n").into_boxed_str());
    let of = |all: &'static [&'static str]| {
        let (address, opened) = answers(all);
        (measure(Plan { address, form: Form::Events, requests_max: 4, ..plan(4) }), opened)
    };
    let all: &'static [&'static str] = Box::leak(Box::new([whole; 4]));
    let (result, opened) = of(all);
    assert_eq!(counts(&result), (4, 0, ""));
    assert_eq!((result["responses"].as_u64(), opened.load(Ordering::Relaxed)), (Some(8), 1));
    let time = |name: &str, which: &str| result[name][which].as_f64().expect(name);
    assert!(time("first_us", "max") <= time("latency_us", "max") && time("between_us", "max") > 0.0, "{result}");
    const FAILED: &str =
        "HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\ndata: {}\n\ndata: {\"error\":\"out of memory\"}\n\n";
    assert_eq!(counts(&of(&[FAILED; 4]).0), (0, 4, "out of memory"));
}

#[test]
fn a_stream_that_is_done_and_does_not_end_is_no_failure() {
    let address = serve(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let _ = request(&mut reader);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\ndata: [DONE]\n\n");
        let _ = reader.read(&mut [0]);
    });
    let result = measure(Plan { address, form: Form::Events, requests_max: 2, ..plan(4) });
    assert_eq!(counts(&result), (2, 0, ""));
    assert!(result["latency_us"]["max"].as_f64().is_some_and(|us| us < 100_000.0), "{result}");
}

#[test]
fn a_unix_socket_is_an_address() {
    let path = std::env::temp_dir().join(format!("nereid-load-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("binds");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            while request(&mut reader).is_some_and(|head| head.contains("\r\nHost: localhost\r\n")) {
                let _ = stream.write_all(LENGTH.as_bytes());
            }
        }
    });
    let address = format!("unix:{}", path.display());
    let result = measure(Plan { address, requests_max: 6, ..plan(4) });
    let _ = std::fs::remove_file(&path);
    assert_eq!(counts(&result), (6, 0, ""));
}

#[test]
fn progress_and_the_series_have_all_requests() {
    let (address, _) = answers(&[CLOSE]);
    let mut points = Vec::new();
    let plan = Plan { address, seconds: 0.35, progress_s: 0.1, warmup_s: 0.05, ..plan(4) };
    let outcome = load::run(plan, || false, |point| points.push(point)).expect("runs");
    let result = outcome.json()["result"].take();
    let series = result["series"].as_array().expect("a series");
    assert!(points.len() >= 3 && series.len() >= points.len(), "{points:?} {series:?}");
    assert!(points.iter().all(|p| p["errors"] == 0 && p["requests"].as_u64() > Some(0)), "{points:?}");
    assert_eq!(
        (points[0]["at_s"].as_f64(), points[0]["rate"].as_f64()),
        (series[0]["at_s"].as_f64(), series[0]["rate"].as_f64())
    );
}
