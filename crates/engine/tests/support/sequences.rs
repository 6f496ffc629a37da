//! Requests of sequences, and a model of them that keeps a sum.

use super::{Got, outcome, request};
use backend::Outcome;
use protocol::pb::inference::model_sequence_batching::{State, StrategyChoice, StrategyDirect};
use protocol::{CorrelationId, InferRequest, Sequence};
use tensor::DataType;

/// A state of one byte.
pub fn sum_state() -> State {
    State {
        input_name: "SUM".into(),
        output_name: "SUM_OUT".into(),
        data_type: DataType::Uint8 as i32,
        dims: vec![1],
        ..Default::default()
    }
}

/// A response that is that state, too.
pub fn with_state(number: u8) -> Outcome {
    let mut answer = outcome(number);
    let mut state = outcome(number).outputs.remove(0);
    (state.index, state.name) = (1, "SUM_OUT".into());
    answer.outputs.push(state);
    answer
}

/// The responses of a model that counts down from `n`.
pub fn sums_down_from(n: u8) -> Vec<Got> {
    let sum = |sum: &mut u8, left| {
        *sum = sum.wrapping_add(left);
        Some(Got::Number(*sum))
    };
    (1..=n).rev().scan(0, sum).collect()
}

pub fn direct() -> StrategyChoice {
    StrategyChoice::Direct(StrategyDirect::default())
}

/// A request of a sequence; `flags` are `<` for START and `>` for END.
pub fn of(id: u64, flags: &str, number: u8) -> Box<InferRequest> {
    let sequence = Sequence { id: CorrelationId::Number(id), start: flags.contains('<'), end: flags.contains('>') };
    Box::new(InferRequest { sequence, ..*request(number) })
}
