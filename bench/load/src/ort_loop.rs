//! ONNX Runtime in a loop, through our backend and nothing else: what the model costs when nobody serves it.

use crate::arguments::{Arguments, Failure};
use crate::report::Tally;
use backend::{Backend, Batch, BatchEntry, OpenSpec, RunControl};
use protocol::{Checked, InferRequest, InputSpec, InputTensor, OutputSpec, Signature};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{DataType, Name, Shape};

/// Runs the add/sub example model with one row until the time is over.
pub fn run(a: &Arguments) -> Result<(), Failure> {
    let directory = std::path::PathBuf::from(a.text("model")?);
    let onnx = backend_onnx::OnnxBackend::new(Some(a.text("library")?.into()));
    let spec = OpenSpec {
        model: Name::from_static("simple"),
        version: 1,
        version_directory: directory.join("1"),
        model_directory: directory,
        config: bytes::Bytes::new(),
        settings: Vec::new(),
    };
    let input = |name| InputSpec {
        name: Name::from_static(name),
        datatype: DataType::Int32,
        dims: Shape::from_slice(&[16]),
        reshape: None,
        optional: false,
        allow_ragged_batch: false,
    };
    let output = |name| OutputSpec {
        name: Name::from_static(name),
        datatype: DataType::Int32,
        dims: Shape::from_slice(&[16]),
        reshape: None,
        labels: Vec::new(),
    };
    let signature = Arc::new(Signature {
        model: Name::from_static("simple"),
        version: Name::from_static("1"),
        max_batch_size: 8,
        inputs: vec![input("INPUT0"), input("INPUT1")],
        outputs: vec![output("OUTPUT0"), output("OUTPUT1")],
        decoupled: false,
    });
    let model = onnx.open(&spec)?.finish(&spec.config, signature)?;
    let data = bytes::Bytes::from((0..16i32).flat_map(i32::to_le_bytes).collect::<Vec<u8>>());
    let duration = Duration::from_secs_f64(a.number("duration", 2.0)?);
    let mut tally = Tally::new();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let tensor = |name| InputTensor {
            name: Name::from_static(name),
            datatype: Some(DataType::Int32),
            shape: Shape::from_slice(&[1, 16]),
            data: data.clone().into(),
        };
        let request = InferRequest {
            inputs: [tensor("INPUT0"), tensor("INPUT1")].into_iter().collect(),
            ..InferRequest::default()
        };
        let checked = Checked {
            rows: 1,
            inputs: [0u16, 1].into_iter().collect(),
            outputs: [(0u16, None), (1, None)].into_iter().collect(),
        };
        let mut entries = [BatchEntry { request, checked, result: None }];
        let start = Instant::now();
        model.execute(0, &mut Batch { requests: &mut entries }, &RunControl::new(1));
        match &entries[0].result {
            Some(Ok(_)) => tally.done(start.elapsed()),
            Some(Err(e)) => tally.failed(e.message()),
            None => tally.failed("no result"),
        }
    }
    tally.print(begin.elapsed().as_secs_f64());
    Ok(())
}
