//! A stream that fails if the peer sends more bytes than replies can have, because the client library would buffer all.

use crate::limits::{ENTRY_BYTES_MAX, PIPELINE_MAX};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes between two complete replies: the replies of all commands in flight with their heads, and one more.
const UNANSWERED_BYTES_MAX: usize = (PIPELINE_MAX + 1) * (ENTRY_BYTES_MAX + 4096);

/// Bytes since the last complete reply, whose receiver resets it to zero.
pub(crate) type Unanswered = Arc<AtomicUsize>;

pub(crate) struct Bounded {
    pub(crate) stream: TcpStream,
    pub(crate) unanswered: Unanswered,
}

impl AsyncRead for Bounded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len().saturating_sub(before);
        if read > 0 && self.unanswered.fetch_add(read, Relaxed) > UNANSWERED_BYTES_MAX {
            return Poll::Ready(Err(io::Error::other("it sends more than was asked for")));
        }
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
