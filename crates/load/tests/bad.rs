//! Servers that go bad while they are measured: what is said of them is true, and the run ends in its time.

mod support;

use load::plan::{Arrivals, Plan, Protocol};
use load::report::Outcome;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{counts, plan, serve};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nContent-Length: 16\r\n\r\n{\"error\":\"busy\"}";

/// Answers each request with what `answer` gives, as long as it gives one; then it keeps the connection, in silence.
fn server(answer: impl Fn(u64) -> Option<&'static [u8]> + Send + Sync + 'static) -> String {
    let count = AtomicU64::new(0);
    serve(move |mut stream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
            match answer(count.fetch_add(1, Ordering::Relaxed)) {
                Some(bytes) if stream.write_all(bytes).is_ok() => {}
                _ => return drop(silence(&mut stream)),
            }
        }
    })
}

fn silence(stream: &mut TcpStream) -> std::io::Result<u64> {
    std::io::copy(stream, &mut std::io::sink())
}

/// The outcome of a run that is ended after so many seconds, if not before, its JSON, and how long it took.
fn run(plan: Plan, ends_s: f64) -> (Outcome, Value, f64) {
    let begin = Instant::now();
    let ends = move || begin.elapsed().as_secs_f64() > ends_s;
    let outcome = load::run(plan, ends, |_| {}).expect("runs");
    let json = outcome.json()["result"].take();
    (outcome, json, begin.elapsed().as_secs_f64())
}

fn number(result: &Value, name: &str) -> f64 {
    result[name].as_f64().expect(name)
}

#[test]
fn a_rate_is_over_the_whole_time_although_the_server_went_bad() {
    // It refuses everything behind the 200th request: the answers came in a part of the time.
    let address = server(|i| Some(if i < 200 { OK } else { BUSY }));
    let (_, result, _) = run(Plan { address, seconds: 1.0, connections: 2, ..plan(4) }, 60.0);
    let (requests, errors, text) = counts(&result);
    assert!(requests == 200 && errors > 200 && text == "503 busy", "{result}");
    assert_eq!((number(&result, "seconds"), number(&result, "rate")), (1.0, 200.0), "{result}");
    // A run of so many requests ends with the last of them, also with one that failed.
    let address = server(|i| Some(if i < 200 { OK } else { BUSY }));
    let (outcome, result, _) = run(Plan { address, requests_max: 1000, ..plan(4) }, 60.0);
    assert_eq!(counts(&result), (200, 800, "503 busy"));
    let last = outcome.tally.last.expect("an answer").duration_since(outcome.start).as_secs_f64();
    assert!(outcome.seconds > last, "{last} s: {result}");
    assert!((outcome.rate() * outcome.seconds - 200.0).abs() < 0.001, "{result}");
}

/// A server that takes one request at a time, each for two milliseconds.
fn slow() -> String {
    let one = Arc::new(std::sync::Mutex::new(()));
    serve(move |mut stream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
            let _turn = one.lock();
            let _ = stream.set_read_timeout(Some(Duration::from_millis(2)));
            // Nothing comes: this is the time that a request takes.
            let _ = stream.read(&mut [0]);
            let _ = stream.set_read_timeout(None);
            if stream.write_all(OK).is_err() {
                return;
            }
        }
    })
}

#[test]
fn an_overloaded_open_loop_shows_what_the_server_does() {
    // It does at most 500 a second. Of 600 due in the first second many are answered behind it, and all count.
    for (rate, arrivals, warmup_s) in
        [(600.0, Arrivals::Constant, 0.0), (5000.0, Arrivals::Poisson, 0.0), (200_000.0, Arrivals::Constant, 0.5)]
    {
        let plan = Plan { address: slow(), arrivals, rate, warmup_s, seconds: 1.0, connections: 4, ..plan(4) };
        let (outcome, result, took) = run(plan, 60.0);
        let (requests, errors, _) = counts(&result);
        let (unsent, seconds) = (number(&result, "unsent"), number(&result, "seconds"));
        assert!(requests > 100 && errors == 0, "{rate}: {result}");
        assert!(outcome.rate() <= 500.0, "{rate}: {}", outcome.rate());
        let due = requests as f64 + unsent;
        assert!((due / rate - 1.0).abs() < 0.1, "{rate}: {due} were due");
        assert!(seconds == 1.0 && took < 10.0, "{rate}: {seconds} s, took {took} s");
        // The backlog is sent for a second longer, and no more.
        let last = outcome.tally.last.expect("an answer").duration_since(outcome.start).as_secs_f64();
        assert!(last > 1.0 && (outcome.rate() * last / requests as f64 - 1.0).abs() < 0.001, "{rate}: {last} s");
        assert!(rate < 1000.0 || unsent > rate / 2.0, "{rate}: {unsent} unsent");
    }
}

/// Plans of closed and open loops, over both protocols, to a server that keeps silent after so many answers.
fn frozen(answers: u64) -> Vec<Plan> {
    let protocols = [Protocol::Http, Protocol::Grpc].into_iter();
    let all = protocols.flat_map(|p| [(p, Arrivals::Closed), (p, Arrivals::Constant)]);
    all.map(|(protocol, arrivals)| {
        // Over gRPC it takes the connection, and says that it is ready.
        let address = match protocol {
            Protocol::Http => server(move |i| (i < answers).then_some(OK)),
            Protocol::Grpc => serve(|mut stream| {
                let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
                let _ = silence(&mut stream);
            }),
        };
        Plan { address, protocol, arrivals, rate: 1000.0, connections: 2, streams: 2, ..plan(4) }
    })
    .collect()
}

#[test]
fn a_run_against_a_frozen_server_ends_when_its_requests_may_take_no_longer() {
    for plan in frozen(20) {
        let case = format!("{:?} {:?}", plan.protocol, plan.arrivals);
        // The limit of a request is longer than the time in which they are due.
        let (_, result, took) = run(Plan { seconds: 0.5, timeout_s: 1.0, ..plan.clone() }, 60.0);
        let (requests, errors, text) = counts(&result);
        // An open loop sends what was due already in place of those that took too long.
        let expected = if plan.arrivals == Arrivals::Closed { 4 } else { 8 };
        assert_eq!((errors, text), (expected, "no response within 1 s"), "{case}: {result}");
        assert!((1.0..2.3).contains(&took), "{case}: took {took} s");
        assert_eq!(number(&result, "rate"), requests as f64 / 0.5, "{case}: {result}");
        if plan.arrivals == Arrivals::Constant {
            let due = (requests + errors) as f64 + number(&result, "unsent");
            assert!((498.0..=500.0).contains(&due), "{case}: {due} of 500 were due");
        }
    }
}

#[test]
fn a_run_that_is_ended_ends_at_once_whatever_is_in_flight() {
    let mut quickest = f64::MAX;
    for plan in frozen(20) {
        let case = format!("{:?} {:?}", plan.protocol, plan.arrivals);
        let (_, result, took) = run(plan.clone(), 0.4);
        quickest = quickest.min(took);
        let (requests, errors, text) = counts(&result);
        assert_eq!((errors, text), (4, "no response before the run was ended"), "{case}: {result}");
        assert_eq!(requests, if plan.protocol == Protocol::Http { 20 } else { 0 }, "{case}: {result}");
        assert!(took < 1.4, "{case}: took {took} s");
        let unsent = number(&result, "unsent");
        assert!(
            unsent <= took * 1000.0 && (unsent > 300.0) == (plan.arrivals != Arrivals::Closed),
            "{case}: {unsent} unsent"
        );
    }
    // A busy machine may hold up one of them.
    assert!(quickest < 0.5, "{quickest} s");
}

#[test]
fn a_run_that_is_ended_before_it_has_a_connection_says_so() {
    let address = serve(|mut stream| drop(silence(&mut stream)));
    let tls = Some(load::plan::Tls { insecure: true, ..Default::default() });
    let begin = Instant::now();
    let error = load::run(Plan { address: address.clone(), tls, ..plan(1) }, || true, |_| {}).err().expect("an error");
    assert_eq!(error.to_string(), format!("ended before a connection to {address} was open"));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn unsent_requests_are_those_of_the_window_alone() {
    // Nobody answers from the beginning, so that the warm-up leaves arrivals.
    for plan in frozen(0).into_iter().filter(|plan| plan.arrivals == Arrivals::Constant) {
        let (_, result, took) = run(Plan { warmup_s: 0.3, ..plan }, 0.5);
        assert_eq!(counts(&result), (0, 0, ""));
        let (seconds, unsent) = (number(&result, "seconds"), number(&result, "unsent"));
        assert!(seconds < took - 0.29 && (unsent - 1000.0 * seconds).abs() < 2.0, "took {took} s: {result}");
    }
}

#[test]
fn connections_have_their_turns_alike() {
    const ALL: usize = 4;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address").to_string();
    // One thread looks at each of them in turn: who has more answers than others sent more.
    let counting = std::thread::spawn(move || {
        let mut streams: Vec<_> = listener.incoming().flatten().take(ALL).collect();
        streams.iter().for_each(|stream| stream.set_nonblocking(true).expect("is set"));
        let (mut counts, mut open) = ([0u64; ALL], [true; ALL]);
        while open.contains(&true) {
            for (i, stream) in streams.iter_mut().enumerate() {
                match stream.read(&mut [0; 4096]) {
                    Ok(n) if n > 0 && stream.write_all(OK).is_ok() => counts[i] += 1,
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                    _ => open[i] = false,
                }
            }
        }
        counts
    });
    let (_, result, _) = run(Plan { address, requests_max: 20_000, connections: ALL, ..plan(4) }, 60.0);
    assert_eq!(counts(&result), (20_000, 0, ""));
    let counts = counting.join().expect("counts");
    assert!(counts.iter().all(|count| (4500..5500).contains(count)), "{counts:?}");
}
