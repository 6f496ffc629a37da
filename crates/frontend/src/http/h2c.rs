//! HTTP/2 without TLS on the HTTP port, for clients that begin with it. Triton has none; requests mean the same as over HTTP/1.

use super::reply::Reply;
use super::request::Head;
use super::route::Method;
use super::service::{self, HttpContext, Plan};
use crate::grpc::connection::{accept_all, builder, start};
use crate::limits::BODY_BYTES_MAX;
use crate::rope::Rope;
use crate::shared::Phase;
use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderValue, Request, Response, StatusCode, header};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket some of whose bytes were read already.
struct Rewound {
    read: Bytes,
    io: TcpStream,
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, to);
        }
        let n = self.read.len().min(to.remaining());
        to.put_slice(&self.read.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, from)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Serves a connection that began with `read`.
pub async fn run(io: TcpStream, read: Bytes, context: Arc<HttpContext>) {
    let Ok(mut connection) = builder().handshake::<_, Rope>(Rewound { read, io }).await else { return };
    let mut phase = context.shared.watch();
    let mut leaving = false;
    let mut accepted = Vec::new();
    loop {
        tokio::select! {
            biased;
            ended = accept_all(&mut connection, &mut accepted) => {
                for (request, respond) in accepted.drain(..) {
                    start(serve(context.clone(), request, respond)).await;
                }
                if ended {
                    return;
                }
            }
            closing = phase.wait_for(|p| matches!(p, Phase::Closing(_))), if !leaving => {
                if closing.is_err() {
                    return;
                }
                leaving = true;
                connection.graceful_shutdown();
            }
        }
    }
}

async fn serve(context: Arc<HttpContext>, request: Request<RecvStream>, mut respond: SendResponse<Rope>) {
    let _inflight = context.shared.request();
    let (parts, mut body) = request.into_parts();
    let method = match parts.method {
        http::Method::GET => Method::Get,
        http::Method::POST => Method::Post,
        _ => Method::Other,
    };
    let is_head = parts.method == http::Method::HEAD;
    let fields = parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let head = Head::from_parts(method, is_head, parts.uri.path().as_bytes(), fields);
    let work = async {
        match service::admit(&context, &head) {
            Plan::Reply(reply) => Some(reply),
            Plan::Read { route, bytes_max } => match read(&mut body, bytes_max.min(BODY_BYTES_MAX)).await? {
                Ok(body) => Some(service::respond(&context, route, &head, body).await),
                Err(bytes) => Some(service::too_large(&context, route, bytes)),
            },
        }
    };
    let mut work = pin!(work);
    let reply = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(reply) => Poll::Ready(reply),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    if let Some(reply) = reply.await {
        send(&mut respond, reply, is_head);
    }
}

/// The body; its length so far when that is too long; `None` when the client is gone.
async fn read(body: &mut RecvStream, bytes_max: u64) -> Option<Result<Bytes, u64>> {
    let mut all = BytesMut::new();
    let mut first = Bytes::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.ok()?;
        let _ = body.flow_control().release_capacity(chunk.len());
        let total = (first.len() + all.len() + chunk.len()) as u64;
        if total > bytes_max {
            return Some(Err(total));
        }
        if first.is_empty() && all.is_empty() {
            first = chunk;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&chunk);
    }
    Some(Ok(if all.is_empty() { first } else { all.freeze() }))
}

fn send(respond: &mut SendResponse<Rope>, reply: Reply, is_head: bool) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    if !reply.chunked {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(reply.body_length()));
    }
    if let Some(length) = reply.header_length {
        headers.insert("inference-header-content-length", HeaderValue::from(length));
    }
    if let Some(encoding) = reply.content_encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    if reply.accept_encoding {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
    }
    let ends = is_head || reply.body.is_empty();
    // Failures mean that the client is gone.
    if let Ok(mut send) = respond.send_response(response, ends)
        && !ends
    {
        let _ = send.send_data(Rope::new(reply.body.into_iter()), true);
    }
}
