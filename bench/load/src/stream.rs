//! Clients of a decoupled model: responses are counted, and where that is asked for looked at one by one.
//!
//! The model is `repeat`: a request has values and delays, and each value comes back alone, with its index, after its
//! delay. Every connection has requests of its own, so that a response which reaches the wrong reader is seen: a value
//! tells its connection and its request.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::arguments::{Arguments, Failure};
use crate::measure;
use bytes::{Buf, Bytes, BytesMut};
use load::messages::{PREFIX_BYTES, framed, message_bytes};
use load::report::Tally;
use prost::Message;
use protocol::pb::inference as pb;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No response ever waits for a window update.
const WINDOW: u32 = 1 << 30;
/// Values of a connection begin this far apart: more than it gets responses in a run.
const CONNECTION_VALUES: i32 = 1 << 24;
/// The model, unless `--model` names another that does the same.
const MODEL: &str = "repeat";

/// The load, for all connections.
struct Plan {
    address: String,
    model: String,
    is_grpc: bool,
    connections: usize,
    /// Responses of one request.
    responses: u32,
    delay_ms: u32,
    /// From a request to the next one of its connection; zero: as soon as the last one is over.
    every: Duration,
    /// No request begins after this.
    duration: Duration,
    /// Requests of a connection; 0: as many as there is time for.
    requests: u32,
    /// Every response is decoded and compared.
    check: bool,
    /// Length of the id of an HTTP request, which each of its responses repeats; 0 = no id.
    id_bytes: usize,
}

/// The values that a request asks for: those of no other one.
fn values(plan: &Plan, connection: usize, request: u32) -> impl Iterator<Item = i32> {
    let from = (connection as i32).wrapping_mul(CONNECTION_VALUES).wrapping_add((request * plan.responses) as i32);
    (0..plan.responses).map(move |i| from.wrapping_add(i as i32))
}

fn grpc_request(plan: &Plan, connection: usize, request: u32) -> Bytes {
    let input = |name: &str, datatype: &str, n: u32| pb::model_infer_request::InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: vec![i64::from(n)],
        ..Default::default()
    };
    let four = |list: &mut dyn Iterator<Item = [u8; 4]>| Bytes::from(list.flatten().collect::<Vec<u8>>());
    let n = plan.responses;
    let message = pb::ModelInferRequest {
        model_name: plan.model.clone(),
        id: format!("{connection}-{request}"),
        // The end of each request comes alone, whatever server it is.
        parameters: [("triton_enable_empty_final_response".into(), parameter(true))].into(),
        inputs: vec![input("IN", "INT32", n), input("DELAY", "UINT32", n), input("WAIT", "UINT32", 1)],
        raw_input_contents: vec![
            four(&mut values(plan, connection, request).map(i32::to_le_bytes)),
            four(&mut std::iter::repeat_n(plan.delay_ms.to_le_bytes(), n as usize)),
            four(&mut std::iter::once(0u32.to_le_bytes())),
        ],
        ..Default::default()
    };
    framed(&message.encode_to_vec().into())
}

fn parameter(value: bool) -> pb::InferParameter {
    pb::InferParameter { parameter_choice: Some(pb::infer_parameter::ParameterChoice::BoolParam(value)) }
}

fn http_request(plan: &Plan, connection: usize, request: u32) -> Vec<u8> {
    let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(",");
    let id = match plan.id_bytes {
        0 => String::new(),
        bytes => format!("\"id\":\"{connection:0bytes$}\","),
    };
    let body = format!(
        "{{{id}\"IN\":[{}],\"DELAY\":[{}],\"WAIT\":0}}",
        list(&mut values(plan, connection, request).map(|v| v.to_string())),
        list(&mut std::iter::repeat_n(plan.delay_ms.to_string(), plan.responses as usize)),
    );
    let length = body.len();
    let model = &plan.model;
    format!("POST /v2/models/{model}/generate_stream HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// A request on its way, and what came of it.
struct Expected<'a> {
    plan: &'a Plan,
    connection: usize,
    request: u32,
    /// Responses that came.
    came: u32,
    sent: Instant,
    /// When the last one came.
    last: Instant,
}

impl<'a> Expected<'a> {
    fn new(plan: &'a Plan, connection: usize, request: u32) -> Self {
        let now = Instant::now();
        Self { plan, connection, request, came: 0, sent: now, last: now }
    }

    /// Counts a response. With a delay its latency is the time since the one before it.
    fn one(&mut self, tally: &mut Tally) {
        self.came += 1;
        if self.plan.delay_ms > 0 {
            let now = Instant::now();
            tally.done(std::mem::replace(&mut self.last, now), now, false);
        }
    }

    /// Compares a response with the one that is due.
    fn compare(&self, value: i32, index: u32) -> Result<(), Failure> {
        let due = values(self.plan, self.connection, self.request).nth(self.came as usize);
        if (due, self.came) == (Some(value), index) {
            return Ok(());
        }
        Err(format!("response {index} with value {value} where {} with {due:?} is due", self.came).into())
    }

    fn end(&self, tally: &mut Tally) -> Result<(), Failure> {
        if self.came != self.plan.responses {
            return Err(format!("a request ended after {} of {} responses", self.came, self.plan.responses).into());
        }
        if self.plan.delay_ms == 0 {
            tally.done(self.sent, Instant::now(), false);
        }
        Ok(())
    }
}

/// Counts of a connection.
struct Counted {
    tally: Tally,
    responses: u64,
    requests: u32,
}

impl Counted {
    fn new() -> Self {
        Self { tally: Tally::default(), responses: 0, requests: 0 }
    }

    /// Waits until the next request is due; `false` when there is none.
    async fn next(&self, plan: &Plan, start: Instant) -> bool {
        if plan.requests > 0 && self.requests == plan.requests {
            return false;
        }
        if !plan.every.is_zero() {
            tokio::time::sleep_until((start + plan.every * self.requests).into()).await;
        }
        start.elapsed() < plan.duration
    }
}

/// Takes whole messages off a body, and says whether the request is over.
fn take_messages(buffer: &mut BytesMut, expected: &mut Expected<'_>, tally: &mut Tally) -> Result<bool, Failure> {
    loop {
        let Some(length) = message_bytes(buffer)? else { return Ok(false) };
        if buffer.len() < PREFIX_BYTES + length {
            return Ok(false);
        }
        buffer.advance(PREFIX_BYTES);
        let message = buffer.split_to(length);
        let is_end = expected.came == expected.plan.responses;
        if !is_end && !expected.plan.check {
            expected.one(tally);
            continue;
        }
        let message = pb::ModelStreamInferResponse::decode(message.freeze())?;
        if !message.error_message.is_empty() {
            return Err(message.error_message.into());
        }
        let response = message.infer_response.ok_or("a message without a response")?;
        if response.id != format!("{}-{}", expected.connection, expected.request) {
            return Err(format!("a response of another request: {}", response.id).into());
        }
        let is_final = response.parameters.get("triton_final_response") == Some(&parameter(true));
        if is_end != is_final {
            return Err(format!("final: {is_final} after {} responses", expected.came).into());
        }
        if is_end {
            return Ok(true);
        }
        let number = |i: usize| response.raw_output_contents.get(i).and_then(|b| b[..].try_into().ok());
        let (value, index) = number(0).zip(number(1)).ok_or("a response without both outputs")?;
        expected.compare(i32::from_le_bytes(value), u32::from_le_bytes(index))?;
        expected.one(tally);
    }
}

async fn grpc(plan: &Plan, connection: usize, start: Instant, counted: &mut Counted) -> Result<(), Failure> {
    let stream = TcpStream::connect(&plan.address).await?;
    stream.set_nodelay(true)?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).max_frame_size(1 << 20);
    let (mut sender, driver) = builder.handshake::<_, Bytes>(stream).await?;
    tokio::task::spawn_local(driver);
    let request = http::Request::post("http://bench/inference.GRPCInferenceService/ModelStreamInfer")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut requests) = sender.send_request(request, false)?;
    requests.send_data(grpc_request(plan, connection, 0), false)?;
    let mut body = response.await?.into_body();
    let mut buffer = BytesMut::new();
    while counted.next(plan, start).await {
        let request = counted.requests;
        let mut expected = Expected::new(plan, connection, request);
        if request > 0 {
            requests.send_data(grpc_request(plan, connection, request), false)?;
        }
        counted.requests += 1;
        while !take_messages(&mut buffer, &mut expected, &mut counted.tally)? {
            let chunk = body.data().await.ok_or("the stream ended before its request")??;
            body.flow_control().release_capacity(chunk.len())?;
            buffer.extend_from_slice(&chunk);
        }
        expected.end(&mut counted.tally)?;
        counted.responses += u64::from(expected.came);
    }
    requests.send_data(Bytes::new(), true)?;
    while let Some(chunk) = body.data().await {
        if !chunk?.is_empty() {
            return Err("more responses than were requested".into());
        }
    }
    let trailers = body.trailers().await?.ok_or("a stream without trailers")?;
    if trailers.get("grpc-status").is_none_or(|status| status != "0") {
        return Err(format!("the stream ended with {trailers:?}").into());
    }
    Ok(())
}

/// The number behind a name in an event.
fn number<T: std::str::FromStr>(event: &str, name: &str) -> Result<T, Failure> {
    let rest = event.split_once(name).ok_or_else(|| format!("no {name} in {event}"))?.1;
    let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
    rest[..end].trim().parse().map_err(|_| format!("{name} is not a number in {event}").into())
}

/// Takes whole events off a body.
fn take_events(events: &mut BytesMut, expected: &mut Expected<'_>, tally: &mut Tally) -> Result<(), Failure> {
    while let Some(end) = events.windows(2).position(|w| w == b"\n\n") {
        let event = events.split_to(end + 2);
        let text = std::str::from_utf8(&event)?;
        if text.contains("\"error\"") {
            return Err(text.trim().to_owned().into());
        }
        if expected.plan.check {
            expected.compare(number(text, "\"OUT\":")?, number(text, "\"IDX\":")?)?;
        }
        expected.one(tally);
    }
    Ok(())
}

/// Moves the payload of whole chunks to `events`; `true` behind the last one.
fn take_chunks(buffer: &mut BytesMut, events: &mut BytesMut) -> Result<bool, Failure> {
    loop {
        let Some(line) = buffer.windows(2).position(|w| w == b"\r\n") else { return Ok(false) };
        let length = usize::from_str_radix(std::str::from_utf8(&buffer[..line])?, 16)?;
        if buffer.len() < line + 2 + length + 2 {
            return Ok(false);
        }
        buffer.advance(line + 2);
        events.extend_from_slice(&buffer.split_to(length));
        buffer.advance(2);
        if length == 0 {
            return Ok(true);
        }
    }
}

async fn http1(plan: &Plan, connection: usize, start: Instant, counted: &mut Counted) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(&plan.address).await?;
    stream.set_nodelay(true)?;
    let (mut buffer, mut events) = (BytesMut::with_capacity(64 << 10), BytesMut::new());
    while counted.next(plan, start).await {
        let mut expected = Expected::new(plan, connection, counted.requests);
        stream.write_all(&http_request(plan, connection, counted.requests)).await?;
        counted.requests += 1;
        let mut is_body = false;
        loop {
            if !is_body && let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = buffer.split_to(end + 4);
                if !head.starts_with(b"HTTP/1.1 200") {
                    return Err(String::from_utf8_lossy(&head).into_owned().into());
                }
                is_body = true;
            }
            if is_body {
                let is_over = take_chunks(&mut buffer, &mut events)?;
                take_events(&mut events, &mut expected, &mut counted.tally)?;
                if is_over {
                    break;
                }
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
        expected.end(&mut counted.tally)?;
        counted.responses += u64::from(expected.came);
    }
    Ok(())
}

/// `stream`: prints a line of JSON: responses, requests, seconds, responses per second, latencies and errors.
pub fn run(a: &Arguments) -> Result<(), Failure> {
    let plan = Rc::new(Plan {
        address: a.text("address")?.to_owned(),
        model: a.optional("model").unwrap_or(MODEL).to_owned(),
        is_grpc: a.text("protocol")? == "grpc",
        connections: a.number("connections", 1)?,
        responses: a.number("responses", 1)?,
        delay_ms: a.number("delay-ms", 0)?,
        every: Duration::from_micros(a.number("every-us", 0)?),
        duration: Duration::from_secs_f64(a.number("duration", 3600.0)?),
        requests: a.number("requests", 0)?,
        check: a.optional("check").is_some(),
        id_bytes: 0,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let start = Instant::now();
    let all = tokio::task::LocalSet::new().block_on(&runtime, async {
        let drive = |connection: usize| {
            let plan = plan.clone();
            tokio::task::spawn_local(async move {
                // Requests of many connections that are due at the same moment would be a burst.
                let start = start + plan.every * connection as u32 / plan.connections as u32;
                let mut counted = Counted::new();
                let done = match plan.is_grpc {
                    true => grpc(&plan, connection, start, &mut counted).await,
                    false => http1(&plan, connection, start, &mut counted).await,
                };
                if let Err(e) = done {
                    counted.tally.failed(&e.to_string());
                }
                counted
            })
        };
        let workers: Vec<_> = (0..plan.connections).map(drive).collect();
        let mut sum = Counted::new();
        for worker in workers {
            let one = worker.await?;
            sum.tally.add(&one.tally);
            sum.responses += one.responses;
            sum.requests += one.requests;
        }
        Ok::<_, Failure>(sum)
    })?;
    let seconds = all.tally.last.map_or(0.0, |last| (last - start).as_secs_f64());
    let us = |q: f64| all.tally.latency.quantile_us(q);
    println!(
        "{{\"responses\":{},\"requests\":{},\"seconds\":{seconds:.3},\"rate\":{:.1},\"p50_us\":{:.1},\
         \"p99_us\":{:.1},\"errors\":{},\"first_error\":\"{}\"}}",
        all.responses,
        all.requests,
        if seconds > 0.0 { all.responses as f64 / seconds } else { 0.0 },
        us(0.5),
        us(0.99),
        all.tally.errors,
        measure::first_error(&all.tally),
    );
    Ok(())
}

/// `read-slowly`: event streams of many responses whose readers read them all, or nothing. Each goes on for
/// `--every-ms`, then its connection is closed and the next one opened. Until standard input ends; prints how many
/// streams there were.
pub fn read_slowly(a: &Arguments) -> Result<(), Failure> {
    let plan = Plan {
        address: a.text("address")?.to_owned(),
        model: a.optional("model").unwrap_or(MODEL).to_owned(),
        is_grpc: false,
        connections: a.number("connections", 1)?,
        responses: a.number("responses", 1)?,
        delay_ms: a.number("delay-ms", 0)?,
        every: Duration::from_millis(a.number("every-ms", 500)?),
        duration: Duration::MAX,
        requests: 0,
        check: false,
        id_bytes: a.number("id-bytes", 0)?,
    };
    let reads = a.text("reads")? == "yes";
    crate::disturb::until_input_ends();
    let one = |connection: usize| -> Result<u64, Failure> {
        let request = http_request(&plan, connection, 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut streams = 0;
        let mut bytes = vec![0; 64 << 10];
        while crate::disturb::goes_on() {
            let until = Instant::now() + plan.every;
            let mut stream = runtime.block_on(async {
                // With the usual buffers much of it would be in the kernel, and its reader not behind.
                let socket = tokio::net::TcpSocket::new_v4()?;
                if !reads {
                    socket.set_recv_buffer_size(4096)?;
                }
                socket.connect(plan.address.parse().map_err(std::io::Error::other)?).await?.into_std()
            })?;
            stream.set_nonblocking(false)?;
            stream.write_all(&request)?;
            // The request was taken when something comes back.
            stream.set_read_timeout(Some(plan.every.max(Duration::from_millis(1))))?;
            stream.read_exact(&mut bytes[..1])?;
            streams += 1;
            let goes_on = || crate::disturb::goes_on() && Instant::now() < until;
            while reads
                && goes_on()
                && stream.read(&mut bytes).is_ok_and(|n| n > 0 && !bytes[..n].ends_with(b"0\r\n\r\n"))
            {}
            while goes_on() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(streams)
    };
    let streams = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..plan.connections).map(|i| scope.spawn(move || one(i).map_err(|e| e.to_string()))).collect();
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|_| Err("a reader panicked".into())))
            .sum::<Result<u64, String>>()
    })?;
    println!("{streams}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAN: Plan = Plan {
        address: String::new(),
        model: String::new(),
        is_grpc: true,
        connections: 2,
        responses: 3,
        delay_ms: 0,
        every: Duration::ZERO,
        duration: Duration::MAX,
        requests: 0,
        check: true,
        id_bytes: 0,
    };

    fn message(id: &str, index: i32, is_final: bool) -> Bytes {
        let outputs = if is_final { vec![] } else { vec![Bytes::from(index.to_le_bytes().to_vec()); 2] };
        let mut response = pb::ModelInferResponse { id: id.into(), raw_output_contents: outputs, ..Default::default() };
        response.parameters.insert("triton_final_response".into(), parameter(is_final));
        framed(
            &pb::ModelStreamInferResponse { error_message: String::new(), infer_response: Some(response) }
                .encode_to_vec()
                .into(),
        )
    }

    /// Responses of connection 0, request 0, whose values are their indexes, in pieces of `size` bytes; 9 is the end.
    fn check(responses: &[i32], size: usize, expected: &str) {
        let mut expectation = Expected::new(&PLAN, 0, 0);
        let (mut buffer, mut tally) = (BytesMut::new(), Tally::default());
        let all: Vec<u8> = responses.iter().flat_map(|&i| message("0-0", i, i == 9)).collect();
        let mut found = "goes on".to_owned();
        for piece in all.chunks(size) {
            buffer.extend_from_slice(piece);
            match take_messages(&mut buffer, &mut expectation, &mut tally) {
                Ok(false) => continue,
                Ok(true) => found = "over".into(),
                Err(e) => found = e.to_string(),
            }
            break;
        }
        assert_eq!(found, expected, "{responses:?}");
    }

    #[test]
    fn what_is_lost_doubled_or_swapped_is_seen() {
        for size in [1, 7, 1000] {
            check(&[0, 1, 2, 9], size, "over");
            check(&[0, 1, 2], size, "goes on");
            check(&[0, 2, 9], size, "response 2 with value 2 where 1 with Some(1) is due");
            check(&[0, 0, 1, 2, 9], size, "response 0 with value 0 where 1 with Some(1) is due");
            check(&[1, 0, 2, 9], size, "response 1 with value 1 where 0 with Some(0) is due");
            check(&[0, 1, 9], size, "final: true after 2 responses");
            check(&[0, 1, 2, 2, 9], size, "final: false after 3 responses");
        }
    }

    #[test]
    fn a_response_of_another_request_is_seen() {
        let mut buffer = BytesMut::from(&message("1-0", 0, false)[..]);
        let seen = take_messages(&mut buffer, &mut Expected::new(&PLAN, 0, 0), &mut Tally::default());
        assert!(seen.is_err_and(|e| e.to_string().contains("another request: 1-0")));
        let own = values(&PLAN, 0, 0).chain(values(&PLAN, 0, 1)).chain(values(&PLAN, 1, 0)).collect::<Vec<_>>();
        let all: std::collections::HashSet<_> = own.iter().collect();
        assert_eq!(all.len(), own.len(), "no value belongs to two requests");
    }

    #[test]
    fn events_are_taken_out_of_chunks() {
        let event = |i: u32| format!("data: {{\"IDX\":{i},\"OUT\":{i},\"model_name\":\"repeat\"}}\n\n");
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let (a, b, c) = (event(0), event(1), event(2));
        // A chunk may end inside an event.
        let body = [chunk(&(a.clone() + &b[..9])), chunk(&b[9..]), chunk(&c), chunk("")].concat();
        for size in [1, 10, 1000] {
            let (mut buffer, mut events, mut tally) = (BytesMut::new(), BytesMut::new(), Tally::default());
            let mut expected = Expected::new(&PLAN, 0, 0);
            let mut is_over = false;
            for piece in body.as_bytes().chunks(size) {
                assert!(!is_over);
                buffer.extend_from_slice(piece);
                is_over = take_chunks(&mut buffer, &mut events).expect("chunks");
                take_events(&mut events, &mut expected, &mut tally).expect("events");
            }
            assert!(is_over && expected.end(&mut tally).is_ok());
        }
        let mut events = BytesMut::from(&*event(1));
        assert!(take_events(&mut events, &mut Expected::new(&PLAN, 0, 0), &mut Tally::default()).is_err());
        let mut events = BytesMut::from("data: {\"error\":\"no\"}\n\n");
        assert!(take_events(&mut events, &mut Expected::new(&PLAN, 0, 0), &mut Tally::default()).is_err());
    }
}
