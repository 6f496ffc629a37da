//! Sequence models: flags and ids as control tensors, states between requests, and slots that become free.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::sequences::{direct, of, sum_state, with_state};
use crate::support::{self, Got, asked, instances, model, try_request};
use backend::{Batch, BatchEntry, Outcome};
use engine::ServerState;
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::control::Kind;
use protocol::pb::inference::model_sequence_batching::{Control, ControlInput, StrategyChoice, StrategyOldest};
use protocol::{CorrelationId, InferRequest};
use std::sync::mpsc::{Receiver, Sender, channel};
use tensor::DataType;

fn control(name: &str, kind: Kind) -> ControlInput {
    let values = if kind == Kind::ControlSequenceCorrid { vec![] } else { vec![false, true] };
    let data_type = if kind == Kind::ControlSequenceCorrid { DataType::Uint32 as i32 } else { 0 };
    let control = Control { kind: kind as i32, bool_false_true: values, data_type, ..Default::default() };
    ControlInput { name: name.into(), control: vec![control] }
}

/// Controls START, END, READY, CORRID and one state.
fn sequences(config: &mut pb::ModelConfig, strategy: StrategyChoice) {
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 60_000_000,
        control_input: vec![
            control("START", Kind::ControlSequenceStart),
            control("END", Kind::ControlSequenceEnd),
            control("READY", Kind::ControlSequenceReady),
            control("CORRID", Kind::ControlSequenceCorrid),
        ],
        state: vec![sum_state()],
        strategy_choice: Some(strategy),
        ..Default::default()
    }));
}

fn oldest() -> StrategyChoice {
    StrategyChoice::Oldest(StrategyOldest { max_candidate_sequences: 1, ..Default::default() })
}

/// The contents of an input that the client did not send.
fn given(entry: &BatchEntry, name: &str) -> Vec<u8> {
    let input = entry.request.inputs.iter().find(|i| i.name == *name).unwrap_or_else(|| panic!("no {name}"));
    input.data.to_vec().expect("in memory")
}

/// Adds the request to the state, and responds with the sum; sums of 99 fail.
fn add(entry: &mut BatchEntry) {
    let sum = given(entry, "SUM")[0].wrapping_add(asked(entry));
    assert_eq!(
        entry.checked.outputs.as_slice(),
        [(0, None), (1, Some(backend::scatter::KEPT))],
        "the state is asked for"
    );
    entry.result = Some(if sum == 99 { Err(tensor::Error::internal("99")) } else { Ok(with_state(sum)) });
}

/// The same for a batch with null rows, which have zeros and no requested outputs.
fn add_if_ready(entry: &mut BatchEntry) {
    if given(entry, "READY")[0] == 1 {
        return add(entry);
    }
    assert_eq!((asked(entry), given(entry, "CORRID")[0], given(entry, "SUM")[0]), (0, 0, 0));
    assert_eq!(entry.checked.outputs.as_slice(), [(1, Some(backend::scatter::KEPT))]);
    entry.result = Some(Ok(Outcome::default()));
}

fn idle_after(config: &mut pb::ModelConfig, us: u64) {
    if let Some(pb::model_config::SchedulingChoice::SequenceBatching(batching)) = &mut config.scheduling_choice {
        batching.max_sequence_idle_microseconds = us;
    }
}

/// The client's result: the one output, or the error text.
fn ask(version: &engine::ModelVersion, request: Box<InferRequest>) -> Result<u8, String> {
    let call = support::try_request(version, request, None).map_err(|e| e.message().to_owned())?;
    let answer = call.next_answer().response.expect("an answer").map_err(|e| e.message().to_owned())?;
    assert_eq!(answer.outputs.len(), 1, "controls and states are not answered");
    Ok(answer.outputs[0].data.to_vec().expect("in memory")[0])
}

#[test]
fn s20_s23_a_sequence_sees_its_flags_its_id_and_its_state() {
    for strategy in [direct(), oldest()] {
        let (send, seen) = channel();
        let (_engine, version) = model(
            |config| sequences(config, strategy),
            move |_, batch, _| {
                for entry in batch.requests.iter_mut() {
                    let all = ["START", "END", "READY", "CORRID"].map(|name| given(entry, name)[0]);
                    send.send(all).expect("the test listens");
                    add(entry);
                }
            },
        );
        assert_eq!(ask(&version, of(7, "<", 1)), Ok(1));
        assert_eq!(ask(&version, of(7, "", 2)), Ok(3));
        assert_eq!(ask(&version, of(7, "", 96)), Err("99".into()), "a failure leaves the state as it was");
        assert_eq!(ask(&version, of(7, ">", 4)), Ok(7));
        assert_eq!(ask(&version, of((1 << 32) + 8, "<>", 5)), Ok(5), "another sequence starts fresh");
        let seen: Vec<_> = seen.try_iter().collect();
        assert_eq!(seen, [[1, 0, 1, 7], [0, 0, 1, 7], [0, 0, 1, 7], [0, 1, 1, 7], [1, 1, 1, 8]]);
        let start = "inference request for sequence 7 to model 'm' must specify the START flag on the first request \
             of the sequence";
        assert_eq!(ask(&version, of(7, "", 1)), Err(start.into()));
        let mut text = of(7, "<", 1);
        text.sequence.id = CorrelationId::String("x".into());
        let kind =
            "[request id: r1] sequence batching control 'CORRID' data-type is 'BYTES', but model 'm' expects 'UINT32'";
        assert_eq!(ask(&version, text), Err(kind.into()));
    }
}

/// A model that announces each execution, and waits for the test.
type Held = (Receiver<Vec<Option<u8>>>, Sender<()>);

fn held(
    strategy: StrategyChoice,
    idle_us: u64,
) -> (std::sync::Arc<engine::Engine>, std::sync::Arc<engine::ModelVersion>, Held) {
    let (send, began) = channel();
    let (go, may_go) = channel();
    let may_go = std::sync::Mutex::new(may_go);
    let (engine, version) = model(
        |config| {
            sequences(config, strategy);
            idle_after(config, idle_us);
        },
        move |_, batch: &mut Batch<'_>, _| {
            let row = |e: &BatchEntry| (given(e, "READY")[0] == 1).then(|| asked(e));
            send.send(batch.requests.iter().map(row).collect()).expect("the test listens");
            may_go.lock().expect("one at a time").recv().expect("the test goes on");
            batch.requests.iter_mut().for_each(add_if_ready);
        },
    );
    (engine, version, (began, go))
}

#[test]
fn s21_rows_are_slots_and_null_rows_are_counted_in_the_batch_only() {
    let (_engine, version, (began, go)) = held(direct(), 60_000_000);
    let send = |id, number| try_request(&version, of(id, "<", number), None).expect("accepted");
    let first = send(1, 10);
    assert_eq!(began.recv_timeout(support::WITHIN), Ok(vec![Some(10)]));
    let others = [send(2, 20), send(3, 30)];
    go.send(()).expect("it waits");
    assert_eq!(began.recv_timeout(support::WITHIN), Ok(vec![None, Some(20), Some(30)]), "slot 0 has no request");
    go.send(()).expect("it waits");
    let answers: Vec<_> = std::iter::once(first).chain(others).map(|call| call.rest()).collect();
    assert_eq!(answers, [10, 20, 30].map(|n| vec![Got::Number(n)]));
    let statistics = version.statistics();
    assert_eq!((statistics.inference_count, statistics.execution_count), (3, 2));
    let sizes: Vec<_> = statistics.batches.iter().map(|b| b.0).collect();
    assert_eq!(sizes, [1, 3]);
}

#[test]
fn s18_s23_queued_requests_of_an_idle_sequence_continue_from_its_state() {
    for strategy in [direct(), oldest()] {
        let (engine, version, (began, go)) = held(strategy, 1_000_000);
        let send = |flags, number| try_request(&version, of(1, flags, number), None).expect("accepted");
        let both = [send("<", 1), send("", 2)];
        assert_eq!(began.recv_timeout(support::WITHIN), Ok(vec![Some(1)]));
        // No request arrives while its first one runs.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        go.send(()).expect("it waits");
        assert_eq!(began.recv_timeout(support::WITHIN), Ok(vec![Some(2)]));
        go.send(()).expect("it waits");
        assert_eq!(both.map(|call| call.rest()), [1, 3].map(|n| vec![Got::Number(n)]));
        assert_eq!(engine.sequences(), 0);
        assert!(ask(&version, of(1, "", 1)).is_err_and(|text| text.contains("must specify the START flag")));
        support::settles(&engine, &version);
    }
}

#[test]
fn r51_an_exiting_server_rejects_new_sequences_and_finishes_others() {
    let (engine, version) =
        model(|config| sequences(config, oldest()), |_, batch, _| batch.requests.iter_mut().for_each(add));
    assert_eq!(ask(&version, of(1, "<", 1)), Ok(1));
    engine.set_server_state(ServerState::Exiting);
    let stopping = "Server is stopping, scheduler for model has stopped accepting new inference requests";
    assert_eq!(ask(&version, of(2, "<", 1)), Err(stopping.into()));
    assert_eq!(ask(&version, of(1, "", 1)), Ok(2));
    assert_eq!(ask(&version, of(1, ">", 1)), Ok(3));
}

#[test]
fn a_panic_fails_its_requests_and_frees_the_slot() {
    let (_engine, version) = model(
        |config| {
            instances(config, 1);
            sequences(config, oldest());
        },
        |_, batch, _| {
            assert_ne!(asked(&batch.requests[0]), 13, "a planted panic");
            batch.requests.iter_mut().for_each(add);
        },
    );
    assert_eq!(ask(&version, of(1, "<", 1)), Ok(1));
    assert!(ask(&version, of(1, "", 13)).is_err_and(|text| text.contains("stopped without a response")));
    assert_eq!(ask(&version, of(1, ">", 2)), Ok(3), "the state is that of the last success");
    assert_eq!(ask(&version, of(2, "<>", 5)), Ok(5), "the only slot is free");
}

#[test]
fn r28_sequences_keep_their_states_while_instances_change() {
    for strategy in [direct(), oldest()] {
        let (engine, version) = model(
            |config| {
                sequences(config, strategy);
                instances(config, 2);
            },
            |_, batch, _| batch.requests.iter_mut().for_each(add),
        );
        let update = |count| {
            let mut config = pb::ModelConfig { name: "m".into(), ..Default::default() };
            instances(&mut config, count);
            let updated = engine.update("m", 1, prost::Message::encode_to_vec(&config).into(), "{}".into());
            assert_eq!(updated, Ok(true));
        };
        let all = |flags, n, sum| (1..=2).for_each(|id| assert_eq!(ask(&version, of(id, flags, n)), Ok(sum)));
        all("<", 1, 1);
        update(1);
        all("", 2, 3);
        update(3);
        all("", 3, 6);
        update(1);
        all(">", 4, 10);
        assert_eq!(ask(&version, of(5, "<>", 9)), Ok(9));
        update(2);
        all("<>", 7, 7);
    }
}

#[test]
fn s23_a_failed_start_drops_the_state_of_the_former_sequence() {
    for strategy in [direct(), oldest()] {
        let (_engine, version) =
            model(|config| sequences(config, strategy), |_, batch, _| batch.requests.iter_mut().for_each(add));
        assert_eq!(ask(&version, of(1, "<", 50)), Ok(50));
        assert_eq!(ask(&version, of(1, "<", 99)), Err("99".into()), "the former sequence has ended, unfinished");
        assert_eq!(ask(&version, of(1, "", 3)), Ok(3), "and its state with it");
    }
}

#[test]
fn o34_an_ensemble_counts_the_times_of_steps_that_are_sequences() {
    let (engine, version) =
        model(|config| sequences(config, direct()), |_, batch, _| batch.requests.iter_mut().for_each(add));
    let ensemble = support::publish(&engine, &support::ensemble_of("e", "m")).expect("it fits");
    assert_eq!([("<", 1), ("", 2), (">", 3)].map(|(flags, n)| ask(&ensemble, of(1, flags, n))), [1, 3, 6].map(Ok));
    let (all, part) = (ensemble.statistics().compute_input, version.statistics().compute_input);
    assert!(part.ns > 0 && (all.count, all.ns) == (3, part.ns), "{all:?} {part:?}");
}

#[test]
fn s47_nothing_runs_until_enough_requests_are_in_the_backlog() {
    let options = engine::EngineOptions { delays: [0, 2], ..Default::default() };
    let change = |config: &mut pb::ModelConfig| {
        instances(config, 1);
        sequences(config, oldest());
    };
    let (engine, version) =
        support::try_model_of(options, change, |_, batch, _| batch.requests.iter_mut().for_each(add)).expect("good");
    let send = |id, number| try_request(&version, of(id, "<>", number), None).expect("accepted");
    // The first is in the batcher of the instance, the second in the slot, the third behind it.
    let first = [send(1, 10), send(2, 20), send(3, 30)];
    first[0].is_silent();
    let last = send(4, 40);
    let answers: Vec<_> = first.iter().chain([&last]).map(support::Call::rest).collect();
    assert_eq!(answers, [10, 20, 30, 40].map(|n| vec![Got::Number(n)]));
    assert_eq!(ask(&version, of(5, "<>", 5)), Ok(5), "once");
    support::settles(&engine, &version);
}

#[test]
fn s18_sequences_beyond_the_limit_are_rejected_until_one_ends() {
    let options = engine::EngineOptions { sequence_limit: 2, ..Default::default() };
    let change = |config: &mut pb::ModelConfig| sequences(config, direct());
    let (_engine, version) =
        support::try_model_of(options, change, |_, batch, _| batch.requests.iter_mut().for_each(add_if_ready))
            .expect("good");
    assert_eq!((ask(&version, of(1, "<", 1)), ask(&version, of(2, "<", 2))), (Ok(1), Ok(2)));
    let full = "model 'm' has 2 sequences in progress or waiting, which is the limit: end some, or try again later";
    assert_eq!(ask(&version, of(3, "<", 3)), Err(full.into()));
    assert_eq!(ask(&version, of(1, ">", 3)), Ok(4));
    assert_eq!(ask(&version, of(3, "<", 3)), Ok(3));
}
