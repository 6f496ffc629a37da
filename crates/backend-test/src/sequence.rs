//! Adds up the elements of a sequence (backends-native.md 11.4): `sequence` identifies it by its row in the batch,
//! `dyna_sequence` by correlation id, which it adds at the end. Both keep the sums themselves and follow the control
//! tensors.

use crate::TestBackend;
use crate::config::delays;
use crate::delay;
use crate::tensors::{ConfigTensor, check_cpu, inputs, outputs};
use backend::gather::{detach, input_of};
use backend::{Batch, BatchEntry, Marks, Model, Outcome, RunControl, now_ns, scatter};
use parking_lot::Mutex;
use protocol::pb::inference::model_config::SchedulingChoice;
use protocol::pb::inference::model_sequence_batching::control::Kind;
use protocol::pb::inference::{ModelConfig, ModelSequenceBatching};
use protocol::{CorrelationId, Signature, check::IdPrefix};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tensor::strings::Strings;
use tensor::{Data, DataType, Error, Result};

/// Backend `sequence`.
pub const SEQUENCE: TestBackend =
    TestBackend { name: "sequence", load: |config, signature| load(Identified::ByRow, config, signature) };
/// Backend `dyna_sequence`.
pub const DYNA_SEQUENCE: TestBackend =
    TestBackend { name: "dyna_sequence", load: |config, signature| load(Identified::ById, config, signature) };

/// The key of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identified {
    ByRow,
    ById,
}

/// Maximum number of sums of a model; further ones start from 0. A sequence that never ends keeps its sum.
const SUMS_MAX: usize = 1 << 20;

fn load(kind: Identified, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    let controls = check(kind, config)?;
    let index = |name: &String| signature.inputs.iter().rposition(|i| *i.name == **name).map(|i| i as u16);
    let [start, end, ready, id] = controls.map(|name| name.as_ref().and_then(index));
    let pause = delays(config)?.execute;
    Ok(Arc::new(Sums { kind, start, end, ready, id, pause, signature, sums: Mutex::default() }))
}

/// Checks a configuration; returns the names of its controls for START, END, READY and CORRID.
fn check(kind: Identified, config: &ModelConfig) -> Result<[Option<String>; 4]> {
    check_cpu(if kind == Identified::ByRow { "sequence" } else { "dyna_sequence" }, config)?;
    let Some(SchedulingChoice::SequenceBatching(batching)) = &config.scheduling_choice else {
        return Err(Error::internal("attempt to access non-existing object member 'sequence_batching'"));
    };
    let controls =
        [Kind::ControlSequenceStart, Kind::ControlSequenceEnd, Kind::ControlSequenceReady, Kind::ControlSequenceCorrid]
            .map(|kind| named(batching, kind));
    check_tensors(kind, config)?;
    let names = controls.each_ref().map(|c| c.as_ref().map(|(name, _)| name.as_str()));
    match kind {
        Identified::ByRow => {
            let both = batching.control_input.len() == 2 && names[0] == Some("START") && names[2] == Some("READY");
            if !both {
                return Err(Error::invalid("'START' and 'READY' must be configured as the control inputs"));
            }
        }
        Identified::ById => {
            if batching.control_input.len() != 4 || names.contains(&None) {
                return Err(Error::invalid(
                    "'START', 'END', 'READY' and 'CORRID' must be configured as the control inputs",
                ));
            }
            let datatype = controls[3].as_ref().map_or(0, |(_, datatype)| *datatype);
            if ![DataType::Uint64 as i32, DataType::Bytes as i32].contains(&datatype) {
                return Err(Error::invalid(
                    "model CORRID control input must have TYPE_UINT64 or TYPE_STRING data-type",
                ));
            }
        }
    }
    Ok(controls.map(|control| control.map(|(name, _)| name)))
}

fn check_tensors(kind: Identified, config: &ModelConfig) -> Result<()> {
    let (inputs, outputs) = (inputs(config), outputs(config));
    let one = |what: &str, name: &str, given: &[ConfigTensor<'_>]| match given {
        [tensor] if tensor.dims.len() == 1 => {
            if tensor.name != name {
                return Err(Error::invalid(format!("model {what} must be named '{name}'")));
            }
            if !tensor.is(DataType::Int32) {
                return Err(Error::invalid(format!("model {what} must have TYPE_INT32 data-type")));
            }
            Ok(())
        }
        _ => {
            let count = if kind == Identified::ById && what == "input" { "" } else { "one " };
            Err(Error::invalid(format!("model must have {count}{what} '{name}' with vector shape, any length")))
        }
    };
    one("input", "INPUT", &inputs)?;
    one("output", "OUTPUT", &outputs)?;
    if inputs.first().map(|t| t.dims) != outputs.first().map(|t| t.dims) {
        return Err(Error::invalid("model input and output must have the same shape"));
    }
    Ok(())
}

/// Name and datatype of the control of this kind.
fn named(batching: &ModelSequenceBatching, kind: Kind) -> Option<(String, i32)> {
    batching.control_input.iter().find_map(|input| {
        let control = input.control.iter().find(|c| c.kind() == kind)?;
        Some((input.name.clone(), control.data_type))
    })
}

#[derive(PartialEq, Eq, Hash)]
enum SumKey {
    Row { instance: u32, row: usize },
    Id(Vec<u8>),
}

struct Sums {
    kind: Identified,
    /// Indices of the controls.
    start: Option<u16>,
    end: Option<u16>,
    ready: Option<u16>,
    id: Option<u16>,
    pause: Duration,
    signature: Arc<Signature>,
    sums: Mutex<HashMap<SumKey, i32>>,
}

impl Sums {
    fn flag(&self, entry: &BatchEntry, control: Option<u16>) -> Result<bool> {
        let input = control.and_then(|c| input_of(entry, c));
        Ok(input.map_or(Ok(Vec::new()), |input| input.data.to_vec())?.iter().any(|&b| b != 0))
    }

    /// Adds a request to its sequence.
    fn add(&self, entry: &mut BatchEntry, instance: u32, row: usize) -> Result<Outcome> {
        if !self.flag(entry, self.ready)? {
            return Ok(Outcome::default());
        }
        if self.kind == Identified::ByRow && matches!(entry.request.sequence.id, CorrelationId::String(_)) {
            let id = IdPrefix(&entry.request.id);
            return Err(Error::invalid(format!("{id}correlation ID in request is not an unsigned int")));
        }
        // An output may overwrite the input.
        detach(entry)?;
        let id = self.id.and_then(|c| input_of(entry, c));
        let bytes = id.map_or(Ok(Vec::new()), |input| input.data.to_vec())?;
        let end_sum = match id.and_then(|input| input.datatype) {
            Some(DataType::Bytes) => Strings::new(&bytes).find_map(|s| std::str::from_utf8(s.ok()?).ok()?.parse().ok()),
            // The low half, as in Triton.
            _ => bytes.first_chunk().copied().map(i32::from_le_bytes),
        };
        let key = match self.kind {
            Identified::ByRow => SumKey::Row { instance, row },
            Identified::ById => SumKey::Id(bytes),
        };
        let (starts, ends) = (self.flag(entry, self.start)?, self.flag(entry, self.end)?);
        let input = input_of(entry, 0).ok_or_else(|| Error::internal("an input is missing"))?;
        let (shape, values) = (input.shape.clone(), input.data.to_vec()?);
        let values = values.chunks_exact(4).filter_map(|c| c.first_chunk().copied()).map(i32::from_le_bytes);
        let sum = {
            let mut sums = self.sums.lock();
            let before = if starts { 0 } else { sums.get(&key).copied().unwrap_or(0) };
            let sum = values.fold(before, i32::wrapping_add).wrapping_add(end_sum.filter(|_| ends).unwrap_or(0));
            if ends {
                sums.remove(&key);
            } else if sums.len() < SUMS_MAX || sums.contains_key(&key) {
                sums.insert(key, sum);
            }
            sum
        };
        let mut outcome = Outcome::default();
        if let (Some(wanted), Some(spec)) = (entry.checked.outputs.first(), self.signature.outputs.first()) {
            let count = tensor::element_count(&shape).unwrap_or(0) as usize;
            let data = Data::Bytes(sum.to_le_bytes().repeat(count).into());
            outcome.outputs.push(scatter::output(entry, spec, *wanted, shape, data)?);
        }
        Ok(outcome)
    }
}

impl Model for Sums {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        let is_wanted = delay::wait(self.pause, control);
        for (row, entry) in batch.requests.iter_mut().enumerate().filter(|(_, e)| e.result.is_none()) {
            entry.result = Some(if is_wanted {
                self.add(entry, instance, row)
            } else {
                Err(Error::cancelled("the request was cancelled while its model ran"))
            });
        }
        let now = now_ns();
        Marks { inputs_ready, inference_end: now, outputs_ready: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, config, entry, load, refused};
    use DataType::{Bool, Bytes, Int32, Uint64};
    use protocol::pb::inference::model_sequence_batching::{Control, ControlInput};
    use tensor::Shape;

    const INPUT: Tensor = ("INPUT", Int32, &[-1]);
    const OUTPUT: Tensor = ("OUTPUT", Int32, &[-1]);
    const ALL: [(&str, Kind); 4] = [
        ("START", Kind::ControlSequenceStart),
        ("END", Kind::ControlSequenceEnd),
        ("READY", Kind::ControlSequenceReady),
        ("CORRID", Kind::ControlSequenceCorrid),
    ];

    fn with(mut config: ModelConfig, controls: &[(&str, Kind)], id: DataType) -> ModelConfig {
        let control = |(name, kind): &(&str, Kind)| ControlInput {
            name: (*name).into(),
            control: vec![Control { kind: *kind as i32, data_type: id as i32, ..Default::default() }],
        };
        let control_input = controls.iter().map(control).collect();
        let batching = ModelSequenceBatching { control_input, ..Default::default() };
        config.scheduling_choice = Some(SchedulingChoice::SequenceBatching(batching));
        config
    }

    /// The model as the engine loads it, with its controls as inputs.
    fn sums(kind: TestBackend, controls: &[(&str, Kind)], id: DataType) -> Arc<dyn Model> {
        let config = with(config(&[INPUT], &[OUTPUT], &[]), controls, id);
        let mut seen = crate::testing::signature(&config);
        for (name, control) in controls {
            let datatype = if *control == Kind::ControlSequenceCorrid { id } else { Bool };
            let mut spec = seen.inputs[0].clone();
            (spec.name, spec.datatype, spec.dims) = ((*name).into(), datatype, Shape::from_slice(&[1]));
            seen.inputs.push(spec);
        }
        (kind.load)(&config, Arc::new(seen)).expect("loads")
    }

    /// A row with values and control contents.
    fn row(values: &[i32], controls: &[&[u8]]) -> BatchEntry {
        let mut made = entry(&[values], 1);
        for (index, data) in (1..).zip(controls) {
            made.request.inputs.push(protocol::InputTensor {
                name: "".into(),
                datatype: Some(if data.len() == 8 { Uint64 } else { Bool }),
                shape: Shape::from_slice(&[1]),
                data: Data::Bytes(data.to_vec().into()),
            });
            made.checked.inputs.push(index);
        }
        made
    }

    fn run(model: &dyn Model, mut rows: Vec<BatchEntry>) -> Vec<Vec<i32>> {
        model.execute(0, &mut Batch::new(&mut rows), &RunControl::alone());
        let values = |e: BatchEntry| {
            let outcome = e.result.expect("a result").expect("adds up");
            let bytes = outcome.outputs.first().map(|o| o.data.to_vec().expect("in memory")).unwrap_or_default();
            bytes.chunks(4).map(|c| i32::from_le_bytes(c.try_into().expect("four"))).collect()
        };
        rows.into_iter().map(values).collect()
    }

    // B-BI-04
    #[test]
    fn sequence_identifies_sequences_by_row() {
        let model = sums(SEQUENCE, &[ALL[0], ALL[2]], Bool);
        let of = |values: &[i32], start: u8, ready: u8| row(values, &[&[start], &[ready]]);
        assert_eq!(run(&*model, vec![of(&[1, 2, 3], 1, 1), of(&[5], 1, 1)]), [vec![6, 6, 6], vec![5]]);
        // A null row changes nothing.
        assert_eq!(run(&*model, vec![of(&[9], 0, 0), of(&[6], 0, 1)]), [vec![], vec![11]]);
        assert_eq!(run(&*model, vec![of(&[10, 20, 30], 0, 1)]), [[66, 66, 66]]);
        assert_eq!(run(&*model, vec![of(&[1], 1, 1)]), [[1]], "a start forgets");
        let mut text = of(&[1], 0, 1);
        text.request.sequence.id = CorrelationId::String("42".into());
        model.execute(0, &mut Batch::new(std::slice::from_mut(&mut text)), &RunControl::alone());
        let error = text.result.and_then(Result::err).expect("refused");
        assert_eq!(error.message(), "[request id: <id_unknown>] correlation ID in request is not an unsigned int");
    }

    // B-BI-04
    #[test]
    fn dyna_sequence_identifies_sequences_by_id_and_adds_it_at_the_end() {
        let model = sums(DYNA_SEQUENCE, &ALL, Uint64);
        let of = |value, start: u8, end: u8, id: u64| row(&[value], &[&[start], &[end], &[1], &id.to_le_bytes()]);
        assert_eq!(run(&*model, vec![of(1, 1, 0, 301), of(5, 1, 0, 302)]), [[1], [5]]);
        assert_eq!(run(&*model, vec![of(2, 0, 0, 302), of(2, 0, 0, 301)]), [[7], [3]]);
        assert_eq!(run(&*model, vec![of(3, 0, 1, 301)]), [[307]]);
        assert_eq!(run(&*model, vec![of(9, 1, 1, 302)]), [[311]]);
    }

    // B-BI-04
    #[test]
    fn invalid_configurations_are_rejected_with_triton_s_texts() {
        let sequence =
            |inputs: &[Tensor], outputs: &[Tensor]| with(config(inputs, outputs, &[]), &[ALL[0], ALL[2]], Bool);
        let by_row = SEQUENCE;
        assert!(load(&by_row, &sequence(&[INPUT], &[OUTPUT])).is_ok());
        let wrong = |inputs: &[Tensor], outputs: &[Tensor], text| refused(&by_row, &sequence(inputs, outputs), text);
        wrong(&[INPUT], &[OUTPUT, OUTPUT], "model must have one output 'OUTPUT' with vector shape, any length");
        wrong(
            &[("INPUT", Int32, &[2, 2])],
            &[OUTPUT],
            "model must have one input 'INPUT' with vector shape, any length",
        );
        wrong(&[("INPUT", Int32, &[2])], &[OUTPUT], "model input and output must have the same shape");
        wrong(&[INPUT], &[("OUT", Int32, &[1])], "model output must be named 'OUTPUT'");
        wrong(&[INPUT], &[("OUTPUT", Bytes, &[1])], "model output must have TYPE_INT32 data-type");
        let controls = |kind: TestBackend, all: &[(&str, Kind)], id, text| {
            refused(&kind, &with(config(&[INPUT], &[OUTPUT], &[]), all, id), text);
        };
        controls(by_row, &ALL[..3], Bool, "'START' and 'READY' must be configured as the control inputs");
        controls(by_row, &ALL[..1], Bool, "'START' and 'READY' must be configured as the control inputs");
        let by_id = DYNA_SEQUENCE;
        controls(by_id, &ALL, Int32, "model CORRID control input must have TYPE_UINT64 or TYPE_STRING data-type");
        let two = with(config(&[INPUT, INPUT], &[OUTPUT], &[]), &ALL, Uint64);
        refused(&by_id, &two, "model must have input 'INPUT' with vector shape, any length");
        let error = load(&by_row, &config(&[INPUT], &[OUTPUT], &[])).err().expect("no sequences");
        assert_eq!(error.message(), "attempt to access non-existing object member 'sequence_batching'");
    }
}
