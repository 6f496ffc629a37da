//! Sockets of backends that a reactor waits for among its own: see [`backend::poll`].

use crate::hold;
use backend::poll::{Next, Poller, Ready};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

/// The way to a reactor. One message for each socket that it is to watch.
struct Sockets(UnboundedSender<(OwnedFd, Ready)>);

impl Poller for Sockets {
    fn watch(&self, socket: OwnedFd, ready: Ready) {
        // A reactor that is gone drops it, which tells who asked.
        let _ = self.0.send((socket, ready));
    }
}

/// Offers this reactor, as long as what comes back lives. Its sockets are dropped with its other tasks.
pub(crate) fn begin() -> Arc<dyn Poller> {
    let (send, mut sockets) = unbounded_channel();
    hold::spawn(async move {
        while let Some((socket, ready)) = sockets.recv().await {
            hold::spawn(listen(socket, ready));
        }
    });
    let poller: Arc<dyn Poller> = Arc::new(Sockets(send));
    backend::poll::offer(&poller);
    poller
}

async fn listen(socket: OwnedFd, mut ready: Ready) {
    let socket = UnixStream::from(socket);
    let Ok(socket) = socket.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(socket)) else {
        return;
    };
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        let mut next = Next::Wait;
        let _ = socket.try_io(Interest::READABLE, || {
            next = ready();
            // So the next call waits until something comes.
            if next == Next::Wait { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match next {
            Next::Wait => {}
            Next::Again => yield_now().await,
            Next::Leave => return,
        }
    }
}
