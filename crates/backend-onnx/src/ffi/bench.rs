//! The floor that the benchmarks compare a run with.

use super::{PoolThreads, Runtime, Session, SessionOptions, Value};
use bytes::Bytes;
use std::path::Path;
use tensor::{Data, DataType, Result, element_count};

/// Mean nanoseconds of a `Run` over prepared values, over `rounds`: the floor that our execution is compared with.
#[doc(hidden)]
pub fn bench_bare_run(
    library: &Path,
    model: &Path,
    names: (&[&str], &[&str]),
    datatype: DataType,
    shape: &[i64],
    rounds: u32,
) -> Result<f64> {
    let runtime = Runtime::get(library, PoolThreads::default())?;
    let mut session = Session::load(runtime, model, &SessionOptions::default(), None)?;
    let options = session.run_options(&[])?;
    let size = element_count(shape).unwrap_or(0) as usize * datatype.byte_size().unwrap_or(0);
    let data: Vec<Data> = names.0.iter().map(|_| Data::Bytes(Bytes::from(vec![0u8; size]))).collect();
    let mut memory: Vec<Vec<u8>> = names.1.iter().map(|_| vec![0u8; size]).collect();
    let mut c_names = |n: &[&str]| n.iter().map(|n| session.name(n)).collect::<Result<Vec<_>>>();
    let (input_names, output_names) = (c_names(names.0)?, c_names(names.1)?);
    let inputs = data.iter().map(|d| Value::input(runtime, datatype, shape, d)).collect::<Result<Vec<_>>>()?;
    let mut outputs =
        memory.iter_mut().map(|m| Value::output(runtime, datatype, shape, m).map(Some)).collect::<Result<Vec<_>>>()?;
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        session.run_raw(&options, &input_names, &inputs, &output_names, &mut outputs)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(rounds.max(1)))
}
