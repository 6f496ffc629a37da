//! Which thread reads frames of runners. Alone in its process: a poller serves all of them.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![cfg(target_os = "linux")]

mod support;

use backend::poll::{Next, OnReadable, Poller, offer};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use support::*;

/// Polls each socket all the time.
#[derive(Default)]
struct Looking {
    watched: AtomicUsize,
    read: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl Poller for Looking {
    fn watch(&self, socket: OwnedFd, mut ready: OnReadable) {
        self.watched.fetch_add(1, SeqCst);
        let (read, left) = (Arc::clone(&self.read), Arc::clone(&self.left));
        std::thread::spawn(move || {
            let _socket = socket;
            loop {
                match ready() {
                    Next::Leave => break,
                    Next::Again => {}
                    Next::Wait => std::thread::yield_now(),
                }
                read.fetch_add(1, SeqCst);
            }
            left.fetch_add(1, SeqCst);
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
    drop(model);
    one_by_one_and_in_bursts(&looking);
}

/// A reactor reads the side socket, too, while responses come there one by one.
fn one_by_one_and_in_bursts(looking: &Looking) {
    let watched = looking.watched.load(SeqCst);
    let model = start("decoupled", 1, limits()).expect("starts");
    until("a reactor reads both", || looking.watched.load(SeqCst) == watched + 2);
    let streams = |count: usize| {
        let ran = run(&*model, 0, vec![bytes(&format!("stream {count}"), 10)]);
        for n in 0..count {
            let Event::Sent(outcome) = ran.event() else { panic!("response {n}") };
            assert_eq!(outcome.outputs[0].data.to_vec().expect("in memory")[0], (n % 256) as u8);
        }
        assert!(matches!(ran.event(), Event::Ended(None, _)));
        ran.freed().expect("marks");
    };
    (0..20).for_each(|_| streams(1));
    assert_eq!(looking.watched.load(SeqCst), watched + 2, "nobody else");
    let left = looking.left.load(SeqCst);
    until("the hub reads a burst", || {
        streams(2000);
        looking.left.load(SeqCst) > left
    });
    let watched = looking.watched.load(SeqCst);
    until("after some time without bursts a reactor reads again", || {
        streams(1);
        looking.watched.load(SeqCst) > watched
    });
}
