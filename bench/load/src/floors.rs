//! Servers that do nothing but the transport: the least a server built on the same libraries can cost.
//! Each reads the whole request and answers with the bytes it was given at start.

use crate::arguments::{Arguments, Failure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::net::TcpListener;

fn on_one_thread(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

async fn listen() -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?.port());
    Ok(listener)
}

/// hyper over HTTP/1.1.
pub fn http(a: &Arguments) -> Result<(), Failure> {
    let answer = a.file("answer")?;
    on_one_thread(async move {
        let listener = listen().await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = answer.clone();
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let answer = answer.clone();
                async move {
                    // Frames are dropped as they come: a floor does not need them together.
                    let mut body = request.into_body();
                    while let Some(frame) = body.frame().await {
                        if frame.is_err() {
                            break;
                        }
                    }
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(answer)))
                }
            });
            tokio::task::spawn_local(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .auto_date_header(false)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

/// `h2` with gRPC framing: the answer is a whole frame, then trailers.
pub fn h2(a: &Arguments) -> Result<(), Failure> {
    let answer = a.file("answer")?;
    on_one_thread(async move {
        let listener = listen().await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = answer.clone();
            tokio::task::spawn_local(async move {
                let _ = serve_h2(stream, answer).await;
            });
        }
    })
}

async fn serve_h2(stream: tokio::net::TcpStream, answer: Bytes) -> Result<(), Failure> {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(8 << 20)
        .initial_connection_window_size(64 << 20)
        .max_frame_size(1 << 20)
        .handshake::<_, Bytes>(stream)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        let answer = answer.clone();
        tokio::task::spawn_local(async move {
            let mut body = request.into_body();
            // Chunks are kept as they come: an echo needs the bytes, not all in one place.
            let mut all = Vec::new();
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                all.push(chunk);
            }
            let head = http::Response::builder().header("content-type", "application/grpc").body(());
            let Ok(head) = head else { return };
            if let Ok(mut send) = respond.send_response(head, false) {
                let _ = send.send_data(answer, false);
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                let _ = send.send_trailers(trailers);
            }
        });
    }
    Ok(())
}
