//! Shared by the tests of this crate: writes small ONNX files and makes requests for them.

#![allow(dead_code)] // each test binary uses its part

use backend::{Backend, Batch, BatchEntry, Model, OpenSpec, Opened, Outcome, RunControl};
use backend_onnx::OnnxBackend;
use bytes::Bytes;
use prost::Message;
use protocol::pb::inference::ModelConfig;
use protocol::{Checked, InferRequest, InputSpec, InputTensor, OutputSpec, Signature};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{Data, DataType, Result, Shape};

/// The shared library that `npm ci` installs.
pub fn library() -> PathBuf {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../node_modules/onnxruntime-node/bin/napi-v6/linux/{arch}/libonnxruntime.so.1"));
    assert!(
        path.is_file(),
        "these tests need ONNX Runtime: run `npm ci` in the repository (looked for {})",
        path.display()
    );
    path
}

// Hand-written protobuf with field numbers of onnx.proto.

fn varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn int(out: &mut Vec<u8>, field: u64, v: i64) {
    varint(out, field << 3);
    varint(out, v as u64);
}

fn bytes(out: &mut Vec<u8>, field: u64, v: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, v.len() as u64);
    out.extend_from_slice(v);
}

/// A dimension of a graph tensor.
#[derive(Clone, Copy)]
pub enum D {
    N(i64),
    S(&'static str),
}

/// ONNX element codes.
pub const F32: i64 = 1;
pub const I32: i64 = 6;
pub const I64: i64 = 7;
pub const STR: i64 = 8;
pub const BOOL: i64 = 9;
pub const F16: i64 = 10;
pub const BF16: i64 = 16;

/// ValueInfoProto.
pub fn tensor(name: &str, element: i64, dims: &[D]) -> Vec<u8> {
    let mut shape = Vec::new();
    for d in dims {
        let mut dim = Vec::new();
        match d {
            D::N(n) => int(&mut dim, 1, *n),
            D::S(s) => bytes(&mut dim, 2, s.as_bytes()),
        }
        bytes(&mut shape, 1, &dim);
    }
    let (mut tensor, mut kind, mut out) = (Vec::new(), Vec::new(), Vec::new());
    int(&mut tensor, 1, element);
    bytes(&mut tensor, 2, &shape);
    bytes(&mut kind, 1, &tensor);
    bytes(&mut out, 1, name.as_bytes());
    bytes(&mut out, 2, &kind);
    out
}

/// NodeProto; attributes are integers.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, i64)]) -> Vec<u8> {
    let mut out = Vec::new();
    inputs.iter().for_each(|i| bytes(&mut out, 1, i.as_bytes()));
    outputs.iter().for_each(|o| bytes(&mut out, 2, o.as_bytes()));
    bytes(&mut out, 4, op.as_bytes());
    for (name, value) in attributes {
        let mut a = Vec::new();
        bytes(&mut a, 1, name.as_bytes());
        int(&mut a, 3, *value);
        int(&mut a, 20, 2); // INT
        bytes(&mut out, 5, &a);
    }
    out
}

/// Random numbers in the shape of `like`.
pub fn random_like(like: &str, to: &str, seed: f32) -> Vec<u8> {
    let mut out = node("RandomUniformLike", &[like], &[to], &[]);
    let mut a = Vec::new();
    bytes(&mut a, 1, b"seed");
    varint(&mut a, 2 << 3 | 5);
    a.extend_from_slice(&seed.to_le_bytes());
    int(&mut a, 20, 1); // FLOAT
    bytes(&mut out, 5, &a);
    out
}

/// TensorProto with raw data.
pub fn initializer(name: &str, element: i64, dims: &[i64], raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    dims.iter().for_each(|d| int(&mut out, 1, *d));
    int(&mut out, 2, element);
    bytes(&mut out, 8, name.as_bytes());
    bytes(&mut out, 9, raw);
    out
}

/// A Loop of `rounds` that passes one value through `body`.
pub fn loop_node(rounds: &str, condition: &str, start: &str, end: &str, body: &[u8]) -> Vec<u8> {
    let mut out = node("Loop", &[rounds, condition, start], &[end], &[]);
    let mut a = Vec::new();
    bytes(&mut a, 1, b"body");
    bytes(&mut a, 6, body);
    int(&mut a, 20, 5); // GRAPH
    bytes(&mut out, 5, &a);
    out
}

/// GraphProto.
pub fn graph(nodes: &[Vec<u8>], inputs: &[Vec<u8>], outputs: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    let mut graph = Vec::new();
    nodes.iter().for_each(|n| bytes(&mut graph, 1, n));
    bytes(&mut graph, 2, b"g");
    initializers.iter().for_each(|i| bytes(&mut graph, 5, i));
    inputs.iter().for_each(|i| bytes(&mut graph, 11, i));
    outputs.iter().for_each(|o| bytes(&mut graph, 12, o));
    graph
}

/// ModelProto, opset 17, IR 9.
pub fn onnx(nodes: &[Vec<u8>], inputs: &[Vec<u8>], outputs: &[Vec<u8>], initializers: &[Vec<u8>]) -> Vec<u8> {
    let graph = graph(nodes, inputs, outputs, initializers);
    let (mut opset, mut model) = (Vec::new(), Vec::new());
    bytes(&mut opset, 1, b"");
    int(&mut opset, 2, 17);
    int(&mut model, 1, 9);
    bytes(&mut model, 7, &graph);
    bytes(&mut model, 8, &opset);
    model
}

/// OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1.
pub fn addsub(element: i64, dims: &[D]) -> Vec<u8> {
    let t = |n| tensor(n, element, dims);
    onnx(
        &[node("Add", &["INPUT0", "INPUT1"], &["OUTPUT0"], &[]), node("Sub", &["INPUT0", "INPUT1"], &["OUTPUT1"], &[])],
        &[t("INPUT0"), t("INPUT1")],
        &[t("OUTPUT0"), t("OUTPUT1")],
        &[],
    )
}

pub fn identity(element: i64, dims: &[D]) -> Vec<u8> {
    onnx(&[node("Identity", &["I"], &["O"], &[])], &[tensor("I", element, dims)], &[tensor("O", element, dims)], &[])
}

/// A version directory, removed on drop.
pub struct Version(pub PathBuf);

impl Version {
    pub fn new(file: &[u8]) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("nereid_onnx_{}_{n}/m/1", std::process::id()));
        std::fs::create_dir_all(&directory).expect("temporary directory");
        std::fs::write(directory.join("model.onnx"), file).expect("model file");
        Self(directory)
    }

    pub fn spec(&self, config: &ModelConfig) -> OpenSpec {
        OpenSpec {
            model: "m".into(),
            version: 1,
            model_directory: self.0.parent().expect("model directory").to_owned(),
            version_directory: self.0.clone(),
            config: config.encode_to_vec().into(),
            settings: vec![],
            config_json: String::new(),
            completes: false,
            code_directory: None,
            library: None,
            batching: None,
        }
    }

    pub fn open(&self, config: &ModelConfig) -> Result<Box<dyn Opened>> {
        OnnxBackend::new(Some(library())).open(&self.spec(config))
    }

    pub fn load(&self, config: &ModelConfig, signature: Signature) -> Arc<dyn Model> {
        let opened = self.open(config).expect("opens");
        opened.finish(config, Arc::new(signature)).expect("matches")
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().and_then(Path::parent).unwrap_or(&self.0));
    }
}

pub fn input(name: &'static str, datatype: DataType, dims: &[i64]) -> InputSpec {
    InputSpec {
        name: name.into(),
        datatype,
        dims: Shape::from_slice(dims),
        reshape: None,
        optional: false,
        allow_ragged_batch: false,
    }
}

pub fn output(name: &'static str, datatype: DataType, dims: &[i64]) -> OutputSpec {
    OutputSpec { name: name.into(), datatype, dims: Shape::from_slice(dims), reshape: None, labels: Default::default() }
}

pub fn signature(max_batch_size: u32, inputs: Vec<InputSpec>, outputs: Vec<OutputSpec>) -> Signature {
    Signature { model: "m".into(), version: "1".into(), max_batch_size, inputs, outputs, decoupled: false }
}

pub fn addsub_signature(max_batch_size: u32, datatype: DataType, dims: &[i64]) -> Signature {
    signature(
        max_batch_size,
        vec![input("INPUT0", datatype, dims), input("INPUT1", datatype, dims)],
        vec![output("OUTPUT0", datatype, dims), output("OUTPUT1", datatype, dims)],
    )
}

/// A request with the inputs `(index, shape, contents)` that wants all outputs.
pub fn request(signature: &Signature, rows: u32, inputs: &[(u16, &[i64], Data)]) -> BatchEntry {
    let mut request = InferRequest::default();
    let mut checked = Checked { rows, ..Checked::default() };
    for (index, shape, data) in inputs {
        let spec = &signature.inputs[usize::from(*index)];
        request.inputs.push(InputTensor {
            name: spec.name.clone(),
            datatype: Some(spec.datatype),
            shape: Shape::from_slice(shape),
            data: data.clone(),
        });
        checked.inputs.push(*index);
    }
    checked.outputs = (0..signature.outputs.len() as u16).map(|i| (i, None)).collect();
    BatchEntry::new(request.into(), checked)
}

/// Runs a batch.
pub fn run(model: &dyn Model, mut entries: Vec<BatchEntry>) -> Vec<Result<Outcome>> {
    let control = RunControl::new(entries.len() as u32);
    let marks = model.execute(0, &mut Batch::new(&mut entries), &control);
    assert!(
        marks.inputs_ready > 0
            && marks.inputs_ready <= marks.inference_end
            && marks.inference_end <= marks.outputs_ready
    );
    entries.into_iter().map(|e| e.result.expect("every request gets a result")).collect()
}

pub fn i32s(values: impl IntoIterator<Item = i32>) -> Data {
    Data::Bytes(values.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>().into())
}

pub fn i64s(values: impl IntoIterator<Item = i64>) -> Data {
    Data::Bytes(values.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>().into())
}

pub fn f32s(values: impl IntoIterator<Item = f32>) -> Data {
    Data::Bytes(values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into())
}

pub fn strings(values: &[&[u8]]) -> Data {
    let mut raw = Vec::new();
    values.iter().for_each(|v| tensor::strings::push(&mut raw, v));
    Data::Bytes(Bytes::from(raw))
}

/// Shape and contents of an output.
pub fn seen(outcome: &Result<Outcome>, at: usize) -> (Vec<i64>, Vec<u8>) {
    let outcome = outcome.as_ref().expect("succeeds");
    (outcome.outputs[at].shape.to_vec(), outcome.outputs[at].data.to_vec().expect("in memory"))
}

pub fn same(outcome: &Result<Outcome>, at: usize, shape: &[i64], data: Data) {
    assert_eq!(seen(outcome, at), (shape.to_vec(), data.to_vec().expect("in memory")));
}
