//! Thousands of requests that leave the queue at once, because a connection closes or their timeout ends. Alone in its
//! file, because it measures the time of its thread.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::*;
use engine::Ticket;
use protocol::pb::inference as pb;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tensor::Code;

const MANY: usize = 10_000;

/// A model that is busy until the test ends that, and `MANY` waiting requests.
fn queue(
    change: impl FnOnce(&mut pb::ModelConfig),
) -> (Arc<engine::Engine>, Arc<engine::ModelVersion>, Vec<Call>, impl FnOnce()) {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let (begun, begins) = channel();
    let (engine, version) = model(change, move |_, batch, _| {
        let _ = begun.send(());
        let _ = gone.lock().unwrap().recv_timeout(WITHIN);
        for entry in batch.requests.iter_mut() {
            entry.result = Some(Ok(outcome(asked(entry))));
        }
    });
    let first = call(&version, 0);
    begins.recv_timeout(WITHIN).unwrap();
    let calls = (0..MANY).map(|n| call(&version, n as u8)).collect();
    let finish = move || {
        drop(go);
        first.rest();
    };
    (engine, version, calls, finish)
}

/// CPU time of `work` on this thread.
fn cpu(work: impl FnOnce()) -> Duration {
    let before = memory::thread::cpu_ns();
    work();
    Duration::from_nanos(memory::thread::cpu_ns() - before)
}

#[test]
fn s41_requests_cancelled_together_do_not_hold_the_thread() {
    let (engine, version, calls, finish) = queue(|_| ());
    engine::begin_turns(|| ());
    let took = cpu(|| calls.iter().filter_map(|c| c.ticket.as_ref()).for_each(Ticket::cancel));
    eprintln!("{MANY} cancelled: {took:?}");
    for call in &calls {
        assert_eq!(call.next(), (Got::Failed(Code::Cancelled), true));
    }
    finish();
    settles(&engine, &version);
    assert!(took < Duration::from_millis(300), "{took:?}");
}

#[test]
fn s06_requests_that_expire_together_do_not_hold_the_thread() {
    let expires = |timeout: Duration| {
        let default_timeout_microseconds = timeout.as_micros() as u64;
        let policy = pb::ModelQueuePolicy { default_timeout_microseconds, ..Default::default() };
        pb::ModelDynamicBatching { default_queue_policy: Some(policy), ..Default::default() }
    };
    let long = Duration::from_secs(3);
    let begun = Instant::now();
    let (engine, version, calls, finish) = queue(|config| dynamic(config, expires(long)));
    // The timer thread is busy with a slow receiver.
    let other = load(&engine, |config| {
        config.name = "other".into();
        dynamic(config, expires(Duration::from_millis(1)));
    });
    let other = other.unwrap();
    let (free, until) = channel::<()>();
    let until = Mutex::new(until);
    let (holds, is_held) = channel();
    let sink = move |_| {
        let _ = holds.send(());
        let _ = until.lock().unwrap().recv_timeout(WITHIN);
    };
    let running = call(&other, 0);
    other.call(request(1), || Arc::new(sink), None).unwrap();
    is_held.recv_timeout(WITHIN).unwrap();
    assert!(begun.elapsed() < long, "too slow a machine: some expired too early");
    std::thread::sleep(long);
    engine::begin_turns(|| ());
    let mut last = None;
    let took = cpu(|| last = Some(call(&version, 1)));
    eprintln!("{MANY} expired: {took:?}");
    drop(free);
    for call in &calls {
        assert_eq!(call.next(), (Got::Failed(Code::Unavailable), true));
    }
    finish();
    running.next_answer();
    last.unwrap().next_answer();
    settles(&engine, &version);
    assert!(took < Duration::from_millis(15), "{took:?}");
}
