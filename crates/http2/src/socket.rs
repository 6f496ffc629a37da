//! What a connection needs of a socket beyond reading and writing.

use std::io::{IoSliceMut, Result};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// A socket that can read into several places at once.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Reads into `to`, in order; 0 bytes at the end.
    fn poll_read_vectored(&mut self, cx: &mut Context<'_>, to: &mut [IoSliceMut<'_>]) -> Poll<Result<usize>>;
}

/// For each socket of tokio, which have these methods without a trait in common.
macro_rules! socket {
    ($socket:ty) => {
        impl Socket for $socket {
            fn poll_read_vectored(&mut self, cx: &mut Context<'_>, to: &mut [IoSliceMut<'_>]) -> Poll<Result<usize>> {
                loop {
                    ready!(self.poll_read_ready(cx))?;
                    match self.try_read_vectored(to) {
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        result => return Poll::Ready(result),
                    }
                }
            }
        }
    };
}

socket!(tokio::net::TcpStream);
#[cfg(unix)]
socket!(tokio::net::UnixStream);
