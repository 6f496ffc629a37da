//! Instances that are gone, and the readiness of versions.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::later::{LaterModel, Out, handing_out, one_resource, two_that_share};
use crate::support::*;
use backend::{InstanceEventsRef, Occupied, Readiness, ReadyAnswer, Responder};
use engine::{Engine, EngineOptions, ModelVersion, ReadinessState};
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::{StrategyChoice, StrategyDirect, StrategyOldest};
use protocol::{CorrelationId, InferRequest, Sequence};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tensor::{Code, Error};

fn dead() -> Error {
    Error::unavailable("Stub process 'm_0' is not healthy.")
}

/// A model whose batches come to the test, and its instance events.
fn of_instances(
    count: i32,
    change: impl FnOnce(&mut pb::ModelConfig),
) -> (Arc<Engine>, Arc<ModelVersion>, Receiver<Out>, InstanceEventsRef) {
    let (model, out) = handing_out();
    let (model, told) = model.at_once().telling();
    let (engine, version) = model.model(|config| {
        config.max_batch_size = 1;
        instances(config, count);
        change(config);
    });
    (engine, version, out, told.recv().expect("told before it serves"))
}

fn next(out: &Receiver<Out>) -> Out {
    out.recv_timeout(WITHIN).expect("a batch")
}

fn finish(mut out: Out) {
    out.answer();
    out.free();
}

fn is_refused(version: &ModelVersion, number: u8) {
    let refused = try_call(version, number, None).err().expect("refused");
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, dead().message()));
}

#[test]
fn requests_are_rejected_while_no_instance_is_left() {
    let (engine, version, out, told) = of_instances(2, |_| ());
    let running = [call(&version, 0), call(&version, 1)];
    let batches = [next(&out), next(&out)];
    let waiting = [call(&version, 2), call(&version, 3)];
    told.down(0, dead());
    waiting[0].is_silent();
    told.down(1, dead());
    told.down(1, dead());
    told.down(9, dead());
    for call in &waiting {
        assert_eq!(call.error(), dead());
    }
    is_refused(&version, 4);
    assert_eq!(version.statistics().pending, 0);
    // The unfinished batches end when the backend ends them.
    for (batch, call) in batches.into_iter().zip(&running) {
        finish(batch);
        assert_eq!(call.rest().len(), 1);
    }
    is_refused(&version, 5);
    told.up(1);
    let calls = [call(&version, 6), call(&version, 7)];
    let batch = next(&out);
    assert_eq!(batch.instance, 1);
    finish(batch);
    let batch = next(&out);
    assert_eq!(batch.instance, 1, "the other one is gone");
    told.up(0);
    told.up(0);
    let third = call(&version, 8);
    let other = next(&out);
    assert_eq!(other.instance, 0);
    finish(batch);
    finish(other);
    assert_eq!(calls.map(|call| call.rest()), [6, 7].map(|n| vec![Got::Number(n)]));
    assert_eq!(third.rest(), [Got::Number(8)]);
    settles(&engine, &version);
}

#[test]
fn requests_wait_for_an_instance_that_is_expected_back_at_once() {
    let (engine, version, out, told) = of_instances(1, |_| ());
    told.pause(0, dead());
    let waiting = call(&version, 0);
    waiting.is_silent();
    told.up(0);
    finish(next(&out));
    assert_eq!(waiting.rest(), [Got::Number(0)]);
    told.pause(0, dead());
    let waiting = call(&version, 1);
    told.down(0, dead());
    assert_eq!(waiting.error(), dead(), "it does not come back");
    is_refused(&version, 2);
    told.up(0);
    let last = call(&version, 3);
    finish(next(&out));
    assert_eq!(last.rest(), [Got::Number(3)]);
    settles(&engine, &version);
}

#[test]
fn an_instance_that_is_back_before_its_batch_ends_is_busy() {
    let (engine, version, out, told) = of_instances(1, |_| ());
    let first = call(&version, 0);
    let mut batch = next(&out);
    told.down(0, dead());
    told.up(0);
    let second = call(&version, 1);
    assert!(out.recv_timeout(Duration::from_millis(20)).is_err(), "two batches of one instance");
    drop(batch.occupied.take());
    finish(next(&out));
    batch.answer();
    assert_eq!((first.rest(), second.rest()), (vec![Got::Number(0)], vec![Got::Number(1)]));
    // Gone and back while idle.
    told.down(0, dead());
    is_refused(&version, 2);
    told.up(0);
    let third = call(&version, 3);
    finish(next(&out));
    assert_eq!(third.rest(), [Got::Number(3)]);
    settles(&engine, &version);
}

#[test]
fn limited_instances_go_and_come_back() {
    let (model, out) = handing_out();
    let (model, told) = model.telling();
    let (engine, version) = model.model_of(one_resource(), |config| {
        config.max_batch_size = 1;
        two_that_share(config);
    });
    let told = told.recv().expect("told");
    let first = call(&version, 0);
    let batch = next(&out);
    let asking = 1 - batch.instance;
    // The other instance requests its resource, and is gone then.
    let second = call(&version, 1);
    told.down(asking, dead());
    let instance = batch.instance;
    finish(batch);
    let batch = next(&out);
    assert_eq!(batch.instance, instance);
    told.down(instance, dead());
    is_refused(&version, 2);
    finish(batch);
    assert_eq!(engine.snapshot().resources[0].used, 0);
    told.up(asking);
    let third = call(&version, 3);
    let batch = next(&out);
    assert_eq!(batch.instance, asking);
    finish(batch);
    for (n, call) in [(0, first), (1, second), (3, third)] {
        assert_eq!(call.rest(), [Got::Number(n)]);
    }
    settles(&engine, &version);
    assert_eq!(engine.snapshot().resources[0].used, 0);
}

fn sequences(config: &mut pb::ModelConfig, strategy: StrategyChoice) {
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 60_000_000,
        strategy_choice: Some(strategy),
        ..Default::default()
    }));
}

fn of(id: u64, flags: &str, number: u8) -> Box<InferRequest> {
    let sequence = Sequence { id: CorrelationId::Number(id), start: flags.contains('<'), end: flags.contains('>') };
    Box::new(InferRequest { sequence, ..*request(number) })
}

fn send(version: &ModelVersion, request: Box<InferRequest>) -> Call {
    try_request(version, request, None).expect("accepted")
}

#[test]
fn a_gone_instance_only_ends_its_own_sequences() {
    let oldest = StrategyOldest { max_candidate_sequences: 1, ..Default::default() };
    for strategy in [StrategyChoice::Direct(StrategyDirect::default()), StrategyChoice::Oldest(oldest)] {
        let (engine, version, out, told) = of_instances(2, |config| sequences(config, strategy.clone()));
        // Two slots: sequence 1 is on instance 0, sequence 2 on instance 1, and 3 waits.
        let (one, two) = (send(&version, of(1, "<", 1)), send(&version, of(2, "<", 2)));
        let (a, b) = (next(&out), next(&out));
        let (mut first, second) = if a.instance == 0 { (a, b) } else { (b, a) };
        let behind = send(&version, of(1, "", 3));
        let waiting = send(&version, of(3, "<>", 4));
        told.down(0, dead());
        assert_eq!(behind.error(), dead());
        waiting.is_silent();
        let refused = try_request(&version, of(1, "", 5), None).err().expect("refused");
        assert!(refused.message().contains("must specify the START flag"), "{refused:?}");
        // Started again it waits for the other instance, behind 3.
        let again = send(&version, of(1, "<>", 6));
        first.requests.drain(..).for_each(|(_, responder)| responder.finish(Some(Err(dead()))));
        first.free();
        assert_eq!(one.error(), dead());
        finish(second);
        assert_eq!(two.rest(), [Got::Number(2)]);
        let last = send(&version, of(2, ">", 7));
        let batch = next(&out);
        assert_eq!((batch.instance, batch.numbers()), (1, vec![7]));
        finish(batch);
        for (number, call) in [(4, &waiting), (6, &again)] {
            let batch = next(&out);
            assert_eq!((batch.instance, batch.numbers()), (1, vec![number]));
            finish(batch);
            assert_eq!(call.rest(), [Got::Number(number)]);
        }
        assert_eq!(last.rest(), [Got::Number(7)]);
        // Both gone: requests without a slot are rejected as well. After the return it serves.
        let (held, behind) = (send(&version, of(4, "<", 8)), send(&version, of(5, "<", 9)));
        let batch = next(&out);
        told.down(1, dead());
        assert_eq!(behind.error(), dead());
        finish(batch);
        assert_eq!(held.rest(), [Got::Number(8)]);
        let refused = try_request(&version, of(4, "<", 10), None).err().expect("refused");
        assert_eq!(refused, dead());
        assert_eq!(engine.sequences(), 0);
        told.up(0);
        told.up(1);
        for flags in ["<", ">"] {
            let (one, two) = (send(&version, of(6, flags, 11)), send(&version, of(7, flags, 12)));
            let (a, b) = (next(&out), next(&out));
            assert_ne!(a.instance, b.instance);
            finish(a);
            finish(b);
            assert_eq!((one.rest(), two.rest()), (vec![Got::Number(11)], vec![Got::Number(12)]));
        }
        assert_eq!(engine.sequences(), 0);
        settles(&engine, &version);
    }
}

#[test]
fn sequences_in_the_backlog_get_slots_of_a_returned_instance() {
    let strategy = StrategyChoice::Direct(StrategyDirect::default());
    let (engine, version, out, told) = of_instances(2, |config| sequences(config, strategy));
    told.down(1, dead());
    let (one, two) = (send(&version, of(1, "<", 1)), send(&version, of(2, "<>", 2)));
    finish(next(&out));
    assert_eq!(one.rest(), [Got::Number(1)]);
    two.is_silent();
    told.up(1);
    let batch = next(&out);
    assert_eq!(batch.instance, 1);
    finish(batch);
    assert_eq!(two.rest(), [Got::Number(2)]);
    let end = send(&version, of(1, ">", 3));
    finish(next(&out));
    assert_eq!(end.rest(), [Got::Number(3)]);
    settles(&engine, &version);
}

#[test]
fn a_step_does_not_return_to_an_instance_that_was_gone() {
    let (send_out, steps) = channel::<(Occupied, backend::BatchEntry, Responder)>();
    let (model, told) = LaterModel::new(move |_, batch, _| {
        let occupied = batch.occupied.take().expect("busy");
        let entry = &mut batch.requests[0];
        let responder = entry.responder.take().expect("answers later");
        let _ = send_out.send((occupied, std::mem::take(entry), responder));
    })
    .telling();
    let (engine, version) = model.model(|config| {
        config.max_batch_size = 1;
        sequences(config, StrategyChoice::Direct(StrategyDirect::default()));
        if let Some(pb::model_config::SchedulingChoice::SequenceBatching(batching)) = &mut config.scheduling_choice {
            batching.iterative_sequence = true;
        }
    });
    let told = told.recv().expect("told");
    let call = send(&version, request(1));
    let (occupied, entry, responder) = steps.recv_timeout(WITHIN).expect("a step");
    told.down(0, dead());
    told.up(0);
    responder.again(entry, None);
    drop(occupied);
    let error = call.error();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("its state with it"), "{error:?}");
    assert_eq!(engine.sequences(), 0);
    settles(&engine, &version);
}

#[test]
fn requests_get_one_response_while_instances_go_and_come_back() {
    let (send_out, batches) = channel::<Out>();
    let batches = Arc::new(Mutex::new(batches));
    for _ in 0..2 {
        let batches = batches.clone();
        thread::spawn(move || {
            loop {
                let Ok(mut out) = batches.lock().expect("no panic").recv() else { return };
                out.free();
                out.answer();
            }
        });
    }
    let (model, told) = LaterModel::new(move |instance, batch, _| {
        let _ = send_out.send(Out::of(instance, batch));
    })
    .at_once()
    .telling();
    let (engine, version) = model.model(|config| {
        dynamic(config, pb::ModelDynamicBatching::default());
        instances(config, 3);
    });
    let told = told.recv().expect("told");
    let (answered, refused, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (told, done, version) = (&told, &done, &version);
        for thread in 0..3u32 {
            scope.spawn(move || {
                let mut random = 88_172_645_463_325_252u64 + u64::from(thread);
                while !done.load(SeqCst) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let instance = (random >> 20) as u32 % 3;
                    if random.is_multiple_of(2) {
                        told.down(instance, dead())
                    } else {
                        told.up(instance)
                    }
                    if random.is_multiple_of(16) {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            });
        }
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (answered, refused) = (&answered, &refused);
                scope.spawn(move || {
                    for n in 0..10_000u64 {
                        let Ok(call) = try_call(version, n as u8, None) else {
                            refused.fetch_add(1, SeqCst);
                            continue;
                        };
                        match call.next() {
                            (Got::Number(number), true) => assert_eq!(number, n as u8),
                            (Got::Failed(Code::Unavailable), true) => {}
                            other => panic!("{other:?}"),
                        }
                        answered.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        done.store(true, SeqCst);
        ended.into_iter().for_each(|caller| caller.expect("no panic"));
    });
    assert_eq!(answered.load(SeqCst) + refused.load(SeqCst), 30_000);
    (0..3).for_each(|instance| told.up(instance));
    // All of them serve again, at the same time.
    let calls: Vec<_> = (0..100).map(|n| call(&version, n)).collect();
    calls.iter().for_each(|call| assert_eq!(call.rest().len(), 1));
    settles(&engine, &version);
    assert!(engine.is_ready());
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The final readiness, and the time it took.
fn said(ready: ReadinessState) -> (bool, Duration) {
    let begun = Instant::now();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut ready = pin!(ready.get());
    loop {
        if let Poll::Ready(ready) = ready.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (ready, begun.elapsed());
        }
        assert!(begun.elapsed() < WITHIN, "no answer");
        thread::park_timeout(Duration::from_secs(1));
    }
}

fn is_ready(engine: &Engine) -> (bool, bool) {
    (said(engine.model_ready("m", "").expect("known")).0, said(engine.readiness()).0)
}

#[test]
fn b_py_26_readiness_requires_all_instances_and_watchers_are_notified() {
    let (engine, version, out, told) = of_instances(2, |_| ());
    let seen = Arc::new(AtomicU32::new(9));
    let watched = seen.clone();
    engine.on_change(move |engine| watched.store(engine.is_ready().into(), SeqCst));
    assert_eq!((is_ready(&engine), seen.load(SeqCst)), ((true, true), 1));
    told.down(1, dead());
    assert_eq!(seen.load(SeqCst), 0, "told when `down` returned");
    assert_eq!((is_ready(&engine), engine.is_model_ready("m", "1")), ((false, false), Ok(false)));
    let gone = ("m".to_owned(), 1, engine::VersionState::Ready, dead().message().to_owned());
    assert_eq!(engine.versions(None), [gone]);
    // It still serves.
    let served = call(&version, 1);
    finish(next(&out));
    assert_eq!(served.rest(), [Got::Number(1)]);
    told.up(1);
    assert_eq!((is_ready(&engine), seen.load(SeqCst), engine.versions(Some("m"))[0].3.as_str()), ((true, true), 1, ""));
    // A version that does not serve any more makes nothing unready.
    engine.set_version_state("m", 1, engine::VersionState::Loading, "");
    let load = engine.retire("m", 1).map(|version| version.identity.load);
    engine.retired("m", 1, load, "unloaded");
    told.down(0, dead());
    assert!(engine.is_ready());
}

#[test]
fn b_py_26_without_strict_readiness_models_do_not_affect_the_server() {
    let (model, told) = handing_out().0.ready(|| Readiness::NotReady("no".into())).telling();
    let options = EngineOptions { strict_readiness: false, ..EngineOptions::default() };
    let (engine, _version) = model.model_of(options, |_| ());
    told.recv().expect("told").down(0, dead());
    assert_eq!(is_ready(&engine), (false, true));
}

#[test]
fn errors_about_a_model_that_does_not_serve_end_with_the_reason_if_asked_to() {
    for (reasons_in_errors, end) in [(false, ""), (true, ": line 2")] {
        let engine =
            engine_of(EngineOptions { reasons_in_errors, ..EngineOptions::default() }, vec![]).expect("starts");
        let error = |version| engine.model("m", version).err().expect("does not serve");
        engine.set_version_state("m", 1, engine::VersionState::Unavailable, "line 2");
        engine.set_version_state("m", 2, engine::VersionState::Loading, "");
        assert_eq!(error("").message(), format!("Request for unknown model: 'm' has no available versions{end}"));
        assert_eq!(error("").code(), Code::NotFound);
        assert_eq!(
            error("1").message(),
            format!("Request for unknown model: 'm' version 1 is not at ready state{end}")
        );
        assert_eq!(error("2").message(), "Request for unknown model: 'm' version 2 is not at ready state");
        assert_eq!(error("3").message(), "Request for unknown model: 'm' version 3 is not found");
    }
}

/// A model that is asked, and its queries.
fn asking() -> (LaterModel, Arc<Mutex<Vec<ReadyAnswer>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asking = asked.clone();
    let model = handing_out().0.ready(move || {
        let asking = asking.clone();
        Readiness::Ask(Box::new(move |answer| asking.lock().expect("no panic").push(answer)))
    });
    (model, asked)
}

#[test]
fn b_py_26_parallel_queries_share_the_answer_of_the_model() {
    let (model, asked) = asking();
    let (engine, _version) = model.model(|_| ());
    let take = || asked.lock().expect("no panic").pop().expect("asked");
    for answer in [Ok(()), Err(Error::unavailable("Model 'm_0' is not ready (user-defined check failed)."))] {
        let expected = answer.is_ok();
        let (one, two) = (engine.model_ready("m", "").expect("known"), engine.readiness());
        assert!(matches!(one, ReadinessState::Queried(_)) && matches!(two, ReadinessState::Queried(_)));
        let threads = [one, two].map(|ready| thread::spawn(move || said(ready).0));
        let given = take();
        assert!(asked.lock().expect("no panic").is_empty(), "asked once");
        given(answer);
        assert_eq!(threads.map(|t| t.join().expect("no panic")), [expected; 2]);
    }
    // On the thread that receives the answer.
    let (send_said, said_so) = channel();
    engine.readiness().notify(move |ready| _ = send_said.send((ready, thread::current().id())));
    let given = take();
    let other = thread::spawn(move || given(Ok(()))).thread().id();
    assert_eq!(said_so.recv_timeout(WITHIN), Ok((true, other)));
    // The wait can be dropped, and the next query asks again.
    drop(engine.readiness());
    let ready = engine.readiness();
    take()(Ok(()));
    assert!(said(ready).0);
    // A lost answer means not ready.
    let ready = engine.readiness();
    drop(take());
    assert!(!said(ready).0);
    // Known without asking.
    assert!(engine.is_ready() && engine.is_model_ready("m", "") == Ok(true));
    assert!(asked.lock().expect("no panic").is_empty());
}

#[test]
fn b_py_26_a_model_without_a_timely_answer_is_not_ready() {
    let (model, asked) = asking();
    let (engine, _version) = model.model(|_| ());
    let first = engine.readiness();
    let (ready, took) = said(first);
    assert!(!ready && took >= Duration::from_millis(4900), "{ready} after {took:?}");
    // Still being asked: the next query shares its answer.
    let second = engine.readiness();
    let mut all = std::mem::take(&mut *asked.lock().expect("no panic"));
    assert_eq!(all.len(), 1);
    all.remove(0)(Ok(()));
    assert!(said(second).0);
}
