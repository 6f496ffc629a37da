//! Runs models on a device with CUDA graphs: the kernels of one run are captured, and later runs launch them together.
//!
//! A graph reads and writes the addresses of the captured run, so each graph has buffers of its own, with copies in and
//! out. Shapes are fixed except for the rows of a batch, and each number of rows has its own graph (`gpu_graph_id`).
//!
//! The runtime keeps graphs per thread, and captures and replays in one stream. Therefore each session has one thread
//! that runs it (`serve`), and callers wait for it. During a capture, the driver rejects allocations of all threads
//! that are not set to ignore captures of others (`Driver::enter`).

use crate::ffi::{Binding, CName, RunOptions, Session};
use crate::inputs::RunInput;
use crate::outputs::{OutputPlan, Produced, RunOutputs, Target, byte_len, from_graph};
use backend::copy;
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use tensor::{Code, Data, DataType, Error, RegionRef, Result, Shape, ShapeDisplay};

/// Maximum number of graphs: a graph and its buffers occupy device memory as long as the model is loaded.
const GRAPHS_MAX: u32 = 64;
/// Run option with the id of the graph.
const GRAPH: &str = "gpu_graph_id";

/// A tensor of a graph, in memory of the server on the device.
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

/// The buffers of the graph for one number of rows.
struct GraphBuffers {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

impl GraphBuffers {
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

struct GraphRun {
    buffers: Arc<GraphBuffers>,
    options: RunOptions,
    done: SyncSender<Result<()>>,
}

/// Runs jobs until all senders are gone.
fn serve(session: &Arc<Session>, jobs: &Receiver<GraphRun>) {
    device::stand_apart();
    for GraphRun { buffers, options, done } in jobs {
        // The requester waits for the result.
        let _ = done.send(buffers.run(session, &options));
    }
}

pub(crate) struct Captured {
    /// By number of rows. Locked from the first copy in to the last copy out: each graph has one set of buffers.
    buffers: Vec<Mutex<Option<Arc<GraphBuffers>>>>,
    jobs: Sender<GraphRun>,
    run_entries: Vec<(String, String)>,
}

impl Captured {
    /// Starts the thread of a session on a device whose provider captures graphs.
    ///
    /// # Errors
    /// UNSUPPORTED for a model without fixed shapes; INTERNAL if the thread cannot be started.
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
        let buffers = (0..=signature.max_batch_size).map(|_| Mutex::default()).collect();
        Ok(Self { buffers, jobs, run_entries: run_entries.to_vec() })
    }

    /// Runs a batch with this number of rows; 0 without batching.
    pub(crate) fn run(
        &self,
        session: &Session,
        plans: &[OutputPlan],
        signature: &Signature,
        plan: &mut RunOutputs,
        tensors: &[RunInput<'_>],
        rows: u64,
    ) -> Result<SmallVec<[Produced; 2]>> {
        let device = session.device().ok_or_else(|| Error::internal("CUDA graphs run on devices"))?;
        let of_rows = usize::try_from(rows).ok().and_then(|rows| self.buffers.get(rows));
        let mut buffers = of_rows.ok_or_else(|| Error::internal("a batch has more rows than it may"))?.lock();
        if buffers.is_none() {
            *buffers = Some(Arc::new(made(device, plans, signature, tensors, rows)?));
        }
        let Some(buffers) = &*buffers else { return Err(Error::internal("a CUDA graph has no buffers")) };
        if tensors.len() != buffers.inputs.len() {
            return Err(Error::internal("a run by a CUDA graph has all inputs"));
        }
        for (tensor, buffer) in tensors.iter().zip(&buffers.inputs) {
            if tensor.data.len() != buffer.region.len() {
                return Err(Error::internal("the size of an input of a CUDA graph differs from that of its buffer"));
            }
            copy::whole(&tensor.data, &buffer.region)?;
        }
        let mut entries = self.run_entries.clone();
        entries.push((GRAPH.to_owned(), rows.to_string()));
        let (done, ran) = sync_channel(1);
        let job = GraphRun { buffers: Arc::clone(buffers), options: session.run_options(&entries)?, done };
        let gone = || Error::internal("the thread of CUDA graphs has ended");
        self.jobs.send(job).map_err(|_| gone())?;
        ran.recv().map_err(|_| gone())??;
        let targets = std::mem::take(&mut plan.targets).into_iter().zip(&plan.wanted);
        let produced = targets.map(|(target, &index)| {
            let buffer = buffers.outputs.get(usize::from(index));
            copied_out(buffer.ok_or_else(|| Error::internal("an output is not configured"))?, target, device)
        });
        produced.collect()
    }
}

fn made(
    device: u32,
    plans: &[OutputPlan],
    signature: &Signature,
    tensors: &[RunInput<'_>],
    rows: u64,
) -> Result<GraphBuffers> {
    let inputs = tensors.iter().map(|t| Buffer::new(t.name, t.datatype, t.shape.clone(), device));
    let outputs = plans.iter().zip(&signature.outputs).map(|(plan, spec)| {
        let shape = from_graph(&plan.graph, signature.max_batch_size > 0, rows);
        let shape = shape.ok_or_else(|| Error::internal("an output of a CUDA graph has no fixed shape"))?;
        Buffer::new(plan.name, spec.datatype, shape, device)
    });
    Ok(GraphBuffers { inputs: inputs.collect::<Result<_>>()?, outputs: outputs.collect::<Result<_>>()? })
}

/// Copies an output to its target, because the next run overwrites its buffer.
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

/// Checks that all runs with the same number of rows have the same shapes.
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
    fn device_graphs_are_limited_to_those_of_the_provider() {
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
