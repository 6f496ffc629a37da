//! A lean gRPC client on `h2`: unary calls with a ready-made message, `connections` × `streams`.

use crate::arguments::Failure;
use crate::load::{Outcome, Plan};
use crate::pace::{Pace, Schedule};
use crate::report::Tally;
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use std::rc::Rc;
use tokio::net::TcpStream;

/// Large enough that a 16 MiB tensor never waits for a window update in either direction.
const WINDOW: u32 = 64 << 20;

async fn connect(plan: &Plan) -> Result<SendRequest<Bytes>, Failure> {
    let stream = TcpStream::connect(&plan.address).await?;
    stream.set_nodelay(true)?;
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(1 << 20)
        .handshake(stream)
        .await?;
    tokio::task::spawn_local(async move {
        // Ends with the client; what goes wrong before is seen by the call it went wrong for.
        let _ = connection.await;
    });
    Ok(client)
}

fn framed(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(message);
    frame.freeze()
}

async fn call(plan: &Plan, client: SendRequest<Bytes>, frame: &Bytes, keep: bool) -> Result<Vec<u8>, Failure> {
    let mut client = client.ready().await?;
    let mut request = http::Request::post(format!("http://bench{}", plan.path))
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in &plan.headers {
        request = request.header(name, value);
    }
    let (response, mut send) = client.send_request(request.body(())?, false)?;
    send.send_data(frame.clone(), true)?;
    let response = response.await?;
    let early = response.headers().get("grpc-status").cloned();
    let mut body = response.into_body();
    let mut answer = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        if keep {
            answer.extend_from_slice(&chunk);
        }
    }
    let trailers = body.trailers().await?;
    let status = early.or_else(|| trailers.as_ref().and_then(|t| t.get("grpc-status").cloned()));
    match status {
        Some(s) if s == "0" => Ok(answer),
        Some(s) => {
            let message = trailers.as_ref().and_then(|t| t.get("grpc-message")).and_then(|m| m.to_str().ok());
            Err(format!("grpc-status {} {}", s.to_str().unwrap_or("?"), message.unwrap_or("")).into())
        }
        None => Err("an answer without grpc-status".into()),
    }
}

/// One call; the message of the answer with its five-byte prefix.
pub async fn once(plan: &Plan) -> Result<Vec<u8>, Failure> {
    let client = connect(plan).await?;
    call(plan, client, &framed(&plan.body), true).await
}

/// `connections` connections with `streams` calls at a time on each.
pub async fn drive(plan: &Rc<Plan>) -> Result<Outcome, Failure> {
    let frame = framed(&plan.body);
    let mut clients = Vec::new();
    for _ in 0..plan.connections {
        clients.push(connect(plan).await?);
    }
    let schedule = Schedule::begin(plan);
    let mut workers = Vec::new();
    for client in clients {
        for _ in 0..plan.streams {
            let mut pace = Pace::new(&schedule)?;
            let (plan, client, frame) = (plan.clone(), client.clone(), frame.clone());
            workers.push(tokio::task::spawn_local(async move {
                let mut tally = Tally::new();
                let keep = !plan.expected.is_empty();
                while let Some(due) = pace.due().await {
                    match call(&plan, client.clone(), &frame, keep).await {
                        Ok(answer) if !keep || answer[..] == plan.expected[..] => {
                            if pace.counts(due) {
                                tally.done(due);
                            }
                        }
                        Ok(_) => tally.failed("an answer differs from the expected one"),
                        Err(e) => {
                            tally.failed(e.to_string());
                            if tally.errors > 1000 {
                                break;
                            }
                        }
                    }
                }
                tally
            }));
        }
    }
    let mut tallies = Vec::new();
    for w in workers {
        tallies.push(w.await?);
    }
    Ok(Outcome { tallies, start: schedule.start(), unsent: schedule.unsent() })
}
