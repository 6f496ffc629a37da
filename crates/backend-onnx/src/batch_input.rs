//! Tensors that the server adds to a batch: counts and shapes of its requests (C-12, S-16).

use backend::BatchEntry;
use backend::gather::{input_of, rows_of};
use bytes::Bytes;
use protocol::Signature;
use protocol::pb::inference::{self, batch_input::Kind};
use tensor::{Data, DataType, Error, Result, Shape, element_count};

/// A resolved `batch_input` entry.
#[derive(Debug)]
pub(crate) struct BatchInput {
    kind: Kind,
    source: u16,
    datatype: DataType,
    pub(crate) targets: Vec<String>,
}

impl BatchInput {
    pub(crate) fn read(config: &inference::BatchInput, signature: &Signature) -> Result<Self> {
        let kind = config.kind();
        let [source] = config.source_input.as_slice() else {
            return Err(Error::invalid(format!(
                "batch input kind '{}' expects 1 source input, got {}",
                kind.as_str_name(),
                config.source_input.len()
            )));
        };
        let index = signature.inputs.iter().position(|i| *i.name == **source);
        let source = index
            .and_then(|i| u16::try_from(i).ok())
            .ok_or_else(|| Error::invalid(format!("unknown source input name '{source}'")))?;
        let datatype = match DataType::from_number(config.data_type) {
            Some(t @ (DataType::Int32 | DataType::Fp32)) => t,
            _ => return Err(Error::invalid("batch input data type must be TYPE_INT32 or TYPE_FP32")),
        };
        Ok(Self { kind, source, datatype, targets: config.target_name.clone() })
    }

    pub(crate) fn make(&self, entries: &[BatchEntry], batching: bool) -> (DataType, Shape, Data) {
        let sources = || {
            entries
                .iter()
                .filter(|e| e.result.is_none())
                .filter_map(|e| Some((rows_of(e), &input_of(e, self.source)?.shape)))
        };
        let counts = || sources().map(|(_, shape)| element_count(shape).unwrap_or(0));
        let (shape, values): (Shape, Vec<i64>) = match self.kind {
            Kind::BatchElementCount => flat(counts().collect()),
            Kind::BatchAccumulatedElementCount => flat(running_sum(counts())),
            Kind::BatchAccumulatedElementCountWithZero => {
                flat(std::iter::once(0).chain(running_sum(counts())).collect())
            }
            // Only the shape is significant.
            Kind::BatchMaxElementCountAsShape => {
                let max = counts().max().unwrap_or(0);
                flat(vec![0; usize::try_from(max).unwrap_or(0)])
            }
            Kind::BatchItemShape | Kind::BatchItemShapeFlatten => {
                let item = |shape: &Shape| shape.get(usize::from(batching)..).unwrap_or(&[]).to_vec();
                let rank = sources().next().map_or(0, |(_, s)| item(s).len());
                let values: Vec<i64> = sources()
                    .flat_map(|(rows, shape)| {
                        std::iter::repeat_n(item(shape), usize::try_from(rows).unwrap_or(0)).flatten()
                    })
                    .collect();
                if self.kind == Kind::BatchItemShape {
                    let items = values.len().checked_div(rank).unwrap_or(0);
                    (Shape::from_slice(&[items as i64, rank as i64]), values)
                } else {
                    flat(values)
                }
            }
        };
        (self.datatype, shape, Data::Bytes(encode(self.datatype, &values)))
    }
}

fn flat(values: Vec<i64>) -> (Shape, Vec<i64>) {
    (Shape::from_slice(&[values.len() as i64]), values)
}

fn running_sum(counts: impl Iterator<Item = i64>) -> Vec<i64> {
    counts
        .scan(0i64, |sum, n| {
            *sum = sum.saturating_add(n);
            Some(*sum)
        })
        .collect()
}

/// Four bytes per value in both datatypes. Larger values saturate; no batch has two thousand million elements.
fn encode(datatype: DataType, values: &[i64]) -> Bytes {
    let mut out = Vec::with_capacity(values.len() * 4);
    for &v in values {
        match datatype {
            DataType::Fp32 => out.extend_from_slice(&(v as f32).to_le_bytes()),
            _ => out.extend_from_slice(&i32::try_from(v).unwrap_or(i32::MAX).to_le_bytes()),
        }
    }
    Bytes::from(out)
}
