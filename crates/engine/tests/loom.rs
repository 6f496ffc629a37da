//! Every interleaving of a client that gives up with a worker that takes, runs and answers its request, and with calls made for it.
//! Run with `RUSTFLAGS="--cfg nereid_loom" cargo test -p nereid-engine --test loom --release`.
#![cfg(nereid_loom)]

use backend::RunControl;
use engine::{TicketState, Was};
use loom::sync::Arc as LoomArc;
use loom::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

#[test]
fn a_request_given_up_is_either_swept_or_stops_its_batch_or_was_answered() {
    loom::model(|| {
        let ticket = Arc::new(TicketState::default());
        let stops = LoomArc::new(AtomicU32::new(0));
        let client = {
            let ticket = ticket.clone();
            loom::thread::spawn(move || ticket.cancel())
        };
        // The worker: takes the request unless it sees it cancelled, joins it to a batch of one, runs, answers.
        let control = Arc::new(RunControl::new(1));
        let taken = !ticket.is_cancelled();
        let mut started = false;
        if taken {
            ticket.running(&control);
            let counter = stops.clone();
            started = control.arm(|| {
                move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
            if started {
                control.disarm();
            }
            ticket.settle();
        }
        let was = client.join().unwrap();
        let stopped = stops.load(Ordering::Relaxed);
        assert!(stopped <= 1, "the hook ran {stopped} times");
        match was {
            // The client will sweep the queue, or the worker saw the flag when it joined the batch.
            Some(Was::Queued) => assert!(!taken || control.is_stopped() || started),
            Some(Was::Running) => assert!(control.is_stopped(), "the batch was told"),
            None => assert!(taken, "only an answered request has nothing to give up"),
        }
        if !started && taken {
            assert!(control.is_stopped(), "a batch that need not start has nobody who wants it");
        }
    });
}

#[test]
fn a_batch_stops_only_when_all_its_requests_are_given_up() {
    loom::model(|| {
        let control = Arc::new(RunControl::new(2));
        let tickets = [Arc::new(TicketState::default()), Arc::new(TicketState::default())];
        for t in &tickets {
            t.running(&control);
        }
        let other = {
            let t = tickets[0].clone();
            loom::thread::spawn(move || t.cancel())
        };
        assert!(!control.is_stopped() || tickets[1].is_cancelled());
        tickets[1].cancel();
        other.join().unwrap();
        assert!(control.is_stopped());
    });
}

#[test]
fn a_call_for_a_request_that_is_given_up_is_refused_or_told_once() {
    loom::model(|| {
        let parent = Arc::new(TicketState::default());
        let client = {
            let parent = parent.clone();
            loom::thread::spawn(move || parent.cancel())
        };
        // Told twice, a batch of two would stop.
        let control = Arc::new(RunControl::new(2));
        let call = TicketState::new(Weak::new(), Some(&parent));
        if let Ok(call) = &call {
            call.running(&control);
        }
        assert_eq!(client.join().unwrap(), Some(Was::Queued));
        if let Ok(call) = call {
            assert!(call.is_cancelled(), "it was made before, so it was told");
            assert!(!control.is_stopped(), "told twice");
            control.cancel_one();
            assert!(control.is_stopped(), "told never");
            call.settle();
        }
        assert_eq!(parent.children(), 0);
    });
}

#[test]
fn a_call_that_ends_while_it_and_its_parent_are_given_up_is_told_once_at_most_and_leaves() {
    loom::model(|| {
        let parent = Arc::new(TicketState::default());
        let control = Arc::new(RunControl::new(2));
        let call = TicketState::new(Weak::new(), Some(&parent)).unwrap();
        call.running(&control);
        let clients = [parent.clone(), call.clone()].map(|t| loom::thread::spawn(move || t.cancel()));
        call.settle();
        for client in clients {
            client.join().unwrap();
        }
        assert!(!control.is_stopped(), "told twice");
        assert_eq!((parent.children(), call.children()), (0, 0));
        assert!(TicketState::new(Weak::new(), Some(&parent)).is_err(), "nothing is called for it any more");
    });
}
