//! Implicit states are charged to the memory budget. In its own process, which has one budget.

mod support;

use backend::{Batch, Outcome};
use memory::Budget;
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::{State, StrategyChoice, StrategyOldest};
use protocol::{CorrelationId, InferRequest, OutputTensor, Sequence};
use support::*;
use tensor::{Code, Data, DataType, Shape};

const LARGE: usize = 1 << 20;

fn charged() -> usize {
    Budget::global().counters().used_bytes.iter().sum()
}

/// A response of one byte, and a state of this many.
fn answer(number: u8, bytes: usize) -> Outcome {
    let mut made = outcome(number);
    made.outputs.push(OutputTensor {
        name: "S_OUT".into(),
        datatype: DataType::Uint8,
        shape: Shape::from_slice(&[1, bytes as i64]),
        data: Data::Bytes(vec![number; bytes].into()),
        index: 1,
        form: Default::default(),
    });
    made
}

fn sequences(config: &mut pb::ModelConfig, idle_us: u64) {
    let state = State {
        input_name: "S".into(),
        output_name: "S_OUT".into(),
        data_type: DataType::Uint8 as i32,
        dims: vec![-1],
        ..Default::default()
    };
    let oldest = StrategyOldest { max_candidate_sequences: 100, ..Default::default() };
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: idle_us,
        state: vec![state],
        strategy_choice: Some(StrategyChoice::Oldest(oldest)),
        ..Default::default()
    }));
}

#[test]
fn s23_states_are_charged_and_fail_beyond_the_limit() {
    are_charged(LARGE, 16 << 20, 40);
    // Small buffers count, too, because there may be very many, and they stay.
    are_charged(60 << 10, 2 << 20, 60);
    states_of_idle_and_cancelled_sequences_are_given_back();
}

/// States of this many bytes and sequences, within a limit.
fn are_charged(bytes: usize, limit: usize, sequences_begun: u64) {
    Budget::global().set_limit(limit);
    let (engine, m) = model(
        |config| sequences(config, 60_000_000),
        move |_, batch: &mut Batch<'_>, _| {
            batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(answer(asked(entry), bytes))));
        },
    );
    let ask = |id: u64, start: bool| {
        let sequence = Sequence { id: CorrelationId::Number(id), start, end: !start };
        let request = InferRequest { sequence, ..*request(id as u8) };
        try_request(&m, Box::new(request), None).expect("accepted").rest()
    };
    let (served, refused): (Vec<u64>, Vec<u64>) =
        (1..=sequences_begun).partition(|&id| ask(id, true) == [Got::Number(id as u8)]);
    assert!((1..=limit / bytes).contains(&served.len()), "{served:?}");
    assert!(charged() >= served.len() * bytes && charged() <= limit, "{}", charged());
    assert_eq!(ask(100, true), [Got::Failed(Code::ResourceExhausted)]);
    // Sequences continue, those without memory from a fresh state.
    for id in served.into_iter().chain(refused).chain([100]) {
        assert_eq!(ask(id, false), [Got::Number(id as u8)]);
    }
    settles(&engine, &m);
    soon("nothing is charged", || charged() == 0);
}

/// Part of the same test, because there is one budget.
fn states_of_idle_and_cancelled_sequences_are_given_back() {
    Budget::global().set_limit(16 << 20);
    // The last request of a sequence waits for the test.
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let (engine, m) = model(
        |config| {
            sequences(config, 300_000);
            instances(config, 1);
        },
        move |_, batch: &mut Batch<'_>, _| {
            if batch.requests.iter().any(|entry| asked(entry) == 9) {
                let _ = may_go.lock().expect("one at a time").recv_timeout(WITHIN);
            }
            batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(answer(asked(entry), LARGE))));
        },
    );
    let send = |id: u64, start: bool, number: u8| {
        let sequence = Sequence { id: CorrelationId::Number(id), start, end: false };
        try_request(&m, Box::new(InferRequest { sequence, ..*request(number) }), None).expect("accepted")
    };
    for id in 1..=4 {
        assert_eq!(send(id, true, 1).rest(), [Got::Number(1)]);
    }
    assert!(charged() >= 4 * LARGE);
    // A sequence that is idle while its request runs leaves nothing; a cancelled one does not continue.
    let running = send(1, false, 9);
    let given_up = send(2, false, 3);
    given_up.ticket().cancel();
    soon("they are idle, or given up", || engine.sequences() == 0);
    let _ = go.send(());
    assert_eq!(running.rest(), [Got::Number(9)]);
    settles(&engine, &m);
    soon("nothing is charged", || charged() == 0);
}
