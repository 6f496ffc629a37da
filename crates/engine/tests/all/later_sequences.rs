//! Sequences of models whose batches run in other processes.

use crate::support::later::{LaterModel, marks};
use crate::support::sequences::sums_down_from;
use crate::support::*;
use backend::{BatchEntry, Occupied, Outcome, Responder};
use engine::{Engine, ModelVersion};
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::control::Kind;
use protocol::pb::inference::model_sequence_batching::{
    Control, ControlInput, State, StrategyChoice, StrategyDirect, StrategyOldest,
};
use protocol::{CorrelationId, InferRequest, Sequence};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tensor::{Data, DataType};

/// Control START and a state of one byte.
fn sequences(config: &mut pb::ModelConfig, strategy: StrategyChoice, iterative: bool) {
    let start =
        Control { kind: Kind::ControlSequenceStart as i32, bool_false_true: vec![false, true], ..Control::default() };
    let state = State {
        input_name: "SUM".into(),
        output_name: "SUM_OUT".into(),
        data_type: DataType::Uint8 as i32,
        dims: vec![1],
        ..Default::default()
    };
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 60_000_000,
        control_input: vec![ControlInput { name: "START".into(), control: vec![start] }],
        state: vec![state],
        iterative_sequence: iterative,
        strategy_choice: Some(strategy),
    }));
}

fn direct() -> StrategyChoice {
    StrategyChoice::Direct(StrategyDirect::default())
}

fn oldest() -> StrategyChoice {
    StrategyChoice::Oldest(StrategyOldest { max_candidate_sequences: 2, ..Default::default() })
}

fn of(id: u64, flags: &str, number: u8) -> Box<InferRequest> {
    let sequence = Sequence { id: CorrelationId::Number(id), start: flags.contains('<'), end: flags.contains('>') };
    Box::new(InferRequest { sequence, ..*request(number) })
}

fn given(entry: &BatchEntry, name: &str) -> u8 {
    let input = entry.request.inputs.iter().find(|i| i.name == *name).expect("there");
    input.data.to_vec().expect("in memory")[0]
}

/// A response that is the state, too.
fn with_state(number: u8) -> Outcome {
    let mut answer = outcome(number);
    let mut state = outcome(number).outputs.remove(0);
    (state.index, state.name) = (1, "SUM_OUT".into());
    answer.outputs.push(state);
    answer
}

fn send(version: &ModelVersion, request: Box<InferRequest>) -> Call {
    try_request(version, request, None).expect("accepted")
}

/// The requests of a batch, and its instance.
struct Rows {
    instance: u32,
    occupied: Occupied,
    rows: Vec<(BatchEntry, Responder)>,
}

/// A model whose batches go to a thread, or to the test.
fn sending(at_once: bool) -> (LaterModel, Receiver<Rows>) {
    let (send, receive): (Sender<Rows>, _) = channel();
    let model = LaterModel::new(move |instance, batch, _| {
        let occupied = batch.occupied.take().expect("its instance");
        let rows = batch.requests.iter_mut().filter_map(|entry| {
            let responder = entry.responder.take().expect("rows without a request have one, too");
            (!responder.is_cancelled()).then(|| (std::mem::take(entry), responder))
        });
        let rows = rows.collect();
        let _ = send.send(Rows { instance, occupied, rows });
    });
    (if at_once { model.at_once() } else { model }, receive)
}

/// A step: adds the rest to the sum, responds with it and keeps it. Iterative requests return while there is a rest.
fn step((mut entry, responder): (BatchEntry, Responder), iterative: bool, streams: bool) {
    let left = asked(&entry);
    let answer = with_state(given(&entry, "SUM").wrapping_add(left));
    if left <= 1 || !iterative {
        return responder.finish(Some(Ok(answer)));
    }
    entry.request.inputs[0].data = Data::Bytes(vec![left - 1].into());
    // Without decoupled responses the state is in the last response.
    responder.again(entry, streams.then_some(answer));
}

/// The same model, run by another thread that frees instances first.
fn running(
    strategy: StrategyChoice,
    (iterative, streams, at_once): (bool, bool, bool),
    change: impl FnOnce(&mut pb::ModelConfig),
) -> (Arc<Engine>, Arc<ModelVersion>) {
    let (model, batches) = sending(at_once);
    thread::spawn(move || {
        for Rows { occupied, rows, .. } in batches {
            occupied.free(marks(backend::now_ns()));
            for row in rows {
                step(row, iterative, streams);
            }
        }
    });
    model.model(|config| {
        sequences(config, strategy, iterative);
        if streams {
            decoupled(config);
        }
        change(config);
    })
}

#[test]
fn s22_s23_a_request_sees_the_last_state_though_the_instance_was_freed_first() {
    for strategy in [direct(), oldest()] {
        for at_once in [false, true] {
            let (engine, version) = running(strategy.clone(), (false, false, at_once), |config| instances(config, 2));
            for round in 0..20 {
                let all: Vec<_> = (1..=6)
                    .map(|id| {
                        let flags = |n| ["<", "", "", "", ">"][n];
                        let calls: Vec<_> = (0..5).map(|n| send(&version, of(id, flags(n), (n + 1) as u8))).collect();
                        (id, calls)
                    })
                    .collect();
                for (id, calls) in all {
                    let sums: Vec<_> = calls.iter().map(Call::rest).collect();
                    assert_eq!(sums, [1, 3, 6, 10, 15].map(|n| vec![Got::Number(n)]), "sequence {id}, round {round}");
                }
            }
            assert_eq!(engine.sequences(), 0);
            settles(&engine, &version);
            assert_eq!(version.statistics().success.count, 20 * 30);
        }
    }
}

#[test]
fn s25_iterative_sequences_run_again_until_they_are_done() {
    for strategy in [direct(), oldest()] {
        for at_once in [false, true] {
            let (engine, version) = running(strategy.clone(), (true, true, at_once), |_| ());
            let all: Vec<_> = (1..=20).map(|n| send(&version, request(n))).collect();
            for (n, call) in (1..=20u8).zip(all) {
                assert_eq!(call.rest(), sums_down_from(n), "states of {n} are its own");
            }
            settles(&engine, &version);
            let steps = (1..=20).sum::<u64>();
            assert_eq!(version.statistics().success.count, steps, "each step is one");
            // Without decoupled responses only the last step responds.
            let (engine, version) = running(strategy.clone(), (true, false, at_once), |_| ());
            let all: Vec<_> = (1..=20).map(|n| send(&version, request(n))).collect();
            all.iter().for_each(|call| assert_eq!(call.rest(), [Got::Number(1)]));
            settles(&engine, &version);
        }
    }
}

#[test]
fn s22_the_next_batch_waits_for_the_requests_of_the_one_before() {
    let (model, batches) = sending(false);
    let (engine, version) = model.model(|config| sequences(config, direct(), false));
    let (first, second) = (send(&version, of(1, "<", 1)), send(&version, of(1, ">", 2)));
    let next = || batches.recv_timeout(WITHIN).expect("a batch");
    let Rows { occupied, mut rows, .. } = next();
    occupied.free(marks(backend::now_ns()));
    assert!(batches.recv_timeout(Duration::from_millis(20)).is_err(), "its state is not there yet");
    step(rows.remove(0), false, false);
    let Rows { occupied, mut rows, instance } = next();
    assert_eq!((given(&rows[0].0, "SUM"), instance), (1, 0));
    step(rows.remove(0), false, false);
    occupied.free(marks(backend::now_ns()));
    assert_eq!((first.rest(), second.rest()), (vec![Got::Number(1)], vec![Got::Number(3)]));
    settles(&engine, &version);
}

#[test]
fn s21_rows_are_slots_in_other_processes_too() {
    let (model, batches) = sending(true);
    let (engine, version) = model.model(|config| sequences(config, direct(), false));
    let hold = send(&version, of(1, "<>", 1));
    let held = batches.recv_timeout(WITHIN).expect("a batch");
    let others: Vec<_> = (2..=4).map(|id| send(&version, of(id, "<>", id as u8))).collect();
    let finish = |Rows { occupied, rows, .. }: Rows| {
        rows.into_iter().for_each(|row| step(row, false, false));
        occupied.free(marks(backend::now_ns()));
    };
    finish(held);
    let batch = batches.recv_timeout(WITHIN).expect("a batch");
    assert_eq!(batch.rows.len(), 3);
    finish(batch);
    assert_eq!(hold.rest(), [Got::Number(1)]);
    for (id, call) in (2..=4).zip(&others) {
        assert_eq!(call.rest(), [Got::Number(id)]);
    }
    settles(&engine, &version);
}
