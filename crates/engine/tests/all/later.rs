//! Models whose batches run in other processes: instances stay busy after `execute`, and requests wait for them.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::later::{LaterModel, Out, handing_out, marks, one_resource, two_that_share};
use crate::support::*;
use backend::{Batch, Marks, RunControl, now_ns};
use engine::{ModelVersion, VersionStatistics};
use protocol::pb::inference as pb;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tensor::{Code, Error};

fn one_by_one(config: &mut pb::ModelConfig) {
    config.max_batch_size = 1;
}

fn next(out: &Receiver<Out>) -> Out {
    out.recv_timeout(WITHIN).expect("a batch")
}

fn nothing(out: &Receiver<Out>) {
    assert!(out.recv_timeout(Duration::from_millis(30)).is_err(), "a batch too early");
}

/// Counts of requests, executions, and phases.
fn counts(s: &VersionStatistics) -> [u64; 6] {
    [
        s.success.count,
        s.inference_count,
        s.execution_count,
        s.compute_input.count,
        s.compute_infer.count,
        s.compute_output.count,
    ]
}

#[test]
fn an_instance_is_busy_until_the_backend_frees_it() {
    for at_once in [false, true] {
        let (model, out) = handing_out();
        let model = if at_once { model.at_once() } else { model };
        let (engine, version) = model.model(one_by_one);
        let (first, second, third) = (call(&version, 1), call(&version, 2), call(&version, 3));
        let mut batch = next(&out);
        batch.answer();
        assert_eq!(first.rest(), [Got::Number(1)]);
        nothing(&out);
        batch.free();
        let mut batch = next(&out);
        second.is_silent();
        batch.free();
        // The next one starts before this one has its response.
        let mut last = next(&out);
        batch.answer();
        last.answer();
        last.free();
        assert_eq!((second.rest(), third.rest()), (vec![Got::Number(2)], vec![Got::Number(3)]));
        settles(&engine, &version);
        assert_eq!(counts(&version.statistics()), [3; 6]);
    }
}

#[test]
fn requests_that_wait_for_an_instance_run_together() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(|config| dynamic(config, pb::ModelDynamicBatching::default()));
    let calls: Vec<_> = (0..9).map(|number| call(&version, number)).collect();
    let mut batch = next(&out);
    assert_eq!(batch.numbers(), [0]);
    nothing(&out);
    batch.free();
    batch.answer();
    let mut batch = next(&out);
    assert_eq!(batch.numbers(), [1, 2, 3, 4, 5, 6, 7, 8]);
    batch.answer();
    batch.free();
    for (number, call) in (0..).zip(&calls) {
        assert_eq!(call.rest(), [Got::Number(number)]);
    }
    settles(&engine, &version);
    assert_eq!(counts(&version.statistics()), [9, 9, 2, 9, 9, 9]);
}

#[test]
fn the_backends_marks_give_the_three_phases() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(one_by_one);
    let asked = call(&version, 1);
    let mut batch = next(&out);
    // The three phases take 10, 20 and 30 ms from here.
    let start = now_ns();
    let at = |ms: u64| start + ms * 1_000_000;
    let marks = Marks { inputs_ready: at(10), inference_end: at(30), outputs_ready: at(60) };
    batch.occupied.take().expect("busy").free(marks);
    batch.answer();
    assert_eq!(asked.rest(), [Got::Number(1)]);
    settles(&engine, &version);
    let s = version.statistics();
    let [input, infer, output] = [s.compute_input.ns, s.compute_infer.ns, s.compute_output.ns];
    assert!(input >= 10_000_000, "{input} ns");
    assert_eq!((infer, output), (20_000_000, 30_000_000));

    // It ends while it runs: all time since the batch was passed on is inference.
    let asked = call(&version, 2);
    let mut batch = next(&out);
    thread::sleep(Duration::from_millis(20));
    batch.answer();
    assert_eq!(asked.rest(), [Got::Number(2)]);
    let s = version.statistics();
    assert!(s.compute_infer.ns - infer >= 10_000_000, "{} ns", s.compute_infer.ns - infer);
    assert_eq!(s.compute_output.ns, output);
    assert_eq!(counts(&s), [2; 6]);
    batch.free();
    settles(&engine, &version);
}

#[test]
fn a_batch_whose_requests_end_while_it_is_prefetched_is_no_longer_queued() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(one_by_one);
    let (first, second) = (call(&version, 1), call(&version, 2));
    let mut runs = next(&out);
    drop(runs.occupied.as_mut().expect("busy").offer());
    let mut waits = next(&out);
    let waiting = || version.statistics().pending;
    waits.occupied.as_ref().expect("busy").waits();
    assert_eq!(waiting(), 1);
    waits.occupied.as_ref().expect("busy").leaves();
    assert_eq!(waiting(), 0);
    runs.free();
    runs.answer();
    waits.occupied.as_ref().expect("busy").begins(now_ns());
    assert_eq!(waiting(), 0);
    waits.free();
    waits.answer();
    assert_eq!((first.rest(), second.rest()), (vec![Got::Number(1)], vec![Got::Number(2)]));
    settles(&engine, &version);
    assert_eq!(waiting(), 0);
}

#[test]
fn an_instance_that_is_let_go_takes_the_next_batch_which_is_queued_until_it_begins() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(one_by_one);
    let (first, second, third) = (call(&version, 1), call(&version, 2), call(&version, 3));
    let mut runs = next(&out);
    let offer = runs.occupied.as_mut().expect("busy").offer();
    assert!(offer.is_some());
    drop(offer);
    assert!(runs.occupied.as_mut().expect("busy").offer().is_none());
    let mut waits = next(&out);
    waits.occupied.as_ref().expect("busy").waits();
    assert_eq!(version.statistics().pending, 2);
    nothing(&out);
    thread::sleep(Duration::from_millis(20));
    runs.free();
    runs.answer();
    assert_eq!(first.rest(), [Got::Number(1)]);
    let (before, begun) = (version.statistics(), now_ns());
    waits.occupied.as_ref().expect("busy").begins(begun);
    assert_eq!(version.statistics().pending, 1);
    nothing(&out);
    waits.free();
    let lasted = now_ns() - begun;
    waits.answer();
    assert_eq!(second.rest(), [Got::Number(2)]);
    let s = version.statistics();
    let compute = s.compute_input.ns + s.compute_infer.ns - before.compute_input.ns - before.compute_infer.ns;
    assert!(compute <= lasted, "{compute} ns of {lasted}: it was queued before");
    assert!(s.queue.ns - before.queue.ns >= 20_000_000, "{} ns", s.queue.ns - before.queue.ns);
    let mut last = next(&out);
    last.free();
    last.answer();
    assert_eq!(third.rest(), [Got::Number(3)]);
    settles(&engine, &version);
    assert_eq!(counts(&version.statistics()), [3; 6]);
}

/// Two clients of a model with the dynamic batcher, in turns until the request of the second one is prefetched behind
/// of the first: the durations and the number of clients must be known.
fn two_of_which_one_is_prefetched(version: &Arc<ModelVersion>, out: &Receiver<Out>) -> ([Call; 2], [Out; 2]) {
    for _ in 0..1000 {
        let first = call(version, 1);
        let mut runs = next(out);
        drop(runs.occupied.as_mut().expect("busy").offer());
        let (second, trace) = measured(version, 2, 0);
        if let Ok(waits) = out.try_recv() {
            assert_eq!(trace.phases().cause.get().copied(), Some("prefetched"));
            waits.occupied.as_ref().expect("busy").waits();
            return ([first, second], [runs, waits]);
        }
        runs.free();
        runs.answer();
        let mut other = next(out);
        other.free();
        other.answer();
        assert_eq!((first.rest(), second.rest()), (vec![Got::Number(1)], vec![Got::Number(2)]));
    }
    panic!("no batch is prefetched");
}

#[test]
fn a_batch_that_would_not_grow_is_prefetched_and_keeps_the_instance() {
    let (model, out) = handing_out();
    let (engine, version) = model.at_once().model(|config| dynamic(config, pb::ModelDynamicBatching::default()));
    let (calls, [mut runs, mut waits]) = two_of_which_one_is_prefetched(&version, &out);
    assert_eq!((runs.numbers(), waits.numbers(), version.statistics().pending), (vec![1], vec![2], 1));
    // The instance belongs to the batch that is prefetched now: the end of the other one starts nothing.
    let third = call(&version, 3);
    runs.free();
    runs.answer();
    waits.occupied.as_ref().expect("busy").begins(now_ns());
    let fourth = call(&version, 4);
    nothing(&out);
    assert_eq!(version.statistics().pending, 2);
    waits.free();
    waits.answer();
    let mut last = next(&out);
    assert_eq!(last.numbers(), [3, 4]);
    // A batch that ends while its instance is offered leaves it idle, once.
    let offer = last.occupied.as_mut().expect("busy").offer();
    last.free();
    last.answer();
    let fifth = call(&version, 5);
    nothing(&out);
    drop(offer);
    let mut last = next(&out);
    let sixth = call(&version, 6);
    nothing(&out);
    last.free();
    last.answer();
    let mut last = next(&out);
    last.free();
    last.answer();
    for (number, call) in (1..).zip(calls.into_iter().chain([third, fourth, fifth, sixth])) {
        assert_eq!(call.rest(), [Got::Number(number)]);
    }
    settles(&engine, &version);
    assert_eq!(version.statistics().pending, 0);
}

#[test]
fn cancelled_requests_of_a_prefetched_batch_leave_the_queue_one_by_one() {
    let (model, out) = handing_out();
    let (engine, version) = model.at_once().model(|config| dynamic(config, pb::ModelDynamicBatching::default()));
    let calls: Vec<_> = (0..4).map(|number| call(&version, number)).collect();
    let mut runs = next(&out);
    runs.free();
    runs.answer();
    let mut waits = next(&out);
    assert_eq!(waits.numbers(), [1, 2, 3]);
    let occupied = waits.occupied.as_ref().expect("busy");
    occupied.waits();
    for left in [2, 1, 0, 0] {
        occupied.leaves();
        assert_eq!(version.statistics().pending, left);
    }
    occupied.begins(now_ns());
    assert_eq!(version.statistics().pending, 0);
    waits.free();
    waits.answer();
    calls.iter().for_each(|call| assert_eq!(call.rest().len(), 1));
    settles(&engine, &version);
}

#[test]
fn a_request_that_is_put_back_runs_before_those_that_wait() {
    let (send, out) = channel();
    let model = LaterModel::new(move |_, batch, _| {
        let entry = std::mem::take(&mut batch.requests[0]);
        drop(send.send((entry, batch.occupied.take().expect("an instance"))));
    });
    let (engine, version) = model.model(one_by_one);
    let next = || out.recv_timeout(WITHIN).expect("a batch");
    let calls: Vec<_> = (1..=4).map(|number| call(&version, number)).collect();
    let (mut runs, mut instance) = next();
    drop(instance.offer());
    let (mut waits, other) = next();
    // The process of the instance ended.
    waits.responder.take().expect("one").put_back(waits);
    runs.responder.take().expect("one").finish(Some(Err(Error::internal("not healthy"))));
    drop((other, instance));
    for expected in [2, 3, 4] {
        let (mut entry, instance) = next();
        let number = entry.request.inputs[0].data.to_vec().expect("in memory")[0];
        assert_eq!(number, expected);
        instance.free(marks(now_ns()));
        entry.responder.take().expect("one").finish(Some(Ok(outcome(number))));
    }
    assert!(matches!(&calls[0].rest()[..], [Got::Failed(_)]), "the one that ran fails");
    for (call, number) in calls[1..].iter().zip(2..) {
        assert_eq!(call.rest(), [Got::Number(number)]);
    }
    settles(&engine, &version);
    assert_eq!(version.statistics().pending, 0);

    // One that was cancelled while it was prefetched ends.
    let (runs, cancelled) = (call(&version, 5), call(&version, 6));
    let (mut first, mut instance) = next();
    drop(instance.offer());
    let (mut waits, other) = next();
    cancelled.ticket.as_ref().expect("queued").cancel();
    waits.responder.take().expect("one").put_back(waits);
    first.responder.take().expect("one").finish(Some(Ok(outcome(5))));
    drop((other, instance));
    assert_eq!(runs.rest(), [Got::Number(5)]);
    assert!(matches!(&cancelled.rest()[..], [Got::Failed(_)]), "it was cancelled");
    settles(&engine, &version);
    assert_eq!(version.statistics().pending, 0);
}

#[test]
fn a_drain_waits_for_batches_with_answered_requests() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(one_by_one);
    let asked = call(&version, 1);
    let mut batch = next(&out);
    batch.answer();
    assert_eq!(asked.rest(), [Got::Number(1)]);
    assert_eq!((engine.drain(Duration::from_millis(20)), version.inflight()), (1, 1));
    let retiring = engine.retire("m", 1).expect("it served");
    assert_eq!(retiring.inflight(), 1);
    batch.free();
    settles(&engine, &version);
}

#[test]
fn an_instance_that_the_backend_drops_is_free_and_nothing_is_learned() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(one_by_one);
    let (first, second) = (call(&version, 1), call(&version, 2));
    let batch = next(&out);
    // The process ended with everything it had.
    drop(batch);
    assert_eq!(first.rest(), [Got::Failed(Code::Internal)]);
    let mut batch = next(&out);
    batch.answer();
    batch.free();
    assert_eq!(second.rest(), [Got::Number(2)]);
    settles(&engine, &version);
    assert_eq!((version.statistics().fail.count, counts(&version.statistics())), (1, [1; 6]));
}

#[test]
fn requests_the_backend_leaves_end_when_execute_returns() {
    let (engine, version) = LaterModel::new(|_, batch, _| {
        for entry in batch.requests.iter_mut() {
            entry.result = Some(Ok(outcome(asked(entry))));
        }
    })
    .model(one_by_one);
    let calls: Vec<_> = (0..20).map(|number| call(&version, number)).collect();
    for (number, call) in (0..).zip(&calls) {
        assert_eq!(call.rest(), [Got::Number(number)]);
    }
    settles(&engine, &version);
    assert_eq!(counts(&version.statistics()), [20; 6]);
}

#[test]
fn a_panic_in_execute_only_fails_its_requests() {
    for at_once in [false, true] {
        for takes in [false, true] {
            let model = LaterModel::new(move |instance, batch, _| {
                let is_bad = batch.requests.iter().any(|entry| asked(entry) == 1);
                let mut out = if takes || !is_bad { Some(Out::of(instance, batch)) } else { None };
                assert!(!is_bad, "a planted panic");
                let out = out.as_mut().expect("taken");
                out.free();
                out.answer();
            });
            let model = if at_once { model.at_once() } else { model };
            let (engine, version) = model.model(one_by_one);
            let calls: Vec<_> = (0..4).map(|number| call(&version, number)).collect();
            let answers: Vec<_> = calls.iter().map(Call::rest).collect();
            let expected =
                [Got::Number(0), Got::Failed(Code::Internal), Got::Number(2), Got::Number(3)].map(|got| vec![got]);
            assert_eq!(answers, expected, "at once {at_once}, takes {takes}");
            settles(&engine, &version);
        }
    }
}

#[test]
fn inline_starts_need_no_thread_and_do_not_nest() {
    let (threads, seen) = channel::<ThreadId>();
    thread_local!(static INSIDE: Cell<u32> = const { Cell::new(0) });
    let deepest = Arc::new(AtomicU32::new(0));
    let most = deepest.clone();
    // The instance is free inside `execute`, where the next batch could start, and so on.
    let (engine, version) = LaterModel::new(move |instance, batch, _| {
        most.fetch_max(INSIDE.replace(INSIDE.get() + 1), SeqCst);
        let _ = threads.send(thread::current().id());
        let mut out = Out::of(instance, batch);
        out.free();
        out.answer();
        INSIDE.set(INSIDE.get() - 1);
    })
    .at_once()
    .model(one_by_one);
    assert_eq!(call(&version, 0).rest(), [Got::Number(0)]);
    assert_eq!(seen.recv_timeout(WITHIN), Ok(thread::current().id()), "on the thread that brought it");
    // All of these run on the calling threads and on pool threads.
    thread::scope(|scope| {
        for _ in 0..4 {
            let version = &version;
            scope.spawn(move || {
                let calls: Vec<_> = (0..500).map(|n| call(version, (n % 200) as u8)).collect();
                calls.iter().for_each(|call| assert_eq!(call.rest().len(), 1));
            });
        }
    });
    settles(&engine, &version);
    assert_eq!(deepest.load(SeqCst), 0, "one inside the other");
    assert_eq!(counts(&version.statistics()), [2001; 6]);
}

#[test]
fn a_long_queue_of_starts_moves_to_the_pool() {
    let (model, out) = handing_out();
    // Each start takes 1 ms: the freeing thread only starts the first of many.
    let by = Arc::new(Mutex::new(Vec::new()));
    let (starts, script) = (by.clone(), model.execute.clone());
    let model = LaterModel {
        execute: Arc::new(move |instance, batch, control| {
            let until = now_ns() + 1_000_000;
            while now_ns() < until {}
            let mut lock = starts.lock().expect("no panic");
            lock.push(thread::current().id());
            if lock.len() == 1 {
                return script(instance, batch, control);
            }
            drop(lock);
            let mut out = Out::of(instance, batch);
            out.free();
            out.answer();
        }),
        ..model
    };
    let (engine, version) = model.at_once().model(one_by_one);
    let calls: Vec<_> = (0..8).map(|number| call(&version, number)).collect();
    let mut batch = next(&out);
    batch.free();
    batch.answer();
    calls.iter().for_each(|call| assert_eq!(call.rest().len(), 1));
    settles(&engine, &version);
    let by = by.lock().expect("no panic");
    let mine = by.iter().filter(|&&id| id == thread::current().id()).count();
    assert!(by.len() == 8 && mine <= 3, "{mine} of {} starts on one thread", by.len());
}

#[test]
fn a_cancelled_batch_is_stopped_after_execute_too() {
    let stopped = Arc::new(AtomicU32::new(0));
    let (send, out) = channel();
    let told = stopped.clone();
    let script = move |instance: u32, batch: &mut Batch<'_>, control: &RunControl| {
        let told = told.clone();
        assert!(control.arm(|| move || _ = told.fetch_add(1, SeqCst)), "wanted");
        let _ = send.send(Out::of(instance, batch));
    };
    let (engine, version) =
        LaterModel::new(script).model(|config| dynamic(config, pb::ModelDynamicBatching::default()));
    let first = call(&version, 0);
    let mut held: Out = next(&out);
    let (second, third) = (call(&version, 1), call(&version, 2));
    held.free();
    let mut batch: Out = next(&out);
    assert_eq!(batch.numbers(), [1, 2]);
    second.ticket().cancel();
    assert_eq!(stopped.load(SeqCst), 0, "one is wanted");
    third.ticket().cancel();
    assert_eq!(stopped.load(SeqCst), 1);
    batch.free();
    batch.answer();
    assert_eq!((second.rest(), third.rest()), (vec![Got::Number(1)], vec![Got::Number(2)]));
    // The instance of the first is free, so its next run must not be stopped.
    first.ticket().cancel();
    held.answer();
    assert_eq!(first.rest(), [Got::Number(0)]);
    assert_eq!(stopped.load(SeqCst), 1);
    settles(&engine, &version);
}

#[test]
fn a_model_without_decoupled_responses_responds_once() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(one_by_one);
    let asked = call(&version, 1);
    let mut batch = next(&out);
    let (_, responder) = batch.requests.remove(0);
    assert!(responder.send(outcome(1)).is_err());
    assert_eq!(asked.rest(), [Got::Failed(Code::Internal)]);
    responder.finish(Some(Ok(outcome(1))));
    batch.free();
    settles(&engine, &version);
}

#[test]
fn a_decoupled_model_responds_after_its_instance_is_free() {
    let (model, out) = handing_out();
    let (engine, version) = model.model(|config| {
        one_by_one(config);
        decoupled(config);
    });
    let (first, second) = (call(&version, 1), call(&version, 2));
    let mut one = next(&out);
    one.free();
    let mut other = next(&out);
    for (number, responder) in one.requests.iter().chain(&other.requests) {
        responder.send(outcome(*number)).expect("wanted");
    }
    one.answer();
    other.answer();
    other.free();
    assert_eq!(first.rest(), [Got::Number(1), Got::Number(1)]);
    assert_eq!(second.rest(), [Got::Number(2), Got::Number(2)]);
    settles(&engine, &version);
}

#[test]
fn a_warmup_waits_for_the_instance_and_leaves_it_idle() {
    let ran = Arc::new(AtomicU64::new(0));
    let runs = ran.clone();
    let model = LaterModel::new(move |instance, batch, _| {
        let mut out = Out::of(instance, batch);
        let runs = runs.clone();
        thread::spawn(move || {
            out.answer();
            thread::sleep(Duration::from_millis(5));
            runs.fetch_add(1, SeqCst);
            out.free();
        });
    });
    let warm = |config: &mut pb::ModelConfig| {
        one_by_one(config);
        instances(config, 2);
        let input = pb::model_warmup::Input {
            data_type: 2,
            dims: vec![1],
            input_data_type: Some(pb::model_warmup::input::InputDataType::ZeroData(true)),
        };
        let inputs = [("I".to_owned(), input)].into();
        config.model_warmup = vec![pb::ModelWarmup { name: "w".into(), batch_size: 1, count: 3, inputs }];
    };
    let (engine, version) = model.model(warm);
    assert_eq!(ran.load(SeqCst), 6, "each was free before the model served");
    let calls: Vec<_> = (0..10).map(|number| call(&version, number)).collect();
    calls.iter().for_each(|call| assert_eq!(call.rest().len(), 1));
    settles(&engine, &version);
    assert_eq!(counts(&version.statistics()), [16; 6]);
}

#[test]
fn limited_instances_keep_their_resources_until_they_are_freed() {
    let (model, out) = handing_out();
    let (engine, version) = model.at_once().model_of(one_resource(), |config| {
        one_by_one(config);
        two_that_share(config);
    });
    let (first, second) = (call(&version, 1), call(&version, 2));
    let mut batch = next(&out);
    batch.answer();
    nothing(&out);
    assert_eq!(engine.snapshot().resources[0].used, 1);
    batch.free();
    let mut batch = next(&out);
    drop(batch.occupied.take());
    batch.answer();
    assert_eq!((first.rest(), second.rest()), (vec![Got::Number(1)], vec![Got::Number(2)]));
    settles(&engine, &version);
    assert_eq!(engine.snapshot().resources[0].used, 0);
}

#[test]
fn ensembles_call_models_whose_batches_run_elsewhere() {
    for at_once in [false, true] {
        let (send, batches) = channel::<Out>();
        thread::spawn(move || {
            for mut out in batches {
                out.free();
                out.answer();
            }
        });
        let model = LaterModel::new(move |instance, batch, _| drop(send.send(Out::of(instance, batch))));
        let model = if at_once { model.at_once() } else { model };
        let (engine, step) = model.model(|config| {
            config.name = "step".into();
            instances(config, 2);
        });
        let config = chain_of("m", &["step"; 20], 0);
        let version = publish(&engine, &config).expect("an ensemble");
        let calls: Vec<_> = (0..100).map(|number| call(&version, number)).collect();
        for (number, call) in (0..).zip(&calls) {
            assert_eq!(call.rest(), [Got::Number(number)]);
        }
        settles(&engine, &version);
        assert_eq!(step.statistics().success.count, 2000);
    }
}

#[test]
fn a_hundred_thousand_requests_get_responses_of_other_threads() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 25_000;
    // Half of the batches are freed before their responses, some are lost, some end within `execute`.
    let (send, receive) = channel::<Out>();
    let receive = Arc::new(Mutex::new(receive));
    for _ in 0..3 {
        let receive = receive.clone();
        thread::spawn(move || {
            loop {
                let Ok(mut out) = receive.lock().expect("no panic").recv() else { return };
                match out.numbers()[0] % 4 {
                    0 => drop(out.occupied.take()),
                    1 | 2 => out.free(),
                    _ => {}
                }
                out.answer();
                if out.occupied.is_some() {
                    out.free();
                }
            }
        });
    }
    let (engine, version) = LaterModel::new(move |instance, batch, _| {
        let mut out = Out::of(instance, batch);
        if out.numbers()[0] == 7 {
            out.occupied.take().expect("busy").free(marks(now_ns()));
            return out.answer();
        }
        send.send(out).expect("threads live");
    })
    .at_once()
    .model(|config| {
        dynamic(config, pb::ModelDynamicBatching::default());
        instances(config, 3);
    });
    let cancelled = AtomicU64::new(0);
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (version, cancelled) = (&version, &cancelled);
            scope.spawn(move || {
                for chunk in 0..CALLS / 100 {
                    let calls: Vec<_> = (0..100).map(|n| (n, call(version, n as u8))).collect();
                    for (n, call) in &calls {
                        // Some are cancelled at any stage.
                        if (chunk + n + t) % 50 == 0 {
                            call.ticket().cancel();
                        }
                    }
                    for (n, call) in calls {
                        match call.next() {
                            (Got::Number(number), true) => assert_eq!(u64::from(number), n),
                            (Got::Failed(Code::Cancelled), true) => _ = cancelled.fetch_add(1, SeqCst),
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
    });
    settles(&engine, &version);
    let s = version.statistics();
    assert_eq!(s.success.count + cancelled.load(SeqCst), THREADS * CALLS);
    assert_eq!((s.compute_input.count, s.compute_output.count), (s.compute_infer.count, s.compute_infer.count));
}
