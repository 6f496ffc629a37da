//! The sockets that connections are served over: TCP, Unix sockets, or TLS over either.

use std::future::Future;

#[cfg(target_os = "linux")]
use tokio::io::Interest;

/// A connected socket.
pub trait Io: http2::Socket + 'static {
    /// True if the socket decrypts.
    const IS_ENCRYPTED: bool = false;

    /// Ready once the client has closed the connection or its side of it, even if there is unread data.
    fn left(&self) -> impl Future<Output = ()>;
}

/// Implements [`Io`] for a socket of tokio; tokio has no trait for these methods.
macro_rules! io {
    ($socket:ty) => {
        impl Io for $socket {
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
        }
    };
}

io!(tokio::net::TcpStream);
#[cfg(unix)]
io!(tokio::net::UnixStream);
