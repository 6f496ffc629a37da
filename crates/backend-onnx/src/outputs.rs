//! Chooses where outputs of a run are written: if their shapes are known, into a slab or a client's region, otherwise
//! into memory of the runtime, which the response owns. An output is copied only if its region could not be written.
//!
//! Predicted shapes are hints. After a wrong one, the run is repeated without hints, and the model gets none again.

use crate::ffi::{CName, DEVICE_ALIGNMENT, Outputs, Runtime, Session, Value};
use crate::inputs::{RunInput, steers_memory};
use backend::gather::{check_regions, input_of, rows_of};
use backend::{BatchEntry, Outcome, scatter, shape};
use bytes::Bytes;
use memory::{SlabMut, SlabPool};
use parking_lot::Mutex;
use protocol::check::IdPrefix;
use protocol::{OutputSpec, Signature};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::part::part;
use tensor::{Base, Data, DataType, Error, RegionRef, Result, Shape, ShapeDisplay, element_count};

pub(crate) struct OutputPlan {
    pub(crate) name: CName,
    /// Shape in the graph; -1 is a symbolic dimension.
    pub(crate) graph: Shape,
    /// An input of the graph has the same name. The runtime then returns that input's value and does not write to
    /// memory for the output, so the output never gets a target.
    pub(crate) is_input: bool,
    /// Split by each request's shape of this input instead of by rows.
    pub(crate) scatter: Option<u16>,
}

/// Maximum number of `Class`es (input shapes) remembered.
const CLASSES_MAX: usize = 256;

/// Maximum bytes allocated for an output before the run. The runtime allocates larger outputs once their shape is
/// certain, because a shape that the graph merely declares must not exhaust memory.
const PREPARED_BYTES_MAX: usize = 256 << 20;

type Class = SmallVec<[i64; 16]>;

/// Output shapes of earlier runs, by input shapes.
#[derive(Default)]
pub(crate) struct Hints {
    wrong: AtomicBool,
    learned: Mutex<HashMap<Class, Vec<Shape>>>,
}

impl Hints {
    /// Output shapes of the last run with these input shapes, for shapes that the graph leaves open.
    fn learned(&self, class: &Class) -> Option<Vec<Shape>> {
        self.learned.lock().get(class).cloned()
    }

    fn learn(&self, class: Class, shapes: Vec<Shape>) {
        let mut learned = self.learned.lock();
        if learned.len() < CLASSES_MAX {
            learned.insert(class, shapes);
        }
    }

    pub(crate) fn are_wrong(&self) -> bool {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Disables hints, because output shapes depend on more than input shapes.
    pub(crate) fn disable(&self) {
        self.wrong.store(true, Ordering::Relaxed);
        self.learned.lock().clear();
    }
}

/// Where an output of a run is written.
pub(crate) enum Target {
    /// Memory of the runtime on the host.
    Runtime,
    Slab {
        shape: Shape,
        slab: SlabMut,
    },
    /// The region of the only request.
    Region {
        shape: Shape,
        region: RegionRef,
        len: usize,
    },
    /// Memory of the run's device: the region of the only request, or the server's.
    Device {
        shape: Shape,
        region: RegionRef,
        len: usize,
    },
    /// Memory of the runtime on the device.
    RuntimeOnDevice,
}

pub(crate) enum Produced {
    Bytes { shape: Shape, bytes: Bytes },
    Region { shape: Shape, region: RegionRef },
    Strings { shape: Shape, text: Vec<u8>, starts: Vec<usize> },
}

/// Outputs of a run: `wanted` are ascending indices in the signature; `targets` has one element for each.
pub(crate) struct RunOutputs {
    pub(crate) wanted: SmallVec<[u16; 4]>,
    pub(crate) targets: SmallVec<[Target; 2]>,
    /// Set if the shapes are to be remembered after the run.
    class: Option<Class>,
}

impl RunOutputs {
    /// Chooses the target of every output that an entry requests.
    pub(crate) fn new(
        plans: &[OutputPlan],
        hints: &Hints,
        signature: &Signature,
        entries: &[BatchEntry],
        inputs: &[RunInput<'_>],
        target: impl Fn(Option<Shape>, &OutputSpec, u16, Option<&BatchEntry>) -> Result<Target>,
    ) -> Result<Self> {
        let live = || entries.iter().filter(|e| e.result.is_none());
        let mut wanted: SmallVec<[u16; 4]> = SmallVec::new();
        for entry in live() {
            for &(index, _) in &entry.checked.outputs {
                if let Err(at) = wanted.binary_search(&index) {
                    wanted.insert(at, index);
                }
            }
        }
        let mut plan = Self { targets: SmallVec::new(), class: None, wanted };
        if hints.are_wrong() {
            plan.targets = plan.wanted.iter().map(|_| Target::Runtime).collect();
            return Ok(plan);
        }
        let rows: u64 = live().map(rows_of).sum();
        let alone = if live().nth(1).is_none() { live().next() } else { None };
        let mut learned: Option<Option<Vec<Shape>>> = None;
        for (at, &index) in plan.wanted.iter().enumerate() {
            let (Some(output), Some(spec)) = (plans.get(usize::from(index)), signature.outputs.get(usize::from(index)))
            else {
                plan.targets.push(Target::Runtime);
                continue;
            };
            if output.is_input {
                plan.targets.push(Target::Runtime);
                continue;
            }
            let batching = signature.max_batch_size > 0 && output.scatter.is_none();
            let known = match from_graph(&output.graph, batching, rows) {
                Some(shape) => Some(shape),
                None => {
                    let all = learned.get_or_insert_with(|| {
                        let class = class(inputs, &plan.wanted);
                        let known = hints.learned(&class);
                        if known.is_none() {
                            plan.class = Some(class);
                        }
                        known
                    });
                    all.as_ref().and_then(|shapes| shapes.get(at).cloned())
                }
            };
            plan.targets.push(target(known, spec, index, alone)?);
        }
        Ok(plan)
    }

    pub(crate) fn without_hints(&mut self) {
        self.class = None;
        self.targets.iter_mut().for_each(|p| *p = Target::Runtime);
    }

    /// Whether the target of an output is based on a hint.
    pub(crate) fn has_hints(&self) -> bool {
        self.targets.iter().any(|p| !matches!(p, Target::Runtime | Target::RuntimeOnDevice))
    }

    /// Values for the runtime; `None` = the runtime allocates the output.
    pub(crate) fn values<'s>(
        targets: &'s mut [Target],
        wanted: &[u16],
        signature: &Signature,
        runtime: &Runtime,
    ) -> Result<Outputs<'s>> {
        targets
            .iter_mut()
            .zip(wanted)
            .map(|(target, &index)| {
                let datatype = signature.outputs.get(usize::from(index)).map_or(DataType::Bytes, |s| s.datatype);
                match target {
                    Target::Runtime | Target::RuntimeOnDevice | Target::Device { .. } => Ok(None),
                    Target::Slab { shape, slab } => Value::output(runtime, datatype, shape, slab).map(Some),
                    Target::Region { shape, region, len } => {
                        Value::region_output(runtime, datatype, shape, region, *len).map(Some)
                    }
                }
            })
            .collect()
    }

    pub(crate) fn learn(&mut self, hints: &Hints, produced: &[Produced]) {
        if let Some(class) = self.class.take() {
            hints.learn(class, produced.iter().map(|p| p.shape().clone()).collect());
        }
    }
}

fn class(inputs: &[RunInput<'_>], wanted: &[u16]) -> Class {
    let mut class: Class = wanted.iter().map(|&i| i64::from(i)).collect();
    for input in inputs {
        class.push(-1); // separates shapes, as no dimension is negative
        class.push(input.name.id()); // distinguishes optional inputs
        class.extend_from_slice(&input.shape);
    }
    class
}

/// The output's shape, if the graph leaves at most the batch dimension open.
pub(crate) fn from_graph(graph: &Shape, batching: bool, rows: u64) -> Option<Shape> {
    let mut shape = Shape::from_slice(graph);
    if batching {
        *shape.first_mut()? = i64::try_from(rows).ok()?;
    }
    if shape.iter().any(|&d| d < 0) { None } else { Some(shape) }
}

pub(crate) fn byte_len(datatype: DataType, shape: &[i64]) -> Option<usize> {
    usize::try_from(element_count(shape)?).ok()?.checked_mul(datatype.byte_size()?)
}

/// The target of an output on the host; `known` is its shape, if known.
pub(crate) fn target(
    known: Option<Shape>,
    spec: &OutputSpec,
    index: u16,
    alone: Option<&BatchEntry>,
) -> Result<Target> {
    let Some(shape) = known else { return Ok(Target::Runtime) };
    let Some(len) = byte_len(spec.datatype, &shape) else { return Ok(Target::Runtime) };
    let region = alone.and_then(|entry| {
        let slot = entry.checked.outputs.iter().find(|(i, _)| *i == index)?.1;
        let region = scatter::region_of(entry, slot)?;
        may_run_in(region, spec.datatype, len, entry, slot).then(|| region.clone())
    });
    Ok(match region {
        Some(region) => Target::Region { shape, region, len },
        None if len > PREPARED_BYTES_MAX => Target::Runtime,
        None => Target::Slab { shape, slab: SlabPool::global().get(len)? },
    })
}

/// Whether the runtime may write the output in place: the region is large enough and aligned, overlaps nothing else of
/// the request, and no subsequent operator trusts contents that the client could change.
fn may_run_in(region: &RegionRef, datatype: DataType, len: usize, entry: &BatchEntry, slot: Option<u16>) -> bool {
    let aligned = region.host().is_some_and(|first| (first as usize).is_multiple_of(datatype.byte_size().unwrap_or(1)));
    aligned && is_apart(region, datatype, len, entry, slot)
}

/// The target of an output requested on `device`, where the run is.
pub(crate) fn target_on(
    device: u32,
    known: Option<Shape>,
    spec: &OutputSpec,
    index: u16,
    alone: Option<&BatchEntry>,
) -> Target {
    let Some(shape) = known else { return Target::RuntimeOnDevice };
    let Some(len) = byte_len(spec.datatype, &shape).filter(|&len| len > 0 && len <= PREPARED_BYTES_MAX) else {
        return Target::RuntimeOnDevice;
    };
    let own = alone.and_then(|entry| {
        let slot = entry.checked.outputs.iter().find(|(i, _)| *i == index)?.1;
        let region = scatter::region_of(entry, slot)?;
        let Base::Device(memory) = region.base() else { return None };
        let is_aligned = memory.device() == device && memory.address().is_multiple_of(DEVICE_ALIGNMENT);
        (is_aligned && is_apart(region, spec.datatype, len, entry, slot)).then(|| region.clone())
    });
    // The runtime's pool may have room when the server's has none.
    match own.map_or_else(|| device::allocate(device, len), Ok) {
        Ok(region) => Target::Device { shape, region, len },
        Err(_) => Target::RuntimeOnDevice,
    }
}

/// Whether an output fits a client's region that overlaps nothing else of the request and that no operator trusts.
fn is_apart(region: &RegionRef, datatype: DataType, len: usize, entry: &BatchEntry, slot: Option<u16>) -> bool {
    let reads_it = entry.request.inputs.iter().any(|i| matches!(&i.data, Data::Region(r) if r.overlaps(&**region)));
    let others = entry.request.outputs.iter().enumerate().filter(|(i, _)| slot.map(usize::from) != Some(*i));
    let writes_it = others.filter_map(|(_, o)| o.region.as_ref()).any(|r| r.overlaps(&**region));
    region.len() >= len && !steers_memory(datatype) && !reads_it && !writes_it
}

impl Produced {
    fn shape(&self) -> &Shape {
        match self {
            Self::Bytes { shape, .. } | Self::Region { shape, .. } | Self::Strings { shape, .. } => shape,
        }
    }

    /// Shape of a value, after a check of its datatype.
    pub(crate) fn checked_shape(value: &Value<'_>, spec: &OutputSpec, session: &Session) -> Result<Shape> {
        let (datatype, shape) = value.describe(session.runtime())?;
        if datatype != Some(spec.datatype) {
            let got = datatype.map_or("TYPE_INVALID", DataType::config_name);
            return Err(Error::internal(format!(
                "unexpected datatype {got} for inference output '{}', expecting {}",
                spec.name,
                spec.datatype.config_name()
            )));
        }
        Ok(shape)
    }

    pub(crate) fn from_runtime<'d>(
        value: Value<'_>,
        spec: &OutputSpec,
        session: &Arc<Session>,
        inputs: impl Iterator<Item = &'d Data>,
    ) -> Result<Self> {
        let shape = Self::checked_shape(&value, spec, session)?;
        match byte_len(spec.datatype, &shape) {
            Some(len) => Ok(Self::Bytes { bytes: value.into_bytes(session, len, inputs)?, shape }),
            None => {
                let count = element_count(&shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                let (text, starts) = value.read_strings(session.runtime(), count)?;
                Ok(Self::Strings { shape, text, starts })
            }
        }
    }

    /// Elements `from..to` of the batch's output; `all` if those are all elements and no other request needs them.
    fn cut(&mut self, datatype: DataType, from: usize, to: usize, all: bool) -> Data {
        match self {
            Self::Bytes { bytes, .. } if all => Data::Bytes(std::mem::take(bytes)),
            Self::Bytes { bytes, .. } => {
                let size = datatype.byte_size().unwrap_or(1);
                let end = (to * size).min(bytes.len());
                Data::Bytes(bytes.slice((from * size).min(end)..end))
            }
            Self::Region { region, .. } if all => Data::Region(region.clone()),
            Self::Region { region, .. } => {
                let size = datatype.byte_size().unwrap_or(1);
                let end = (to * size).min(region.len());
                let from = (from * size).min(end);
                part(region, from, end - from).map_or_else(|_| Data::empty(), Data::Region)
            }
            Self::Strings { text, starts, .. } => {
                let mut raw = Vec::new();
                for i in from..to.min(starts.len()) {
                    let start = starts.get(i).copied().unwrap_or(0);
                    let end = starts.get(i + 1).copied().unwrap_or(text.len());
                    tensor::strings::push(&mut raw, text.get(start..end).unwrap_or(&[]));
                }
                Data::Bytes(raw.into())
            }
        }
    }
}

/// Position within the outputs of a batch.
struct Cursor {
    rows: u64,
    /// Elements for each requested output that is split by shapes.
    elements: SmallVec<[usize; 4]>,
}

/// Gives every unfinished entry its part of each requested output.
pub(crate) fn distribute(
    plans: &[OutputPlan],
    signature: &Signature,
    entries: &mut [BatchEntry],
    wanted: &[u16],
    produced: &mut [Produced],
) {
    let live = entries.iter().filter(|e| e.result.is_none()).count();
    let mut cursor = Cursor { rows: 0, elements: SmallVec::from_elem(0, wanted.len()) };
    for entry in entries.iter_mut().filter(|e| e.result.is_none()) {
        let outcome =
            check_regions(entry).and_then(|()| outcome(plans, signature, entry, wanted, produced, &cursor, live == 1));
        for (&index, done) in wanted.iter().zip(&mut cursor.elements) {
            if let Some(shape) = scattered(plans, signature, entry, index) {
                *done += element_count(&shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            }
        }
        cursor.rows += rows_of(entry);
        entry.result = Some(outcome);
    }
}

/// Shape of a request's part of a scattered output; `None` for outputs split by rows.
fn scattered(plans: &[OutputPlan], signature: &Signature, entry: &BatchEntry, index: u16) -> Option<Shape> {
    let source = plans.get(usize::from(index))?.scatter?;
    let spec = signature.outputs.get(usize::from(index))?;
    let from = &input_of(entry, source)?.shape;
    let batch = (signature.max_batch_size > 0).then_some(-1);
    let dims = batch.into_iter().chain(spec.reshape.as_ref().unwrap_or(&spec.dims).iter().copied());
    Some(dims.enumerate().map(|(i, d)| if d < 0 { from.get(i).copied().unwrap_or(0) } else { d }).collect())
}

fn outcome(
    plans: &[OutputPlan],
    signature: &Signature,
    entry: &BatchEntry,
    wanted: &[u16],
    produced: &mut [Produced],
    cursor: &Cursor,
    alone: bool,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for &(index, slot) in &entry.checked.outputs {
        let at = wanted.binary_search(&index).map_err(|_| Error::internal("an output was not run"))?;
        let (Some(made), Some(spec)) = (produced.get_mut(at), signature.outputs.get(usize::from(index))) else {
            return Err(Error::internal("an output was not run"));
        };
        let batching = signature.max_batch_size > 0;
        let count = |s: &[i64]| element_count(s).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let whole = Shape::from_slice(made.shape());
        let (model_shape, from) = match scattered(plans, signature, entry, index) {
            Some(shape) => {
                let from = cursor.elements.get(at).copied().unwrap_or(0);
                if from + count(&shape) > count(&whole) {
                    return Err(split_error(entry, spec, from + count(&shape), count(&whole)));
                }
                (shape, from)
            }
            None if batching => {
                let rows = rows_of(entry);
                let got = whole.first().copied().unwrap_or(0);
                if u64::try_from(got).unwrap_or(0) < cursor.rows + rows {
                    return Err(split_error(entry, spec, (cursor.rows + rows) as usize, got as usize));
                }
                let mut shape = Shape::from_slice(&whole);
                if let Some(first) = shape.first_mut() {
                    *first = rows as i64;
                }
                let row = count(shape.get(1..).unwrap_or(&[]));
                (shape, cursor.rows as usize * row)
            }
            None => (Shape::from_slice(&whole), 0),
        };
        let to = from + count(&model_shape);
        let data = made.cut(spec.datatype, from, to, alone && model_shape == whole);
        let model_shape = in_client_rank(spec, model_shape, batching);
        let shape = shape::to_client(&spec.dims, spec.reshape.as_ref(), &model_shape, batching).ok_or_else(|| {
            Error::internal(format!(
                "unexpected shape {} for inference output '{}' of model '{}': it does not fit the configured reshape \
                 {}",
                ShapeDisplay(&model_shape),
                spec.name,
                signature.model,
                ShapeDisplay(spec.reshape.as_deref().unwrap_or(&[]))
            ))
        })?;
        outcome.outputs.push(scatter::output(entry, spec, (index, slot), shape, data)?);
    }
    Ok(outcome)
}

/// Shape of an output as `shape::to_client` expects it: a scalar of the graph becomes `[1]` or `[1, 1]`, as configured.
pub(crate) fn in_client_rank(spec: &OutputSpec, shape: Shape, batching: bool) -> Shape {
    if batching || !shape.is_empty() {
        return shape;
    }
    spec.reshape.as_ref().unwrap_or(&spec.dims).iter().map(|_| 1).collect()
}

/// The error of S-14.
fn split_error(entry: &BatchEntry, spec: &OutputSpec, expected: usize, got: usize) -> Error {
    Error::new(
        tensor::Code::Unsupported,
        format!(
            "{}failed to split the output tensor '{}' in responses: expected batch size of at least {expected} in \
             model output, got {got}",
            IdPrefix(&entry.request.id),
            spec.name
        ),
    )
}
