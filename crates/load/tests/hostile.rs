//! Servers that break the protocol, send without end or do not answer: a measurement of them ends in its time, and its
//! failures say what was found.

mod support;

use load::plan::{Form, Plan, Protocol, Responses, Tls};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use support::{counts, measure, plan, serve};

/// Time of a run, and of a request without an answer.
const SHORT_S: f64 = 0.3;
/// Time of a request that another limit ends.
const ENDED_S: f64 = 15.0;
/// No run takes longer, on a machine that does much else.
const LONG: Duration = Duration::from_secs(30);

/// Measures a server that handles connections with `work`: no request succeeds, and the failures are of this kind.
fn check(plan: Plan, expected: &str, work: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) {
    let address = serve(move |mut stream| {
        let _ = work(&mut stream);
    });
    let begin = Instant::now();
    let timeout_s = if expected.contains("within") { SHORT_S } else { ENDED_S };
    let result =
        measure(Plan { address, seconds: SHORT_S, requests_max: 1, timeout_s, response_bytes_max: 1 << 20, ..plan });
    let (requests, errors, text) = counts(&result);
    assert!(text.contains(expected), "{text:?} is not {expected:?}");
    assert!(requests == 0 && errors > 0, "{expected}: {requests} requests, {errors} errors");
    assert!(begin.elapsed() < LONG, "{expected}: {:?}", begin.elapsed());
}

fn request(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read(&mut [0; 4096]).map(drop)
}

/// Sends this again and again, until the client goes away.
fn forever(stream: &mut TcpStream, piece: &[u8]) -> std::io::Result<()> {
    loop {
        stream.write_all(piece)?;
    }
}

/// Keeps the connection open until the client closes it.
fn silence(stream: &mut TcpStream) -> std::io::Result<()> {
    std::io::copy(stream, &mut std::io::sink()).map(drop)
}

#[test]
fn http_without_end() {
    check(plan(4), "whose head is longer than 65536 bytes", |stream| {
        request(stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: ")?;
        forever(stream, b"yyyyyyyy")
    });
    check(plan(4), "too many headers", |stream| {
        request(stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        forever(stream, b"X: y\r\n")
    });
    check(plan(4), "more than 1048576 bytes", |stream| {
        request(stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        forever(stream, &[b'x'; 4096])
    });
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(plan(4), "more than 1048576 bytes", |stream| {
        request(stream)?;
        stream.write_all(chunked)?;
        forever(stream, &b"6\r\nhello!\r\n".repeat(1000))
    });
    check(Plan { form: Form::Events, ..plan(4) }, "more than 1048576 bytes", |stream| {
        request(stream)?;
        stream.write_all(chunked)?;
        forever(stream, &b"7\r\ndata: x\r\n".repeat(1000))
    });
    check(plan(4), "no response within 0.3 s", |stream| {
        request(stream)?;
        stream.write_all(chunked)?;
        loop {
            stream.write_all(b"1\r\nx\r\n")?;
            std::thread::yield_now();
            if stream.set_read_timeout(Some(Duration::from_millis(20))).is_ok() {
                let _ = stream.read(&mut [0]);
            }
        }
    });
}

#[test]
fn http_that_ends_early() {
    check(plan(4), "closed the connection without a response", request);
    check(plan(4), "closed the connection inside a response", |stream| {
        request(stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")?;
        stream.shutdown(Shutdown::Write)?;
        silence(stream)
    });
    check(plan(4), "no response within 0.3 s", silence);
    check(plan(4), "not HTTP/1.1", |stream| {
        request(stream)?;
        stream.write_all(b"220 mail.example ESMTP\r\n")
    });
    check(plan(4), "2 bytes after a response", |stream| {
        request(stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokok")
    });
    // A body that is not taken: the answer says why.
    check(plan(8 << 20), "413 too much", |stream| {
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 20\r\n\r\n{\"error\":\"too much\"}")?;
        silence(stream)
    });
}

const fn head(length: u32, kind: u8, flags: u8, stream: u8) -> [u8; 9] {
    let [_, a, b, c] = length.to_be_bytes();
    [a, b, c, kind, flags, 0, 0, 0, stream]
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Reads until the call came, whose fields end with its content type.
fn call(stream: &mut TcpStream) -> std::io::Result<()> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while !all.windows(16).any(|w| w == b"application/grpc") {
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
    Ok(())
}

/// A server of gRPC that sends its settings, reads a call, and goes on with `then`.
fn check_grpc(expected: &str, then: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) {
    check(Plan { protocol: Protocol::Grpc, ..plan(4) }, expected, move |stream| {
        stream.write_all(&head(0, SETTINGS, 0, 0))?;
        call(stream)?;
        then(stream)
    });
}

/// The same with this frame.
fn check_frame(expected: &str, head: [u8; 9], payload: &'static [u8]) {
    check_grpc(expected, move |stream| {
        stream.write_all(&[&head, payload].concat())?;
        silence(stream)
    });
}

#[test]
fn grpc_without_end() {
    check_grpc("a header block of more than 65536 bytes", |stream| {
        stream.write_all(&head(0, HEADERS, 0, 1))?;
        forever(stream, &[&head(1000, CONTINUATION, 0, 1)[..], &[0x88; 1000]].concat())
    });
    check_grpc("more than 1048576 bytes", |stream| {
        forever(stream, &[&head(1000, DATA, 0, 1)[..], &[0; 1000]].concat())
    });
    // It asks, and does not read the answers.
    check_grpc("does not read", |stream| forever(stream, &[&head(8, PING, 0, 0)[..], &[7; 8]].concat().repeat(1000)));
    check_grpc("opens a window beyond its limit", |stream| {
        forever(stream, &[&head(4, WINDOW_UPDATE, 0, 0)[..], &[0x7f, 255, 255, 255]].concat())
    });
    check_grpc("no response within 0.3 s", silence);
    check(Plan { protocol: Protocol::Grpc, ..plan(4) }, "no response within 0.3 s", silence);
    let stream = Plan { protocol: Protocol::Grpc, form: Form::Stream, responses: Responses::Final, ..plan(4) };
    check(stream, "more than 1048576 bytes", |stream| {
        stream.write_all(&head(0, SETTINGS, 0, 0))?;
        call(stream)?;
        stream.write_all(&[&head(5, DATA, 0, 1)[..], &[0, 255, 255, 255, 255]].concat())?;
        forever(stream, &[&head(1000, DATA, 0, 1)[..], &[0; 1000]].concat())
    });
}

#[test]
fn grpc_that_breaks_the_protocol() {
    check_frame("a frame of kind 0 with 16777215 bytes", head(0xff_ffff, DATA, 0, 1), b"");
    check_frame("a frame of kind 1 with 100000 bytes", head(100_000, HEADERS, END_HEADERS, 1), b"");
    check_frame("a header block that cannot be read", head(3, HEADERS, END_HEADERS, 1), &[0xff, 0xff, 0xff]);
    check_frame("a header block that cannot be read", head(1, HEADERS, END_HEADERS, 1), &[0x80]);
    check_frame("the server reset the call: Reason(8)", head(4, RST_STREAM, 0, 1), &[0, 0, 0, 8]);
    check_frame("Reason(11) \"calm\"", head(12, GOAWAY, 0, 0), &[0, 0, 0, 1, 0, 0, 0, 11, b'c', b'a', b'l', b'm']);
    check_frame("did not take the call", head(8, GOAWAY, 0, 0), &[0; 8]);
    check_frame("a frame that is too short", head(3, GOAWAY, 0, 0), &[0; 3]);
    check_frame("a ping that is not 8 bytes", head(2, PING, 0, 0), &[0; 2]);
    check_frame("the server allows no streams", head(6, SETTINGS, 0, 0), &[0, 3, 0, 0, 0, 0]);
    check_frame("frames below their limit", head(6, SETTINGS, 0, 0), &[0, 5, 0, 0, 0, 0]);
    check_frame("a window beyond its limit", head(6, SETTINGS, 0, 0), &[0, 4, 255, 255, 255, 255]);
    check_grpc("the server closed the connection", |stream| {
        stream.shutdown(Shutdown::Write)?;
        silence(stream)
    });
    check(Plan { protocol: Protocol::Grpc, ..plan(4) }, "a frame of kind", |stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
        silence(stream)
    });
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error_of_the_program() {
    let error = |plan: Plan| match load::run(Plan { timeout_s: SHORT_S, ..plan }, || false, |_| {}) {
        Ok(outcome) => panic!("ran: {}", outcome.json()),
        Err(e) => e.to_string(),
    };
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("an address");
    let text = error(Plan { address: closed.to_string(), ..plan(1) });
    assert!(text.contains(&format!("cannot connect to {closed}: Connection refused")), "{text}");
    // It takes connections, and no handshake.
    let address = serve(|mut stream| drop(silence(&mut stream)));
    let tls = Some(Tls { insecure: true, ..Tls::default() });
    let text = error(Plan { address: address.clone(), tls, ..plan(1) });
    assert_eq!(text, format!("no connection to {address} within 0.3 s"));
}
