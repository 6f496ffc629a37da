//! Disturbs a server while its latency is measured, until standard input ends: repeated requests and, for comparison,
//! work that does not involve the server.
//!
//! A process of its own and without a runtime, so that the asking disturbs little where client and server share cores.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::arguments::{Arguments, Failure};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set when standard input ended.
static OVER: AtomicBool = AtomicBool::new(false);

pub fn until_input_ends() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Ordering::Relaxed);
    });
}

pub fn goes_on() -> bool {
    !OVER.load(Ordering::Relaxed)
}

/// Computes in registers, on one core.
pub fn compute() {
    until_input_ends();
    while goes_on() {
        compute_a_little();
    }
}

fn compute_a_little() {
    let mut x = 1u64;
    for i in 0..10_000 {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i));
    }
}

/// Prints how often all of `--paths` were answered with success, and with `--contains` in the answer.
pub fn ask(a: &Arguments) -> Result<(), Failure> {
    let (address, method) = (a.text("address")?, a.text("method")?);
    let paths: Vec<&str> = a.text("paths")?.split(',').collect();
    let contains = a.optional("contains").unwrap_or("");
    let every = Duration::from_millis(a.number("every-ms", 0)?);
    let body = if a.optional("body").is_some() { a.file("body")? } else { bytes::Bytes::new() };
    let headers: String =
        a.optional("headers").unwrap_or("").split(';').filter(|h| !h.is_empty()).map(|h| format!("{h}\r\n")).collect();
    until_input_ends();
    let mut connection = BufReader::new(TcpStream::connect(address)?);
    let (mut rounds, mut due) = (0u64, Instant::now());
    while goes_on() {
        for path in &paths {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {}\r\n\r\n",
                body.len()
            );
            let answer = answer(&mut connection, path, &head, &body)?;
            if !contains.is_empty() && !String::from_utf8_lossy(&answer).contains(contains) {
                return Err(format!("{path}: the answer lacks '{contains}'").into());
            }
        }
        rounds += 1;
        due += every;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    println!("{rounds}");
    Ok(())
}

/// One request on a connection that stays open, and the body of its answer.
fn answer(connection: &mut BufReader<TcpStream>, path: &str, head: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
    connection.get_mut().write_all(head.as_bytes())?;
    connection.get_mut().write_all(body)?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let ok = line.split(' ').nth(1) == Some("200");
    let mut length = 0;
    loop {
        let mut header = String::new();
        if connection.read_line(&mut header)? == 0 {
            return Err(format!("{path}: the connection was closed").into());
        }
        let Some((name, value)) = header.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    if ok { Ok(body) } else { Err(format!("{path}: {} {}", line.trim(), String::from_utf8_lossy(&body)).into()) }
}
