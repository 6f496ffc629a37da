//! Why the batch of a request began, and what the request waited behind, as its trace has it.

use crate::support::*;
use backend::Batch;
use engine::{EngineOptions, ModelVersion};
use protocol::pb::inference as pb;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use trace::{Behind, Trace};

fn answer(batch: &mut Batch<'_>) {
    batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(outcome(asked(entry)))));
}

/// Requests that are sent at once to a model with Triton's timer, and the cause of each one.
#[track_caller]
fn check(delay_us: u64, preferred: &[i32], requests: u8, expected: &[(&str, usize)]) {
    let batching = pb::ModelDynamicBatching {
        preferred_batch_size: preferred.to_vec(),
        max_queue_delay_microseconds: delay_us,
        ..Default::default()
    };
    let strict = EngineOptions { strict_batching_delay: true, ..EngineOptions::default() };
    let model = try_model_of(strict, |config| dynamic(config, batching), |_, batch, _| answer(batch));
    let (_engine, version) = model.expect("a good configuration");
    let calls: Vec<_> = (0..requests).map(|number| measured(&version, number, 0)).collect();
    let expected: Vec<_> = expected.iter().flat_map(|&(cause, times)| vec![Some(cause); times]).collect();
    let causes = calls.iter().map(|(call, trace)| {
        assert_eq!(call.rest().len(), 1);
        trace.phases().cause.get().copied()
    });
    assert_eq!(causes.collect::<Vec<_>>(), expected);
    assert!(calls.iter().all(|(_, trace)| trace.phases().behind.get().is_none()), "none waited for an instance");
}

#[test]
fn a_batch_with_a_delay_names_what_ended_its_wait() {
    let minute = 60_000_000;
    check(1000, &[], 1, &[("delay_elapsed", 1)]);
    check(minute, &[], 8, &[("full", 8)]);
    check(minute, &[2], 2, &[("preferred_size", 2)]);
    check(0, &[], 1, &[("idle_instance", 1)]);
}

/// The phases of a request that a version answered.
fn cause_of((call, trace): &(Call, Trace)) -> (&'static str, Option<Behind>) {
    assert!(call.next_answer().is_final);
    (trace.phases().cause.get().copied().expect("it ran"), trace.phases().behind.get().cloned())
}

#[test]
fn a_request_names_the_model_the_priority_and_the_rows_that_it_waited_behind() {
    let (started, starts) = channel();
    let (go, going) = channel::<()>();
    let going = Mutex::new(going);
    let levels = pb::ModelDynamicBatching { priority_levels: 3, default_priority_level: 3, ..Default::default() };
    let change = |config: &mut pb::ModelConfig| dynamic(config, levels);
    let (engine, version) = model(change, move |_, batch, _| {
        _ = started.send(());
        _ = going.lock().expect("one at a time").recv_timeout(WITHIN);
        answer(batch);
    });
    let first = measured(&version, 1, 0);
    starts.recv_timeout(WITHIN).expect("runs");
    let others = [2, 1, 3, 2].map(|priority| measured(&version, 2, priority));
    (0..5).for_each(|_| _ = go.send(()));
    assert_eq!(cause_of(&first), ("idle_instance", None));
    let behind =
        |priority, rows| Some(Behind { model: "m".into(), version: "1".into(), has_resources: false, priority, rows });
    let expected = [(0, 0), (0, 0), (1, 2), (1, 2)].map(|(level, rows)| ("instance_freed", behind(level, rows)));
    assert_eq!(others.each_ref().map(cause_of), expected);
    settles(&engine, &version);
}

#[test]
fn cheap_requests_of_a_turn_name_its_end_and_one_alone_an_idle_instance() {
    let change = |config: &mut pb::ModelConfig| dynamic(config, pb::ModelDynamicBatching::default());
    let (_engine, version) = model(change, |_, batch, _| answer(batch));
    let one = |version: &ModelVersion| measured(version, 1, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            engine::begin_turns(|| ());
            let mut seen = Vec::new();
            while !["turn_ended", "idle_instance"].iter().all(|cause| seen.contains(cause)) {
                assert!(seen.len() < 100_000, "only {:?}", seen.last());
                let calls = [one(&version), one(&version), one(&version)];
                engine::end_turn();
                seen.extend(calls.iter().map(|call| cause_of(call).0));
            }
        });
    });
}
