//! Where a run's outputs go: into a slab or straight into a client's region when their shapes are known beforehand, else into
//! memory of the runtime that lives on as the response's bytes. No output is copied unless it must go into a region it could
//! not be written to.
//!
//! A known shape is only a hint. When it proves wrong the run is repeated without, and the model gets no hints any more.

use crate::ffi::{CName, DEVICE_ALIGNMENT, Outputs, Runtime, Session, Value};
use crate::inputs::{Tensor, steers_memory};
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

/// One configured output, prepared.
pub(crate) struct OutputPlan {
    pub(crate) name: CName,
    /// The graph's shape, -1 = symbolic.
    pub(crate) graph: Shape,
    /// An input of the graph has this name, too. The runtime answers with that input's value, and writes nothing to memory it was
    /// given for the output: such an output never gets a target.
    pub(crate) is_input: bool,
    /// Cut by the shapes of this input's requests instead of by rows.
    pub(crate) scatter: Option<u16>,
}

/// Most shape classes remembered per model.
const CLASSES_MAX: usize = 256;

/// Most bytes made ready for an output before the run. What is larger, the runtime allocates when it is sure of it: a graph may
/// declare any shape, and what it declares must not end the process.
const PREPARED_BYTES_MAX: usize = 256 << 20;

type Class = SmallVec<[i64; 16]>;

/// Output shapes seen before, by input shapes.
#[derive(Default)]
pub(crate) struct Hints {
    wrong: AtomicBool,
    learned: Mutex<HashMap<Class, Vec<Shape>>>,
}

impl Hints {
    /// The shapes all outputs of the model had for these inputs, where the graph does not tell.
    fn learned(&self, class: &Class) -> Option<Vec<Shape>> {
        self.learned.lock().get(class).cloned()
    }

    fn learn(&self, class: Class, shapes: Vec<Shape>) {
        let mut learned = self.learned.lock();
        if learned.len() < CLASSES_MAX {
            learned.insert(class, shapes);
        }
    }

    /// Whether a hint was wrong.
    pub(crate) fn are_wrong(&self) -> bool {
        self.wrong.load(Ordering::Relaxed)
    }

    /// A hint was wrong: shapes depend on more than the inputs' shapes.
    pub(crate) fn give_up(&self) {
        self.wrong.store(true, Ordering::Relaxed);
        self.learned.lock().clear();
    }
}

/// Where one output of a run is written.
pub(crate) enum Target {
    /// The runtime allocates it.
    Runtime,
    Slab {
        shape: Shape,
        slab: SlabMut,
    },
    /// The only request's own region.
    Region {
        shape: Shape,
        region: RegionRef,
        len: usize,
    },
    /// Memory of the device that the run is on: the only request's own region, or the server's.
    Device {
        shape: Shape,
        region: RegionRef,
        len: usize,
    },
    /// The runtime allocates it there.
    RuntimeOnDevice,
}

/// One output of a run, finished.
pub(crate) enum Produced {
    Bytes { shape: Shape, bytes: Bytes },
    Region { shape: Shape, region: RegionRef },
    Strings { shape: Shape, text: Vec<u8>, starts: Vec<usize> },
}

/// The outputs of one run: `wanted` are the indices in the signature, ascending; `targets` are theirs.
pub(crate) struct RunOutputs {
    pub(crate) wanted: SmallVec<[u16; 4]>,
    pub(crate) targets: SmallVec<[Target; 2]>,
    /// Set when the shapes should be remembered after the run.
    class: Option<Class>,
}

impl RunOutputs {
    /// Decides the targets of every output some entry wants.
    pub(crate) fn new(
        plans: &[OutputPlan],
        hints: &Hints,
        signature: &Signature,
        entries: &[BatchEntry],
        inputs: &[Tensor<'_>],
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

    /// All outputs allocated by the runtime.
    pub(crate) fn without_hints(&mut self) {
        self.class = None;
        self.targets.iter_mut().for_each(|p| *p = Target::Runtime);
    }

    /// Whether some output has a target that may be wrong.
    pub(crate) fn has_hints(&self) -> bool {
        self.targets.iter().any(|p| !matches!(p, Target::Runtime | Target::RuntimeOnDevice))
    }

    /// The outputs as the runtime wants them; `None` = it allocates.
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

    /// Remembers the shapes for the next run with the same inputs.
    pub(crate) fn learn(&mut self, hints: &Hints, produced: &[Produced]) {
        if let Some(class) = self.class.take() {
            hints.learn(class, produced.iter().map(|p| p.shape().clone()).collect());
        }
    }
}

fn class(inputs: &[Tensor<'_>], wanted: &[u16]) -> Class {
    let mut class: Class = wanted.iter().map(|&i| i64::from(i)).collect();
    for input in inputs {
        class.push(-1); // between shapes, where no dimension can be
        class.push(input.name.id()); // which of the optional inputs there are
        class.extend_from_slice(&input.shape);
    }
    class
}

/// The output's shape when the graph leaves nothing open but the batch dimension.
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

/// Where the host has an output of a shape that is known, or not.
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

/// Whether the runtime may write the output in place: the region has room, nothing else of the request lies in it, and no
/// operator behind this output will trust what a client could have changed.
fn may_run_in(region: &RegionRef, datatype: DataType, len: usize, entry: &BatchEntry, slot: Option<u16>) -> bool {
    let aligned = region.host().is_some_and(|first| (first as usize).is_multiple_of(datatype.byte_size().unwrap_or(1)));
    aligned && is_apart(region, datatype, len, entry, slot)
}

/// Where an output is had that is wanted on `device`, on which the run is.
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
    // Without room in the server's pool there may be some in the runtime's.
    match own.map_or_else(|| device::allocate(device, len), Ok) {
        Ok(region) => Target::Device { shape, region, len },
        Err(_) => Target::RuntimeOnDevice,
    }
}

/// Whether an output fits a client's region in which nothing else of its request lies, and nothing will trust what is read back from there.
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

    /// The shape of a value, which is of the output's datatype.
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

    /// An output the runtime allocated.
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

    /// The elements `from..to` of the batch's output; `all` when that is everything and no other request needs it.
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

/// How far the batch was handed out.
struct Cursor {
    rows: u64,
    /// Elements, per wanted output that is cut by shapes.
    elements: SmallVec<[usize; 4]>,
}

/// Hands every live entry its part of every output it wants.
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

/// The shape one request's part of a scattered output has; `None` for outputs cut by rows.
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
                "unexpected shape {} for inference output '{}' of model '{}': it does not fit the configured reshape {}",
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

/// The shape of an output as `shape::to_client` takes it: a scalar of the graph is [1] there, or [1,1], as it is configured.
pub(crate) fn in_client_rank(spec: &OutputSpec, shape: Shape, batching: bool) -> Shape {
    if batching || !shape.is_empty() {
        return shape;
    }
    spec.reshape.as_ref().unwrap_or(&spec.dims).iter().map(|_| 1).collect()
}

/// S-14.
fn split_error(entry: &BatchEntry, spec: &OutputSpec, expected: usize, got: usize) -> Error {
    Error::new(
        tensor::Code::Unsupported,
        format!(
            "{}failed to split the output tensor '{}' in responses: expected batch size of at least {expected} in model output, got {got}",
            IdPrefix(&entry.request.id),
            spec.name
        ),
    )
}
