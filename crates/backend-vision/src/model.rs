//! Parts that the three backends share: tensors of configurations, rows of requests, outputs.

use backend::gather::input_of;
use backend::{Batch, BatchEntry, Capabilities, Marks, Model, Outcome, RunControl, TensorIo, now_ns, scatter};
use bytes::Bytes;
use protocol::pb::inference::ModelConfig;
use protocol::{Parameter, Signature};
use tensor::{Data, DataType, Error, Result, Shape, ShapeDisplay};

/// Inputs or outputs as the configuration names them, with the datatype and shape that the backend gives them. If it
/// names none, the names are those of the backend.
pub(crate) fn tensors(named: &[&str], own: &[(&str, DataType, &[i64])]) -> Vec<TensorIo> {
    let name = |i: usize, default: &str| named.get(i).copied().unwrap_or(default).to_owned();
    let tensor = |(i, (default, datatype, shape)): (usize, &(&str, DataType, &[i64]))| TensorIo {
        name: name(i, default),
        datatype: Some(*datatype),
        shape: shape.iter().copied().collect(),
        optional: false,
    };
    own.iter().enumerate().map(tensor).collect()
}

pub(crate) fn input_names(config: &ModelConfig) -> Vec<&str> {
    config.input.iter().map(|input| &*input.name).collect()
}

pub(crate) fn output_names(config: &ModelConfig) -> Vec<&str> {
    config.output.iter().map(|output| &*output.name).collect()
}

/// Checks that a configuration has at most so many tensors.
pub(crate) fn check_count(what: &str, found: usize, roles: &[&str]) -> Result<()> {
    if found <= roles.len() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the model has {found} {what}s, expected at most {}, in this order: {}",
        roles.len(),
        roles.join(", ")
    )))
}

/// A run uses one core, and any number of runs may be in progress.
pub(crate) fn capabilities() -> Capabilities {
    let cores = u32::try_from(memory::machine::cpus()).ok();
    Capabilities { instances_are_permits: true, cores, ..Capabilities::default() }
}

/// A model whose requests have nothing to share: a batch answers one after the other.
pub(crate) trait AnswerEach: Send + Sync {
    fn answer(&self, entry: &BatchEntry) -> Result<Outcome>;
}

pub(crate) struct Each<M>(pub M);

impl<M: AnswerEach> Model for Each<M> {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, _control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        for entry in batch.requests.iter_mut().filter(|entry| entry.result.is_none()) {
            entry.result = Some(self.0.answer(entry));
        }
        let end = now_ns();
        Marks { inputs_ready, inference_end: end, outputs_ready: end }
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }
}

/// A numeric input of a request: its full shape, and its values, which are copied: bytes need not be aligned, and
/// clients can change shared memory.
pub(crate) struct Values<'a> {
    pub(crate) shape: &'a [i64],
    numbers: Vec<f32>,
}

impl Values<'_> {
    /// Number of rows, and the shape of one.
    pub(crate) fn rows(&self, row_rank: usize) -> (usize, &[i64]) {
        match self.shape.split_first() {
            Some((&rows, row)) if self.shape.len() > row_rank => (usize::try_from(rows).unwrap_or(0), row),
            _ => (1, self.shape),
        }
    }

    /// The values of one of `rows` rows.
    pub(crate) fn row(&self, row: usize, rows: usize) -> &[f32] {
        let len = self.numbers.len().checked_div(rows).unwrap_or(0);
        self.numbers.get(row * len..(row + 1) * len).unwrap_or_default()
    }
}

/// # Errors
/// INVALID_ARG for contents that the client truncated, or of another datatype.
pub(crate) fn values(entry: &BatchEntry, index: u16) -> Result<Option<Values<'_>>> {
    let Some(input) = input_of(entry, index) else { return Ok(None) };
    let bytes = input.data.to_bytes()?;
    let numbers = match input.datatype {
        Some(DataType::Fp32) => numbers(&bytes, f32::from_le_bytes),
        Some(DataType::Int32) => numbers(&bytes, |bytes| i32::from_le_bytes(bytes) as f32),
        Some(DataType::Int64) => numbers(&bytes, |bytes| i64::from_le_bytes(bytes) as f32),
        _ => {
            return Err(Error::invalid(format!("input '{}' must be FP32, INT32 or INT64", input.name)));
        }
    };
    Ok(Some(Values { shape: &input.shape, numbers }))
}

fn numbers<const N: usize>(bytes: &Bytes, read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|chunk| read(*chunk)).collect()
}

/// Adds an output if the request wants it: the rows first, or without them for a model without batching whose
/// configuration has the dims of a row.
pub(crate) fn push(
    entry: &BatchEntry,
    signature: &Signature,
    outcome: &mut Outcome,
    index: u16,
    (rows, row): (usize, &[i64]),
    data: impl FnOnce() -> Data,
) -> Result<()> {
    let Some(&wanted) = entry.checked.outputs.iter().find(|(output, _)| *output == index) else { return Ok(()) };
    let Some(spec) = signature.outputs.get(usize::from(index)) else { return Ok(()) };
    let is_single = !signature.batches() && spec.dims.len() == row.len();
    if is_single && rows != 1 {
        return Err(Error::invalid(format!(
            "{rows} rows do not fit the shape {} of output '{}': it has one",
            ShapeDisplay(&spec.dims),
            spec.name
        )));
    }
    let lead = (!is_single).then_some(rows as i64);
    let shape: Shape = lead.into_iter().chain(row.iter().copied()).collect();
    outcome.outputs.push(scatter::output(entry, spec, wanted, shape, data())?);
    Ok(())
}

/// Little-endian bytes of values.
pub(crate) fn bytes_of<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> Data {
    Data::Bytes(values.flatten().collect::<Vec<u8>>().into())
}

/// A number that the request gives as a parameter.
///
/// # Errors
/// INVALID_ARG if the parameter is not a number.
pub(crate) fn parameter(entry: &BatchEntry, key: &str) -> Result<Option<f64>> {
    let Some((_, value)) = entry.request.parameters.iter().find(|(name, _)| name.as_str() == key) else {
        return Ok(None);
    };
    match value {
        Parameter::Double(number) => Ok(Some(*number)),
        Parameter::Int(number) => Ok(Some(*number as f64)),
        Parameter::Bool(_) => Err(Error::invalid(format!("parameter '{key}' must be a number, got a boolean"))),
        Parameter::String(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Error::invalid(format!("parameter '{key}' must be a number, got '{text}'"))),
    }
}
