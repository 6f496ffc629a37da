//! The rate limiter of an engine: models share resources.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::*;
use backend::{Batch, RunControl};
use bytes::Bytes;
use engine::{Available, Engine, EngineOptions, ModelVersion};
use prost::Message;
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::{StrategyChoice, StrategyDirect, StrategyOldest};
use protocol::{CorrelationId, InferRequest, Sequence};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tensor::{Code, Result};

fn limited(resources: &[(&str, u32)]) -> EngineOptions {
    let available = |&(name, count): &(&str, u32)| Available { name: name.into(), count, device: None };
    EngineOptions { rate_limit: Some(resources.iter().map(available).collect()), ..EngineOptions::default() }
}

/// Each instance of the model `name` takes `count` of R.
fn taking(config: &mut pb::ModelConfig, name: &str, count: u32, instances: i32) {
    use pb::model_rate_limiter::Resource;
    let resources = vec![Resource { name: "R".into(), global: false, count }];
    config.name = name.into();
    config.max_batch_size = 1;
    config.instance_group = vec![pb::ModelInstanceGroup {
        name: name.into(),
        count: instances,
        kind: 2,
        rate_limiter: Some(pb::ModelRateLimiter { resources, priority: 0 }),
        ..Default::default()
    }];
}

fn answer(batch: &mut Batch<'_>) {
    for entry in batch.requests.iter_mut() {
        entry.result = Some(Ok(outcome(asked(entry))));
    }
}

fn load_taking(engine: &Engine, name: &str, count: u32, instances: i32) -> Result<Arc<ModelVersion>> {
    load(engine, |config| taking(config, name, count, instances))
}

/// An engine and its model `m`, whose runs announce their requests and wait for the test.
fn held(options: EngineOptions, count: u32) -> (Arc<Engine>, Arc<ModelVersion>, Receiver<u8>, Sender<()>) {
    let (started, starts) = channel();
    let (go, going) = channel();
    let going = Mutex::new(going);
    let script = move |_: u32, batch: &mut Batch<'_>, _: &RunControl| {
        batch.requests.iter().for_each(|e| started.send(asked(e)).expect("the test listens"));
        let _ = going.lock().expect("one at a time").recv_timeout(WITHIN);
        answer(batch);
    };
    let (engine, version) = try_model_of(options, |config| taking(config, "m", count, 1), script).expect("good");
    (engine, version, starts, go)
}

#[test]
fn s35_executions_never_exceed_the_resources() {
    let used = Arc::new(AtomicU64::new(0));
    let most = Arc::new(AtomicU64::new(0));
    let (now, seen) = (used.clone(), most.clone());
    // Requests have the model's own input.
    let script = move |_: u32, batch: &mut Batch<'_>, _: &RunControl| {
        let count = u64::from(asked(&batch.requests[0]));
        seen.fetch_max(now.fetch_add(count, SeqCst) + count, SeqCst);
        std::thread::sleep(Duration::from_micros(200));
        now.fetch_sub(count, SeqCst);
        answer(batch);
    };
    let (engine, six) = try_model_of(limited(&[("R", 10)]), |config| taking(config, "m", 6, 2), script).expect("good");
    let ten = load_taking(&engine, "ten", 10, 1).expect("fits");
    let four = load_taking(&engine, "four", 4, 3).expect("fits");
    let none = load_taking(&engine, "none", 0, 1).expect("needs nothing");
    std::thread::scope(|threads| {
        for _ in 0..3 {
            for (version, number) in [(&six, 6), (&ten, 10), (&four, 4), (&none, 0)] {
                threads.spawn(move || {
                    for _ in 0..40 {
                        let calls: Vec<Call> = (0..3).map(|_| call(version, number)).collect();
                        calls.iter().for_each(|c| assert!(c.next_answer().is_final));
                    }
                });
            }
        }
    });
    assert_eq!((most.load(SeqCst), used.load(SeqCst)), (10, 0));
    for version in [six, ten, four, none] {
        settles(&engine, &version);
        assert_eq!(version.statistics().success.count, 360);
    }
}

#[test]
fn s35_two_busy_models_run_in_proportion_to_their_priorities() {
    // Triton 2.51: 50 executions of a beside 25 of b.
    for (priority, of_first, of_second) in [(2, 20, 10), (9, 27, 3)] {
        let (ran, order) = channel();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("nobody panicked");
        let opens = gate.clone();
        let script = move |_: u32, batch: &mut Batch<'_>, _: &RunControl| {
            drop(opens.lock());
            ran.send(asked(&batch.requests[0])).expect("the test listens");
            answer(batch);
        };
        let (engine, a) = try_model_of(limited(&[("R", 4)]), |config| taking(config, "m", 4, 1), script).expect("good");
        let b = load(&engine, |config| {
            taking(config, "b", 2, 1);
            config.instance_group[0].rate_limiter.as_mut().expect("it is limited").priority = priority;
        });
        let b = b.expect("fits");
        let calls: Vec<Call> = (0..40).flat_map(|_| [call(&a, 1), call(&b, 2)]).collect();
        drop(closed);
        calls.iter().for_each(|call| assert!(call.next_answer().is_final));
        let order: Vec<u8> = order.try_iter().collect();
        // While both had requests; one more or less, depending on which was first.
        let both = &order[..of_first + of_second];
        let (first, second) = (both.iter().filter(|n| **n == 1).count(), both.iter().filter(|n| **n == 2).count());
        assert!(first.abs_diff(of_first) <= 1, "{first} and {second}, priority {priority}: {order:?}");
        settles(&engine, &a);
        settles(&engine, &b);
    }
}

#[test]
fn s35_a_model_whose_instances_could_never_execute_is_not_loaded() {
    let (engine, _version, _starts, _go) = held(limited(&[("R", 10)]), 6);
    let error = load_taking(&engine, "large", 11, 1).err().expect("refused");
    assert_eq!(error.code(), Code::InvalidArg);
    assert_eq!(
        error.message(),
        "Resource count for \"R\" is limited to 10 which will prevent scheduling of one or more model instances, the \
         minimum required count is 11"
    );
    assert!(engine.model("large", "").is_err());
    assert!(load_taking(&engine, "large", 10, 1).is_ok(), "what was refused left nothing behind");
}

#[test]
fn s36_without_the_limiter_resources_have_no_effect() {
    let (engine, one, starts, go) = held(EngineOptions::default(), u32::MAX);
    let two = load_taking(&engine, "two", u32::MAX, 1).expect("whatever it says");
    let calls = [call(&one, 1), call(&two, 2)];
    assert_eq!(starts.recv_timeout(WITHIN).expect("runs") + starts.recv_timeout(WITHIN).expect("runs beside it"), 3);
    (0..2).for_each(|_| go.send(()).expect("waits"));
    calls.iter().for_each(|c| drop(c.next_answer()));
}

#[test]
fn s35_an_unload_frees_resources_for_waiting_models() {
    let (engine, first, starts, go) = held(limited(&[("R", 10)]), 6);
    let second = load_taking(&engine, "second", 6, 1).expect("fits");
    let running = call(&first, 1);
    assert_eq!(starts.recv_timeout(WITHIN), Ok(1));
    let (waiting, trace) = measured(&second, 2, 0);
    assert!(starts.try_recv().is_err() && second.statistics().pending == 1, "waits");
    let behind = trace.phases().behind.get().expect("it waits").clone();
    assert_eq!(
        behind,
        trace::Behind { model: "m".into(), version: "1".into(), has_resources: true, priority: 0, rows: 0 }
    );
    // It is unloaded while it runs.
    let retired = engine.retire("m", 1).expect("served");
    drop((retired, first));
    go.send(()).expect("waits");
    running.next_answer();
    assert_eq!(starts.recv_timeout(WITHIN), Ok(2));
    go.send(()).expect("waits");
    waiting.next_answer();
    settles(&engine, &second);
}

#[test]
fn s41_a_request_cancelled_while_it_waits_for_resources_leaves_at_once() {
    let (engine, first, starts, go) = held(limited(&[("R", 10)]), 6);
    let second = load_taking(&engine, "second", 6, 1).expect("fits");
    let running = call(&first, 1);
    starts.recv_timeout(WITHIN).expect("runs");
    let waiting = call(&second, 2);
    waiting.ticket.as_ref().expect("queued").cancel();
    assert_eq!(waiting.error().code(), Code::Cancelled);
    go.send(()).expect("waits");
    running.next_answer();
    // It returned what it was granted meanwhile.
    let again = call(&first, 3);
    assert_eq!(starts.recv_timeout(WITHIN), Ok(3));
    go.send(()).expect("waits");
    again.next_answer();
    settles(&engine, &second);
}

#[test]
fn a_batch_that_waits_for_its_delay_takes_no_resources() {
    let options = EngineOptions { strict_batching_delay: true, ..limited(&[("R", 1)]) };
    let slow = |config: &mut pb::ModelConfig| {
        taking(config, "m", 1, 1);
        config.max_batch_size = 8;
        dynamic(config, pb::ModelDynamicBatching { max_queue_delay_microseconds: 300_000, ..Default::default() });
    };
    let (engine, slow) = try_model_of(options, slow, |_, batch, _| answer(batch)).expect("good");
    let quick = load_taking(&engine, "quick", 1, 1).expect("fits");
    let waiting = call(&slow, 1);
    for _ in 0..20 {
        call(&quick, 2).next_answer();
    }
    assert!(waiting.answers.try_recv().is_err(), "others went before its delay was over");
    waiting.next_answer();
    settles(&engine, &slow);
}

#[test]
fn r28_limited_instances_are_changed_by_a_reload() {
    let (engine, _version, _starts, _go) = held(limited(&[("R", 10)]), 6);
    let mut config = pb::ModelConfig::default();
    taking(&mut config, "m", 6, 2);
    let changed = engine.update("m", 1, Bytes::from(config.encode_to_vec()), String::new());
    assert_eq!(changed, Ok(false));
    assert!(load_taking(&engine, "m", 6, 2).is_ok());
}

/// Data whose release panics.
struct Trap;

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        &[0]
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a planted panic, when data are released");
    }
}

#[test]
fn s35_a_panic_in_a_grant_does_not_block_other_instances() {
    let (engine, first, starts, go) = held(limited(&[("R", 10)]), 6);
    let expiring = |name: &'static str| {
        load(&engine, move |config| {
            taking(config, name, 6, 1);
            let policy = pb::ModelQueuePolicy { default_timeout_microseconds: 20_000, ..Default::default() };
            let queue = pb::ModelDynamicBatching { default_queue_policy: Some(policy), ..Default::default() };
            dynamic(config, queue);
        })
        .expect("fits")
    };
    let (second, third) = (expiring("second"), expiring("third"));
    let running = call(&first, 1);
    starts.recv_timeout(WITHIN).expect("runs");
    // The timer thread is blocked, so the thread that frees the resources has to respond.
    let (held_up, until) = channel::<()>();
    let until = Mutex::new(until);
    let (is_held, holds) = channel();
    let sink = move |_| {
        let _ = is_held.send(());
        let _ = until.lock().expect("one").recv_timeout(WITHIN);
    };
    second.call(request(2), || Arc::new(sink), None).expect("accepted");
    holds.recv_timeout(WITHIN).expect("it expires");
    let mut trap = request(3);
    trap.inputs[0].data = tensor::Data::Bytes(Bytes::from_owner(Trap));
    let trapped = try_request(&third, trap, None).expect("accepted");
    std::thread::sleep(Duration::from_millis(40));
    go.send(()).expect("waits");
    running.next_answer();
    trapped.next_answer();
    drop(held_up);
    // A model that waits for its turn gets it.
    let running = call(&first, 1);
    assert_eq!(starts.recv_timeout(WITHIN), Ok(1));
    let waiting = load_taking(&engine, "fourth", 6, 1).map(|fourth| call(&fourth, 4)).expect("fits");
    go.send(()).expect("waits");
    running.next_answer();
    assert_eq!(starts.recv_timeout(Duration::from_secs(5)), Ok(4), "nobody tells it");
    go.send(()).expect("waits");
    waiting.next_answer();
}

/// Like `taking`, with one slot per instance for sequences.
fn sequences(config: &mut pb::ModelConfig, name: &str, instances: i32, strategy: StrategyChoice) {
    taking(config, name, 1, instances);
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 60_000_000,
        strategy_choice: Some(strategy),
        ..Default::default()
    }));
}

/// The next response of any model.
fn number(call: &Call) -> u8 {
    call.next_answer().response.expect("an answer").expect("a response").outputs[0].data.to_vec().expect("in memory")[0]
}

fn step_of(version: &ModelVersion, id: u64, start: bool, end: bool, number: u8) -> Call {
    let sequence = Sequence { id: CorrelationId::Number(id), start, end };
    try_request(version, Box::new(InferRequest { sequence, ..*request(number) }), None).expect("accepted")
}

#[test]
fn s35_limited_sequences_run_on_the_instance_of_their_slot() {
    let strategies = [
        StrategyChoice::Direct(StrategyDirect::default()),
        // Half of the slots may wait briefly for the others.
        StrategyChoice::Direct(StrategyDirect { max_queue_delay_microseconds: 500, minimum_slot_utilization: 1.0 }),
        StrategyChoice::Oldest(StrategyOldest { max_candidate_sequences: 2, ..Default::default() }),
    ];
    for strategy in strategies {
        let running = Arc::new(AtomicU64::new(0));
        let most = Arc::new(AtomicU64::new(0));
        let places = Arc::new(Mutex::new(std::collections::HashMap::new()));
        let (now, seen, at) = (running.clone(), most.clone(), places.clone());
        let script = move |instance: u32, batch: &mut Batch<'_>, _: &RunControl| {
            seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_micros(100));
            for entry in batch.requests.iter() {
                if let CorrelationId::Number(id) = entry.request.sequence.id {
                    at.lock().expect("no panic").entry(id).or_insert_with(Vec::new).push(instance);
                }
            }
            now.fetch_sub(1, SeqCst);
            answer(batch);
        };
        let options = limited(&[("R", 2)]);
        let (engine, m) = try_model_of(options, |config| sequences(config, "m", 4, strategy), script).expect("good");
        let plain = load_taking(&engine, "plain", 2, 1).expect("fits");
        std::thread::scope(|threads| {
            for client in 0..8u64 {
                let (m, plain) = (&m, &plain);
                threads.spawn(move || {
                    for round in 0..10 {
                        let id = 1 + client + 100 * round;
                        assert_eq!(step_of(m, id, true, false, 1).rest(), [Got::Number(1)]);
                        assert_eq!(number(&call(plain, 2)), 2);
                        assert_eq!(step_of(m, id, false, false, 3).rest(), [Got::Number(3)]);
                        assert_eq!(step_of(m, id, false, true, 4).rest(), [Got::Number(4)]);
                    }
                });
            }
        });
        assert!(most.load(SeqCst) <= 2, "{} executed at once, of 2", most.load(SeqCst));
        for (id, instances) in places.lock().expect("no panic").iter().filter(|(id, _)| **id > 0) {
            assert_eq!(instances.len(), 3);
            assert!(instances.iter().all(|i| *i == instances[0]), "sequence {id} moved: {instances:?}");
        }
        assert_eq!(engine.drain(WITHIN), 0);
    }
}

#[test]
fn s35_a_sequence_waits_while_another_model_has_the_resource() {
    let (engine, m, starts, go) = held(limited(&[("R", 2)]), 2);
    let direct = StrategyChoice::Direct(StrategyDirect::default());
    let sequence = load(&engine, |config| sequences(config, "s", 2, direct)).expect("fits");
    let first = call(&m, 1);
    assert_eq!(starts.recv_timeout(WITHIN), Ok(1));
    // Both its instances wait, and one of the requests is cancelled meanwhile.
    let waiting = [2, 3].map(|number| step_of(&sequence, u64::from(number), true, true, number));
    assert!(starts.recv_timeout(Duration::from_millis(30)).is_err(), "it has what they need");
    waiting[0].ticket().cancel();
    go.send(()).expect("it waits");
    assert_eq!(first.rest(), [Got::Number(1)]);
    assert_eq!(starts.recv_timeout(WITHIN), Ok(3));
    go.send(()).expect("it waits");
    let [given_up, other] = waiting;
    assert_eq!((given_up.error().code(), number(&other)), (Code::Cancelled, 3));
    let last = call(&m, 4);
    assert_eq!(starts.recv_timeout(WITHIN), Ok(4), "nothing is held for what was given up");
    go.send(()).expect("it waits");
    assert_eq!(last.rest(), [Got::Number(4)]);
}
