//! Answers n with n responses of n each (backends-native.md 11.3); parameters make some of them late, fail or stay away.
//!
//! A model that is not decoupled is answered once, and only for n = 1.

use crate::delay::{self, Task};
use crate::tensors::{check_cpu, check_datatype, check_names, check_scalar, inputs, outputs};
use backend::gather::input_of;
use backend::{
    Backend, Batch, BatchEntry, Counted, Marks, Model, ModelIo, OpenSpec, Opened, Outcome, Responder, RunControl,
    now_ns, scatter,
};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, Data, DataType, Error, Result, Shape};

/// Backend `square`.
#[derive(Debug, Default)]
pub struct SquareBackend;

impl Backend for SquareBackend {
    fn name(&self) -> &'static str {
        "square"
    }

    fn open(&self, _spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(OpenedSquare))
    }
}

/// Longest delay of a response that a configuration may ask for.
const DELAY_NS_MAX: u64 = 600_000_000_000;
/// Responses sent in a row before others have their turn.
const BURST: usize = 64;

/// What the parameters of a model ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Parameters {
    infer_delay_ns: u64,
    output_delay_ns: u64,
    cancel_delay_ns: u64,
    fail_count: u64,
    empty_count: u64,
}

impl Parameters {
    /// What is no number counts as 0, as in Triton.
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

    /// What becomes of response `index` of `count`: the last ones are empty, those before them fail.
    fn kind(&self, index: u64, count: u64) -> Kind {
        let after = count - index;
        if after <= self.empty_count {
            Kind::Empty
        } else if after <= self.empty_count.saturating_add(self.fail_count) {
            Kind::Failed
        } else {
            Kind::Sent
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Sent,
    Failed,
    Empty,
}

struct OpenedSquare;

impl Opened for OpenedSquare {
    fn io(&self) -> Option<ModelIo> {
        None
    }

    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        check(config)?;
        Ok(Arc::new(Square { signature, parameters: Parameters::of(config) }))
    }
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

/// n of a request.
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

/// A request on its way.
struct Squaring {
    responder: Option<Responder>,
    entry: BatchEntry,
    signature: Arc<Signature>,
    parameters: Parameters,
    number: i32,
    count: u64,
    index: u64,
    phase: Phase,
}

/// What happens to the response `index`, and until when.
#[derive(Debug, Clone, Copy)]
enum Phase {
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
    /// Goes on with a response until it has to wait, or is done. `None`: there is nothing more to do.
    fn response(&mut self) -> Option<Option<u64>> {
        loop {
            let now = now_ns();
            let responder = self.responder.as_ref()?;
            self.phase = match self.phase {
                Phase::Begins if self.index >= self.count => {
                    self.end(None);
                    return None;
                }
                Phase::Begins | Phase::Computed { .. } | Phase::Made { .. } if responder.is_cancelled() => {
                    Phase::Cancelled { at: now + self.parameters.cancel_delay_ns }
                }
                Phase::Begins => Phase::Computed { at: now + self.parameters.infer_delay_ns },
                Phase::Computed { at } | Phase::Made { at } | Phase::Cancelled { at } if at > now => {
                    return Some(Some(at));
                }
                Phase::Computed { .. } => match self.parameters.kind(self.index, self.count) {
                    Kind::Empty => {
                        responder.skip();
                        self.index += 1;
                        self.phase = Phase::Begins;
                        return Some(None);
                    }
                    Kind::Sent | Kind::Failed => {
                        responder.output_begins();
                        Phase::Made { at: now + self.parameters.output_delay_ns }
                    }
                },
                Phase::Made { .. } => {
                    self.phase = Phase::Begins;
                    return self.send().then_some(None);
                }
                Phase::Cancelled { .. } => {
                    responder.fail(Error::cancelled("cancelled"));
                    self.end(None);
                    return None;
                }
            };
        }
    }

    /// Sends the response; false when the request is over.
    fn send(&mut self) -> bool {
        let Some(responder) = &self.responder else { return false };
        if self.parameters.kind(self.index, self.count) == Kind::Failed {
            responder.fail(Error::new(Code::Unknown, "simulated failure"));
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
        // Triton's counts no request, but every response.
        responder.count_as(Counted::Nothing);
        let number = match number(entry) {
            Ok(number) => number,
            Err(error) => return responder.finish(Some(Err(error))),
        };
        responder.count_as(Counted::Responses);
        let task = delay::name();
        responder.on_cancel(move || delay::hurry(task));
        let squaring = Squaring {
            responder: Some(responder),
            entry: std::mem::take(entry),
            signature: self.signature.clone(),
            parameters: self.parameters,
            number,
            count: u64::try_from(number).unwrap_or(0),
            index: 0,
            phase: Phase::Begins,
        };
        delay::begin(task, Box::new(squaring));
    }

    /// The one response of a model that is not decoupled.
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
            Kind::Sent => response(entry, &self.signature, number),
            Kind::Failed => Err(Error::new(Code::Unknown, "simulated failure")),
            Kind::Empty => Err(Error::internal("expected a single response, got 0")),
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
    use crate::testing::{Did, Tensor, config, entry, load, refused, run, run_once};
    use std::time::Instant;
    use tensor::DataType::{Int32, Int64};

    const IN: Tensor = ("IN", Int32, &[1]);
    const OUT: Tensor = ("OUT", Int32, &[1]);

    fn model(parameters: &[(&str, &str)]) -> Arc<dyn Model> {
        load(&SquareBackend, &config(&[IN], &[OUT], parameters)).expect("a good configuration")
    }

    /// The answers to n: `s`ent, `f`ailed, `e`mpty.
    fn check(parameters: &[(&str, &str)], n: i32, expected: &str) {
        let answers = run(&*model(parameters), entry(&[&[n]], 1)).answers();
        let kinds = answers.iter().map(|did| match did {
            Did::Sent(values) => {
                assert_eq!(*values, [n]);
                's'
            }
            Did::Failed(error) => {
                assert_eq!(*error, Error::unknown("simulated failure"));
                'f'
            }
            Did::Skipped => 'e',
            Did::Ended(None) => '.',
            other => panic!("{other:?}"),
        });
        assert_eq!(kinds.collect::<String>(), expected, "{n} with {parameters:?}");
    }

    // B-BI-03
    #[test]
    fn n_is_answered_n_times_with_failures_and_empty_ones_at_the_end() {
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
        let sent = Did::Sent(vec![2]);
        let expected = [
            Did::Counts(Counted::Nothing),
            Did::Counts(Counted::Responses),
            Did::Output,
            sent.clone(),
            Did::Output,
            sent,
            Did::Ended(None),
        ];
        assert_eq!(did, expected);
        let at = |i: usize| all[i].1 - start;
        assert!(at(2) >= Duration::from_millis(30) && at(3) >= Duration::from_millis(70), "{:?} {:?}", at(2), at(3));
        assert!(at(6) >= Duration::from_millis(140), "{:?}", at(6));
    }

    // B-BI-03
    #[test]
    fn a_cancelled_request_says_so_after_its_delay_and_stops() {
        let parameters = [("CUSTOM_INFER_DELAY_NS", "500000000000"), ("CUSTOM_CANCEL_DELAY_NS", "1000000")];
        let request = run(&*model(&parameters), entry(&[&[i32::MAX]], 1));
        request.cancel();
        assert_eq!(request.answers(), [Did::Failed(Error::cancelled("cancelled")), Did::Ended(None)]);
        // One that is answered as fast as it can be.
        let model = model(&[]);
        let request = run(&*model, entry(&[&[i32::MAX]], 1));
        request.cancel();
        assert_eq!(request.answers().last(), Some(&Did::Ended(None)));
    }

    // B-BI-03
    #[test]
    fn a_shape_of_two_rows_is_refused() {
        let answers = run(&*model(&[]), entry(&[&[2, 2]], 1)).all();
        let text = "unexpected shape for IN input";
        assert_eq!(answers[0].0, Did::Counts(Counted::Nothing));
        assert_eq!(answers[1].0, Did::Ended(Some(Error::invalid(text))));
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
    fn configurations_are_refused_with_triton_s_texts() {
        let check = |inputs: &[Tensor], outputs: &[Tensor], text| {
            refused(&SquareBackend, &config(inputs, outputs, &[]), text);
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
