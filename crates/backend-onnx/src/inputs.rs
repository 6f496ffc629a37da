//! What a run is fed: each input of the batch as one tensor, in place where that is safe and aligned, else in a slab.
//!
//! Data in a client's region may change at any time. Floats only make results wrong; but operators check indices and masks
//! first and use them later, so those are copied before the run, and so are strings with their lengths.

use crate::batch_input::BatchInput;
use crate::ffi::{CName, Runtime, StringCount, Value};
use backend::gather::{gather, input_of, rows_of};
use backend::{BatchEntry, shape};
use memory::SlabPool;
use protocol::check::IdPrefix;
use protocol::{InputSpec, Signature};
use smallvec::SmallVec;
use std::ops::Deref;
use tensor::strings::Strings;
use tensor::{Data, DataType, Error, Result, Shape, element_count};

/// One configured input, prepared.
pub(crate) struct InputPlan {
    pub(crate) name: CName,
    /// The graph wants rank 0 where clients send `[1]`.
    pub(crate) scalar: bool,
}

/// One input of a run.
pub(crate) struct Tensor<'a> {
    pub(crate) name: CName,
    pub(crate) datatype: DataType,
    pub(crate) shape: Shape,
    pub(crate) data: Held<'a>,
}

/// Contents that belong to a request, or to the run.
pub(crate) enum Held<'a> {
    Lent(&'a Data),
    Own(Data),
}

impl Deref for Held<'_> {
    type Target = Data;
    fn deref(&self) -> &Data {
        match self {
            Held::Lent(data) => data,
            Held::Own(data) => data,
        }
    }
}

/// Takes strings out of regions and checks them again: the client could have changed them since they were checked. A request
/// whose strings are broken gets its failure here and is left out of the batch.
pub(crate) fn take_strings(entries: &mut [BatchEntry], signature: &Signature) {
    for entry in entries.iter_mut().filter(|e| e.result.is_none()) {
        for (input, &index) in entry.request.inputs.iter_mut().zip(&entry.checked.inputs) {
            let is_bytes = signature.inputs.get(usize::from(index)).is_some_and(|s| s.datatype == DataType::Bytes);
            if is_bytes && matches!(input.data, Data::Region(_)) {
                let copy = SlabPool::global().copy_of(input.data.as_slice()).freeze();
                let expected = element_count(&input.shape).unwrap_or(0);
                let found = Strings::new(&copy).take_while(|s| s.is_ok()).count();
                let whole = Strings::new(&copy).all(|s| s.is_ok());
                if !whole || i64::try_from(found) != Ok(expected) {
                    let text = format!(
                        "expected {expected} string elements for inference input '{}' for model '{}', got {found}",
                        input.name, signature.model
                    );
                    entry.result = Some(Err(Error::invalid(text)));
                    break;
                }
                input.data = Data::Bytes(copy);
            }
        }
        if let Some(Err(e)) = &entry.result {
            entry.result = Some(Err(e.clone().prefixed(IdPrefix(&entry.request.id))));
        }
    }
}

/// The inputs of a run over every entry that has no result yet. Optional inputs nobody gave are left out.
pub(crate) fn feed<'a>(
    plans: &[InputPlan],
    batch_inputs: &[(BatchInput, Vec<CName>)],
    signature: &Signature,
    entries: &'a [BatchEntry],
) -> Result<SmallVec<[Tensor<'a>; 4]>> {
    let batching = signature.max_batch_size > 0;
    let mut tensors = SmallVec::new();
    for (index, (plan, spec)) in (0u16..).zip(plans.iter().zip(&signature.inputs)) {
        let mut live = entries.iter().filter(|e| e.result.is_none());
        let Some((first, input)) = live.find_map(|e| Some((e, input_of(e, index)?))) else { continue };
        let alone = live.next().is_none();
        let data = if alone { Held::Lent(&input.data) } else { Held::Own(gather(entries, index).unwrap_or_default()) };
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
        tensors.push(Tensor { name: plan.name, datatype: spec.datatype, shape, data: steady(data, spec) });
    }
    for (input, names) in batch_inputs {
        let (datatype, shape, data) = input.make(entries, batching);
        for &name in names {
            tensors.push(Tensor { name, datatype, shape: shape.clone(), data: Held::Own(data.clone()) });
        }
    }
    Ok(tensors)
}

fn total_rows(entries: &[BatchEntry], default: u64) -> i64 {
    let sum: u64 = entries.iter().filter(|e| e.result.is_none()).map(rows_of).sum();
    i64::try_from(sum.max(default)).unwrap_or(i64::MAX)
}

/// Copies what the runtime must not read in place: badly aligned data, and data of regions that operators trust after a check.
fn steady<'a>(data: Held<'a>, spec: &InputSpec) -> Held<'a> {
    let Some(align) = spec.datatype.byte_size() else { return data };
    let unsteady = matches!(&*data, Data::Region(_)) && steers_memory(spec.datatype);
    let bytes = data.as_slice();
    if !unsteady && (bytes.as_ptr() as usize).is_multiple_of(align) {
        return data;
    }
    Held::Own(Data::Bytes(SlabPool::global().copy_of(bytes).freeze()))
}

/// Types whose values say where or how much an operator reads and writes: indices, shapes, masks.
pub(crate) fn steers_memory(datatype: DataType) -> bool {
    matches!(datatype, DataType::Bool | DataType::Int32 | DataType::Int64 | DataType::Bytes)
}

impl Tensor<'_> {
    /// The tensor as the runtime wants it, over our memory; strings are copied into its own.
    pub(crate) fn value<'s>(&'s self, runtime: &Runtime, signature: &Signature) -> Result<Value<'s>> {
        if self.datatype != DataType::Bytes {
            return Value::input(runtime, self.datatype, &self.shape, &self.data);
        }
        let count = element_count(&self.shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let elements = Strings::new(self.data.as_slice()).map_while(|s| s.ok());
        Value::strings(runtime, &self.shape, count, elements).map_err(|e| match e {
            StringCount::Failed(e) => e,
            StringCount::Found(found) => Error::invalid(format!(
                "expected {count} string elements for an inference input of model '{}', got {found}",
                signature.model
            )),
        })
    }
}
