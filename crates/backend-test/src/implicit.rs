//! Requests states in the ways that a backend may get wrong (backends-native.md 11.6), as the input `TEST_CASE`
//! selects. Returns no outputs and changes no state.

use crate::TestBackend;
use backend::gather::input_of;
use backend::{Batch, BatchEntry, Marks, Model, Outcome, RunControl, now_ns};
use protocol::Signature;
use protocol::pb::inference::model_config::SchedulingChoice;
use protocol::pb::inference::{ModelConfig, ModelSequenceBatching};
use std::sync::Arc;
use tensor::{Code, Error, Name, Result};

/// Backend `implicit_state`.
pub const IMPLICIT: TestBackend = TestBackend { name: "implicit_state", load };

/// Values of `TEST_CASE`; all others have no effect. Triton's 3 grows a state in GPU memory.
const UNDEFINED_STATE: i32 = 0;
const GPU_STATE: i32 = 1;
const ONE_BUFFER: i32 = 2;

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    let batching = check(config)?;
    let input = |name: &str| signature.inputs.iter().rposition(|i| i.name == *name).map(|i| i as u16);
    let (start, ready) = (input("START"), input("READY"));
    let test_case = input("TEST_CASE").ok_or_else(|| Error::invalid("model must have an input 'TEST_CASE'"))?;
    let states = batching.state.iter().map(|s| (s.output_name.clone(), s.use_same_buffer_for_input_output));
    let model = signature.model.clone();
    Ok(Arc::new(Implicit { model, start, ready, test_case, states: states.collect() }))
}

fn check(config: &ModelConfig) -> Result<&ModelSequenceBatching> {
    let Some(SchedulingChoice::SequenceBatching(batching)) = &config.scheduling_choice else {
        return Err(Error::internal("attempt to access non-existing object member 'sequence_batching'"));
    };
    let has = |name: &str| batching.control_input.iter().any(|input| input.name == name);
    if batching.control_input.len() != 3 || !["START", "END", "READY"].into_iter().all(has) {
        // Triton's text, with its missing quote.
        return Err(Error::invalid("'START', 'END, and 'READY' must be configured as the control inputs"));
    }
    Ok(batching)
}

struct Implicit {
    model: Name,
    /// Indices of the inputs.
    start: Option<u16>,
    ready: Option<u16>,
    test_case: u16,
    /// Output names of the states, and whether each has one buffer for input and output.
    states: Vec<(String, bool)>,
}

impl Implicit {
    /// Whether a state has one buffer.
    fn state(&self, name: &str) -> Result<bool> {
        let found = self.states.iter().find(|(output, _)| output == name);
        found.map(|(_, one)| *one).ok_or_else(|| match self.states.is_empty() {
            true => Error::invalid(format!(
                "unable to add state '{name}'. State configuration is missing for model '{}'.",
                self.model
            )),
            false => Error::invalid(format!("state '{name}' is not a valid state name.")),
        })
    }

    fn answer(&self, entry: &BatchEntry) -> Result<Outcome> {
        let flag = |control: Option<u16>| -> Result<bool> {
            let input = control.and_then(|c| input_of(entry, c));
            Ok(input.map_or(Ok(Vec::new()), |input| input.data.to_vec())?.iter().any(|&b| b != 0))
        };
        if !flag(self.ready)? {
            return Ok(Outcome::default());
        }
        let case = input_of(entry, self.test_case).map_or(Ok(Vec::new()), |input| input.data.to_vec())?;
        match case.first_chunk().copied().map(i32::from_le_bytes) {
            Some(UNDEFINED_STATE) => self.state("undefined_state").map(drop)?,
            Some(GPU_STATE) => {
                self.state("OUTPUT_STATE")?;
                return Err(Error::new(Code::Unsupported, "failed to create the state buffer in GPU memory"));
            }
            // The first request of a sequence has no input state to compare.
            Some(ONE_BUFFER) if !self.state("OUTPUT_STATE")? && !flag(self.start)? => {
                let text = "Input and output state are using different buffers.";
                return Err(Error::new(Code::Unsupported, text));
            }
            _ => {}
        }
        Ok(Outcome::default())
    }
}

impl Model for Implicit {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, _control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        for entry in batch.requests.iter_mut().filter(|e| e.result.is_none()) {
            entry.result = Some(self.answer(entry));
        }
        let now = now_ns();
        Marks { inputs_ready, inference_end: now, outputs_ready: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{config, entry};
    use protocol::pb::inference::model_sequence_batching::{ControlInput, State};
    use tensor::DataType::Int32;

    fn configured(controls: &[&str], state: &str, one_buffer: bool) -> ModelConfig {
        let inputs = [("INPUT", Int32, &[1][..]), ("TEST_CASE", Int32, &[1])];
        let mut config = config(&inputs, &[("OUTPUT", Int32, &[1]), ("OUTPUT_STATE", Int32, &[1])], &[]);
        let control = |name: &&str| ControlInput { name: (*name).into(), ..Default::default() };
        let state = State {
            input_name: "INPUT_STATE".into(),
            output_name: state.into(),
            use_same_buffer_for_input_output: one_buffer,
            ..Default::default()
        };
        config.scheduling_choice = Some(SchedulingChoice::SequenceBatching(ModelSequenceBatching {
            control_input: controls.iter().map(control).collect(),
            state: vec![state],
            ..Default::default()
        }));
        config
    }

    fn load(config: &ModelConfig) -> Result<Arc<dyn Model>> {
        let mut seen = crate::testing::signature(config);
        for name in ["START", "END", "READY"] {
            let mut spec = seen.inputs[0].clone();
            spec.name = name.into();
            seen.inputs.push(spec);
        }
        super::load(config, Arc::new(seen))
    }

    /// Checks the responses to the first and second request of a sequence.
    fn check_case(state: &str, one_buffer: bool, case: i32, expected: [Option<&str>; 2]) {
        let model = load(&configured(&["START", "END", "READY"], state, one_buffer)).expect("loads");
        for (start, text) in [1, 0].into_iter().zip(expected) {
            let mut asked = entry(&[&[5], &[case], &[start], &[1 - start], &[1]], 2);
            model.execute(0, &mut Batch::new(std::slice::from_mut(&mut asked)), &RunControl::alone());
            let result = asked.result.expect("a result");
            let got = result.as_ref().map(|o| o.outputs.len()).map_err(|e| e.message());
            assert_eq!(got, text.map_or(Ok(0), Err), "case {case}, start {start}");
        }
    }

    // B-BI-04
    #[test]
    fn s23_unknown_states_and_states_in_two_buffers_are_rejected_as_recorded() {
        let unknown = Some("state 'undefined_state' is not a valid state name.");
        check_case("OUTPUT_STATE", false, 0, [unknown, unknown]);
        let gpu = Some("failed to create the state buffer in GPU memory");
        check_case("OUTPUT_STATE", false, 1, [gpu, gpu]);
        check_case("OUTPUT_STATE", false, 2, [None, Some("Input and output state are using different buffers.")]);
        check_case("OUTPUT_STATE", true, 2, [None, None]);
        check_case("OUTPUT_STATE", false, 4, [None, None]);
        let wrong = Some("state 'OUTPUT_STATE' is not a valid state name.");
        check_case("undefined_state", false, 0, [None, None]);
        check_case("undefined_state", false, 1, [wrong, wrong]);
        check_case("undefined_state", true, 2, [wrong, wrong]);
        check_case("undefined_state", false, 4, [None, None]);
    }

    // B-BI-04
    #[test]
    fn s23_a_state_of_a_model_without_states_is_rejected_with_triton_s_text() {
        let mut config = configured(&["START", "END", "READY"], "OUTPUT_STATE", false);
        let Some(SchedulingChoice::SequenceBatching(batching)) = &mut config.scheduling_choice else { unreachable!() };
        batching.state.clear();
        let model = load(&config).expect("loads");
        let mut asked = entry(&[&[5], &[0], &[1], &[0], &[1]], 2);
        model.execute(0, &mut Batch::new(std::slice::from_mut(&mut asked)), &RunControl::alone());
        let error = asked.result.expect("a result").map(|o| o.outputs.len());
        let text = "unable to add state 'undefined_state'. State configuration is missing for model 'm'.";
        assert_eq!(error, Err(Error::invalid(text)));
    }

    // B-BI-04
    #[test]
    fn invalid_configurations_are_rejected_with_triton_s_texts() {
        let text = "'START', 'END, and 'READY' must be configured as the control inputs";
        for controls in [&["START", "END"][..], &["START", "END", "X"], &["START", "END", "READY", "CORRID"]] {
            let error = load(&configured(controls, "OUTPUT_STATE", false)).err();
            assert_eq!(error, Some(Error::invalid(text)), "{controls:?}");
        }
        let error = load(&config(&[("INPUT", Int32, &[1])], &[("OUTPUT", Int32, &[1])], &[])).err();
        assert_eq!(error, Some(Error::internal("attempt to access non-existing object member 'sequence_batching'")));
    }
}
