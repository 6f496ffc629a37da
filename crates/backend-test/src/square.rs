//! Answers n with n responses of n each (backends-native.md 11.3); parameters delay, fail or omit some of them.
//!
//! A model that is not decoupled responds once, to n = 1 only.

use crate::TestBackend;
use crate::delay::{self, Task};
use crate::tensors::{check_cpu, check_datatype, check_names, check_scalar, inputs, outputs};
use backend::gather::input_of;
use backend::{Batch, BatchEntry, Counted, Marks, Model, Outcome, Responder, RunControl, now_ns, scatter};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Data, DataType, Error, Result, Shape};

/// Backend `square`.
pub const SQUARE: TestBackend = TestBackend { name: "square", load };

/// Maximum configurable delay of a response.
const DELAY_NS_MAX: u64 = 600_000_000_000;
/// Responses sent in a row before other tasks run.
const BURST: usize = 64;

/// Parameters of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Parameters {
    infer_delay_ns: u64,
    output_delay_ns: u64,
    cancel_delay_ns: u64,
    fail_count: u64,
    empty_count: u64,
}

impl Parameters {
    /// Values that are not numbers count as 0, as in Triton.
    fn of(config: &ModelConfig) -> Self {
        let number =
            |key: &str| config.parameters.get(key).and_then(|p| p.string_value.parse::<u64>().ok()).unwrap_or(0);
        let delay = |key: &str| number(key).min(DELAY_NS_MAX);
        Self {
            infer_delay_ns: delay("CUSTOM_INFER_DELAY_NS"),
            output_delay_ns: delay("CUSTOM_OUTPUT_DELAY_NS"),
            cancel_delay_ns: delay("CUSTOM_CANCEL_DELAY_NS"),
            fail_count: number("CUSTOM_FAIL_COUNT"),
            empty_count: number("CUSTOM_EMPTY_COUNT"),
        }
    }

    /// Kind of response `index` of `count`: the last ones are empty, and those before them fail.
    fn kind(&self, index: u64, count: u64) -> ResponseKind {
        let after = count - index;
        if after <= self.empty_count {
            ResponseKind::Empty
        } else if after <= self.empty_count.saturating_add(self.fail_count) {
            ResponseKind::Failed
        } else {
            ResponseKind::Sent
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ResponseKind {
    Sent,
    Failed,
    Empty,
}

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    check(config)?;
    Ok(Arc::new(Square { signature, parameters: Parameters::of(config) }))
}

fn check(config: &ModelConfig) -> Result<()> {
    check_cpu("square", config)?;
    let (inputs, outputs) = (inputs(config), outputs(config));
    check_names("input", &inputs, &["IN"])?;
    check_names("output", &outputs, &["OUT"])?;
    for tensor in inputs.iter().chain(&outputs) {
        check_scalar(tensor)?;
        check_datatype(tensor, DataType::Int32)?;
    }
    Ok(())
}

struct Square {
    signature: Arc<Signature>,
    parameters: Parameters,
}

/// The request's n.
fn number(entry: &BatchEntry) -> Result<i32> {
    let data = input_of(entry, 0).map_or(Ok(Vec::new()), |input| input.data.to_vec())?;
    <[u8; 4]>::try_from(data).map(i32::from_le_bytes).map_err(|_| Error::invalid("unexpected shape for IN input"))
}

fn response(entry: &BatchEntry, signature: &Signature, number: i32) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let shape = Shape::from_slice(if signature.batches() { &[1, 1] } else { &[1] });
    let slot = entry.checked.outputs.first().and_then(|wanted| wanted.1);
    if let Some(spec) = signature.outputs.first() {
        let data = Data::Bytes(number.to_le_bytes().to_vec().into());
        outcome.outputs.push(scatter::output(entry, spec, (0, slot), shape, data)?);
    }
    Ok(outcome)
}

/// A request in progress.
struct Squaring {
    responder: Option<Responder>,
    entry: BatchEntry,
    signature: Arc<Signature>,
    parameters: Parameters,
    number: i32,
    count: u64,
    index: u64,
    phase: ResponsePhase,
}

/// Phase of response `index`, with the end of its delay.
#[derive(Debug, Clone, Copy)]
enum ResponsePhase {
    Begins,
    Computed { at: u64 },
    Made { at: u64 },
    Cancelled { at: u64 },
}

impl Task for Squaring {
    fn step(&mut self) -> Option<u64> {
        for _ in 0..BURST {
            if let Some(due) = self.response()? {
                return Some(due);
            }
        }
        Some(now_ns())
    }
}

impl Squaring {
    /// Continues a response until it has to wait or is done. `None` after the last one.
    fn response(&mut self) -> Option<Option<u64>> {
        loop {
            let now = now_ns();
            let responder = self.responder.as_ref()?;
            self.phase = match self.phase {
                ResponsePhase::Begins if self.index >= self.count => {
                    self.end(None);
                    return None;
                }
                ResponsePhase::Begins | ResponsePhase::Computed { .. } | ResponsePhase::Made { .. }
                    if responder.is_cancelled() =>
                {
                    ResponsePhase::Cancelled { at: now + self.parameters.cancel_delay_ns }
                }
                ResponsePhase::Begins => ResponsePhase::Computed { at: now + self.parameters.infer_delay_ns },
                ResponsePhase::Computed { at } | ResponsePhase::Made { at } | ResponsePhase::Cancelled { at }
                    if at > now =>
                {
                    return Some(Some(at));
                }
                ResponsePhase::Computed { .. } => match self.parameters.kind(self.index, self.count) {
                    ResponseKind::Empty => {
                        responder.skip();
                        self.index += 1;
                        self.phase = ResponsePhase::Begins;
                        return Some(None);
                    }
                    ResponseKind::Sent | ResponseKind::Failed => {
                        responder.output_begins();
                        ResponsePhase::Made { at: now + self.parameters.output_delay_ns }
                    }
                },
                ResponsePhase::Made { .. } => {
                    self.phase = ResponsePhase::Begins;
                    return self.send().then_some(None);
                }
                ResponsePhase::Cancelled { .. } => {
                    responder.fail(Error::cancelled("cancelled"));
                    self.end(None);
                    return None;
                }
            };
        }
    }

    /// Sends the response; returns false if the request has ended.
    fn send(&mut self) -> bool {
        let Some(responder) = &self.responder else { return false };
        if self.parameters.kind(self.index, self.count) == ResponseKind::Failed {
            responder.fail(Error::unknown("simulated failure").by_model());
        } else {
            match response(&self.entry, &self.signature, self.number).map(|outcome| responder.send(outcome)) {
                Ok(Ok(())) => {}
                Ok(Err(_stopped)) => {
                    self.end(None);
                    return false;
                }
                Err(error) => {
                    self.end(Some(Err(error)));
                    return false;
                }
            }
        }
        self.index += 1;
        true
    }

    fn end(&mut self, last: Option<Result<Outcome>>) {
        if let Some(responder) = self.responder.take() {
            responder.finish(last);
        }
    }
}

impl Square {
    fn square(&self, entry: &mut BatchEntry) {
        let Some(responder) = entry.responder.take() else { return };
        // As in Triton, only responses are counted.
        responder.count_as(Counted::Nothing);
        let number = match number(entry) {
            Ok(number) => number,
            Err(error) => return responder.finish(Some(Err(error))),
        };
        responder.count_as(Counted::Responses);
        let task = delay::new_id();
        responder.on_cancel(move || delay::expedite(task));
        let squaring = Squaring {
            responder: Some(responder),
            entry: std::mem::take(entry),
            signature: self.signature.clone(),
            parameters: self.parameters,
            number,
            count: u64::try_from(number).unwrap_or(0),
            index: 0,
            phase: ResponsePhase::Begins,
        };
        delay::begin(task, Box::new(squaring));
    }

    /// The only response of a model that is not decoupled.
    fn only(&self, entry: &BatchEntry, control: &RunControl) -> Result<Outcome> {
        let number = number(entry)?;
        if number != 1 {
            return Err(Error::internal(format!("expected a single response, got {}", number.max(0))));
        }
        let pause = Duration::from_nanos(self.parameters.infer_delay_ns + self.parameters.output_delay_ns);
        if !delay::wait(pause, control) {
            return Err(Error::cancelled("cancelled"));
        }
        match self.parameters.kind(0, 1) {
            ResponseKind::Sent => response(entry, &self.signature, number),
            ResponseKind::Failed => Err(Error::unknown("simulated failure").by_model()),
            ResponseKind::Empty => Err(Error::internal("expected a single response, got 0")),
        }
    }
}

impl Model for Square {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        for entry in batch.requests.iter_mut() {
            if entry.responder.is_some() {
                self.square(entry);
            } else {
                entry.result = Some(self.only(entry, control));
            }
        }
        let now = now_ns();
        Marks { inputs_ready, inference_end: now, outputs_ready: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Event, Tensor, config, entry, load, refused, run, run_once};
    use std::time::Instant;
    use tensor::DataType::{Int32, Int64};

    const IN: Tensor = ("IN", Int32, &[1]);
    const OUT: Tensor = ("OUT", Int32, &[1]);

    fn model(parameters: &[(&str, &str)]) -> Arc<dyn Model> {
        load(&SQUARE, &config(&[IN], &[OUT], parameters)).expect("a good configuration")
    }

    /// Checks the responses to n: `s`ent, `f`ailed, `e`mpty.
    fn check(parameters: &[(&str, &str)], n: i32, expected: &str) {
        let answers = run(&*model(parameters), entry(&[&[n]], 1)).answers();
        let kinds = answers.iter().map(|did| match did {
            Event::Sent(values) => {
                assert_eq!(*values, [n]);
                's'
            }
            Event::Failed(error) => {
                assert_eq!(*error, Error::unknown("simulated failure").by_model());
                'f'
            }
            Event::Skipped => 'e',
            Event::Ended(None) => '.',
            other => panic!("{other:?}"),
        });
        assert_eq!(kinds.collect::<String>(), expected, "{n} with {parameters:?}");
    }

    // B-BI-03
    #[test]
    fn n_has_n_responses_with_failures_and_empty_ones_at_the_end() {
        const FAIL: (&str, &str) = ("CUSTOM_FAIL_COUNT", "2");
        const EMPTY: (&str, &str) = ("CUSTOM_EMPTY_COUNT", "1");
        for (n, expected) in [(-1, "."), (0, "."), (1, "s."), (3, "sss.")] {
            check(&[], n, expected);
        }
        check(&[], 100, &format!("{}.", "s".repeat(100)));
        for (n, expected) in [(1, "f."), (2, "ff."), (3, "sff."), (5, "sssff.")] {
            check(&[FAIL], n, expected);
        }
        for (n, expected) in [(0, "."), (1, "e."), (2, "fe."), (4, "sffe.")] {
            check(&[FAIL, EMPTY], n, expected);
        }
        check(&[("CUSTOM_FAIL_COUNT", "x"), ("CUSTOM_EMPTY_COUNT", "-1")], 2, "ss.");
    }

    // B-BI-03
    #[test]
    fn responses_are_counted_one_by_one_and_take_their_delays() {
        let delays = [("CUSTOM_INFER_DELAY_NS", "30000000"), ("CUSTOM_OUTPUT_DELAY_NS", "40000000")];
        let start = Instant::now();
        let all = run(&*model(&delays), entry(&[&[2]], 1)).all();
        let did: Vec<_> = all.iter().map(|(d, _)| d.clone()).collect();
        let sent = Event::Sent(vec![2]);
        let expected = [
            Event::Counts(Counted::Nothing),
            Event::Counts(Counted::Responses),
            Event::Output,
            sent.clone(),
            Event::Output,
            sent,
            Event::Ended(None),
        ];
        assert_eq!(did, expected);
        let at = |i: usize| all[i].1 - start;
        assert!(at(2) >= Duration::from_millis(30) && at(3) >= Duration::from_millis(70), "{:?} {:?}", at(2), at(3));
        assert!(at(6) >= Duration::from_millis(140), "{:?}", at(6));
    }

    // B-BI-03
    #[test]
    fn a_cancelled_request_fails_after_its_delay_and_stops() {
        let parameters = [("CUSTOM_INFER_DELAY_NS", "500000000000"), ("CUSTOM_CANCEL_DELAY_NS", "1000000")];
        let request = run(&*model(&parameters), entry(&[&[i32::MAX]], 1));
        request.cancel();
        assert_eq!(request.answers(), [Event::Failed(Error::cancelled("cancelled")), Event::Ended(None)]);
        // A request without delays.
        let model = model(&[]);
        let request = run(&*model, entry(&[&[i32::MAX]], 1));
        request.cancel();
        assert_eq!(request.answers().last(), Some(&Event::Ended(None)));
    }

    // B-BI-03
    #[test]
    fn a_shape_of_two_rows_is_rejected() {
        let answers = run(&*model(&[]), entry(&[&[2, 2]], 1)).all();
        let text = "unexpected shape for IN input";
        assert_eq!(answers[0].0, Event::Counts(Counted::Nothing));
        assert_eq!(answers[1].0, Event::Ended(Some(Error::invalid(text))));
    }

    // B-BI-03
    #[test]
    fn without_the_decoupled_flag_there_is_one_response() {
        let m = model(&[]);
        assert_eq!(run_once(&*m, entry(&[&[1]], 1)), Ok(vec![1]));
        let text = "expected a single response, got 3";
        assert_eq!(run_once(&*m, entry(&[&[3]], 1)), Err(Error::internal(text)));
    }

    // B-BI-03
    #[test]
    fn invalid_configurations_are_rejected_with_triton_s_texts() {
        let check = |inputs: &[Tensor], outputs: &[Tensor], text| {
            refused(&SQUARE, &config(inputs, outputs, &[]), text);
        };
        check(&[("X", Int32, &[1]), IN], &[OUT], "expected 1 input, got 2");
        check(&[IN], &[OUT, ("X", Int32, &[1])], "expected 1 output, got 2");
        check(&[("X", Int32, &[1])], &[OUT], "expected first input tensor name to be IN, got X");
        check(&[IN], &[("X", Int32, &[1])], "expected first output tensor name to be OUT, got X");
        check(&[("IN", Int32, &[1, 1])], &[OUT], "expected IN shape to be [1], got [1,1]");
        check(&[("IN", Int32, &[-1])], &[OUT], "expected IN shape to be [1], got [-1]");
        check(&[IN], &[("OUT", Int64, &[1])], "expected OUT datatype to be INT32, got TYPE_INT64");
    }
}
