//! Runs on a device by CUDA graphs: the kernels of one run are captured, and launched together for all that come.
//!
//! What a graph reads and writes are the addresses of the run that was captured, so a shape has buffers of its own: inputs are copied into them, and
//! outputs out of them. Shapes are fixed but for the rows of a batch, and each number of rows has its graph (`gpu_graph_id`).
//!
//! The runtime keeps the graphs of a thread apart from those of others, and captures and replays in one stream. So a session has one thread that
//! runs it (`serve`); whoever has a batch waits for it. While it captures, the driver refuses allocations to all threads that do not
//! say that captures of others are none of theirs (`Driver::enter`).

use crate::ffi::{Binding, CName, RunOptions, Session};
use crate::inputs::Tensor;
use crate::outputs::{OutputPlan, Produced, RunOutputs, Target, byte_len, from_graph};
use backend::copy;
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use tensor::{Code, Data, DataType, Error, RegionRef, Result, Shape, ShapeDisplay};

/// Numbers of rows that may have a graph each: a graph, and its buffers, are memory of the device for as long as the model is loaded.
const GRAPHS_MAX: u32 = 64;
/// The run option that says which graph a run is of.
const GRAPH: &str = "gpu_graph_id";

/// One tensor of a graph, in memory of the server on the device.
struct Buffer {
    name: CName,
    datatype: DataType,
    shape: Shape,
    region: RegionRef,
}

impl Buffer {
    fn new(name: CName, datatype: DataType, shape: Shape, device: u32) -> Result<Self> {
        let len = byte_len(datatype, &shape);
        let len = len.ok_or_else(|| Error::internal("a tensor of a CUDA graph is too large"))?;
        Ok(Self { name, datatype, shape, region: device::allocate(device, len)? })
    }
}

/// What the graph of one number of rows reads and writes.
struct Slot {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

impl Slot {
    fn run(&self, session: &Arc<Session>, options: &RunOptions) -> Result<()> {
        let mut binding = Binding::new(session)?;
        for b in &self.inputs {
            binding.input(b.name, &session.on_device(b.datatype, &b.shape, &b.region, b.region.len())?)?;
        }
        for b in &self.outputs {
            binding.output(b.name, &session.on_device(b.datatype, &b.shape, &b.region, b.region.len())?)?;
        }
        binding.run(options)
    }
}

struct Job {
    slot: Arc<Slot>,
    options: RunOptions,
    done: SyncSender<Result<()>>,
}

/// Runs what comes, until nobody can send any more.
fn serve(session: &Arc<Session>, jobs: &Receiver<Job>) {
    device::stand_apart();
    for Job { slot, options, done } in jobs {
        // Whoever asked waits for it.
        let _ = done.send(slot.run(session, &options));
    }
}

/// The graphs of a session.
pub(crate) struct Captured {
    /// By number of rows. Held from the first copy in to the last copy out: there is one set of buffers for each.
    slots: Vec<Mutex<Option<Arc<Slot>>>>,
    jobs: Sender<Job>,
    run_entries: Vec<(String, String)>,
}

impl Captured {
    /// Starts the thread of a session on a device, whose provider was told to capture.
    ///
    /// # Errors
    /// UNSUPPORTED for a model whose shapes are not fixed; INTERNAL when the machine refuses a thread.
    pub(crate) fn new(
        session: &Arc<Session>,
        config: &ModelConfig,
        signature: &Signature,
        outputs: &[OutputPlan],
        run_entries: &[(String, String)],
        has_one_graph: bool,
    ) -> Result<Self> {
        check(config, signature, outputs, has_one_graph).map_err(|why| {
            let why = format!("model '{}' cannot run by CUDA graphs: {why}. Leave the parameter out", signature.model);
            Error::new(Code::Unsupported, why)
        })?;
        let (jobs, asked) = channel();
        let session = Arc::clone(session);
        let started = memory::serving::spawn("nereid-graph", move || serve(&session, &asked));
        started.map_err(|e| Error::internal(format!("no thread for CUDA graphs: {e}")))?;
        let slots = (0..=signature.max_batch_size).map(|_| Mutex::default()).collect();
        Ok(Self { slots, jobs, run_entries: run_entries.to_vec() })
    }

    /// Runs a batch of so many rows; 0 without batching.
    pub(crate) fn run(
        &self,
        session: &Session,
        plans: &[OutputPlan],
        signature: &Signature,
        plan: &mut RunOutputs,
        tensors: &[Tensor<'_>],
        rows: u64,
    ) -> Result<SmallVec<[Produced; 2]>> {
        let device = session.device().ok_or_else(|| Error::internal("CUDA graphs run on devices"))?;
        let of_rows = usize::try_from(rows).ok().and_then(|rows| self.slots.get(rows));
        let mut slot = of_rows.ok_or_else(|| Error::internal("a batch has more rows than it may"))?.lock();
        if slot.is_none() {
            *slot = Some(Arc::new(made(device, plans, signature, tensors, rows)?));
        }
        let Some(slot) = &*slot else { return Err(Error::internal("a CUDA graph has no buffers")) };
        if tensors.len() != slot.inputs.len() {
            return Err(Error::internal("a run by a CUDA graph has all inputs"));
        }
        for (tensor, buffer) in tensors.iter().zip(&slot.inputs) {
            if tensor.data.len() != buffer.region.len() {
                return Err(Error::internal("an input of a CUDA graph has another size than its buffer"));
            }
            copy::whole(&tensor.data, &buffer.region)?;
        }
        let mut entries = self.run_entries.clone();
        entries.push((GRAPH.to_owned(), rows.to_string()));
        let (done, ran) = sync_channel(1);
        let job = Job { slot: Arc::clone(slot), options: session.run_options(&entries)?, done };
        let gone = || Error::internal("the thread of CUDA graphs has ended");
        self.jobs.send(job).map_err(|_| gone())?;
        ran.recv().map_err(|_| gone())??;
        let targets = std::mem::take(&mut plan.targets).into_iter().zip(&plan.wanted);
        let produced = targets.map(|(target, &index)| {
            let buffer = slot.outputs.get(usize::from(index));
            copied_out(buffer.ok_or_else(|| Error::internal("an output is not configured"))?, target, device)
        });
        produced.collect()
    }
}

/// The buffers of a number of rows.
fn made(device: u32, plans: &[OutputPlan], signature: &Signature, tensors: &[Tensor<'_>], rows: u64) -> Result<Slot> {
    let inputs = tensors.iter().map(|t| Buffer::new(t.name, t.datatype, t.shape.clone(), device));
    let outputs = plans.iter().zip(&signature.outputs).map(|(plan, spec)| {
        let shape = from_graph(&plan.graph, signature.max_batch_size > 0, rows);
        let shape = shape.ok_or_else(|| Error::internal("an output of a CUDA graph has no fixed shape"))?;
        Buffer::new(plan.name, spec.datatype, shape, device)
    });
    Ok(Slot { inputs: inputs.collect::<Result<_>>()?, outputs: outputs.collect::<Result<_>>()? })
}

/// An output to where it is wanted: its buffer is written again by the next run.
fn copied_out(from: &Buffer, target: Target, device: u32) -> Result<Produced> {
    let shape = from.shape.clone();
    let data = Data::Region(from.region.clone());
    Ok(match target {
        Target::Slab { mut slab, .. } => {
            copy::gather(std::slice::from_ref(&data), copy::Target::Host(&mut slab))?;
            Produced::Bytes { shape, bytes: slab.freeze() }
        }
        Target::Region { region, .. } | Target::Device { region, .. } => {
            copy::whole(&data, &region)?;
            Produced::Region { shape, region }
        }
        Target::Runtime => Produced::Bytes { shape, bytes: data.to_bytes()? },
        Target::RuntimeOnDevice => Produced::Region { shape, region: copy::to_device(&data, device)? },
    })
}

/// Whether every run of a number of rows is like every other.
fn check(
    config: &ModelConfig,
    signature: &Signature,
    outputs: &[OutputPlan],
    has_one_graph: bool,
) -> Result<(), String> {
    let rows_max = if has_one_graph { 1 } else { GRAPHS_MAX };
    if signature.max_batch_size > rows_max {
        let found = signature.max_batch_size;
        return Err(format!("max_batch_size is {found}, and each number of rows takes a graph: at most {rows_max}"));
    }
    if !config.batch_input.is_empty() || !config.batch_output.is_empty() {
        return Err("it has batch_input or batch_output".into());
    }
    let is_fixed = |dims: &[i64]| dims.iter().all(|&dim| dim > 0);
    for spec in &signature.inputs {
        let seen = spec.reshape.as_ref().unwrap_or(&spec.dims);
        let why = match spec.datatype {
            DataType::Bytes => "holds strings".into(),
            _ if spec.optional => "is optional".into(),
            _ if spec.allow_ragged_batch => "may be ragged".into(),
            _ if !is_fixed(seen) => format!("has the dims {}, which are not fixed", ShapeDisplay(seen)),
            _ => continue,
        };
        return Err(format!("input '{}' {why}", spec.name));
    }
    for (plan, spec) in outputs.iter().zip(&signature.outputs) {
        let shape = from_graph(&plan.graph, signature.max_batch_size > 0, 1);
        let why = match spec.datatype {
            DataType::Bytes => "holds strings".into(),
            _ if plan.is_input => "is an input of the graph".into(),
            _ if !shape.as_deref().is_some_and(is_fixed) => {
                format!("has the shape {} in the model, which is not fixed", ShapeDisplay(&plan.graph))
            }
            _ => continue,
        };
        return Err(format!("output '{}' {why}", spec.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_graphs_are_as_many_as_the_provider_knows() {
        let refused = |rows: u32, has_one_graph: bool| {
            let signature = Signature { max_batch_size: rows, ..Signature::default() };
            check(&ModelConfig::default(), &signature, &[], has_one_graph).err()
        };
        assert_eq!((refused(0, true), refused(1, true), refused(GRAPHS_MAX, false)), (None, None, None));
        let text =
            |rows, most| format!("max_batch_size is {rows}, and each number of rows takes a graph: at most {most}");
        assert_eq!(refused(2, true), Some(text(2, 1)));
        assert_eq!(refused(GRAPHS_MAX + 1, false), Some(text(GRAPHS_MAX + 1, GRAPHS_MAX)));
    }
}
