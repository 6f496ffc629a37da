//! The sockets that connections are served over: TCP, Unix sockets, or TLS over either.

use std::future::Future;

#[cfg(target_os = "linux")]
use tokio::io::Interest;

/// A connected socket.
pub trait Io: http2::Socket + 'static {
    /// What comes from it was decrypted.
    const IS_ENCRYPTED: bool = false;

    /// Ready when the client has closed the connection, or its side of it, whatever is still to be read.
    fn left(&self) -> impl Future<Output = ()>;
}

/// For each socket of tokio, which have these methods without a trait in common.
macro_rules! io {
    ($socket:ty) => {
        impl Io for $socket {
            #[cfg(target_os = "linux")]
            async fn left(&self) {
                // Ready for priority data, which is not listened for, or when the other side is closed. Interest in reading would be ready at
                // once, for what was sent before.
                let _ = self.ready(Interest::PRIORITY).await;
            }

            /// Elsewhere there is no such event: whatever waits beside it ends with its time.
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
