//! Checks an ensemble against its composing models: maps, batch sizes, datatypes and shapes (scheduling.md 6.1, second
//! table). Every text is Triton's. Steps are checked in order, the tensors of a step in the order of its model.

use crate::batch::fits;
use protocol::Signature;
use protocol::pb::inference::ModelEnsembling;
use std::collections::{HashMap, HashSet};
use tensor::{DataType, Error, Result, Shape, ShapeDisplay};

/// The first use of a tensor; all other uses must agree with it.
struct FirstUse<'a> {
    model: &'a str,
    datatype: DataType,
    dims: &'a [i64],
    /// Shape with the batch dimension of its model.
    full: Shape,
}

impl<'a> FirstUse<'a> {
    fn new(signature: &'a Signature, datatype: DataType, dims: &'a [i64]) -> Self {
        Self { model: &signature.model, datatype, dims, full: signature.full_shape(dims) }
    }

    /// Checks that two uses agree. If only one model batches, shapes may agree with or without the batch dimension.
    fn agrees(&self, other: &Self, what: &str) -> Result<()> {
        if self.datatype != other.datatype {
            return Err(Error::invalid(format!(
                "{what}: inconsistent data type: {} is inferred from model {} while {} is inferred from model {}",
                self.datatype.config_name(),
                self.model,
                other.datatype.config_name(),
                other.model
            )));
        }
        if fits(self.dims, other.dims) || fits(&self.full, &other.full) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{what}: inconsistent shape: {} is inferred from model {} while {} is inferred from model {}",
            ShapeDisplay(&self.full),
            self.model,
            ShapeDisplay(&other.full),
            other.model
        )))
    }
}

/// # Errors
/// INVALID_ARG with the texts of the second table, but not that on decoupled models, which needs the step order.
pub fn consistent<'a>(
    signature: &'a Signature,
    config: &'a ModelEnsembling,
    models: impl Iterator<Item = &'a Signature>,
) -> Result<()> {
    let mut ends = Ends { ensemble: &signature.model, known: HashMap::new() };
    for input in &signature.inputs {
        ends.meet(&input.name, signature, input.datatype, input.reshape.as_ref().unwrap_or(&input.dims))?;
    }
    for output in &signature.outputs {
        ends.meet(&output.name, signature, output.datatype, output.reshape.as_ref().unwrap_or(&output.dims))?;
    }
    let ensemble = &signature.model;
    for (step, model) in config.step.iter().zip(models) {
        let name = &model.model;
        if model.max_batch_size != 0 && model.max_batch_size < signature.max_batch_size {
            return Err(Error::invalid(format!(
                "ensemble {ensemble} allows maximum batch size {}, but it contains model {name} which only allows \
                 maximum batch size to be {}",
                signature.max_batch_size, model.max_batch_size
            )));
        }
        let inputs: HashSet<&str> = model.inputs.iter().map(|i| i.name.as_str()).collect();
        for (input, tensor) in &step.input_map {
            if !inputs.contains(input.as_str()) {
                return Err(Error::invalid(format!(
                    "in ensemble {ensemble}, ensemble tensor {tensor} is mapping to non-existing input {input} in \
                     model {name}"
                )));
            }
        }
        for input in &model.inputs {
            match step.input_map.get(input.name.as_str()) {
                Some(tensor) => ends.meet(tensor, model, input.datatype, &input.dims)?,
                None if input.optional => {}
                None => {
                    return Err(Error::invalid(format!(
                        "in ensemble {ensemble}, input {} in model {name} is not mapped to any ensemble tensors",
                        input.name
                    )));
                }
            }
        }
        let outputs: HashSet<&str> = model.outputs.iter().map(|o| o.name.as_str()).collect();
        for (output, tensor) in &step.output_map {
            if !outputs.contains(output.as_str()) {
                return Err(Error::invalid(format!(
                    "in ensemble {ensemble}, ensemble tensor {tensor} is mapped from non-existing output {output} in \
                     model {name}"
                )));
            }
        }
        for output in &model.outputs {
            if let Some(tensor) = step.output_map.get(output.name.as_str()) {
                ends.meet(tensor, model, output.datatype, &output.dims)?;
            }
        }
    }
    Ok(())
}

struct Ends<'a> {
    ensemble: &'a str,
    known: HashMap<&'a str, FirstUse<'a>>,
}

impl<'a> Ends<'a> {
    fn meet(&mut self, tensor: &'a str, model: &'a Signature, datatype: DataType, dims: &'a [i64]) -> Result<()> {
        let end = FirstUse::new(model, datatype, dims);
        match self.known.get(tensor) {
            Some(first) => first.agrees(&end, &format!("in ensemble {}, ensemble tensor {tensor}", self.ensemble)),
            None => {
                self.known.insert(tensor, end);
                Ok(())
            }
        }
    }
}
