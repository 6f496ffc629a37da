//! Requests with any number of responses, on a backend controlled by the test, in success and failure.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::Got::{Failed, Nothing, Number};
use crate::support::*;
use backend::{Counted, Stopped};
use engine::{EngineResponse, Sink, Started, Ticket};
use protocol::pb::inference as pb;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use tensor::{Code, Error};

#[test]
fn an_execution_frees_its_instance_and_its_requests_end_later() {
    let (engine, version, running) = handing_out(|_| ());
    let first = call(&version, 1);
    let (_, one) = running.recv_timeout(WITHIN).expect("runs");
    let second = call(&version, 2);
    let (_, two) = running.recv_timeout(WITHIN).expect("runs beside the first, on the same instance");
    assert_eq!(version.inflight(), 2);
    for n in [10, 11] {
        one.send(outcome(n)).expect("wanted");
        assert_eq!(first.next(), (Number(n), false));
    }
    two.finish(Some(Ok(outcome(20))));
    assert_eq!(second.next(), (Number(20), true), "the last response and the end in one");
    second.is_over();
    one.finish(None);
    assert_eq!(first.next(), (Nothing, true));
    first.is_over();
    settles(&engine, &version);
}

#[test]
fn a_result_ends_a_request_whose_responder_was_not_taken() {
    let (engine, version) = model(decoupled, |_, batch, _| {
        for entry in batch.requests.iter_mut().filter(|e| asked(e) > 0) {
            entry.result = Some(Ok(outcome(asked(entry))));
        }
    });
    assert_eq!(call(&version, 7).rest(), [Number(7)]);
    let text = call(&version, 0).error();
    assert!(text.message().contains("backend of model 'm' stopped without a response"), "{text}");
    settles(&engine, &version);
    let s = version.statistics();
    assert_eq!((s.success.count, s.fail.count, s.execution_count, s.inference_count), (1, 1, 1, 1));
}

#[test]
fn a_dropped_responder_ends_its_request_and_names_the_model() {
    let (engine, version, running) = handing_out(|_| ());
    let dropped = call(&version, 1);
    let (_, responder) = running.recv_timeout(WITHIN).expect("runs");
    responder.send(outcome(3)).expect("wanted");
    drop(responder);
    assert_eq!(dropped.next(), (Number(3), false));
    let error = dropped.error();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("model 'm' dropped a request"), "{error}");

    let panicked = call(&version, 2);
    let (_, responder) = running.recv_timeout(WITHIN).expect("runs");
    let thread = std::thread::spawn(move || {
        responder.send(outcome(4)).expect("wanted");
        panic!("a planted panic, in a thread that answers");
    });
    assert!(thread.join().is_err());
    assert_eq!(panicked.rest(), [Number(4), Failed(Code::Internal)]);
    settles(&engine, &version);
    assert_eq!(version.statistics().fail.count, 2);
}

#[test]
fn a_panic_in_an_execution_ends_its_requests_and_frees_the_instance() {
    let (kept, keeps) = channel();
    let (engine, version) = model(decoupled, move |_, batch, _| {
        let entry = &mut batch.requests[0];
        match asked(entry) {
            0 => panic!("a planted panic, before the responder is taken"),
            1 => {
                let _mine = entry.responder.take();
                panic!("a planted panic, with the responder");
            }
            2 => {
                let _ = kept.send(entry.responder.take().expect("one"));
                panic!("a planted panic, after the responder went elsewhere");
            }
            n => entry.result = Some(Ok(outcome(n))),
        }
    });
    for round in 0..4 {
        assert_eq!(call(&version, 0).rest(), [Failed(Code::Internal)], "round {round}");
        assert_eq!(call(&version, 1).rest(), [Failed(Code::Internal)], "round {round}");
        let third = call(&version, 2);
        let responder = keeps.recv_timeout(WITHIN).expect("kept");
        responder.send(outcome(9)).expect("it is still wanted");
        responder.finish(None);
        assert_eq!(third.rest(), [Number(9), Nothing], "round {round}");
        assert_eq!(call(&version, 3).rest(), [Number(3)], "the instance serves the next one");
    }
    settles(&engine, &version);
}

#[test]
fn responses_of_several_threads_arrive_in_order_and_none_after_the_end() {
    const THREADS: u8 = 4;
    const EACH: u8 = 200;
    let (engine, version, running) = handing_out(|_| ());
    for _ in 0..5 {
        let request = call(&version, 1);
        let (_, responder) = running.recv_timeout(WITHIN).expect("runs");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let responder = &responder;
                scope.spawn(move || {
                    (0..EACH).for_each(|n| match n % 50 {
                        49 => responder.fail(Error::unknown(format!("{thread}"))),
                        _ => responder.send(outcome(thread * 50 + n % 50)).expect("wanted"),
                    })
                });
            }
        });
        responder.finish(None);
        let mut next = [0; THREADS as usize];
        let all = request.rest();
        assert_eq!(all.len(), usize::from(THREADS) * usize::from(EACH) + 1);
        for answer in all {
            if let Number(n) = answer {
                let (thread, n) = (usize::from(n / 50), n % 50);
                assert_eq!(n, next[thread], "thread {thread}");
                next[thread] = (n + 1) % 49;
            }
        }
    }
    settles(&engine, &version);
}

// S-41
#[test]
fn threads_wait_for_a_slow_sink_and_lose_no_response() {
    const THREADS: usize = 4;
    const EACH: usize = 3000;
    let (engine, version, running) = handing_out(|_| ());
    let (seen, taken) = (Arc::new(Mutex::new(0)), channel());
    let (count, end) = (seen.clone(), taken.0);
    let sink = || {
        Arc::new(move |answer: EngineResponse| {
            let mut count = count.lock().unwrap();
            *count += 1;
            // Simulates a thread that loses its core, while the others fill the queue.
            if *count % 2000 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            if answer.is_final {
                let _ = end.send(got(answer).0);
            }
        }) as Arc<dyn Sink>
    };
    assert!(matches!(version.call(request(1), sink, None), Ok(Started::Queued(_))));
    let (_, responder) = running.recv_timeout(WITHIN).expect("runs");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..EACH).for_each(|_| responder.send(outcome(1)).expect("wanted")));
        }
    });
    responder.finish(None);
    assert_eq!(taken.1.recv_timeout(WITHIN), Ok(Nothing));
    assert_eq!(*seen.lock().unwrap(), THREADS * EACH + 1);
    settles(&engine, &version);
}

#[test]
fn a_blocked_sink_ends_its_request() {
    let (engine, version, running) = handing_out(|_| ());
    let (go, blocked) = channel::<()>();
    let (send, seen) = channel();
    let blocked = Mutex::new(blocked);
    let is_blocked = Arc::new(AtomicBool::new(false));
    let entered = is_blocked.clone();
    let sink = || {
        Arc::new(move |answer: EngineResponse| {
            entered.store(true, Ordering::SeqCst);
            if !answer.is_final {
                let _ = blocked.lock().unwrap().recv();
            }
            let _ = send.send(got(answer));
        }) as Arc<dyn Sink>
    };
    assert!(matches!(version.call(request(1), sink, None), Ok(Started::Queued(_))));
    let (_, responder) = running.recv_timeout(WITHIN).expect("runs");
    let sent = std::thread::scope(|scope| {
        scope.spawn(|| responder.send(outcome(1)));
        soon("the sink is busy", || is_blocked.load(Ordering::SeqCst));
        let flood = scope.spawn(|| (0..10_000).take_while(|_| responder.send(outcome(1)).is_ok()).count());
        soon("the request is given up", || responder.is_cancelled());
        drop(go);
        flood.join().expect("does not panic")
    });
    assert!(sent <= engine::limits::ANSWERS_WAITING_MAX + 2, "{sent} were kept");
    responder.finish(None);
    let all: Vec<_> = seen.iter().take_while(|a| !a.1).collect();
    assert!(all.len() <= engine::limits::ANSWERS_WAITING_MAX + 3);
    settles(&engine, &version);
    assert_eq!(version.statistics().failures, [0, 1, 0, 0]);
}

#[test]
fn a_request_can_be_cancelled_in_any_stage() {
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let (send, running) = channel();
    let (engine, version) = model(decoupled, move |_, batch, _| {
        for entry in batch.requests.iter_mut() {
            if asked(entry) == 0 {
                let _ = send.send(None);
                let _ = held.lock().unwrap().recv();
                entry.result = Some(Ok(outcome(0)));
            } else {
                let _ = send.send(entry.responder.take());
            }
        }
    });
    // Queued behind one that has the only instance.
    let first = call(&version, 0);
    assert!(running.recv_timeout(WITHIN).expect("runs").is_none());
    let queued = call(&version, 1);
    queued.ticket().cancel();
    assert_eq!(queued.rest(), [Failed(Code::Cancelled)], "at once");
    hold.send(()).expect("it waits");
    assert_eq!(first.rest(), [Number(0)]);

    // Before and after the first response.
    for before in 0..2 {
        let request = call(&version, 1);
        let responder = running.recv_timeout(WITHIN).expect("runs").expect("a responder");
        for n in 0..before {
            responder.send(outcome(n)).expect("wanted");
            assert_eq!(request.next(), (Number(n), false));
        }
        assert!(!responder.is_cancelled());
        request.ticket().cancel();
        assert!(responder.is_cancelled());
        assert_eq!(responder.send(outcome(9)), Err(Stopped));
        request.is_silent();
        assert_eq!(version.inflight(), 1, "its backend has not ended it");
        responder.finish(None);
        assert_eq!(request.rest(), [Failed(Code::Cancelled)]);
        request.ticket().cancel();
    }
    settles(&engine, &version);
    let s = version.statistics();
    assert_eq!((s.success.count, s.fail.count, s.cancelled), (1, 3, 3));
    assert_eq!(s.failures, [0, 3, 0, 0], "all of them cancelled");
}

#[test]
fn a_slow_sink_only_ends_its_own_request_with_the_reason() {
    let (engine, version, running) = handing_out(|_| ());
    let (slow, quick) = (call(&version, 1), call(&version, 2));
    let (_, one) = running.recv_timeout(WITHIN).expect("runs");
    let (_, two) = running.recv_timeout(WITHIN).expect("runs");
    one.send(outcome(1)).expect("wanted");
    slow.ticket().overrun(Error::new(Code::ResourceExhausted, "too slow"));
    one.fail(Error::internal("nobody wants to know any more"));
    assert_eq!(one.send(outcome(2)), Err(Stopped));
    two.send(outcome(3)).expect("another request");
    one.finish(Some(Ok(outcome(4))));
    two.finish(None);
    assert_eq!(slow.next(), (Number(1), false));
    assert_eq!(slow.error(), Error::new(Code::ResourceExhausted, "too slow"));
    assert_eq!(quick.rest(), [Number(3), Nothing]);
    settles(&engine, &version);
    assert_eq!(version.statistics().failures, [0, 1, 0, 0]);
}

#[test]
fn a_sink_may_cancel_its_request_and_panic() {
    let (engine, version, running) = handing_out(|_| ());
    let ticket: Arc<Mutex<Option<Ticket>>> = Arc::default();
    let (send, seen) = channel();
    let mine = ticket.clone();
    let sink = || {
        Arc::new(move |answer: EngineResponse| {
            let _ = send.send(answer);
            mine.lock().unwrap().as_ref().expect("known").overrun(Error::new(Code::ResourceExhausted, "full"));
            assert!(std::thread::panicking(), "a planted panic, in a sink");
        }) as Arc<dyn Sink>
    };
    let Started::Queued(handle) = version.call(request(1), sink, None).expect("accepted") else { panic!("queued") };
    *ticket.lock().unwrap() = Some(handle);
    let (_, responder) = running.recv_timeout(WITHIN).expect("runs");
    responder.send(outcome(1)).expect("wanted");
    assert_eq!(responder.send(outcome(2)), Err(Stopped));
    responder.finish(None);
    let all: Vec<_> = seen.try_iter().map(got).collect();
    assert_eq!(all, [(Number(1), false), (Failed(Code::ResourceExhausted), true)]);
    settles(&engine, &version);
}

#[test]
fn calls_are_cancelled_with_their_request_and_finish_when_the_server_stops() {
    let (engine, version, running) = handing_out(|_| ());
    let group = Ticket::group(None).expect("new");
    let parent = try_call(&version, 1, Some(&group)).expect("accepted");
    let child = try_call(&version, 2, Some(parent.ticket())).expect("accepted");
    let other = call(&version, 3);
    let mut responders: Vec<_> = (0..3).map(|_| running.recv_timeout(WITHIN).expect("runs")).collect();
    responders.sort_by_key(|r| r.0);
    let [one, two, three] = <[_; 3]>::try_from(responders).ok().expect("three").map(|r| r.1);
    group.cancel();
    assert_eq!([&one, &two, &three].map(|r| r.is_cancelled()), [true, true, false]);
    assert_eq!(
        try_call(&version, 4, Some(&group)).err(),
        Some(Error::cancelled("")),
        "nothing is called for it any more"
    );
    [one, two, three].into_iter().for_each(|r| r.finish(None));
    assert_eq!((parent.rest(), child.rest()), (vec![Failed(Code::Cancelled)], vec![Failed(Code::Cancelled)]));
    assert_eq!(other.rest(), [Nothing]);

    let parent = call(&version, 1);
    engine.set_server_state(engine::ServerState::Exiting);
    assert_eq!(try_call(&version, 2, None).err().map(|e| e.code()), Some(Code::Unavailable));
    let child = try_call(&version, 3, Some(parent.ticket())).expect("it belongs to an accepted request");
    for _ in 0..2 {
        running.recv_timeout(WITHIN).expect("runs").1.finish(None);
    }
    assert_eq!((parent.rest(), child.rest()), (vec![Nothing], vec![Nothing]));
    settles(&engine, &version);
}

#[test]
fn a_full_queue_rejects_until_there_is_room() {
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let (engine, version) = model(
        |config| {
            decoupled(config);
            let default_queue_policy = Some(pb::ModelQueuePolicy { max_queue_size: 1, ..Default::default() });
            dynamic(config, pb::ModelDynamicBatching { default_queue_policy, ..Default::default() });
        },
        move |_, batch, _| {
            let _ = held.lock().unwrap().recv();
            for entry in batch.requests.iter_mut() {
                entry.responder.take().expect("one").finish(Some(Ok(outcome(asked(entry)))));
            }
        },
    );
    let running = call(&version, 1);
    soon("the first runs", || version.statistics().pending == 0);
    let waiting = call(&version, 2);
    let refused = try_call(&version, 3, None).err().expect("refused");
    assert_eq!(refused, Error::unavailable("[request id: r3] Exceeds maximum queue size"));
    (0..2).for_each(|_| hold.send(()).expect("it waits"));
    assert_eq!((running.rest(), waiting.rest()), (vec![Number(1)], vec![Number(2)]));
    hold.send(()).expect("it waits");
    assert_eq!(call(&version, 4).rest(), [Number(4)]);
    settles(&engine, &version);
}

#[test]
fn a_request_that_waits_too_long_is_rejected_while_the_instance_is_busy() {
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let (engine, version) = model(
        |config| {
            decoupled(config);
            let policy = pb::ModelQueuePolicy { default_timeout_microseconds: 20_000, ..Default::default() };
            dynamic(config, pb::ModelDynamicBatching { default_queue_policy: Some(policy), ..Default::default() });
        },
        move |_, batch, _| {
            let _ = held.lock().unwrap().recv();
            batch.requests.iter_mut().for_each(|e| e.result = Some(Ok(outcome(asked(e)))));
        },
    );
    let running = call(&version, 1);
    soon("the first runs", || version.statistics().pending == 0);
    let late = call(&version, 2);
    assert_eq!(late.error(), Error::unavailable("Request timeout expired"), "by the timer, not by the instance");
    hold.send(()).expect("it waits");
    assert_eq!(running.rest(), [Number(1)]);
    settles(&engine, &version);
    assert_eq!(version.statistics().failures, [1, 0, 0, 0]);
}

#[test]
fn preserved_order_delays_responses_until_earlier_requests_end() {
    let ordered = |config: &mut pb::ModelConfig| {
        instances(config, 4);
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    };
    let (engine, version, running) = handing_out(ordered);
    for round in 0..20 {
        let (send, seen) = channel();
        for n in 0..4u8 {
            let send = send.clone();
            let sink = || Arc::new(move |answer| drop(send.send((n, got(answer))))) as Arc<dyn Sink>;
            version.call(request(n), sink, None).expect("accepted");
        }
        let responders: Vec<_> = (0..4).map(|_| running.recv_timeout(WITHIN).expect("runs")).collect();
        std::thread::scope(|scope| {
            for (n, responder) in responders {
                scope.spawn(move || {
                    (0..10).for_each(|i| responder.send(outcome(10 * n + i)).expect("wanted"));
                    responder.finish(None);
                });
            }
        });
        let expected =
            (0..4).flat_map(|n| (0..10).map(move |i| (n, (Number(10 * n + i), false))).chain([(n, (Nothing, true))]));
        let all: Vec<_> = (0..44).map(|_| seen.recv_timeout(WITHIN).expect("an answer")).collect();
        assert_eq!(all, expected.collect::<Vec<_>>(), "round {round}");
    }
    settles(&engine, &version);
}

#[test]
fn too_many_early_responses_end_a_request() {
    let ordered = |config: &mut pb::ModelConfig| {
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    };
    let (engine, version, running) = handing_out(ordered);
    let (first, second) = (call(&version, 1), call(&version, 2));
    let mut responders: Vec<_> = (0..2).map(|_| running.recv_timeout(WITHIN).expect("runs")).collect();
    responders.sort_by_key(|r| r.0);
    let [one, two] = <[_; 2]>::try_from(responders).ok().expect("two").map(|r| r.1);
    let sent = (0..100_000).take_while(|_| two.send(outcome(2)).is_ok()).count();
    assert_eq!(sent, engine::limits::ANSWERS_HELD_MAX + 1);
    two.finish(None);
    second.is_silent();
    one.finish(None);
    assert_eq!(first.rest(), [Nothing]);
    assert_eq!(second.rest().last(), Some(&Failed(Code::ResourceExhausted)));
    settles(&engine, &version);
}

// O-12, O-31, S-43
#[test]
fn requests_count_once_and_responses_if_the_backend_reports_them() {
    let (engine, version, running) = handing_out(|_| ());
    let ended = |number: u8, f: &dyn Fn(backend::Responder)| {
        let request = call(&version, number);
        f(running.recv_timeout(WITHIN).expect("runs").1);
        let all = request.rest();
        // Counted before the response is sent.
        (all.len(), version.statistics())
    };
    let (_, s) = ended(1, &|r| {
        (0..3).for_each(|n| r.send(outcome(n)).expect("wanted"));
        r.fail(Error::unknown("one of many"));
        r.finish(None);
    });
    assert_eq!((s.success.count, s.fail.count, s.inference_count, s.execution_count), (1, 0, 1, 1));
    assert_eq!((s.queue.count, s.compute_infer.count, s.batches.len()), (1, 1, 1));
    assert!(s.responses.is_empty());
    let first =
        |s: &engine::VersionStatistics| s.first_response.as_ref().expect("histograms are on").1.iter().sum::<u64>();
    assert_eq!(first(&s), 1, "once per request");
    let (_, s) = ended(2, &|r| r.finish(Some(Err(Error::unknown("failed")))));
    assert_eq!((s.success.count, s.fail.count, s.failures, first(&s)), (1, 1, [0, 0, 1, 0], 2));
    let (_, s) = ended(3, &|r| {
        r.count_as(Counted::Success);
        r.finish(Some(Err(Error::unknown("failed"))));
    });
    assert_eq!((s.success.count, s.fail.count), (2, 1));
    let (_, s) = ended(4, &|r| {
        r.count_as(Counted::Responses);
        r.send(outcome(1)).expect("wanted");
        r.output_begins();
        r.fail(Error::unknown("one of many"));
        r.fail(Error::unknown("before its outputs"));
        r.skip();
        r.fail(Error::cancelled("given up"));
        r.finish(None);
    });
    assert_eq!((s.success.count, s.fail.count, s.execution_count), (2, 1, 2), "the request is not");
    let counts: Vec<_> = s
        .responses
        .iter()
        .map(|r| [r.compute_infer, r.compute_output, r.success, r.fail, r.empty, r.cancel].map(|d| d.count))
        .collect();
    let expected = [[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]];
    assert_eq!(counts, expected);
    let (_, s) = ended(5, &|r| {
        r.count_as(Counted::Responses);
        (0..2000).for_each(|_| r.skip());
        r.finish(None);
    });
    assert_eq!(s.responses.len(), engine::limits::RESPONSE_STATISTICS_MAX, "a client chooses how many there are");
    settles(&engine, &version);
}

#[test]
fn warmup_waits_for_its_requests_and_fails_with_their_errors() {
    let warm = |fails: bool| {
        try_model(
            |config| {
                decoupled(config);
                let input = pb::model_warmup::Input {
                    data_type: 2,
                    dims: vec![1],
                    input_data_type: Some(pb::model_warmup::input::InputDataType::ZeroData(true)),
                };
                config.model_warmup = vec![pb::ModelWarmup {
                    name: "w".into(),
                    batch_size: 2,
                    count: 2,
                    inputs: [("I".to_owned(), input)].into_iter().collect(),
                }];
            },
            move |_, batch, _| {
                for entry in batch.requests.iter_mut() {
                    let responder = entry.responder.take().expect("one");
                    std::thread::spawn(move || {
                        std::thread::sleep(std::time::Duration::from_millis(30));
                        responder.send(outcome(1)).expect("wanted");
                        responder.finish(fails.then(|| Err(Error::unknown("cold"))));
                    });
                }
            },
        )
    };
    let (engine, version) = warm(false).expect("warm");
    assert_eq!(version.statistics().success.count, 4, "all of them ended before the version serves");
    settles(&engine, &version);
    let error = warm(true).err().expect("cold");
    assert!(error.message().contains("failed to run warmup sample 'w': cold; cold; "), "{error}");
}

#[test]
fn a_retired_version_finishes_accepted_requests() {
    let (engine, version, running) = handing_out(|_| ());
    let requests: Vec<_> = (0..8).map(|n| call(&version, n)).collect();
    drop(version);
    let retiring = engine.retire("m", 1).expect("it serves");
    assert!(engine.model("m", "").is_err(), "nothing new");
    let responders: Vec<_> = (0..8).map(|_| running.recv_timeout(WITHIN).expect("runs").1).collect();
    assert_eq!(retiring.inflight(), 8);
    for (ended, responder) in responders.into_iter().enumerate() {
        assert_eq!(retiring.inflight(), 8 - ended as u64);
        responder.finish(Some(Ok(outcome(1))));
    }
    assert_eq!(retiring.inflight(), 0);
    let gone = Arc::downgrade(&retiring);
    drop(retiring);
    soon("the version is gone", || gone.upgrade().is_none());
    requests.iter().for_each(|r| assert_eq!(r.rest(), [Number(1)]));
}

#[test]
fn many_callers_get_their_own_responses() {
    const EACH: usize = 300;
    for (callers, is_decoupled) in [(1, false), (2, false), (8, false), (1, true), (2, true), (8, true)] {
        let (engine, version) = model(
            |config| {
                if is_decoupled {
                    decoupled(config);
                }
                instances(config, 2);
                dynamic(config, pb::ModelDynamicBatching::default());
            },
            |_, batch, _| {
                for entry in batch.requests.iter_mut() {
                    let n = asked(entry);
                    match entry.responder.take() {
                        Some(r) => {
                            (0..n % 4).for_each(|_| r.send(outcome(n)).expect("wanted"));
                            r.finish(Some(Ok(outcome(n))));
                        }
                        None => entry.result = Some(Ok(outcome(n))),
                    }
                }
            },
        );
        std::thread::scope(|scope| {
            for caller in 0..callers {
                let version = &version;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let n = (caller * 31 + i) as u8;
                        let answers = if is_decoupled { usize::from(n % 4) + 1 } else { 1 };
                        assert_eq!(call(version, n).rest(), vec![Number(n); answers]);
                    }
                });
            }
        });
        settles(&engine, &version);
        let s = version.statistics();
        assert_eq!((s.success.count, s.inference_count), ((callers * EACH) as u64, (callers * EACH) as u64));
    }
}

#[test]
fn s41_a_backend_is_notified_of_a_cancellation_once_and_only_during_a_run() {
    let (_engine, version, responders) = handing_out(|_| ());
    let (told, hears) = std::sync::mpsc::channel();
    let hook = |name: &'static str| {
        let told = told.clone();
        move || {
            let _ = told.send(name);
        }
    };
    let first = call(&version, 1);
    let (_, responder) = responders.recv_timeout(WITHIN).expect("runs");
    responder.on_cancel(hook("before"));
    responder.on_cancel(|| panic!("a planted panic, in a hook"));
    responder.on_cancel(hook("behind one that panics"));
    assert!(hears.try_recv().is_err(), "it is wanted");
    first.ticket().cancel();
    responder.on_cancel(hook("after"));
    first.ticket().cancel();
    assert_eq!(hears.try_iter().collect::<Vec<_>>(), ["before", "behind one that panics", "after"]);
    responder.finish(None);
    assert_eq!(first.rest().last(), Some(&Failed(Code::Cancelled)));
    // A finished request is not cancelled.
    let second = call(&version, 2);
    let (_, responder) = responders.recv_timeout(WITHIN).expect("runs");
    responder.on_cancel(hook("over"));
    responder.finish(None);
    second.rest();
    second.ticket().cancel();
    assert!(hears.try_recv().is_err());
}
