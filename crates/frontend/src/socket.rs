//! The sockets that connections are served over: TCP, Unix sockets, or TLS over either.

use std::future::Future;
use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use tensor::RegionMemory;
use tokio::io::Interest;

/// A connected socket.
pub trait Io: http2::Socket + 'static {
    /// True if the socket decrypts.
    const IS_ENCRYPTED: bool = false;
    /// True if the kernel can read into regions and write from them. Otherwise these two methods fail.
    const TAKES_REGIONS: bool = false;

    /// Ready once the client has closed the connection or its side of it, even if there is unread data.
    fn left(&self) -> impl Future<Output = ()>;

    /// Reads into a part of a region; ready with the number of bytes, 0 at the end of the stream.
    fn poll_receive(&mut self, _: &mut Context<'_>, _: &dyn RegionMemory, _: Range<usize>) -> Poll<Result<usize>> {
        Poll::Ready(Err(ErrorKind::Unsupported.into()))
    }

    /// Writes `front` and then a part of a region; ready with the number of bytes.
    fn poll_send(
        &mut self,
        _: &mut Context<'_>,
        _front: &[u8],
        _: &dyn RegionMemory,
        _: Range<usize>,
    ) -> Poll<Result<usize>> {
        Poll::Ready(Err(ErrorKind::Unsupported.into()))
    }
}

/// Implements [`Io`] for a socket of tokio; tokio has no trait for these methods.
macro_rules! io {
    ($socket:ty) => {
        impl Io for $socket {
            const TAKES_REGIONS: bool = true;

            #[cfg(target_os = "linux")]
            async fn left(&self) {
                // Ready for priority data, which is ignored, or when the peer has closed. Interest in reading would be
                // ready at once if there is unread data.
                let _ = self.ready(Interest::PRIORITY).await;
            }

            /// Never ready: other systems have no such event, and the caller's wait ends with its timeout.
            #[cfg(not(target_os = "linux"))]
            async fn left(&self) {
                std::future::pending().await
            }

            fn poll_receive(
                &mut self,
                cx: &mut Context<'_>,
                region: &dyn RegionMemory,
                range: Range<usize>,
            ) -> Poll<Result<usize>> {
                loop {
                    ready!(self.poll_read_ready(cx))?;
                    let read = || memory::transfer::receive(self.as_fd(), region, range.clone());
                    match self.try_io(Interest::READABLE, read) {
                        Err(error) if has_to_wait(&error) => {}
                        result => return Poll::Ready(result),
                    }
                }
            }

            fn poll_send(
                &mut self,
                cx: &mut Context<'_>,
                front: &[u8],
                region: &dyn RegionMemory,
                range: Range<usize>,
            ) -> Poll<Result<usize>> {
                loop {
                    ready!(self.poll_write_ready(cx))?;
                    let write = || memory::transfer::send(self.as_fd(), front, region, range.clone());
                    match self.try_io(Interest::WRITABLE, write) {
                        Err(error) if has_to_wait(&error) => {}
                        result => return Poll::Ready(result),
                    }
                }
            }
        }
    };
}

/// The socket was not ready after all, or a signal came.
fn has_to_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

io!(tokio::net::TcpStream);
io!(tokio::net::UnixStream);
