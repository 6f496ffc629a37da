//! Runs batches of prepared texts: gathered once into padded inputs, and pooled straight from the runtime's output.
//!
//! Invariant: the row of a text depends on its own tokens only. Padding is behind them and masked.

use super::core::TextCore;
use super::graph::{EncoderGraph, Feed};
use crate::ffi::{CName, Session, Value};
use crate::graph::Graph;
use crate::model::Runs;
use backend::gather::{batch_slab, frozen};
use backend::{BatchEntry, Marks, Outcome, RunControl, now_ns};
use bytes::Bytes;
use protocol::OutputTensor;
use smallvec::{SmallVec, smallvec};
use tensor::{Data, DataType, Error, Result, Shape, ShapeDisplay};

/// A session and the names of its tensors.
pub(super) struct Encoder {
    runs: Runs,
    feeds: Vec<(Feed, DataType, CName)>,
    output: CName,
    is_pooled: bool,
}

impl Encoder {
    pub(super) fn new(
        mut session: Session,
        graph: &Graph,
        used: &EncoderGraph,
        entries: &[(String, String)],
    ) -> Result<Self> {
        let datatype = |is_wide| if is_wide { DataType::Int64 } else { DataType::Int32 };
        let feed = |&(feed, is_wide): &(Feed, bool)| Ok((feed, datatype(is_wide), session.name(feed.name())?));
        let feeds = used.feeds.iter().map(feed).collect::<Result<_>>()?;
        let output = session.name(used.output)?;
        let runs = Runs::new(session, graph, Some(output), entries, true)?;
        Ok(Self { runs, feeds, output, is_pooled: used.is_pooled })
    }

    /// See `Session::cores`.
    pub(super) fn cores(&self) -> Option<u32> {
        self.runs.session().cores()
    }

    /// Runs all entries, and each alone if that fails: tokens that the graph does not know fail their own text only.
    pub(super) fn run(
        &self,
        core: &TextCore,
        entries: &mut [BatchEntry],
        control: &RunControl,
        marks: &mut Marks,
    ) -> Result<()> {
        let together = self.run_once(core, entries, control, marks);
        if together.is_ok() || entries.len() == 1 || control.is_stopped() {
            return together;
        }
        for entry in entries.chunks_mut(1) {
            if let Err(error) = self.run_once(core, entry, control, marks) {
                backend::scatter::fail_all(entry, &error);
            }
        }
        Ok(())
    }

    fn run_once(
        &self,
        core: &TextCore,
        entries: &mut [BatchEntry],
        control: &RunControl,
        marks: &mut Marks,
    ) -> Result<()> {
        let lengths: SmallVec<[usize; 64]> = entries.iter().map(|entry| tokens_of(entry, 0).len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let shape = [lengths.len() as i64, longest as i64];
        let padded = self.padded(core, entries, longest)?;
        marks.inputs_ready = now_ns();
        let session = self.runs.session();
        let names: SmallVec<[CName; 4]> = self.feeds.iter().map(|&(.., name)| name).collect();
        let values = self.feeds.iter().zip(&padded);
        let values = values.map(|(&(_, datatype, _), data)| Value::input(session.runtime(), datatype, &shape, data));
        let values: SmallVec<[Value<'_>; 4]> = values.collect::<Result<_>>()?;
        let options = self.runs.begin(control)?;
        let ran = session.run(&options, &names, &values, &[self.output], smallvec![None]);
        self.runs.end(options, control, marks)?;
        let output = ran?.pop().flatten().ok_or_else(|| Error::internal("a run has no output"))?;
        let pooled: Shape = shape.into_iter().chain([core.width as i64]).collect();
        let expected = if self.is_pooled { &pooled[..] } else { &[shape[0], core.width as i64] };
        let (found, states) = output.floats(session.runtime())?.unwrap_or_default();
        if found[..] != *expected {
            return Err(Error::internal(format!(
                "the graph returned the shape {} for {} texts of at most {longest} tokens, expected {}",
                ShapeDisplay(&found),
                lengths.len(),
                ShapeDisplay(expected)
            )));
        }
        let rows = self.rows(core, states, &lengths, longest)?;
        let row_bytes = core.width * size_of::<f32>();
        for (at, entry) in entries.iter_mut().enumerate() {
            let data = Data::Bytes(rows.slice(at * row_bytes..(at + 1) * row_bytes));
            entry.result = Some(Ok(outcome(core, entry, data)));
        }
        Ok(())
    }

    /// The inputs of a run, in the order of `feeds`.
    fn padded(&self, core: &TextCore, entries: &[BatchEntry], longest: usize) -> Result<SmallVec<[Data; 4]>> {
        let cells = entries.len() * longest;
        let bytes = |datatype: DataType| cells * datatype.byte_size().unwrap_or(0);
        let (mut slab, charge) = batch_slab(self.feeds.iter().map(|&(_, datatype, _)| bytes(datatype)).sum())?;
        let mut rest = &mut slab[..];
        for &(feed, datatype, _) in &self.feeds {
            let (here, after) = std::mem::take(&mut rest).split_at_mut(bytes(datatype));
            rest = after;
            for (entry, row) in entries.iter().zip(here.chunks_exact_mut((here.len() / entries.len().max(1)).max(1))) {
                fill(row, feed, datatype, entry, core.tokenizer.padding_id());
            }
        }
        let all = frozen(slab, charge);
        let mut at = 0;
        let part = |&(_, datatype, _): &(Feed, DataType, CName)| {
            at += bytes(datatype);
            Data::Bytes(all.slice(at - bytes(datatype)..at))
        };
        Ok(self.feeds.iter().map(part).collect())
    }

    fn rows(&self, core: &TextCore, states: &[f32], lengths: &[usize], longest: usize) -> Result<Bytes> {
        let width = core.width;
        let (mut slab, charge) = batch_slab(lengths.len() * width * size_of::<f32>())?;
        let mut row = vec![0f32; width];
        let per_text = if self.is_pooled { longest * width } else { width };
        let texts = lengths.iter().zip(states.chunks_exact(per_text));
        for ((&tokens, states), place) in texts.zip(slab.chunks_exact_mut(width * size_of::<f32>())) {
            let row = if self.is_pooled {
                core.folder.pooling.pool(states, tokens, &mut row);
                &row[..]
            } else {
                states
            };
            for (to, value) in place.as_chunks_mut::<4>().0.iter_mut().zip(row) {
                *to = value.to_le_bytes();
            }
        }
        Ok(frozen(slab, charge))
    }
}

/// The elements of an input of a prepared text; none if it is omitted.
fn tokens_of(entry: &BatchEntry, index: usize) -> &[[u8; 4]] {
    entry.request.inputs.get(index).and_then(|input| input.data.host()).map_or(&[], |bytes| bytes.as_chunks::<4>().0)
}

/// Fills a row of an input for a text, with padding behind its tokens.
fn fill(row: &mut [u8], feed: Feed, datatype: DataType, entry: &BatchEntry, padding_id: u32) {
    let ids = tokens_of(entry, 0);
    match feed {
        Feed::Ids => write(row, datatype, ids.iter().map(|id| u32::from_le_bytes(*id)), padding_id),
        Feed::Mask => write(row, datatype, ids.iter().map(|_| 1), 0),
        Feed::Types => write(row, datatype, tokens_of(entry, 1).iter().map(|kind| u32::from_le_bytes(*kind)), 0),
        Feed::Positions => write(row, datatype, (0..).zip(ids).map(|(position, _)| position), 0),
    }
}

fn write(row: &mut [u8], datatype: DataType, values: impl Iterator<Item = u32>, padding: u32) {
    let values = values.chain(std::iter::repeat(padding));
    if datatype == DataType::Int64 {
        for (to, value) in row.as_chunks_mut::<8>().0.iter_mut().zip(values) {
            *to = u64::from(value).to_le_bytes();
        }
    } else {
        for (to, value) in row.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *to = value.to_le_bytes();
        }
    }
}

fn outcome(core: &TextCore, entry: &BatchEntry, data: Data) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(spec) = core.signature.outputs.first() {
        outcome.outputs.push(OutputTensor {
            name: spec.name.clone(),
            index: 0,
            datatype: spec.datatype,
            shape: Shape::from_slice(&[1, core.width as i64]),
            data,
            form: entry.request.default_form,
        });
    }
    outcome
}
