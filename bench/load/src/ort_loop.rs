//! ONNX Runtime in a loop, and nothing else: what a model costs when nobody serves it.
//!
//! `--callers` threads, each with a session of its own and `--intra` threads in it, run the model on the same input
//! until the time is over. The script tries the settings and takes the best one: that is the most a server on this
//! machine could answer.
//!
//! With `--provider=cuda` sessions run on device 0, and their inputs and outputs stay there (IoBinding). The library
//! must find the provider beside itself, and the loader the libraries of CUDA; without them the loop fails, as a CPU's
//! figures would mean nothing.

use crate::arguments::{Arguments, Failure};
use crate::measure;
use load::report::Tally;
use ort::ep::{CUDA, ExecutionProviderDispatch};
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::SessionBuilder;
use ort::session::{IoBinding, Session, SessionInputValue};
use ort::value::Tensor;
use std::sync::Barrier;
use std::time::{Duration, Instant};

struct Input {
    name: String,
    datatype: String,
    dims: Vec<i64>,
}

/// `name:FP32:1x3x224x224`, several joined by commas.
fn inputs(text: &str) -> Result<Vec<Input>, Failure> {
    text.split(',')
        .map(|one| {
            let mut parts = one.split(':');
            let (Some(name), Some(datatype), Some(dims)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(Failure::from(format!("--inputs: '{one}' is not name:datatype:dims")));
            };
            let dims = dims.split('x').map(str::parse).collect::<Result<_, _>>()?;
            Ok(Input { name: name.to_owned(), datatype: datatype.to_owned(), dims })
        })
        .collect()
}

impl Input {
    /// The same numbers as the script sends: index modulo 7.
    fn value(&self) -> Result<SessionInputValue<'static>, Failure> {
        let dims = self.dims.clone();
        let count = dims.iter().product::<i64>();
        let of = |i: i64| i % 7;
        Ok(match self.datatype.as_str() {
            "FP32" => Tensor::from_array((dims, (0..count).map(|i| of(i) as f32).collect::<Vec<_>>()))?.into(),
            "INT32" => Tensor::from_array((dims, (0..count).map(|i| of(i) as i32).collect::<Vec<_>>()))?.into(),
            "INT64" => Tensor::from_array((dims, (0..count).map(of).collect::<Vec<_>>()))?.into(),
            other => return Err(format!("--inputs: no data type '{other}' here").into()),
        })
    }
}

pub fn run(a: &Arguments) -> Result<(), Failure> {
    ort::init_from(a.text("library")?)?.commit();
    let inputs = inputs(a.text("inputs")?)?;
    let (callers, intra) = (a.number("callers", 1usize)?, a.number("intra", 1usize)?);
    let duration = Duration::from_secs_f64(a.number("duration", 2.0)?);
    let model = a.text("model")?;
    let provider = match a.optional("provider") {
        None => None,
        Some("cuda") => Some(CUDA::default().with_device_id(0).build().error_on_failure()),
        Some(other) => return Err(format!("--provider={other}: cuda").into()),
    };
    let mut sessions = Vec::new();
    for _ in 0..callers {
        let builder = Session::builder()?.with_intra_threads(intra).map_err(|e| e.to_string())?;
        let builder = on(builder, provider.clone())?;
        sessions.push(builder.with_intra_op_spinning(false).map_err(|e| e.to_string())?.commit_from_file(model)?);
    }
    let barrier = Barrier::new(callers);
    let tallies: Vec<Result<(Tally, f64), String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = sessions
            .into_iter()
            .map(|session| {
                let (barrier, inputs, bound) = (&barrier, &inputs, provider.is_some());
                scope.spawn(move || work(session, inputs, bound, barrier, duration).map_err(|e| e.to_string()))
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a caller panicked".into()))).collect()
    });
    let (mut sum, mut rate) = (Tally::default(), 0.0);
    for result in tallies {
        let (tally, own) = result?;
        sum.add(&tally);
        // Each caller's own: while one finishes its last run, the others' time is over.
        rate += own;
    }
    measure::print(&sum, duration.as_secs_f64(), rate, 0);
    Ok(())
}

fn on(builder: SessionBuilder, provider: Option<ExecutionProviderDispatch>) -> Result<SessionBuilder, Failure> {
    match provider {
        None => Ok(builder),
        Some(one) => Ok(builder.with_execution_providers([one]).map_err(|e| e.to_string())?),
    }
}

/// These inputs, copied to device 0 now, and all outputs there.
fn binding(session: &Session, values: &[(String, SessionInputValue<'static>)]) -> Result<IoBinding, Failure> {
    let device = MemoryInfo::new(AllocationDevice::CUDA, 0, AllocatorType::Device, MemoryType::Default)?;
    let mut binding = session.create_binding()?;
    for (name, value) in values {
        binding.bind_input(name.as_str(), value)?;
    }
    for output in session.outputs() {
        binding.bind_output_to_device(output.name(), &device)?;
    }
    binding.synchronize_inputs()?;
    Ok(binding)
}

fn work(
    mut session: Session,
    inputs: &[Input],
    bound: bool,
    barrier: &Barrier,
    duration: Duration,
) -> Result<(Tally, f64), Failure> {
    let values = inputs.iter().map(|i| Ok((i.name.clone(), i.value()?))).collect::<Result<Vec<_>, Failure>>()?;
    let binding = if bound { Some(binding(&session, &values)?) } else { None };
    let mut tally = Tally::default();
    // The first runs allocate, and must not count.
    let warm = Instant::now();
    let run = |session: &mut Session| -> Result<(), Failure> {
        if let Some(binding) = &binding {
            drop(session.run_binding(binding)?);
            // As a server answers when the output is there.
            return Ok(binding.synchronize_outputs()?);
        }
        let views: Vec<(&str, SessionInputValue)> = values.iter().map(|(n, v)| (n.as_str(), (&**v).into())).collect();
        drop(session.run(views)?);
        Ok(())
    };
    while warm.elapsed() < duration.mul_f64(0.15) {
        run(&mut session)?;
    }
    barrier.wait();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let start = Instant::now();
        run(&mut session)?;
        tally.done(start, Instant::now(), false);
    }
    let rate = tally.rate(begin, 0.0);
    if bound {
        // The process ends next. Unloading CUDA's provider with the last session would break the heap.
        std::mem::forget((binding, session));
    }
    Ok((tally, rate))
}
