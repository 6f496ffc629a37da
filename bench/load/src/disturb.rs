//! What goes on beside a server while its latency is measured, until standard input ends: questions put to it over and over, and,
//! for comparison, work that has nothing to do with it.
//!
//! A process of its own and without a runtime, so that the asking disturbs little where client and server share cores.

use crate::arguments::{Arguments, Failure};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the control for a thread that loads a model copies over and over: more than caches hold.
const COPIED_BYTES: usize = 64 << 20;

/// Set when standard input ended.
static OVER: AtomicBool = AtomicBool::new(false);

fn until_input_ends() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Ordering::Relaxed);
    });
}

fn goes_on() -> bool {
    !OVER.load(Ordering::Relaxed)
}

/// A thread that computes in registers.
pub fn compute() -> Result<(), Failure> {
    until_input_ends();
    while goes_on() {
        let mut x = 1u64;
        for i in 0..10_000 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i));
        }
    }
    Ok(())
}

/// A thread that copies memory, as far behind others as threads of the server are that load models.
pub fn copy() -> Result<(), Failure> {
    memory::thread::step_behind();
    until_input_ends();
    let (from, mut to) = (vec![1u8; COPIED_BYTES], vec![0u8; COPIED_BYTES]);
    while goes_on() {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    Ok(())
}

/// Prints how often all of `--paths` were answered with success, and with `--contains` in the answer.
pub fn ask(a: &Arguments) -> Result<(), Failure> {
    let (address, method) = (a.text("address")?, a.text("method")?);
    let paths: Vec<&str> = a.text("paths")?.split(',').collect();
    let contains = a.optional("contains").unwrap_or("");
    let every = Duration::from_millis(a.number("every-ms", 0)?);
    until_input_ends();
    let mut connection = BufReader::new(TcpStream::connect(address)?);
    let (mut rounds, mut due) = (0u64, Instant::now());
    while goes_on() {
        for path in &paths {
            let body = answer(&mut connection, address, method, path)?;
            if !String::from_utf8_lossy(&body).contains(contains) {
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
fn answer(connection: &mut BufReader<TcpStream>, address: &str, method: &str, path: &str) -> Result<Vec<u8>, Failure> {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
    connection.get_mut().write_all(request.as_bytes())?;
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
