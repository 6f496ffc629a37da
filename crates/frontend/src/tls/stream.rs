//! A TLS connection with the interface that the front ends use for all connections.

use super::machine::Machine;
use crate::socket::Io;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TLS connection after its handshake.
pub struct Encrypted {
    pub(super) io: TcpStream,
    pub(super) machine: Machine,
}

impl Encrypted {
    /// Passes at most `room` decrypted bytes to `put`, and returns their number; 0 at the end of the stream.
    fn poll_plain(&mut self, cx: &mut Context<'_>, room: usize, put: &mut dyn FnMut(&[u8])) -> Poll<Result<usize>> {
        if room == 0 {
            return Poll::Ready(Ok(0));
        }
        loop {
            let read = self.machine.read(room, put);
            // Records that rustls answers with, such as key updates and alerts. If the socket is full, they are sent
            // with the next write.
            if !self.machine.outgoing().is_empty()
                && let Poll::Ready(Err(error)) = self.poll_sent(cx)
            {
                return Poll::Ready(Err(error));
            }
            let n = read.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if n > 0 || self.machine.is_over() {
                return Poll::Ready(Ok(n));
            }
            let mut bytes = ReadBuf::new(self.machine.room(room));
            if bytes.capacity() == 0 {
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, "a message without an end")));
            }
            let polled = Pin::new(&mut self.io).poll_read(cx, &mut bytes);
            let n = bytes.filled().len();
            match polled {
                Poll::Pending => {
                    self.machine.rest();
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // Closed without close_notify: the data may be truncated.
                Poll::Ready(Ok(())) if n == 0 => return Poll::Ready(Err(ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Ok(())) => self.machine.received(n),
            }
        }
    }

    /// Ready once all records were written to the socket.
    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.machine.outgoing().is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, self.machine.outgoing()))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                n => self.machine.sent(n),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let room = to.remaining();
        self.poll_plain(cx, room, &mut |bytes| to.put_slice(bytes)).map_ok(|_| ())
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(from)])
    }

    /// Waits until all earlier records were written. Records of these bytes that the socket does not take are written
    /// by the next write or flush.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        ready!(self.poll_sent(cx))?;
        let n = self.machine.encrypt(from).map_err(|error| io::Error::new(ErrorKind::BrokenPipe, error))?;
        match self.poll_sent(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(n)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll_sent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_sent(cx))?;
        // Fails after a TLS error, for which the client got an alert.
        let _ = self.machine.shut();
        ready!(self.poll_sent(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl http2::Socket for Encrypted {
    fn poll_read_vectored(&mut self, cx: &mut Context<'_>, to: &mut [IoSliceMut<'_>]) -> Poll<Result<usize>> {
        let room = to.iter().map(|place| place.len()).sum();
        let (mut at, mut filled) = (0, 0);
        self.poll_plain(cx, room, &mut |mut bytes| {
            while !bytes.is_empty()
                && let Some(place) = to.get_mut(at)
            {
                let free = place.get_mut(filled..).unwrap_or_default();
                let n = free.len().min(bytes.len());
                if let (Some(free), Some((first, rest))) = (free.get_mut(..n), bytes.split_at_checked(n)) {
                    free.copy_from_slice(first);
                    bytes = rest;
                }
                filled += n;
                if filled == place.len() {
                    (at, filled) = (at + 1, 0);
                }
            }
        })
    }
}

impl Io for Encrypted {
    const IS_ENCRYPTED: bool = true;

    async fn left(&self) {
        self.io.left().await;
    }
}
