//! Requests of different lengths in one batch (`nereid.padding`): inputs are padded to the longest before the run, and
//! outputs cut to their own length after it. `scheduler::padding` decides which requests run together.
//!
//! The backend sees requests of one shape, so this works with any backend. A request that runs alone, or with others of
//! its length, is not changed at all: its response is identical to one without the parameter.

mod config;
mod grammar;

use crate::batch_key::{Key, Lengths, Masked};
use crate::times::Timings;
use backend::gather::{REGION_COPY_BYTES_MAX, check_regions};
use backend::{BatchEntry, Marks, Outcome, now_ns, pad, scatter};
use protocol::check::IdPrefix;
use protocol::{InputTensor, OutputTensor, Signature};
use smallvec::SmallVec;
use tensor::{Data, Error, RegionRef, Result, Shape, ShapeDisplay};

/// Prefix of the keys of its parameters.
const PREFIX: &str = "nereid.padding";

pub(crate) struct Padding {
    /// By index in the signature.
    inputs: Vec<Option<Padded>>,
    outputs: Vec<Option<Padded>>,
    /// How the scheduler computes sizes from lengths.
    pub(crate) schedule: scheduler::padding::Padding,
    /// Names of dimensions, by index.
    names: Vec<String>,
}

/// A tensor with padded dimensions.
struct Padded {
    /// Index of the name of each dimension after the batch dimension.
    dims: SmallVec<[Option<u8>; 4]>,
    /// One element of padding; empty for outputs.
    element: SmallVec<[u8; 8]>,
}

impl Padded {
    /// A shape with these lengths in place of its own.
    fn with(&self, shape: &[i64], lengths: &[u32]) -> Shape {
        let own = shape.iter().skip(1).zip(&self.dims).map(|(dim, name)| {
            name.and_then(|n| lengths.get(usize::from(n))).map_or(*dim, |length| i64::from(*length))
        });
        shape.first().copied().into_iter().chain(own).collect()
    }
}

/// State of a batch before it was padded.
struct Before {
    lengths: Vec<Lengths>,
    longest: Lengths,
    /// Regions for outputs after they were cut: index of the request, of its requested output, and the region.
    regions: Vec<(usize, usize, RegionRef)>,
}

impl Padding {
    fn input(&self, index: u16) -> Option<&Padded> {
        self.inputs.get(usize::from(index))?.as_ref()
    }

    /// The lengths of a request. `None` if two tensors differ in a length, or one is 0: such a request is never padded.
    fn lengths(&self, entry: &BatchEntry) -> Option<Lengths> {
        let mut lengths: Lengths = SmallVec::from_elem(0, self.names.len());
        for (input, &index) in entry.request.inputs.iter().zip(&entry.checked.inputs) {
            let Some(padded) = self.input(index) else { continue };
            for (dim, name) in input.shape.iter().skip(1).zip(&padded.dims) {
                let Some(length) = name.and_then(|n| lengths.get_mut(usize::from(n))) else { continue };
                let found = u32::try_from(*dim).ok().filter(|d| *d > 0)?;
                if *length != 0 && *length != found {
                    return None;
                }
                *length = found;
            }
        }
        // For optional inputs that are absent, which is the same in all requests of a batch.
        lengths.iter_mut().for_each(|length| *length = (*length).max(1));
        Some(lengths)
    }

    /// The lengths of a request, and the key by which it fits others regardless of them.
    pub(crate) fn prepare(&self, entry: &BatchEntry, key: impl FnOnce(Masked<'_>) -> Key) -> Option<(Key, Lengths)> {
        let lengths = self.lengths(entry)?;
        let is_named = |spec: u16, dim: usize| {
            self.input(spec).and_then(|padded| padded.dims.get(dim)).is_some_and(Option::is_some)
        };
        Some((key(&is_named), lengths))
    }

    /// The lengths to which requests with the lengths `all` are padded; `None` if they are not.
    pub(crate) fn longest<'l>(mut all: impl Iterator<Item = &'l [u32]>) -> Option<Lengths> {
        let mut longest: Lengths = all.next().filter(|l| !l.is_empty())?.into();
        all.for_each(|lengths| grow(&mut longest, lengths));
        Some(longest)
    }

    /// Bytes of the padded inputs of a batch; 0 if none may be padded.
    pub(crate) fn volume<'l>(&self, lengths: impl Iterator<Item = &'l [u32]>, rows: u32) -> u64 {
        let row = Self::longest(lengths).map_or(0, |longest| self.schedule.row_bytes(&longest));
        row.saturating_mul(rows.into())
    }

    /// Runs a batch of several requests, padded if they differ.
    pub(crate) fn run(
        &self,
        entries: &mut [BatchEntry],
        signature: &Signature,
        start: u64,
        run: impl FnOnce(&mut [BatchEntry]) -> Timings,
    ) -> Timings {
        let Some(mut before) = self.before(entries) else { return run(entries) };
        let grown = entries.iter_mut().zip(&before.lengths).try_for_each(|(entry, own)| {
            // A request whose region was lost has its result then, and does not run.
            self.grow(entry, own, &before.longest).or_else(|e| if entry.result.is_some() { Ok(()) } else { Err(e) })
        });
        if let Err(error) = grown {
            scatter::fail_all(entries, &error);
            let end = now_ns();
            let marks = Marks { inputs_ready: end, inference_end: end, outputs_ready: end };
            return Timings { start, marks, end };
        }
        for (at, entry) in entries.iter_mut().enumerate() {
            let wanted = entry.request.outputs.iter_mut().enumerate();
            before.regions.extend(wanted.filter_map(|(slot, output)| Some((at, slot, output.region.take()?))));
        }
        let mut timings = run(entries);
        for (at, entry) in entries.iter_mut().enumerate() {
            let Some(Ok(mut outcome)) = entry.result.take_if(|result| result.is_ok()) else { continue };
            let shrunk = self.shrink(entry, &mut outcome, signature, &before, at);
            entry.result = Some(shrunk.map(|()| outcome).map_err(|e| e.prefixed(IdPrefix(&entry.request.id))));
        }
        timings.marks.outputs_ready = now_ns();
        timings.end = timings.end.max(timings.marks.outputs_ready);
        timings
    }

    /// Returns `None` if there is nothing to pad.
    fn before(&self, entries: &[BatchEntry]) -> Option<Before> {
        let lengths = entries.iter().map(|e| self.lengths(e)).collect::<Option<Vec<_>>>()?;
        let mut longest = lengths.first()?.clone();
        lengths.iter().for_each(|own| grow(&mut longest, own));
        let differ = lengths.iter().any(|own| *own != longest);
        differ.then_some(Before { lengths, longest, regions: Vec::new() })
    }

    /// # Errors
    /// RESOURCE_EXHAUSTED without memory. If the entry has its result, only this entry failed.
    fn grow(&self, entry: &mut BatchEntry, own: &Lengths, longest: &Lengths) -> Result<()> {
        if own == longest || entry.result.is_some() {
            return Ok(());
        }
        let mut grown: SmallVec<[(usize, Shape, Data); 4]> = SmallVec::new();
        for (at, (input, &index)) in entry.request.inputs.iter().zip(&entry.checked.inputs).enumerate() {
            let Some(padded) = self.input(index) else { continue };
            let InputTensor { shape, data, .. } = input;
            let to = padded.with(shape, longest);
            grown.push((at, to.clone(), pad::grow(data, shape, &to, &padded.element)?));
        }
        if let Err(lost) = check_regions(entry) {
            entry.result = Some(Err(lost));
            return Ok(());
        }
        for (at, shape, data) in grown {
            if let Some(input) = entry.request.inputs.get_mut(at) {
                (input.shape, input.data) = (shape, data);
            }
        }
        Ok(())
    }

    /// Cuts the outputs of one request to its lengths, and moves them to their requested locations.
    fn shrink(
        &self,
        entry: &BatchEntry,
        outcome: &mut Outcome,
        signature: &Signature,
        before: &Before,
        at: usize,
    ) -> Result<()> {
        let own = before.lengths.get(at).map_or(&[][..], |own| own);
        for output in &mut outcome.outputs {
            if let Some(padded) = self.outputs.get(usize::from(output.index)).and_then(Option::as_ref) {
                self.shrink_output(padded, output, signature, own, &before.longest)?;
            }
            let slot =
                entry.checked.outputs.iter().find(|(index, _)| *index == output.index).and_then(|(_, slot)| *slot);
            let region = before.regions.iter().find(|(of, s, _)| *of == at && slot.map(usize::from) == Some(*s));
            let is_refused = |region: &RegionRef| output.form.anywhere && region.len() < output.data.len();
            if let Some((_, _, region)) = region.filter(|(_, _, region)| !is_refused(region)) {
                output.data = scatter::place(&output.name, std::mem::take(&mut output.data), Some(region))?;
            }
        }
        Ok(())
    }

    fn shrink_output(
        &self,
        padded: &Padded,
        output: &mut OutputTensor,
        signature: &Signature,
        own: &[u32],
        longest: &[u32],
    ) -> Result<()> {
        let is_named = padded.dims.iter().any(Option::is_some);
        if is_named && output.shape.len() != padded.dims.len() + 1 {
            return Err(Error::internal(format!(
                "output '{}' of model '{}' has shape {} where its configuration has {} dims behind the batch \
                 dimension: it cannot be un-padded",
                output.name,
                signature.model,
                ShapeDisplay(&output.shape),
                padded.dims.len(),
            ))
            .by_model());
        }
        for (i, (dim, name)) in output.shape.iter().skip(1).zip(&padded.dims).enumerate() {
            let Some(name) = name.map(usize::from) else { continue };
            let expected = longest.get(name).copied().unwrap_or(0);
            if *dim != i64::from(expected) {
                return Err(Error::internal(format!(
                    "dimension {i} of output '{output}' of model '{model}' is {dim} where its inputs were padded to \
                     {expected}: it does not follow '{name}', as parameter '{prefix}.{output}' says it does; write -1 \
                     there if it has nothing to do with the length, else remove the parameters '{prefix}.…'",
                    output = output.name,
                    model = signature.model,
                    name = self.names.get(name).map_or("", |n| n),
                    prefix = PREFIX,
                ))
                .by_model());
            }
        }
        let shape = padded.with(&output.shape, own);
        if shape == output.shape {
            return Ok(());
        }
        let Some(size) = output.datatype.byte_size() else { return Ok(()) };
        if output.data.len() > REGION_COPY_BYTES_MAX && output.data.host().is_none() {
            return Err(Error::internal(format!("output '{}' is too large to be un-padded", output.name)));
        }
        let data = pad::shrink(&output.data.to_bytes()?, &output.shape, &shape, size)?;
        (output.shape, output.data) = (shape, Data::Bytes(data));
        Ok(())
    }
}

fn grow(longest: &mut [u32], lengths: &[u32]) {
    longest.iter_mut().zip(lengths).for_each(|(longest, length)| *longest = (*longest).max(*length));
}
