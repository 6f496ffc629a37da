//! Backend `boxes`: outputs of a detection network to boxes in pixels of the picture, scores, classes and their names.
//!
//! The rows of a request have as many boxes as the row with the most: `COUNT` says how many are real, the others are
//! zeros of class -1.

use crate::VisionBackend;
use crate::model::{
    AnswerEach, Each, Values, bytes_of, check_count, input_names, output_names, parameter, push, tensors, values,
};
use crate::parameters::texts;
use backend::{BatchEntry, Model, ModelIo, Outcome, TensorIo};
use protocol::pb::inference::ModelConfig;
use protocol::{OutputSpec, Signature};
use std::sync::Arc;
use tensor::{Data, DataType, Error, Result, ShapeDisplay, strings};
use vision::Placement;
use vision::boxes::{Boxes, Decoder, Overrides, RowOutput, Settings};
use vision::parameters::{self, Parameters};

/// Backend `boxes`.
pub const BOXES: VisionBackend = VisionBackend { name: "boxes", io, load };

/// Outputs in the order of a configuration.
const OUTPUTS: [(&str, DataType, &[i64]); 5] = [
    ("BOXES", DataType::Fp32, &[-1, -1, 4]),
    ("SCORES", DataType::Fp32, &[-1, -1]),
    ("CLASSES", DataType::Int32, &[-1, -1]),
    ("LABELS", DataType::Bytes, &[-1, -1]),
    ("COUNT", DataType::Int32, &[-1, 1]),
];

struct BoxesModel {
    signature: Arc<Signature>,
    decoder: Decoder,
    settings: Settings,
    /// Rank of each of the network's outputs, without the rows.
    ranks: Vec<usize>,
}

fn read(config: &ModelConfig) -> Result<(Decoder, Settings)> {
    parameters::boxes(&Parameters::new("backend 'boxes'", texts(config), &parameters::BOXES)?)
}

fn io(config: &ModelConfig) -> Result<ModelIo> {
    let (decoder, _) = read(config)?;
    let mut roles: Vec<&str> = decoder.layout.outputs().iter().map(|(role, _)| *role).collect();
    roles.push("PLACEMENT");
    check_count("input", config.input.len(), &roles)?;
    check_count("output", config.output.len(), &OUTPUTS.map(|(name, ..)| name))?;
    let names = input_names(config);
    if !names.is_empty() && names.len() + 1 < roles.len() {
        return Err(Error::invalid(format!(
            "layout '{}' needs {} inputs, got {}: {}",
            decoder.layout.name(),
            roles.len() - 1,
            names.len(),
            roles.join(", ")
        )));
    }
    let mut inputs = Vec::new();
    for (i, role) in roles.iter().enumerate() {
        let rank = decoder.layout.ranks().nth(i);
        let shape = match rank {
            Some(rank) => std::iter::repeat_n(-1, rank + 1).collect(),
            None => [-1, 6].into_iter().collect(),
        };
        let configured = config.input.get(i);
        // Labels of torchvision are integers.
        let datatype = configured.and_then(|input| DataType::from_number(input.data_type)).unwrap_or(DataType::Fp32);
        let name = names.get(i).copied().unwrap_or(role).to_owned();
        // Completion leaves optional inputs out, and a model with batching cannot have them.
        let optional = rank.is_none() && configured.is_some_and(|input| input.optional);
        inputs.push(TensorIo { name, datatype: Some(datatype), shape, optional });
    }
    if !names.is_empty() {
        inputs.truncate(names.len());
    }
    let mut outputs = tensors(&output_names(config), &OUTPUTS);
    if !config.output.is_empty() {
        outputs.truncate(config.output.len());
    }
    Ok(ModelIo { inputs, outputs })
}

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    let (decoder, settings) = read(config)?;
    let ranks = decoder.layout.ranks().collect();
    Ok(Arc::new(Each(BoxesModel { ranks, signature, decoder, settings })))
}

impl AnswerEach for BoxesModel {
    fn answer(&self, entry: &BatchEntry) -> Result<Outcome> {
        let number = |key| parameter(entry, key);
        let overrides = Overrides {
            score_threshold: number("score_threshold")?,
            iou_threshold: number("iou_threshold")?,
            boxes_max: number("boxes_max")?.map(|count| count as i64),
        };
        let settings = self.settings.with(&overrides)?;
        let mut given = Vec::new();
        for index in 0..self.ranks.len() {
            let missing = || Error::internal("a request without an output of the network");
            given.push(values(entry, index as u16)?.ok_or_else(missing)?);
        }
        let placement = values(entry, self.ranks.len() as u16)?;
        let rows = given.first().map_or(1, |first| first.rows(self.ranks[0]).0);
        let mut found = Vec::with_capacity(rows);
        for row in 0..rows {
            found.push(self.row(row, rows, &given, placement.as_ref(), &settings)?);
        }
        self.outcome(entry, &found)
    }
}

impl BoxesModel {
    fn row(
        &self,
        row: usize,
        rows: usize,
        given: &[Values<'_>],
        placement: Option<&Values<'_>>,
        settings: &Settings,
    ) -> Result<Boxes> {
        let mut outputs = Vec::with_capacity(given.len());
        for ((values, &rank), spec) in given.iter().zip(&self.ranks).zip(&self.signature.inputs) {
            let (own, shape) = values.rows(rank);
            if own != rows {
                return Err(Error::invalid(format!(
                    "input '{}' of shape {} has {own} rows, and '{}' has {rows}",
                    spec.name,
                    ShapeDisplay(values.shape),
                    self.signature.inputs[0].name
                )));
            }
            outputs.push(RowOutput { name: spec.name.as_str(), shape, data: values.row(row, rows) });
        }
        self.decoder.decode(&outputs, &self.placement(row, rows, placement)?, settings)
    }

    fn placement(&self, row: usize, rows: usize, placement: Option<&Values<'_>>) -> Result<Placement> {
        let Some(values) = placement else {
            return Ok(self.decoder.unplaced());
        };
        let Ok(given) = values.row(row, rows).try_into() else {
            let name = self.signature.inputs.last().map_or("", |input| input.name.as_str());
            return Err(Error::invalid(format!(
                "input '{name}' has the shape {}, expected [{rows},6]: scale x, y, offset x, y, width, height",
                ShapeDisplay(values.shape)
            )));
        };
        Ok(Placement::from_values(given))
    }

    fn outcome(&self, entry: &BatchEntry, found: &[Boxes]) -> Result<Outcome> {
        let rows = found.len();
        let most = found.iter().map(|boxes| boxes.scores.len()).max().unwrap_or(0);
        let mut outcome = Outcome::default();
        let mut put = |index, row: &[i64], data: &dyn Fn() -> Data| {
            push(entry, &self.signature, &mut outcome, index, (rows, row), data)
        };
        let boxes = most as i64;
        put(0, &[boxes, 4], &|| {
            let padded = found.iter().flat_map(|row| padded(&row.boxes, most, [0.0; 4]));
            bytes_of(padded.flatten().map(f32::to_le_bytes))
        })?;
        put(1, &[boxes], &|| {
            bytes_of(found.iter().flat_map(|row| padded(&row.scores, most, 0.0)).map(f32::to_le_bytes))
        })?;
        let classes = || {
            found.iter().flat_map(|row| {
                let absent = row.classes.len()..most;
                row.classes.iter().map(|&class| class as i32).chain(absent.map(|_| -1))
            })
        };
        put(2, &[boxes], &|| bytes_of(classes().map(i32::to_le_bytes)))?;
        put(3, &[boxes], &|| labels_of(self.signature.outputs.get(3), classes()))?;
        put(4, &[1], &|| bytes_of(found.iter().map(|row| (row.scores.len() as i32).to_le_bytes())))?;
        Ok(outcome)
    }
}

fn padded<T: Copy>(values: &[T], most: usize, with: T) -> impl Iterator<Item = T> + '_ {
    values.iter().copied().chain(std::iter::repeat_n(with, most - values.len()))
}

/// Names of classes by the label file of the output, or their numbers; nothing for class -1.
pub(crate) fn labels_of(spec: Option<&OutputSpec>, classes: impl Iterator<Item = i32>) -> Data {
    let mut raw = Vec::new();
    for class in classes {
        match usize::try_from(class) {
            Err(_) => strings::push(&mut raw, b""),
            Ok(class) => match spec.and_then(|spec| spec.labels.get(class)) {
                Some(label) => strings::push(&mut raw, label),
                None => strings::push(&mut raw, class.to_string().as_bytes()),
            },
        }
    }
    Data::Bytes(raw.into())
}
