//! Prepares the inputs of a run: each input of the batch becomes a tensor, in place if safe and aligned, else in a
//! slab.
//!
//! Expects a batch that was staged (`backend::gather::stage`) with [`may_stay`]: the runtime reads the contents that
//! remain in a client's region by address; Rust code does not.

use crate::batch_input::BatchInput;
use crate::ffi::{CName, DEVICE_ALIGNMENT, Runtime, StringCount, Value};
use backend::gather::{batch_slab, frozen, gather, gather_on, gather_pinned, input_of, pinned_slab, rows_of};
use backend::{BatchEntry, copy, shape};
use protocol::{InputSpec, Signature};
use smallvec::SmallVec;
use std::ops::Deref;
use tensor::strings::Strings;
use tensor::{Base, Data, DataType, Error, Result, Shape, element_count};

pub(crate) struct InputPlan {
    pub(crate) name: CName,
    /// The graph's input is a scalar, for which clients send `[1]`.
    pub(crate) scalar: bool,
}

pub(crate) struct RunInput<'a> {
    pub(crate) name: CName,
    pub(crate) datatype: DataType,
    pub(crate) shape: Shape,
    pub(crate) data: InputContents<'a>,
}

/// Contents owned by a request or by the run.
pub(crate) enum InputContents<'a> {
    Borrowed(&'a Data),
    Owned(Data),
}

impl Deref for InputContents<'_> {
    type Target = Data;
    fn deref(&self) -> &Data {
        match self {
            InputContents::Borrowed(data) => data,
            InputContents::Owned(data) => data,
        }
    }
}

/// The inputs of a run, from all entries without a result. Optional inputs that no request has are omitted. Inputs
/// partly on a device are gathered on `device`, the run's; other inputs of several requests in page-locked memory.
pub(crate) fn feed<'a>(
    plans: &[InputPlan],
    batch_inputs: &[(BatchInput, Vec<CName>)],
    signature: &Signature,
    entries: &'a [BatchEntry],
    device: Option<u32>,
) -> Result<SmallVec<[RunInput<'a>; 4]>> {
    let batching = signature.max_batch_size > 0;
    let mut tensors = SmallVec::new();
    for (index, (plan, spec)) in (0u16..).zip(plans.iter().zip(&signature.inputs)) {
        let mut live = entries.iter().filter(|e| e.result.is_none());
        let Some((first, input)) = live.find_map(|e| Some((e, input_of(e, index)?))) else { continue };
        let alone = live.next().is_none();
        let data = match device.map(|device| on_device(entries, index, spec, device)).transpose()?.flatten() {
            Some(there) => InputContents::Owned(there),
            None if alone => InputContents::Borrowed(&input.data),
            None if device.is_some() => InputContents::Owned(gather_pinned(entries, index)?.unwrap_or_default()),
            None => InputContents::Owned(gather(entries, index)?.unwrap_or_default()),
        };
        let shape = if spec.allow_ragged_batch {
            let parts =
                entries.iter().filter(|e| e.result.is_none()).filter_map(|e| element_count(&input_of(e, index)?.shape));
            Shape::from_slice(&[parts.fold(0, i64::saturating_add)])
        } else if plan.scalar {
            Shape::new()
        } else {
            let mut shape = shape::to_model(&spec.dims, spec.reshape.as_ref(), &input.shape, batching);
            if !alone && let Some(rows) = shape.first_mut() {
                *rows = total_rows(entries, rows_of(first));
            }
            shape
        };
        tensors.push(RunInput {
            name: plan.name,
            datatype: spec.datatype,
            shape,
            data: aligned(data, spec, device.is_some(), first)?,
        });
    }
    for (input, names) in batch_inputs {
        let (datatype, shape, data) = input.make(entries, batching);
        for &name in names {
            tensors.push(RunInput { name, datatype, shape: shape.clone(), data: InputContents::Owned(data.clone()) });
        }
    }
    Ok(tensors)
}

/// An input gathered on the device of the run, in place if safe and aligned; `None` if all of it is in host memory.
fn on_device(entries: &[BatchEntry], index: u16, spec: &InputSpec, device: u32) -> Result<Option<Data>> {
    let mut parts = entries.iter().filter(|e| e.result.is_none()).filter_map(|e| Some(&input_of(e, index)?.data));
    if !parts.any(is_on_device) {
        return Ok(None);
    }
    let Some(row) = gather_on(entries, index, device, may_stay(spec.datatype))? else { return Ok(Some(Data::empty())) };
    let Base::Device(memory) = row.base() else {
        return Err(Error::internal("an input was not copied to its device"));
    };
    let row = if memory.address().is_multiple_of(DEVICE_ALIGNMENT) {
        row
    } else {
        copy::to_device(&Data::Region(row), device)?
    };
    Ok(Some(Data::Region(row)))
}

/// Whether contents are in memory that only a device can access.
pub(crate) fn is_on_device(data: &Data) -> bool {
    matches!(data, Data::Region(region) if region.host().is_none())
}

fn total_rows(entries: &[BatchEntry], default: u64) -> i64 {
    let sum: u64 = entries.iter().filter(|e| e.result.is_none()).map(rows_of).sum();
    i64::try_from(sum.max(default)).unwrap_or(i64::MAX)
}

/// Copies contents of a request body that are misaligned, because they start wherever the preceding header ended.
fn aligned<'a>(
    data: InputContents<'a>,
    spec: &InputSpec,
    for_device: bool,
    entry: &BatchEntry,
) -> Result<InputContents<'a>> {
    let (Some(align), Some(bytes)) = (spec.datatype.byte_size(), data.host()) else { return Ok(data) };
    if (bytes.as_ptr() as usize).is_multiple_of(align) {
        return Ok(data);
    }
    let room = if for_device { pinned_slab } else { batch_slab };
    let (mut slab, charge) = room(bytes.len())?;
    slab.copy_from_slice(bytes);
    entry.copied_in(bytes.len());
    Ok(InputContents::Owned(Data::Bytes(frozen(slab, charge))))
}

/// Whether the runtime may read this datatype in a client's region, where it can change at any time. Changed floats
/// only spoil the client's own results; operators validate indices and masks first and use them later.
pub(crate) fn may_stay(datatype: DataType) -> bool {
    !steers_memory(datatype)
}

/// Datatypes whose values decide where or how much an operator reads and writes: indices, shapes, masks.
pub(crate) fn steers_memory(datatype: DataType) -> bool {
    matches!(datatype, DataType::Bool | DataType::Int32 | DataType::Int64 | DataType::Bytes)
}

impl RunInput<'_> {
    /// The tensor as a value of the runtime over our memory; strings are copied into memory of the runtime.
    pub(crate) fn value<'s>(&'s self, runtime: &Runtime, signature: &Signature) -> Result<Value<'s>> {
        if self.datatype != DataType::Bytes {
            return Value::input(runtime, self.datatype, &self.shape, &self.data);
        }
        let count = element_count(&self.shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let raw = self.data.host().ok_or_else(|| Error::internal("strings were not copied out of their region"))?;
        let elements = Strings::new(raw).map_while(|s| s.ok());
        Value::strings(runtime, &self.shape, count, elements).map_err(|e| match e {
            StringCount::Failed(e) => e,
            StringCount::Found(found) => Error::invalid(format!(
                "expected {count} string elements for an inference input of model '{}', got {found}",
                signature.model
            )),
        })
    }
}
