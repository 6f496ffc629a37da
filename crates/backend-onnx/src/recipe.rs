//! Repeats small runs. Working out what a run of a few hundred bytes needs costs more than the run, so the first run of
//! a class leaves a recipe with reusable values: a later batch with the same shapes is copied in, run, and copied out.
//!
//! A recipe repeats a successful run. If it fails, for example because an output has another shape this time, the
//! recipe is dropped and the run is worked out anew.

use crate::ffi::{CName, ReusableValues, RunOptions, Session};
use crate::inputs::RunInput;
use crate::outputs::{Produced, in_client_rank};
use backend::gather::{check_regions, input_of, rows_of};
use backend::{BatchEntry, Outcome, scatter, shape};
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{OutputTensor, Signature};
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{Data, DataType, Result, Shape};

/// Maximum bytes of a request's tensor; copying larger ones costs more than describing them to the runtime.
const REQUEST_BYTES_MAX: usize = 2 << 10;

/// Maximum bytes of a batch's tensor, which is copied in any case.
const BATCH_BYTES_MAX: usize = 32 << 10;

const RECIPES_MAX: usize = 32;

/// Idle recipes.
// Boxed, because a recipe is most of a kilobyte and moves in and out for every run.
#[allow(clippy::vec_box)]
#[derive(Default)]
pub(crate) struct Recipes(Mutex<Vec<Box<Recipe>>>);

impl Recipes {
    /// Takes a recipe that fits the batch, starting with the most recent one.
    pub(crate) fn take(&self, entries: &[BatchEntry]) -> Option<Box<Recipe>> {
        let mut idle = self.0.lock();
        let at = idle.iter().rposition(|r| r.fits(entries))?;
        Some(idle.swap_remove(at))
    }

    pub(crate) fn put(&self, recipe: Box<Recipe>) {
        let mut idle = self.0.lock();
        if idle.len() >= RECIPES_MAX {
            idle.remove(0);
        }
        idle.push(recipe);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// A class of runs: number of rows, inputs and their shapes, outputs.
pub(crate) struct Recipe {
    rows: u64,
    inputs: SmallVec<[Column; 4]>,
    outputs: SmallVec<[Product; 4]>,
    input_names: SmallVec<[CName; 4]>,
    output_names: SmallVec<[CName; 4]>,
    values: ReusableValues,
    options: Arc<RunOptions>,
}

/// An input, in configuration order.
struct Column {
    index: u16,
    /// The client's shape without the batch dimension, if the configuration has variable dims.
    shape: Option<Shape>,
}

/// An output, in configuration order.
struct Product {
    index: u16,
    /// The client's shape; with a batch dimension, that of the whole batch.
    shape: Shape,
    /// Bytes of one row, or of the whole output without batching.
    row_bytes: usize,
    bytes: usize,
}

impl Recipe {
    /// A recipe of a successful run; `None` if it was not small, or had tensors that are not plain or split by rows.
    ///
    /// `tensors` are its inputs, one for each input of `entries`; `wanted` and `produced` are its outputs.
    pub(crate) fn of(
        session: &Session,
        options: impl FnOnce() -> Result<Arc<RunOptions>>,
        signature: &Signature,
        entries: &[BatchEntry],
        tensors: &[RunInput<'_>],
        output_names: &[CName],
        (wanted, produced): (&[u16], &[Produced]),
    ) -> Option<Box<Self>> {
        let batching = signature.max_batch_size > 0;
        let rows: u64 = entries.iter().map(rows_of).sum();
        let limit = if entries.len() == 1 { REQUEST_BYTES_MAX } else { BATCH_BYTES_MAX };
        let first = entries.first()?;
        let is_large = tensors.iter().any(|t| t.data.len() > limit);
        if is_large || tensors.len() != first.checked.inputs.len() || wanted.is_empty() {
            return None;
        }
        let mut inputs = SmallVec::new();
        for (index, spec) in (0u16..).zip(&signature.inputs) {
            let Some(input) = input_of(first, index) else { continue };
            if spec.allow_ragged_batch || spec.datatype == DataType::Bytes {
                return None;
            }
            let shape = spec.dims.contains(&-1).then(|| Shape::from_slice(behind_rows(&input.shape, batching)));
            inputs.push(Column { index, shape });
        }
        let mut outputs = SmallVec::new();
        for (&index, produced) in wanted.iter().zip(produced) {
            let (Produced::Bytes { shape, bytes }, Some(spec)) = (produced, signature.outputs.get(usize::from(index)))
            else {
                return None;
            };
            if bytes.len() > limit || (batching && shape.first().copied() != i64::try_from(rows).ok()) {
                return None;
            }
            let whole = in_client_rank(spec, shape.clone(), batching);
            let client = shape::to_client(&spec.dims, spec.reshape.as_ref(), &whole, batching)?;
            let row_bytes = if batching { bytes.len() / usize::try_from(rows).ok()?.max(1) } else { bytes.len() };
            outputs.push(Product { index, shape: client, row_bytes, bytes: bytes.len() });
        }
        let fed = tensors.iter().map(|t| (t.datatype, &t.shape[..], t.data.len()));
        let made = wanted.iter().zip(produced).filter_map(|(&index, produced)| match produced {
            Produced::Bytes { shape, bytes } => {
                Some((signature.outputs.get(usize::from(index))?.datatype, &shape[..], bytes.len()))
            }
            _ => None,
        });
        let values = ReusableValues::new(session.runtime(), fed, made).ok()?;
        let recipe = Self {
            options: options().ok()?,
            rows,
            inputs,
            outputs,
            input_names: tensors.iter().map(|t| t.name).collect(),
            output_names: output_names.into(),
            values,
        };
        recipe.fits(entries).then(|| Box::new(recipe))
    }

    /// Whether the batch is of this class, beyond what the check of each request guarantees.
    fn fits(&self, entries: &[BatchEntry]) -> bool {
        entries.iter().map(rows_of).sum::<u64>() == self.rows
            && entries.iter().all(|entry| {
                let wanted = &entry.checked.outputs;
                entry.result.is_none()
                    && entry.checked.inputs.len() == self.inputs.len()
                    && wanted.len() == self.outputs.len()
                    && wanted.iter().zip(&self.outputs).all(|((index, _), o)| *index == o.index)
                    // A region that is only offered may be ignored.
                    && entry.request.outputs.iter().all(|o| o.region.is_none() || o.form.anywhere)
                    && self.inputs.iter().all(|column| {
                        input_of(entry, column.index).is_some_and(|input| match &column.shape {
                            None => true,
                            Some(shape) => input.shape.ends_with(shape),
                        })
                    })
            })
    }

    /// Copies the inputs in; returns false if they do not match the check.
    pub(crate) fn fill(&mut self, entries: &[BatchEntry]) -> bool {
        for (i, column) in self.inputs.iter().enumerate() {
            let mut at = 0;
            for entry in entries {
                let Some(input) = input_of(entry, column.index) else { return false };
                if !self.values.put(i, at, &input.data) {
                    return false;
                }
                entry.copied_in(input.data.len());
                at += input.data.len();
            }
            if at != self.values.input_len(i) {
                return false;
            }
        }
        true
    }

    pub(crate) fn options(&self) -> &Arc<RunOptions> {
        &self.options
    }

    pub(crate) fn run(&mut self, session: &Session) -> Result<()> {
        self.values.run(session, &self.options, &self.input_names, &self.output_names)
    }

    /// Answers every entry with its rows of the outputs, which share one allocation.
    pub(crate) fn serve(&self, signature: &Signature, entries: &mut [BatchEntry]) {
        let batching = signature.max_batch_size > 0;
        let mut all = Vec::with_capacity(self.outputs.iter().map(|o| o.bytes).sum());
        for i in 0..self.outputs.len() {
            all.extend_from_slice(self.values.output(i));
        }
        let all = Bytes::from(all);
        let mut row = 0;
        for entry in entries {
            let rows = rows_of(entry) as usize;
            let mut outcome = Outcome::default();
            let mut base = 0;
            for (product, &(index, slot)) in self.outputs.iter().zip(&entry.checked.outputs) {
                let Some(spec) = signature.outputs.get(usize::from(index)) else { continue };
                let mut shape = product.shape.clone();
                if batching && let Some(first) = shape.first_mut() {
                    *first = rows as i64;
                }
                // In bounds: the rows of all entries add up to the batch's.
                let from = (base + row * product.row_bytes).min(all.len());
                let to = (from + rows * product.row_bytes).min(all.len());
                base += product.bytes;
                entry.copied_out(to - from);
                outcome.outputs.push(OutputTensor {
                    name: spec.name.clone(),
                    index,
                    datatype: spec.datatype,
                    shape,
                    data: Data::Bytes(all.slice(from..to)),
                    form: scatter::form_of(entry, slot),
                });
            }
            row += rows;
            entry.result = Some(check_regions(entry).map(|()| outcome));
        }
    }
}

fn behind_rows(shape: &[i64], batching: bool) -> &[i64] {
    shape.get(usize::from(batching)..).unwrap_or(&[])
}
