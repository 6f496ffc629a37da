//! Counts a number down to 0, one step for each execution (backends-native.md 11.5): each step returns the remaining
//! number and runs the request again, the last one ends it.
//!
//! A model that is not decoupled responds to the last step only.

use crate::TestBackend;
use crate::delay;
use crate::tensors::{check_cpu, check_datatype, check_names, check_scalar, inputs, outputs};
use backend::gather::input_of;
use backend::{Batch, BatchEntry, Marks, Model, Outcome, RunControl, now_ns, scatter};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Data, DataType, Error, Result, Shape};

/// Backend `iterative_sequence`.
pub const ITERATIVE: TestBackend = TestBackend { name: "iterative_sequence", load };

/// Duration of a step unless `execute_delay_ms` is configured.
const STEP_MS_DEFAULT: u64 = 500;
/// Maximum configurable duration of a step.
const STEP_MS_MAX: u64 = 600_000;

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    check(config)?;
    let step = match config.parameters.get("execute_delay_ms").map(|p| p.string_value.trim()) {
        None => STEP_MS_DEFAULT,
        Some(text) => text.parse::<u64>().ok().filter(|&ms| ms <= STEP_MS_MAX).ok_or_else(|| {
            Error::invalid(format!("parameter 'execute_delay_ms' is '{text}': 0 to {STEP_MS_MAX} is supported"))
        })?,
    };
    Ok(Arc::new(Iterative { signature, step: Duration::from_millis(step) }))
}

fn check(config: &ModelConfig) -> Result<()> {
    check_cpu("iterative_sequence", config)?;
    let (inputs, outputs) = (inputs(config), outputs(config));
    check_names("input", &inputs, &["INPUT"])?;
    check_names("output", &outputs, &["OUTPUT"])?;
    for tensor in inputs.iter().chain(&outputs) {
        check_scalar(tensor)?;
        check_datatype(tensor, DataType::Int32)?;
    }
    Ok(())
}

struct Iterative {
    signature: Arc<Signature>,
    step: Duration,
}

impl Iterative {
    /// The remaining number after this step.
    fn left(entry: &BatchEntry) -> Result<i32> {
        let data = input_of(entry, 0).map_or(Ok(Vec::new()), |input| input.data.to_vec())?;
        let number = <[u8; 4]>::try_from(data).map(i32::from_le_bytes);
        number.map(|n| n.saturating_sub(1).max(0)).map_err(|_| Error::invalid("unexpected shape for INPUT input"))
    }

    fn response(&self, entry: &BatchEntry, left: i32) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let shape = Shape::from_slice(if self.signature.batches() { &[1, 1] } else { &[1] });
        if let (Some(wanted), Some(spec)) = (entry.checked.outputs.first(), self.signature.outputs.first()) {
            let data = Data::Bytes(left.to_le_bytes().to_vec().into());
            outcome.outputs.push(scatter::output(entry, spec, *wanted, shape, data)?);
        }
        Ok(outcome)
    }

    /// Runs a step of a request.
    fn count_down(&self, entry: &mut BatchEntry) {
        let left = match Self::left(entry) {
            Ok(left) => left,
            Err(error) => {
                entry.result = Some(Err(error));
                return;
            }
        };
        let Some(responder) = entry.responder.take() else {
            entry.result = Some(if left == 0 {
                self.response(entry, 0)
            } else {
                Err(Error::invalid("a request of several steps needs a model with 'iterative_sequence'"))
            });
            return;
        };
        if left == 0 {
            return responder.finish(Some(self.response(entry, 0)));
        }
        let response = if self.signature.decoupled { self.response(entry, left).map(Some) } else { Ok(None) };
        let mut entry = std::mem::take(entry);
        let response = match response {
            Ok(response) => response,
            Err(error) => return responder.finish(Some(Err(error))),
        };
        // The remaining number is the entire state of the request.
        if let Some(input) = entry.checked.inputs.iter().position(|&index| index == 0)
            && let Some(input) = entry.request.inputs.get_mut(input)
        {
            input.data = Data::Bytes(left.to_le_bytes().to_vec().into());
        }
        responder.again(entry, response);
    }
}

impl Model for Iterative {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        let is_wanted = delay::wait(self.step, control);
        for entry in batch.requests.iter_mut().filter(|e| e.result.is_none()) {
            let is_cancelled = entry.responder.as_ref().is_some_and(backend::Responder::is_cancelled);
            if is_wanted && !is_cancelled {
                self.count_down(entry);
            } else {
                entry.result = Some(Err(Error::cancelled("")));
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
    use tensor::DataType::{Fp32, Int32};

    const INPUT: Tensor = ("INPUT", Int32, &[1]);
    const OUTPUT: Tensor = ("OUTPUT", Int32, &[1]);

    fn model(parameters: &[(&str, &str)]) -> Arc<dyn Model> {
        load(&ITERATIVE, &config(&[INPUT], &[OUTPUT], parameters)).expect("a good configuration")
    }

    #[test]
    fn s25_each_step_returns_the_remaining_number_and_runs_the_request_again() {
        let model = model(&[("execute_delay_ms", "0")]);
        let mut step = entry(&[&[3]], 1);
        for left in [2, 1] {
            let ran = run(&*model, step);
            assert_eq!(ran.answers(), [Event::Again(Some(vec![left]))]);
            step = ran.back.lock().take().expect("given back");
        }
        assert_eq!(run(&*model, step).answers(), [Event::Ended(None)]);
        for n in [1, 0, -7] {
            assert_eq!(run_once(&*model, entry(&[&[n]], 1)), Ok(vec![0]));
        }
        assert!(run_once(&*model, entry(&[&[2]], 1)).is_err(), "nothing to give back");
    }

    #[test]
    fn invalid_configurations_are_rejected() {
        let check = |inputs: &[Tensor], outputs: &[Tensor], text| {
            refused(&ITERATIVE, &config(inputs, outputs, &[]), text);
        };
        check(&[INPUT, INPUT], &[OUTPUT], "expected 1 input, got 2");
        check(&[("IN", Int32, &[1])], &[OUTPUT], "expected first input tensor name to be INPUT, got IN");
        check(&[INPUT], &[("OUTPUT", Fp32, &[1])], "expected OUTPUT datatype to be INT32, got TYPE_FP32");
        check(&[("INPUT", Int32, &[2])], &[OUTPUT], "expected INPUT shape to be [1], got [2]");
        for text in ["soon", "600001", "-1"] {
            let c = config(&[INPUT], &[OUTPUT], &[("execute_delay_ms", text)]);
            let expected = format!("parameter 'execute_delay_ms' is '{text}': 0 to 600000 is supported");
            assert_eq!(load(&ITERATIVE, &c).err(), Some(Error::invalid(expected)));
        }
    }
}
