//! Starts threads that serve requests with the priority of the process.
//!
//! On Linux threads and processes inherit the niceness of the thread that creates them, and without privileges it
//! cannot be lowered again: what a loading thread (`thread::lower_priority`) starts would keep its niceness for good.
//! So before a thread first lowers its priority, one is started that never does and that creates all serving threads.

use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

struct ThreadRequest {
    name: String,
    body: Box<dyn FnOnce() + Send>,
    made: Sender<io::Result<JoinHandle<()>>>,
}

/// The thread that creates the others; `None` inside if it could not be started.
static MAKER: OnceLock<Option<Mutex<Sender<ThreadRequest>>>> = OnceLock::new();

/// Starts that thread, unless it runs. Called before a thread lowers its priority.
pub(crate) fn prepare() {
    maker();
}

fn maker() -> Option<&'static Mutex<Sender<ThreadRequest>>> {
    let start = || {
        let (send, jobs): (Sender<ThreadRequest>, Receiver<ThreadRequest>) = channel();
        let make = move || {
            for ThreadRequest { name, body, made } in jobs {
                let _ = made.send(Builder::new().name(name).spawn(body));
            }
        };
        Builder::new().name("nereid-threads".into()).spawn(make).is_ok().then(|| Mutex::new(send))
    };
    MAKER.get_or_init(start).as_ref()
}

/// Starts a thread with the niceness that the process was started with, whichever thread calls.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let (send, made) = channel();
    let body = move || {
        crate::roster::serve();
        body();
    };
    let job = ThreadRequest { name: name.into(), body: Box::new(body), made: send };
    let refused = || io::Error::other("the thread that starts threads has ended");
    maker().and_then(|maker| maker.lock().send(job).ok()).ok_or_else(refused)?;
    made.recv().unwrap_or_else(|_| Err(refused()))
}

/// Runs `work` on such a thread and waits: for libraries that start threads. A panic of `work` is propagated.
///
/// # Errors
/// The system cannot start a thread.
pub fn call<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (send, done) = channel();
    spawn(name, move || _ = send.send(catch_unwind(AssertUnwindSafe(work))))?;
    match done.recv() {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(io::Error::other("a thread ended before its work")),
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::thread::{lower_priority, niceness};

    #[test]
    fn serving_threads_started_by_a_loading_thread_keep_the_priority() {
        let ours = niceness();
        let behind = std::thread::spawn(|| {
            lower_priority();
            let (send, told) = channel();
            let inherited = send.clone();
            std::thread::spawn(move || inherited.send(niceness())).join().expect("no panic").expect("we listen");
            spawn("served", move || send.send(niceness()).expect("we listen"))
                .expect("a thread")
                .join()
                .expect("no panic");
            (told.recv().expect("told"), told.recv().expect("told"), call("called", niceness).expect("a thread"))
        });
        let (inherited, spawned, called) = behind.join().expect("no panic");
        if inherited == ours {
            eprintln!("not compared: these tests run with niceness {ours}, which is that of loads or more");
        }
        assert_eq!((spawned, called), (ours, ours));
    }

    #[test]
    fn a_panic_is_propagated_to_the_caller() {
        let call = std::thread::spawn(|| call("panics", || panic!("as it should")));
        assert!(call.join().is_err());
        assert_eq!(super::call("again", || 7).ok(), Some(7));
    }
}
