//! Which thread reads frames of runners. Alone in its process: a poller serves all of them.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![cfg(target_os = "linux")]

mod support;

use backend::poll::{Next, OnReadable, Poller, offer};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use support::*;

/// Polls each socket every millisecond.
#[derive(Default)]
struct Looking {
    watched: AtomicUsize,
    read: Arc<AtomicUsize>,
}

impl Poller for Looking {
    fn watch(&self, socket: OwnedFd, mut ready: OnReadable) {
        self.watched.fetch_add(1, SeqCst);
        let read = Arc::clone(&self.read);
        std::thread::spawn(move || {
            let _socket = socket;
            while ready() != Next::Leave {
                read.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

#[test]
fn large_responses_on_the_side_use_no_new_descriptor_of_a_reactor_b_sec_11() {
    let looking = Arc::new(Looking::default());
    offer(&(Arc::clone(&looking) as Arc<dyn Poller>));
    let model = start("echo", 1, limits()).expect("starts");
    until("a reactor reads", || looking.read.load(SeqCst) > 0);
    // Another thread copies each of them, and no frame comes on the work socket meanwhile.
    let ran = run(&*model, 0, vec![bytes("stream 50", 2 << 20)]);
    for _ in 0..50 {
        assert!(matches!(ran.event(), Event::Sent(_)));
    }
    assert!(matches!(ran.event(), Event::Ended(None, _)));
    ran.freed().expect("marks");
    let watched = looking.watched.load(SeqCst);
    assert!(watched <= 3, "{watched} readers");
    let before = looking.read.load(SeqCst);
    run(&*model, 0, vec![bytes("", 10)]).answer().expect("an answer");
    until("a reactor reads again", || looking.read.load(SeqCst) > before + 10);
}
