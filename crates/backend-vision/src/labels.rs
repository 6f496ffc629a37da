//! Backend `labels`: the output of a classification network to the classes with the greatest scores, and their names.

use crate::VisionBackend;
use crate::boxes::labels_of;
use crate::model::{
    AnswerEach, Each, bytes_of, check_count, input_names, output_names, parameter, push, tensors, values,
};
use crate::parameters::texts;
use backend::{BatchEntry, Model, ModelIo, Outcome};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use tensor::{DataType, Error, Result};
use vision::labels::{Activation, Top, top};
use vision::parameters::{self, Parameters};

/// Backend `labels`.
pub const LABELS: VisionBackend = VisionBackend { name: "labels", io, load };

const OUTPUTS: [(&str, DataType, &[i64]); 3] = [
    ("CLASSES", DataType::Int32, &[-1, -1]),
    ("SCORES", DataType::Fp32, &[-1, -1]),
    ("LABELS", DataType::Bytes, &[-1, -1]),
];

struct LabelsModel {
    signature: Arc<Signature>,
    activation: Activation,
    top_k: usize,
}

fn read(config: &ModelConfig) -> Result<(Activation, usize)> {
    parameters::labels(&Parameters::new("backend 'labels'", texts(config), &parameters::LABELS)?)
}

fn io(config: &ModelConfig) -> Result<ModelIo> {
    read(config)?;
    check_count("input", config.input.len(), &["the scores of a network"])?;
    check_count("output", config.output.len(), &OUTPUTS.map(|(name, ..)| name))?;
    let mut outputs = tensors(&output_names(config), &OUTPUTS);
    if !config.output.is_empty() {
        outputs.truncate(config.output.len());
    }
    Ok(ModelIo { inputs: tensors(&input_names(config), &[("LOGITS", DataType::Fp32, &[-1, -1])]), outputs })
}

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    let (activation, top_k) = read(config)?;
    Ok(Arc::new(Each(LabelsModel { signature, activation, top_k })))
}

impl AnswerEach for LabelsModel {
    fn answer(&self, entry: &BatchEntry) -> Result<Outcome> {
        let count = match parameter(entry, "top_k")? {
            None => self.top_k,
            Some(count) if count >= 1.0 && count.fract() == 0.0 => count as usize,
            Some(count) => {
                return Err(Error::invalid(format!("parameter 'top_k' must be a whole number from 1, got {count}")));
            }
        };
        let given = values(entry, 0)?.ok_or_else(|| Error::internal("a request without scores"))?;
        let (rows, _) = given.rows(1);
        let found: Vec<Top> = (0..rows).map(|row| top(given.row(row, rows), self.activation, count)).collect();
        // All rows have as many classes.
        let most = found.first().map_or(0, |top| top.classes.len()) as i64;
        let mut outcome = Outcome::default();
        let mut put = |index, data: &dyn Fn() -> tensor::Data| {
            push(entry, &self.signature, &mut outcome, index, (rows, &[most]), data)
        };
        let classes = || found.iter().flat_map(|top| top.classes.iter().map(|&class| class as i32));
        put(0, &|| bytes_of(classes().map(i32::to_le_bytes)))?;
        put(1, &|| bytes_of(found.iter().flat_map(|top| top.scores.iter().map(|score| score.to_le_bytes()))))?;
        put(2, &|| labels_of(self.signature.outputs.get(2), classes()))?;
        Ok(outcome)
    }
}
