//! Vectored reads from sockets.

use socket2::SockRef;
use std::io::{ErrorKind, IoSliceMut, Read, Result};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest};

/// A socket that can read into several buffers at once.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Reads into `to`, in order; 0 bytes at the end.
    fn poll_read_vectored(&mut self, cx: &mut Context<'_>, to: &mut [IoSliceMut<'_>]) -> Poll<Result<usize>>;
}

/// Implements [`Socket`] for a socket of tokio; these have the methods, but no common trait.
macro_rules! socket {
    ($socket:ty) => {
        impl Socket for $socket {
            fn poll_read_vectored(&mut self, cx: &mut Context<'_>, to: &mut [IoSliceMut<'_>]) -> Poll<Result<usize>> {
                loop {
                    ready!(self.poll_read_ready(cx))?;
                    match read_available(to, |read| self.try_io(Interest::READABLE, || read(SockRef::from(&*self)))) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        result => return Poll::Ready(result),
                    }
                }
            }
        }
    };
}

/// Reads and, after a short read, tells tokio that the socket is empty, as its own `poll_read` does and its
/// `try_read_vectored` does not. Otherwise each piece of a slow body would take two system calls: one for the piece and
/// one to learn that there is no more.
///
/// `try_io` of tokio takes `WouldBlock` for an empty socket; later bytes raise a new event, which it does not lose.
fn read_available(
    to: &mut [IoSliceMut<'_>],
    try_io: impl FnOnce(&mut dyn FnMut(SockRef<'_>) -> Result<()>) -> Result<()>,
) -> Result<usize> {
    let room: usize = to.iter().map(|place| place.len()).sum();
    let mut came = None;
    let tried = try_io(&mut |socket| {
        let n = (&*socket).read_vectored(to)?;
        came = Some(n);
        // 0 is the end of the stream, which every later read reports again.
        if n > 0 && n < room { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match came {
        Some(n) => Ok(n),
        None => tried.map(|()| 0),
    }
}

socket!(tokio::net::TcpStream);
socket!(tokio::net::UnixStream);

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Write;
    use tokio::net::TcpStream;

    #[test]
    fn after_a_short_read_there_is_no_system_call_until_more_bytes_come() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut client, _) = listener.accept().unwrap();
            let mut read = async |first: usize, second: usize| {
                let (mut one, mut two) = (vec![0; first], vec![0; second]);
                let mut places = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                let n = poll_fn(|cx| stream.poll_read_vectored(cx, &mut places)).await.unwrap();
                // True if tokio would try a read now.
                let asks = stream.try_io(Interest::READABLE, || Ok(())).is_ok();
                (n, [one, two].concat()[..n].to_vec(), asks)
            };
            client.write_all(b"0123456789").unwrap();
            assert_eq!(read(3, 4).await, (7, b"0123456".to_vec(), true), "there may be more");
            assert_eq!(read(2, 9).await, (3, b"789".to_vec(), false), "there was no more");
            client.write_all(b"ab").unwrap();
            assert_eq!(read(2, 9).await, (2, b"ab".to_vec(), false), "what came later is not lost");
            drop(client);
            assert_eq!(read(2, 9).await, (0, Vec::new(), true), "the end stays");
        });
    }
}
