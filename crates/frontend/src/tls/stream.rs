//! A connection over TLS, as the front ends see any other.

use crate::socket::Io;
use std::io::{IoSlice, IoSliceMut, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A TLS connection whose handshake is over.
pub struct Encrypted(pub(super) TlsStream<TcpStream>);

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl http2::Socket for Encrypted {
    fn poll_read_vectored(&mut self, cx: &mut Context<'_>, to: &mut [IoSliceMut<'_>]) -> Poll<Result<usize>> {
        // What was decrypted is copied anyway: one place at a time.
        let Some(place) = to.iter_mut().find(|place| !place.is_empty()) else { return Poll::Ready(Ok(0)) };
        let mut place = ReadBuf::new(place);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut place))?;
        Poll::Ready(Ok(place.filled().len()))
    }
}

impl Io for Encrypted {
    async fn left(&self) {
        self.0.get_ref().0.left().await;
    }
}
