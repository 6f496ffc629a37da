//! Sockets of backends that a reactor polls with its own: see [`backend::poll`].

use crate::hold;
use backend::poll::{Next, OnReadable, Poller};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

/// Sender of sockets that a reactor should watch.
struct Sockets(UnboundedSender<(OwnedFd, OnReadable)>);

impl Poller for Sockets {
    fn watch(&self, socket: OwnedFd, ready: OnReadable) {
        // A reactor that has ended drops `ready`, which notifies the caller.
        let _ = self.0.send((socket, ready));
    }
}

/// Offers this reactor to backends until the result is dropped. Its sockets are dropped with its other tasks.
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

async fn listen(socket: OwnedFd, mut ready: OnReadable) {
    // Backends read it themselves, without blocking. Interest in reading only: a Unix socket becomes writable each time
    // its peer has read, which wakes a `tokio::net::UnixStream`. That woke the reactor once more per request, just when
    // the other process began to work: 0.7 of the 2.7 times it slept.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for descriptors that may be closed meanwhile: this one is owned"
    )]
    let Ok(socket) = AsyncFd::with_interest(socket, Interest::READABLE) else { return };
    loop {
        let Ok(mut readable) = socket.readable().await else { return };
        match ready() {
            // Makes the next `readable` wait for new data.
            Next::Wait => readable.clear_ready(),
            Next::Again => yield_now().await,
            Next::Leave => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    /// Counts the bytes that it reads, and ends at a zero.
    fn reader(mut from: UnixStream, read: Arc<AtomicUsize>) -> OnReadable {
        let mut byte = [0];
        Box::new(move || match from.read(&mut byte) {
            Ok(1) if byte == [0] => Next::Leave,
            Ok(1) => {
                read.fetch_add(1, Ordering::SeqCst);
                Next::Again
            }
            _ => Next::Wait,
        })
    }

    async fn until(mut holds: impl FnMut() -> bool) {
        while !holds() {
            yield_now().await;
        }
    }

    #[test]
    fn a_reactor_watches_a_socket_until_its_reader_or_the_reactor_ends() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let read = Arc::new(AtomicUsize::new(0));
        let (mut first, theirs) = UnixStream::pair().unwrap();
        let (mut second, theirs_too) = UnixStream::pair().unwrap();
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let poller = begin();
            for socket in [theirs, theirs_too] {
                socket.set_nonblocking(true).unwrap();
                poller.watch(socket.try_clone().unwrap().into(), reader(socket, read.clone()));
            }
            // One byte, then many at once: all are read.
            first.write_all(&[1]).unwrap();
            until(|| read.load(Ordering::SeqCst) == 1).await;
            first.write_all(&[1; 100]).unwrap();
            second.write_all(&[1; 100]).unwrap();
            until(|| read.load(Ordering::SeqCst) == 201).await;
            first.write_all(&[0]).unwrap();
            until(|| Arc::strong_count(&read) == 2).await;
            assert!(first.write_all(&[1]).is_err(), "its end is closed");
            second.write_all(&[1]).unwrap();
            until(|| read.load(Ordering::SeqCst) == 202).await;
        });
        drop(local);
        assert_eq!(Arc::strong_count(&read), 1, "a reactor that ends drops its readers");
        assert!(second.write_all(&[1]).is_err());
    }
}
