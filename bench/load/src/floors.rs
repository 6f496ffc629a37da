//! Servers that do nothing but the transport: the least a server built on the same libraries can cost. Each reads the
//! whole request and answers with the bytes it was given at start; with `--tail` the last bytes of the answer are those
//! of the request, in the pieces they came in: an echo without a copy.

use crate::arguments::{Arguments, Failure};
use crate::tls_echo;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

pub fn on_one_thread(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    // As Nereid's reactors do: an echo must not be slower for a setting of the scheduler.
    memory::thread::request_short_slices();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

pub async fn listen() -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?.port());
    Ok(listener)
}

/// The answer without the bytes that are echoed, and how many those are.
#[derive(Clone)]
struct Answer {
    ready: Bytes,
    tail: usize,
}

impl Answer {
    fn new(a: &Arguments) -> Result<Self, Failure> {
        let body = a.file("answer")?;
        let tail = a.number("tail", 0usize)?.min(body.len());
        Ok(Self { ready: body.slice(..body.len() - tail), tail })
    }

    /// The pieces of an answer to a request that came as `chunks`.
    fn pieces(&self, chunks: Vec<Bytes>) -> Pieces {
        let mut pieces = VecDeque::from([self.ready.clone()]);
        let mut skip = chunks.iter().map(Bytes::len).sum::<usize>().saturating_sub(self.tail);
        if self.tail > 0 {
            for chunk in chunks {
                let cut = skip.min(chunk.len());
                skip -= cut;
                pieces.push_back(chunk.slice(cut..));
            }
        }
        pieces.retain(|p| !p.is_empty());
        Pieces(pieces)
    }
}

/// A body of several pieces whose length is known.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|p| p.len() as u64).sum())
    }
}

/// hyper over HTTP/1.1.
pub fn http(a: &Arguments) -> Result<(), Failure> {
    let answer = Answer::new(a)?;
    on_one_thread(async move {
        let listener = listen().await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = answer.clone();
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let answer = answer.clone();
                async move {
                    let mut body = request.into_body();
                    let mut chunks = Vec::new();
                    while let Some(Ok(frame)) = body.frame().await {
                        chunks.extend(frame.into_data());
                    }
                    Ok::<_, Infallible>(hyper::Response::new(answer.pieces(chunks)))
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

/// `h2` with gRPC framing: the answer is a whole frame, then trailers. Over TLS with `--cert` and `--key`.
pub fn h2(a: &Arguments) -> Result<(), Failure> {
    let answer = Answer::new(a)?;
    let tls = tls_echo::acceptor(a, b"h2")?;
    on_one_thread(async move {
        let listener = listen().await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = answer.clone();
            let tls = tls.clone();
            tokio::task::spawn_local(async move {
                match tls {
                    None => drop(serve_h2(stream, answer).await),
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            let _ = serve_h2(stream, answer).await;
                        }
                    }
                }
            });
        }
    })
}

async fn serve_h2(stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer) -> Result<(), Failure> {
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
            let mut all = Vec::new();
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                all.push(chunk);
            }
            let head = http::Response::builder().header("content-type", "application/grpc").body(());
            let Ok(head) = head else { return };
            if let Ok(mut send) = respond.send_response(head, false) {
                for piece in answer.pieces(all).0 {
                    let _ = send.send_data(piece, false);
                }
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                let _ = send.send_trailers(trailers);
            }
        });
    }
    Ok(())
}
