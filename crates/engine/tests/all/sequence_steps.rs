//! Sequences of decoupled models, and iterative ones, whose requests return to the scheduler (S-25).

use crate::support::sequences::{direct, of, sum_state, sums_down_from, with_state};
use crate::support::*;
use backend::{Batch, BatchEntry, Responder};
use engine::{Engine, ModelVersion};
use protocol::InferRequest;
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::control::Kind;
use protocol::pb::inference::model_sequence_batching::{Control, ControlInput, StrategyChoice, StrategyOldest};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tensor::{Code, Data};

/// Control START and a state of one byte.
fn sequences(config: &mut pb::ModelConfig, strategy: StrategyChoice, iterative: bool) {
    let start =
        Control { kind: Kind::ControlSequenceStart as i32, bool_false_true: vec![false, true], ..Control::default() };
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 60_000_000,
        control_input: vec![ControlInput { name: "START".into(), control: vec![start] }],
        state: vec![sum_state()],
        iterative_sequence: iterative,
        strategy_choice: Some(strategy),
    }));
}

fn oldest() -> StrategyChoice {
    StrategyChoice::Oldest(StrategyOldest { max_candidate_sequences: 2, ..Default::default() })
}

fn given(entry: &BatchEntry, name: &str) -> u8 {
    let found: Vec<_> = entry.request.inputs.iter().filter(|i| i.name == *name).collect();
    assert_eq!(found.len(), 1, "{name} once, in each step");
    found[0].data.to_vec().expect("in memory")[0]
}

/// A step: adds the rest to the sum, responds with it, keeps it, and reschedules the request while there is a rest.
fn count_down(entry: &mut BatchEntry) {
    let Some(responder) = entry.responder.take() else { return };
    if responder.is_cancelled() {
        return responder.finish(None);
    }
    let left = asked(entry);
    let answer = with_state(given(entry, "SUM").wrapping_add(left));
    if left <= 1 {
        return responder.finish(Some(Ok(answer)));
    }
    let mut entry = std::mem::take(entry);
    entry.request.inputs[0].data = Data::Bytes(vec![left - 1].into());
    responder.again(entry, Some(answer));
}

fn iterative(strategy: StrategyChoice) -> (Arc<Engine>, Arc<ModelVersion>) {
    let change = |config: &mut pb::ModelConfig| {
        decoupled(config);
        sequences(config, strategy, true);
    };
    model(change, |_, batch: &mut Batch<'_>, _| batch.requests.iter_mut().for_each(count_down))
}

fn send(version: &ModelVersion, request: Box<InferRequest>) -> Call {
    try_request(version, request, None).expect("accepted")
}

#[test]
fn s25_an_iterative_request_runs_and_responds_until_its_model_is_done() {
    for strategy in [direct(), oldest()] {
        let (engine, version) = iterative(strategy);
        // Without an id, it is a sequence of its own.
        assert_eq!(send(&version, request(4)).rest(), [4, 7, 9, 10].map(Got::Number));
        assert_eq!(send(&version, request(1)).rest(), [Got::Number(1)]);
        assert_eq!(send(&version, of(9, "<", 2)).rest(), [2, 3].map(Got::Number));
        let all: Vec<_> = (1..=20).map(|n| send(&version, request(n))).collect();
        for (n, call) in (1..=20u8).zip(all) {
            assert_eq!(call.rest(), sums_down_from(n), "states of {n} are its own");
        }
        settles(&engine, &version);
        let steps = 4 + 1 + 2 + (1..=20).sum::<u64>();
        let statistics = version.statistics();
        assert_eq!((statistics.inference_count, statistics.success.count), (steps, steps), "each step is one");
        assert_eq!(statistics.fail.count, 0);
    }
}

#[test]
fn s25_only_an_iterative_model_may_reschedule_requests() {
    let (engine, version) = model(
        |config| {
            decoupled(config);
            sequences(config, direct(), false);
        },
        |_, batch, _| batch.requests.iter_mut().for_each(count_down),
    );
    let refused = send(&version, of(1, "<>", 3)).error();
    assert_eq!(refused.code(), Code::InvalidArg);
    assert_eq!(
        refused.message(),
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to \
         handle such a flag."
    );
    assert_eq!(send(&version, of(2, "<>", 1)).rest(), [Got::Number(1)], "the slot is free");
    settles(&engine, &version);
}

#[test]
fn s25_without_decoupled_responses_the_last_step_responds() {
    let silently = |entry: &mut BatchEntry| {
        let left = asked(entry);
        if left <= 1 {
            entry.result = Some(Ok(outcome(77)));
            return;
        }
        let responder = entry.responder.take().expect("of an iterative sequence");
        let mut entry = std::mem::take(entry);
        entry.request.inputs[0].data = Data::Bytes(vec![left - 1].into());
        responder.again(entry, (left == 13).then(|| outcome(0)));
    };
    let (engine, version) = model(
        |config| sequences(config, direct(), true),
        move |_, batch, _| batch.requests.iter_mut().for_each(silently),
    );
    assert_eq!(send(&version, request(3)).rest(), [Got::Number(77)]);
    // A step that responds anyway.
    let error = send(&version, request(13)).error();
    assert_eq!(error.message(), "model 'm' is not decoupled, but responded before its last step");
    settles(&engine, &version);
}

/// A model whose steps come to the test.
fn by_hand(
    iterative: bool,
    strategy: StrategyChoice,
) -> (Arc<Engine>, Arc<ModelVersion>, Receiver<(BatchEntry, Responder)>) {
    let (send, steps) = channel();
    let (engine, version) = model(
        |config| {
            decoupled(config);
            sequences(config, strategy, iterative);
        },
        move |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                let responder = entry.responder.take().expect("rows without a request have one, too");
                if !responder.is_cancelled() {
                    send.send((std::mem::take(entry), responder)).expect("the test listens");
                }
            }
        },
    );
    (engine, version, steps)
}

#[test]
fn s25_s41_a_request_cancelled_between_two_steps_frees_its_slot() {
    let (engine, version, steps) = by_hand(true, oldest());
    let next = || steps.recv_timeout(WITHIN).expect("a step");
    // While the model has it.
    let call = send(&version, request(3));
    let (entry, responder) = next();
    call.ticket().cancel();
    assert!(responder.is_cancelled());
    responder.again(entry, Some(outcome(1)));
    assert_eq!(call.rest(), [Got::Failed(Code::Cancelled)]);
    // While it waits for its next step, behind a step of another one.
    let (first, second) = (send(&version, request(1)), send(&version, request(2)));
    let (a, b) = (next(), next());
    second.ticket().cancel();
    b.1.again(b.0, None);
    a.1.finish(Some(Ok(outcome(5))));
    assert_eq!((first.rest(), second.rest()), (vec![Got::Number(5)], vec![Got::Failed(Code::Cancelled)]));
    assert_eq!(engine.sequences(), 0);
    settles(&engine, &version);
}

#[test]
fn s22_s25_a_rescheduled_step_runs_when_its_instance_is_free() {
    let (engine, version, steps) = by_hand(true, direct());
    let call = send(&version, request(1));
    for n in 1..=100u8 {
        let (entry, responder) = steps.recv_timeout(WITHIN).expect("a step");
        assert_eq!(given(&entry, "START"), u8::from(n == 1), "flags are those of the first step only");
        std::thread::spawn(move || responder.again(entry, Some(outcome(n)))).join().expect("no panic");
        assert_eq!(call.next(), (Got::Number(n), false));
    }
    steps.recv_timeout(WITHIN).expect("a step").1.finish(None);
    assert_eq!(call.rest(), [Got::Nothing]);
    settles(&engine, &version);
}

#[test]
fn s23_s25_later_requests_continue_from_the_state_of_their_iterative_sequence() {
    for strategy in [direct(), oldest()] {
        let (engine, version, steps) = by_hand(true, strategy);
        let next = || steps.recv_timeout(WITHIN).expect("a step");
        let (first, one) = (send(&version, of(9, "<", 1)), next());
        let second = send(&version, of(9, "", 2));
        one.1.again(one.0, Some(with_state(10)));
        next().1.finish(Some(Ok(with_state(20))));
        assert_eq!(first.rest(), [10, 20].map(Got::Number));
        let (entry, responder) = next();
        assert_eq!((asked(&entry), given(&entry, "START"), given(&entry, "SUM")), (2, 0, 20));
        responder.finish(Some(Ok(with_state(30))));
        assert_eq!(second.rest(), [Got::Number(30)]);
        assert_eq!(engine.sequences(), 0, "it is over with the last of its requests");
        let (other, (entry, responder)) = (send(&version, request(3)), next());
        assert_eq!((asked(&entry), given(&entry, "START"), given(&entry, "SUM")), (3, 1, 0));
        responder.finish(None);
        assert_eq!(other.rest(), [Got::Nothing]);
        settles(&engine, &version);
    }
}

#[test]
fn s22_the_next_request_of_a_decoupled_sequence_waits_for_the_end() {
    let (engine, version, steps) = by_hand(false, oldest());
    let first = send(&version, of(1, "<", 1));
    let (_, one) = steps.recv_timeout(WITHIN).expect("the first");
    let second = send(&version, of(1, ">", 2));
    one.send(outcome(10)).expect("wanted");
    assert_eq!(first.next(), (Got::Number(10), false));
    assert!(steps.try_recv().is_err(), "one of a sequence at a time");
    one.finish(None);
    let (entry, two) = steps.recv_timeout(WITHIN).expect("the second");
    assert_eq!(asked(&entry), 2);
    two.finish(Some(Ok(outcome(20))));
    assert_eq!((first.rest(), second.rest()), (vec![Got::Nothing], vec![Got::Number(20)]));
    assert_eq!(engine.sequences(), 0);
    settles(&engine, &version);
}

#[test]
fn s23_s25_late_responses_do_not_affect_the_next_sequence_of_the_slot() {
    let (engine, version, steps) = by_hand(false, direct());
    let next = || steps.recv_timeout(WITHIN).expect("a request");
    let late = send(&version, of(1, "<>", 1));
    let (_, slow) = next();
    // The slot is free, because its END was handed out, and goes to the next sequence.
    let other = send(&version, of(2, "<", 2));
    next().1.finish(Some(Ok(with_state(50))));
    assert_eq!(other.rest(), [Got::Number(50)]);
    slow.send(with_state(99)).expect("wanted");
    slow.finish(None);
    assert_eq!(late.rest(), [Got::Number(99), Got::Nothing]);
    let other = send(&version, of(2, ">", 2));
    let (entry, responder) = next();
    assert_eq!(given(&entry, "SUM"), 50);
    responder.finish(None);
    assert_eq!(other.rest(), [Got::Nothing]);
    settles(&engine, &version);
}
